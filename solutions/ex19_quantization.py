"""Quantization: the same model in a quarter of the bytes.

A weight becomes a small whole number, its code; a group of weights shares one scale.
weight ≈ scale · (code − zero)
"""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import torch
from einops import rearrange
from jaxtyping import Float, Int, UInt8
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from given.sizes import at_least_one, cache_must_fit, widen
from given.tensors import tensor_problems

from .ex03_linear import Linear
from .ex11_kv_cache import KVCache
from .ex13_transformer import ModelConfig, Transformer, count_parameters
from .ex16_pretrained import DTYPES, Weightless, read_file

BLOCK = 32                                          # of GGUF's formats and of MXFP4
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)     # codes 0 … 7 of MXFP4; 8 … 15 are negative
DAMPING = 0.01                                      # of GPTQ, a share of the mean diagonal


def check_sizes(features: int, bits: int, group: int) -> None:
    """Given: raise ValueError naming bits unless in 2 … 8, or group unless it divides features."""
    if not 2 <= bits <= 8:
        raise ValueError(f"bits must be in 2 … 8, got {bits}")
    if group < 1 or features % group:
        raise ValueError(f"group must divide the {features} features of a row, got {group}")


# BEGIN SOLUTION
def _grid(w: Tensor, bits: int, symmetric: bool, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """scale, rounded to dtype, and zero of each row of w."""
    if symmetric:
        scale = w.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
        return scale.to(dtype), torch.full_like(scale, 2 ** (bits - 1))
    low, high = w.amin(-1, keepdim=True).clamp(max=0), w.amax(-1, keepdim=True).clamp(min=0)
    scale = ((high - low) / (2**bits - 1)).to(dtype)
    return scale, _divide(-low, scale).round()


def _divide(w: Tensor, scale: Tensor) -> Tensor:
    """w / scale, and 0 where the scale is 0."""
    scale = scale.to(w.dtype)
    return (w / scale).masked_fill(scale == 0, 0)


def _to_codes(w: Tensor, scale: Tensor, zero: Tensor, bits: int) -> Tensor:
    return (_divide(w, scale).round() + zero).clamp(0, 2**bits - 1)


# END SOLUTION
@torch.no_grad()
def quantize(
    w: Float[Tensor, "*rows features"], bits: int, group: int, symmetric: bool = False
) -> tuple[
    UInt8[Tensor, "*rows features"], Float[Tensor, "*rows groups"], UInt8[Tensor, "*rows groups"]
]:
    """Each weight's code, each group's scale and zero: weight ≈ scale · (code − zero).

    A group is `group` neighbours along the last axis. With low = min(weights, 0) and high =
    max(weights, 0) of a group:

        scale = (high − low) / (2^bits − 1)        zero = round(−low / scale)
    and, symmetric:
        scale = max |weight| / (2^(bits − 1) − 1)  zero = 2^(bits − 1)
    code = clamp(round(weight / scale) + zero, 0, 2^bits − 1)

    Computed in at least float32, ties to even (torch.round). The scale is rounded to w's dtype
    *first*, and zero and codes are found with the rounded one. Where it is 0, weight / scale and
    −low / scale count as 0. Codes and zeros are uint8, scales have w's dtype. No gradient is
    recorded.

    Raises ValueError naming bits unless in 2 … 8, group unless it is at least 1 and divides the
    last axis, and w where a weight is not finite.

    To be written here: torch's quantize_per_tensor, quantize_per_channel and their fake_quantize
    twins are not used.
    """
    # BEGIN SOLUTION
    check_sizes(w.shape[-1], bits, group)
    if not w.isfinite().all():
        raise ValueError("w must be finite, got an infinite weight or NaN")
    groups = rearrange(w, "... (groups size) -> ... groups size", size=group)
    groups = widen(groups)
    scale, zero = _grid(groups, bits, symmetric, w.dtype)
    codes = _to_codes(groups, scale, zero, bits)
    return codes.flatten(-2).to(torch.uint8), scale[..., 0], zero[..., 0].to(torch.uint8)
    # END SOLUTION


def dequantize(
    codes: UInt8[Tensor, "*rows features"],
    scales: Float[Tensor, "*rows groups"],
    zeros: UInt8[Tensor, "*rows groups"],
) -> Float[Tensor, "*rows features"]:
    """scale · (code − zero), in the scales' dtype. A group is features / groups codes.

    code − zero may be negative, which uint8 cannot hold.
    """
    # BEGIN SOLUTION
    groups = rearrange(codes, "... (groups size) -> ... groups size", groups=scales.shape[-1])
    differences = groups.to(scales.dtype) - zeros[..., None].to(scales.dtype)
    return (scales[..., None] * differences).flatten(-2)
    # END SOLUTION


def pack_int4(codes: UInt8[Tensor, "*rows features"]) -> UInt8[Tensor, "*rows half"]:
    """Two codes of 4 bits in each byte: the first of two neighbours in the low four bits.

    byte j = codes[2j] + 16 · codes[2j + 1]

    Raises ValueError naming codes where the last axis is odd, or a code is above 15.
    """
    # BEGIN SOLUTION
    if codes.shape[-1] % 2:
        raise ValueError(f"codes must be pairs, got {codes.shape[-1]} in a row")
    if codes.numel() and codes.max() > 15:
        raise ValueError(f"codes must be at most 15, got {codes.max()}")
    return codes[..., 0::2] | codes[..., 1::2] << 4
    # END SOLUTION


def unpack_int4(packed: UInt8[Tensor, "*rows half"]) -> UInt8[Tensor, "*rows features"]:
    """The codes that pack_int4 packed, in their order."""
    # BEGIN SOLUTION
    return torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2)
    # END SOLUTION


