"""Attention: tokens looking at tokens.

softmax(q kᵀ / √head_dim) v: every query scores all keys, and takes the mean of the values that
these scores weigh (Vaswani et al., 2017, arXiv 1706.03762).
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from given.sizes import at_least_one, mask_must_fit, widen

from .ex00_shapes import merge_heads, split_heads
from .ex03_linear import Linear
from .ex05_softmax import softmax
from .ex08_feedforward import Dropout


def causal_mask(
    q_len: int, k_len: int | None = None, device: torch.device | str | None = None
) -> Bool[Tensor, "q k"]:
    """True where a query may look: at its own position and those before it.

    The queries are the last of the keys: query i stands at position k_len − q_len + i. Without
    k_len there are as many keys as queries.

    Raises ValueError where there are fewer keys than queries (naming k_len).
    """
    # BEGIN SOLUTION
    if k_len is None:
        k_len = q_len
    if k_len < q_len:
        raise ValueError(f"k_len must be at least q_len = {q_len}, got {k_len}")
    return torch.ones(q_len, k_len, dtype=torch.bool, device=device).tril(k_len - q_len)
    # END SOLUTION


def attention_weights(
    q: Float[Tensor, "*batch q head_dim"],
    k: Float[Tensor, "*batch k head_dim"],
    mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "*batch q k"]:
    """How much each query takes from each key: softmax(q kᵀ / √head_dim), over the keys.

    Heads are one of the batch axes. mask: True = may look; broadcastable to (*batch, q, k). A key
    that is hidden scores −∞ and weighs 0. A query that may look nowhere weighs every key 0.

    Computed in at least float32, returned in the dtype of q. Raises ValueError (naming mask) where
    the mask does not fit.

    To be written here: torch's scaled_dot_product_attention and MultiheadAttention are not used.
    """
    # BEGIN SOLUTION
    wide = widen(q)
    scores = wide @ k.to(wide.dtype).mT / q.shape[-1] ** 0.5
    if mask is not None:
        mask_must_fit(mask, scores.shape)
        scores = scores.masked_fill(~mask, -torch.inf)
    return softmax(scores).to(q.dtype)
    # END SOLUTION


def scaled_dot_product_attention(
    q: Float[Tensor, "*batch q head_dim"],
    k: Float[Tensor, "*batch k head_dim"],
    v: Float[Tensor, "*batch k value_dim"],
    mask: Bool[Tensor, "..."] | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "*batch q value_dim"]:
    """Each query's mean of the values, weighed by attention_weights(q, k, mask).

    dropout: with this probability a weight becomes 0, or else it is divided by 1 − dropout. A
    query that may look nowhere gives zeros, and sends back a gradient of zero.

    Computed in at least float32, returned in the dtype of q. Raises ValueError where the mask does
    not fit (naming mask) or dropout is not in [0, 1).

    To be written here: torch's scaled_dot_product_attention and MultiheadAttention are not used.
    """
    # BEGIN SOLUTION
    weights = attention_weights(widen(q), k, mask)
    weights = Dropout(dropout)(weights)         # a new module is in training mode: it drops
    return (weights @ v.to(weights.dtype)).to(q.dtype)
    # END SOLUTION


class MultiHeadAttention(nn.Module):
    """Several attentions side by side, each on features of its own: self- or cross-attention.

    q_proj, k_proj, v_proj, o_proj: Linear, d_model to d_model, with biases where bias. Each head
    has head_dim = d_model / heads features.
    rope: a RoPE for head_dim, which turns queries and keys, never values.
    dropout: of the weights, while training.
    causal: every query sees itself and what came before it.

    Raises ValueError, naming the argument, where d_model is below 1, heads does not divide it,
    rope is for another head_dim, or dropout is not in [0, 1).

    To be written here: torch's scaled_dot_product_attention and MultiheadAttention are not used.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        bias: bool = False,
        rope: nn.Module | None = None,
        dropout: float = 0.0,
        causal: bool = False,
    ):
        super().__init__()
        # BEGIN SOLUTION
        at_least_one(d_model=d_model)
        if heads < 1 or d_model % heads:
            raise ValueError(f"heads must divide d_model = {d_model}, got {heads}")
        if rope is not None and rope.head_dim != d_model // heads:
            raise ValueError(f"rope must be for head_dim = {d_model // heads}, got {rope.head_dim}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {dropout}")
        self.heads, self.rope, self.dropout, self.causal = heads, rope, dropout, causal
        self.q_proj = Linear(d_model, d_model, bias=bias)
        self.k_proj = Linear(d_model, d_model, bias=bias)
        self.v_proj = Linear(d_model, d_model, bias=bias)
        self.o_proj = Linear(d_model, d_model, bias=bias)
        # END SOLUTION

    def forward(
        self,
        x: Float[Tensor, "*batch seq d_model"],
        context: Float[Tensor, "*batch context_seq d_model"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        positions: Int[Tensor, "*#batch seq"] | None = None,
    ) -> Float[Tensor, "*batch seq d_model"]:
        """x asks; keys and values come from the context, or from x itself where there is none.

        mask: True = may look; broadcastable to (*batch, heads, seq, keys); a causal module ANDs it
        with its own. positions: where the tokens of x stand, for rope; 0 … seq − 1 if left out.

        Raises ValueError naming context where one is given to a module that is causal or has a
        rope (both speak of positions within one sequence), naming mask where it does not fit, and
        where x or context does not end in d_model features.
        """
        # BEGIN SOLUTION
        if context is not None and (self.causal or self.rope is not None):
            raise ValueError("context must be None where attention is causal or has a rope, "
                             f"got one of shape {tuple(context.shape)}")
        source = x if context is None else context
        q = split_heads(self.q_proj(x), self.heads)
        k = split_heads(self.k_proj(source), self.heads)
        v = split_heads(self.v_proj(source), self.heads)
        if self.rope is not None:
            if positions is not None:
                positions = positions.unsqueeze(-2)         # the same for every head
            q, k = self.rope(q, positions), self.rope(k, positions)
        if self.causal:
            past = causal_mask(x.shape[-2], device=x.device)
            if mask is not None:
                mask_must_fit(mask, (*q.shape[:-1], x.shape[-2]))
                past = past & mask
            mask = past
        dropout = self.dropout if self.training else 0.0
        return self.o_proj(merge_heads(scaled_dot_product_attention(q, k, v, mask, dropout)))
        # END SOLUTION


def attention_flops(batch: int, heads: int, q_len: int, k_len: int, head_dim: int) -> int:
    """Floating-point operations of the two matrix products, q kᵀ and weights v.

    A multiply and an add count as two. Softmax, masks and the projections are left out; what a
    mask hides is computed all the same.
    """
    # BEGIN SOLUTION
    return 2 * (2 * batch * heads * q_len * k_len * head_dim)
    # END SOLUTION
