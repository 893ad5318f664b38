"""Trains lesson 18's models from five seeds each, and writes 18_experts.csv.

    python assets/evidence/18_experts.py        (or: make evidence)

One row for each model and seed; rows that are there are kept, so a run that was stopped goes on. All models read
the same bytes in the same order: the topics of Python's own help(), every tenth held out, as in lesson 14, so
another version of Python gives slightly other numbers. "dense" and the three mixtures do the same work for a
token; "dense, wide" has as many parameters as the mixtures, and does far more.
loads: for each layer, the share of the held-out choices that fell on each expert, times the number of experts.
It runs on torch's kernels (lesson 13), which takes less time and gives the same but for rounding.
"""

import csv
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from solutions.ex05_softmax import cross_entropy  # noqa: E402
from solutions.ex13_transformer import ModelConfig, Transformer, use_torch_kernels  # noqa: E402
from solutions.ex14_training import (  # noqa: E402
    bits_per_byte,
    clip_grad_norm,
    evaluate,
    get_batch,
    learning_rate,
    parameter_groups,
)
from solutions.ex18_mixture_of_experts import (  # noqa: E402
    expert_load,
    load_balancing_loss,
    recorded,
    update_bias,
    with_experts,
)

TABLE = HERE / "18_experts.csv"
COLUMNS = ["model", "seed", "held out", "bits per byte", "dropped", "loads", "losses"]
SEEDS, STEPS, PEAK, BATCH = range(5), 600, 0.01, 16
DENSE = ModelConfig(vocab_size=256, d_model=64, layers=2, heads=4, kv_heads=2, d_ff=32, max_seq_len=32,
                    tie_embeddings=True)
EXPERTS, PER_TOKEN, WIDTH = 16, 2, 16           # 2 experts of width 16 are the dense model's 32
MODELS = ("dense", "no balance", "balancing loss", "balancing bias", "dense, wide")
COEFFICIENT, RATE = 0.01, 0.01
HELD_OUT = 20_000                               # bytes


def texts() -> tuple[torch.Tensor, torch.Tensor]:
    """Bytes to train on and bytes held out, as 14_training.py parts them."""
    spec = importlib.util.spec_from_file_location("evidence_14", HERE / "14_training.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return tuple(torch.tensor(list(text.encode())) for text in script.split())


def make(name: str) -> Transformer:
    if name.startswith("dense"):
        return Transformer(replace(DENSE, d_ff=EXPERTS * WIDTH) if name == "dense, wide" else DENSE)
    return with_experts(Transformer(DENSE), EXPERTS, PER_TOKEN, WIDTH, bias=name == "balancing bias")


def train(name: str, seed: int, text: torch.Tensor, steps: int = STEPS, each=lambda step: None):
    """A trained model, and its losses without what balance adds to them."""
    torch.manual_seed(seed)
    model, rng, losses = use_torch_kernels(make(name)), torch.Generator().manual_seed(seed), []
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.1), PEAK, betas=(0.9, 0.95), fused=True)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, 30, STEPS, PEAK, PEAK / 20)
        inputs, targets = get_batch(text, BATCH, DENSE.max_seq_len, rng)
        with recorded(model) as routings:
            loss = cross_entropy(model(inputs), targets)
        losses.append(loss.item())
        if name == "balancing loss":
            loss = loss + COEFFICIENT * sum(load_balancing_loss(r.logits, PER_TOKEN) for r in routings)
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm(list(model.parameters()), 1.0)
        optimizer.step()
        if name == "balancing bias":
            for block, routing in zip(model.blocks, routings, strict=True):
                update_bias(block.feed_forward.router, routing.ids, RATE)
        each(step + 1)
    return model.eval(), losses


@torch.no_grad()
def loads(model: Transformer, held: torch.Tensor) -> list[list[float]]:
    """For each layer, each expert's load on the held-out text; 1 is its fair share."""
    rows = held[:len(held) // DENSE.max_seq_len * DENSE.max_seq_len].view(-1, DENSE.max_seq_len)
    with recorded(model) as routings:
        model(rows)
    return [(expert_load(r.ids, EXPERTS) * EXPERTS / r.ids.numel()).tolist() for r in routings]


def measure(name: str, seed: int, text: torch.Tensor, held: torch.Tensor) -> dict:
    model, losses = train(name, seed, text)
    held = held[:HELD_OUT]
    loss, each = evaluate(model, held, DENSE.max_seq_len), loads(model, held)
    past = [sum(max(load - 1, 0) for load in layer) / EXPERTS for layer in each]    # with room for a fair share
    means = [sum(losses[i:i + 20]) / 20 for i in range(0, STEPS, 20)]
    return dict(zip(COLUMNS, [
        name, str(seed), f"{loss:.4f}", f"{bits_per_byte(loss, len(held) - 1, len(held) - 1):.4f}",
        f"{sum(past) / len(past):.4f}" if each else "", " ".join(f"{load:.3f}" for layer in each for load in layer),
        " ".join(f"{mean:.4g}" for mean in means)], strict=True))


def main() -> None:
    torch.set_num_threads(1)
    text, held = texts()
    rows = list(csv.DictReader(TABLE.open())) if TABLE.exists() else []
    for name in MODELS:
        for seed in SEEDS:
            if (name, str(seed)) in {(row["model"], row["seed"]) for row in rows}:
                continue
            rows.append(measure(name, seed, text, held))
            with TABLE.open("w", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
            print(f"18_experts: {len(rows)} of {len(MODELS) * len(SEEDS)}, {name}, seed {seed}: "
                  f"held-out loss {rows[-1]['held out']}", flush=True)


if __name__ == "__main__":
    main()