class QuantizedLinear(nn.Module):
    """A Linear whose weight is kept as codes: y = x Ŵᵀ + b with Ŵ = scale · (code − zero).

    Buffers: codes, uint8, (out_features, in_features), or (out_features, in_features / 2) and
    packed where bits is at most 4; scales, (out_features, in_features / group), in dtype (None is
    torch's default); zeros, uint8, of the scales' shape. All 0 at first. bias: a Parameter of
    (out_features,) in dtype, zeros, or None. Only the bias can be trained. bits and group are
    attributes.

    Raises ValueError naming a size below 1, bits unless in 2 … 8, group unless it divides
    in_features, and in_features where it is odd and the codes are packed.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bits: int,
        group: int,
        bias: bool = False,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ):
        super().__init__()
        # BEGIN SOLUTION
        at_least_one(in_features=in_features, out_features=out_features)
        check_sizes(in_features, bits, group)
        if bits <= 4 and in_features % 2:
            raise ValueError(f"in_features must be even to be packed, got {in_features}")
        self.bits, self.group = bits, group
        width, groups = in_features // 2 if bits <= 4 else in_features, in_features // group
        byte, wide = {"dtype": torch.uint8, "device": device}, {"dtype": dtype, "device": device}
        self.register_buffer("codes", torch.zeros(out_features, width, **byte))
        self.register_buffer("scales", torch.zeros(out_features, groups, **wide))
        self.register_buffer("zeros", torch.zeros(out_features, groups, **byte))
        self.bias = nn.Parameter(torch.zeros(out_features, **wide)) if bias else None
        # END SOLUTION

    @staticmethod
    def from_linear(linear: Linear, bits: int, group: int, codes: Tensor, scales: Tensor,
                    zeros: Tensor) -> "QuantizedLinear":
        """Given: a layer with these codes (not packed), scales and zeros, and linear's own bias."""
        rows, features = linear.weight.shape
        layer = QuantizedLinear(features, rows, bits, group, linear.bias is not None,
                                linear.weight.dtype, "meta")
        layer.codes = pack_int4(codes) if bits <= 4 else codes
        layer.scales, layer.zeros, layer.bias = scales, zeros, linear.bias
        return layer.train(linear.training)

    def dequantized(self) -> Float[Tensor, "out_features in_features"]:
        """Ŵ, made anew from the codes, in the scales' dtype."""
        # BEGIN SOLUTION
        codes = unpack_int4(self.codes) if self.bits <= 4 else self.codes
        return dequantize(codes, self.scales, self.zeros)
        # END SOLUTION

    def forward(
        self, x: Float[Tensor, "*batch in_features"]
    ) -> Float[Tensor, "*batch out_features"]:
        """x Ŵᵀ + b, in x's dtype: Ŵ and b are cast to it. Gradients reach x and the bias.

        Raises ValueError naming x where it does not end in in_features features.
        """
        # BEGIN SOLUTION
        wanted = self.scales.shape[1] * self.group
        if x.shape[-1] != wanted:
            raise ValueError(f"x has {x.shape[-1]} features, expected {wanted}")
        y = x @ self.dequantized().to(x.dtype).T
        return y if self.bias is None else y + self.bias.to(x.dtype)
        # END SOLUTION


