"""Trains lesson 14's models from five seeds each, and writes 14_training.csv.

    python assets/evidence/14_training.py        (or: make evidence)

One row for each setting and seed; rows that are there are kept, so a run that was stopped goes on. The text is
the topics of Python's own help(), every tenth held out, as in the lesson; another version of Python has another
text, and gives slightly other numbers. losses are means of 10 steps (of one batch: each loss).
It runs on torch's kernels (lesson 13), which takes half of the time and gives the same but for rounding.
"""

import sys
from dataclasses import replace
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
COLUMNS = ["setting", "seed", "highest", "last", "held out", "bits per byte", "losses"]
SEEDS, STEPS, PEAK, LLAMA_STEPS = range(5), 200, 0.005, 500
LLAMA = ModelConfig(vocab_size=1024, d_model=160, layers=2, heads=4, kv_heads=2, d_ff=528, max_seq_len=64,
                    tie_embeddings=True)
SMALL = ModelConfig(vocab_size=256, d_model=64, layers=4, heads=4, d_ff=160, max_seq_len=32, tie_embeddings=True)
POST = replace(SMALL, norm="layer", norm_position="post", positions="learned", feed_forward="mlp", d_ff=240,
               qkv_bias=True, o_bias=True, mlp_bias=True)
RATES = (0.01, 0.1, 1.0)                        # of plain gradient descent
SMALL_SETTINGS = {
    "all parts": {}, "no norm": {"norm": False}, "no clipping": {"max_norm": 1e9}, "no warm-up": {"warmup": 0},
    "post-norm": {"config": POST}, "post-norm, no warm-up": {"config": POST, "warmup": 0},
}


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


def train(model, draw_batch, steps, peak, warmup=30, max_norm=1.0, each=lambda step: None):
    optimizer, losses = AdamW(parameter_groups(model, 0.1), peak, betas=(0.9, 0.95)), []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, warmup, steps, peak, peak / 20)
        losses += train_step(model, optimizer, [draw_batch(step)], max_norm)[:1]
        each(step + 1)
    return losses


def small(raw, seed, norm=True, config=SMALL, **options):
    torch.manual_seed(seed)
    model, rng = use_torch_kernels(Transformer(config)), torch.Generator().manual_seed(seed)
    if not norm:
        model.norm = nn.Identity()
        for block in model.blocks:
            block.norm1 = block.norm2 = nn.Identity()
    return train(model, lambda step: get_batch(raw, 8, 32, rng), STEPS, PEAK, **{"warmup": 20} | options)


def constant(raw, seed, rate, adam=False):
    """STEPS steps at one rate, nothing else: plain gradient descent, or the same with AdamW's step."""
    torch.manual_seed(seed)
    model, rng, losses = use_torch_kernels(Transformer(SMALL)), torch.Generator().manual_seed(seed), []
    make = AdamW if adam else torch.optim.SGD
    optimizer = make(model.parameters(), rate, weight_decay=0)
    for _ in range(STEPS):
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


def row(setting, seed, losses, each, held=("", "")):
    means = [sum(losses[i:i + each]) / each for i in range(0, len(losses) - each + 1, each)]
    return dict(zip(COLUMNS, [setting, str(seed), f"{max(losses):.4g}", f"{sum(losses[-20:]) / 20:.4f}", *held,
                              " ".join(f"{loss:.4g}" for loss in means)], strict=True))


def measure(setting: str, seed: int, docs: str, held: str) -> dict:
    raw = torch.tensor(list(docs.encode()), dtype=torch.uint8)
    if setting.startswith(("descent", "AdamW")):
        kind, rate = setting.split()
        return row(setting, seed, constant(raw, seed, float(rate), kind == "AdamW"), 10)
    if setting in SMALL_SETTINGS:
        return row(setting, seed, small(raw, seed, **SMALL_SETTINGS[setting]), 10)
    if "text" not in _TOKENS:
        _TOKENS["tokenizer"] = tokenizer = Tokenizer(*train_bpe(docs, vocab_size=1024))
        _TOKENS["text"] = torch.tensor(tokenizer.encode(docs), dtype=torch.uint16)
        _TOKENS["held"] = torch.tensor(tokenizer.encode(held))
    text, ids = _TOKENS["text"], _TOKENS["held"]
    if setting == "one batch":
        losses = one_batch(text, seed)
        return row(setting, seed, losses, 1) | {"last": f"{losses[-1]:.4f}"}
    torch.manual_seed(seed)
    model, rng = use_torch_kernels(Transformer(LLAMA)), torch.Generator().manual_seed(seed)
    losses = train(model, lambda step: get_batch(text, 8, 64, rng), LLAMA_STEPS, 2e-3)
    loss = evaluate(model, ids, 64)
    bits = bits_per_byte(loss, len(ids) - 1, len(held.encode()))
    return row(setting, seed, losses, 10, (f"{loss:.4f}", f"{bits:.4f}"))


_TOKENS: dict = {}


def main() -> None:
    torch.set_num_threads(1)
    texts = split()
    names = [*(f"descent {rate:g}" for rate in RATES), "AdamW 0.002", *SMALL_SETTINGS, "one batch", "Llama"]
    table.resume(TABLE, COLUMNS, [(name, seed) for name in names for seed in SEEDS],
                 lambda *setting: [measure(*setting, *texts).values()])


if __name__ == "__main__":
    main()
