"""Say the token three places back: one attention layer, six ways of telling positions, trained on 16 tokens.

    python assets/evidence/06_copier.py        writes 06_copier.csv, resumable

Also: what two wrong sinusoids do, given to the model that was trained on the right one, or trained on.
"""

import sys
from pathlib import Path

import torch
from einops import rearrange

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.evidence import table  # noqa: E402
from solutions.ex03_linear import Linear  # noqa: E402
from solutions.ex06_positions import (  # noqa: E402
    ClippedRelativeBias,
    LearnedPositions,
    alibi_bias,
    relative_distance,
    sinusoidal_encoding,
    t5_bucket,
)

FILE = HERE / "06_copier.csv"
COLUMNS = ["positions", "seed", "length", "accuracy"]
LENGTHS = [16, 24, 32, 48, 64]


class Copier(torch.nn.Module):
    def __init__(self, add=None, bias=None):
        super().__init__()
        self.add, self.bias = add, bias
        self.words = torch.nn.Parameter(torch.randn(12, 32))
        self.qkv, self.out = Linear(32, 96), Linear(32, 12)

    def forward(self, ids):
        n, x = ids.shape[1], self.words[ids]
        x = x + self.add(torch.arange(n)) if self.add else x
        q, k, v = rearrange(self.qkv(x), "b n (three h d) -> three b h n d", three=3, h=4)
        scores = q @ k.mT / 8 ** 0.5
        scores = scores + self.bias(n, n) if self.bias else scores
        hidden = relative_distance(n, n) > 0
        y = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v
        return self.out(rearrange(y, "b h n d -> b n (h d)"))


class T5Bias(torch.nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(heads, 32))

    def forward(self, q_len, k_len):
        return self.weight[:, t5_bucket(relative_distance(q_len, k_len), bidirectional=False)]


def make(kind):
    return Copier(**{
        "none": lambda: {},
        "sinusoidal": lambda: {"add": lambda p: sinusoidal_encoding(len(p), 32)},
        "learned": lambda: {"add": LearnedPositions(16, 32)},
        "clipped": lambda: {"bias": ClippedRelativeBias(4, 8)},
        "T5": lambda: {"bias": T5Bias(4)},
        "ALiBi": lambda: {"bias": lambda q, k: alibi_bias(4, q, k)}}[kind]())


def accuracy(model, n):
    ids = torch.randint(12, (100, n), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        said = model(ids)[:, 3:].argmax(-1)
    return (said == ids[:, :-3]).float().mean().item()


def train(model, steps=200):
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        ids = torch.randint(12, (32, 16))
        logits = model(ids)[:, 3:].flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(logits, ids[:, :-3].flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
    return model


def wrong_exponent(n, width):
    speed = 10_000 ** (-torch.arange(width // 2) / width)
    angles = torch.arange(n)[:, None] * speed
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


def halves(n, width):
    table = sinusoidal_encoding(n, width)
    return torch.cat([table[:, 0::2], table[:, 1::2]], dim=1)


def rows_of(kind: str, seed: int) -> list[tuple]:
    torch.manual_seed(seed)
    model = train(make(kind))
    found = [(kind, n, accuracy(model, n)) for n in LENGTHS if kind != "learned" or n <= 16]
    if kind == "sinusoidal":
        for name, table in (("i / d", wrong_exponent), ("halves", halves)):
            model.add = lambda p, table=table: table(len(p), 32)
            found.append((f"{name}, given", 16, accuracy(model, 16)))
            torch.manual_seed(seed)
            found.append((f"{name}, trained", 16, accuracy(train(Copier(add=model.add)), 16)))
    return [(name, seed, n, f"{share:.4f}") for name, n, share in found]


def main() -> None:
    torch.set_num_threads(1)
    kinds = ("none", "sinusoidal", "learned", "clipped", "T5", "ALiBi")
    table.resume(FILE, COLUMNS, [(kind, seed) for seed in range(5) for kind in kinds], rows_of)


if __name__ == "__main__":
    main()
