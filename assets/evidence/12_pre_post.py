"""Trains lesson 12's models of a rhyme from five seeds each, and writes 12_pre_post.csv.

    python assets/evidence/12_pre_post.py        (or: make evidence)

Twelve blocks in either order, and two post-norm ones, 50 steps at Adam's rate of 0.003. **Tuned**: both deep models
also have other rates, from all five seeds, and the post-norm one has 300 steps, with and without a warm-up of 100 steps
(the rate grows from step to step until it is whole). One row for each model, rate and seed. Rows that are there already
are kept, so a run that was stopped goes on.
"""

import sys
from pathlib import Path

import torch
from torch import nn

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.evidence import table  # noqa: E402
from given.torch_kernels import use_torch_kernels  # noqa: E402
from solutions.ex04_normalization import LayerNorm  # noqa: E402
from solutions.ex08_feedforward import MLP  # noqa: E402
from solutions.ex09_attention import MultiHeadAttention, causal_mask  # noqa: E402
from solutions.ex12_block import PostNormBlock, PreNormBlock  # noqa: E402

TABLE = HERE / "12_pre_post.csv"
SETTINGS = [("pre", 12, 0.003), ("post", 12, 0.003), ("post", 2, 0.003), ("post", 12, 0.001), ("post", 12, 0.0003),
            ("pre", 12, 0.03), ("pre", 12, 0.01), ("pre", 12, 0.001), ("pre", 12, 0.0003),
            ("post, 300 steps", 12, 0.001), ("post, 300 steps", 12, 0.0003),
            ("post, 300 steps, warm-up", 12, 0.001)]
SEEDS = range(5)
STEPS, LONG, WARM_UP, BATCH, SEQ = 50, 300, 100, 8, 16
COLUMNS = ["order", "blocks", "rate", "seed", "cosine before", "cosine after",
           "gradient of block 0 before", "gradient of block 0 after", "losses"]

LINES = [("house", "that Jack built"), ("malt", "that lay in"), ("rat", "that ate"),
         ("cat", "that killed"), ("dog", "that worried"),
         ("cow with the crumpled horn", "that tossed"), ("maiden all forlorn", "that milked"),
         ("man all tattered and torn", "that kissed"),
         ("priest all shaven and shorn", "that married"),
         ("cock that crowed in the morn", "that woke"),
         ("farmer sowing his corn", "that kept"),
         ("horse and the hound and the horn", "that belonged to")]


def rhyme() -> list[str]:
    words = []
    for n in range(1, 13):
        verse = [f"the {who} {did}" for who, did in reversed(LINES[:n])]
        words += ["this", "is", *" ".join(verse).split()]
    return words


class Guesser(nn.Module):
    """The lesson's model: an embedding, blocks, a last norm where they are pre-norm, logits."""

    def __init__(self, kind: str, layers: int, vocab: int, seq: int = SEQ):
        super().__init__()
        self.embed = nn.Embedding(vocab, 32)
        self.places = nn.Parameter(torch.randn(seq, 32))
        make = {"pre": lambda: PreNormBlock(LayerNorm(32), MultiHeadAttention(32, 4, bias=True),
                                            LayerNorm(32), MLP(32, 64, "gelu")),
                "post": lambda: PostNormBlock(32, 4, 64)}[kind]
        self.blocks = nn.ModuleList(make() for _ in range(layers))
        self.norm = LayerNorm(32) if kind == "pre" else nn.Identity()
        self.unembed = nn.Linear(32, vocab)
        self.mask = causal_mask(seq)

    def stream(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids) + self.places
        for block in self.blocks:
            x = block(x, mask=self.mask)
        return x

    def loss(self, ids: torch.Tensor) -> torch.Tensor:
        logits = self.unembed(self.norm(self.stream(ids[:, :-1])))
        return nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def first_gradient(model: Guesser, rows: torch.Tensor) -> float:
    model.zero_grad()
    model.loss(rows).backward()
    return model.blocks[0].feed_forward.down.weight.grad.norm().item()


def alike(x: torch.Tensor) -> float:
    return nn.functional.cosine_similarity(x[:, 1:], x[:, :1], dim=-1).mean().item()


def measure(order: str, layers: int, rate: float, seed: int) -> list[str]:
    """One row of the table: a model of its own, trained from this seed."""
    kind, *longer = order.split(", ")
    words = rhyme()
    vocab = sorted(set(words))
    ids = torch.tensor([vocab.index(word) for word in words])
    rows, windows = ids.unfold(0, SEQ + 1, SEQ + 1)[:8], ids.unfold(0, SEQ + 1, 1)
    torch.manual_seed(seed)
    model = use_torch_kernels(Guesser(kind, layers, len(vocab)))
    gradients, cosines = [first_gradient(model, rows)], [alike(model.stream(rows[:, 1:]))]
    adam, losses = torch.optim.Adam(model.parameters(), lr=rate), []
    for step in range(LONG if longer else STEPS):
        adam.param_groups[0]["lr"] = rate * (min(1, (step + 1) / WARM_UP) if "warm-up" in longer else 1)
        loss = model.loss(windows[torch.randint(len(windows), (BATCH,))])
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    gradients.append(first_gradient(model, rows))
    cosines.append(alike(model.stream(rows[:, 1:])))
    return [order, str(layers), str(rate), str(seed), *(f"{cosine:.3f}" for cosine in cosines),
            *(f"{gradient:.2e}" for gradient in gradients), " ".join(f"{loss:.3f}" for loss in losses)]


def main() -> None:
    torch.set_num_threads(1)
    table.resume(TABLE, COLUMNS, [(*setting, seed) for setting in SETTINGS for seed in SEEDS],
                 lambda *setting: [measure(*setting)])


if __name__ == "__main__":
    main()
