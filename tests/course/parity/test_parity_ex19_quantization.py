"""Chapter 19's reference against the gguf package, torch's float8, and GPTQ written another way."""

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import MXFP4
from gguf.quants import dequantize as gguf_dequantize
from gguf.quants import quantize as gguf_quantize

from given.torch_kernels import use_torch_kernels
from grader.course import chapters
from solutions.ex11_kv_cache import KVCache
from solutions.ex13_transformer import GPT2, POCKET, ModelConfig, Transformer
from solutions.ex15_generation import generate
from solutions.ex16_pretrained import load_pretrained
from solutions.ex19_quantization import (
    E2M1,
    Int8KVCache,
    QuantizedLinear,
    dequantize,
    e4m3_values,
    from_mxfp4,
    gptq,
    load,
    pack_int4,
    q4_0,
    q8_0,
    quantize,
    quantize_model,
    quantized_bytes,
    save,
    to_fp8,
    to_mxfp4,
    unpack_int4,
)
from tests.course.close import assert_close

POCKET_FOLDER = chapters.ROOT / "assets" / "pocket"
TYPES = gguf.GGMLQuantizationType


def rows():
    """Numbers of many sizes, ties, equal sizes of both signs, zeros, and one number alone."""
    torch.manual_seed(0)
    yield from (torch.randn(40, 96) * scale for scale in (1e-6, 0.02, 1.0, 3000.0))
    ties = torch.arange(-16, 16) + 0.5
    yield torch.cat([ties, torch.tensor([127.0]), ties[1:], torch.tensor([-127.0]), ties[1:]])[None]
    x = torch.zeros(4, 64)
    x[1, 5], x[2, 3], x[2, 40], x[3] = -1.0, 4.0, -4.0, torch.arange(64) % 7 - 3.0
    x[3, :2] = torch.tensor([8.0, -8.0])
    yield x


@pytest.mark.parametrize("ours, kind", [(q8_0, TYPES.Q8_0), (q4_0, TYPES.Q4_0)], ids=["Q8_0", "Q4_0"])
def test_blocks_are_ggufs_bit_for_bit(ours, kind):
    for x in rows():
        assert np.array_equal(ours(x).numpy(), gguf_quantize(x.numpy(), kind))
    for name, weight in load_pretrained(POCKET_FOLDER).state_dict().items():
        if weight.dim() == 2:
            assert np.array_equal(ours(weight).numpy(), gguf_quantize(weight.float().numpy(), kind)), name


def test_every_code_of_e4m3_is_torchs():
    codes = torch.arange(256, dtype=torch.uint8)
    torch.testing.assert_close(e4m3_values(), codes.view(torch.float8_e4m3fn).float(),
                               rtol=0, atol=0, equal_nan=True)
    numbers = e4m3_values()[~e4m3_values().isnan()]
    assert torch.equal(to_fp8(numbers), codes[~e4m3_values().isnan()])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_rounding_to_e4m3_is_torchs(dtype):
    torch.manual_seed(0)
    values = e4m3_values()[:127]
    half = (values[1:] + values[:-1]) / 2
    x = torch.cat([half, -half, torch.nextafter(half, half + 1), torch.nextafter(half, half - 1),
                   torch.randn(5000) * torch.exp2(torch.randint(-12, 12, (5000,))),
                   torch.tensor([0.0, -0.0, 464.0, 465.0, 480.0, 1e9, torch.inf, -torch.inf])])
    x = x.to(dtype)
    assert torch.equal(to_fp8(x), x.to(torch.float8_e4m3fn).view(torch.uint8))
    nan = torch.tensor([torch.nan], dtype=dtype)        # torch keeps a sign, which depends on the machine
    assert to_fp8(nan) == nan.to(torch.float8_e4m3fn).view(torch.uint8) & 127 == 127


