"""What only an instructor asks of lesson 19: other shapes, dtypes and extremes."""

import json
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from grader import accepts, dtypes, points, raises, shape, shares_memory
from grader.course.doubles import Elsewhere

SIZES = {"vocab_size": 7, "d_model": 8, "layers": 1, "heads": 2, "d_ff": 6, "max_seq_len": 8}


def _model(impl, draw, **changes):
    return draw.fill(impl.Transformer(impl.ModelConfig(**{**SIZES, **changes}))).eval()


def _parts(answer):
    return dict(zip(("codes", "scales", "zeros"), answer))


@points(2)
def test_quantize_shapes(impl, draw):
    """quantize takes one row, rows of rows, groups of one weight and of a whole row, and no rows at all."""
    x = draw(3, 2, 8).transpose(0, 1)
    return {"one row": _parts(impl.quantize(draw(12), 5, 6)), "not contiguous": _parts(impl.quantize(x, 4, 4)),
            "groups of one": _parts(impl.quantize(draw(2, 3), 3, 1)),
            "a column": _parts(impl.quantize(draw(5, 1), 8, 1, True)),
            "a transposed matrix": _parts(impl.quantize(draw(12, 3).T, 8, 4)),
            "no rows": [shape(part) for part in impl.quantize(draw(2, 4)[:0], 4, 2)]}


def test_quantize_tiny_and_large(impl, draw):
    """Weights of 1e-30 and of 1e30 keep their codes: nothing is added to a scale."""
    return {f"{size}": _parts(impl.quantize(draw(3, 8) * size, 4, 4, symmetric))
            for size, symmetric in ((1e-30, False), (1e30, True))}


@dtypes("float16", "bfloat16")
def test_quantize_scale_that_vanishes(impl, draw, dtype):
    """Where a scale is rounded to 0 in half precision, its group counts as a group of zeros."""
    tiny = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    w = torch.tensor([[0.0, tiny, 0, -tiny], [1.0, 2.0, -3.0, 0.5]], device=draw.device).to(dtype)
    codes, scales, zeros = impl.quantize(w, 8, 4)
    return {"codes": codes, "scales": scales, "zeros": zeros}


def test_quantize_keeps_no_graph(impl, draw):
    """A weight that is a Parameter is read and not changed, and its scales record no gradient."""
    weight = torch.nn.Parameter(draw(4, 8))
    before = weight.detach().clone()
    found = {"quantize": impl.quantize(weight, 4, 4)[1], "gptq": impl.gptq(weight, draw(9, 8), 4, 4)[1],
             "the same": bool((weight == before).all())}
    return {**found, "fp8": impl.to_fp8(weight), "mxfp4": impl.to_mxfp4(torch.nn.Parameter(draw(32)))[0]}


def test_dequantize_keeps_a_graph(impl, draw):
    """Scales can be trained: dequantize passes a gradient on to them."""
    scales = draw.uniform(3, 2).requires_grad_()
    codes, zeros = draw.ints(16, 3, 8).to(torch.uint8), draw.ints(16, 3, 2).to(torch.uint8)
    (impl.dequantize(codes, scales, zeros) * draw(3, 8)).sum().backward()
    return scales.grad


def test_pack_shapes(impl, draw):
    """Packing works along the last axis, of views too, and of no codes at all."""
    codes = draw.ints(16, 4, 2, 3).to(torch.uint8).transpose(0, 2)
    return {"packed": impl.pack_int4(codes), "back": impl.unpack_int4(impl.pack_int4(codes)),
            "none": shape(impl.pack_int4(codes[:0])),
            "no pairs": shape(impl.unpack_int4(codes[..., :0]))}


@points(2)
def test_linear_on_meta(impl, draw):
    """QuantizedLinear makes all of its tensors on the device that it is told, and takes the default dtype."""
    layer = impl.QuantizedLinear(6, 3 + int(draw.ints(20)), 4, 2, bias=True, device="meta")
    return {name: [str(x.device), str(x.dtype), shape(x)] for name, x in layer.state_dict().items()}


