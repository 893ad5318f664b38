"""A norm over the sequence tells each token what follows: losses on random tokens, which nobody can foresee.

    python assets/evidence/04_leak.py        writes 04_leak.csv, resumable
"""

import sys
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.evidence import table  # noqa: E402
from solutions.ex02_embedding import Embedding  # noqa: E402
from solutions.ex03_linear import Linear  # noqa: E402
from solutions.ex04_normalization import RMSNorm  # noqa: E402

FILE = HERE / "04_leak.csv"
COLUMNS = ["norm", "seed", "training", "generation"]
KINDS, LENGTH, WIDTH = 10, 6, 32


def over_sequence(t):
    return t * torch.rsqrt(t.pow(2).mean(-2, keepdim=True) + 1e-5)


class Guesser(torch.nn.Module):
    """Guesses the next token from one token alone, through a norm and two layers."""

    def __init__(self, norm):
        super().__init__()
        self.table, self.norm = Embedding(KINDS, WIDTH), norm
        self.hidden, self.out = Linear(WIDTH, 4 * WIDTH), Linear(4 * WIDTH, KINDS)

    def forward(self, ids):
        return self.out(torch.relu(self.hidden(self.norm(self.table(ids)))))


def loss_of(model, ids):
    """Mean loss of guessing each token from what the model is given at the place before it."""
    return cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def losses(norm, seed: int, steps: int = 300) -> tuple[float, float]:
    torch.manual_seed(seed)
    model = Guesser(norm)
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        adam.zero_grad()
        loss_of(model, torch.randint(KINDS, (64, LENGTH))).backward()
        adam.step()
    fresh = torch.randint(KINDS, (2000, LENGTH))
    with torch.no_grad():
        whole = loss_of(model, fresh).item()
        cut = sum(cross_entropy(model(fresh[:, :n])[:, -1], fresh[:, n]).item()       # nothing stands behind n - 1
                  for n in range(1, LENGTH)) / (LENGTH - 1)
    return whole, cut


def main() -> None:
    torch.set_num_threads(1)
    norms = {"RMSNorm": lambda: RMSNorm(WIDTH), "over the sequence": lambda: over_sequence}
    table.resume(FILE, COLUMNS, [(name, seed) for seed in range(5) for name in norms], lambda name, seed: [
        (name, seed, *(f"{loss:.4f}" for loss in losses(norms[name](), seed)))])


if __name__ == "__main__":
    main()
