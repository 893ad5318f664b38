"""Trains lesson 18's models from five seeds each, and writes 18_experts.csv and 18_rates.csv.

    python assets/evidence/18_experts.py        (or: make evidence)

One row for each model and seed; rows that are there are kept, so a run that was stopped goes on. All models read
the same bytes in the same order: the topics of Python's own help(), every tenth held out, as in lesson 14, so
another version of Python gives slightly other numbers. "dense" and the three mixtures do the same work for a
token; "dense, wide" has as many parameters as the mixtures, and does far more.
loads: for each layer, the share of the held-out choices that fell on each expert, times the number of experts.
dropped: the share of choices without room, if in each 512 tokens an expert takes at most 1.25 times its fair
share. by byte, for each layer: how often a token's first choice is the one that its byte alone had most often,
the choices of one half of the held-out text looked up for the other half; commonest: how often it is the choice
that is the commonest of all.
18_rates.csv has the rates of AdamW that were tried: the dense model, the wide one and the mixture with the bias, each
at the peaks RATES, with all seeds. 18_experts.csv has all five models at the peak 0.0025, the best of all three.
It runs on torch's kernels (lesson 13), which takes less time and gives the same but for rounding.
"""

import importlib
import sys
from dataclasses import replace
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
from solutions.ex18_mixture_of_experts import (  # noqa: E402
    capacity_mask,
    expert_load,
    load_balancing_loss,
    recorded,
    update_bias,
    with_experts,
)

TABLE, RATE_TABLE = HERE / "18_experts.csv", HERE / "18_rates.csv"
COLUMNS = ["model", "seed", "held out", "bits per byte", "loads", "dropped", "by byte", "commonest", "losses"]
SEEDS, STEPS, PEAK, BATCH = range(5), 600, 0.0025, 16
DENSE = ModelConfig(vocab_size=256, d_model=64, layers=1, heads=4, kv_heads=2, d_ff=32, max_seq_len=32,
                    tie_embeddings=True)
EXPERTS, PER_TOKEN, WIDTH = 16, 2, 16           # 2 experts of width 16 are the dense model's 32
MODELS = ("dense", "no balance", "balancing loss", "balancing bias", "dense, wide")
COEFFICIENT, RATE = 0.01, 0.001
TUNED, RATES = ("dense", "dense, wide", "balancing bias"), (0.0006, 0.00125, 0.0025, 0.005, 0.01, 0.02)
RATE_COLUMNS = ["peak", "model", "seed", "bits per byte", "start"]
HELD_OUT = 20_000                               # bytes


def texts() -> tuple[torch.Tensor, torch.Tensor]:
    """Bytes to train on and bytes held out, as 14_training.py parts them."""
    script = importlib.import_module("assets.evidence.14_training")
    return tuple(torch.tensor(list(text.encode())) for text in script.split())


def make(name: str) -> Transformer:
    if name.startswith("dense"):
        return Transformer(replace(DENSE, d_ff=EXPERTS * WIDTH) if name == "dense, wide" else DENSE)
    return with_experts(Transformer(DENSE), EXPERTS, PER_TOKEN, WIDTH, bias=name == "balancing bias")


def train(name: str, seed: int, text: torch.Tensor, steps: int = STEPS, each=lambda step: None,
          peak: float = PEAK):
    """A trained model, and its losses without what balance adds to them."""
    torch.manual_seed(seed)
    model, rng, losses = use_torch_kernels(make(name)), torch.Generator().manual_seed(seed), []
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.1), peak, betas=(0.9, 0.95), fused=True)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, 30, STEPS, peak, peak / 20)
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
def routed(model: Transformer, held: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The held-out text in rows, and for each layer with experts the ids that its tokens chose."""
    rows = held[:len(held) // DENSE.max_seq_len * DENSE.max_seq_len].view(-1, DENSE.max_seq_len)
    with recorded(model) as routings:
        model(rows)
    return rows, [routing.ids for routing in routings]


def load_of(ids: torch.Tensor) -> torch.Tensor:
    """Each expert's load; 1 is its fair share."""
    return expert_load(ids, EXPERTS) * EXPERTS / ids.numel()


def dropped(ids: torch.Tensor, factor: float = 1.25) -> float:
    """The share of choices that find no room, with batches as in training."""
    capacity = int(factor * BATCH * DENSE.max_seq_len * PER_TOKEN / EXPERTS)
    batches = [batch for batch in ids.split(BATCH) if len(batch) == BATCH]
    fits = torch.stack([capacity_mask(batch, EXPERTS, capacity) for batch in batches])
    return 1 - fits.float().mean().item()


def by_byte(rows: torch.Tensor, ids: torch.Tensor) -> tuple[float, float]:
    """How often a byte tells the first choice; how often the commonest expert is it."""
    half, first = len(rows) // 2, ids[..., 0]
    counts = torch.zeros(256, EXPERTS).index_put_(
        (rows[:half].flatten(), first[:half].flatten()), torch.tensor(1.0), accumulate=True)
    told = counts.argmax(1)[rows[half:]] == first[half:]
    return told.float().mean().item(), (counts.sum(0).argmax() == first[half:]).float().mean().item()


def measure(name: str, seed: int, text: torch.Tensor, held: torch.Tensor) -> dict:
    model, losses = train(name, seed, text)
    held = held[:HELD_OUT]
    loss = evaluate(model, held, DENSE.max_seq_len)
    rows, layers = routed(model, held)
    told = [by_byte(rows, ids) for ids in layers]
    means = [sum(losses[i:i + 20]) / 20 for i in range(0, STEPS, 20)]

    def said(numbers) -> str:
        return " ".join(f"{number:.4f}" for number in numbers)

    return dict(zip(COLUMNS, [
        name, str(seed), f"{loss:.4f}", f"{bits_per_byte(loss, len(held) - 1, len(held) - 1):.4f}",
        said(load for ids in layers for load in load_of(ids).tolist()), said(dropped(ids) for ids in layers),
        said(share for share, _ in told), said(share for _, share in told), said(means)], strict=True))


def measure_rate(peak: float, name: str, seed: int, text: torch.Tensor, held: torch.Tensor) -> list[str]:
    """A row of 18_rates.csv; start: the mean loss of the first 20 steps."""
    model, losses = train(name, seed, text, peak=peak)
    held = held[:HELD_OUT]
    bits = bits_per_byte(evaluate(model, held, DENSE.max_seq_len), len(held) - 1, len(held) - 1)
    return [str(peak), name, str(seed), f"{bits:.4f}", f"{sum(losses[:20]) / 20:.4f}"]


def main() -> None:
    torch.set_num_threads(1)
    both = texts()
    table.resume(TABLE, COLUMNS, [(name, seed) for name in MODELS for seed in SEEDS],
                 lambda *setting: [measure(*setting, *both).values()])
    table.resume(RATE_TABLE, RATE_COLUMNS, [(peak, name, seed) for seed in SEEDS for peak in RATES for name in TUNED],
                 lambda *setting: [measure_rate(*setting, *both)])


if __name__ == "__main__":
    main()
