"""Trains small indexes for the pocket model, as DeepSeek-V3.2's indexer is first trained: writes 22_index.csv and
22_index_rates.csv.

    python assets/evidence/22_index.py        (or: make evidence)

Rows that are there are kept, so a run that was stopped goes on; those of another pocket model are dropped. The model is
frozen. Each layer has an index of its own: HEADS queries of SIZE numbers and HEADS weights from a query's token, one
key of SIZE numbers from a key's token, turned by RoPE. It is trained by the KL divergence of softmax(index scores) from
the mean of the layer's attention weights over the heads, on topics of Python's own help(), which share no 50 characters
with the five texts that are read afterwards (another version of Python has slightly other topics).
22_index_rates.csv: nats of this divergence after half of the steps and after all, on rows that no index was trained
on, for the peaks of AdamW's rate that were tried, on TUNING seeds. 22_index.csv: SEEDS, others, at the best peak.
losses: of the five texts, nats per token at positions 256 to 511, where each query reads k keys, the same for all
heads. masses: of each layer, how much of the full attention of these queries lies on the keys chosen. needle: nats per
word, the mean of the five texts, at each distance of 22_needle.csv; shuffled: at 128, with the first copy in another
order. untrained: the same index before its first step. shared: the mean weights themselves choose, an oracle. recent:
the last k.
"""

import importlib
import sys
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import torch
from torch import Tensor, nn

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.evidence import table  # noqa: E402
from assets.pocket.text import hashes, joined_lines, plain, shared, without  # noqa: E402
from solutions.ex00_shapes import merge_heads  # noqa: E402
from solutions.ex07_rope import RoPE  # noqa: E402
from solutions.ex10_grouped_query_attention import repeat_kv  # noqa: E402
from solutions.ex14_training import learning_rate  # noqa: E402
from solutions.ex22_long_context import index_scores  # noqa: E402

TABLE, RATE_TABLE = HERE / "22_index.csv", HERE / "22_index_rates.csv"
COLUMNS = ["model", "method", "seed", "k", "losses", "masses", "needle", "shuffled"]
RATE_COLUMNS = ["model", "rate", "seed", "half", "divergence"]
SEEDS, TUNING, RATES = range(5), (100, 101), (0.0025, 0.005, 0.01, 0.02, 0.04)
STEPS, ROWS, QUERIES = 150, 2, 64               # of each step
HEADS, SIZE, SEQ, FROM, KEPT = 8, 32, 512, 256, (8, 16, 32, 64)
TRAINING, HELD_OUT, LAYERS = 128, 16, 6         # rows of SEQ tokens
ROPE, AT = RoPE(SIZE, SEQ), torch.arange(SEQ)
METHODS = [*((name, seed) for name in ("trained", "untrained") for seed in SEEDS), ("shared", 0),
           ("recent", 0)]


class Index(nn.Module):
    """One layer's: how much queries want to read each key, from the layer's normed inputs."""

    def __init__(self, d_model: int = 256):
        super().__init__()
        self.q, self.k, self.weights = (nn.Linear(d_model, size, bias=False) for size in (HEADS * SIZE, SIZE, HEADS))

    def forward(self, h: Tensor, at: Tensor = AT) -> Tensor:
        """h: (batch, SEQ, d_model). Of the queries at these positions: (batch, q, SEQ); −∞ for later keys."""
        q = ROPE(self.q(h[:, at]).unflatten(-1, (HEADS, SIZE)).transpose(1, 2), at)
        scores = index_scores(q, ROPE(self.k(h)), self.weights(h[:, at]) / (HEADS * SIZE) ** 0.5)
        return scores.masked_fill(AT > at[:, None], -torch.inf)


@torch.no_grad()
def mean_weights(attention: nn.Module, h: Tensor, at: Tensor = AT) -> Tensor:
    """What the index should find: the heads' mean attention weights, (batch, q, SEQ)."""
    q, k, _ = attention.project(h)
    scores = q[:, :, at] @ repeat_kv(k, 2).mT / 32 ** 0.5
    return scores.masked_fill(AT > at[:, None], -torch.inf).softmax(-1).mean(1)


def divergence(weights: Tensor, scores: Tensor) -> Tensor:
    """KL(weights ‖ softmax(scores)), the mean over queries."""
    logs = scores.log_softmax(-1).masked_fill(weights == 0, 0.0)       # 0 · (−∞) counts as 0
    return (torch.xlogy(weights, weights) - weights * logs).sum(-1).mean()


def rows(tokenizer, held: list[str]) -> Tensor:
    """(TRAINING + HELD_OUT, SEQ) ids of the topics, shuffled, without lines that share a passage with `held`."""
    texts, passages = [plain(topics[name]) for name in sorted(topics)], np.unique(hashes(joined_lines(held)[0]))
    while (kept := [*without(texts, passages)]) != texts:
        texts = kept
    assert shared(texts, held) == 0
    ids = torch.tensor(tokenizer.encode("\n\n".join(texts)))
    ids = ids[:len(ids) // SEQ * SEQ].view(-1, SEQ)
    return ids[torch.randperm(len(ids), generator=torch.Generator().manual_seed(0))[:TRAINING + HELD_OUT]]


@torch.no_grad()
def inputs(model: nn.Module, ids: Tensor, layers: int = LAYERS) -> list[Tensor]:
    """The normed inputs of the first layers' attention, (batch, SEQ, d_model) each; in two bytes a number."""
    found = []
    for part in ids.split(8):
        x, now = model.embedding(part), []
        for block in model.blocks[:layers]:
            now.append(block.norm1(x).half())
            x = block(x) if len(now) < layers else x
        found.append(now)
    return [torch.cat(layer) for layer in zip(*found)]


def train(attention: nn.Module, h: Tensor, layer: int, rate: float, seed: int, steps: int = STEPS,
          each=lambda step, index: None) -> tuple[Index, list[float]]:
    """A layer's index and its losses. h: that layer's inputs; those of the first TRAINING rows are read."""
    torch.manual_seed(1000 * layer + seed)
    index, rng, losses = Index(), torch.Generator().manual_seed(seed), []
    optimizer = torch.optim.AdamW(index.parameters(), rate, betas=(0.9, 0.95), weight_decay=0.0)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, 20, STEPS, rate, rate / 20)
        now = h[torch.randint(TRAINING, (ROWS,), generator=rng)].float()
        at = torch.randint(SEQ, (QUERIES,), generator=rng)
        loss = divergence(mean_weights(attention, now, at), index(now, at))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        each(step + 1, index)
    return index, losses