def layers_to_quantize(
    model: nn.Module, bits: int, group: int, skip: Iterable[str] = ()
) -> dict[str, Linear]:
    """A model's Linear layers by their names, such as "blocks.0.attention.q_proj", in its order.

    Embedding and Unembedding, tied or not, are no Linear layers: they are not among them. A layer
    is left out where one of skip, "down" or "attention.q_proj" or "blocks.1", is a run of whole
    parts of its name: "blocks.1" leaves "blocks.10" in.

    Raises ValueError naming bits unless in 2 … 8; skip, and the names in question, where one of
    skip leaves nothing out; model where no layer is left; group, and the names of all layers in
    question, where it does not divide a layer's in_features, or they are odd and bits is at most 4;
    and the names of all layers in which a weight is not finite. Layers left out may be anything.
    """
    # BEGIN SOLUTION
    check_sizes(1, bits, 1)
    skip = list(skip)
    every = {name: module for name, module in model.named_modules()
             if name and isinstance(module, Linear)}
    hit = {name: [part for part in skip if f".{part}." in f".{name}."] for name in every}
    if idle := [part for part in skip if not any(part in parts for parts in hit.values())]:
        raise ValueError(f"skip must name Linear layers of the model, got {idle}")
    chosen = {name: module for name, module in every.items() if not hit[name]}
    if not chosen:
        raise ValueError("model must have a Linear layer to quantize, got none")
    features = {name: module.weight.shape[1] for name, module in chosen.items()}
    if wrong := [f"{name} of {size}" for name, size in features.items()
                 if group < 1 or size % group or bits <= 4 and size % 2]:
        raise ValueError(f"group must divide every layer's in_features, which must be even up to "
                         f"4 bits, got {group} for {', '.join(wrong)}")
    if wrong := [name for name, module in chosen.items() if not module.weight.isfinite().all()]:
        raise ValueError(f"model must have finite weights, got others in {', '.join(wrong)}")
    return chosen
    # END SOLUTION


def replace(model: nn.Module, name: str, new: nn.Module) -> None:
    """Given: put a module in the place of the one that the model has under this name."""
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, new)


def quantize_model(model: nn.Module, bits: int, group: int, skip: Iterable[str] = ()) -> nn.Module:
    """Put a QuantizedLinear in the place of each of layers_to_quantize; returns the same model.

    By quantize, not symmetric. Biases, norms, embedding and unembedding stay the very objects they
    were, and a tied pair stays tied.

    Raises ValueError as layers_to_quantize does, before anything is changed.
    """
    # BEGIN SOLUTION
    for name, linear in layers_to_quantize(model, bits, group, skip).items():
        codes = quantize(linear.weight, bits, group)
        replace(model, name, QuantizedLinear.from_linear(linear, bits, group, *codes))
    return model
    # END SOLUTION


@torch.no_grad()
def gptq(
    weight: Float[Tensor, "out_features in_features"],
    inputs: Float[Tensor, "*batch in_features"],
    bits: int,
    group: int,
) -> tuple[
    UInt8[Tensor, "out_features in_features"], Float[Tensor, "out_features groups"],
    UInt8[Tensor, "out_features groups"],
]:
    """Codes, scales and zeros that keep inputs · weightᵀ, not weight, as it was. In float64.

    H = XᵀX + 0.01 · mean(diag(XᵀX)) · I, with X the inputs, one a row. U is upper triangular and
    UᵀU = H⁻¹. Column j of the weights W, from the first to the last:

        at the start of a group: scale and zero as in quantize, not symmetric, of the group's
            weights as they are *now*
        code = clamp(round(W[:, j] / scale) + zero, 0, 2^bits − 1)
        error = (W[:, j] − scale · (code − zero)) / U[j, j]
        W[:, j + 1:] −= error · U[j, j + 1:]        what is still to come makes up for it

    (Frantar et al., 2022, arXiv 2210.17323.) Scales have weight's dtype. weight is not changed.
    No gradient is recorded.

    Raises ValueError naming bits or group as quantize does, weight or inputs where one of their
    numbers is not finite, and inputs where they are all 0, or there are none.

    To be written here: torch's quantize_per_tensor, quantize_per_channel and their fake_quantize
    twins are not used.
    """
    # BEGIN SOLUTION
    check_sizes(weight.shape[1], bits, group)
    for name, x in (("weight", weight), ("inputs", inputs)):
        if not x.isfinite().all():
            raise ValueError(f"{name} must be finite, got an infinite number or NaN")
    if not inputs.any():
        raise ValueError("inputs must hold a number that is not 0")
    x = rearrange(inputs, "... features -> (...) features").to(torch.float64)
    hessian = x.T @ x
    hessian.diagonal().add_(DAMPING * hessian.diagonal().mean())
    upper = torch.linalg.cholesky(torch.linalg.inv(hessian), upper=True)

    w, codes, scales, zeros = weight.to(torch.float64, copy=True), [], [], []
    for j in range(w.shape[1]):
        if j % group == 0:
            scale, zero = _grid(w[:, j:j + group], bits, False, weight.dtype)
            scales.append(scale)
            zeros.append(zero)
        code = _to_codes(w[:, j:j + 1], scale, zero, bits)
        error = (w[:, j:j + 1] - scale * (code - zero)) / upper[j, j]
        w[:, j + 1:] -= error * upper[j, j + 1:]
        codes.append(code)
    return (torch.cat(codes, 1).to(torch.uint8), torch.cat(scales, 1),
            torch.cat(zeros, 1).to(torch.uint8))
    # END SOLUTION


