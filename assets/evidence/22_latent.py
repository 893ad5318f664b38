"""Trains small models with latent attention beside others that keep as many numbers: writes 22_latent.csv.

    python assets/evidence/22_latent.py        (or: make evidence)

The chains are those of 22_long_context.py, and so is the training: one layer of attention, no feed-forward, a model of
32 features, here with four heads. KEPT says what each model keeps of a token. "12 + 4": a latent of 12 numbers and one
turned key of 4 for all heads; each head has plain keys and values of 8. "not turned": the 4 features get no RoPE.
"slow": the 2 features turn by 0.1 radian a token, in the place of RoPE's 1.

**Tuned**, each model by itself, on TUNING seeds and other chains, which are used for nothing else: from 0.03 the rate
is doubled or halved, within RATES, until both neighbours are worse. At its best rate each model is then trained from
SEEDS. One row for each model, rate and seed: nats per symbol from position 16 on in 300 chains, of all symbols, of
those that are copied, and of the others; and the mean loss of the first 20 steps. Rows that are there are kept, so a
run that was stopped goes on.
"""

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.evidence import table  # noqa: E402
from solutions.ex07_rope import RoPE  # noqa: E402
from solutions.ex13_transformer import Transformer  # noqa: E402
from solutions.ex22_long_context import with_latent_attention  # noqa: E402

chains = importlib.import_module("assets.evidence.22_long_context")

TABLE = HERE / "22_latent.csv"
COLUMNS = ["model", "rate", "seed", "loss", "copied", "ordinary", "training"]
HEADS, HEAD_DIM = 4, 8
# Heads of keys and values and their features; or a latent's numbers, a turned key's, and whether it is turned.
KEPT = {"MHA, 4 · 8": (4, 8), "MQA, 8": (1, 8), "MLA, 8 + 8": (8, 8, True), "GQA, 2 · 4": (2, 4), "MQA, 4": (1, 4),
        "MLA, 12 + 4": (12, 4, True), "MLA, 4 + 4": (4, 4, True), "MHA, 4 · 2": (4, 2), "MLA, 14 + 2": (14, 2, True),
        "MHA, 4 · 2, slow": (4, 2), "MLA, 14 + 2, slow": (14, 2, True), "MLA, 12 + 4, not turned": (12, 4, False)}
SEEDS, TUNING, RATES = range(5), range(100, 104), (0.0075, 0.015, 0.03, 0.06, 0.12)


def numbers(name: str) -> int:
    """How many a model keeps of a token."""
    first, second, *latent = KEPT[name]
    return first + second if latent else 2 * first * second


def turned(name: str) -> int:
    """How many features of each key RoPE turns."""
    return 0 if KEPT[name][2:] == (False,) else KEPT[name][1]


def new(name: str, seed: int) -> Transformer:
    torch.manual_seed(seed)
    first, second, *latent = KEPT[name]
    if latent:
        model = with_latent_attention(Transformer(replace(chains.SMALL, heads=HEADS)), first, HEAD_DIM, second,
                                      HEAD_DIM)
    else:
        model = Transformer(replace(chains.SMALL, heads=HEADS, kv_heads=first, head_dim=second))
    attention = model.blocks[0].attention
    if latent == [False]:
        attention.rope = None
    if name.endswith("slow"):
        attention.rope = RoPE(second, chains.SEQ, frequencies=torch.tensor([0.1]))
    return model


def measure(name: str, rate: float, seed: int) -> list[str]:
    """One row of the table."""
    model = new(name, seed)
    found = chains.fit(model, rate, seed)
    ids = chains.chain(300, torch.Generator().manual_seed(998 if seed in TUNING else 999))
    with torch.no_grad():
        loss = chains.nats(model(ids[:, :-1]), ids)[:, 16:]
    copied = ids[:, 16:-1] < chains.COPIERS
    means = loss.mean(), loss[copied].mean(), loss[~copied].mean(), torch.tensor(found[:20]).mean()
    return [name, str(rate), str(seed), *(f"{mean.item():.4f}" for mean in means)]


def run(name: str, rate: float, seeds: range) -> float:
    return table.mean_loss(TABLE, COLUMNS, name, rate, seeds, measure, 3)


def tuned(name: str) -> float:
    return table.downhill(RATES, 0.03, lambda rate: run(name, rate, TUNING))


def main() -> None:
    torch.set_num_threads(1)
    for name in KEPT:
        run(name, tuned(name), SEEDS)


if __name__ == "__main__":
    main()
