"""Trains lesson 14's models from five seeds each, and writes 14_training.csv.

    python assets/evidence/14_training.py        (or: make evidence)

One row for each setting, learning rate, number of steps and seed; rows that are there are kept, so a run that was
stopped goes on. The text is the topics of Python's own help(), every tenth held out, as in the lesson; another
version of Python has another text, and gives slightly other numbers. losses are means of 10 steps (of one batch:
each loss). It runs on torch's kernels (lesson 13), which takes half of the time and gives the same but for rounding.

What was tuned: the learning rate alone, of each contestant over the grid that stands beside it in GRIDS, by the mean
loss of the last 20 of 200 steps; all five seeds for the rates in SHOWN, and seed 0 for the others.
Momentum is 0.9 and Adam's betas are torch's where the rate is constant; with a schedule, betas, decay, warm-up, floor
and clipping are the lesson's.
"""

import sys
from functools import partial
from pathlib import Path
from pydoc_data.topics import topics

import torch
from torch import nn

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.evidence import table  # noqa: E402
from given.torch_kernels import use_torch_kernels  # noqa: E402
from solutions.ex01_tokens import Tokenizer, train_bpe  # noqa: E402
from solutions.ex05_softmax import cross_entropy  # noqa: E402
from solutions.ex13_transformer import ModelConfig, Transformer  # noqa: E402
from solutions.ex14_training import (  # noqa: E402
    AdamW,
    bits_per_byte,
    evaluate,
    get_batch,
    learning_rate,
    parameter_groups,
    train_step,
)

TABLE = HERE / "14_training.csv"
COLUMNS = ["setting", "rate", "steps", "seed", "highest", "last", "held out", "bits per byte", "losses"]
SEEDS, STEPS, LLAMA_STEPS = range(5), 200, 500
LLAMA = ModelConfig(vocab_size=1024, d_model=160, layers=2, heads=4, kv_heads=2, d_ff=528, max_seq_len=64,
                    tie_embeddings=True)
SMALL = ModelConfig(vocab_size=256, d_model=64, layers=4, heads=4, d_ff=160, max_seq_len=32, tie_embeddings=True)
OPTIMIZERS = {"descent": partial(torch.optim.SGD), "momentum": partial(torch.optim.SGD, momentum=0.9), "AdamW": AdamW}
ABLATIONS = {
    "all parts": {}, "no norm": {"norm": False}, "no clipping": {"max_norm": 1e9}, "no warm-up": {"warmup": 0},
    "constant rate": {"floor": 1.0},
}
GRIDS = {"descent": (0.01, 0.03, 0.1, 0.3, 1.0), "momentum": (0.003, 0.01, 0.03, 0.1),
         "AdamW": (5e-4, 1e-3, 2e-3, 5e-3),
         **dict.fromkeys(ABLATIONS, (1e-3, 2e-3, 5e-3)), "no norm": (1e-3, 2e-3, 5e-3, 1e-2, 2e-2),
         "no clipping": (5e-4, 1e-3, 2e-3, 5e-3),
         "constant rate": (5e-4, 1e-3, 2e-3, 5e-3)}
SHOWN = {*(("descent", rate) for rate in GRIDS["descent"]), ("momentum", 0.03),
         *(("AdamW", rate) for rate in GRIDS["AdamW"][:3]),
         *((name, rate) for name in ABLATIONS for rate in GRIDS[name]),
         ("one batch", 2e-3), ("Llama", 2e-3)}


def passages(text: str, size: int = 50) -> set[str]:
    flat = " ".join(text.split())
    return {flat[i:i + size] for i in range(len(flat) - size + 1)}


def split() -> tuple[str, str]:
    """Whole topics are held out; paragraphs of the others that share 50 characters with them are dropped."""
    names = sorted(topics)
    held = "\n\n".join(topics[name] for name in names[6::10])
    known = passages(held)
    docs = "\n\n".join(paragraph for name in names if name not in names[6::10]
                       for paragraph in topics[name].split("\n\n") if known.isdisjoint(passages(paragraph)))
    return docs, held


