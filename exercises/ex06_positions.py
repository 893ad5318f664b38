"""Positions: telling the model where.

Absolute positions are added to the token vectors: sinusoidal, learned. Relative ones are added
to the attention scores: a clipped bias, T5's buckets, ALiBi's slopes. What holds no parameter is
made on torch's default device.
"""

import math

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from given.init import STD
from given.sizes import at_least_one


def sinusoidal_encoding(
    seq_len: int, d_model: int, base: float = 10_000.0
) -> Float[Tensor, "{seq_len} {d_model}"]:
    """A row per position p = 0 … seq_len − 1, in float32, to be added to the token vectors.

    row[2i] = sin(p · base^(−2i / d_model)), row[2i + 1] = cos(p · base^(−2i / d_model)): sine on
    even features, cosine on odd. (Vaswani et al., 2017, arXiv 1706.03762)

    Raises ValueError where seq_len is below 1, d_model is odd or below 2, or base is not above 0;
    NaN is not.
    """
    raise NotImplementedError


class LearnedPositions(nn.Module):
    """A trained vector per position, to be added to the token vectors.

    weight: (max_seq_len, d_model), normal with σ = 0.02, truncated at ±3σ, as lesson 02's
    Embedding. (Gehring et al., 2017, arXiv 1705.03122; GPT-2)

    Raises ValueError where a size is below 1.

    To be written here: torch's Embedding is not used.
    """

    def __init__(self, max_seq_len: int, d_model: int):
        super().__init__()
        raise NotImplementedError

    def forward(self, positions: Int[Tensor, "*batch seq"]) -> Float[Tensor, "*batch seq d_model"]:
        """weight[positions]: the vector of each token's position, counted from 0.

        Positions are given, not counted here: a token that is decoded after 7 others is at
        position 7, and a left-padded row starts at 0 after its padding.

        Raises ValueError, naming positions and the value, where one is outside [0, max_seq_len).
        """
        raise NotImplementedError


def relative_distance(q_len: int, k_len: int) -> Int[Tensor, "{q_len} {k_len}"]:
    """How far each key is from each query: key position − query position, in int64.

    Negative is the past, 0 the token itself, positive the future. The keys are at 0 … k_len − 1
    and the queries are the last q_len of them, as while decoding with a cache.

    Raises ValueError where q_len is below 1 or above k_len.
    """
    raise NotImplementedError


class ClippedRelativeBias(nn.Module):
    """A trained number per head and distance, to be added to the attention scores.

    weight: (heads, 2 · max_distance + 1), zeros at the start. Column 0 is distance
    −max_distance, column max_distance is distance 0, the last is +max_distance. Farther tokens
    count as at ±max_distance. (Clipping: Shaw et al., 2018, arXiv 1803.02155, who learn a vector
    where this has a number; the number: Raffel et al., 2020, arXiv 1910.10683.)

    Raises ValueError where heads or max_distance is below 1.

    To be written here: torch's Embedding is not used.
    """

    def __init__(self, heads: int, max_distance: int):
        super().__init__()
        raise NotImplementedError

    def forward(self, q_len: int, k_len: int) -> Float[Tensor, "heads {q_len} {k_len}"]:
        """bias[h, q, k] = weight[h, clip(distance, ±max_distance) + max_distance].

        distance is relative_distance(q_len, k_len), and its ValueError is this one's too.
        """
        raise NotImplementedError


def t5_bucket(
    distance: Int[Tensor, "*shape"],
    num_buckets: int = 32,
    max_distance: int = 128,
    bidirectional: bool = True,
) -> Int[Tensor, "*shape"]:
    """The bucket, 0 … num_buckets − 1, of each distance (key − query), in int64.

    Bidirectional: the first half of the buckets (num_buckets // 2) is for the past and the token
    itself, the second for the future. Otherwise all are for the past, and the future counts as
    distance 0. Of the n buckets on a side, the first m = n // 2 hold one distance each: d < m is
    in bucket d. The others grow with the logarithm up to max_distance; beyond it all share the
    last one: min(m + ⌊log(d / m) / log(max_distance / m) · (n − m)⌋, n − 1).
    (Raffel et al., 2020, arXiv 1910.10683)

    Raises ValueError where num_buckets leaves m below 1, or max_distance is not above m.
    """
    raise NotImplementedError


def alibi_slopes(heads: int) -> Float[Tensor, "{heads}"]:
    """How steeply each head's bias falls with distance, in float32.

    For n heads, n a power of two: 2^(−8/n), 2^(−16/n), … 2^(−8). For other numbers, with n the
    largest power of two below: first the n slopes of n heads, then the 1st, 3rd, 5th, … slope of
    2n heads, until there are enough. (Press et al., 2022, arXiv 2108.12409, and their code)

    Raises ValueError where heads is below 1.
    """
    raise NotImplementedError


def alibi_bias(heads: int, q_len: int, k_len: int) -> Float[Tensor, "{heads} {q_len} {k_len}"]:
    """Attention with linear biases: −slope · distance for the past, 0 for the future.

    bias[h, q, k] = alibi_slopes(heads)[h] · min(relative_distance(q_len, k_len)[q, k], 0), in
    float32, to be added to the attention scores. A causal mask hides the future anyway.
    (Press et al., 2022, arXiv 2108.12409)

    Raises ValueError where heads is below 1, or q_len is below 1 or above k_len.
    """
    raise NotImplementedError
