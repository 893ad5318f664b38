"""What the parts of chapter 19 may be given."""

import torch
from hypothesis import strategies as st
from reference import ex13_transformer
from reference.ex03_linear import Linear

from tests.course.checks.configurations.ex13_transformer import a_config

BITS = (4, 2, 3, 5, 8)
CPU = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def weights(draw, rows="*rows"):
    group = draw("group", (1, 2, 3, 4, 8))
    return draw.tensor("w", (*draw.shape(rows), group * draw("groups", (1, 2, 3, 0)))), group


def quantize(impl, draw):
    w, group = weights(draw)
    bits = draw("bits", BITS)
    codes = draw.asked(impl.quantize, w, bits, group, draw("symmetric", (False, True)))
    draw.asked(impl.quantize, w, bits, group)
    draw.asked(impl.dequantize, *codes)


def dequantize(impl, draw):
    rows, groups, size = draw.shape("*rows"), draw("groups", (1, 2, 3)), draw("size", (1, 2, 3))
    codes, zeros = (
        draw.ints(name, (*rows, n), 256, dtypes=(torch.uint8,))
        for name, n in (("codes", groups * size), ("zeros", groups))
    )
    draw.asked(impl.dequantize, codes, draw.tensor("scales", (*rows, groups)), zeros)


def int4(impl, draw):
    codes = draw.ints("codes", (*draw.shape("*rows"), 2 * draw("pairs", (1, 2, 3, 0))), 16, dtypes=(torch.uint8,))
    draw.asked(impl.pack_int4, codes)
    draw.asked(impl.unpack_int4, draw.ints("packed", "*rows half", 256, dtypes=(torch.uint8,)))


def layer(impl, draw):
    bits, group = draw("bits", BITS), draw("group", (1, 2, 3, 4))
    features, rows = group * draw("groups", (1, 2, 3)), draw("rows", (1, 2, 3))
    dtype, given = draw("dtype", (None, *CPU)), {}
    if draw("with bias", (False, True)):
        given["bias"] = draw("bias", (True, False))
    layer = impl.QuantizedLinear(features, rows, bits, group, dtype=dtype, **given)
    draw.see("new layer", layer)
    layer.codes.copy_(
        draw.ints("codes", tuple(layer.codes.shape), 256 if bits <= 4 else 2**bits, dtypes=(torch.uint8,))
    )
    layer.zeros.copy_(draw.ints("zeros", tuple(layer.zeros.shape), 2**bits, dtypes=(torch.uint8,)))
    layer.scales.copy_(
        draw.tensor("scales", tuple(layer.scales.shape), layer.scales.dtype, ("normal", "small"), grad=False)
    )
    draw.fill(layer)
    layer.train(draw("training", (True, False)))
    draw.asked(layer.dequantized)
    draw.asked(layer, draw.tensor("x", (*draw.shape("*batch"), features)))
    layer.codes.zero_()
    draw.asked(layer, draw.tensor("x", (*draw.shape("*batch"), features)))


def of_a_model(impl, draw):
    model = torch.nn.ModuleDict(
        {
            "down": Linear(4, 2, bias=True),
            "blocks": torch.nn.ModuleList(
                [
                    torch.nn.ModuleDict(
                        {"down": Linear(6, 3), "attention": torch.nn.ModuleDict({"q_proj": Linear(2, 4)})}
                    )
                    for _ in range(11)
                ]
            ),
        }
    )
    draw.fill(model)
    model.to(draw("dtype", CPU)).train(draw("training", (True, False)))
    bits, group = draw("bits", BITS), draw("group", (1, 2))
    skip = draw(
        "skip",
        st.lists(
            st.sampled_from(["down", "blocks.1", "q_proj", "attention.q_proj", "blocks.1.down", "attention"]),
            max_size=2,
        ),
    )
    draw.see(
        "chosen",
        list(impl.layers_to_quantize(model, bits, group, iter(skip) if draw("an iterator", (False, True)) else skip)),
    )
    before = dict(model.named_parameters())
    draw.see("the same", impl.quantize_model(model, bits, group, skip) is model)
    draw.see("model", model)
    draw.see("the same parameters", [before.get(name) is p for name, p in model.named_parameters()])