@torch.no_grad()
def gptq_model(model: Transformer, ids: Int[Tensor, "batch seq"], bits: int, group: int,
               skip: Iterable[str] = ()) -> Transformer:
    """Given: as quantize_model, by gptq, with the inputs that layers meet when the model reads ids.

    Block by block: a block's layers see what the blocks before it, quantized by then, hand on.
    """
    chosen = layers_to_quantize(model, bits, group, skip)
    for number in range(len(model.blocks)):
        ours = {name: linear for name, linear in chosen.items()
                if name.startswith(f"blocks.{number}.")}
        seen = {}
        hooks = [linear.register_forward_pre_hook(
                     lambda _, given, name=name: seen.update({name: given[0]}))
                 for name, linear in ours.items()]
        try:
            model(ids)
        finally:
            for hook in hooks:
                hook.remove()
        for name, linear in ours.items():
            codes = gptq(linear.weight, seen[name], bits, group)
            replace(model, name, QuantizedLinear.from_linear(linear, bits, group, *codes))
    return model


# BEGIN SOLUTION
def _blocks(x: Tensor) -> Tensor:
    """x in blocks of 32 along its last axis, in float32."""
    if not x.shape[-1] or x.shape[-1] % BLOCK:
        raise ValueError(f"x must have rows of a multiple of {BLOCK} numbers, got {x.shape[-1]}")
    if not x.isfinite().all():
        raise ValueError("x must be finite, got an infinite number or NaN")
    return rearrange(x, "... (blocks size) -> ... blocks size", size=BLOCK).to(torch.float32)


def _inverse(d: Tensor) -> Tensor:
    return torch.where(d == 0, 0, 1 / d)


def _gguf(d: Tensor, codes: Tensor) -> Tensor:
    """The bytes of blocks: the scale in float16, then the codes."""
    return torch.cat([d.to(torch.float16).view(torch.uint8), codes], dim=-1).flatten(-2)


# END SOLUTION
@torch.no_grad()
def q8_0(x: Float[Tensor, "*rows features"]) -> UInt8[Tensor, "*rows bytes"]:
    """GGUF's Q8_0: 34 bytes for each block of 32 numbers, as llama.cpp writes them.

    In float32: d = max |x| / 127, and code = round(x · (1 / d)), ties away from zero, 0 where d is
    0. The bytes: d in float16 (two bytes), then the 32 codes as int8. Unlike quantize, this finds
    the codes with d *before* it is rounded.

    Raises ValueError naming x where the last axis is 0 or no multiple of 32, or a number is not
    finite.

    To be written here: torch's quantize_per_tensor, quantize_per_channel and their fake_quantize
    twins are not used.
    """
    # BEGIN SOLUTION
    blocks = _blocks(x)
    d = blocks.abs().amax(-1, keepdim=True) / 127
    scaled = blocks * _inverse(d)
    whole = scaled.trunc()
    codes = whole + (2 * (scaled - whole)).trunc()              # half goes away from zero
    return _gguf(d, codes.to(torch.int8).view(torch.uint8))
    # END SOLUTION


