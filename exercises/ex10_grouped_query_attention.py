"""Grouped-query attention: many heads ask, a few heads are asked.

Query head h reads key/value head ⌊h / groups⌋, where groups = heads / kv_heads. With kv_heads =
heads this is multi-head attention, with kv_heads = 1 multi-query attention.
"""

import torch
from einops import rearrange, repeat
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from given.sizes import at_least_one, mask_must_fit

from .ex00_shapes import merge_heads, split_heads
from .ex03_linear import Linear
from .ex04_normalization import RMSNorm
from .ex09_attention import causal_mask, scaled_dot_product_attention


def repeat_kv(
    x: Float[Tensor, "*batch kv_heads seq head_dim"], groups: int
) -> Float[Tensor, "*batch heads seq head_dim"]:
    """Every head of x `groups` times in a row: heads a, b become a, a, b, b for groups = 2.

    The plain way to grouped attention: it makes as many keys and values as there are queries.

    Raises ValueError naming groups where it is below 1.
    """
    raise NotImplementedError


def grouped_attention(
    q: Float[Tensor, "*batch heads q head_dim"],
    k: Float[Tensor, "*batch kv_heads k head_dim"],
    v: Float[Tensor, "*batch kv_heads k value_dim"],
    mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "*batch heads q value_dim"]:
    """softmax(q kᵀ / √head_dim) v, where heads / kv_heads query heads in a row share k and v.

    The query heads of one group are stacked as further rows above one another, so that a single
    matrix product per key/value head serves them all, and no key or value is copied.

    mask: True = may look, broadcastable to (batch, heads, q, k). A query that may look nowhere
    gives zeros. Computed in at least float32, returned in the dtype of q.

    Raises ValueError naming kv_heads where it does not divide heads, and naming mask where that
    does not fit. Ainslie et al., 2023 (arXiv 2305.13245).

    To be written here: torch's scaled_dot_product_attention and MultiheadAttention are not used.
    """
    raise NotImplementedError


def sliding_window_mask(
    q_len: int, k_len: int, window: int, device: torch.device | str | None = None
) -> Bool[Tensor, "q k"]:
    """A causal mask whose queries see `window` keys at most: the token itself and those before it.

    True = may look. The queries are the last of the keys: query i stands at position
    k_len − q_len + i. Beltagy et al., 2020 (arXiv 2004.05150).

    Raises ValueError naming window where it is below 1, and k_len where there are fewer keys than
    queries.
    """
    raise NotImplementedError


class GroupedQueryAttention(nn.Module):
    """Self-attention as today's decoders have it: heads of queries, kv_heads of keys and values.

    q_proj: Linear, d_model to heads · head_dim. k_proj, v_proj: to kv_heads · head_dim, all three
    with biases where qkv_bias. o_proj: heads · head_dim to d_model, with a bias where o_bias.
    head_dim: d_model / heads where it is left out; heads then must divide d_model.
    qk_norm: q_norm and k_norm, RMSNorm(head_dim, norm_eps) on every head of q and k, before RoPE.
    rope: a RoPE for head_dim, which turns q and k.
    window: how many keys a query sees, itself among them; None is all.

    Raises ValueError, naming the argument, where a size is below 1, kv_heads does not divide
    heads, heads does not divide d_model though head_dim is left out, rope is for another head_dim,
    or there is a window without causal (naming window).

    To be written here: torch's scaled_dot_product_attention and MultiheadAttention are not used.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        kv_heads: int,
        head_dim: int | None = None,
        qk_norm: bool = False,
        norm_eps: float = 1e-6,
        qkv_bias: bool = False,
        o_bias: bool = False,
        rope: nn.Module | None = None,
        window: int | None = None,
        causal: bool = True,
    ):
        super().__init__()
        raise NotImplementedError

    def project(
        self,
        x: Float[Tensor, "batch seq d_model"],
        positions: Int[Tensor, "batch seq"] | Int[Tensor, " seq"] | None = None,
    ) -> tuple[
        Float[Tensor, "batch heads seq head_dim"],
        Float[Tensor, "batch kv_heads seq head_dim"],
        Float[Tensor, "batch kv_heads seq head_dim"],
    ]:
        """x to (q, k, v): projected, split into heads; q and k normalized, then turned by RoPE.

        positions: where the tokens stand, for all rows or for each; 0 … seq − 1 where left out.
        """
        raise NotImplementedError

    def attend(
        self,
        q: Float[Tensor, "batch heads q head_dim"],
        k: Float[Tensor, "batch kv_heads k head_dim"],
        v: Float[Tensor, "batch kv_heads k head_dim"],
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch q d_model"]:
        """(q, k, v) to the output: attention, the heads side by side again, o_proj.

        The module's own mask, causal or a window, takes the queries for the last of the keys. A
        given mask is ANDed with it. Where that has more columns than there are keys, its last
        columns count (the keys may be the newest of more); a single column counts for all keys.

        Raises ValueError naming mask where it does not fit (batch, heads, q, k).
        """
        raise NotImplementedError

    def forward(
        self,
        x: Float[Tensor, "batch seq d_model"],
        mask: Bool[Tensor, "..."] | None = None,
        positions: Int[Tensor, "batch seq"] | Int[Tensor, " seq"] | None = None,
    ) -> Float[Tensor, "batch seq d_model"]:
        """project, then attend.

        Raises ValueError naming mask where it does not fit, and where x does not end in d_model
        features.
        """
        raise NotImplementedError
