"""Trains lesson 23's four rules to recall pairs from five seeds each, and writes 23_recall.csv.

    python assets/evidence/23_recall.py        (or: make evidence)

The task: N pairs of a key and a value, then all N keys in another order, and after each its value is asked. Keys are
drawn without repeats from 64, values from 64 others. Each batch has one N of PAIRS; the tests have 64 sequences of
each N. The model: one layer of d_model 32 with one head of 16, no feed-forward, no positions. The four contestants
are the same but for the rule: q, k and v go through a short convolution, q and k through an RMSNorm with weights
("softmax") or to length 1 (the others), and what is read through an RMSNorm.

**Tuned**: the learning rate, for each rule by itself. From 0.01 it is doubled or halved, within RATES, until both
neighbours are worse; what counts is wrong, of a seed that is used for nothing else. At its best rate each
is then trained from five seeds. One row for each rule, rate and seed; rows that are there are kept, so a run that was
stopped goes on. wrong: the share of values at 32 pairs that are not said right. right: the share that is, for each N of
PAIRS. by step: right at 32 pairs, every 50 steps. losses: of steps 0, 10, 20 and 30.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.evidence import table  # noqa: E402
from given.torch_kernels import use_torch_kernels  # noqa: E402
from solutions.ex02_embedding import Embedding, Unembedding  # noqa: E402
from solutions.ex03_linear import Linear  # noqa: E402
from solutions.ex04_normalization import RMSNorm  # noqa: E402
from solutions.ex05_softmax import cross_entropy  # noqa: E402
from solutions.ex14_training import learning_rate  # noqa: E402
from solutions.ex23_linear_attention import (  # noqa: E402
    chunk_delta_rule,
    chunk_gated_delta_rule,
    l2_normalize,
    linear_attention,
    short_convolution,
)

TABLE = HERE / "23_recall.csv"
COLUMNS = ["rule", "rate", "seed", "wrong", "right", "by step", "losses"]
RULES, PAIRS, KEYS, VALUES = ("softmax", "linear", "delta", "gated delta"), (4, 8, 16, 32), 64, 64
RATES, SEEDS, TUNED_ON = (0.0025, 0.005, 0.01, 0.02, 0.04, 0.08), range(5), range(100, 101)
D_MODEL, HEAD_DIM, BATCH, STEPS, EACH = 32, 16, 32, 400, 50


def draw(batch: int, pairs: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """ids, (batch, 3 · pairs): pairs, then keys in another order; and the values of these."""
    keys = torch.rand(batch, KEYS, generator=rng).argsort(-1)[:, :pairs]
    values = torch.randint(VALUES, (batch, pairs), generator=rng)
    order = torch.rand(batch, pairs, generator=rng).argsort(-1)
    told = torch.stack([keys, KEYS + values], -1).flatten(1)
    return torch.cat([told, keys.gather(1, order)], 1), values.gather(1, order)


class Layer(nn.Module):
    """What GatedDeltaNet is made of, around one of four rules."""

    def __init__(self, rule: str):
        super().__init__()
        self.rule = rule
        self.qkv, self.o_proj = Linear(D_MODEL, 3 * HEAD_DIM), Linear(HEAD_DIM, D_MODEL)
        self.conv = nn.Parameter(torch.empty(3 * HEAD_DIM, 4).uniform_(-0.5, 0.5))
        self.norm = RMSNorm(HEAD_DIM)
        if rule == "softmax":
            self.q_norm, self.k_norm = RMSNorm(HEAD_DIM), RMSNorm(HEAD_DIM)
        if "delta" in rule:
            self.beta = Linear(D_MODEL, 1)
        if rule == "gated delta":
            self.decay = Linear(D_MODEL, 1, bias=True)
            nn.init.constant_(self.decay.bias, -5)          # at the start, nearly nothing is forgotten

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = short_convolution(self.qkv(x), self.conv)[0].chunk(3, dim=-1)
        if self.rule == "softmax":
            q, k = self.q_norm(q), self.k_norm(k)
            return self.o_proj(self.norm(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)))
        q, k = l2_normalize(q), l2_normalize(k)
        if self.rule == "linear":
            out, _ = linear_attention(q, k, v)
        else:
            beta = self.beta(x)[..., 0].sigmoid()
            if self.rule == "delta":
                out, _ = chunk_delta_rule(q, k, v, beta, chunk=96)
            else:
                decay = -nn.functional.softplus(self.decay(x)[..., 0])
                out, _ = chunk_gated_delta_rule(q, k, v, beta, decay, chunk=96)
        return self.o_proj(self.norm(out))


class Model(nn.Module):
    def __init__(self, rule: str):
        super().__init__()
        self.embedding, self.layer = Embedding(KEYS + VALUES, D_MODEL), Layer(rule)
        self.norm1, self.norm2 = RMSNorm(D_MODEL), RMSNorm(D_MODEL)
        self.unembedding = Unembedding(D_MODEL, VALUES)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        return self.unembedding(self.norm2(x + self.layer(self.norm1(x))))


def train(rule: str, rate: float, seed: int, steps: int = STEPS) -> tuple[list[float], list[list[float]]]:
    """The losses, and the shares that are right at each of PAIRS, every EACH steps."""
    torch.manual_seed(seed)
    model, rng, losses, right = use_torch_kernels(Model(rule)), torch.Generator().manual_seed(seed), [], []
    tests = [draw(64, pairs, torch.Generator().manual_seed(1000 + seed)) for pairs in PAIRS]
    adam = torch.optim.AdamW(model.parameters(), rate, weight_decay=0, fused=True)
    for step in range(steps):
        for group in adam.param_groups:
            group["lr"] = learning_rate(step, 30, STEPS, rate, rate / 20)
        pairs = PAIRS[torch.randint(len(PAIRS), (), generator=rng)]
        ids, values = draw(BATCH, pairs, rng)
        loss = cross_entropy(model(ids)[:, 2 * pairs:], values)
        adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        losses.append(loss.item())
        if (step + 1) % EACH == 0:
            with torch.no_grad():
                right.append([(model(ids)[:, 2 * pairs:].argmax(-1) == values).float().mean().item()
                              for pairs, (ids, values) in zip(PAIRS, tests, strict=True)])
    return losses, right


def measure(rule: str, rate: float, seed: int) -> list[str]:
    """One row of the table."""
    losses, right = train(rule, rate, seed)
    return [rule, str(rate), str(seed), f"{1 - right[-1][-1]:.4f}", " ".join(f"{share:.4f}" for share in right[-1]),
            " ".join(f"{shares[-1]:.3f}" for shares in right), " ".join(f"{loss:.3f}" for loss in losses[:40:10])]


def wrong(rule: str, rate: float, seeds: range) -> float:
    return table.mean_loss(TABLE, COLUMNS, rule, rate, seeds, measure, 3)


def main() -> None:
    torch.set_num_threads(1)
    best = {rule: table.downhill(RATES, 0.01, lambda rate, rule=rule: wrong(rule, rate, TUNED_ON)) for rule in RULES}
    table.resume(TABLE, COLUMNS, [(rule, best[rule], seed) for seed in SEEDS for rule in RULES],
                 lambda *setting: [measure(*setting)])


if __name__ == "__main__":
    main()