def train(model, draw_batch, steps, peak, warmup=30, max_norm=1.0, floor=1 / 20, each=lambda step: None):
    optimizer, losses = AdamW(parameter_groups(model, 0.1), peak, betas=(0.9, 0.95)), []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, warmup, steps, peak, peak * floor)
        losses += train_step(model, optimizer, [draw_batch(step)], max_norm)[:1]
        each(step + 1)
    return losses


def small(raw, seed, rate, steps, norm=True, **options):
    torch.manual_seed(seed)
    model, rng = use_torch_kernels(Transformer(SMALL)), torch.Generator().manual_seed(seed)
    if not norm:
        model.norm = nn.Identity()
        for block in model.blocks:
            block.norm1 = block.norm2 = nn.Identity()
    return train(model, lambda step: get_batch(raw, 8, 32, rng), steps, rate, **{"warmup": 20} | options)


def constant(raw, seed, rate, steps, make):
    """Steps at one rate, nothing else."""
    torch.manual_seed(seed)
    model, rng, losses = use_torch_kernels(Transformer(SMALL)), torch.Generator().manual_seed(seed), []
    optimizer = make(model.parameters(), rate, weight_decay=0)
    for _ in range(steps):
        inputs, targets = get_batch(raw, 8, 32, rng)
        loss = cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def one_batch(text, seed):
    torch.manual_seed(seed)
    model = use_torch_kernels(Transformer(LLAMA))
    optimizer = AdamW(parameter_groups(model, 0.1), lr=2e-3)
    batch = get_batch(text, 4, 32, torch.Generator().manual_seed(seed))
    return [train_step(model, optimizer, [batch])[0] for _ in range(51)]


def row(setting, rate, steps, seed, losses, each, held=("", "")):
    means = [sum(losses[i:i + each]) / each for i in range(0, len(losses) - each + 1, each)]
    return dict(zip(COLUMNS, [setting, str(rate), str(steps), str(seed), f"{max(losses):.4g}",
                              f"{sum(losses[-20:]) / 20:.4f}", *held, " ".join(f"{loss:.4g}" for loss in means)],
                    strict=True))


def measure(setting: str, rate: float, steps: int, seed: int, docs: str, held: str) -> dict:
    raw = torch.tensor(list(docs.encode()), dtype=torch.uint8)
    if setting in OPTIMIZERS:
        return row(setting, rate, steps, seed, constant(raw, seed, rate, steps, OPTIMIZERS[setting]), 10)
    if setting in ABLATIONS:
        return row(setting, rate, steps, seed, small(raw, seed, rate, steps, **ABLATIONS[setting]), 10)
    if "text" not in _TOKENS:
        _TOKENS["tokenizer"] = tokenizer = Tokenizer(*train_bpe(docs, vocab_size=1024))
        _TOKENS["text"] = torch.tensor(tokenizer.encode(docs), dtype=torch.uint16)
        _TOKENS["held"] = torch.tensor(tokenizer.encode(held))
    text, ids = _TOKENS["text"], _TOKENS["held"]
    if setting == "one batch":
        losses = one_batch(text, seed)
        return row(setting, rate, steps, seed, losses, 1) | {"last": f"{losses[-1]:.4f}"}
    torch.manual_seed(seed)
    model, rng = use_torch_kernels(Transformer(LLAMA)), torch.Generator().manual_seed(seed)
    losses = train(model, lambda step: get_batch(text, 8, 64, rng), steps, rate)
    loss = evaluate(model, ids, 64)
    bits = bits_per_byte(loss, len(ids) - 1, len(held.encode()))
    return row(setting, rate, steps, seed, losses, 10, (f"{loss:.4f}", f"{bits:.4f}"))


_TOKENS: dict = {}


def runs() -> list[tuple]:
    """Setting, rate, steps and seed of every row, in the table's order."""
    tuned = [(name, rate, STEPS) for name, rates in GRIDS.items() for rate in rates]
    tuned += [("one batch", 2e-3, 51), ("Llama", 2e-3, LLAMA_STEPS)]
    return [(*run, seed) for run in tuned for seed in SEEDS if seed == 0 or run[:2] in SHOWN]


def main() -> None:
    torch.set_num_threads(1)
    texts = split()
    table.resume(TABLE, COLUMNS, runs(), lambda *run: [measure(*run, *texts).values()])


if __name__ == "__main__":
    main()
