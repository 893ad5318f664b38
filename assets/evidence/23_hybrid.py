"""Trains lesson 23's Transformer and its 3:1 hybrid beside each other, and two controls, and writes 23_hybrid.csv.

    python assets/evidence/23_hybrid.py        (or: make evidence)

Both read the same bytes in the same order: the topics of Python's own help(), every tenth held out, as in lesson 14,
so another version of Python gives slightly other numbers. "hybrid" has a GatedDeltaNet in three of four layers, which
has more weights than attention; the feed-forward of "plain" is so much wider that both have as many parameters, to
within one column of it. One control, "no convolution", is a hybrid whose convolutions have a width of 1, and mix
nothing. The other, "plain + convolution", is "plain" with a short convolution of width 4, as the hybrid's, behind each
projection to q, k and v; it is as large as the others, too.
SIZE says how large: "half", what the lesson shows, has half the pocket model's width and four layers, and takes a
quarter of an hour of one core; "pocket" has the pocket model's sizes, but for its vocabulary, the bytes, and its
context; it takes over an hour, and its rows go to 23_hybrid_pocket.csv.

**Tuned**, by one seed that is used for nothing else: for "plain" and "hybrid" the learning rate and the steps of
warm-up. From START and the shortest warm-up, one of the two goes to a neighbour in RATES or WARMUPS, until all
neighbours are worse. A control has the warm-up of the model that it is a control of, and a rate of its own: from START
it is doubled or halved until both neighbours are worse. At its best setting each model is then trained from five
seeds. One row for each model, rate, warm-up and seed; rows that are there are kept, so a run that was stopped goes on.
losses are means of 20 steps. On torch's kernels (lesson 13).

**Longer training.** 23_hybrid_long.csv has "plain" and "hybrid" with four times the steps: seed 0 at three rates, all
seeds at the best of these.

**Without a network**: 23_hybrid_count.csv has the bits per byte of a table of counts. A byte's probability is its count
behind the two bytes before it, 0.1 added to each of the 256, in the bytes that a seed's STEPS steps draw.
"""

import importlib
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean

import torch
from torch import nn

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.evidence import table  # noqa: E402
from given.torch_kernels import use_torch_kernels  # noqa: E402
from solutions.ex05_softmax import cross_entropy  # noqa: E402
from solutions.ex13_transformer import POCKET, Transformer  # noqa: E402
from solutions.ex14_training import (  # noqa: E402
    bits_per_byte,
    clip_grad_norm,
    evaluate,
    get_batch,
    learning_rate,
    parameter_groups,
)
from solutions.ex23_linear_attention import short_convolution, with_linear_layers  # noqa: E402