@torch.no_grad()
def q4_0(x: Float[Tensor, "*rows features"]) -> UInt8[Tensor, "*rows bytes"]:
    """GGUF's Q4_0: 18 bytes for each block of 32 numbers, as llama.cpp writes them.

    In float32: d = m / −8, where m is the block's number of the largest size, with its sign, the
    first of equals; so m itself gets code 0. code = trunc(x · (1 / d) + 8.5), at most 15; 8 where d
    is 0. It stands for d · (code − 8). The bytes: d in float16, then 16 bytes, of which byte j has
    code j in the low four bits and code j + 16 in the high four: not pack_int4's order.

    Raises ValueError as q8_0 does.

    To be written here: torch's quantize_per_tensor, quantize_per_channel and their fake_quantize
    twins are not used.
    """
    # BEGIN SOLUTION
    blocks = _blocks(x)
    d = blocks.gather(-1, blocks.abs().argmax(-1, keepdim=True)) / -8
    codes = (blocks * _inverse(d) + 8.5).trunc().clamp(max=15).to(torch.uint8)
    low, high = codes.chunk(2, dim=-1)
    return _gguf(d, low | high << 4)
    # END SOLUTION


# BEGIN SOLUTION
def _nearest(size: Tensor, table: Tensor) -> Tensor:
    """The index of the nearest of a sorted table's values; halfway, the even index."""
    middle, size = (table[1:] + table[:-1]) / 2, size.contiguous()
    below, above = torch.searchsorted(middle, size), torch.searchsorted(middle, size, right=True)
    return torch.where(below % 2 == 0, below, above)


# END SOLUTION
def e4m3_values() -> Float[Tensor, "256"]:
    """What each of the 256 codes of e4m3 stands for, float32, by code.

    A code is a sign bit s, four bits e and three bits m, from the highest to the lowest:
    (−1)^s · 2^(e − 7) · (1 + m / 8), and where e is 0, (−1)^s · 2^−6 · m / 8. The two codes in
    which all bits of e and m are 1 are NaN, and there is no infinity. (Micikevicius et al., 2022,
    arXiv 2209.05433.)

    To be written here: torch.float8_e4m3fn is not used.
    """
    # BEGIN SOLUTION
    codes = torch.arange(256)
    sign, e, m = 1.0 - 2.0 * (codes >> 7), codes >> 3 & 15, codes & 7
    size = torch.where(e == 0, 2.0**-6 * (m / 8), torch.exp2(e - 7.0) * (1 + m / 8))
    return torch.where(codes & 127 == 127, torch.nan, sign * size)
    # END SOLUTION


@torch.no_grad()
def to_fp8(x: Float[Tensor, "*shape"]) -> UInt8[Tensor, "*shape"]:
    """The e4m3 code of each number: the nearest of e4m3_values, halfway the even code.

    What is above 448, the largest, becomes 448; −0.0 keeps its sign (code 128), and so does what
    is rounded to it; NaN becomes 127. Scale x beforehand if its range asks for it.

    To be written here: torch.float8_e4m3fn is not used.
    """
    # BEGIN SOLUTION
    x = widen(x)
    table = e4m3_values()[:127].to(x.device, x.dtype)
    codes = _nearest(x.abs(), table) + 128 * x.signbit()
    return torch.where(x.isnan(), 127, codes).to(torch.uint8)
    # END SOLUTION


@torch.no_grad()
def to_mxfp4(
    x: Float[Tensor, "*rows features"],
) -> tuple[UInt8[Tensor, "*rows features"], UInt8[Tensor, "*rows blocks"]]:
    """MXFP4: a code of 4 bits (E2M1) for each number, and a power of two (E8M0) for each 32.

    In float32: the scale of a block is 2^(floor(log2(max |x|)) − 2), written as its exponent plus
    127, at least 0; a block of zeros has 0. A code is the index of the nearest of E2M1 to |x| /
    scale, halfway the even index, at most 6.0's, and 8 more where x is negative, −0.0 too. Codes
    are not packed. (OCP Microscaling Formats, version 1.0, as in Rouhani et al., 2023, arXiv
    2310.10537.)

    Raises ValueError as q8_0 does.
    """
    # BEGIN SOLUTION
    blocks = _blocks(x)
    largest = blocks.abs().amax(-1, keepdim=True)
    exponent = torch.frexp(largest).exponent - 1                # floor(log2(largest)), exactly
    exponents = torch.where(largest == 0, 0, (exponent - 2 + 127).clamp(min=0))
    table = torch.tensor(E2M1, device=x.device)
    codes = _nearest(blocks.abs() / torch.exp2(exponents - 127.0), table) + 8 * blocks.signbit()
    return codes.flatten(-2).to(torch.uint8), exponents[..., 0].to(torch.uint8)
    # END SOLUTION


