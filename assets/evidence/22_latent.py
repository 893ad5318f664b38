"""Trains small models with latent attention beside others that keep as many numbers: writes 22_latent.csv.

    python assets/evidence/22_latent.py        (or: make evidence)

The chains are those of 22_long_context.py, and so is the training: one layer of attention, no feed-forward, a model of
32 features, here with four heads. MODELS says what each keeps of a token. "12 + 4": a latent of 12 numbers and one
turned key of 4 for all heads; each head has plain keys and values of 8. RoPE's own angles for 4 features are 1 and 0.01
radian a token, and 1 for 2 of them; a model's name says where others are taken. "slow": 0.1; "not turned": 0.

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
from typing import NamedTuple

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


class Kept(NamedTuple):
    """Keys of `turned` features, and beside them a latent; or, where that is 0, values of as many."""

    turned: int
    heads: int = 1                  # of keys and values
    latent: int = 0
    angles: tuple[float, ...] | None = None     # radians a token, of each two features; None: RoPE's own

    def numbers(self) -> int:
        """Of a token."""
        return self.latent + self.turned if self.latent else 2 * self.heads * self.turned


MODELS = {
    "MHA, 4 x 8": Kept(8, heads=4), "MQA, 8": Kept(8), "MLA, 8 + 8": Kept(8, latent=8),
    "MHA, 4 x 4": Kept(4, heads=4), "GQA, 2 x 4": Kept(4, heads=2), "MQA, 4": Kept(4),
    "MLA, 12 + 4": Kept(4, latent=12), "MLA, 4 + 4": Kept(4, latent=4),
    "MHA, 4 x 2": Kept(2, heads=4), "MLA, 14 + 2": Kept(2, latent=14),
    "MHA, 4 x 2, slow": Kept(2, heads=4, angles=(0.1,)), "MLA, 14 + 2, slow": Kept(2, latent=14, angles=(0.1,)),
    "MHA, 4 x 4, 1 and 0.1": Kept(4, heads=4, angles=(1, 0.1)), "MQA, 4, 1 and 0.1": Kept(4, angles=(1, 0.1)),
    "MLA, 12 + 4, 1 and 0.1": Kept(4, latent=12, angles=(1, 0.1)),
    "MLA, 12 + 4, not turned": Kept(4, latent=12, angles=(0, 0))}
SEEDS, TUNING, RATES = range(5), range(100, 104), (0.0075, 0.015, 0.03, 0.06, 0.12)


def new(name: str, seed: int) -> Transformer:
    torch.manual_seed(seed)
    kept, config = MODELS[name], replace(chains.SMALL, heads=HEADS)
    if kept.latent:
        model = with_latent_attention(Transformer(config), kept.latent, HEAD_DIM, kept.turned, HEAD_DIM)
    else:
        model = Transformer(replace(config, kv_heads=kept.heads, head_dim=kept.turned))
    if kept.angles is not None:
        angles = torch.tensor(kept.angles, dtype=torch.float32)
        model.blocks[0].attention.rope = RoPE(kept.turned, chains.SEQ, frequencies=angles)
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
    for name in MODELS:
        run(name, tuned(name), SEEDS)


if __name__ == "__main__":
    main()
