"""Trains one model with AdamW, with Muon, and with controls: 27_muon_scaled.csv and times.

    python assets/evidence/27_muon.py        (or: make evidence)

All see the same number of tokens, in the same order: STEPS of 2,048 bytes of the text of library.py. Muon moves the
matrices of the blocks, by the shape factor "match_rms_adamw", and AdamW the rest, at the rate that was best for AdamW
alone. "AdamW, WSD" keeps the peak until the last FALL steps, and falls by 1 − √t. "Muon, 0 steps" is a control: Muon in
all but the steps of Newton–Schulz. The momentum is only divided by its norm and, by a larger rate, brought to the size
that it would have with all strengths at 1; its decay is made smaller, so that rate · decay is Muon's.

The unembedding is a matrix of its own, and the logits are multiplied by OUTPUT, as in 27_ladder.py: so AdamW does not
lose its first steps on a start that is too timid, and the contestants differ by what the optimizers do.

**Tuned**: the learning rate, for each by itself, over all of its RATES, by a seed that is used for nothing else. At its
best rate each is then trained from five seeds. One row for each run; rows that are there are kept, so a run that was
stopped goes on. losses are means of 20 steps, bits per byte those of held-out text.

Muon's run has a rate for the matrices and one for the rest. In 27_muon_two.csv AdamW has two as well, tuned over all
pairs of MATRICES and REST by the same seed; then five seeds at the best pair.

27_muon_texts.csv: where a loss is measured. AdamW at its best rate, seed 0, after its training: bits per byte of the
HELD_OUT bytes that all other tables have, of all that is held out, and of five pieces of the training text as long.

27_step.csv has the milliseconds of one step of lesson 14's AdamW and of Muon with it, on the machine that ran them, by
width: forward and backward pass and clipping in "model", the rest in "optimizer"; each the median of 15.
"""

import math
import sys
from itertools import product
from pathlib import Path
from time import perf_counter

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.evidence import library, scaling, table  # noqa: E402
from solutions.ex05_softmax import cross_entropy  # noqa: E402
from solutions.ex14_training import AdamW, clip_grad_norm, evaluate, parameter_groups  # noqa: E402
from solutions.ex27_scaling import hidden_matrices, muon_and_adamw, with_mup, wsd  # noqa: E402

TABLE, TIMES = HERE / "27_muon_scaled.csv", HERE / "27_step.csv"
TWO, TEXTS = HERE / "27_muon_two.csv", HERE / "27_muon_texts.csv"
COLUMNS = ["optimizer", "rate", "seed", "bits per byte", "losses"]
TWO_COLUMNS = ["matrices", "rest", "seed", "bits per byte", "losses"]
TEXTS_COLUMNS = ["optimizer", "text", "bits per byte"]
TIMES_COLUMNS = ["optimizer", "width", "model ms", "optimizer ms"]
ADAMW_RATES, MUON_RATES = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032), (0.004, 0.008, 0.016, 0.032, 0.064, 0.128)
RATES = {"AdamW": ADAMW_RATES, "Muon": MUON_RATES, "AdamW, WSD": ADAMW_RATES,
         "Muon, 0 steps": (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016)}
MATRICES, REST = (0.002, 0.004, 0.008), (0.002, 0.004, 0.008, 0.016, 0.032)
SEEDS, TUNED_ON = range(5), 100
STEPS, BATCH, FALL, DECAY, OUTPUT = 400, 32, 80, 0.1, 16
WIDTH, LAYERS = 64, 3
WIDTHS = (64, 128, 256)


def optimizer_of(name: str, model, rate: float, adamw_rate: float):
    if name == "Muon":
        return muon_and_adamw(model, rate, adamw_rate, DECAY, shape="match_rms_adamw")
    if name == "Muon, 0 steps":         # u / |u|: times √r to have the size of r strengths of 1, and r is WIDTH in all
        both = muon_and_adamw(model, math.sqrt(WIDTH) * rate, adamw_rate, DECAY, shape="match_rms_adamw", steps=0)
        both.param_groups[0]["weight_decay"] /= math.sqrt(WIDTH)
        return both
    groups = parameter_groups(model, DECAY)
    if name == "AdamW, two rates":
        hidden = {id(p) for p in hidden_matrices(model).values()}
        groups = [{**group, "params": [p for p in group["params"] if (id(p) in hidden) == of], "lr": lr}
                  for group in groups for of, lr in ((True, rate), (False, adamw_rate))]
    return AdamW(groups, rate, betas=(0.9, 0.95))