SIZE = "half"                       # or "pocket"
CONFIG, BATCH, STEPS, START = {
    "half": (replace(POCKET, vocab_size=256, d_model=128, layers=4, heads=4, kv_heads=2, d_ff=256, max_seq_len=256),
             2, 300, 0.004),
    "pocket": (replace(POCKET, vocab_size=256, max_seq_len=256), 2, 600, 0.002),
}[SIZE]
HELD_OUT = 20_000                   # bytes
TABLE = HERE / ("23_hybrid.csv" if SIZE == "half" else f"23_hybrid_{SIZE}.csv")
COUNT_TABLE, LONG_TABLE = HERE / "23_hybrid_count.csv", TABLE.with_stem(f"{TABLE.stem}_long")
COLUMNS = ["model", "rate", "warm-up", "seed", "bits per byte", "losses"]
CONVOLVED, BARE = "plain + convolution", "no convolution"
WARMED, CONTROLS = ("plain", "hybrid"), {BARE: "hybrid", CONVOLVED: "plain"}    # WARMED: the warm-up is tuned, too
CONTESTANTS = (*WARMED, *CONTROLS)
LONG, LONG_RATES, LONG_WARMUP = 4 * STEPS, (START / 4, START / 2, START), STEPS // 5
RATES = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016)
WARMUPS = tuple(STEPS // 20 * n for n in (1, 4, 8, 12))          # steps: 15, 60, 120, 180
SEEDS, TUNED_ON = range(5), range(100, 101)


def count(model: Transformer) -> int:
    return sum(p.numel() for p in model.parameters())


class Convolved(nn.Module):
    """A projection, and a short convolution of what it gives, which starts as GatedDeltaNet's."""

    def __init__(self, projection: nn.Module, width: int = 4):
        super().__init__()
        self.projection = projection
        self.conv = nn.Parameter(torch.empty(len(projection.weight), width).uniform_(-width**-0.5, width**-0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return short_convolution(self.projection(x), self.conv)[0]


def convolved(model: Transformer) -> Transformer:
    for block in model.blocks:
        for name in ("q_proj", "k_proj", "v_proj"):
            setattr(block.attention, name, Convolved(getattr(block.attention, name)))
    return model


def make(name: str) -> Transformer:
    """The model, at torch's present seed."""
    if name in ("hybrid", BARE):
        return with_linear_layers(Transformer(CONFIG), every=4, conv_width=4 if name == "hybrid" else 1)
    with torch.random.fork_rng():
        small = Transformer(CONFIG)
        more = count(make("hybrid")) - count(convolved(small) if name == CONVOLVED else small)
    column = 3 * CONFIG.d_model * CONFIG.layers         # what a feed-forward that is wider by 1 costs
    model = Transformer(replace(CONFIG, d_ff=CONFIG.d_ff + round(more / column)))
    return convolved(model) if name == CONVOLVED else model


def train(name: str, rate: float, warmup: int, seed: int, text: torch.Tensor, steps: int | None = None,
          length: int = STEPS):
    """A trained model, and its losses. length: of the schedule; steps: after how many to stop, at its end if None."""
    torch.manual_seed(seed)
    model, rng, losses = use_torch_kernels(make(name)), torch.Generator().manual_seed(seed), []
    adam = torch.optim.AdamW(parameter_groups(model, 0.1), rate, betas=(0.9, 0.95), fused=True)
    for step in range(length if steps is None else steps):
        for group in adam.param_groups:
            group["lr"] = learning_rate(step, warmup, length, rate, rate / 20)
        inputs, targets = get_batch(text, BATCH, CONFIG.max_seq_len, rng)
        loss = cross_entropy(model(inputs), targets)
        adam.zero_grad()
        loss.backward()
        clip_grad_norm(list(model.parameters()), 1.0)
        adam.step()
        losses.append(loss.item())
    return model.eval(), losses


def texts() -> tuple[torch.Tensor, torch.Tensor]:
    """Bytes to train on and bytes held out, as 14_training.py parts them."""
    script = importlib.import_module("assets.evidence.14_training")
    return tuple(torch.tensor(list(text.encode())) for text in script.split())


def measure(name: str, rate: float, warmup: int, seed: int, text: torch.Tensor, held: torch.Tensor,
            length: int = STEPS) -> list[str]:
    """One row of a table."""
    model, losses = train(name, rate, warmup, seed, text, length=length)
    held = held[:HELD_OUT]
    bits = bits_per_byte(evaluate(model, held, CONFIG.max_seq_len), len(held) - 1, len(held) - 1)
    means = [sum(losses[i:i + 20]) / 20 for i in range(0, length, 20)]
    return [name, str(rate), str(warmup), str(seed), f"{bits:.4f}", " ".join(f"{loss:.4f}" for loss in means)]


def tuned(bits: Callable[[float, int], float]) -> tuple[float, int]:
    """The rate and the warm-up that are better than their neighbours, found step by step from START."""
    at = (RATES.index(START), 0)
    while True:
        near = [(at[0] + i, at[1] + j) for i, j in ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))
                if 0 <= at[0] + i < len(RATES) and 0 <= at[1] + j < len(WARMUPS)]
        best = min(near, key=lambda place: bits(RATES[place[0]], WARMUPS[place[1]]))
        if best == at:
            return RATES[at[0]], WARMUPS[at[1]]
        at = best


def counted(text: torch.Tensor, held: torch.Tensor, seed: int) -> float:
    """The bits per byte of counts behind two bytes, made of what a seed's training reads."""
    rng, seen, before = torch.Generator().manual_seed(seed), Counter(), Counter()

    def threes(rows: Iterable[torch.Tensor]) -> Iterator[tuple[int, int, int]]:
        return (three for row in rows for three in zip(row.tolist(), row[1:].tolist(), row[2:].tolist()))

    for _ in range(STEPS):
        inputs, targets = get_batch(text, BATCH, CONFIG.max_seq_len, rng)
        for a, b, c in threes(torch.cat([inputs, targets[:, -1:]], 1)):
            seen[a, b, c] += 1
            before[a, b] += 1
    return mean(-math.log2((seen[a, b, c] + 0.1) / (before[a, b] + 0.1 * 256)) for a, b, c in threes([held[:HELD_OUT]]))


def best_of_long(name: str) -> float:
    """The rate of the lowest bits per byte with seed 0."""
    found = {float(rate): float(bits) for model, rate, _, seed, bits, _ in table.read(LONG_TABLE)
             if (model, seed) == (name, "0")}
    return min(found, key=found.__getitem__)


def main() -> None:
    torch.set_num_threads(1)
    both = texts()
    table.resume(COUNT_TABLE, ["seed", "bits per byte"], [(seed,) for seed in SEEDS],
                 lambda seed: [[str(seed), f"{counted(*both, seed):.3f}"]])

    def bits(name: str, rate: float, warmup: int) -> float:
        table.resume(TABLE, COLUMNS, [(name, rate, warmup, seed) for seed in TUNED_ON],
                     lambda *run: [measure(*run, *both)])
        found = {tuple(row[:4]): float(row[4]) for row in table.read(TABLE)}
        return sum(found[name, str(rate), str(warmup), str(seed)] for seed in TUNED_ON) / len(TUNED_ON)

    def best_rate(name: str, warmup: int) -> float:
        return table.downhill(RATES, START, lambda rate: bits(name, rate, warmup))

    best = {name: tuned(lambda *setting, name=name: bits(name, *setting)) for name in WARMED}
    for name, of in CONTROLS.items():
        warmup = best[of][1]
        best[name] = best_rate(name, warmup), warmup
    table.resume(TABLE, COLUMNS, [(name, *setting, seed) for seed in SEEDS for name, setting in best.items()],
                 lambda *run: [measure(*run, *both)])

    def longer(settings: list[tuple]) -> None:
        table.resume(LONG_TABLE, COLUMNS, settings, lambda *run: [measure(*run, *both, LONG)])

    longer([(name, rate, LONG_WARMUP, 0) for rate in LONG_RATES for name in WARMED])
    longer([(name, best_of_long(name), LONG_WARMUP, seed) for seed in SEEDS for name in WARMED])


if __name__ == "__main__":
    main()
