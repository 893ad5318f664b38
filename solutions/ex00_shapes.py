"""Shapes: tensors, memory and named axes.

A tensor is one line of numbers and a rule for reading it. The rule is what goes wrong.
"""

import math
from collections.abc import Sequence

from einops import einsum, rearrange
from jaxtyping import Float, Shaped
from torch import Tensor


def row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """How many numbers apart in memory two neighbours along each axis lie.

    strides[i] = shape[i + 1] · shape[i + 2] · … · shape[-1], so the last stride is 1. Counted in
    numbers, as torch counts, not in bytes. (2, 3, 4) gives (12, 4, 1), and () gives ().

    Raises ValueError, naming shape, where a size is below 1.

    To be written here: torch's stride is not used.
    """
    # BEGIN SOLUTION
    if any(size < 1 for size in shape):
        raise ValueError(f"shape must have sizes of at least 1, got {tuple(shape)}")
    return tuple(math.prod(shape[axis + 1:]) for axis in range(len(shape)))
    # END SOLUTION


def split_heads(
    x: Shaped[Tensor, "*batch seq d_model"], heads: int
) -> Shaped[Tensor, "*batch heads seq head_dim"]:
    """Cut the features of every token into `heads` equal parts, and put the heads first.

    out[..., h, t, i] = x[..., t, h · head_dim + i] with head_dim = d_model / heads: head 0 gets
    the first head_dim features (Vaswani et al., 2017, section 3.2.2). A view: no number is copied.

    Raises ValueError, naming heads, where it is below 1 or does not divide d_model.
    """
    # BEGIN SOLUTION
    if heads < 1 or x.shape[-1] % heads:
        raise ValueError(f"heads must divide d_model = {x.shape[-1]}, got {heads}")
    return rearrange(x, "... seq (heads head_dim) -> ... heads seq head_dim", heads=heads)
    # END SOLUTION


def merge_heads(
    x: Shaped[Tensor, "*batch heads seq head_dim"],
) -> Shaped[Tensor, "*batch seq heads*head_dim"]:
    """The inverse of split_heads: the heads of every token side by side, head 0 first.

    out[..., t, h · head_dim + i] = x[..., h, t, i].
    """
    # BEGIN SOLUTION
    return rearrange(x, "... heads seq head_dim -> ... seq (heads head_dim)")
    # END SOLUTION


def pairwise_dot(
    q: Float[Tensor, "*batch q d"], k: Float[Tensor, "*batch k d"]
) -> Float[Tensor, "*batch q k"]:
    """The dot product of every row of q with every row of k.

    out[..., i, j] = Σ_d q[..., i, d] · k[..., j, d].
    """
    # BEGIN SOLUTION
    return einsum(q, k, "... q d, ... k d -> ... q k")
    # END SOLUTION