def test_every_code_of_mxfp4_is_ggufs():
    """All 16 codes under all exponents for which float32 has no rounding of its own, as gguf reads them."""
    assert [2 * value for value in E2M1] == list(MXFP4.kvalues[:8])
    codes = torch.arange(32, dtype=torch.uint8).remainder(16).expand(250, 32)
    exponents = torch.arange(2, 252, dtype=torch.uint8)[:, None]
    low, high = codes.chunk(2, -1)
    theirs = gguf_dequantize(torch.cat([exponents, low | high << 4], -1).numpy(), TYPES.MXFP4)
    assert np.array_equal(from_mxfp4(codes, exponents).numpy(), theirs)


def test_mxfp4_of_numbers_is_ggufs():
    """Where no number lies halfway between two codes; there gguf takes the first, the standard the even one."""
    torch.manual_seed(0)
    for scale in (1e-3, 1.0, 1e4):
        x = torch.randn(50, 96) * scale
        codes, exponents = to_mxfp4(x)
        theirs = gguf_quantize(x.numpy(), TYPES.MXFP4).reshape(50, 3, 17)
        assert np.array_equal(exponents.numpy(), theirs[..., 0])
        assert np.array_equal(from_mxfp4(codes, exponents).numpy(),
                              gguf_dequantize(theirs.reshape(50, 51), TYPES.MXFP4))


def test_packing_is_undone_for_every_pair():
    pairs = torch.cartesian_prod(torch.arange(16), torch.arange(16)).to(torch.uint8)
    assert pack_int4(pairs).flatten().unique().numel() == 256
    assert torch.equal(unpack_int4(pack_int4(pairs)), pairs)


@pytest.mark.parametrize("bits", range(2, 9))
def test_quantize_is_torchs_fake_quantization(bits):
    torch.manual_seed(0)
    w = torch.randn(6, 64)
    codes, scales, zeros = quantize(w, bits, 64)
    theirs = torch.fake_quantize_per_channel_affine(w, scales[:, 0], zeros[:, 0].int(), 0, 0, 2**bits - 1)
    assert_close(dequantize(codes, scales, zeros), theirs)
    assert ((dequantize(codes, scales, zeros) - w).abs() <= 0.5001 * scales + scales * (bits == 2)).all()


def loop_gptq(weight, x, bits, group):
    """Optimal brain quantization, column by column: the inverse is shrunk by one column after each."""
    w, inverse = weight.double().clone(), x.double().T @ x.double()
    inverse.diagonal().add_(0.01 * inverse.diagonal().mean())
    inverse, done = torch.linalg.inv(inverse), torch.zeros_like(w)
    for j in range(w.shape[1]):
        if j % group == 0:
            _, scales, zeros = quantize(w[:, j:j + group].to(weight.dtype), bits, group)
        code = ((w[:, j] / scales[:, 0].double()).round() + zeros[:, 0]).clamp(0, 2**bits - 1)
        done[:, j] = scales[:, 0].double() * (code - zeros[:, 0])
        w -= torch.outer((w[:, j] - done[:, j]) / inverse[j, j], inverse[j])
        inverse -= torch.outer(inverse[:, j], inverse[j]) / inverse[j, j]
    return done


@pytest.mark.parametrize("bits, group", [(4, 8), (3, 16), (2, 24), (8, 1)])
def test_gptq_is_optimal_brain_quantization(bits, group):
    torch.manual_seed(0)
    x = torch.randn(100, 12) @ torch.randn(12, 48) + 0.3 * torch.randn(100, 48)
    w = torch.randn(20, 48)
    ours = dequantize(*gptq(w, x, bits, group)).double()
    assert_close(ours.float(), loop_gptq(w, x, bits, group))
    plain = dequantize(*quantize(w, bits, group)).double()
    if bits < 8:
        assert (x.double() @ (ours - w).T).norm() < 0.8 * (x.double() @ (plain - w).T).norm()