def from_mxfp4(
    codes: UInt8[Tensor, "*rows features"], exponents: UInt8[Tensor, "*rows blocks"]
) -> Float[Tensor, "*rows features"]:
    """The float32 numbers that codes and exponents of MXFP4 are: ± E2M1 · 2^(exponent − 127)."""
    # BEGIN SOLUTION
    table = torch.tensor([*E2M1, *(-value for value in E2M1)], device=codes.device)
    blocks = rearrange(table[codes.int()], "... (blocks size) -> ... blocks size", size=BLOCK)
    return (blocks * torch.exp2(exponents[..., None] - 127.0)).flatten(-2)
    # END SOLUTION


class Int8KVCache(KVCache):
    """A KVCache that keeps its numbers in one byte each; the same arguments and methods.

    keys and values: int8, (batch, kv_heads, capacity, head_dim). key_scales and value_scales:
    (batch, kv_heads, capacity, 1), in dtype, one scale for each position of each head. dtype: what
    update takes and gives back, torch's default where it is None.

    Raises ValueError naming a size that is below 1.

    To be written here: torch's quantize_per_tensor, quantize_per_channel and their fake_quantize
    twins are not used.
    """

    def __init__(self, batch: int, kv_heads: int, capacity: int, head_dim: int,
                 dtype: torch.dtype | None = None, device: torch.device | str | None = None):
        # BEGIN SOLUTION
        super().__init__(batch, kv_heads, capacity, head_dim, torch.int8, device)
        self.key_scales = torch.zeros(batch, kv_heads, capacity, 1, dtype=dtype, device=device)
        self.value_scales = torch.zeros_like(self.key_scales)
        # END SOLUTION

    def update(
        self, k: Float[Tensor, "_ _ q _"], v: Float[Tensor, "_ _ _ _"]
    ) -> tuple[
        Float[Tensor, "batch kv_heads k head_dim"], Float[Tensor, "batch kv_heads k head_dim"]
    ]:
        """Write q new positions behind the old ones, and return all of them as scale · code.

        For each vector of head_dim numbers: scale = max |x| / 127, computed in at least float32 and
        then rounded to dtype; code = round(x / scale) in −127 … 127, 0 where the scale is 0. What
        comes back is made anew, in dtype, the new positions rounded like the old ones.

        Raises ValueError, and leaves the cache as it was, where KVCache's update does.
        """
        # BEGIN SOLUTION
        # cache_must_fit compares with a storage of the dtype that comes and goes; this one has no numbers
        cache_must_fit(torch.empty(self.keys.shape, dtype=self.key_scales.dtype, device="meta"), k, v)
        end = self.length + k.shape[2]
        if end > self.capacity:
            raise ValueError(f"capacity is {self.capacity}, got position {end - 1}")
        answer = []
        both = (self.keys, self.key_scales, k), (self.values, self.value_scales, v)
        for codes, scales, x in both:
            x = widen(x)
            scale = (x.abs().amax(-1, keepdim=True) / 127).to(scales.dtype)
            scales[:, :, self.length:end] = scale
            codes[:, :, self.length:end] = _divide(x, scale).round().clamp(-127, 127).to(torch.int8)
            answer.append(codes[:, :, :end].to(scales.dtype) * scales[:, :, :end])
        self.length = end
        return tuple(answer)
        # END SOLUTION


def quantized_bytes(config: ModelConfig, bits: int, group: int, bytes_per_value: int = 2) -> int:
    """How many bytes the weights of quantize_model(Transformer(config), bits, group) take.

    Of a Linear's matrix, each weight one byte, or half a byte where bits is at most 4; each group
    a scale of bytes_per_value and a zero of one byte. Everything else that count_parameters
    counts: bytes_per_value. (2 bits and 3 bits are kept in four.) config must have pre-norm blocks.

    Raises ValueError naming bits, group (it must divide d_model, d_ff and heads · head_dim),
    bytes_per_value below 1, or norm_position.
    """
    # BEGIN SOLUTION
    if config.norm_position != "pre":
        raise ValueError(f"norm_position must be 'pre', got {config.norm_position!r}")
    at_least_one(bytes_per_value=bytes_per_value)
    q, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    for features in (config.d_model, config.d_ff, q):
        check_sizes(features, bits, group)
    mlp = 2 if config.feed_forward == "mlp" else 3
    matrices = config.layers * config.d_model * (2 * q + 2 * kv + mlp * config.d_ff)
    others = count_parameters(config) - matrices
    codes = matrices // 2 if bits <= 4 else matrices
    return codes + matrices // group * (bytes_per_value + 1) + others * bytes_per_value
    # END SOLUTION


