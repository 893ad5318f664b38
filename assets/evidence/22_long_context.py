"""Lesson 22's readings of the pocket model, and its small models with a sink: writes 22_window.csv and four more.

    python assets/evidence/22_long_context.py       (or: make evidence)

Rows that are there are kept, so a run that was stopped goes on; those of another pocket model are dropped. The five
texts are those of lesson 19, which the pocket model has not read. Each row is one pass over a text (or over all five)
with other attention in every layer. What a query sees is what it would see token by token, from a cache.
22_window.csv: nats per token, by position, past the 512 tokens that the model was trained at. "4 + 60": the first 4
tokens and the last 60, positions counted within the cache; "4 + 60, text": counted in the text; "all, YaRN": all of
them, with lesson 07's YaRN; "all, angles" and "all, scale": with its angles, or its larger scores, alone. RoPE sees
distances alone, so windows without sinks are the same either way.
22_sparse.csv: nats per token at positions 256 to 511, where each query reads k keys, by each head's own scores (exact),
by fewer directions of these (rank), by one choice for all heads of a layer (shared), or the last k (recent).
22_needle.csv: sixteen words without a connection stand in a text, and at its end the first eight of them come again.
Nats per token of the other eight, and how many of a text's 64 are the model's first guess ("named"). Distance 0: they
had not been there. shuffled: the first copy is in another order.
22_sinks.csv: one layer of attention with one head and no feed-forward, trained at RATES from five seeds on a chain of
symbols: after most comes one that depends on the last symbol alone; after a copier, the one before it comes again.
"all, start's value 0": all in sight, and the start takes weight but gives nothing. Runs at 0.1 depend on the processor.
22_sinks_far.csv: those without a learned sink read chains of 512 symbols, where they were trained on 32: all of them,
with a longer table of angles, or from a cache, the last 8 or the first and the last 7. Nats per symbol, by position.
"""

import json
import re
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from pydoc_data.topics import topics

import torch
from torch import Tensor, nn
from torch.nn import functional as F

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.evidence import table  # noqa: E402
from assets.pocket.text import plain  # noqa: E402
from given.torch_kernels import use_torch_kernels  # noqa: E402
from solutions.ex00_shapes import merge_heads, split_heads  # noqa: E402
from solutions.ex07_rope import RoPE, yarn_frequencies  # noqa: E402
from solutions.ex10_grouped_query_attention import repeat_kv, sliding_window_mask  # noqa: E402
from solutions.ex13_transformer import ModelConfig, Transformer  # noqa: E402
from solutions.ex14_training import learning_rate  # noqa: E402
from solutions.ex16_pretrained import load_pretrained, load_tokenizer  # noqa: E402
from solutions.ex22_long_context import SinkAttention, with_attention, with_streaming  # noqa: E402

POCKET, TEXTS = HERE.parent / "pocket", HERE / "19_held_out.json"
NAMES = list(json.loads(TEXTS.read_text("utf-8")))
TRAINED, LONG, ROPE = 512, 1536, RoPE(32, 1536)
FREQUENCIES, SCALE = yarn_frequencies(32, LONG / TRAINED, TRAINED)
ROPES = {"all": ROPE, "all, YaRN": RoPE(32, LONG, frequencies=FREQUENCIES, attention_scale=SCALE),
         "all, angles": RoPE(32, LONG, frequencies=FREQUENCIES), "all, scale": RoPE(32, LONG, attention_scale=SCALE)}

WINDOW, WINDOW_COLUMNS, BIN = HERE / "22_window.csv", ["model", "method", "text", "losses"], 128
STREAMS = {"last 60": (0, 60), "last 64": (0, 64), "4 + 60": (4, 60), "last 128": (0, 128), "last 256": (0, 256)}
WINDOWS = (*ROPES, "last 60", "last 64", "4 + 60", "4 + 60, text", "last 256", "last 512")
SPARSE, SPARSE_COLUMNS, FROM = HERE / "22_sparse.csv", ["model", "method", "k", "text", "loss"], 256
INDEXES, KEPT = ("exact", "rank 8", "rank 16", "shared", "recent"), (8, 16, 32, 64)
READ = ("all", TRAINED), *((index, most) for index in INDEXES for most in KEPT), ("recent", 128)
NEEDLE, NEEDLE_COLUMNS = HERE / "22_needle.csv", ["model", "method", "distance", "order", "text", "loss", "named"]
READERS = ("all", "last 64", "4 + 60", "last 128", "last 256", "exact", "rank 16", "shared")
DISTANCES = (32, 128, 192, 256, 320, 448)
DRAWS, CUE = 8, 8
NEEDLES = (("all", 0, "as read"), *((method, distance, "as read") for method in READERS for distance in DISTANCES),
           *((method, 128, "shuffled") for method in READERS))


