"""Speculative decoding: several tokens for one reading of the weights.

A cheap draft guesses k tokens. The model, here the target, looks at all of them in one forward pass, which costs
hardly more than a pass over one token where reading the weights decides. It keeps those that agree with its own
distribution, and adds one of its own. What comes out is distributed exactly as what the target alone would say.
Leviathan et al., 2023 (arXiv 2211.17192); Chen et al., 2023 (arXiv 2302.01318).
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from given.sizes import at_least_one, widen

from .ex05_softmax import softmax
from .ex13_transformer import ModelConfig, Transformer, make_caches
from .ex15_generation import Sampling, apply_temperature, inverse_cdf, repetition_penalty, sample

# What drafts: (text so far, how many tokens at most) → (those tokens, the probabilities that each was drawn from).
# None for the probabilities says that nothing was drawn: each token had a probability of 1.
Draft = Callable[[list[int], int], tuple[list[int], Tensor | None]]

# A small model that drafts for the pocket model: its vocabulary, and one narrow layer.
POCKET_DRAFT = ModelConfig(
    vocab_size=4096, d_model=128, layers=1, heads=4, kv_heads=2, d_ff=256, max_seq_len=512,
    tie_embeddings=True)

NOTHING = -1    # fills up the ids of accept after the last token


def must_be_probabilities(**given: Tensor) -> None:
    """Given: raise ValueError naming the argument whose rows are not numbers from 0 on that add up to 1."""
    for name, x in given.items():
        off = (widen(x).sum(-1) - 1).abs()
        if not ((x >= 0).all() and (off < 0.01).all()):
            raise ValueError(f"{name} must hold probabilities, rows from 0 on that add up to 1, got {x}")


# -- one token of the draft

def acceptance_rate(
    target_probs: Float[Tensor, "*batch vocab"], draft_probs: Float[Tensor, "*batch vocab"]
) -> Float[Tensor, "*batch"]:
    """The chance α that a token drawn from draft_probs is accepted: Σ min(p, q) over the vocabulary.

    p: target_probs, q: draft_probs. 1 where they are equal, 0 where they have no token in common. In at least float32.

    Raises ValueError naming the argument whose rows are no probabilities. Leviathan et al., theorem 3.5.
    """
    raise NotImplementedError


def residual(
    target_probs: Float[Tensor, "*batch vocab"], draft_probs: Float[Tensor, "*batch vocab"]
) -> Float[Tensor, "*batch vocab"]:
    """What to draw from where a draft was rejected: max(0, p − q), divided by its sum over the vocabulary.

    p: target_probs, q: draft_probs. It holds what the draft says too rarely. A row where nothing is left, since p and q
    are equal, gives p: there a rejection can only come from rounding. In at least float32.

    Raises ValueError naming the argument whose rows are no probabilities.
    """
    raise NotImplementedError


def accept(
    draft_ids: Int[Tensor, "*batch k"],
    draft_probs: Float[Tensor, "*batch k vocab"],
    target_probs: Float[Tensor, "*batch places vocab"],
    rng: torch.Generator | None = None,
) -> tuple[Int[Tensor, "*batch k+1"], Int[Tensor, "*batch"]]:
    """Keep the drafted tokens up to the first that is rejected, and add one token of the target's own.

    draft_ids: k drafted tokens, maybe none. draft_probs: what each was drawn from, q. target_probs: what the target
    says in each of these k places and in the one after them, p, so k + 1 rows. Drafted token i is accepted where

        u[i] · q[i, draft] < p[i, draft],

    that is with probability min(1, p / q). The own token is drawn from the residual in the place of the first
    rejection; where there is none, from the last row of target_probs: the bonus token. Either by inverse_cdf with u[k].

    u: torch.rand((*batch, k + 1), generator=rng, dtype=torch.float64) on rng's device; without an rng, torch's own
    generator on the CPU; then moved to where the probabilities are. All of them are drawn, whatever is rejected.
    Everything is computed in float64.

    Returns (ids, count). count: how many drafted tokens were accepted, 0 … k. ids: these, the own token, and −1 after
    it, k + 1 in all. Both int64.

    Raises ValueError naming draft_ids where one is not in 0 … vocab − 1, target_probs where it has not k + 1 rows, and
    the argument whose rows are no probabilities; nothing is drawn then.

    To be written here: torch's multinomial, Categorical and gumbel_softmax are not used.
    """
    raise NotImplementedError


# -- what it is worth

def expected_tokens(rate: float, k: int) -> float:
    """How many tokens a forward pass of the target yields: 1 + α + α² + … + αᵏ = (1 − αᵏ⁺¹) / (1 − α).

    rate: the probability α that a drafted token is accepted, taken to be the same in every place, whatever became of
    those before. The i-th counts only where all before it were accepted; the 1 is the target's own token. For α = 1 it
    is k + 1.

    Raises ValueError naming rate where it is not in [0, 1], k where it is below 0. Leviathan et al., equation 1.
    """
    raise NotImplementedError


def speedup(rate: float, k: int, cost: float) -> float:
    """How many times as fast as without drafts: expected_tokens(rate, k) / (1 + k · cost).

    cost: the time c in which one token is drafted, in forward passes of the target; 0 for a draft that costs nothing. A
    pass over k + 1 tokens is taken to last as long as one over a single token. Below 1, drafting is a loss.

    Raises ValueError naming cost where it is below 0, and what expected_tokens raises. Leviathan et al., theorem 3.8.
    """
    raise NotImplementedError


# -- drafts

def prompt_lookup(ids: list[int], n: int, k: int) -> list[int]:
    """A draft without a model: what stood after the last tokens when they occurred before.

    The last n tokens are searched for in what stands before them; where they did not occur, the last n − 1, and so on
    down to the last one. Of several occurrences the latest counts; it may overlap with the last tokens, but is not they
    themselves. Returns the k tokens after it, fewer where the text ends; none where nothing was found.

    Raises ValueError naming n or k where it is below 1. Saxena, 2023 (github.com/apoorvumang/prompt-lookup-decoding).
    """
    raise NotImplementedError


def lookup_draft(n: int = 3) -> Draft:
    """Given: prompt_lookup as a draft for speculative_generate. It draws nothing, so it has no probabilities.

    Where the text ends before k tokens were found, it is asked again for the text with those it found: what repeats
    itself goes on doing so.
    """
    def draft(ids: list[int], k: int) -> tuple[list[int], None]:
        """What stood after these tokens, and then after that, until there are k or nothing is found."""
        found, more = [], True
        while more and len(found) < k:
            more = prompt_lookup(ids + found, n, k - len(found))
            found += more
        return found, None
    return draft


def sampling_probs(
    logits: Float[Tensor, "rows vocab"], ids: list[list[int]], sampling: Sampling
) -> Float[Tensor, "rows vocab"]:
    """The probabilities with which sampling.choose chooses each token: what is accepted is measured by these.

    ids: the text so far of each row. The repetition penalty; then, for a temperature of 0, a probability of 1 for the
    largest logit (the lowest id of equals); otherwise the temperature, sampling.filters() in their order, and a
    softmax. Logits are widened first, as choose has them, and made float64 just before the softmax; what is returned is
    float64, for a temperature of 0, too.

    Raises ValueError naming ids where they are not one list per row.
    """
    raise NotImplementedError


class Reader:
    """A model and what it has read: it computes only what is new of a text, and forgets what is no longer in it.

    Its attributes are model; caches: one per layer, such as make_caches(model.config, 1, capacity); and seen: a list of
    the ids whose keys and values they hold, at first none.

    Raises ValueError naming caches where one cannot rewind: a RollingKVCache has written over what it would go back to,
    and a state of fixed size has added it up.
    """

    def __init__(self, model: Transformer, caches: list):
        raise NotImplementedError

    def __call__(self, ids: list[int], last: int) -> Float[Tensor, "last vocab"]:
        """The logits after each of the last tokens of ids, which is a whole text: (last, vocab).

        One forward pass, over as few tokens as possible. What seen and ids have in common from the start on is kept;
        but the last tokens, whose logits are asked for, are read again in any case. The caches are rewound to what is
        kept, the model is given the rest of ids, on the device of its parameters, and seen becomes a copy of ids. No
        gradients. Where the model refuses its tokens, seen is what the caches still hold: what was kept.

        Raises ValueError naming last where it is not in 1 … len(ids); nothing is rewound then.
        """
        raise NotImplementedError


def draft_tokens(
    ids: list[int], k: int, reader: Reader, sampling: Sampling, rng: torch.Generator | None = None
) -> tuple[list[int], Float[Tensor, "k vocab"]]:
    """A model as a draft: k tokens after ids, one after the other, and the probabilities each was drawn from.

    Each is drawn from sampling_probs by sample, of the logarithms, with one number from rng. The text that the next one
    follows, and that is penalized, is ids and the tokens drafted so far.

    Raises ValueError naming k where it is below 1.

    To be written here: torch's multinomial, Categorical and gumbel_softmax are not used.
    """
    raise NotImplementedError


# -- the loop

def speculative_step(
    ids: list[int], k: int, reader: Reader, draft: Draft, sampling: Sampling, rng: torch.Generator | None = None
) -> tuple[list[int], int, int]:
    """One forward pass of the target: (the new tokens, how many were drafted, how many of these were accepted).

    draft(ids, k) gives at most k tokens and their probabilities, or None for a probability of 1 each; for k = 0 it is
    not asked. reader, the target's, reads ids and the drafted tokens at once. Every place gets its sampling_probs, for
    the text in front of it, drafted tokens included. accept does the rest. New are the accepted tokens and one more.

    Raises ValueError naming draft where it gives more than k tokens.

    To be written here: torch's multinomial, Categorical and gumbel_softmax are not used.
    """
    raise NotImplementedError


class Statistics(NamedTuple):
    """What speculative_generate has done, all rows together.

    passes: forward passes of the target. drafted: tokens that were drafted. judged: those of them that were looked at,
    the accepted ones and the first rejected one of each pass. accepted: without the target's own tokens, and counting
    those after a stop token. So, if all places are alike, accepted / judged estimates acceptance_rate, and
    1 + accepted / passes expected_tokens.
    """

    passes: int
    drafted: int
    judged: int
    accepted: int


def models_must_fit(target: Transformer, draft: Transformer | Draft, ids: list[list[int]], max_new_tokens: int) -> None:
    """Given: raise ValueError where there is nothing to go on from, or a model has no room or another vocabulary."""
    if not ids or not all(ids):
        raise ValueError(f"ids must hold a prompt of at least one token per row, got {ids}")
    if max_new_tokens < 0:
        raise ValueError(f"max_new_tokens must be at least 0, got {max_new_tokens}")
    for name, model in {"target": target, "draft": draft}.items():
        if not isinstance(model, nn.Module):
            continue
        room = model.config.max_seq_len - max(map(len, ids))
        if max_new_tokens > room:
            raise ValueError(f"max_new_tokens must be at most {room}, what the longest prompt leaves of the {name}'s "
                             f"max_seq_len = {model.config.max_seq_len}, got {max_new_tokens}")
        if model.config.vocab_size != target.config.vocab_size:
            raise ValueError(f"draft must have target's vocabulary of {target.config.vocab_size} tokens, "
                             f"got {model.config.vocab_size}")


@contextmanager
def evaluating(*models: nn.Module) -> Iterator[None]:
    """Given: the models in eval mode; afterwards each of their modules is in the mode that it was in."""
    training = [module for model in models for module in model.modules() if module.training]
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def new_reader(model: Transformer, capacity: int) -> Reader:
    """Given: a Reader of one text of at most capacity tokens, in the dtype and on the device of the parameters."""
    weight = next(model.parameters())
    return Reader(model, make_caches(model.config, 1, capacity, weight.dtype, weight.device))


def speculative_generate(
    target: Transformer,
    draft: Transformer | Draft,
    ids: list[list[int]],
    max_new_tokens: int,
    stop: Iterable[int] = (),
    rng: torch.Generator | None = None,
    k: int = 4,
    **sampling: float | None,
) -> tuple[list[list[int]], Statistics]:
    """Continue prompts as target's generate does, drafting up to k tokens at a time: (new ids, Statistics).

    draft: a model (an nn.Module) with target's vocabulary, given the same sampling settings, or any Draft. Drawn text
    has the distribution of generate's, not the same tokens; with temperature 0 the tokens are the same (but where two
    logits are so nearly equal that rounding decides, which is another for one token than for several).

    The prompts are continued one after the other: after a pass, each row of a batch would stand somewhere else, and a
    cache has one length. Each has Readers of its own, with room for the prompt and max_new_tokens. A pass drafts at
    most k tokens, and never more than max_new_tokens leave room for: one place is the target's own token's. A row ends
    before the first id out of stop, wherever in the new tokens that is; stop may be an iterator.

    In each pass the draft model draws its numbers from rng, one per token, and then accept does. With temperature 0
    nothing is left to chance, and rng is left alone: what draft model and accept draw all the same is from a generator
    of its own. Models are in eval mode meanwhile, and then as they were.

    Raises ValueError naming k where it is below 1, the fields of Sampling, what models_must_fit refuses, and caches
    where one of a model's cannot rewind (it has windows); nothing is computed then.

    To be written here: torch's multinomial, Categorical and gumbel_softmax are not used.
    """
    raise NotImplementedError
