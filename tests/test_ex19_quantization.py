"""What lesson 19 asks of codes and scales, packed weights, GPTQ, block formats, an int8 cache and a file."""

import json
import os
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from grader import accepts, devices, dtypes, points, raises, shape, shares_memory

QUANTIZERS = {"torch.quantize_per_tensor", "torch.quantize_per_channel", "torch.fake_quantize_per_tensor_affine",
              "torch.fake_quantize_per_channel_affine"}
FORBIDDEN = {**dict.fromkeys(("quantize", "gptq", "q8_0", "q4_0", "Int8KVCache"), QUANTIZERS),
             **dict.fromkeys(("e4m3_values", "to_fp8"), {"torch.float8_e4m3fn"}),
             "load": {"torch.load", "torch.serialization.load"}}

SIZES = {"vocab_size": 11, "d_model": 8, "layers": 2, "heads": 2, "d_ff": 12, "max_seq_len": 16}
TIED = {"tie_embeddings": True, "qk_norm": True}
GPT2 = {"norm": "layer", "feed_forward": "mlp", "positions": "learned", "tie_embeddings": True,
        "qkv_bias": True, "o_bias": True, "mlp_bias": True}


def _model(impl, draw, **changes):
    return draw.fill(impl.Transformer(impl.ModelConfig(**{**SIZES, **changes}))).eval()


def _size(draw, low, high):
    """A size from the seed, low … high."""
    return low + int(draw.ints(high - low + 1, 1))


def _parts(answer):
    return dict(zip(("codes", "scales", "zeros"), answer))


def _linears(module):
    """The names of a model's layers that hold codes."""
    return sorted(name for name, part in module.named_modules() if type(part).__name__ == "QuantizedLinear")