@dtypes("float16", "bfloat16")
def test_linear_that_was_cast(impl, draw, dtype):
    """A layer cast to half precision, codes and all, still answers in x's dtype."""
    layer = draw.fill(impl.Linear(8, 4, bias=True))
    codes, zeros = draw.ints(16, 4, 8).to(torch.uint8), draw.ints(16, 4, 2).to(torch.uint8)
    scales = (1 + draw.ints(8, 4, 2)).to(draw.float) / 8        # no cast changes these
    cast = impl.QuantizedLinear.from_linear(layer, 8, 4, codes, scales, zeros).to(dtype)
    return {"codes": cast.codes, "zeros": cast.zeros, "scales": str(cast.scales.dtype),
            "y": cast(draw(2, 8).to(dtype))}


def test_wide_x_under_narrow_scales(impl, draw):
    """Codes with scales in bfloat16 make float32 weights for a float32 x: x is not rounded."""
    layer = draw.fill(impl.Linear(8, 4, bias=True))
    codes, zeros = draw.ints(16, 4, 8).to(torch.uint8), draw.ints(16, 4, 2).to(torch.uint8)
    scales = (1 + draw.ints(8, 4, 2)).to(draw.float) / 8
    return impl.QuantizedLinear.from_linear(layer, 8, 4, codes, scales, zeros).to(torch.bfloat16)(draw(2, 8))


def test_weights_that_change(impl, draw):
    """Ŵ is made anew in every call, in eval mode too: a state dict that is loaded counts from then on."""
    x, (one, two) = draw(2, 8), (draw.fill(impl.Linear(8, 4)).eval() for _ in range(2))
    two.weight.data = draw(4, 8)
    one, two = (impl.QuantizedLinear.from_linear(linear, 4, 4, *impl.quantize(linear.weight, 4, 4))
                for linear in (one, two))
    before = one(x).clone()
    one.load_state_dict(two.state_dict())
    return {"before": before, "after": one(x)}


def test_linear_shapes(impl, draw):
    """No rows, sizes of 1, and an x that is not contiguous."""
    linear = draw.fill(impl.Linear(6, 1))
    layer = impl.QuantizedLinear.from_linear(linear, 4, 3, *impl.quantize(linear.weight, 4, 3))
    return {"none": shape(layer(draw(0, 6))), "transposed": layer(draw(6, 2, 3).transpose(0, 2)).flatten(),
            "one feature": shape(impl.QuantizedLinear(1, 1, 8, 1)(torch.ones(2, 1))),
            "sizes": raises(ValueError, lambda: impl.QuantizedLinear(-2, 4, 4, 2), names="in_features")}


def test_skip_by_whole_parts(impl, draw):
    """skip matches whole parts in a row: neither "q" nor "attention.down" nor part of a part."""
    model = _model(impl, draw)
    call = impl.layers_to_quantize
    return {"q": raises(ValueError, lambda: call(model, 4, 2, ["q"]), names="skip"),
            "not in a row": raises(ValueError, lambda: call(model, 4, 2, ["blocks.attention"]), names="skip"),
            "whole": list(call(model, 4, 2, ["blocks.0.attention.q_proj"])),
            "a generator": list(call(model, 4, 2, (name for name in ["gate", "up"]))),
            "embedding": raises(ValueError, lambda: call(model, 4, 2, ["embedding"]), names="skip")}


def test_skipped_layers_are_not_looked_at(impl, draw):
    """A weight that is not finite does no harm in a layer that skip leaves out."""
    model, which = _model(impl, draw), "qkvo"[int(draw.ints(4))] + "_proj"
    with torch.no_grad():
        model.get_submodule(f"blocks.0.attention.{which}").weight[0, 1] = torch.nan
    return [list(impl.layers_to_quantize(model, 4, 2, [which])),
            raises(ValueError, lambda: impl.layers_to_quantize(model, 4, 2), names=which)]


@points(2)
def test_any_model(impl, draw):
    """quantize_model works on a post-norm encoder and on a model with windows, in training mode too."""
    encoder = _model(impl, draw, norm="layer", norm_position="post", feed_forward="mlp", positions="sinusoidal",
                     causal=False, qkv_bias=True, o_bias=True, mlp_bias=True)
    windows = _model(impl, draw, layers=2, windows=(None, 2)).train()
    ids, found = draw.ints(7, 2, 4), {}
    for name, model in (("encoder", encoder), ("windows", windows)):
        found[name] = {"logits": impl.quantize_model(model, 4, 2)(ids), "training": model.training,
                       "all of them": all(part.training == model.training for part in model.modules())}
    return found


