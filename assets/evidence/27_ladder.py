"""A ladder of small runs, the law that fits them, a prediction, and the large run that it was made for.

    python assets/evidence/27_ladder.py        (or: make evidence)

27_ladder.csv: every width of WIDTHS with every number of tokens of TOKENS, on the text of library.py. n counts all
parameters; d counts bytes, 512 in a step, by lesson 14's cosine over d. Logits are multiplied by OUTPUT, which was best
in 27_constants.csv (with an init of 1); without it the smallest models hardly get past the frequencies of bytes.
**Tuned**: the rate of AdamW for each pair (n, d) by itself: from START it is doubled or halved until both neighbours
are worse, by a seed that is used for nothing else. At its best rate each pair is trained from three seeds. loss: nats
per byte, held out.

27_prediction.json: the law fitted to the mean of the three seeds of each pair, the rate for the large run (a straight
line for log2 of the best rates in log2 n and log2 d, rounded to a rate of RATES), and the loss that the law predicts
for it; low and high: the lowest and the highest prediction when one pair is left out of the fit. **The script ends
when it has written this file**, and never writes it again. Run once more, it trains the large run, more than 6 times
the compute of any other, and writes 27_largest.csv: three seeds at that rate, and, with the tuning seed, that rate and
its neighbours.
"""

import json
import math
import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.evidence import scaling, table  # noqa: E402
from solutions.ex13_transformer import ModelConfig, count_parameters  # noqa: E402
from solutions.ex14_training import parameter_groups  # noqa: E402
from solutions.ex27_scaling import ScalingLaw, fit_scaling_law, training_flops, with_mup  # noqa: E402

TABLE, PREDICTION, LARGEST = HERE / "27_ladder.csv", HERE / "27_prediction.json", HERE / "27_largest.csv"
COLUMNS = ["width", "d", "rate", "seed", "n", "loss"]
BATCH, LAYERS, OUTPUT = 8, 2, 16
STEP = BATCH * scaling.SEQ          # tokens
WIDTHS, TOKENS = (16, 24, 40, 64), tuple(STEP * steps for steps in (192, 384, 768, 1536))
LARGE = 128, STEP * 3072            # width and tokens
RATES, START = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064), 0.008
SEEDS, TUNED_ON = (0, 1, 2), 100


def config_of(width: int) -> ModelConfig:
    return scaling.config(width, LAYERS, tied=False)


def train(width: int, d: int, rate: float, seed: int, stop: int | None = None):
    """A trained model, and its losses."""
    config, steps = config_of(width), d // STEP
    model = with_mup(scaling.new(config, seed), config, output=OUTPUT)      # its own base: only OUTPUT is new
    adam = torch.optim.AdamW(parameter_groups(model, 0.1), rate, betas=(0.9, 0.95), fused=True)
    return model, scaling.train(model, adam, seed, steps, BATCH, scaling.cosine(steps), stop)


def measure(width: int, d: int, rate: float, seed: int) -> list[str]:
    model, _ = train(width, d, rate, seed)
    n = count_parameters(config_of(width))
    return [str(width), str(d), str(rate), str(seed), str(n), f"{scaling.held_out(model):.4f}"]


def run(file: Path, settings) -> None:
    table.resume(file, COLUMNS, settings, lambda *setting: [measure(*setting)])


def tuned(width: int, d: int) -> float:
    """The best rate of a pair, by the tuning seed."""
    def loss(rate: float) -> float:
        run(TABLE, [(width, d, rate, TUNED_ON)])
        return next(float(row[5]) for row in table.read(TABLE)
                    if row[:4] == [str(width), str(d), str(rate), str(TUNED_ON)])
    return table.downhill(RATES, START, loss)


def pairs() -> dict[tuple[int, int], tuple[float, float]]:
    """{(n, d): (rate, mean loss of the seeds)} of the ladder."""
    found: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for _, d, rate, seed, n, loss in table.read(TABLE):
        if int(seed) in SEEDS:
            found.setdefault((int(n), int(d)), []).append((float(rate), float(loss)))
    return {pair: (runs[0][0], sum(loss for _, loss in runs) / len(runs)) for pair, runs in found.items()}


def fit(ladder: dict) -> ScalingLaw:
    n, d = torch.tensor([*ladder], dtype=torch.float64).T
    return fit_scaling_law(n, d, torch.tensor([loss for _, loss in ladder.values()], dtype=torch.float64))


def rate_for(ladder: dict, n: int, d: int) -> float:
    """The rate of RATES next to a straight line for log2 of the best rates in log2 n and log2 d."""
    sizes = torch.tensor([*ladder], dtype=torch.float64).log2()
    rates = torch.tensor([rate for rate, _ in ladder.values()], dtype=torch.float64).log2()
    line = torch.linalg.lstsq(torch.cat([sizes, torch.ones(len(sizes), 1)], 1), rates[:, None]).solution.squeeze(1)
    wanted = line[0] * math.log2(n) + line[1] * math.log2(d) + line[2]
    return min(RATES, key=lambda rate: abs(math.log2(rate) - wanted))


def predict() -> dict:
    ladder, (width, d) = pairs(), LARGE
    n = count_parameters(config_of(width))
    law = fit(ladder)
    others = [fit({pair: value for pair, value in ladder.items() if pair != left_out}).loss(n, d)
              for left_out in ladder]
    most = max(training_flops(*pair) for pair in ladder)
    return {"law": law._asdict(), "width": width, "n": n, "d": d, "rate": rate_for(ladder, n, d),
            "times the compute of the next": training_flops(n, d) / most,
            "loss": law.loss(n, d), "low": min(others), "high": max(others)}


def main() -> None:
    torch.set_num_threads(1)
    for width in WIDTHS:
        for d in TOKENS:
            run(TABLE, [(width, d, tuned(width, d), seed) for seed in SEEDS])
    if not PREDICTION.exists():
        PREDICTION.write_text(json.dumps(predict(), indent=2) + "\n")
        print(f"{PREDICTION.name} is written: commit it, then run this script again for the large run")
        return
    rate = json.loads(PREDICTION.read_text())["rate"]
    near = RATES.index(rate)
    run(LARGEST, [*((*LARGE, rate, seed) for seed in SEEDS),
                  *((*LARGE, rate, TUNED_ON) for rate in RATES[max(near - 1, 0):near + 2])])


if __name__ == "__main__":
    main()