def _with_codes(impl, draw, in_features, out_features, bits, group, bias=False):
    """A QuantizedLinear with drawn codes, scales and zeros."""
    linear = draw.fill(impl.Linear(in_features, out_features, bias=bias))
    codes = draw.ints(2**bits, out_features, in_features).to(torch.uint8)
    zeros = draw.ints(2**bits, out_features, in_features // group).to(torch.uint8)
    scales = (1 + draw.ints(8, out_features, in_features // group)).to(draw.float) / 8    # half precision has Ŵ, too
    return impl.QuantizedLinear.from_linear(linear, bits, group, codes, scales, zeros)


@contextmanager
def _file(tensors=None, metadata=None):
    """A path in a folder of its own; with tensors, a safetensors file that holds them."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "small.safetensors"
        if tensors is not None:
            save_file({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, path, metadata)
        yield path


# -- codes, scales and zeros

@points(3)
def test_codes(impl, draw):
    """quantize: a scale and a zero for each group, and for each weight the nearest code.

    scale = (high − low) / (2^bits − 1), zero = round(−low / scale), code = round(weight / scale) +
    zero, clamped to 0 … 2^bits − 1. A group is neighbours in one row, not the whole tensor.
    """
    group, groups = 2 * _size(draw, 2, 5), _size(draw, 2, 4)
    w = draw(5, group * groups) + draw(5, 1)
    return {f"{bits} bits": _parts(impl.quantize(w, bits, group)) for bits in (8, 4, 3, 2)}


@points(2)
def test_codes_symmetric(impl, draw):
    """symmetric=True: scale = max |weight| / (2^(bits − 1) − 1), and zero is 2^(bits − 1).

    At 8 bits the largest size is divided by 127, not by 128: code 128 stands for 0, and 127 codes lie on each
    side of it that are used.
    """
    group = 2 * _size(draw, 2, 5)
    w = draw(4, 3 * group)
    return {f"{bits} bits": _parts(impl.quantize(w, bits, group, symmetric=True)) for bits in (8, 4, 2)}


@points(2)
def test_codes_zero_is_exact(impl, draw):
    """A weight of 0 comes back as exactly 0, also where all other weights of its group are far from it.

    low is at most 0 and high at least 0, whatever the weights are: so zero is one of the codes.
    """
    w = torch.cat([3 + draw.uniform(1, 6), -3 - draw.uniform(1, 6)])
    one_side = impl.quantize(w, 4, 6)
    with_zero = w.clone()
    with_zero[:, 2] = 0
    return {"one side": _parts(one_side), "with a zero": _parts(impl.quantize(with_zero, 4, 6)),
            "it comes back": impl.dequantize(*impl.quantize(with_zero, 4, 6))[:, 2]}


@points(2)
def test_codes_group_of_zeros(impl, draw):
    """A group of zeros has the scale 0, codes equal to its zero, and no NaN.

    0 / 0 is NaN. Where the scale is 0, weight / scale counts as 0.
    """
    w = draw(2, 12)
    w[0, 4:8] = w[1, :4] = 0
    found = {}
    for symmetric in (False, True):
        answer = impl.quantize(w, 4, 4, symmetric)
        found[f"symmetric={symmetric}"] = {**_parts(answer), "back": impl.dequantize(*answer)}
    return {**found, "tiny weights are no zeros": _parts(impl.quantize(w * 1e-12, 4, 4))}


def test_codes_ties(impl, draw):
    """Halfway between two codes the even one is taken, on both sides of 0.

    torch.round does it. Cutting off decimals rounds toward zero; adding a half first rounds up.
    """
    w = torch.tensor([[7.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, -3.5]], device=draw.device)
    other = torch.tensor([[15.0, 0.5, 1.5, 2.5, 3.5, 4.4, 4.6, 0.0]], device=draw.device)
    odd = torch.tensor([[14.0, -1.0, 0.5, 1.5, 2.5, 3.5, -0.5, 0.0]], device=draw.device)
    order = draw(8).argsort()
    w, other, odd = (x[:, order] for x in (w, other, odd))
    return {"symmetric": impl.quantize(w, 4, 8, symmetric=True)[0], "not symmetric": impl.quantize(other, 4, 8)[0],
            "an odd zero": impl.quantize(odd, 4, 8)[0]}


@points(2)
@dtypes("float32", "bfloat16", "float16", "float64")
def test_codes_dtype(impl, draw, dtype):
    """Scales have w's dtype, and codes are found with the scale as it was rounded to that dtype.

    In bfloat16 a scale keeps 8 bits. A code found with the unrounded scale fits a scale that nobody keeps. Compute
    in float32, cast the scale, cast it back, and divide by that.
    """
    w = draw(6, 128).to(dtype)
    codes, scales, zeros = impl.quantize(w, 8, 64)
    other = impl.quantize(w, 8, 64, symmetric=True)
    return {"codes": codes, "scales": scales, "zeros": zeros, "symmetric": other[0],
            "dtypes": [str(x.dtype) for x in (codes, scales, zeros)]}


def test_codes_refuses(impl, draw):
    """bits outside 2 … 8, a group that does not divide the row, and a w that is not finite are ValueErrors.

    check_sizes, which is given, refuses bits and group.
    """
    w, broken, endless = draw(2, 12), draw(2, 12), draw(2, 12)
    broken[1, 3], endless[0, 0] = torch.nan, torch.inf
    many, below = _size(draw, 10, 40), -_size(draw, 1, 9)
    cases = {f"bits {bits}": (w, bits, 4, "bits") for bits in (below, 1, 9, many)} | {
        f"group {group}": (w, 4, group, "group") for group in (below, 0, 5)} | {
        "NaN": (broken, 4, 4, "w"), "infinite": (endless, 4, 4, "w")}
    return {case: raises(ValueError, lambda: impl.quantize(x, bits, group), names=name)
            for case, (x, bits, group, name) in cases.items()} | {
        "8 and 2 are fine": [accepts(lambda: impl.quantize(w, bits, 12)) for bits in (2, 8)]}


@points(2)
def test_dequantize(impl, draw):
    """dequantize: scale · (code − zero), which may be negative, in the scales' dtype.

    uint8 has no negative numbers: 3 − 5 is 254 there. Cast before you subtract.
    """
    groups, size = _size(draw, 2, 4), _size(draw, 2, 5)
    codes = draw.ints(256, 3, groups * size).to(torch.uint8)
    zeros = draw.ints(256, 3, groups).to(torch.uint8)
    scales = draw.uniform(3, groups)
    return {"float32": impl.dequantize(codes, scales, zeros),
            "float16": impl.dequantize(codes, scales.to(torch.float16), zeros),
            "one row": impl.dequantize(codes[0], scales[0], zeros[0])}


@points(2)
def test_pack_int4(impl, draw):
    """pack_int4 puts the first code of two neighbours into the low four bits of a byte, the second into the high.

    codes[..., 0::2] are the first ones. Shifting left by 4 is multiplying by 16.
    """
    codes = draw.ints(16, 3, 2 * _size(draw, 2, 6)).to(torch.uint8)
    packed = impl.pack_int4(codes)
    return {"packed": packed, "unpacked": impl.unpack_int4(packed), "one row": impl.pack_int4(codes[0]),
            "other bytes": impl.unpack_int4(draw.ints(256, 2, 5).to(torch.uint8))}


def test_pack_int4_refuses(impl, draw):
    """An odd number of codes, or a code above 15, is a ValueError that names codes.

    A code above 15 would run over into its neighbour's bits.
    """
    odd = draw.ints(16, 2, 5).to(torch.uint8)
    large = torch.tensor([_size(draw, 1, 15), 16], dtype=torch.uint8, device=draw.device)
    return {"odd": raises(ValueError, lambda: impl.pack_int4(odd), names="codes"),
            "16": raises(ValueError, lambda: impl.pack_int4(large), names="codes"),
            "15": impl.pack_int4(large - 1)}


# -- a layer, a model

@points(2)
def test_quantized_linear(impl, draw):
    """A QuantizedLinear computes x Ŵᵀ + b with the weight that its codes stand for, packed or not.

    Unpack where bits is at most 4, dequantize, cast to x's dtype, multiply: anew in every pass, so that nothing but
    the codes is kept, and other scales give another answer.
    """
    group, found = 2 * _size(draw, 1, 3), {}
    x = draw(2, 3, 2 * group)
    for bits, bias in ((8, True), (5, False), (4, False), (2, True)):
        layer = _with_codes(impl, draw, 2 * group, 5, bits, group, bias)
        found[f"{bits} bits"] = {"y": layer(x), "weight": layer.dequantized(), "a vector": layer(x[0, 0])}
        layer.scales.copy_(2 * layer.scales)
        found[f"{bits} bits"]["twice the scales"] = layer.eval()(x)
    return found


@points(2)
def test_quantized_linear_buffers(impl, draw):
    """Codes, scales and zeros are buffers of the shapes and dtypes that the docstring says, at first all 0.

    Up to 4 bits two codes share a byte. The bias alone is a Parameter.
    """
    found, rows = {}, _size(draw, 3, 40)
    for bits, bias, dtype in ((8, False, None), (5, False, None), (4, True, torch.bfloat16),
                              (3, False, torch.float16)):
        layer = impl.QuantizedLinear(12, rows, bits, 4, bias=bias, dtype=dtype, device=draw.device)
        found[f"{bits} bits"] = {
            "tensors": {name: [shape(x), str(x.dtype), bool((x == 0).all())]
                        for name, x in layer.state_dict().items()},
            "parameters": [name for name, _ in layer.named_parameters()],
            "bits and group": [layer.bits, layer.group], "no bias": layer.bias is None}
    return found


@points(2)
@dtypes("float32", "bfloat16", "float16")
def test_quantized_linear_dtype(impl, draw, dtype):
    """The layer answers in x's dtype, whatever dtype its scales and bias have, and gradients reach x and the bias.

    dequantized() gives the scales' dtype: cast it to x's, and the bias too.
    """
    layer, x = _with_codes(impl, draw, 8, 6, 4, 4), draw(3, 8).to(dtype).requires_grad_()
    y = layer(x)
    (y * draw(3, 6).to(dtype)).sum().backward()
    biased = _with_codes(impl, draw, 8, 6, 8, 4, bias=True)
    biased(draw(3, 8)).sum().backward()
    with torch.no_grad():
        biased.bias.copy_((8 * biased.bias).round() / 8)    # half precision has it, and x
        with_bias = biased(((draw.ints(17, 3, 8) - 8) / 8).to(dtype))
    return {"y": y, "y with a bias": with_bias, "grad of x": x.grad,
            "grad of the bias": biased.bias.grad,
            "what can be trained": [name for name, p in biased.named_parameters() if p.requires_grad]}


def test_quantized_linear_refuses(impl, draw):
    """Sizes below 1, bits, a group that does not divide, and an odd in_features to be packed are ValueErrors.

    An x of another width is one, too.
    """
    make, layer = impl.QuantizedLinear, _with_codes(impl, draw, 8, 6, 4, 4)
    below = -_size(draw, 1, 20)
    return {**{f"in_features {low}": raises(ValueError, lambda: make(low, 3, 4, 1), names="in_features")
               for low in (0, below)},
            **{f"out_features {low}": raises(ValueError, lambda: make(4, low, 4, 4), names="out_features")
               for low in (0, below)},
            **{f"bits {bits}": raises(ValueError, lambda: make(4, 3, bits, 4), names="bits")
               for bits in (below, 1, 9)},
            "group": raises(ValueError, lambda: make(4, 3, 4, 3), names="group"),
            "odd": raises(ValueError, lambda: make(9, 3, 4, 3), names="in_features"),
            "odd, not packed": [accepts(lambda: make(9, 3, bits, 3)) for bits in (5, 8)],
            "x": raises(ValueError, lambda: layer(draw(2, 7)), names="x")}


@points(2)
def test_layers_to_quantize(impl, draw):
    """layers_to_quantize names every Linear of the model, and neither embedding nor unembedding.

    named_modules walks through a model. skip leaves out by whole parts of a name: "blocks.1" is
    not "blocks.10".
    """
    many = _model(impl, draw, layers=11, heads=1)
    found, one = {}, f"blocks.{_size(draw, 2, 10)}"
    for skip in ((), ("down",), ("attention", "up"), ("attention.q_proj", "blocks.0"), ["blocks.1"], [one, "gate"]):
        found[str(skip)] = list(impl.layers_to_quantize(many, 4, 4, skip))
    found["with biases"] = list(impl.layers_to_quantize(_model(impl, draw, **GPT2), 8, 2))
    return found


def test_layers_to_quantize_refuses(impl, draw):
    """A group that does not fit names every layer that it does not fit; an idle skip names itself.

    Collect all layers in question before you raise. A name in skip that fits no layer is a slip of the pen.
    """
    model, call = _model(impl, draw), impl.layers_to_quantize
    odd = _model(impl, draw, d_ff=9)
    with torch.no_grad():
        broken = _model(impl, draw)
        broken.blocks[1].attention.k_proj.weight[0, 0] = torch.nan
        broken.blocks[0].feed_forward.up.weight[1, 2] = torch.inf
    down = {f"blocks.{n}.feed_forward.down" for n in range(2)}

    def names(call, wanted):
        try:
            call()
        except ValueError as error:
            return sorted(name for name in wanted if name in str(error))
        return "no ValueError"

    many, below = _size(draw, 10, 40), -_size(draw, 1, 20)
    return {**{f"bits {bits}": raises(ValueError, lambda: call(model, bits, 4), names="bits") for bits in (1, 9, many)},
            **{f"group {group}": raises(ValueError, lambda: call(model, 4, group), names="group")
               for group in (8, 0, below)},
            "its layers": names(lambda: call(model, 4, 8), down),
            "odd": names(lambda: call(odd, 4, 1), down),
            "odd, not packed": [accepts(lambda: call(odd, bits, 1)) for bits in (5, 8)],
            "skip": raises(ValueError, lambda: call(model, 4, 4, ("upp",)), names="skip"),
            "idle": names(lambda: call(model, 4, 4, ("down", "blocks.2", "ga")), {"blocks.2", "ga"}),
            "none left": raises(ValueError, lambda: call(model, 4, 4, ("blocks",)), names="model"),
            "not finite": names(lambda: call(broken, 4, 4),
                                {"blocks.1.attention.k_proj", "blocks.0.feed_forward.up"}),
            "skipped": accepts(lambda: call(model, 4, 8, ("down",)))}


@points(3)
def test_quantize_model(impl, draw):
    """quantize_model puts a QuantizedLinear in the place of every Linear that is not skipped, in place.

    The logits are those of the rounded weights, with the old biases. The model that comes back is the one that
    was given.
    """
    ids, found = draw.ints(11, 2, 5), {}
    for name, kind, bits in (("Llama", {}, 4), ("tied", TIED, 8), ("GPT-2", GPT2, 3)):
        model = _model(impl, draw, **kind)
        same = impl.quantize_model(model, bits, 4, skip=("blocks.0.attention.v_proj",))
        found[name] = {"logits": model(ids), "the same model": same is model, "layers": _linears(model)}
    return found


@points(2)
def test_quantize_model_leaves_the_rest(impl, draw):
    """Embedding, unembedding, norms and biases stay the objects that they were, and a tied pair stays tied.

    Replace Linear layers and nothing else.
    """
    model = _model(impl, draw, **GPT2, layers=_size(draw, 1, 5))
    kept = {name: p for name, p in model.named_parameters(remove_duplicate=False)}
    impl.quantize_model(model, 4, 2)
    after = dict(model.named_parameters(remove_duplicate=False))
    return {"parameters": sorted(after), "all as before": all(after[name] is kept[name] for name in after),
            "tied": model.unembedding.weight is model.embedding.weight,
            "trainable": all(p.requires_grad for p in after.values())}


def test_quantize_model_refuses(impl, draw):
    """Where anything is wrong, quantize_model raises before it has changed a single layer.

    layers_to_quantize looks at all layers; call it before the loop.
    """
    model = _model(impl, draw)
    said = {"group": raises(ValueError, lambda: impl.quantize_model(model, 4, 8), names="group"),
            "bits": raises(ValueError, lambda: impl.quantize_model(model, 0, 4), names="bits"),
            "skip": raises(ValueError, lambda: impl.quantize_model(model, 4, 4, ["nothing"]), names="skip")}
    said["by then"] = model(draw.ints(11, 1, 3))
    with torch.no_grad():
        model.blocks[1].feed_forward.down.weight[2, 3] = torch.nan
    said["NaN"] = raises(ValueError, lambda: impl.quantize_model(model, 4, 4), names="blocks.1.feed_forward.down")
    return {**said, "changed": _linears(model)}


# -- GPTQ

def _correlated(draw, tokens, features):
    """Inputs whose features go together, as those of a real layer do."""
    return draw(tokens, 4) @ draw(4, features) + draw(tokens, features, scale=0.3)


@points(3)
def test_gptq(impl, draw):
    """gptq rounds a column, divides its error by U[j, j], and lets the columns after it make up for the error.

    The grid of a group is taken when its first column is reached, from the weights as they are then.
    """
    group, groups = _size(draw, 3, 5), _size(draw, 2, 3)
    weight, x = draw(6, group * groups), _correlated(draw, 40, group * groups)
    return {f"{bits} bits": _parts(impl.gptq(weight, x, bits, group)) for bits in (4, 3)}


def test_gptq_of_independent_inputs(impl, draw):
    """Where features have nothing to do with each other, gptq can make up for nothing: it is quantize.

    H is diagonal then, and so is U: all that is subtracted from later columns is 0.
    """
    weight, x = draw(5, 8), torch.eye(8, device=draw.device, dtype=draw.float) * 3
    return _parts(impl.gptq(weight, x, 4, 4))


@points(2)
def test_gptq_of_few_tokens(impl, draw):
    """Fewer tokens than features, and a feature that is always 0, are fine: H is dampened.

    Without 0.01 · mean(diag H) on its diagonal, H has no inverse.
    """
    weight, x = draw(4, 12), _correlated(draw, 5, 12)
    dead = _correlated(draw, 30, 12)
    dead[:, [0, 7]] = 0
    return {"5 tokens": _parts(impl.gptq(weight, x, 3, 4)), "two dead features": _parts(impl.gptq(weight, dead, 3, 6))}


def test_gptq_shapes(impl, draw):
    """Inputs may have a batch, weight may be in half precision, and neither is changed.

    Put all tokens into rows. Inputs may be in half precision, too: cast them to float64 before XᵀX. Work on a
    float64 copy: weight itself belongs to the model.
    """
    weight, x = draw(4, 8), _correlated(draw, 24, 8)
    before = weight.clone()
    half = weight.to(torch.bfloat16)
    answer = impl.gptq(weight, x.reshape(2, 3, 4, 8), 4, 4)
    halved = impl.gptq(half, x.to(torch.bfloat16), 4, 4)
    double = weight.to(torch.float64)
    kept = double.clone()
    impl.gptq(double, x, 4, 4)
    return {"a batch": _parts(answer), "weight is unchanged": bool((weight == before).all()),
            "and in float64": bool((double == kept).all()),
            "bfloat16": [halved[0], str(halved[1].dtype), halved[2]]}


def test_gptq_refuses(impl, draw):
    """bits, group, numbers that are not finite, and inputs that are all 0 are ValueErrors that name them.

    Inputs of zeros say nothing about what a column matters.
    """
    weight, x = draw(4, 8), draw(20, 8)
    nan = torch.full((3, 8), torch.nan, device=draw.device, dtype=draw.float)
    many = _size(draw, 9, 40)
    cases = {f"bits {many}": (weight, x, many, 4, "bits"), "group": (weight, x, 4, 3, "group"),
             "weight": (weight * torch.inf, x, 4, 4, "weight"), "inputs": (weight, nan, 4, 4, "inputs"),
             "all 0": (weight, x * 0, 4, 4, "inputs"), "none": (weight, x[:0], 4, 4, "inputs")}
    return {case: raises(ValueError, lambda: impl.gptq(*given), names=name)
            for case, (*given, name) in cases.items()}


# -- blocks

def _block_rows(draw):
    """Rows of two blocks: ordinary numbers, ties, equal sizes of both signs, a block of zeros."""
    x = draw(6, 64)
    x[1, :32] = torch.arange(-16, 16) + 0.5
    x[1, 0] = 127
    x[5, :32] = torch.arange(32) % 15 - 6.5
    x[5, 20] = 8
    x[2, 32:] = 0
    x[3, :] = x[3, :].clamp(-0.9, 0.9)
    x[3, 7], x[3, 9], x[3, 40], x[3, 50] = -2.0, 2.0, 2.0, -2.0
    return x


@points(2)
def test_q8_0(impl, draw):
    """q8_0: for 32 numbers the scale in float16, two bytes, then 32 codes in −127 … 127 as int8.

    Here ties go away from zero, as C's roundf does, and the codes are found with the scale in float32.
    x.view(torch.uint8) shows the bytes of a float16.
    """
    return {"rows": impl.q8_0(_block_rows(draw)), "one block": impl.q8_0(draw(32, scale=0.02))}


@points(2)
def test_q4_0(impl, draw):
    """q4_0: the scale is the number of the largest size divided by −8, sign and all; codes 0 … 15.

    Byte j of the 16 has code j in its low and code j + 16 in its high four bits. Add 8.5 and cut off.
    """
    return {"rows": impl.q4_0(_block_rows(draw)), "one block": impl.q4_0(draw(32, scale=0.02))}


def test_blocks_refuse(impl, draw):
    """Rows that are no multiple of 32, empty rows, and numbers that are not finite are ValueErrors naming x.

    to_mxfp4 has the same blocks and refuses the same.
    """
    broken = draw(2, 32)
    broken[1, 4] = torch.nan
    over, under = _size(draw, 33, 63), _size(draw, 1, 31)
    cases = {f"{over} numbers": draw(2, over), f"{under} numbers": draw(2, under), "NaN": broken,
             "none": broken[:, :0]}
    return {name: {case: raises(ValueError, lambda: getattr(impl, name)(x), names="x") for case, x in cases.items()}
            for name in ("q8_0", "q4_0", "to_mxfp4")}


# -- small floating-point numbers

@points(2)
def test_e4m3_values(impl, draw):
    """e4m3_values: what each of the 256 codes stands for, from the bits of sign, exponent and mantissa.

    Codes 0 … 7 have the exponent bits 0 and no leading 1. Codes 127 and 255 are NaN; 126 is 448.
    """
    return impl.e4m3_values()


@points(2)
@dtypes("float32", "bfloat16", "float16", "float64")
def test_to_fp8(impl, draw, dtype):
    """to_fp8 gives the code of the nearest value: halfway the even code, above 448 the largest.

    Between two neighbours in the table lies one middle; the number of middles below |x| is the code.
    Only where |x| is itself a middle, look whether that code is even. What is a little above it in float64 is not.
    """
    table = impl.e4m3_values()[:127].to(draw.device)
    middle = ((table[1:] + table[:-1]) / 2).to(dtype)
    special = torch.tensor([0.0, -0.0, 448.0, 500.0, 1e4, -1e4, torch.inf, -torch.inf, torch.nan,
                            2.0**-9, 2.0**-10, -(2.0**-11)], device=draw.device).to(dtype)
    return {"numbers": impl.to_fp8((draw(4, 25) * torch.exp2(4 * draw(4, 25))).to(dtype)),
            "halfway": impl.to_fp8(middle), "halfway, negative": impl.to_fp8(-middle),
            "a little above": impl.to_fp8((middle.to(torch.float64) * (1 + 2.0**-40)).to(dtype)),
            "special": impl.to_fp8(special)}


@points(2)
def test_to_mxfp4(impl, draw):
    """to_mxfp4: each 32 numbers share a power of two, and each becomes the nearest of E2M1.

    The power is 2^(floor(log2(max |x|)) − 2): the largest number then lies in 4 … 8, and what is
    above 6 becomes 6. Negative numbers have 8 more.
    """
    x = draw(3, 64) * torch.exp2(draw(3, 1).round() * 3)
    x[1, 32:] = 0
    x[2, 0], x[2, 1] = 8.0, -0.0
    x[0, :32] = x[0, :32].clamp(-7, 7)
    x[0, 3] = 8 - 2.0**-21                             # the last number below 8; its log2 is rounded to 3
    ties = torch.tensor([4.0, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], device=draw.device).repeat(4)
    ties = ties * torch.where(torch.arange(32, device=draw.device) < 16, 1.0, -1.0)
    return {name: dict(zip(("codes", "exponents"), impl.to_mxfp4(numbers)))
            for name, numbers in (("numbers", x), ("halfway", ties), ("above 6", ties * 1.5))}


def test_from_mxfp4(impl, draw):
    """from_mxfp4 reads codes and exponents: ± E2M1 · 2^(exponent − 127), in float32.

    Codes 8 … 15 are the negative ones. A block has 32 codes and one exponent.
    """
    codes = draw.ints(16, 3, 64).to(torch.uint8)
    return impl.from_mxfp4(codes, (112 + draw.ints(30, 3, 2)).to(torch.uint8))


# -- a cache

@points(2)
def test_int8_cache(impl, draw):
    """Int8KVCache keeps int8 codes and one scale per vector, and gives back scale · code, all positions so far.

    A scale for each position of each head: a scale for all positions would have to change with each
    new token. It is rounded to dtype first, and the codes are found with the rounded one.
    """
    cache, found = impl.Int8KVCache(2, 3, 8, 4, draw.float, draw.device), {}
    for number, q in enumerate((3, 1, 2), 1):
        k, v = draw(2, 3, q, 4) * torch.exp2(draw(2, 3, q, 1)), draw(2, 3, q, 4)
        keys, values = cache.update(k, v)
        found[f"update {number}"] = {"keys": keys.clone(), "values": values.clone(), "length": cache.length}
        keys.zero_()                                    # the caller's own: what is kept stays
        values.zero_()
    half = impl.Int8KVCache(1, 2, 16, 32, torch.bfloat16, draw.device)
    half.update(draw(1, 2, 16, 32).to(torch.bfloat16), draw(1, 2, 16, 32).to(torch.bfloat16))
    return {**found, "codes": cache.keys, "scales": cache.key_scales[:, :, :6], "value codes": cache.values,
            "bfloat16, codes": half.keys, "bfloat16, value codes": half.values}


@points(2)
def test_int8_cache_is_a_cache(impl, draw):
    """It rewinds, resets and refuses as KVCache does, and leaves itself as it was when it refuses.

    Make it a subclass. cache_must_fit compares with a storage: give it one of the dtype that comes in.
    """
    cache, new = impl.Int8KVCache(1, 2, 5, 4, draw.float, draw.device), draw(1, 2, 3, 4)
    cache.update(new, draw(1, 2, 3, 4))
    said = {"full": raises(ValueError, lambda: cache.update(new, new), names="capacity"),
            "k": raises(ValueError, lambda: cache.update(draw(1, 1, 1, 4), draw(1, 2, 1, 4)), names="k"),
            "v": raises(ValueError, lambda: cache.update(draw(1, 2, 1, 4), draw(1, 2, 1, 3)), names="v"),
            "dtype": raises(ValueError, lambda: cache.update(new[:, :, :1].to(torch.float16), new[:, :, :1]),
                            names="k"),
            "n": raises(ValueError, lambda: cache.rewind(4), names="n"),
            "size": raises(ValueError, lambda: impl.Int8KVCache(1, 0, 5, 4), names="kv_heads"),
            "length": cache.length, "a KVCache": isinstance(cache, impl.KVCache)}
    cache.rewind(1)
    said["rewound"] = cache.update(draw(1, 2, 1, 4), draw(1, 2, 1, 4))
    cache.reset()
    said["reset"] = cache.update(draw(1, 2, 5, 4), draw(1, 2, 5, 4))
    return said


# -- a file

@points(2)
def test_quantized_bytes(impl, draw):
    """quantized_bytes predicts what a quantized model takes: codes, scales, zeros, and the rest as it was.

    Half a byte for a code up to 4 bits; a scale and one byte for each group; a tied matrix once.
    """
    found = {}
    for name, kind in (("Llama", {}), ("tied", TIED), ("GPT-2", GPT2), ("grouped", {"heads": 4, "kv_heads": 2})):
        config = impl.ModelConfig(**{**SIZES, "d_ff": 4 * _size(draw, 2, 5), **kind})
        found[name] = {f"{bits} bits": impl.quantized_bytes(config, bits, group, value)
                       for bits, group, value in ((8, 4, 2), (5, 2, 2), (4, 4, 4), (2, 2, 2))}
        found[f"{name}, default"] = impl.quantized_bytes(config, 4, 4)
    config = impl.ModelConfig(**SIZES)
    found["group"] = raises(ValueError, lambda: impl.quantized_bytes(config, 4, 8), names="group")
    found["bits"] = raises(ValueError, lambda: impl.quantized_bytes(config, 1, 4), names="bits")
    return found


@points(2)
def test_save(impl, draw):
    """save writes one safetensors file with the state dict's tensors, a tied matrix once, and what made them.

    The metadata's texts are JSON: "config" has the fields of the ModelConfig, "layers" gives each
    quantized layer's bits and group. A file that is there already is not written over: write beside it, then
    os.replace. Whoever holds the old file (here by a second name) still has it whole.
    """
    found = {}
    for name, kind in (("tied", TIED), ("untied", {})):
        model = impl.quantize_model(_model(impl, draw, **kind), 4, 4, skip=("gate",))
        with _file({"old": torch.ones(999)}) as path, TemporaryDirectory(dir=path.parent.parent) as other:
            old = path.read_bytes()
            os.link(path, held := Path(other) / "held")
            impl.save(model, str(path))
            found[f"{name}, the old file is whole"] = held.read_bytes() == old
            with safe_open(path, framework="pt") as opened:
                metadata = opened.metadata()
            found[name] = {
                "tensors": load_file(path, device="cpu"),
                "config": json.loads(metadata["config"]) == json.loads(json.dumps(asdict(model.config))),
                "layers": json.loads(metadata["layers"]), "files": [p.name for p in path.parent.iterdir()]}
    return found


@points(3)
def test_load(impl, draw):
    """load gives the model that was saved: the same logits, tied where it was, in eval mode.

    _empty, which is given, makes the model without numbers. Then it is as in lesson 16's build_model.
    """
    ids, found = draw.ints(11, 2, 5), {}
    for name, kind, bits in (("tied", TIED, 4), ("GPT-2", GPT2, 8), ("untied", {}, 3)):
        model = impl.quantize_model(_model(impl, draw, **kind), bits, 4, skip=("blocks.1.attention.q_proj",))
        with _file() as path:
            impl.save(model, path)
            again = impl.load(path, draw.device)
            found[name] = {"logits": again(ids), "layers": _linears(again), "training": again.training,
                           "tied": again.unembedding.weight is again.embedding.weight,
                           "still mapped": shares_memory(again.embedding.weight, model.embedding.weight)}
    return found


@devices("cpu")     # elsewhere they are copied anyway
def test_load_copies(impl, draw):
    """A loaded model's tensors are copies: whoever writes over the file leaves the model alone.

    safetensors maps a file into memory. Here the file is filled with zeros after it was loaded.
    """
    model = impl.quantize_model(_model(impl, draw, **TIED), 4, 4)
    with _file() as path:
        impl.save(model, path)
        again = impl.load(path, draw.device)
        size = path.stat().st_size
        with open(path, "r+b") as file:
            file.write(bytes(size))
        return again(draw.ints(11, 2, 5))


@points(3)
def test_load_lists_all_that_is_wrong(impl, draw):
    """One ValueError names every tensor that is missing, unknown, of the wrong shape or of the wrong kind.

    Collect the problems before you raise. Codes are uint8; everything that is no code and no zero is floating-point.
    """
    model = impl.quantize_model(_model(impl, draw), 4, 4)
    with _file() as path:
        impl.save(model, path)
        with safe_open(path, framework="pt") as opened:
            tensors, metadata = {name: opened.get_tensor(name) for name in opened.keys()}, opened.metadata()
    one = "kvo"[_size(draw, 0, 2)]
    q, k = f"blocks.0.attention.{one}_proj.codes", "blocks.1.attention.k_proj.scales"
    up = "blocks.1.feed_forward.up.zeros"
    wrong = {name: tensor for name, tensor in tensors.items() if name != "norm.weight"}
    wrong |= {"score": torch.ones(2), q: tensors[q][:, :3], k: tensors[k].to(torch.int16), up: tensors[up].float()}
    mixed = tensors | {"norm.weight": tensors["norm.weight"].to(torch.float16)}
    found = {}
    for case, given, names in (("many", wrong, ("norm.weight", "score", q, "8, 3", "8, 4", k, up)),
                               ("missing", {n: t for n, t in tensors.items() if n != q}, (q, "small.safetensors")),
                               ("mixed", mixed, ("float16", "float32"))):
        with _file(given, metadata) as path:
            try:
                impl.load(path)
                found[case] = "no error"
            except ValueError as error:
                found[case] = [name for name in names if name in str(error)]
    return found


@points(2)
def test_load_refuses_strangers(impl, draw):
    """A file that is missing, cut short, no safetensors file or no quantized model is a ValueError that names it.

    read_file of lesson 16 refuses what is cut short; _empty what has other metadata.
    """
    model = impl.quantize_model(_model(impl, draw), 4, 4)
    found = {}
    with _file() as path:
        found["missing"] = raises(ValueError, lambda: impl.load(path), names=path.name)
        impl.save(model, path)
        whole = path.read_bytes()
        for cut in (0, 30, _size(draw, 31, len(whole) - 2), len(whole) - 1):
            path.write_bytes(whole[:cut])
            where = cut if cut < len(whole) - 1 else "the end"
            found[f"cut at {where}"] = raises(ValueError, lambda: impl.load(path), names=path.name)
        path.write_bytes(b"PK\x03\x04 a pickle in a zip")
        found["no safetensors"] = raises(ValueError, lambda: impl.load(str(path)), names=path.name)
    config = json.dumps(asdict(model.config))
    for case, metadata in (("no metadata", None), ("other metadata", {"format": "pt"}),
                           ("no JSON", {"config": "{", "layers": "{}"}),
                           ("no such layer", {"config": config, "layers": '{"nothing": [4, 4]}'})):
        with _file({"norm.weight": torch.ones(8)}, metadata) as path:
            found[case] = raises(ValueError, lambda: impl.load(path), names=path.name)
    return found