def save(model: Transformer, path: str | Path) -> None:
    """Write a quantized model into one safetensors file: no pickle, and nothing that is run.

    The tensors are those of its state dict; a tied matrix is written once, as "embedding.weight".
    The header's metadata has "config", the ModelConfig's fields as JSON, and "layers", JSON too:
    {name: [bits, group]} for each QuantizedLinear. Written beside path under another name and
    renamed, so that path is the old file or the new one, whole.
    """
    # BEGIN SOLUTION
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    if model.config.tie_embeddings:
        del tensors["unembedding.weight"]
    layers = {name: [module.bits, module.group] for name, module in model.named_modules()
              if isinstance(module, QuantizedLinear)}
    metadata = {"config": json.dumps(asdict(model.config)), "layers": json.dumps(layers)}
    path = Path(path)
    unfinished = path.with_name(path.name + ".unfinished")
    save_file(tensors, unfinished, metadata)
    os.replace(unfinished, path)
    # END SOLUTION


def _empty(metadata: dict[str, str] | None, file: Path) -> Transformer:
    """Given: the model that save's metadata describes, Weightless; else ValueError naming file."""
    try:
        config, layers = (json.loads(metadata[key]) for key in ("config", "layers"))
        with Weightless():
            model = Transformer(ModelConfig(**config))
            for name, (bits, group) in layers.items():
                linear = model.get_submodule(name)
                if not isinstance(linear, Linear):
                    raise ValueError(f"{name} is no Linear layer")
                rows, features = linear.weight.shape
                replace(model, name, QuantizedLinear(
                    features, rows, bits, group, linear.bias is not None, device="meta"))
    except Exception as error:          # whatever a stranger's JSON makes of a constructor
        what = f"{type(error).__name__}: {error}"
        raise ValueError(f"{file} is no quantized model: {what}") from error
    return model


def load(path: str | Path, device: torch.device | str | None = None) -> Transformer:
    """The quantized model that save wrote, in eval mode, its tensors as they were written.

    Raises ValueError naming the file: where it is missing; where it is cut short or no safetensors
    file; where its metadata is not save's; and, in one message, with every tensor that is missing,
    that the model has no place for, that has the wrong shape (with both shapes, as in (12, 8)),
    that is not uint8 where codes and zeros are, or is none of DTYPES elsewhere; and where these
    last are of several dtypes.

    To be written here: torch.load is not used.
    """
    # BEGIN SOLUTION
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"path must lead to a file, but there is no {file}")
    tensors = read_file(file)
    with safe_open(file, framework="pt") as opened:
        model = _empty(opened.metadata(), file)
    wanted = model.state_dict()
    if model.config.tie_embeddings:
        del wanted["unembedding.weight"]

    problems = tensor_problems(tensors, {name: tensor.shape for name, tensor in wanted.items()})
    both = {name: (tensor, wanted[name]) for name, tensor in tensors.items() if name in wanted}
    problems += [f"wrong kind: {name} of {tensor.dtype}" for name, (tensor, right) in both.items()
                 if tensor.dtype not in ((torch.uint8,) if right.dtype == torch.uint8 else DTYPES)]
    kinds = {tensor.dtype for tensor, _ in both.values() if tensor.dtype in DTYPES}
    if len(kinds) > 1:
        problems.append(f"several dtypes: {sorted(map(str, kinds))}")
    if problems:
        raise ValueError(f"{file} does not fit its own config:\n  " + "\n  ".join(problems))

    weights = {name: torch.empty(tensor.shape, dtype=tensor.dtype, device=device).copy_(tensor)
               for name, tensor in tensors.items()}
    model.load_state_dict(weights, strict=False, assign=True)       # a tied head is not among them
    if model.config.tie_embeddings:
        model.unembedding.tie(model.embedding)
    return model.to(device).eval()
    # END SOLUTION