class Pocket:
    """The pocket model on torch's kernels, what reads with it, and the five texts as ids."""

    def __init__(self):
        self.tokenizer = load_tokenizer(POCKET)
        self.model = self.fresh()
        self.texts = {name: torch.tensor(self.tokenizer.encode(text))
                      for name, text in json.loads(TEXTS.read_text("utf-8")).items()}
        self.streaming = {name: with_streaming(self.fresh(), *sizes) for name, sizes in STREAMS.items()}
        self.bases = self.directions()

    def fresh(self) -> Transformer:
        return use_torch_kernels(load_pretrained(POCKET, dtype=torch.float32)).eval()

    def directions(self) -> list[Tensor]:
        """Per layer, (8, 32, 32): along which each head's keys, turned, are longest, in four rows of a text from
        training; the longest first.
        """
        names, found = sorted(set(topics) - {"formatstrings", "break"}), []
        ids = torch.tensor(self.tokenizer.encode("\n\n".join(plain(topics[name]) for name in names[:12])))

        def watch(layer, q, k, v):
            keys = repeat_kv(ROPE(k), 2).transpose(0, 1).flatten(1, 2)
            found.append(torch.linalg.eigh(keys.mT @ keys).eigenvectors.flip(-1))
            return everything(ROPE)(layer, q, k, v)

        self.attended(ids[:4 * TRAINED + 4].view(4, TRAINED + 1), watch)
        return found

    @torch.no_grad()
    def attended(self, ids: Tensor, attend) -> Tensor:
        """Logits of each token but the first, (batch, seq − 1, vocab); attend(layer, q, k, v) stands for attention.

        q: (batch, 8, seq, 32), k, v: (batch, 4, seq, 32), before RoPE.
        """
        x = self.model.embedding(ids[:, :-1])
        for layer, block in enumerate(self.model.blocks):
            attention, h = block.attention, block.norm1(x)
            q, k, v = (split_heads(project(h), heads) for project, heads in (
                (attention.q_proj, 8), (attention.k_proj, 4), (attention.v_proj, 4)))
            x = x + attention.o_proj(merge_heads(attend(layer, q, k, v)))
            x = x + block.feed_forward(block.norm2(x))
        return self.model.unembedding(self.model.norm(x))

    @torch.no_grad()
    def logits(self, ids: Tensor, method: str, most: int = 64) -> Tensor:
        """The same, by a method's name in the tables."""
        if method in self.streaming:
            return self.streaming[method](ids[:, :-1])
        own = {name: everything(rope) for name, rope in ROPES.items()} | {
            "4 + 60, text": in_the_text(4, 60), "last 512": in_the_text(0, TRAINED)}
        return self.attended(ids, own.get(method) or sparse(method, most, self.bases))

    def losses(self, ids: Tensor, method: str, most: int = 64) -> Tensor:
        """Nats of each token but the first, (batch, seq − 1)."""
        return nats(self.logits(ids, method, most), ids)


def nats(logits: Tensor, ids: Tensor) -> Tensor:
    return F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")


def everything(rope: RoPE):
    """All tokens, turned by this RoPE."""
    return lambda layer, q, k, v: F.scaled_dot_product_attention(rope(q), rope(k), v, is_causal=True, enable_gqa=True)


def in_the_text(sinks: int, window: int):
    """The first `sinks` tokens and the last `window`, with the text's own positions."""
    def attend(layer, q, k, v):
        n = q.shape[2]
        mask = sliding_window_mask(n, n, window) | (torch.arange(n) < sinks).expand(n, n).tril()
        return F.scaled_dot_product_attention(ROPE(q), ROPE(k), v, mask, enable_gqa=True)
    return attend


def sparse(index: str, most: int, bases: list[Tensor]):
    """Each query reads `most` keys: those that the index scores highest."""
    def attend(layer, q, k, v):
        q, k = ROPE(q), repeat_kv(ROPE(k), 2)
        future = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu(1)
        scores = (q @ k.mT * 32 ** -0.5).masked_fill_(future, -torch.inf)
        if index == "exact":
            by = scores
        elif index.startswith("rank"):
            base = bases[layer][..., :int(index.split()[1])]
            by = q @ base @ (k @ base).mT
        elif index == "shared":
            by = scores.softmax(-1).mean(1, keepdim=True)
        else:                                                   # recent: the later, the higher
            by = torch.arange(q.shape[2], dtype=q.dtype).expand(1, 1, q.shape[2], -1)
        by = by.masked_fill(future, -torch.inf)
        kept = torch.zeros(by.shape, dtype=torch.bool).scatter_(-1, by.topk(most, -1).indices, True)
        return scores.masked_fill_(~kept, -torch.inf).softmax(-1) @ repeat_kv(v, 2)
    return attend


