"""Thirty residual layers learn 32 answers by heart, with and without a norm, from two starts: losses by rate and step.

    python assets/evidence/04_learning_rates.py        writes 04_learning_rates.csv, resumable

Tuned: the rate of plain gradient descent, for each of the four kinds over a grid of its own that ends, above, where
all five seeds are NaN. "small start" divides the first weights of the thirty layers by √30: the control.
"""

import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.evidence import table  # noqa: E402
from solutions.ex03_linear import Linear  # noqa: E402
from solutions.ex04_normalization import RMSNorm  # noqa: E402

FILE = HERE / "04_learning_rates.csv"
STOPS = (40, 80, 160)
COLUMNS = ["kind", "rate", "seed", *(f"loss {step}" for step in STOPS)]
USUAL = ("1e-2", "3e-2", "1e-1", "2e-1", "3e-1", "1e0", "3e0", "1e1")
RATES = {"no norm": ("1e-8", "1e-6", "3e-6", "1e-5", "1e-4"), "no norm, small start": USUAL, "RMSNorm": USUAL,
         "RMSNorm, small start": USUAL}


class Stack(torch.nn.Module):
    def __init__(self, norm, shrink=1.0, width=32, depth=30):
        super().__init__()
        self.norms = torch.nn.ModuleList(norm(width) for _ in range(depth + 1))
        self.layers = torch.nn.ModuleList(Linear(width, width) for _ in range(depth + 1))
        with torch.no_grad():
            for layer in self.layers[:depth]:
                layer.weight /= shrink

    def forward(self, h):
        *blocks, (last_norm, head) = zip(self.norms, self.layers, strict=True)
        for norm, layer in blocks:
            h = h + layer(torch.relu(norm(h)))
        return head(last_norm(h))


def train(kind: str, rate: float, seed: int, steps: int = STOPS[-1]) -> list[float]:
    """The loss after each number of steps: losses[40] is the one after 40. It ends where a loss is NaN or infinite."""
    torch.manual_seed(seed)
    tokens, answers = torch.randn(32, 32), torch.randn(32, 32)
    norm = RMSNorm if kind.startswith("RMSNorm") else lambda width: torch.nn.Identity()
    model = Stack(norm, 30 ** 0.5 if kind.endswith("small start") else 1.0)
    sgd = torch.optim.SGD(model.parameters(), lr=rate)
    losses = []
    for _ in range(steps + 1):
        loss = (model(tokens) - answers).pow(2).mean()
        losses.append(loss.item())
        if not loss.isfinite():
            break
        sgd.zero_grad()
        loss.backward()
        sgd.step()
    return losses


def main() -> None:
    torch.set_num_threads(1)
    settings = [(kind, rate, seed) for seed in range(5) for kind, rates in RATES.items() for rate in rates]

    def rows_of(kind, rate, seed):
        losses = train(kind, float(rate), seed)
        return [(kind, rate, seed, *(f"{losses[step]:.5g}" if step < len(losses) else "nan" for step in STOPS))]

    table.resume(FILE, COLUMNS, settings, rows_of)


if __name__ == "__main__":
    main()