def share(name: str):
    if name == "AdamW, WSD":
        return lambda step: wsd(step, STEPS // 20, FALL, STEPS, 1.0, 0.0, fall="sqrt")
    return scaling.cosine(STEPS)


def train(name: str, rate: float, seed: int, adamw_rate: float, stop: int | None = None):
    """A trained model, and its losses."""
    config = scaling.config(WIDTH, LAYERS, tied=False)
    model = with_mup(scaling.new(config, seed), config, output=OUTPUT)      # its own base: only OUTPUT is new
    optimizer = optimizer_of(name, model, rate, adamw_rate)
    return model, scaling.train(model, optimizer, seed, STEPS, BATCH, share(name), stop)


def best(name: str) -> float:
    """The rate that is lowest in the table by the tuning seed."""
    tried = {float(row[1]): float(row[3]) for row in table.read(TABLE) if row[0] == name and int(row[2]) == TUNED_ON}
    return min(RATES[name], key=tried.__getitem__)


def measure(name: str, rate: float, seed: int, adamw_rate: float) -> list[str]:
    model, losses = train(name, rate, seed, adamw_rate)
    return [name, str(rate), str(seed), f"{scaling.held_out(model) / math.log(2):.4f}", scaling.means(losses)]


def measure_two(matrices: float, rest: float, seed: int) -> list[str]:
    _, *row = measure("AdamW, two rates", matrices, seed, rest)
    return [row[0], str(rest), *row[1:]]


def best_pair() -> tuple[float, float]:
    """Matrices and rest: lowest in the table by the tuning seed."""
    tried = {(float(row[0]), float(row[1])): float(row[3]) for row in table.read(TWO) if int(row[2]) == TUNED_ON}
    return min(tried, key=tried.__getitem__)


def measure_texts(name: str) -> list[list[str]]:
    """One row for each piece of text."""
    model, _ = train(name, best(name), 0, math.nan)
    (training, held), size = library.texts(), scaling.HELD_OUT
    pieces = {"held out": held[:size], "all held out": held} | {
        f"training {n}": training[n * len(training) // 5:][:size] for n in range(5)}
    return [[name, text, f"{evaluate(model, piece, scaling.SEQ, batch=32) / math.log(2):.4f}"]
            for text, piece in pieces.items()]


def time_step(name: str, width: int) -> list[str]:
    model = scaling.new(scaling.config(width, LAYERS), 0)
    optimizer = optimizer_of(name, model, 0.001, 0.001)
    inputs, took = torch.randint(256, (BATCH, scaling.SEQ)), []
    for _ in range(15):
        start = perf_counter()
        optimizer.zero_grad()
        cross_entropy(model(inputs), inputs).backward()
        clip_grad_norm(list(model.parameters()), 1.0)
        between = perf_counter()
        optimizer.step()
        took.append((between - start, perf_counter() - between))
    of_model, of_optimizer = torch.tensor(took).median(0).values.tolist()
    return [name, str(width), f"{1e3 * of_model:.2f}", f"{1e3 * of_optimizer:.2f}"]


def main() -> None:
    torch.set_num_threads(1)
    adamw_rate = math.nan
    for name, rates in RATES.items():
        for settings in ([(rate, TUNED_ON) for rate in rates], None):
            runs = [(name, *setting) for setting in settings or [(best(name), seed) for seed in SEEDS]]
            table.resume(TABLE, COLUMNS, runs, lambda *run: [measure(*run, adamw_rate)])
        if name == "AdamW":
            adamw_rate = best(name)
    table.resume(TWO, TWO_COLUMNS, [(*rates, TUNED_ON) for rates in product(MATRICES, REST)],
                 lambda *run: [measure_two(*run)])
    table.resume(TWO, TWO_COLUMNS, [(*best_pair(), seed) for seed in SEEDS], lambda *run: [measure_two(*run)])
    table.resume(TEXTS, TEXTS_COLUMNS, [("AdamW",)], measure_texts)
    table.resume(TIMES, TIMES_COLUMNS, [(name, width) for width in WIDTHS for name in ("AdamW", "Muon")],
                 lambda *run: [time_step(*run)])


if __name__ == "__main__":
    main()