def test_quantized_model_trains_the_rest(impl, draw):
    """A gradient passes through quantized layers to the embedding and the norms."""
    model = impl.quantize_model(_model(impl, draw), 8, 2)
    model(draw.ints(7, 1, 4)).pow(2).sum().backward()
    return {name: p.grad for name, p in model.named_parameters()}


def test_quantizing_twice(impl, draw):
    """A model with no Linear layer left is refused, and stays as it was."""
    model, ids = impl.quantize_model(_model(impl, draw), 4, 2), draw.ints(7, 1, 4)
    alone = draw.fill(impl.Linear(4, 4))        # in it there is no layer, and no name for one
    return {"again": raises(ValueError, lambda: impl.quantize_model(model, 8, 2), names="model"),
            "a Linear": raises(ValueError, lambda: impl.quantize_model(alone, 8, 2), names="model"),
            "logits": model(ids)}


@points(2)
def test_gptq_extremes(impl, draw):
    """gptq of one row, one column, groups of one and of a whole row, one token, 8 and 2 bits."""
    x = draw(30, 3) @ draw(3, 6) + draw(30, 6, scale=0.2)
    return {"one row": _parts(impl.gptq(draw(1, 6), x, 4, 3)),
            "one column": _parts(impl.gptq(draw(4, 1), draw(9, 1), 4, 1)),
            "groups of one": _parts(impl.gptq(draw(3, 6), x, 4, 1)),
            "one group, 2 bits": _parts(impl.gptq(draw(3, 6), x, 2, 6)),
            "8 bits": _parts(impl.gptq(draw(3, 6), x, 8, 2)),
            "one token": _parts(impl.gptq(draw(3, 6), draw(6), 3, 2))}


@points(2)
def test_gptq_in_half_precision(impl, draw):
    """gptq computes in float64 whatever comes in: inputs may be large for float16, and no error is rounded."""
    x = draw(30, 3) @ draw(3, 16) + draw(30, 16, scale=0.2)
    return {"weights": _parts(impl.gptq(draw(6, 16).to(torch.bfloat16), x, 8, 8)),
            "inputs": _parts(impl.gptq(draw(6, 16), x.to(torch.bfloat16), 8, 8)),
            "large inputs": _parts(impl.gptq(draw(6, 16), (300 * x).to(torch.float16), 8, 8))}


def test_gptq_group_of_zeros(impl, draw):
    """Weights that are all 0 stay 0, and no NaN comes of them."""
    weight = draw(3, 8)
    weight[:, :4] = 0
    return _parts(impl.gptq(weight, draw(20, 8), 4, 4))


@points(2)
@dtypes("float64", "float16", "bfloat16")
def test_blocks_of_other_dtypes(impl, draw, dtype):
    """Blocks are computed in float32, of whatever comes in, also of rows that are not contiguous."""
    x = draw(64, 3).to(dtype).T
    codes, exponents = impl.to_mxfp4(x)
    return {"q8_0": impl.q8_0(x), "q4_0": impl.q4_0(x), "mxfp4": codes, "exponents": exponents,
            "rank 3": impl.q4_0(draw(2, 3, 32).to(dtype))}


def test_mxfp4_extremes(impl, draw):
    """The smallest and the largest blocks: exponents do not go below 0, and powers of two are exact."""
    x = torch.stack([torch.full((32,), 2.0**power) for power in (-120, -30, -1, 0, 1, 2, 100)]).to(draw.device)
    x[:, ::2] *= -0.5
    x = x[:, draw(32).argsort()]
    codes, exponents = impl.to_mxfp4(x)
    tiny = impl.to_mxfp4(torch.full((32,), 2.0**-126, device=draw.device))
    return {"codes": codes, "exponents": exponents, "back": impl.from_mxfp4(codes, exponents), "tiny": tiny}


def test_fp8_shapes(impl, draw):
    """to_fp8 takes any shape, a single number and views too; what it rounds to 0 keeps its sign."""
    x = draw(4, 3).T
    return {"view": impl.to_fp8(x), "number": impl.to_fp8(x[0, 0]), "none": shape(impl.to_fp8(x[:0])),
            "tiny": impl.to_fp8(torch.tensor([-1e-9, 1e-9], device=draw.device)),
            "float64": impl.to_fp8(x.to(torch.float64)), "dtype": str(impl.e4m3_values().dtype)}


