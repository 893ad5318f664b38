"""Generation: choosing the next token, again and again.

A model gives one logit per token of its vocabulary. Filters take tokens out, a temperature sharpens
or flattens what is left, and one random number picks. The token joins the text; the model is asked
again. Filters return new logits and leave those that they are given as they are.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from given.sizes import at_least_one, widen

from .ex05_softmax import softmax
from .ex13_transformer import ModelConfig, Transformer, make_caches


def apply_temperature(
    logits: Float[Tensor, "*batch vocab"], temperature: float
) -> Float[Tensor, "*batch vocab"]:
    """logits / temperature: below 1 the likely tokens gain, above 1 the unlikely ones.

    Raises ValueError naming temperature where it is not above 0.
    """
    raise NotImplementedError


def top_k(logits: Float[Tensor, "*batch vocab"], k: int) -> Float[Tensor, "*batch vocab"]:
    """Keep exactly the k largest logits of each row; the others become −inf.

    Of equal logits the lowest ids are kept. A k above vocab keeps all.

    Raises ValueError where k is below 1. Fan et al., 2018 (arXiv 1805.04833).
    """
    raise NotImplementedError


def top_p(logits: Float[Tensor, "*batch vocab"], p: float) -> Float[Tensor, "*batch vocab"]:
    """Keep the fewest most likely tokens that together have a probability of p; the rest: −inf.

    That is, a token stays if all that come before it, most likely first and of equals the lowest
    id first, have less than p together: the token that crosses p stays, and so does at least one.
    p = 1 keeps everything. Probabilities in at least float32.

    Raises ValueError where p is not in (0, 1]. Holtzman et al., 2019 (arXiv 1904.09751).
    """
    raise NotImplementedError


def min_p(logits: Float[Tensor, "*batch vocab"], p: float) -> Float[Tensor, "*batch vocab"]:
    """Keep the tokens at least p times as likely as the likeliest of their row; the rest: −inf.

    p = 0 keeps everything, p = 1 the likeliest and its equals. Probabilities in at least float32.

    Raises ValueError where p is not in [0, 1]. Nguyen et al., 2024 (arXiv 2407.01082).
    """
    raise NotImplementedError


def repetition_penalty(
    logits: Float[Tensor, "batch vocab"], ids: list[list[int]], penalty: float
) -> Float[Tensor, "batch vocab"]:
    """Make tokens of ids[row] less likely in row: positive logits / penalty, negative · penalty.

    Each of them once, however often it occurs. penalty = 1 changes nothing, one below 1 invites
    repetition. ids has a list for each row; it may be empty.

    Raises ValueError where penalty is not above 0, and one naming ids where they are not one list
    per row. Keskar et al., 2019 (arXiv 1909.05858).
    """
    raise NotImplementedError


def inverse_cdf(
    logits: Float[Tensor, "*batch vocab"], u: Float[Tensor, "*batch"]
) -> Int[Tensor, "*batch"]:
    """The token that u in [0, 1) points at, when each token takes its probability of [0, 1).

    The first id whose cumulative probability (of itself and all lower ids) is above u times the
    cumulative probability of all. In float64. A token of probability 0 is never chosen.

    Raises ValueError naming logits where a row leaves nothing to choose from: all −inf, a NaN, ∞.

    To be written here: torch's multinomial, Categorical and gumbel_softmax are not used.
    """
    raise NotImplementedError


def _uniform(
    *shape: int, rng: torch.Generator | None, device: torch.device
) -> Float[Tensor, "..."]:
    """Given: float64 numbers in [0, 1) of this shape, drawn where rng is, moved to device.

    Without an rng, torch's own generator draws them on the CPU.
    """
    where = rng.device if rng else "cpu"
    return torch.rand(shape, generator=rng, dtype=torch.float64, device=where).to(device)


def sample(
    logits: Float[Tensor, "*batch vocab"], rng: torch.Generator | None = None
) -> Int[Tensor, "*batch"]:
    """One token per row, each drawn with its probability: inverse_cdf of one number per row.

    The numbers are torch.rand(batch shape, generator=rng, dtype=torch.float64), on rng's device;
    without an rng, torch's own generator on the CPU.

    To be written here: torch's multinomial, Categorical and gumbel_softmax are not used.
    """
    raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the next token is chosen. A filter that is None is not used. temperature 0 is greedy.

    Raises ValueError naming the field where the function of that name refuses its value.

    To be written here: torch's multinomial, Categorical and gumbel_softmax are not used.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0

    def __post_init__(self):
        """Given: try every setting on a vocabulary of one token, before any model has run."""
        one = torch.zeros(1, 1)
        uses = {
            "repetition_penalty": lambda: repetition_penalty(one, [[]], self.repetition_penalty),
            "temperature": lambda: (
                self.temperature == 0 or apply_temperature(one, self.temperature)),
            "top_k": lambda: self.top_k is None or top_k(one, self.top_k),
            "top_p": lambda: self.top_p is None or top_p(one, self.top_p),
            "min_p": lambda: self.min_p is None or min_p(one, self.min_p)}
        for field, use in uses.items():
            try:
                use()
            except ValueError as error:
                raise ValueError(f"{field}: {error}") from error

    def filters(self) -> list[tuple[Callable, float]]:
        """Given: the filters in use, in order, each with its limit."""
        filters = [(top_k, self.top_k), (top_p, self.top_p), (min_p, self.min_p)]
        return [(keep, limit) for keep, limit in filters if limit is not None]

    def choose(
        self, logits: Float[Tensor, "batch vocab"], ids: list[list[int]], u: Float[Tensor, " batch"]
    ) -> Int[Tensor, " batch"]:
        """The next token of each row, whose text so far is ids[row]. u: a number in [0, 1) per row.

        In at least float32: the repetition penalty; then, for a temperature of 0, the largest
        logit (the lowest id of equals); otherwise the temperature, the filters in their order,
        and inverse_cdf with u.
        """
        raise NotImplementedError


def left_pad(
    ids: list[list[int]], device: torch.device | str | None = None
) -> tuple[Int[Tensor, "batch seq"], Int[Tensor, "batch seq"], Bool[Tensor, "batch seq"]]:
    """Lists of unequal lengths as one tensor, with zeros in front of the shorter ones.

    Returns (tokens, positions, real). positions: 0, 1, 2 … from each row's first token on, and 0
    on its padding. real: True on tokens, False on padding.

    To be written here: torch's pad_sequence is not used.
    """
    raise NotImplementedError


def _prompts_must_fit(config: ModelConfig, ids: list[list[int]], max_new_tokens: int) -> None:
    """Given: raise ValueError where there is nothing to go on from, or no room to go on."""
    if not ids or not all(ids):
        raise ValueError(f"ids must hold a prompt of at least one token per row, got {ids}")
    if max_new_tokens < 0:
        raise ValueError(f"max_new_tokens must be at least 0, got {max_new_tokens}")
    room = config.max_seq_len - max(map(len, ids))
    if max_new_tokens > room:
        raise ValueError(f"max_new_tokens must be at most {room}, what the longest prompt leaves "
                         f"of max_seq_len = {config.max_seq_len}, got {max_new_tokens}")


def decode_steps(
    model: Transformer,
    ids: list[list[int]],
    max_new_tokens: int,
    sampling: Sampling,
    stop: Iterable[int] = (),
    rng: torch.Generator | None = None,
    use_cache: bool = True,
) -> Iterator[list[int | None]]:
    """The new tokens step by step: for each row its next id, or None once it has stopped.

    Each step is one forward pass. Ends after max_new_tokens of them, or before a step in which no
    row has anything to say. A row stops at the first id out of stop, which is not given out; stop
    is read once, so it may be an iterator. Prompts of unequal length are
    padded on the left, with a mask that hides the padding and positions for each row, so that no
    row sees its neighbours or its padding: each says what it would say alone.

    The random numbers are drawn at the start: torch.rand(rows, max_new_tokens, generator=rng,
    dtype=torch.float64) on rng's device, a row of them per prompt, whether it stops or not; none
    for a temperature of 0. So a batch draws what its prompts draw one after the other from the
    same CPU generator.

    With use_cache a step computes only what is new, with caches made for this call in the dtype
    and on the device of the parameters; without, the whole text each time. The model is in eval
    mode from the first step to the last; then each of its modules is in the mode that it was in,
    also after an error, or where nobody reads on. No gradients.

    Raises ValueError naming ids where there is no prompt or an empty one, and max_new_tokens where
    it is below 0 or, with the longest prompt, above the model's max_seq_len; nothing is computed.

    To be written here: torch's multinomial, Categorical, gumbel_softmax and pad_sequence are not
    used.
    """
    raise NotImplementedError


def generate(
    model: Transformer,
    ids: list[list[int]],
    max_new_tokens: int,
    stop: Iterable[int] = (),
    rng: torch.Generator | None = None,
    use_cache: bool = True,
    **sampling: float | None,
) -> list[list[int]]:
    """Continue prompts: for each list of ids, a list of at most max_new_tokens new ones.

    sampling: the fields of Sampling, such as temperature=0.8, top_k=40. The rest, and what is
    raised, as in decode_steps.

    To be written here: torch's multinomial, Categorical, gumbel_softmax and pad_sequence are not
    used.
    """
    raise NotImplementedError


def text_pieces(tokenizer: Any, ids: Iterable[int]) -> Iterator[str]:
    """The text of ids, piece by piece, as soon as it is certain; no piece is empty.

    tokenizer.decode gives U+FFFD for bytes that are no character, or none yet: such an end of the
    text is held back until the next tokens have made a character of it, or there are no more.
    Joined, the pieces are tokenizer.decode of all ids.
    """
    raise NotImplementedError


def stream(
    model: Transformer,
    tokenizer: Any,
    prompt: str,
    max_new_tokens: int,
    stop: Iterable[int] = (),
    rng: torch.Generator | None = None,
    use_cache: bool = True,
    **sampling: float | None,
) -> Iterator[str]:
    """Continue a text: the new text in pieces, each as soon as its tokens are chosen.

    tokenizer: anything with encode(text) -> ids and decode(ids) -> text, such as lesson 01's.
    The rest as in generate, whose text this is; what that raises comes with the first piece.
    """
    raise NotImplementedError
