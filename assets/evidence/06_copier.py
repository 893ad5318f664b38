"""Two tasks for one attention layer, six ways of telling positions, trained on 16 tokens and tested on up to 128.

    python assets/evidence/06_copier.py        writes 06_copier.csv, 06_wrong.csv and 06_filled.csv, resumable

copy: say the token three places back. recall: say the last token of class A (kinds 0 to 3 of 12) so far.
Tuned: Adam's rate, for each way and task, with the seeds GRID: 0.003, 0.01 and 0.03, and on along RATES as long as the
best one is the least or the greatest of those tried. T5 begins with 0.1 as well: with 16 tokens to learn from it is
the same model as clipped with m = 20, whose rates went that far. The best (most right answers at the greatest length
after 600 steps; where rates share the best, the one nearest to 0.01) runs with all seeds. Accuracies stand there
after 200 and after 600 steps. A control: clipped with a limit past the trained distances (m = 20).
06_wrong.csv: what two wrong sinusoids do, given to the model that was trained on the right one, or trained on.
06_filled.csv: the control for T5, whose buckets of 16 and more were never trained: they get the number of bucket 15.
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

KINDS = ("none", "sinusoidal", "learned", "clipped", "T5", "ALiBi", "clipped, m = 20")
RATES = ("0.0001", "0.0003", "0.001", "0.003", "0.01", "0.03", "0.1", "0.3")
STOPS, LENGTHS, CLASS_A = (200, 600), (16, 32, 64, 128), 4
TASKS, GRID, SEEDS = ("copy", "recall"), (0, 4), range(5)
COLUMNS = ["task", "positions", "rate", "seed", "step", *map(str, LENGTHS)]


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
        "clipped, m = 20": lambda: {"bias": ClippedRelativeBias(4, 20)},
        "T5": lambda: {"bias": T5Bias(4)},
        "ALiBi": lambda: {"bias": lambda q, k: alibi_bias(4, q, k)}}[kind]())


def answers(task, ids):
    """What is to be said at each place, and -100 where there is no answer yet."""
    if task == "copy":
        return torch.cat([torch.full_like(ids[:, :3], -100), ids[:, :-3]], 1)
    places = torch.arange(ids.shape[1]).expand_as(ids)
    last = places.where(ids < CLASS_A, -1).cummax(1).values
    return ids.gather(1, last.clamp(min=0)).where(last >= 0, -100)


@torch.no_grad()
def accuracy(model, n, task="copy"):
    ids = torch.randint(12, (100, n), generator=torch.Generator().manual_seed(1))
    right = answers(task, ids)
    return (model(ids).argmax(-1) == right)[right >= 0].float().mean().item()


def train(model, steps, rate=0.01, task="copy", seen=lambda model, step: None):
    adam = torch.optim.Adam(model.parameters(), lr=rate)
    for step in range(1, steps + 1):
        ids = torch.randint(12, (32, 16))
        loss = torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), answers(task, ids).flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
        seen(model, step)
    return model


def ways(task: str, kind: str, rate: str, seed: int) -> list[tuple]:
    torch.manual_seed(seed)
    found = []

    def seen(model, step):
        if step in STOPS:
            shares = (f"{accuracy(model, n, task):.4f}" if kind != "learned" or n <= 16 else "" for n in LENGTHS)
            found.append((task, kind, rate, seed, step, *shares))

    train(make(kind), STOPS[-1], float(rate), task, seen)
    return found


def filled(task: str, rate: str, seed: int) -> list[tuple]:
    torch.manual_seed(seed)
    model = train(make("T5"), STOPS[-1], float(rate), task)
    before = accuracy(model, LENGTHS[-1], task)
    model.bias.weight.data[:, 16:] = model.bias.weight.data[:, 15:16]
    return [(task, rate, seed, f"{before:.4f}", f"{accuracy(model, LENGTHS[-1], task):.4f}")]


def wrong_exponent(n, width):
    speed = 10_000 ** (-torch.arange(width // 2) / width)
    angles = torch.arange(n)[:, None] * speed
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


def halves(n, width):
    right = sinusoidal_encoding(n, width)
    return torch.cat([right[:, 0::2], right[:, 1::2]], dim=1)


def wrong(seed: int) -> list[tuple]:
    torch.manual_seed(seed)
    model = train(make("sinusoidal"), 200)
    found = [("sinusoidal", accuracy(model, 16))]
    for name, clock in (("i / d", wrong_exponent), ("halves", halves)):
        model.add = lambda p, clock=clock: clock(len(p), 32)
        found.append((f"{name}, given", accuracy(model, 16)))
        torch.manual_seed(seed)
        found.append((f"{name}, trained", accuracy(train(Copier(add=model.add), 200), 16)))
    return [(seed, name, f"{share:.4f}") for name, share in found]


def best(task: str, kind: str, rows: list[list[str]]) -> str:
    """The rate with the most right answers at the greatest length that was tested, in the mean of the grid's seeds."""
    shares = dict.fromkeys(sorted(RATES, key=lambda rate: abs(RATES.index(rate) - RATES.index("0.01"))), 0.0)
    for row in rows:
        if row[:2] == [task, kind] and int(row[3]) in GRID and row[4] == str(STOPS[-1]):
            shares[row[2]] += float(row[-1] or row[5])
    return max(shares, key=shares.__getitem__)


def tune(file: Path, task: str, kind: str) -> str:
    """The best rate: from 0.003 to 0.03 (T5: 0.1), and one further at an end where the best lies, until it does not."""
    low, high = RATES.index("0.003"), RATES.index("0.1" if kind == "T5" else "0.03")
    while True:
        table.resume(file, COLUMNS, [(task, kind, rate, seed) for seed in GRID for rate in RATES[low:high + 1]], ways)
        at = RATES.index(best(task, kind, table.read(file)))
        if low < at < high or at in (0, len(RATES) - 1):
            return RATES[at]
        low, high = min(low, at - 1), max(high, at + 1)


def main() -> None:
    torch.set_num_threads(1)
    file = HERE / "06_copier.csv"
    rates = {(task, kind): tune(file, task, kind) for task in TASKS for kind in KINDS}
    table.resume(file, COLUMNS, [(*way, rate, seed) for way, rate in rates.items() for seed in SEEDS], ways)
    table.resume(HERE / "06_wrong.csv", ["seed", "table", "accuracy"], [(seed,) for seed in SEEDS], wrong)
    table.resume(HERE / "06_filled.csv", ["task", "rate", "seed", "as trained", "filled"],
                 [(task, rates[task, "T5"], seed) for task in TASKS for seed in SEEDS], filled)


if __name__ == "__main__":
    main()
