"""Trains lesson 23's four rules, and five controls, to recall pairs from five seeds each, and writes 23_recall*.csv.

    python assets/evidence/23_recall.py        (or: make evidence)

The task: N tokens, each a key with a value; then half of the keys again, in another order and each with a new value,
which counts from there on; then all N keys in a third order without a value, and each has to be answered with its own.
A key and its value are one token, the sum of two embeddings, so that the rules are compared and not how a layer finds
out which value belongs to which key. Keys are drawn without repeats from 32, values from 32 others. Each batch has one
N of PAIRS; the tests have 64 sequences of each N. The model: one layer of d_model 64 with one head of 16, no
feed-forward. The contestants are the same but for the rule, and what is read goes through an RMSNorm. Before
"softmax", q and k go through an RMSNorm with weights, and scores lose a learned amount for each token of distance (as
in ALiBi), without which attention could not tell new from old; before the others, q and k are brought to length 1.

Four controls: "linear beta" is the plain sum with the delta rule's learned β on what it writes, S + β kᵀ v; "linear
decay" has the gated rule's α besides, α S + β kᵀ v: it forgets, and does not correct; in "linear silent" and "delta
silent" a token that asks writes nothing.

**Tuned**: the learning rate, for each rule by itself. From 0.01 it is doubled or halved, within RATES, until both
neighbours are worse; what counts is wrong, the mean of three seeds that are used for nothing else. At its best rate
each is then trained from five seeds. One row for each rule, rate and seed; rows that are there are kept, so a run that
was stopped goes on. wrong: the share of values at 16 pairs that are not said right. once, again: the shares that are
right, for each N of PAIRS, of keys that were told once and again. by step: right at 16 pairs, after each sixth of the
steps. losses: of steps 0, 10, 20 and 30.

**The start of α.** The two rules that forget begin with an α of sigmoid(5) = 0.993. In 23_recall_start.csv they begin
with sigmoid(3) = 0.953 and sigmoid(1) = 0.731, as contestants of their own ("gated delta from 3").

**A boundary.** In 23_recall_boundary.csv an old document of 24 pairs comes first, then a token that separates, then N
pairs of a new document, half of them with keys of the old one, and all N are asked for. once, again: of keys that the
new document alone has, and of keys that the old one has, too. A control, "gated delta fixed", learns one α for all
tokens. alpha: the trained model's mean α at the token that separates, and at all others.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.evidence import table  # noqa: E402
from given.torch_kernels import use_torch_kernels  # noqa: E402
from solutions.ex02_embedding import Embedding, Unembedding  # noqa: E402
from solutions.ex03_linear import Linear  # noqa: E402
from solutions.ex04_normalization import RMSNorm  # noqa: E402
from solutions.ex06_positions import relative_distance  # noqa: E402
from solutions.ex14_training import learning_rate  # noqa: E402
from solutions.ex23_linear_attention import (  # noqa: E402
    chunk_delta_rule,
    chunk_gated_delta_rule,
    l2_normalize,
    linear_attention,
)

TABLE, START_TABLE = HERE / "23_recall.csv", HERE / "23_recall_start.csv"
BOUNDARY_TABLE = HERE / "23_recall_boundary.csv"
COLUMNS = ["rule", "rate", "seed", "wrong", "once", "again", "by step", "losses"]
BOUNDARY_COLUMNS = [*COLUMNS, "alpha"]
RULES = ("softmax", "linear", "delta", "gated delta", "linear beta", "linear silent", "delta silent",
         "linear decay")
STARTS = tuple(f"{rule} from {start}" for rule in ("gated delta", "linear decay") for start in (3, 1))
BOUNDARY = ("softmax", "delta", "gated delta", "linear decay", *STARTS,
            *(f"gated delta fixed{start}" for start in ("", " from 3", " from 1")))
PAIRS, KEYS, VALUES = (4, 8, 16), 32, 32
NOTHING = VALUES                    # what a token says that asks
OLD, SEPARATOR = 24, KEYS           # pairs of the old document; the key of the token behind it
RATES, SEEDS, TUNED_ON = (0.0025, 0.005, 0.01, 0.02, 0.04, 0.08), range(5), range(100, 103)
D_MODEL, HEAD_DIM, BATCH, STEPS = 64, 16, 32, 600


def draw(batch: int, pairs: int, rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Keys and values of all tokens, (batch, 2.5 · pairs); of the last ones the values wanted, and which are new."""
    keys = torch.rand(batch, KEYS, generator=rng).argsort(-1)[:, :pairs]
    values, new = (torch.randint(VALUES, (batch, n), generator=rng) for n in (pairs, pairs // 2))
    half = torch.rand(batch, pairs, generator=rng).argsort(-1)[:, :pairs // 2]
    asked = torch.rand(batch, pairs, generator=rng).argsort(-1)
    is_new = torch.zeros(batch, pairs, dtype=torch.bool).scatter(1, half, True)
    said = torch.cat([values, new, torch.full_like(values, NOTHING)], 1)
    return (torch.cat([keys, keys.gather(1, half), keys.gather(1, asked)], 1), said,
            values.scatter(1, half, new).gather(1, asked), is_new.gather(1, asked))


def draw_boundary(batch: int, pairs: int, rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As draw, with an old document: all tokens, (batch, OLD + 1 + 2 · pairs); is new: the old one has the key, too."""
    def shuffled(x: Tensor) -> Tensor:
        return x.gather(1, torch.rand(x.shape, generator=rng).argsort(-1))

    keys, half = shuffled(torch.arange(KEYS).expand(batch, KEYS)), pairs // 2
    old, other = keys[:, :OLD], keys[:, OLD:]
    new = shuffled(torch.cat([old[:, :half], other[:, :half]], 1))
    order = shuffled(torch.arange(pairs).expand(batch, pairs))
    before, values = (torch.randint(VALUES, (batch, n), generator=rng) for n in (OLD, pairs))
    asked, separator = new.gather(1, order), torch.full((batch, 1), SEPARATOR)
    return (torch.cat([shuffled(old), separator, new, asked], 1),
            torch.cat([before, torch.full_like(separator, NOTHING), values, torch.full_like(values, NOTHING)], 1),
            values.gather(1, order), (asked[:, :, None] == old[:, None]).any(-1))


class Layer(nn.Module):
    """What GatedDeltaNet is made of, around one of the rules: "... from 3" is one whose α begins at sigmoid(3)."""

    def __init__(self, rule: str):
        super().__init__()
        rule, _, start = rule.partition(" from ")
        self.rule = rule
        self.qkv, self.o_proj = Linear(D_MODEL, 3 * HEAD_DIM), Linear(HEAD_DIM, D_MODEL)
        self.norm = RMSNorm(HEAD_DIM)
        if rule == "softmax":
            self.q_norm, self.k_norm = RMSNorm(HEAD_DIM), RMSNorm(HEAD_DIM)
            self.slope = nn.Parameter(torch.tensor(0.1))
        if "delta" in rule or rule in ("linear beta", "linear decay"):
            self.beta = Linear(D_MODEL, 1)
        if rule.startswith("gated delta") or rule == "linear decay":
            self.decay = Linear(D_MODEL, 1, bias=True)
            nn.init.constant_(self.decay.bias, -int(start or 5))    # with 5, nearly nothing is forgotten at the start

    def forward(self, x: Tensor, asks: Tensor) -> Tensor:
        """asks: (batch, seq), True for a token that asks; the rules that are "silent" let it write nothing."""
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        if self.rule == "softmax":
            distance = relative_distance(x.shape[1], x.shape[1])        # key minus query
            bias = (self.slope * distance).masked_fill(distance > 0, -torch.inf)
            return self.o_proj(self.norm(F.scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v, bias)))
        q, k = l2_normalize(q), l2_normalize(k)
        beta = self.beta(x)[..., 0].sigmoid() if hasattr(self, "beta") else torch.ones(asks.shape)
        if "silent" in self.rule:
            beta = beta.masked_fill(asks, 0)
        if hasattr(self, "decay"):
            log_decay = self.log_decay(x)
        if self.rule == "linear decay":
            c = log_decay[..., None].cumsum(1)
            out = ((q @ k.mT) * (c - c.mT).tril().exp().tril()) @ (beta[..., None] * v)
        elif self.rule.startswith("linear"):
            out, _ = linear_attention(q, k, beta[..., None] * v)
        elif self.rule.startswith("delta"):
            out, _ = chunk_delta_rule(q, k, v, beta)
        else:
            out, _ = chunk_gated_delta_rule(q, k, v, beta, log_decay)
        return self.o_proj(self.norm(out))

    def log_decay(self, x: Tensor) -> Tensor:
        """(batch, seq): log α of each token; "fixed" sees none of x."""
        return -F.softplus(self.decay(torch.zeros_like(x) if "fixed" in self.rule else x)[..., 0])


class Model(nn.Module):
    def __init__(self, rule: str, keys: int = KEYS):
        super().__init__()
        self.keys, self.values, self.layer = Embedding(keys, D_MODEL), Embedding(VALUES + 1, D_MODEL), Layer(rule)
        self.norm1, self.norm2 = RMSNorm(D_MODEL), RMSNorm(D_MODEL)
        self.unembedding = Unembedding(D_MODEL, VALUES)

    def forward(self, keys: Tensor, values: Tensor, asking: int) -> Tensor:
        """Logits of the values, for the last tokens: those that ask."""
        x = self.keys(keys) + self.values(values)
        x = x + self.layer(self.norm1(x), values == NOTHING)
        return self.unembedding(self.norm2(x[:, -asking:]))


def train(rule: str, rate: float, seed: int, steps: int = STEPS, task: Callable = draw
          ) -> tuple[Model, list[float], list[float]]:
    """A trained model, its losses, and the share that is right at the most pairs, six times on the way.

    steps: after how many of STEPS to stop; task: one of the draws."""
    torch.manual_seed(seed)
    model = use_torch_kernels(Model(rule, SEPARATOR + 1 if task is draw_boundary else KEYS))
    rng, losses, right = torch.Generator().manual_seed(seed), [], []
    adam = torch.optim.AdamW(model.parameters(), rate, weight_decay=0, fused=True)
    for step in range(steps):
        for group in adam.param_groups:
            group["lr"] = learning_rate(step, 30, STEPS, rate, rate / 20)
        keys, said, values, _ = task(BATCH, PAIRS[torch.randint(len(PAIRS), (), generator=rng)], rng)
        loss = F.cross_entropy(model(keys, said, values.shape[1]).flatten(0, 1), values.flatten())
        adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        losses.append(loss.item())
        if (step + 1) % (STEPS // 6) == 0:
            once, again = shares(model, PAIRS[-1], seed, task)
            right.append((once + again) / 2)
    return model, losses, right


@torch.no_grad()
def shares(model: Model, pairs: int, seed: int, task: Callable = draw) -> tuple[float, float]:
    """The shares that are right on sequences of their own: of keys told once, and of keys told again."""
    keys, said, values, is_new = task(64, pairs, torch.Generator().manual_seed(1000 + seed))
    right = model(keys, said, values.shape[1]).argmax(-1) == values
    return right[~is_new].float().mean().item(), right[is_new].float().mean().item()


@torch.no_grad()
def alphas(model: Model, seed: int) -> tuple[float, float]:
    """The mean α of the token that separates and of all others, with the most pairs; 1 for a rule that has none."""
    keys, said, _, _ = draw_boundary(64, PAIRS[-1], torch.Generator().manual_seed(1000 + seed))
    x = model.norm1(model.keys(keys) + model.values(said))
    alpha = model.layer.log_decay(x).exp() if hasattr(model.layer, "decay") else torch.ones(keys.shape)
    separates = keys == SEPARATOR
    return alpha[separates].mean().item(), alpha[~separates].mean().item()


def measure(rule: str, rate: float, seed: int, task: Callable = draw) -> list[str]:
    """One row of a table."""
    model, losses, right = train(rule, rate, seed, task=task)
    once, again = zip(*(shares(model, pairs, seed, task) for pairs in PAIRS), strict=True)

    def said(numbers) -> str:
        return " ".join(f"{number:.3f}" for number in numbers)

    row = [rule, str(rate), str(seed), f"{1 - right[-1]:.4f}", said(once), said(again), said(right),
           said(losses[:40:10])]
    if task is draw_boundary:
        row.append(said(alphas(model, seed)))
    return row


def run(file: Path, rules: tuple[str, ...] = RULES, task: Callable = draw) -> None:
    """One table: the best rate of each rule, then five seeds at it."""
    columns = BOUNDARY_COLUMNS if task is draw_boundary else COLUMNS

    def measured(*setting) -> list[str]:
        return measure(*setting, task)

    def wrong(rule: str, rate: float, seeds: range) -> float:
        return table.mean_loss(file, columns, rule, rate, seeds, measured, 3)

    best = {rule: table.downhill(RATES, 0.01, lambda rate, rule=rule: wrong(rule, rate, TUNED_ON)) for rule in rules}
    table.resume(file, columns, [(rule, best[rule], seed) for seed in SEEDS for rule in rules],
                 lambda *setting: [measured(*setting)])


def main() -> None:
    torch.set_num_threads(1)
    run(TABLE)
    run(START_TABLE, STARTS)
    run(BOUNDARY_TABLE, BOUNDARY, draw_boundary)


if __name__ == "__main__":
    main()