@dtypes("float16", "bfloat16")
def test_int8_cache_in_half(impl, draw, dtype):
    """In half precision the cache's scales are half too, codes are found with them, and it gives half back."""
    cache = impl.Int8KVCache(1, 2, 4, 8, dtype, draw.device)
    tiny = draw(1, 2, 3, 8) * 1e-5
    tiny[0, 0, 0, 2:] = 0
    tiny[0, 0, 0, :2] = torch.tensor([178, -178], device=draw.device) * 2.0**-24        # float16's scale is 2⁻²⁴
    keys, values = cache.update(draw(1, 2, 3, 8).to(dtype), tiny.to(dtype))
    return {"codes": cache.keys, "value codes": cache.values, "scales": cache.key_scales,
            "dtypes": [str(x.dtype) for x in (keys, values, cache.keys, cache.value_scales)]}


@points(2)
def test_int8_cache_edges(impl, draw):
    """A vector of zeros comes back as zeros; a refused update writes nothing; gradients are refused.

    Storage is made on the device that is asked for.
    """
    cache, new = impl.Int8KVCache(1, 1, 4, 3, draw.float, draw.device), draw(1, 1, 2, 3)
    new[0, 0, 1] = 0
    first = [x.clone() for x in cache.update(new, new * 1000)]
    before = cache.keys.clone()
    refused = raises(ValueError, lambda: cache.update(draw(1, 1, 3, 3), draw(1, 1, 3, 3)), names="capacity")
    grad = raises(ValueError, lambda: cache.update(draw(1, 1, 1, 3).requires_grad_(), draw(1, 1, 1, 3)), names="k")
    with Elsewhere() as there:
        meta = impl.Int8KVCache(1, 1, 4, 3, device=there.device)
        devices = [str(x.device) for x in (meta.keys, meta.values, meta.key_scales, meta.value_scales)]
    return {"first": first, "refused": refused, "grad": grad, "written": bool((cache.keys != before).any()),
            "length": cache.length, "none": [shape(x) for x in cache.update(new[:, :, :0], new[:, :, :0])],
            "meta": devices,
            "shapes": [shape(x) for x in (meta.keys, meta.key_scales, meta.value_scales)],
            "dtypes": [str(x.dtype) for x in (meta.keys, meta.values, meta.key_scales)]}


@points(2)
def test_int8_cache_in_a_model(impl, draw):
    """A model decodes with these caches, prompt first and then token by token."""
    model = _model(impl, draw, layers=2)
    caches = [impl.Int8KVCache(2, 2, 8, 4, draw.float, draw.device) for _ in range(2)]
    ids = draw.ints(7, 2, 6)
    with torch.no_grad():
        return [model(part, caches=caches) for part in ids.split([4, 1, 1], 1)]


def test_bytes_refused(impl, draw):
    """quantized_bytes refuses post-norm blocks and values of less than a byte, and looks at every layer's group."""
    config = impl.ModelConfig(**{**SIZES, "d_ff": 12, "vocab_size": 7 + int(draw.ints(20))})
    post = impl.ModelConfig(**SIZES, norm="layer", norm_position="post", feed_forward="mlp", positions="none",
                            qkv_bias=True, o_bias=True, mlp_bias=True)
    wide = impl.ModelConfig(**{**SIZES, "heads": 1, "head_dim": 6, "d_model": 12, "d_ff": 12})
    return {"post": raises(ValueError, lambda: impl.quantized_bytes(post, 4, 2), names="norm_position"),
            "value": raises(ValueError, lambda: impl.quantized_bytes(config, 4, 2, 0), names="bytes_per_value"),
            "one byte": impl.quantized_bytes(config, 4, 2, 1),
            "d_model": raises(ValueError, lambda: impl.quantized_bytes(config, 4, 12), names="group"),
            "heads": raises(ValueError, lambda: impl.quantized_bytes(wide, 4, 12), names="group"),
            "and 6": impl.quantized_bytes(wide, 4, 6)}


@points(2)
def test_bytes_are_those_of_the_file(impl, draw):
    """The tensors in a saved file take what quantized_bytes says."""
    found = {}
    for bits, tied in ((4, True), (8, False), (2, False)):
        size = 7 + int(draw.ints(20))
        model = impl.quantize_model(_model(impl, draw, tie_embeddings=tied, vocab_size=size), bits, 2)
        with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            path = Path(folder) / "x.safetensors"
            impl.save(model, path)
            with safe_open(path, framework="pt") as opened:
                held = sum(opened.get_tensor(name).nbytes for name in opened.keys())
        value = model.embedding.weight.element_size()
        found[f"{bits} bits, {held} bytes"] = held == impl.quantized_bytes(model.config, bits, 2, value)
    return found