def hidden(tokenizer, text: Tensor, distance: int, order: str = "as read") -> Tensor:
    """(DRAWS, 513) ids: a text in which sixteen words stand `distance` before they come again, at its end. Each text
    and each draw has words of its own, the same at all distances. Where the order is "shuffled", the first copy has
    another, of each draw's own.
    """
    words = torch.tensor([id for id, token in tokenizer.vocab.items() if re.fullmatch(rb" [a-z]{4,8}", token)])
    rows, rng = text[:TRAINED + 1].repeat(DRAWS, 1), torch.Generator().manual_seed(int(text[:TRAINED + 1].sum()))
    mixing = torch.Generator().manual_seed(0)
    for row in rows:
        chosen = words[torch.randperm(len(words), generator=rng)[:2 * CUE]]
        row[-2 * CUE:] = chosen
        if distance:
            if order == "shuffled":
                chosen = chosen[torch.randperm(2 * CUE, generator=mixing)]
            row[-2 * CUE - distance:][:2 * CUE] = chosen
    return rows


# -- small models with a sink ----------------------------------------------------------------

SINKS = HERE / "22_sinks.csv"
SINKS_COLUMNS = ["rate", "model", "seed", "sees", "loss", "copied", "ordinary", "on first", "on sink", "floor",
                 "training"]
SYMBOLS, COPIERS, SEEDS, RATES, STEPS, SEQ, ROWS = 16, 4, range(5), (0.01, 0.03, 0.06, 0.1), 400, 32, 16
MODELS = "softmax", "learned sink"
# First tokens, window, and whether the start keeps its value.
SIGHTS = {"all": (0, SEQ, True), "last 8": (0, 8, True), "first and last 7": (1, 7, True),
          "all, start's value 0": (0, SEQ, False)}
FAR, FAR_SEQ, SPANS = HERE / "22_sinks_far.csv", 512, ((16, 32), (32, 128), (128, 512))
FAR_COLUMNS = ["rate", "seed", "sees", *(f"{start}-{end - 1}" for start, end in SPANS)]
SMALL = ModelConfig(vocab_size=SYMBOLS + 1, d_model=32, layers=1, heads=1, d_ff=1, max_seq_len=SEQ)


class Nothing(nn.Module):
    """In a feed-forward's place."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


def follows() -> Tensor:
    """(SYMBOLS, SYMBOLS): what comes after an ordinary symbol, and how often."""
    return torch.softmax(2 * torch.randn(SYMBOLS, SYMBOLS, generator=torch.Generator().manual_seed(123)), -1)


def chain(rows: int, rng: torch.Generator, seq: int = SEQ) -> Tensor:
    """(rows, seq + 1) ids: a start, SYMBOLS, and symbols, of which the first COPIERS copy."""
    after, ids = follows(), torch.full((rows, seq + 1), SYMBOLS)
    ids[:, 1] = torch.randint(COPIERS, SYMBOLS, (rows,), generator=rng)
    for at in range(2, seq + 1):
        drawn = torch.multinomial(after[ids[:, at - 1]], 1, generator=rng)[:, 0]
        ids[:, at] = torch.where(ids[:, at - 1] < COPIERS, ids[:, at - 2], drawn)
    return ids


def train(rate: float, name: str, seed: int, steps: int = STEPS) -> tuple[Transformer, list[float]]:
    torch.manual_seed(seed)
    model = Transformer(SMALL)
    if name == "learned sink":
        with_attention(model, sunk)
    return model, fit(model, rate, seed, steps)


def fit(model: Transformer, rate: float, seed: int, steps: int = STEPS) -> list[float]:
    """Trains the model, its feed-forward taken out, on chains of this seed: the loss of each step."""
    rng = torch.Generator().manual_seed(seed)
    model.blocks[0].feed_forward = Nothing()

    def loss() -> Tensor:
        ids = chain(ROWS, rng)
        return nats(model(ids[:, :-1]), ids).mean()
    return descend(model, loss, rate, steps, 20, STEPS)


def descend(model: nn.Module, loss: Callable[[], Tensor], rate: float, steps: int, warmup: int, last: int
            ) -> list[float]:
    """Trains the model on what loss() gives at each step, which is returned. The rate falls until the step `last`."""
    optimizer, found = torch.optim.AdamW(model.parameters(), rate, betas=(0.9, 0.95), weight_decay=0.0), []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, warmup, last, rate, rate / 20)
        now = loss()
        optimizer.zero_grad()
        now.backward()
        optimizer.step()
        found.append(now.item())
    model.eval()
    return found


def sunk(old: nn.Module) -> SinkAttention:
    """A new attention with a sink, which starts with the old one's weights."""
    new = SinkAttention(32, 1, 1, rope=old.rope)
    new.load_state_dict({**old.state_dict(), "sinks": new.sinks})
    return new


