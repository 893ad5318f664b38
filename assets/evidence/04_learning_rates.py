"""Thirty residual layers learn 32 answers by heart, with and without a norm: the loss after 40 steps.

    python assets/evidence/04_learning_rates.py        writes 04_learning_rates.csv, resumable
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
COLUMNS = ["norm", "rate", "seed", "first", "last"]
RATES = {"no norm": range(-9, -3), "RMSNorm": range(-5, 2)}     # powers of ten
NORMS = {"no norm": lambda width: torch.nn.Identity(), "RMSNorm": RMSNorm}


class Stack(torch.nn.Module):
    def __init__(self, norm, width=32, depth=30):
        super().__init__()
        self.norms = torch.nn.ModuleList(norm(width) for _ in range(depth + 1))
        self.layers = torch.nn.ModuleList(Linear(width, width) for _ in range(depth + 1))

    def forward(self, h):
        *blocks, (last_norm, head) = zip(self.norms, self.layers, strict=True)
        for norm, layer in blocks:
            h = h + layer(torch.relu(norm(h)))
        return head(last_norm(h))


def train(norm, rate: float, seed: int, steps: int = 40) -> list[float]:
    torch.manual_seed(seed)
    tokens, answers = torch.randn(32, 32), torch.randn(32, 32)
    model = Stack(norm)
    sgd = torch.optim.SGD(model.parameters(), lr=rate)
    losses = []
    for _ in range(steps):
        loss = (model(tokens) - answers).pow(2).mean()
        losses.append(loss.item())
        sgd.zero_grad()
        loss.backward()
        sgd.step()
    return losses


def main() -> None:
    torch.set_num_threads(1)
    settings = [(name, f"1e{power}", seed) for seed in range(5) for name in RATES for power in RATES[name]]

    def rows_of(name, rate, seed):
        first, *_, last = train(NORMS[name], float(rate), seed)
        return [(name, rate, seed, f"{first:.5g}", f"{last:.5g}")]

    table.resume(FILE, COLUMNS, settings, rows_of)


if __name__ == "__main__":
    main()
