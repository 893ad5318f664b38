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
    raise NotImplementedError


def dequantize(
    codes: UInt8[Tensor, "*rows features"],
    scales: Float[Tensor, "*rows groups"],
    zeros: UInt8[Tensor, "*rows groups"],
) -> Float[Tensor, "*rows features"]:
    """scale · (code − zero), in the scales' dtype. A group is features / groups codes.

    code − zero may be negative, which uint8 cannot hold.
    """
    raise NotImplementedError


def pack_int4(codes: UInt8[Tensor, "*rows features"]) -> UInt8[Tensor, "*rows half"]:
    """Two codes of 4 bits in each byte: the first of two neighbours in the low four bits.

    byte j = codes[2j] + 16 · codes[2j + 1]

    Raises ValueError naming codes where the last axis is odd, or a code is above 15.
    """
    raise NotImplementedError


def unpack_int4(packed: UInt8[Tensor, "*rows half"]) -> UInt8[Tensor, "*rows features"]:
    """The codes that pack_int4 packed, in their order."""
    raise NotImplementedError


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
        raise NotImplementedError

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
        raise NotImplementedError

    def forward(
        self, x: Float[Tensor, "*batch in_features"]
    ) -> Float[Tensor, "*batch out_features"]:
        """x Ŵᵀ + b, in x's dtype: Ŵ and b are cast to it. Gradients reach x and the bias.

        Raises ValueError naming x where it does not end in in_features features.
        """
        raise NotImplementedError


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
    raise NotImplementedError


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
    raise NotImplementedError


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
    raise NotImplementedError


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
    raise NotImplementedError


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
    raise NotImplementedError


def e4m3_values() -> Float[Tensor, "256"]:
    """What each of the 256 codes of e4m3 stands for, float32, by code.

    A code is a sign bit s, four bits e and three bits m, from the highest to the lowest:
    (−1)^s · 2^(e − 7) · (1 + m / 8), and where e is 0, (−1)^s · 2^−6 · m / 8. The two codes in
    which all bits of e and m are 1 are NaN, and there is no infinity. (Micikevicius et al., 2022,
    arXiv 2209.05433.)

    To be written here: torch.float8_e4m3fn is not used.
    """
    raise NotImplementedError


@torch.no_grad()
def to_fp8(x: Float[Tensor, "*shape"]) -> UInt8[Tensor, "*shape"]:
    """The e4m3 code of each number: the nearest of e4m3_values, halfway the even code.

    What is above 448, the largest, becomes 448; −0.0 keeps its sign (code 128), and so does what
    is rounded to it; NaN becomes 127. Scale x beforehand if its range asks for it.

    To be written here: torch.float8_e4m3fn is not used.
    """
    raise NotImplementedError


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
    raise NotImplementedError


def from_mxfp4(
    codes: UInt8[Tensor, "*rows features"], exponents: UInt8[Tensor, "*rows blocks"]
) -> Float[Tensor, "*rows features"]:
    """The float32 numbers that codes and exponents of MXFP4 are: ± E2M1 · 2^(exponent − 127)."""
    raise NotImplementedError


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
        raise NotImplementedError

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
        raise NotImplementedError


def quantized_bytes(config: ModelConfig, bits: int, group: int, bytes_per_value: int = 2) -> int:
    """How many bytes the weights of quantize_model(Transformer(config), bits, group) take.

    Of a Linear's matrix, each weight one byte, or half a byte where bits is at most 4; each group
    a scale of bytes_per_value and a zero of one byte. Everything else that count_parameters
    counts: bytes_per_value. (2 bits and 3 bits are kept in four.) config must have pre-norm blocks.

    Raises ValueError naming bits, group (it must divide d_model, d_ff and heads · head_dim),
    bytes_per_value below 1, or norm_position.
    """
    raise NotImplementedError


def save(model: Transformer, path: str | Path) -> None:
    """Write a quantized model into one safetensors file: no pickle, and nothing that is run.

    The tensors are those of its state dict; a tied matrix is written once, as "embedding.weight".
    The header's metadata has "config", the ModelConfig's fields as JSON, and "layers", JSON too:
    {name: [bits, group]} for each QuantizedLinear. Written beside path under another name and
    renamed, so that path is the old file or the new one, whole.
    """
    raise NotImplementedError


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
    raise NotImplementedError
