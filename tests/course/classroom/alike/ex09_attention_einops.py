import torch
from einops import einsum
from torch import nn

from .ex00_shapes import merge_heads, split_heads
from .ex03_linear import Linear
from .ex05_softmax import softmax
from .ex08_feedforward import Dropout


def _must_fit(mask, shape):
    sizes = zip(reversed(mask.shape), reversed(shape))
    if mask.ndim > len(shape) or any(m not in (1, size) for m, size in sizes):
        raise ValueError(f"mask of shape {tuple(mask.shape)} does not fit scores of shape {tuple(shape)}")


def _wide(*tensors):
    dtype = torch.promote_types(tensors[0].dtype, torch.float32)
    return [t.to(dtype) for t in tensors]


def causal_mask(q_len, k_len=None, device=None):
    if k_len is None:
        k_len = q_len
    past = k_len - q_len
    if past < 0:
        raise ValueError(f"fewer keys than queries: k_len={k_len} < q_len={q_len}")
    full = torch.ones((q_len, k_len), device=device)
    return torch.tril(full, diagonal=past).bool()


def attention_weights(q, k, mask=None):
    a, b = _wide(q, k)
    logits = einsum(a, b, "... q d, ... k d -> ... q k") / (q.size(-1) ** 0.5)
    if mask is not None:
        _must_fit(mask, logits.shape)
        logits = logits.masked_fill(mask.logical_not(), float("-inf"))
    return softmax(logits, -1).to(q)


def scaled_dot_product_attention(q, k, v, mask=None, dropout=0.0):
    a, b, c = _wide(q, k, v)
    probs = Dropout(dropout)(attention_weights(a, b, mask))
    return einsum(probs, c, "... q k, ... k d -> ... q d").to(q)


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, heads, bias=False, rope=None, dropout=0.0, causal=False):
        super().__init__()
        if d_model <= 0:
            raise ValueError(f"bad d_model: {d_model}")
        if heads <= 0 or d_model % heads > 0:
            raise ValueError(f"bad heads: {heads} for {d_model=}")
        if rope is not None and rope.head_dim * heads != d_model:
            raise ValueError(f"bad rope: its head_dim is {rope.head_dim}, mine {d_model // heads}")
        self.drop = dropout
        Dropout(dropout)
        self.n, self.rope, self.is_causal = heads, rope, causal
        for name in "qkvo":
            setattr(self, f"{name}_proj", Linear(d_model, d_model, bias=bias))

    def forward(self, x, context=None, mask=None, positions=None):
        if context is None:
            context = x
        elif self.is_causal or self.rope:
            raise ValueError(f"no context here, please: {context.shape}")
        q, k, v = (split_heads(f(t), self.n)
                   for f, t in ((self.q_proj, x), (self.k_proj, context), (self.v_proj, context)))
        if self.rope:
            at = () if positions is None else (positions.unsqueeze(-2),)
            q, k = (self.rope(t, *at) for t in (q, k))
        if mask is not None:
            _must_fit(mask, (*q.shape[:-1], k.shape[-2]))
        if self.is_causal:
            mine = causal_mask(q.size(-2), k.size(-2), x.device)
            mask = mine if mask is None else mine.logical_and(mask)
        heads = scaled_dot_product_attention(q, k, v, mask, self.drop * self.training)
        return self.o_proj(merge_heads(heads))


def attention_flops(batch, heads, q_len, k_len, head_dim):
    return 4 * batch * heads * q_len * k_len * head_dim
