"""The same model on torch's kernels: what the chapters build, with other forward passes, in less time and memory.

Each class here is the forward pass of one class of a chapter; its twin inherits from both. The
chapter's class is found in the model itself, and known by its file and name: it may be the
reference's or a student's own.
"""

from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def use_torch_kernels(model: nn.Module) -> nn.Module:
    """Swap a model's parts, in place, for twins that call torch's kernels; returns the model.

    Linear, Unembedding, LayerNorm, RMSNorm, MLP, SwiGLU and CachedAttention become subclasses of
    themselves with another forward pass, which gives the same numbers, up to rounding, in less
    time and memory. Parameters, their names and ties stay as they are. In a Transformer, RoPE
    stops looking at its positions in every layer: the model looks once. Modules of other classes,
    MultiHeadAttention too, and modules without the attributes that a twin reads, are left alone.
    """
    whole = _origin(type(model)) == "ex13_transformer.Transformer"
    for module in model.modules():
        forward, attributes = KERNELS.get(_origin(type(module)), (None, ()))
        if forward is TorchRoPE and not (whole and getattr(module, "layout", None) == "half"):
            continue
        if forward and all(hasattr(module, name) for name in attributes):
            module.__class__ = _twin(type(module), forward)
    return model


def _origin(thing) -> str:
    """The chapter's file and the name there: "ex03_linear.Linear" in exercises, solutions or anywhere."""
    return f"{thing.__module__}".rpartition(".")[2] + "." + getattr(thing, "__qualname__", "")


@cache
def _twin(ours: type, forward: type) -> type:
    return type(forward.__name__, (forward, ours), {})


class TorchLinear:
    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class TorchLayerNorm:
    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class TorchRMSNorm:
    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class TorchMLP:
    def forward(self, x: Tensor) -> Tensor:
        own = self.activation
        function, options = getattr(own, "func", own), getattr(own, "keywords", {})     # a partial's
        if _origin(function) in ("ex08_feedforward.silu", "ex08_feedforward.gelu"):
            function = getattr(F, function.__name__)
        return self.down(self.dropout(function(self.up(x), **options)))


class TorchSwiGLU:
    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class TorchRoPE:
    """Layout "half", at positions that TorchTransformer has looked at, once for all layers."""

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        rows = slice(x.shape[-2]) if positions is None else positions
        cos, sin = self.cos[rows], self.sin[rows]
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1).to(x.dtype)


class TorchAttention:
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """As CachedAttention's; no score is ever written to memory."""
        q_len, k_len = q.shape[2], k.shape[2]
        windowed = self.window is not None and self.window < k_len
        causal = self.causal and q_len > 1
        # is_causal makes no mask, but takes the queries for the first of the keys
        square = causal and not windowed and mask is None and q_len == k_len
        if mask is not None:
            mask = mask[..., -k_len:]
        if windowed or causal and not square:
            keys = torch.arange(k_len, device=q.device)
            back = keys[k_len - q_len:, None] - keys        # how far each query must look back
            own = (back >= 0) & (back < (self.window or k_len))
            mask = own if mask is None else own & mask
        out = F.scaled_dot_product_attention(q, k, v, mask, is_causal=square, enable_gqa=True)
        return self.o_proj(out.transpose(1, 2).flatten(2))


class TorchTransformer:
    def forward(self, ids: Tensor, mask: Tensor | None = None, positions: Tensor | None = None,
                caches: list | None = None) -> Tensor:
        if self.config.positions == "rope":
            first = caches[0].length if caches else 0
            last = first + ids.shape[1] - 1
            if positions is not None and positions.numel():
                first, last = map(int, positions.aminmax())
            if first < 0 or last >= self.config.max_seq_len:
                raise ValueError(f"positions must be in 0 … {self.config.max_seq_len - 1}, "
                                 f"got {first} … {last}")
        return super().forward(ids, mask, positions, caches)


# What torch has a kernel for: a chapter's class, the twin's forward pass, and the attributes that it reads.
KERNELS = {
    "ex02_embedding.Unembedding": (TorchLinear, ("weight", "bias")),
    "ex03_linear.Linear": (TorchLinear, ("weight", "bias")),
    "ex04_normalization.LayerNorm": (TorchLayerNorm, ("weight", "bias", "eps")),
    "ex04_normalization.RMSNorm": (TorchRMSNorm, ("weight", "eps")),
    "ex07_rope.RoPE": (TorchRoPE, ("cos", "sin")),
    "ex08_feedforward.MLP": (TorchMLP, ("up", "activation", "dropout", "down")),
    "ex08_feedforward.SwiGLU": (TorchSwiGLU, ("gate", "up", "down")),
    "ex11_kv_cache.CachedAttention": (TorchAttention, ("window", "causal", "o_proj")),
    "ex13_transformer.Transformer": (TorchTransformer, ("config",)),
}