def sinks_rows(rate: float, name: str, seed: int) -> list[tuple]:
    """What the trained model reads, with each sight."""
    model, found = train(rate, name, seed)
    ids, rows = chain(300, torch.Generator().manual_seed(999)), []
    for sees, (first, window, valued) in SIGHTS.items():
        mask = sliding_window_mask(SEQ, SEQ, window) | (torch.arange(SEQ) < first).expand(SEQ, SEQ).tril()
        numbers = [*reads(model, ids, mask, valued), sum(found[:20]) / 20]
        rows.append((rate, name, seed, sees, *(f"{number:.4f}" for number in numbers)))
    return rows


@torch.no_grad()
def reads(model: Transformer, ids: Tensor, mask: Tensor, valued: bool) -> list[float]:
    """Of queries from position 16 on: the loss of all, of those that copy, of the ordinary ones; the mean weights of
    the ordinary ones on the start and on the sink; and the loss of the ordinary ones where the chain itself is known.
    valued: False makes the start's value 0; its key stays.
    """
    x = model.embedding(ids[:, :-1])
    attention, ordinary = model.blocks[0].attention, ids[:, 16:-1] >= COPIERS
    q, k, v = attention.project(model.blocks[0].norm1(x))
    if not valued:
        v[:, :, 0] = 0
    scores = (q @ k.mT / 32 ** 0.5).masked_fill(~mask, -torch.inf)
    if isinstance(attention, SinkAttention):
        scores = torch.cat([scores, attention.sinks.expand(*scores.shape[:3], 1)], -1)
    weights = scores.softmax(-1)[:, 0]                          # of the one head
    x = x + attention.o_proj(weights[..., :SEQ] @ v[:, 0])
    loss, weights = nats(model.unembedding(model.norm(x)), ids)[:, 16:], weights[:, 16:][ordinary]
    after = follows()
    floor = -(after * after.log()).sum(-1)[ids[:, 16:-1][ordinary]].mean()
    return [x.item() for x in (loss.mean(), loss[~ordinary].mean(), loss[ordinary].mean(), weights[:, 0].mean(),
                               weights[:, SEQ:].sum(-1).mean(), floor)]


def far_rows(rate: float, seed: int) -> list[tuple]:
    """What the trained model reads far behind the length that it was trained at."""
    model, ids = train(rate, "softmax", seed)[0], chain(50, torch.Generator().manual_seed(999), FAR_SEQ)
    readers = {"all": deepcopy(model)} | {
        sees: with_streaming(deepcopy(model), *SIGHTS[sees][:2]) for sees in ("last 8", "first and last 7")}
    readers["all"].blocks[0].attention.rope = RoPE(SMALL.head_dim, FAR_SEQ)
    with torch.no_grad():
        found = {sees: nats(reader(ids[:, :-1]), ids) for sees, reader in readers.items()}
    return [(rate, seed, sees, *(f"{losses[:, start:end].mean():.4f}" for start, end in SPANS))
            for sees, losses in found.items()]


def main() -> None:
    torch.set_num_threads(1)
    mark, pocket = table.mark(POCKET / "model.safetensors"), Pocket()
    texts = pocket.texts

    def window_rows(method, name):
        found = pocket.losses(texts[name][None, :LONG + 1], method)[0].view(-1, BIN).mean(1)
        return [(mark, method, name, " ".join(f"{loss:.4f}" for loss in found.tolist()))]

    def sparse_rows(index, most):
        rows = torch.stack([text[:TRAINED + 1] for text in texts.values()])
        found = pocket.losses(rows, index, most)[:, FROM:].mean(1)
        return [(mark, index, most, name, f"{loss:.4f}") for name, loss in zip(texts, found.tolist())]

    def needle_rows(method, distance, order):
        rows = torch.cat([hidden(pocket.tokenizer, text, distance, order) for text in texts.values()])
        logits = pocket.logits(rows, method)
        losses, named = nats(logits, rows)[:, -CUE:], logits[:, -CUE:].argmax(-1) == rows[:, -CUE:]
        return [(mark, method, distance, order, name, f"{loss.mean():.4f}", int(first.sum()))
                for name, loss, first in zip(texts, losses.split(DRAWS), named.split(DRAWS))]

    table.resume(WINDOW, WINDOW_COLUMNS, [(method, name) for method in WINDOWS for name in NAMES], window_rows, mark)
    table.resume(NEEDLE, NEEDLE_COLUMNS, NEEDLES, needle_rows, mark)
    table.resume(SINKS, SINKS_COLUMNS, [(rate, name, seed) for rate in RATES for name in MODELS for seed in SEEDS],
                 sinks_rows)
    table.resume(FAR, FAR_COLUMNS, [(rate, seed) for rate in RATES for seed in SEEDS], far_rows)
    table.resume(SPARSE, SPARSE_COLUMNS, READ, sparse_rows, mark)


if __name__ == "__main__":
    main()
