"""Trains small models to look up records both ways, from few numbers a token: writes 22_records.csv and another.

    python assets/evidence/22_records.py        (or: make evidence)

A text is RECORDS tokens of two symbols each, and then one question for each record, in another order: every other
question gives a record's first symbol and asks for the second, the others the reverse. No symbol comes in two records
of a text. What stands where says nothing, so no key is turned (an angle of 0), and a question sees the records alone
(with the questions in sight some runs learn nothing). The models are those of 22_latent.py, one layer of four heads
without a feed-forward; MODELS says what each keeps of a token. "MLA, apart" is MLA, 6 + 2, but keys are made from the
first half of the latent (and the shared key of 2), and values from the other half. A token's vector is the sum of its
two symbols' (or of one, and one for "?").

**Tuned**, each model by itself, on TUNING seeds and other texts, which are used for nothing else: from 0.02 the rate
is doubled or halved, within RATES, until both neighbours are worse. At its best rate each model is then trained from
SEEDS. One row for each model, rate and seed: nats per question in 300 texts, the share that is answered right, and the
mean loss of the first 20 steps. Rows that are there are kept, so a run that was stopped goes on.
22_records_long.csv: the same of LONG models, from LONG_SEEDS, in four times as many steps, at the rate of the others.
"""

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.evidence import table  # noqa: E402
from solutions.ex07_rope import RoPE  # noqa: E402
from solutions.ex13_transformer import ModelConfig, Transformer  # noqa: E402
from solutions.ex22_long_context import with_latent_attention  # noqa: E402

chains, latents = (importlib.import_module(f"assets.evidence.22_{name}") for name in ("long_context", "latent"))

TABLE, LONG_TABLE = HERE / "22_records.csv", HERE / "22_records_long.csv"
COLUMNS = ["model", "rate", "seed", "loss", "right", "training"]
SYMBOLS, RECORDS, ROWS, STEPS = 32, 8, 32, 1000
CONFIG = ModelConfig(vocab_size=2 * SYMBOLS, d_model=32, layers=1, heads=4, d_ff=1, max_seq_len=2 * RECORDS)
SEEN = torch.zeros(2 * RECORDS, 2 * RECORDS, dtype=torch.bool)
SEEN[:, :RECORDS] = True
MODELS = {"MQA, 4": latents.Kept(4), "MLA, 6 + 2": latents.Kept(2, latent=6), "MLA, apart": latents.Kept(2, latent=6),
          "MQA, 8": latents.Kept(8), "GQA, 2 x 2": latents.Kept(2, heads=2), "MHA, 4 x 2": latents.Kept(2, heads=4)}
LONG, LONG_SEEDS = ("MQA, 4", "MLA, apart"), range(2)
SEEDS, TUNING, RATES = range(5), range(100, 104), (0.005, 0.01, 0.02, 0.04, 0.08)


class Pair(nn.Module):
    """Embeds a token of two symbols, id = first * (SYMBOLS + 1) + second; SYMBOLS itself stands for "?"."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.Embedding(SYMBOLS + 1, CONFIG.d_model) for _ in range(2))
        for symbols in (self.first, self.second):
            nn.init.normal_(symbols.weight, std=0.3)

    def forward(self, ids: Tensor) -> Tensor:
        return self.first(ids // (SYMBOLS + 1)) + self.second(ids % (SYMBOLS + 1))


def new(name: str, seed: int) -> Transformer:
    torch.manual_seed(seed)
    kept = MODELS[name]
    if kept.latent:
        model = with_latent_attention(Transformer(CONFIG), kept.latent, latents.HEAD_DIM, kept.turned, latents.HEAD_DIM)
    else:
        model = Transformer(replace(CONFIG, kv_heads=kept.heads, head_dim=kept.turned))
    if name == "MLA, apart":
        keep_apart(model.blocks[0].attention, kept.latent)
    model.embedding = Pair()
    model.blocks[0].feed_forward = chains.Nothing()
    still = torch.zeros(kept.turned // 2)
    model.blocks[0].attention.rope = RoPE(kept.turned, CONFIG.max_seq_len, frequencies=still)
    return model


def keep_apart(attention: nn.Module, latent: int) -> None:
    """Set what makes keys from the second half of a latent, and values from the first, to 0, where it stays."""
    makes_value = torch.arange(2 * latents.HEAD_DIM).repeat(CONFIG.heads) >= latents.HEAD_DIM
    used = makes_value[:, None] == (torch.arange(latent) >= latent // 2)
    attention.kv_up.weight.data *= used
    attention.kv_up.weight.register_hook(lambda gradient: gradient * used)


def texts(rows: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Ids, (rows, 2 * RECORDS), and the answers to the questions in their second half, (rows, RECORDS).

    An answer is one of 2 * SYMBOLS: the first symbols, and behind them the second ones.
    """
    first, second, order = (torch.rand(rows, size, generator=rng).argsort(-1)[:, :RECORDS]
                            for size in (SYMBOLS, SYMBOLS, RECORDS))
    one, other = first.gather(1, order), second.gather(1, order)
    forward = (torch.arange(RECORDS) % 2 == 0).expand(rows, -1)
    given = torch.where(forward, one * (SYMBOLS + 1) + SYMBOLS, SYMBOLS * (SYMBOLS + 1) + other)
    return torch.cat([first * (SYMBOLS + 1) + second, given], 1), torch.where(forward, SYMBOLS + other, one)


def asked(model: Transformer, ids: Tensor) -> Tensor:
    """The logits of the questions, (rows, RECORDS, 2 * SYMBOLS)."""
    return model(ids, mask=SEEN)[:, RECORDS:]


def nats(logits: Tensor, answers: Tensor) -> Tensor:
    """Per question."""
    return F.cross_entropy(logits.mT, answers, reduction="none")


def fit(model: Transformer, rate: float, seed: int, steps: int = STEPS, last: int = STEPS) -> list[float]:
    """Trains the model on texts of this seed: the loss of each step. The rate falls until the step `last`."""
    rng = torch.Generator().manual_seed(seed)

    def loss() -> Tensor:
        ids, answers = texts(ROWS, rng)
        return nats(asked(model, ids), answers).mean()
    return chains.descend(model, loss, rate, steps, 50, last)


def measure(name: str, rate: float, seed: int, steps: int = STEPS) -> list[str]:
    """One row of a table."""
    model = new(name, seed)
    found = fit(model, rate, seed, steps, steps)
    ids, answers = texts(300, torch.Generator().manual_seed(998 if seed in TUNING else 999))
    with torch.no_grad():
        logits = asked(model, ids)
    right = (logits.argmax(-1) == answers).float()
    means = nats(logits, answers).mean(), right.mean(), torch.tensor(found[:20]).mean()
    return [name, str(rate), str(seed), *(f"{mean.item():.4f}" for mean in means)]


def run(name: str, rate: float, seeds: range) -> float:
    return table.mean_loss(TABLE, COLUMNS, name, rate, seeds, measure, 3)


def tuned(name: str) -> float:
    return table.downhill(RATES, 0.02, lambda rate: run(name, rate, TUNING))


def main() -> None:
    torch.set_num_threads(1)
    for name in MODELS:
        run(name, tuned(name), SEEDS)
    longer = [(name, tuned(name), seed) for name in LONG for seed in LONG_SEEDS]
    table.resume(LONG_TABLE, COLUMNS, longer, lambda *setting: [measure(*setting, 4 * STEPS)])


if __name__ == "__main__":
    main()
