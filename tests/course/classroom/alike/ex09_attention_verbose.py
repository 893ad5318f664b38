from typing import Optional

import torch
import torch.nn as nn

from .ex00_shapes import merge_heads, split_heads
from .ex03_linear import Linear
from .ex05_softmax import softmax
from .ex08_feedforward import Dropout


def _must_fit(mask, shape):
    sizes = zip(reversed(mask.shape), reversed(shape))
    if mask.ndim > len(shape) or any(m not in (1, size) for m, size in sizes):
        raise ValueError(f"mask of shape {tuple(mask.shape)} does not fit scores of shape {tuple(shape)}")


def causal_mask(q_len: int, k_len: Optional[int] = None, device=None):
    if k_len is None:
        number_of_keys = q_len
    else:
        number_of_keys = k_len
    if number_of_keys < q_len:
        raise ValueError("k_len must not be smaller than q_len, got %d and %d" % (number_of_keys, q_len))
    offset = number_of_keys - q_len
    mask = torch.zeros(q_len, number_of_keys, dtype=torch.bool, device=device)
    for query in range(q_len):
        mask[query, : offset + query + 1] = True
    return mask


def attention_weights(q, k, mask=None):
    original = q.dtype
    if original in (torch.float16, torch.bfloat16):
        q = q.float()
        k = k.float()
    head_dim = q.shape[-1]
    scores = torch.einsum("...qd,...kd->...qk", q, k)
    scores = scores / head_dim**0.5
    if mask is not None:
        _must_fit(mask, scores.shape)
        minus_infinity = torch.full_like(scores, -torch.inf)
        scores = torch.where(mask, scores, minus_infinity)
    weights = softmax(scores)
    return weights.to(original)


def scaled_dot_product_attention(q, k, v, mask=None, dropout=0.0):
    if not 0 <= dropout < 1:
        raise ValueError("dropout must be in [0, 1), got %s" % dropout)
    original = q.dtype
    if original in (torch.float16, torch.bfloat16):
        q, k, v = q.float(), k.float(), v.float()
    weights = attention_weights(q, k, mask)
    if dropout > 0:
        weights = Dropout(dropout)(weights)
    return torch.einsum("...qk,...kd->...qd", weights, v).to(original)


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, heads, bias=False, rope=None, dropout=0.0, causal=False):
        super().__init__()
        assert_sizes(d_model, heads)
        head_dim = d_model // heads
        if rope is not None:
            if rope.head_dim != head_dim:
                raise ValueError("rope turns %d features, but heads have %d" % (rope.head_dim, head_dim))
        if not 0 <= dropout < 1:
            raise ValueError("dropout must be in [0, 1), got %s" % dropout)

        self.num_heads = heads
        self.rope = rope
        self.p = dropout
        self.causal = causal

        # the four projections
        options = {"bias": bias}
        self.q_proj = Linear(d_model, d_model, **options)
        self.k_proj = Linear(d_model, d_model, **options)
        self.v_proj = Linear(d_model, d_model, **options)
        self.o_proj = Linear(d_model, d_model, **options)

    def forward(self, x, context=None, mask=None, positions=None):
        self_attention = context is None
        if not self_attention and self.causal:
            raise ValueError("a causal module takes no context")
        if not self_attention and self.rope is not None:
            raise ValueError("a module with a rope takes no context")
        if self_attention:
            context = x

        queries = split_heads(self.q_proj(x), self.num_heads)
        keys = split_heads(self.k_proj(context), self.num_heads)
        values = split_heads(self.v_proj(context), self.num_heads)

        if self.rope is not None:
            if positions is None:
                queries = self.rope(queries)
                keys = self.rope(keys)
            else:
                per_head = positions.unsqueeze(-2)
                queries = self.rope(queries, per_head)
                keys = self.rope(keys, per_head)

        if mask is not None:
            scores_shape = list(queries.shape[:-1]) + [keys.shape[-2]]
            _must_fit(mask, scores_shape)
        if self.causal:
            lower = causal_mask(queries.shape[-2], device=x.device)
            mask = lower if mask is None else torch.logical_and(mask, lower)

        if self.training:
            attended = scaled_dot_product_attention(queries, keys, values, mask, self.p)
        else:
            attended = scaled_dot_product_attention(queries, keys, values, mask)
        merged = merge_heads(attended)
        return self.o_proj(merged)


def assert_sizes(d_model, heads):
    if d_model < 1:
        raise ValueError("d_model must be at least one, got %d" % d_model)
    if heads < 1:
        raise ValueError("heads must be at least one, got %d" % heads)
    if d_model % heads != 0:
        raise ValueError("heads must divide d_model, got %d and %d" % (heads, d_model))


def attention_flops(batch, heads, q_len, k_len, head_dim):
    multiplications = batch * heads * q_len * k_len * head_dim
    per_product = 2 * multiplications
    return 2 * per_product
