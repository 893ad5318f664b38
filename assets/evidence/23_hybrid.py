"""Trains lesson 23's Transformer and its 3:1 hybrid beside each other, and two controls, and writes 23_hybrid.csv.

    python assets/evidence/23_hybrid.py        (or: make evidence)

Both read the same bytes in the same order: the topics of Python's own help(), every tenth held out, as in lesson 14,
so another version of Python gives slightly other numbers. "hybrid" has a GatedDeltaNet in three of four layers, which
has more weights than attention; the feed-forward of "plain" is so much wider that both have as many parameters, to
within one column of it. Two controls:
"no convolution" is a hybrid whose convolutions have a width of 1, and mix nothing; in "plain convolution" attention's
q, k and v go through the hybrid's convolution and silu.
SIZE says how large: "half", what the lesson shows, has half the pocket model's width and four layers, and takes a
quarter of an hour of one core; "pocket" has the pocket model's sizes, but for its vocabulary, the bytes, and its
context; it takes over an hour, and its rows go to 23_hybrid_pocket.csv.

**Tuned**: the learning rate, for each by itself. From START it is doubled or halved, within RATES, until both
neighbours are worse, by a seed that is used for nothing else. At its best rate each is then trained from five seeds.
One row for each model, rate and seed; rows that are there are kept, so a run that was stopped goes on. losses are
means of 20 steps. On torch's kernels (lesson 13).
"""

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.evidence import table  # noqa: E402
from given.torch_kernels import use_torch_kernels  # noqa: E402
from solutions.ex05_softmax import cross_entropy  # noqa: E402
from solutions.ex08_feedforward import silu  # noqa: E402
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
COLUMNS = ["model", "rate", "seed", "bits per byte", "losses"]
MODELS = ("plain", "hybrid", "no convolution", "plain convolution")
RATES = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016)
SEEDS, TUNED_ON = range(5), range(100, 101)


def count(model: Transformer) -> int:
    return sum(p.numel() for p in model.parameters())


class Convolved(nn.Module):
    """A projection whose outputs go through a short convolution and silu, as the linear layers' do."""

    def __init__(self, linear: nn.Module, width: int = 4):
        super().__init__()
        self.linear, bound = linear, width**-0.5
        self.conv = nn.Parameter(torch.empty(linear.weight.shape[0], width).uniform_(-bound, bound))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return silu(short_convolution(self.linear(x), self.conv)[0])


def make(name: str) -> Transformer:
    """The model, at torch's present seed."""
    if name in ("hybrid", "no convolution"):
        return with_linear_layers(Transformer(CONFIG), every=4, conv_width=4 if name == "hybrid" else 1)
    with torch.random.fork_rng():
        more = count(make("hybrid")) - count(Transformer(CONFIG))
    column = 3 * CONFIG.d_model * CONFIG.layers         # what a feed-forward that is wider by 1 costs
    model = Transformer(replace(CONFIG, d_ff=CONFIG.d_ff + round(more / column)))
    for block in model.blocks if name == "plain convolution" else ():
        for part in ("q_proj", "k_proj", "v_proj"):
            setattr(block.attention, part, Convolved(getattr(block.attention, part)))
    return model


def train(name: str, rate: float, seed: int, text: torch.Tensor, steps: int = STEPS):
    """A trained model, and its losses."""
    torch.manual_seed(seed)
    model, rng, losses = use_torch_kernels(make(name)), torch.Generator().manual_seed(seed), []
    adam = torch.optim.AdamW(parameter_groups(model, 0.1), rate, betas=(0.9, 0.95), fused=True)
    for step in range(steps):
        for group in adam.param_groups:
            group["lr"] = learning_rate(step, STEPS // 20, STEPS, rate, rate / 20)
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


def measure(name: str, rate: float, seed: int, text: torch.Tensor, held: torch.Tensor) -> list[str]:
    """One row of the table."""
    model, losses = train(name, rate, seed, text)
    held = held[:HELD_OUT]
    bits = bits_per_byte(evaluate(model, held, CONFIG.max_seq_len), len(held) - 1, len(held) - 1)
    means = [sum(losses[i:i + 20]) / 20 for i in range(0, STEPS, 20)]
    return [name, str(rate), str(seed), f"{bits:.4f}", " ".join(f"{loss:.4f}" for loss in means)]


def main() -> None:
    torch.set_num_threads(1)
    both = texts()

    def bits(name: str, rate: float) -> float:
        return table.mean_loss(TABLE, COLUMNS, name, rate, TUNED_ON, lambda *run: measure(*run, *both), 3)

    best = {name: table.downhill(RATES, START, lambda rate, name=name: bits(name, rate)) for name in MODELS}
    table.resume(TABLE, COLUMNS, [(name, best[name], seed) for seed in SEEDS for name in MODELS],
                 lambda *run: [measure(*run, *both)])


if __name__ == "__main__":
    main()
