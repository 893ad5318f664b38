"""Turns a trained model's heads into grouped ones and trains on, for lesson 10, and writes 10_uptraining.csv.

    python assets/evidence/10_uptraining.py        (or: make evidence)

A small Llama of 8 heads with keys and values of their own learns names of characters for 600 steps. Then its 8
key/value heads become 2, in three ways: the mean of each group of four, the first of each group, and new random ones.
Each is trained on for 300 steps, and so is the model with all of its heads, as what they are held against.

**Tuned**: the rate of the 300 steps, for each start by itself. From 0.003 it is doubled or halved, within RATES, until
both neighbours are worse; what counts is the loss after the last step, from seed 0. At its best rate each start is then
run from five seeds. The first 600 steps are the same for all starts of a seed, at 0.003. One row for each
start, rate and seed: the loss on 64 pieces of the text at the steps of AT. Rows that are there are kept, so a run that
was stopped goes on. On torch's kernels.
"""

import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from unicodedata import ucd_3_2_0

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.evidence import table  # noqa: E402
from given.torch_kernels import use_torch_kernels  # noqa: E402
from solutions.ex05_softmax import cross_entropy  # noqa: E402
from solutions.ex13_transformer import ModelConfig, Transformer  # noqa: E402

TABLE = HERE / "10_uptraining.csv"
AT = (0, 10, 30, 100, 300)
COLUMNS = ["start", "rate", "seed", *(f"step {step}" for step in AT)]
STARTS = ("all heads", "mean", "first", "random")
RATES = (0.000375, 0.00075, 0.0015, 0.003, 0.006, 0.012)
SEEDS, TUNED_ON, FIRST_STEPS, FIRST_RATE, LENGTH = range(5), range(1), 600, 0.003, 48

names = [ucd_3_2_0.name(chr(n), "") for n in range(0x20, 0x2600)]
text = "\n".join(name for name in names if name)
letters = sorted(set(text))
data = torch.tensor([letters.index(letter) for letter in text])
FULL = ModelConfig(vocab_size=len(letters), d_model=64, layers=2, heads=8, kv_heads=8, d_ff=128, max_seq_len=64)
GROUPED = replace(FULL, kv_heads=2)


def pieces(rows: int, generator: torch.Generator) -> torch.Tensor:
    start = torch.randint(len(data) - LENGTH, (rows, 1), generator=generator)
    return data[start + torch.arange(LENGTH + 1)]


def loss_of(model: Transformer, ids: torch.Tensor) -> torch.Tensor:
    return cross_entropy(model(ids[:, :-1]), ids[:, 1:])


def learn(model: Transformer, rate: float, draw: torch.Generator, steps: int, at: tuple = ()) -> list[float]:
    """Trains the model; its loss at these steps on 64 pieces, which are the same for all runs."""
    adam, seen, asked = torch.optim.Adam(model.parameters(), rate), [], pieces(64, torch.Generator().manual_seed(99))
    for step in range(steps + 1):
        if step in at:
            with torch.no_grad():
                seen.append(loss_of(model, asked).item())
        if step == steps:
            return seen
        loss = loss_of(model, pieces(8, draw))
        adam.zero_grad()
        loss.backward()
        adam.step()


@cache
def trained(seed: int) -> dict[str, torch.Tensor]:
    """The weights of the model with all heads, after its first training."""
    torch.manual_seed(seed)
    model = use_torch_kernels(Transformer(FULL))
    learn(model, FIRST_RATE, torch.Generator().manual_seed(seed), FIRST_STEPS)
    return model.state_dict()


def grouped(weights: dict[str, torch.Tensor], start: str) -> dict[str, torch.Tensor]:
    """The weights with 2 heads of keys and values in the place of 8."""
    made = dict(weights)
    for name, weight in weights.items():
        if name.endswith(("k_proj.weight", "v_proj.weight")):
            heads = weight.unflatten(0, (GROUPED.kv_heads, 4, GROUPED.head_dim))      # groups of four
            new = {"mean": heads.mean(1), "first": heads[:, 0], "random": torch.randn_like(heads[:, 0]) * weight.std()}
            made[name] = new[start].flatten(0, 1)
    return made


def measure(start: str, rate: float, seed: int, at: tuple = AT) -> list[str]:
    """One row of the table."""
    weights = trained(seed)
    torch.manual_seed(seed)
    model = use_torch_kernels(Transformer(FULL if start == "all heads" else GROUPED))
    model.load_state_dict(weights if start == "all heads" else grouped(weights, start))
    losses = learn(model, rate, torch.Generator().manual_seed(1000 + seed), at[-1], at)
    return [start, str(rate), str(seed), *(f"{loss:.4f}" for loss in losses)]


def run(start: str, rate: float, seeds: range) -> float:
    return table.mean_loss(TABLE, COLUMNS, start, rate, seeds, measure, -1)


def tuned(start: str) -> float:
    return table.downhill(RATES, 0.003, lambda rate: run(start, rate, TUNED_ON))


def main() -> None:
    torch.set_num_threads(1)
    for start in STARTS:
        run(start, tuned(start), SEEDS)


if __name__ == "__main__":
    main()