CONFIGS = {
    "pocket": POCKET, "Llama": ModelConfig(vocab_size=30, d_model=32, layers=2, heads=4, kv_heads=2, d_ff=64,
                                           max_seq_len=16),
    "GPT-2": ModelConfig(vocab_size=30, d_model=32, layers=2, heads=4, d_ff=64, max_seq_len=16, norm="layer",
                         feed_forward="mlp", positions="learned", qkv_bias=True, o_bias=True, mlp_bias=True,
                         tie_embeddings=True),
    "Qwen3": ModelConfig(vocab_size=30, d_model=32, layers=2, heads=4, kv_heads=2, head_dim=16, d_ff=64,
                         max_seq_len=16, qk_norm=True, tie_embeddings=True),
}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("bits", [8, 4, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_saved_model_has_the_predicted_size_and_the_same_logits(tmp_path, name, bits, dtype):
    config = CONFIGS[name]
    torch.manual_seed(0)
    model = quantize_model(Transformer(config).to(dtype), bits, 16).eval()
    save(model, tmp_path / "model.safetensors")
    raw = (tmp_path / "model.safetensors").read_bytes()
    header = 8 + struct.unpack("<Q", raw[:8])[0]
    assert len(raw) - header == quantized_bytes(config, bits, 16, dtype.itemsize)
    again, ids = load(tmp_path / "model.safetensors"), torch.arange(12)[None] % 30
    assert torch.equal(again(ids), model(ids))
    assert (again.unembedding.weight is again.embedding.weight) == config.tie_embeddings
    assert generate(again, [[1, 2]], 5, temperature=0) == generate(model, [[1, 2]], 5, temperature=0)


def test_quantized_gpt2_is_counted_without_making_it():
    assert quantized_bytes(GPT2, 8, 64) < quantized_bytes(GPT2, 8, 32) < 124_439_808 * 2


@pytest.mark.usefixtures("float64")
def test_torchs_kernels_and_a_quantized_model_go_together():
    torch.manual_seed(0)
    one, ids = Transformer(CONFIGS["Qwen3"]), torch.arange(12)[None]
    other = Transformer(CONFIGS["Qwen3"])
    other.load_state_dict(one.state_dict())
    first = quantize_model(use_torch_kernels(one), 4, 16)(ids)
    second = use_torch_kernels(quantize_model(other, 4, 16))(ids)
    assert_close(first, second)
    assert isinstance(one.blocks[0].attention.q_proj, QuantizedLinear)


@torch.no_grad()
def test_an_int8_cache_barely_changes_the_pocket_model():
    model = load_pretrained(POCKET_FOLDER, dtype=torch.float32)
    ids = torch.arange(40, 72)[None]
    exact = model(ids).log_softmax(-1)
    caches = [Int8KVCache(1, POCKET.kv_heads, 40, POCKET.head_dim) for _ in model.blocks]
    parts = torch.cat([model(part, caches=caches) for part in ids.split([9, 1, 22], 1)], 1).log_softmax(-1)
    assert 0 < (exact - parts).abs().max() < 0.15
    held = sum(x.nbytes for c in caches for x in (c.keys, c.values, c.key_scales, c.value_scales))
    plain = sum(x.nbytes for c in (KVCache(1, POCKET.kv_heads, 40, POCKET.head_dim) for _ in model.blocks)
                for x in (c.keys, c.values))
    assert held / plain == (POCKET.head_dim + 4) / (4 * POCKET.head_dim)


@pytest.mark.parametrize("cut", [0, 7, 60, -1])
def test_a_truncated_file_is_refused(tmp_path, cut):
    path = Path(tmp_path) / "model.safetensors"
    save(quantize_model(Transformer(CONFIGS["Qwen3"]), 4, 16), path)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ValueError, match="model.safetensors"):
        load(path)


def test_chapter_16s_files_are_refused():
    with pytest.raises(ValueError, match="no quantized model"):
        load(POCKET_FOLDER / "model.safetensors")