@points(2)
@dtypes("bfloat16", "float16", "float32")
def test_file_keeps_dtypes(impl, draw, dtype):
    """A model saved in half precision is loaded in it, as copies that can be trained, RoPE's tables in float32."""
    model = impl.quantize_model(_model(impl, draw).to(dtype), 4, 2, skip=["up"])
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "x.safetensors"
        impl.save(model, path)
        again = impl.load(path)
        state, before = again.state_dict(), model.state_dict()
        return {"same": {name: bool((state[name].cpu() == before[name].cpu()).all()) for name in before},
                "dtypes": {name: str(x.dtype) for name, x in state.items()},
                "contiguous": all(x.is_contiguous() for x in state.values()),
                "shared": shares_memory(again.norm.weight, model.norm.weight),
                "trainable": sorted(name for name, p in again.named_parameters() if p.requires_grad),
                "bits": [again.blocks[0].attention.k_proj.bits, again.blocks[0].attention.k_proj.group],
                "tables": all(b.dtype == torch.float32 for name, b in again.named_buffers() if "rope" in name),
                "nothing on meta": not any(x.is_meta for x in (*again.parameters(), *again.buffers()))}


def test_saving_over_a_file(impl, draw):
    """save replaces the file that is there, also where it was loaded from, and leaves no other file behind."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path, ids = Path(folder) / "x.safetensors", draw.ints(7, 1, 4)
        turned = impl.quantize_model(_model(impl, draw), 4, 2)
        turned.embedding.weight = torch.nn.Parameter(draw(8, 7).T)      # not contiguous
        impl.save(turned, path)
        first = impl.load(path, draw.device)
        impl.save(impl.quantize_model(_model(impl, draw, tie_embeddings=True), 8, 2), path)
        second = impl.load(path, draw.device)
        return {"first": first(ids), "second": second(ids), "files": [p.name for p in Path(folder).iterdir()],
                "same bits": [first.blocks[0].attention.q_proj.bits, second.blocks[0].attention.q_proj.bits]}


@points(2)
def test_foreign_metadata(impl, draw):
    """Metadata of another shape is a ValueError that names the file, whatever it holds."""
    config = json.dumps(asdict(impl.ModelConfig(**SIZES)))
    found = {}
    for case, metadata in (("a list", {"config": "[]", "layers": "{}"}), ("no config", {"layers": "{}"}),
                           ("bits", {"config": config, "layers": '{"blocks.0.attention.q_proj": [1, 2]}'}),
                           ("group", {"config": config, "layers": '{"blocks.0.attention.q_proj": [4, 5]}'}),
                           ("a norm", {"config": config, "layers": '{"blocks.0.norm1": [4, 2]}'}),
                           ("heads", {"config": config.replace('"heads": 2', '"heads": 3'), "layers": "{}"})):
        with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            path = Path(folder) / "x.safetensors"
            save_file({"norm.weight": torch.ones(8)}, path, metadata)
            found[case] = raises(ValueError, lambda: impl.load(path), names="x.safetensors")
    return found


def test_tied_file_with_a_head(impl, draw):
    """In the file of a tied model an unembedding has no place; in that of an untied one it is needed."""
    found = {}
    for tied in (True, False):
        model = impl.quantize_model(_model(impl, draw, tie_embeddings=tied), 4, 2)
        with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            path = Path(folder) / "x.safetensors"
            impl.save(model, path)
            with safe_open(path, framework="pt") as opened:
                tensors, metadata = {n: opened.get_tensor(n) for n in opened.keys()}, opened.metadata()
            found[f"tied={tied}"] = accepts(lambda: impl.load(path))
            tensors = {n: t.clone() for n, t in tensors.items() if n != "unembedding.weight"}
            if tied:
                tensors["unembedding.weight"] = tensors["embedding.weight"].clone()
            save_file(tensors, path, metadata)
            found[f"changed, tied={tied}"] = raises(ValueError, lambda: impl.load(path), names="unembedding.weight")
    return found
