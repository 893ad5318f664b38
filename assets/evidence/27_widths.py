"""Trains models of four widths at eight learning rates, in two standard parametrizations and in μP: 27_widths.csv.

    python assets/evidence/27_widths.py        (or: make evidence)

All start from the same model at width BASE. 27_constants.csv: how its two constants were **tuned** there, the factor
init on the matrices of the blocks and the factor output on the logits, with the rate, by two seeds that are used for
nothing else. The best pair of them is kept by all at every width. In "standard" nothing else depends on the width; in
"fan-in" the start does: the matrices of the blocks and the unembedding are drawn with a std of σ / √m, m times as wide
as BASE, so as 1 / √fan-in; in "logits" only the factor on the logits does, divided by m, as in "muP", which is with_mup
and mup_groups from BASE. AdamW without decay, 256 steps of 512 bytes of
the text of library.py, lesson 14's cosine. In 27_widths.csv each width has all RATES, from as many seeds as SEEDS says.
"fan-in" and "logits" have FEW_RATES from as many seeds as OTHERS says; at BASE both are "standard".

27_transfer.csv: the widest model from five more seeds, in each, at the rate that is best for it and at the one that is
best for BASE, by the means of 27_widths.csv.
"""

import math
import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.evidence import scaling, table  # noqa: E402
from solutions.ex27_scaling import hidden_matrices, mup_groups, with_mup  # noqa: E402

TABLE, CONSTANTS, TRANSFER = HERE / "27_widths.csv", HERE / "27_constants.csv", HERE / "27_transfer.csv"
COLUMNS = ["parametrization", "width", "rate", "seed", "bits per byte"]
CONSTANTS_COLUMNS = ["init", "output", "rate", "seed", "bits per byte"]
BASE, LAYERS, STEPS, BATCH = 32, 2, 256, 8
WIDTHS = (32, 64, 128, 256)
RATES = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064)
INITS, OUTPUTS, TRIED = (1, 2, 4), (1, 4, 16, 64), (0.004, 0.008, 0.016, 0.032, 0.064)
SEEDS, TUNED_ON = {32: 4, 64: 2, 128: 2, 256: 2}, (100, 101)
FINAL = range(10, 15)               # the seeds of 27_transfer.csv
PARAMETRIZATIONS = ("standard", "muP")
OTHERS, FEW_RATES = {"fan-in": {256: 1, 128: 1, 64: 1}, "logits": {256: 1}}, RATES[:5]


def train(parametrization: str, width: int, rate: float, seed: int, init: float, output: float,
          stop: int | None = None):
    """A trained model, and its losses."""
    config = scaling.config(width, LAYERS, tied=False)
    base = scaling.config(BASE, LAYERS, tied=False) if parametrization == "muP" else config
    if parametrization == "logits":
        output *= BASE / width
    model = with_mup(scaling.new(config, seed), base, init, output)
    if parametrization == "fan-in":
        with torch.no_grad():
            for p in (*hidden_matrices(model).values(), model.unembedding.weight):
                p.mul_(math.sqrt(BASE / width))
    adam = torch.optim.AdamW(mup_groups(model, base, rate), betas=(0.9, 0.95), fused=True)
    return model, scaling.train(model, adam, seed, STEPS, BATCH, scaling.cosine(STEPS), stop)


def bits(*run) -> str:
    return f"{scaling.held_out(train(*run)[0]) / math.log(2):.4f}"


def mean(file: Path, start: tuple) -> float:
    """The mean of the last column over the rows that begin so."""
    start = tuple(map(str, start))
    return torch.tensor([float(row[-1]) for row in table.read(file) if tuple(row[:len(start)]) == start]).mean().item()


def constants() -> tuple[float, float]:
    """The init and output that are best at their own best rate."""
    return min(((init, output) for init in INITS for output in OUTPUTS),
               key=lambda pair: min(mean(CONSTANTS, (*pair, rate)) for rate in TRIED))


def best(parametrization: str, width: int) -> float:
    if parametrization in OTHERS and width == BASE:
        return best("standard", BASE)
    rates = FEW_RATES if parametrization in OTHERS else RATES
    return min(rates, key=lambda rate: mean(TABLE, (parametrization, width, rate)))


def main() -> None:
    torch.set_num_threads(1)
    table.resume(CONSTANTS, CONSTANTS_COLUMNS,
                 [(init, output, rate, seed) for init in INITS for output in OUTPUTS for rate in TRIED
                  for seed in TUNED_ON],
                 lambda init, output, rate, seed: [[str(init), str(output), str(rate), str(seed),
                                                    bits("standard", BASE, rate, seed, init, output)]])
    init, output = constants()
    table.resume(TABLE, COLUMNS,
                 [*((name, width, rate, seed) for width in WIDTHS for seed in range(SEEDS[width]) for name in
                    PARAMETRIZATIONS for rate in RATES),
                  *((name, width, rate, seed) for name, of in OTHERS.items() for width, seeds in of.items()
                    for seed in range(seeds) for rate in FEW_RATES)],
                 lambda *run: [[*map(str, run), bits(*run, init, output)]])

    widest = WIDTHS[-1]
    table.resume(TRANSFER, COLUMNS,
                 [(name, widest, rate, seed) for seed in FINAL for name in (*PARAMETRIZATIONS, *OTHERS)
                  for rate in sorted({best(name, BASE), best(name, widest)})],
                 lambda *run: [[*map(str, run), bits(*run, init, output)]])


if __name__ == "__main__":
    main()
