"""RoPE: a position is an angle, and scores see only the distance.

Pair i of a head's features, at position m, is turned by the angle m θᵢ (Su et al., 2021,
arXiv 2104.09864). Only queries and keys are turned, never values.
"""

import math
from collections.abc import Callable

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from given.sizes import at_least_one, widen


def rope_frequencies(head_dim: int, base: float = 10_000.0) -> Float[Tensor, " half_dim"]:
    """The angle per position of each pair of features, in radians and in float32.

    θᵢ = base^(−2i / head_dim) for i = 0 … head_dim/2 − 1: from 1 down to nearly 1 / base.

    Raises ValueError where head_dim is odd or below 2, or base is not above 0.
    """
    raise NotImplementedError


class RoPE(nn.Module):
    """Rotary position embedding: turns each pair of features by position times frequency.

    layout: which features make pair i. "half" takes i and i + head_dim/2 (Hugging Face's
    checkpoints); "interleaved" takes 2i and 2i + 1 (the paper, Meta's checkpoints, GPT-J).
    frequencies: (head_dim/2,) in place of rope_frequencies(head_dim, base), for scaled ones.
    attention_scale: multiplies cos and sin, so that scores grow by its square (YaRN).

    Cosines and sines are tables for positions 0 … max_seq_len − 1, in float32 (float64 for
    frequencies in float64), on the device of the frequencies, kept as buffers that are not in the
    state dict. head_dim is kept as an attribute of that name: attention (lesson 09) reads it.

    Raises ValueError where head_dim is odd or below 2, max_seq_len is below 1, layout is neither
    of the two, or frequencies are not head_dim/2 numbers.
    """

    def __init__(
        self,
        head_dim: int,
        max_seq_len: int,
        base: float = 10_000.0,
        layout: str = "half",
        frequencies: Float[Tensor, " half_dim"] | None = None,
        attention_scale: float = 1.0,
    ):
        super().__init__()
        raise NotImplementedError

    def forward(
        self,
        x: Float[Tensor, "*batch seq head_dim"],
        positions: Int[Tensor, "*#batch seq"] | None = None,
    ) -> Float[Tensor, "*batch seq head_dim"]:
        """Turn the pair (a, b) at position m into (a cos mθ − b sin mθ, a sin mθ + b cos mθ).

        positions: where each row of x stands, 0 … seq − 1 where it is left out; its batch axes
        broadcast against those of x. Computed in the wider dtype of x and the tables, returned in
        x's.

        Raises ValueError naming x where it does not have head_dim features, and naming positions
        where one, given or left out, is not in 0 … max_seq_len − 1.
        """
        raise NotImplementedError

    def _apply(self, fn: Callable, recurse: bool = True):
        """Given: .to(device) moves the buffers; .half() and other casts leave them as they are."""
        tables = dict(self.named_buffers(recurse=False))
        super()._apply(fn, recurse)
        for name, table in tables.items():
            setattr(self, name, table.to(getattr(self, name).device))
        return self


def interleaved_to_half(
    weight: Float[Tensor, "d_out *d_in"], heads: int
) -> Float[Tensor, "d_out *d_in"]:
    """Reorder a query or key projection from Meta's order of rows to Hugging Face's.

    weight: (heads · head_dim, d_in), or a bias of heads · head_dim. Within each head, row 2i goes
    to i and row 2i + 1 to i + head_dim/2. RoPE's "half" on the result then gives the scores that
    "interleaved" gave before.

    Raises ValueError naming heads where it is below 1 or the rows are not heads times an even
    number.
    """
    raise NotImplementedError


def llama3_frequencies(
    frequencies: Float[Tensor, " half_dim"],
    factor: float,
    low: float,
    high: float,
    original_max: int,
) -> Float[Tensor, " half_dim"]:
    """Llama 3.1's frequencies for a context that is `factor` times longer than in training.

    A pair makes r = original_max · θ / 2π turns within the trained length. At `high` turns or
    more θ stays; at `low` or fewer it becomes θ / factor; between, with s = (r − low) / (high −
    low), it is s θ + (1 − s) θ / factor. (Llama 3.1: factor 8, low 1, high 4, original_max 8192.)

    Raises ValueError where factor is below 1, high is not above low, or original_max is below 1.
    """
    raise NotImplementedError


def yarn_frequencies(
    head_dim: int,
    factor: float,
    original_max: int,
    base: float = 10_000.0,
    beta_fast: float = 32,
    beta_slow: float = 1,
) -> tuple[Float[Tensor, " half_dim"], float]:
    """YaRN's frequencies for a context `factor` times longer, and its attention scale.

    The pair that makes r turns within original_max has the index i(r) = head_dim · ln(original_max
    / 2πr) / (2 ln base). Pairs up to start = max(⌊i(beta_fast)⌋, 0) keep θ; from end =
    min(⌈i(beta_slow)⌉, head_dim − 1) on they get θ / factor; between, θ is blended in a straight
    line over the index (where end is not above start, take end = start + 0.001).
    The attention scale is 0.1 ln(factor) + 1. Peng et al., 2023 (arXiv 2309.00071).

    Returns (frequencies, attention_scale), both for RoPE. Raises ValueError where factor is below
    1, original_max is below 1, base is not above 1, beta_slow is not above 0, or beta_fast is not
    above beta_slow.
    """
    raise NotImplementedError
