"""Trains lesson 09's layer with one head and with two, and writes 09_heads.csv.

    python assets/evidence/09_heads.py        (or: make evidence)

The task and the layer are the lesson's own: name the token before, and the one three before. **Tuned**: AdamW's rate,
over RATES, for each number of heads by itself; all rates are run from all five seeds. One row for each number of heads,
rate and seed: the loss on 768 new tokens after 300 steps. Rows that are there are kept, so a run that was
stopped goes on.
"""

import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.evidence import table  # noqa: E402
from solutions.ex02_embedding import Embedding  # noqa: E402
from solutions.ex03_linear import Linear  # noqa: E402
from solutions.ex05_softmax import cross_entropy  # noqa: E402
from solutions.ex07_rope import RoPE  # noqa: E402
from solutions.ex09_attention import MultiHeadAttention  # noqa: E402

TABLE = HERE / "09_heads.csv"
AT, RATES, SEEDS = (300,), (0.003, 0.01, 0.03, 0.1), range(5)
COLUMNS = ["heads", "rate", "seed", *(f"step {step}" for step in AT)]


def measure(heads: int, rate: float, seed: int, at: tuple = AT) -> list[str]:
    """One row of the table."""
    torch.manual_seed(seed)
    embed, read = Embedding(16, 32), Linear(32, 32)
    layer = MultiHeadAttention(32, heads, bias=True, causal=True, rope=RoPE(32 // heads, 64, base=100))
    optimizer = torch.optim.AdamW(torch.nn.ModuleList([embed, layer, read]).parameters(), lr=rate)
    asked, losses = torch.randint(16, (64, 12), generator=torch.Generator().manual_seed(99)), []

    def loss_of(ids):
        one, three = read(layer(embed(ids)))[:, 3:].chunk(2, dim=-1)
        return cross_entropy(one, ids[:, 2:-1]) + cross_entropy(three, ids[:, :-3])

    for step in range(1, at[-1] + 1):
        optimizer.zero_grad()
        loss_of(torch.randint(16, (32, 12))).backward()
        optimizer.step()
        if step in at:
            with torch.no_grad():
                losses.append(f"{loss_of(asked).item():.4f}")
    return [str(heads), str(rate), str(seed), *losses]


def main() -> None:
    torch.set_num_threads(1)
    settings = [(heads, rate, seed) for heads in (1, 2) for rate in RATES for seed in SEEDS]
    table.resume(TABLE, COLUMNS, settings, lambda *setting: [measure(*setting)])


if __name__ == "__main__":
    main()
