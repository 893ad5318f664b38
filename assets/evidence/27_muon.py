"""Trains one model with AdamW, with Muon, and with AdamW on a WSD schedule: 27_muon.csv, 27_muon_scaled.csv and times.

    python assets/evidence/27_muon.py        (or: make evidence)

All see the same number of tokens, in the same order: STEPS of 2,048 bytes of the text of library.py. Muon moves the
matrices of the blocks, by the shape factor "match_rms_adamw", and AdamW the rest, at the rate that was best for AdamW
alone. "AdamW, WSD" keeps the peak until the last FALL steps, and falls by 1 − √t.

27_muon.csv has lesson 13's model, as it starts. 27_muon_scaled.csv has one whose unembedding is a matrix of its own and
whose logits are multiplied by OUTPUT, as in 27_ladder.py: there AdamW does not lose its first steps on a start that is
too timid, so the two differ by what the optimizers do.

**Tuned**: the learning rate, for each by itself, over all of its RATES, by seeds that are used for nothing else: the
mean of two, in 27_muon_scaled.csv one. At its best rate each is then trained from five seeds. One row for each run;
rows that are there are kept, so a run that was stopped goes on. losses are means of 20 steps, bits per byte those of
held-out text.

27_step.csv has the milliseconds of one step of lesson 14's AdamW and of Muon with it, on the machine that ran them, by
width: forward and backward pass and clipping in "model", the rest in "optimizer"; each the median of 15.
"""

import math
import sys
from pathlib import Path
from time import perf_counter

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.evidence import scaling, table  # noqa: E402
from solutions.ex05_softmax import cross_entropy  # noqa: E402
from solutions.ex14_training import AdamW, clip_grad_norm, parameter_groups  # noqa: E402
from solutions.ex27_scaling import muon_and_adamw, with_mup, wsd  # noqa: E402

TABLE, SCALED, TIMES = HERE / "27_muon.csv", HERE / "27_muon_scaled.csv", HERE / "27_step.csv"
COLUMNS = ["optimizer", "rate", "seed", "bits per byte", "losses"]
TIMES_COLUMNS = ["optimizer", "width", "model ms", "optimizer ms"]
OPTIMIZERS = {TABLE: ("AdamW", "Muon", "AdamW, WSD"), SCALED: ("AdamW", "Muon", "AdamW, WSD")}
ADAMW_RATES, MUON_RATES = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032), (0.004, 0.008, 0.016, 0.032, 0.064, 0.128)
RATES = {"AdamW": ADAMW_RATES, "Muon": MUON_RATES, "AdamW, WSD": ADAMW_RATES}
SEEDS, TUNED_ON = range(5), {TABLE: (100, 101), SCALED: (100,)}
STEPS, BATCH, FALL, DECAY, OUTPUT = 400, 32, 80, 0.1, 16
WIDTH, LAYERS = 64, 3
WIDTHS = (64, 128, 256)


def optimizer_of(name: str, model, rate: float, adamw_rate: float):
    if name == "Muon":
        return muon_and_adamw(model, rate, adamw_rate, DECAY, shape="match_rms_adamw")
    return AdamW(parameter_groups(model, DECAY), rate, betas=(0.9, 0.95))


def share(name: str):
    if name == "AdamW, WSD":
        return lambda step: wsd(step, STEPS // 20, FALL, STEPS, 1.0, 0.0, fall="sqrt")
    return scaling.cosine(STEPS)


def make(file: Path, seed: int):
    """A new model of a table."""
    config = scaling.config(WIDTH, LAYERS, tied=file == TABLE)
    model = scaling.new(config, seed)
    return model if file == TABLE else with_mup(model, config, output=OUTPUT)   # its own base: only OUTPUT is new


def train(file: Path, name: str, rate: float, seed: int, adamw_rate: float, stop: int | None = None):
    """A trained model, and its losses."""
    model = make(file, seed)
    optimizer = optimizer_of(name, model, rate, adamw_rate)
    return model, scaling.train(model, optimizer, seed, STEPS, BATCH, share(name), stop)


def best(file: Path, name: str) -> float:
    """The rate whose mean over the seeds of TUNED_ON is lowest in the table."""
    rows = [row for row in table.read(file) if row[0] == name and int(row[2]) in TUNED_ON[file]]
    return min(RATES[name], key=lambda rate: sum(float(row[3]) for row in rows if row[1] == str(rate)))


def measure(file: Path, name: str, rate: float, seed: int, adamw_rate: float) -> list[str]:
    model, losses = train(file, name, rate, seed, adamw_rate)
    return [name, str(rate), str(seed), f"{scaling.held_out(model) / math.log(2):.4f}", scaling.means(losses)]


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
    for file in (TABLE, SCALED):
        adamw_rate = math.nan
        for name in OPTIMIZERS[file]:
            for seeds, rates in ((TUNED_ON[file], RATES[name]), (SEEDS, None)):
                runs = [(name, rate, seed) for rate in rates or [best(file, name)] for seed in seeds]
                table.resume(file, COLUMNS, runs, lambda *run: [measure(file, *run, adamw_rate)])
            if name == "AdamW":
                adamw_rate = best(file, name)
    table.resume(TIMES, TIMES_COLUMNS, [(name, width) for width in WIDTHS for name in OPTIMIZERS[SCALED][:2]],
                 lambda *run: [time_step(*run)])


if __name__ == "__main__":
    main()
