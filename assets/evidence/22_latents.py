"""Trains lesson 22's models with latent attention and with its rivals, and writes 22_rates.csv, 22_latents.csv
and 22_counts.csv.

    python assets/evidence/22_latents.py        (or: make evidence)

One row for each model and seed; rows that are there are kept, so a run that was stopped goes on. All models read
the same bytes in the same order: the topics of Python's own help(), every tenth held out, as in lesson 14, so
another version of Python gives slightly other numbers. All have two layers of four query heads. They differ in what
a token leaves in the cache of a layer: 128 numbers of multi-head attention; or 32: of one wide latent, of one head of
keys and values for all queries (MQA), of two narrower ones (GQA) or four very narrow ones (MHA). "MQA, wide" has a
wider feed-forward, and so as many parameters as latent attention.
22_rates.csv has the peaks of AdamW's rate that were tried, on TUNING seeds: four of RATES, and further ones until the
best has two neighbours that are worse. 22_latents.csv has SEEDS, others, each model at the peak that was best for it;
half: bits per byte after half of the steps. It runs on torch's kernels (lesson 13), which takes less time and gives the
same but for rounding. 22_counts.csv has what no model is needed for: the held-out bytes coded by counts of what follows
no byte, each byte and each two bytes of the same training text, smoothed after Witten and Bell.
"""

import importlib
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from math import log2
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.evidence import table  # noqa: E402
from given.torch_kernels import use_torch_kernels  # noqa: E402
from solutions.ex05_softmax import cross_entropy  # noqa: E402
from solutions.ex13_transformer import ModelConfig, Transformer  # noqa: E402
from solutions.ex14_training import (  # noqa: E402
    bits_per_byte,
    clip_grad_norm,
    evaluate,
    get_batch,
    learning_rate,
    parameter_groups,
)
from solutions.ex22_long_context import with_latent_attention  # noqa: E402

TABLE, RATE_TABLE, COUNTS = (HERE / f"22_{name}.csv" for name in ("latents", "rates", "counts"))
COLUMNS = ["model", "peak", "seed", "kept", "parameters", "bits per byte", "half", "start"]
SEEDS, TUNING, STEPS, BATCH = range(5), (100, 101), 400, 16
RATES = (0.000625, 0.00125, 0.0025, 0.005, 0.01, 0.02, 0.04)
DENSE = ModelConfig(vocab_size=256, d_model=64, layers=2, heads=4, head_dim=16, d_ff=128, max_seq_len=64,
                    tie_embeddings=True)
MODELS = {"MHA, 128": {},                       # changes of the configuration
          "MLA": {},
          "MQA": {"kv_heads": 1},
          "GQA": {"kv_heads": 2, "head_dim": 8},
          "MQA, wide": {"kv_heads": 1, "d_ff": 155},
          "MHA": {"head_dim": 4}}
RANK, NOPE, TURNED, VALUE = 24, 16, 8, 16       # of MLA, which keeps RANK + TURNED
HELD_OUT = 20_000                               # bytes


def texts() -> tuple[torch.Tensor, torch.Tensor]:
    """Bytes to train on and bytes held out, as 14_training.py parts them."""
    script = importlib.import_module("assets.evidence.14_training")
    return tuple(torch.tensor(list(text.encode())) for text in script.split())


def make(name: str) -> Transformer:
    model = Transformer(replace(DENSE, **MODELS[name]))
    if name == "MLA":
        with_latent_attention(model, RANK, NOPE, TURNED, VALUE)
    return use_torch_kernels(model)


def train(name: str, peak: float, seed: int, text: torch.Tensor, steps: int = STEPS, each=lambda step, model: None):
    """A trained model, and its losses."""
    torch.manual_seed(seed)
    model, rng, losses = make(name), torch.Generator().manual_seed(seed), []
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.1), peak, betas=(0.9, 0.95), fused=True)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, 30, STEPS, peak, peak / 20)
        inputs, targets = get_batch(text, BATCH, DENSE.max_seq_len, rng)
        loss = cross_entropy(model(inputs), targets)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm(list(model.parameters()), 1.0)
        optimizer.step()
        each(step + 1, model)
    return model.eval(), losses


def measure(name: str, peak: float, seed: int, text: torch.Tensor, held: torch.Tensor) -> list[str]:
    """A row; start: the mean loss of the first 20 steps."""
    held, half = held[:HELD_OUT], []

    def bits(model) -> float:
        return bits_per_byte(evaluate(model, held, DENSE.max_seq_len), len(held) - 1, len(held) - 1)

    def each(step, model):
        if step == STEPS // 2:
            half.append(bits(model))
            model.train()

    model, losses = train(name, peak, seed, text, each=each)
    parameters = sum(part.numel() for part in model.parameters())
    kept = 2 * model.config.kv_heads * model.config.head_dim        # of latent attention, too
    return [name, str(peak), str(seed), str(kept), str(parameters), f"{bits(model):.4f}", f"{half[0]:.4f}",
            f"{sum(losses[:20]) / 20:.4f}"]


def counted(before: int, text: torch.Tensor, held: torch.Tensor) -> float:
    """Bits per held-out byte, from counts of what follows `before` bytes in the text.

    p(b | h) = (n(h b) + kinds(h) p(b | h without its first byte)) / (n(h) + kinds(h)); at the end of the line 1 / 256.
    """
    text, held = bytes(text.tolist()), bytes(held.tolist())
    after = defaultdict(Counter)
    for at in range(2, len(text)):
        for length in range(before + 1):
            after[text[at - length:at]][text[at]] += 1
    sums = {history: sum(found.values()) for history, found in after.items()}

    def chance(byte: int, history: bytes) -> float:
        shorter = chance(byte, history[1:]) if history else 1 / 256
        if history not in after:
            return shorter
        found = after[history]
        return (found[byte] + len(found) * shorter) / (sums[history] + len(found))

    return -sum(log2(chance(held[at], held[at - before:at])) for at in range(2, len(held))) / (len(held) - 2)


def main() -> None:
    torch.set_num_threads(1)
    both = texts()

    table.resume(COUNTS, ["bytes before", "bits per byte"], [(before,) for before in range(3)], lambda before: [
        (before, f"{counted(before, both[0], both[1][:HELD_OUT]):.4f}")])

    def loss(name):
        return lambda peak: table.mean_loss(RATE_TABLE, COLUMNS, name, peak, TUNING,
                                            lambda *setting: measure(*setting, *both), COLUMNS.index("bits per byte"))

    for name in MODELS:
        best = table.downhill(RATES, min(RATES[2:6], key=loss(name)), loss(name))
        table.resume(TABLE, COLUMNS, [(name, best, seed) for seed in SEEDS],
                     lambda *setting: [measure(*setting, *both)])


if __name__ == "__main__":
    main()
