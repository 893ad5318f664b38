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
    # BEGIN SOLUTION
    at_least_one(groups=groups)
    return repeat(x, "... kv_heads seq d -> ... (kv_heads groups) seq d", groups=groups)
    # END SOLUTION


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
    # BEGIN SOLUTION
    heads, kv_heads = q.shape[-3], k.shape[-3]
    if heads % kv_heads:
        raise ValueError(f"kv_heads must divide heads = {heads}, got {kv_heads}")
    stack = "... (kv_heads groups) q d -> ... kv_heads (groups q) d"
    if mask is not None:        # the same rows of it
        scores_shape = (*q.shape[:-1], k.shape[-2])
        mask_must_fit(mask, scores_shape)
        mask = rearrange(mask.expand(scores_shape), stack, kv_heads=kv_heads)
    out = scaled_dot_product_attention(rearrange(q, stack, kv_heads=kv_heads), k, v, mask)
    return rearrange(out, "... kv_heads (groups q) d -> ... (kv_heads groups) q d", q=q.shape[-2])
    # END SOLUTION


def sliding_window_mask(
    q_len: int, k_len: int, window: int, device: torch.device | str | None = None
) -> Bool[Tensor, "q k"]:
    """A causal mask whose queries see `window` keys at most: the token itself and those before it.

    True = may look. The queries are the last of the keys: query i stands at position
    k_len − q_len + i. Beltagy et al., 2020 (arXiv 2004.05150).

    Raises ValueError naming window where it is below 1, and k_len where there are fewer keys than
    queries.
    """
    # BEGIN SOLUTION
    at_least_one(window=window)
    if k_len < q_len:
        raise ValueError(f"k_len must be at least q_len = {q_len}, got {k_len}")
    keys = torch.arange(k_len, device=device)
    back = keys[k_len - q_len :, None] - keys       # how far each query must look back
    return (back >= 0) & (back < window)
    # END SOLUTION


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
        # BEGIN SOLUTION
        at_least_one(d_model=d_model, heads=heads)
        if kv_heads < 1 or heads % kv_heads:
            raise ValueError(f"kv_heads must divide heads = {heads}, got {kv_heads}")
        if head_dim is None:
            if d_model % heads:
                raise ValueError(f"heads must divide d_model = {d_model}, got {heads}")
            head_dim = d_model // heads
        at_least_one(head_dim=head_dim)
        if rope is not None and rope.head_dim != head_dim:
            raise ValueError(f"rope must be for head_dim = {head_dim}, got {rope.head_dim}")
        if window is not None and (window < 1 or not causal):
            raise ValueError(f"window must be at least 1 and needs causal=True, "
                             f"got {window} with causal={causal}")
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.window, self.causal = window, causal
        self.q_proj = Linear(d_model, heads * head_dim, bias=qkv_bias)
        self.k_proj = Linear(d_model, kv_heads * head_dim, bias=qkv_bias)
        self.v_proj = Linear(d_model, kv_heads * head_dim, bias=qkv_bias)
        self.o_proj = Linear(heads * head_dim, d_model, bias=o_bias)
        self.q_norm = RMSNorm(head_dim, norm_eps) if qk_norm else None
        self.k_norm = RMSNorm(head_dim, norm_eps) if qk_norm else None
        self.rope = rope
        # END SOLUTION

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
        # BEGIN SOLUTION
        q = split_heads(self.q_proj(x), self.heads)
        k = split_heads(self.k_proj(x), self.kv_heads)
        v = split_heads(self.v_proj(x), self.kv_heads)
        if self.q_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        if self.rope is not None:
            if positions is not None:
                positions = positions.unsqueeze(-2)         # the same for every head
            q, k = self.rope(q, positions), self.rope(k, positions)
        return q, k, v
        # END SOLUTION

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
        # BEGIN SOLUTION
        q_len, k_len = q.shape[-2], k.shape[-2]
        if mask is not None:
            mask = mask[..., -k_len:]
            mask_must_fit(mask, (*q.shape[:-1], k_len))
        if self.causal:
            own = (causal_mask(q_len, k_len, q.device) if self.window is None
                   else sliding_window_mask(q_len, k_len, self.window, q.device))
            mask = own if mask is None else own & mask
        return self.o_proj(merge_heads(grouped_attention(q, k, v, mask)))
        # END SOLUTION

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
        # BEGIN SOLUTION
        return self.attend(*self.project(x, positions), mask)
        # END SOLUTION