@torch.no_grad()
def mass(attention: nn.Module, h: Tensor, choose, k: int) -> float:
    """How much of the attention of queries from FROM on lies on the k keys with the highest scores."""
    h = h.float()
    chosen = choose(h)[:, FROM:].topk(k, -1).indices
    return mean_weights(attention, h)[:, FROM:].gather(-1, chosen).sum(-1).mean().item()


@torch.no_grad()
def logits(model: nn.Module, ids: Tensor, choose: list, k: int) -> Tensor:
    """The model's, where in each layer a query reads the k keys that choose[layer](h) scores highest."""
    x = model.embedding(ids)
    for block, of_keys in zip(model.blocks, choose):
        h = block.norm1(x)
        q, keys, v = block.attention.project(h)
        chosen = of_keys(h).topk(k, -1)
        kept = torch.zeros(*ids.shape, SEQ, dtype=torch.bool).scatter_(-1, chosen.indices, chosen.values > -torch.inf)
        scores = (q @ repeat_kv(keys, 2).mT / 32 ** 0.5).masked_fill(~kept[:, None], -torch.inf)
        x = x + block.attention.o_proj(merge_heads(scores.softmax(-1) @ repeat_kv(v, 2)))
        x = x + block.feed_forward(block.norm2(x))
    return model.unembedding(model.norm(x))


def recent(h: Tensor) -> Tensor:
    return AT.expand(len(h), SEQ, SEQ).float().masked_fill(AT > AT[:, None], -torch.inf)


def choosers(name: str, seed: int, attentions: list, h: list[Tensor], rate: float) -> list:
    """Of each layer, what gives index scores for its inputs."""
    if name in ("trained", "untrained"):
        steps = STEPS if name == "trained" else 0
        return [train(*both, layer, rate, seed, steps)[0] for layer, both in enumerate(zip(attentions, h))]
    if name == "shared":
        return [lambda h, attention=attention: mean_weights(attention, h).masked_fill(AT > AT[:, None], -torch.inf)
                for attention in attentions]
    return [recent] * LAYERS


def main() -> None:
    torch.set_num_threads(1)
    script = importlib.import_module("assets.evidence.22_long_context")
    mark, pocket = table.mark(script.POCKET / "model.safetensors"), script.Pocket()
    model, held = pocket.model, torch.stack([text[:SEQ + 1] for text in pocket.texts.values()])
    attentions = [block.attention.requires_grad_(False) for block in model.blocks]
    h = inputs(model, rows(pocket.tokenizer, script.json.loads(script.TEXTS.read_text("utf-8")).values()))
    read = inputs(model, held[:, :-1])

    @torch.no_grad()
    def apart(layer, index):
        now = h[layer][TRAINING:].float()
        return divergence(mean_weights(attentions[layer], now), index(now)).item()

    def needle_loss(choose, k, distance, order="as read"):
        ids = torch.cat([script.hidden(pocket.tokenizer, text, distance, order) for text in pocket.texts.values()])
        return script.nats(logits(model, ids[:, :-1], choose, k), ids)[:, -script.CUE:].mean().item()

    def rate_rows(rate, seed):
        found = []
        for layer in range(LAYERS):
            def each(step, index, layer=layer):
                if step in (STEPS // 2, STEPS):
                    found.append(apart(layer, index))
            train(attentions[layer], h[layer], layer, rate, seed, each=each)
        return [(mark, rate, seed, *(f"{sum(found[part::2]) / LAYERS:.4f}" for part in (0, 1)))]

    def tried(rate):
        table.resume(RATE_TABLE, RATE_COLUMNS, [(rate, seed) for seed in TUNING], rate_rows, mark)
        return sum(float(row[4]) for row in table.read(RATE_TABLE) if row[1] == str(rate)) / len(TUNING)

    best = table.downhill(RATES, 0.01, tried)

    def index_rows(name, seed):
        choose, found = choosers(name, seed, attentions, h, best), []
        for k in KEPT if name in ("trained", "shared", "recent") else KEPT[-1:]:
            losses = script.nats(logits(model, held[:, :-1], choose, k), held)[:, FROM:].mean(1).tolist()
            masses = [mass(*both, k) for both in zip(attentions, read, choose)]
            words = [], []
            if (name, k) == ("trained", KEPT[-1]):
                words = ([needle_loss(choose, k, distance) for distance in script.DISTANCES],
                         [needle_loss(choose, k, 128, "shuffled")])
            found.append((mark, name, seed, k, *(" ".join(f"{number:.4f}" for number in numbers)
                                                 for numbers in (losses, masses, *words))))
        return found

    table.resume(TABLE, COLUMNS, METHODS, index_rows, mark)


if __name__ == "__main__":
    main()