def gptq(impl, draw):
    w, group = weights(draw, "out_features")
    inputs = draw.tensor("inputs", (*draw.shape("*batch"), w.shape[1]), kinds=("normal", "whole", "small", "large"))
    draw.asked(impl.gptq, w, inputs, draw("bits", BITS), group)


def blocks(impl, draw):
    x = draw.tensor("x", (*draw.shape("*rows"), 32 * draw("blocks", (1, 2))))
    draw.asked(impl.q8_0, x)
    draw.asked(impl.q4_0, x)
    codes = draw.asked(impl.to_mxfp4, x)
    draw.asked(impl.from_mxfp4, *codes)


def tiny_blocks(impl, draw):
    scale = draw("2 to the power of", (0, -126, -140, -149, 100, 127, -20, -128))
    x = (draw.tensor("x", (32,), torch.float64, ("normal", "whole"), grad=False) * 2.0**scale).float()
    draw.asked(impl.to_mxfp4, x)
    draw.asked(impl.q8_0, x)
    draw.asked(impl.q4_0, x)


def fp8(impl, draw):
    draw.asked(impl.e4m3_values)
    x = draw.tensor("x", "*shape", holes=True)
    draw.asked(impl.to_fp8, x)
    near = torch.arange(-40, 40) * 2.0 ** draw("2 to the power of", (-10, -9, -8, -7, 0, 4, 5))
    draw.asked(impl.to_fp8, torch.where(near == 0, draw("zero", (0.0, -0.0, float("nan"), float("inf"))), near))


def cache(impl, draw):
    batch, heads, dim = draw.size("batch"), draw.size("kv_heads"), draw.size("head_dim")
    cache = impl.Int8KVCache(batch, heads, draw("capacity", st.integers(1, 10)), dim, draw("dtype", (None, *CPU)))
    draw.see("new", cache)
    for _ in range(draw("updates", (1, 2, 3))):
        shape = batch, heads, draw("q", (1, 2, 3, 0)), dim
        k, v = (draw.tensor(name, shape, cache.key_scales.dtype, grad=False) for name in "kv")
        draw.see("answer", cache.update(k, v), [k, v, cache.keys, cache.values, cache.key_scales])
        draw.see("given", [k, v])
        draw.see("cache", cache)
        if draw("rewind", (False, False, True)):
            cache.rewind(draw("n", st.integers(0, cache.length)))


def quantized_bytes(impl, draw):
    config = a_config(ex13_transformer, draw, "pre")
    draw.asked(
        impl.quantized_bytes,
        config,
        draw("bits", BITS),
        draw("group", (1, 2)),
        *draw("bytes_per_value", ((), (4,), (1,))),
    )


def file(impl, draw):
    import tempfile
    from pathlib import Path

    config = a_config(ex13_transformer, draw)
    torch.default_generator.manual_seed(0)
    model = ex13_transformer.Transformer(config)
    draw.fill(model)
    model.to(draw("dtype", CPU)).train(draw("training", (True, False)))
    impl.quantize_model(model, draw("bits", BITS), draw("group", (1, 2)), draw("skip", ((), ("down",))))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / draw("name", ("a.b", "model.safetensors"))
        draw.see("saved", impl.save(model, str(path) if draw("a string", (False, True)) else path))
        draw.see("files", [x.name for x in Path(folder).iterdir()])
        loaded = impl.load(path)
        path.write_bytes(b"x" * path.stat().st_size)
        draw.see("loaded", loaded)
        draw.see("tied", loaded.unembedding.weight is loaded.embedding.weight)
        draw.see("memory", [p.is_contiguous() for p in loaded.parameters()])
    draw.see("the model", model)
