import math

import torch
from torch import nn

from .ex00_shapes import merge_heads, split_heads
from .ex03_linear import Linear
from .ex05_softmax import softmax
from .ex08_feedforward import Dropout


def _must_fit(mask, shape):
    sizes = zip(reversed(mask.shape), reversed(shape))
    if mask.ndim > len(shape) or any(m not in (1, size) for m, size in sizes):
        raise ValueError(f"mask of shape {tuple(mask.shape)} does not fit scores of shape {tuple(shape)}")


def causal_mask(q_len, k_len=None, device=None):
    k_len = q_len if k_len is None else k_len
    if k_len < q_len:
        raise ValueError(f"k_len ({k_len}) is smaller than q_len ({q_len})")
    rows = torch.arange(q_len, device=device)[:, None] + (k_len - q_len)
    cols = torch.arange(k_len, device=device)[None, :]
    return cols <= rows


def attention_weights(q, k, mask=None):
    dtype = torch.promote_types(q.dtype, torch.float32)
    scale = 1 / math.sqrt(q.shape[-1])
    scores = torch.matmul(q.to(dtype), k.to(dtype).transpose(-2, -1)) * scale
    if mask is not None:
        _must_fit(mask, scores.shape)
        scores = torch.where(mask, scores, float("-inf"))
    weights = softmax(scores, dim=-1)
    return weights.to(q.dtype)


def scaled_dot_product_attention(q, k, v, mask=None, dropout=0.0):
    dtype = torch.promote_types(q.dtype, torch.float32)
    weights = attention_weights(q.to(dtype), k.to(dtype), mask)
    drop = Dropout(dropout)
    out = torch.matmul(drop(weights), v.to(dtype))
    return out.to(q.dtype)


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, heads, bias=False, rope=None, dropout=0.0, causal=False):
        super().__init__()
        if d_model < 1:
            raise ValueError(f"d_model has to be positive, not {d_model}")
        if heads < 1 or d_model % heads != 0:
            raise ValueError(f"heads = {heads} does not divide d_model = {d_model}")
        self.head_dim = d_model // heads
        if rope is not None and rope.head_dim != self.head_dim:
            raise ValueError(f"rope has head_dim {rope.head_dim}, this module {self.head_dim}")
        if dropout < 0 or dropout >= 1:
            raise ValueError(f"dropout = {dropout} is not in [0, 1)")
        self.d_model = d_model
        self.heads = heads
        self.rope = rope
        self.dropout = dropout
        self.causal = causal
        self.q_proj = Linear(d_model, d_model, bias)
        self.k_proj = Linear(d_model, d_model, bias)
        self.v_proj = Linear(d_model, d_model, bias)
        self.o_proj = Linear(d_model, d_model, bias)

    def forward(self, x, context=None, mask=None, positions=None):
        if context is not None:
            if self.causal:
                raise ValueError("context cannot be given to a causal module")
            if self.rope is not None:
                raise ValueError("context cannot be given to a module with a rope")
        kv = x if context is None else context
        q = split_heads(self.q_proj(x), self.heads)
        k = split_heads(self.k_proj(kv), self.heads)
        v = split_heads(self.v_proj(kv), self.heads)
        if self.rope is not None:
            pos = None if positions is None else positions[..., None, :]
            q = self.rope(q, pos)
            k = self.rope(k, pos)
        if self.causal:
            seq = x.shape[-2]
            tri = causal_mask(seq, device=x.device)
            if mask is None:
                mask = tri
            else:
                _must_fit(mask, q.shape[:-1] + (seq,))
                mask = mask & tri
        p = self.dropout if self.training else 0.0
        out = scaled_dot_product_attention(q, k, v, mask=mask, dropout=p)
        return self.o_proj(merge_heads(out))


def attention_flops(batch, heads, q_len, k_len, head_dim):
    scores = 2 * batch * heads * q_len * k_len * head_dim
    values = 2 * batch * heads * q_len * k_len * head_dim
    return scores + values
