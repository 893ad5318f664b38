"""Chapter 07 against transformers: both layouts, the move between them, Llama 3 and YaRN."""

import pytest
import torch
from einops import rearrange
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.gptj import modeling_gptj
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from solutions.ex07_rope import (
    RoPE,
    interleaved_to_half,
    llama3_frequencies,
    rope_frequencies,
    yarn_frequencies,
)
from tests.course.close import assert_as_near, assert_close

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}


def llama(head_dim: int, base: float, **rope) -> LlamaConfig:
    return LlamaConfig(hidden_size=4 * head_dim, num_attention_heads=4, head_dim=head_dim,
                       max_position_embeddings=131_072,
                       rope_parameters={"rope_type": "default", "rope_theta": base, **rope})


def turned_by_llama(config: LlamaConfig, x, positions):
    """x of (batch, heads, seq, head_dim), turned by transformers at positions (batch, seq)."""
    cos, sin = LlamaRotaryEmbedding(config)(x, positions)
    return apply_rotary_pos_emb(x, x, cos, sin)[0]


def turned_by_meta(x, frequencies):
    """The formulation of Meta's Llama: neighbours as one complex number, times e^(i m θ)."""
    angles = torch.outer(torch.arange(x.shape[-2]), frequencies)
    pairs = torch.view_as_complex(rearrange(x, "... (half pair) -> ... half pair", pair=2))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("base", [10_000.0, 500_000.0])
def test_half_is_llamas_at_any_positions(head_dim, base):
    torch.manual_seed(0)
    x, positions = torch.randn(2, 4, 7, head_dim), torch.randint(4096, (2, 7))
    one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    mine = RoPE(head_dim, 4096, base=base)(one, positions[:, None])
    theirs = turned_by_llama(llama(head_dim, base), other, positions)
    assert_close(mine, theirs)
    grad = torch.randn_like(x)
    mine.backward(grad)
    theirs.backward(grad)
    assert_close(one.grad, other.grad)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_llamas_but_for_its_rounding(dtype):
    torch.manual_seed(0)
    x, positions = torch.randn(2, 4, 7, 64).to(dtype), torch.randint(2048, (2, 7))
    mine = RoPE(64, 2048).to(dtype)(x, positions[:, None])
    theirs = turned_by_llama(llama(64, 10_000.0), x, positions)
    assert mine.dtype == theirs.dtype == dtype
    # transformers rounds cosine, sine and both products too
    assert_as_near(mine, theirs, turned_by_llama(llama(64, 10_000.0), x.float(), positions).double())


def test_interleaved_is_gpt_js():
    torch.manual_seed(0)
    x = torch.randn(2, 4, 50, 64)
    table = modeling_gptj.create_sinusoidal_positions(50, 64)
    sin, cos = table[None].chunk(2, -1)
    theirs = modeling_gptj.apply_rotary_pos_emb(x.transpose(1, 2), sin, cos).transpose(1, 2)
    assert_close(RoPE(64, 50, layout="interleaved")(x), theirs)


def test_interleaved_is_metas():
    torch.manual_seed(0)
    x = torch.randn(2, 4, 50, 64)
    mine = RoPE(64, 50, base=500_000.0, layout="interleaved")(x)
    assert_close(mine, turned_by_meta(x, rope_frequencies(64, 500_000.0)))


@pytest.mark.parametrize("with_bias", [False, True])
def test_metas_projections_in_hugging_faces_attention(with_bias):
    """Scores of Meta's weights and formulation = scores of the moved weights and Llama's code."""
    torch.manual_seed(0)
    heads, head_dim, d_model = 4, 16, 24
    x = torch.randn(2, 9, d_model)
    weights = [torch.randn(heads * head_dim, d_model) for _ in "qk"]
    biases = [torch.randn(heads * head_dim) * with_bias for _ in "qk"]

    def project(weights, biases):
        return [rearrange(x @ w.T + b, "b seq (heads head_dim) -> b heads seq head_dim",
                          heads=heads) for w, b in zip(weights, biases)]

    q, k = (turned_by_meta(z, rope_frequencies(head_dim)) for z in project(weights, biases))
    expected = q @ k.mT
    positions = torch.arange(9).expand(2, 9)
    moved = project([interleaved_to_half(w, heads) for w in weights],
                    [interleaved_to_half(b, heads) for b in biases])
    q, k = (turned_by_llama(llama(head_dim, 10_000.0), z, positions) for z in moved)
    assert_close(q @ k.mT, expected)
    q, k = (RoPE(head_dim, 9)(z) for z in moved)
    assert_close(q @ k.mT, expected)


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama3_frequencies_are_transformers(head_dim, factor):
    config = llama(head_dim, 500_000.0, **{**LLAMA3, "factor": factor})
    theirs, scale = ROPE_INIT_FUNCTIONS["llama3"](config)
    mine = llama3_frequencies(rope_frequencies(head_dim, 500_000.0), factor, 1.0, 4.0, 8192)
    assert_close(mine, theirs)
    assert scale == 1.0


def test_llama3_end_to_end():
    torch.manual_seed(0)
    x, positions = torch.randn(2, 4, 7, 64), torch.randint(9000, (2, 7))
    frequencies = llama3_frequencies(rope_frequencies(64, 500_000.0), 8, 1, 4, 8192)
    mine = RoPE(64, 9000, frequencies=frequencies)(x, positions[:, None])
    theirs = turned_by_llama(llama(64, 500_000.0, **LLAMA3), x, positions)
    assert_close(mine, theirs)  # 1 ulp of a frequency, × 9,000


YARN = [(64, 10_000.0, 4.0, 4096, 32, 1), (128, 1_000_000.0, 4.0, 32_768, 32, 1),
        (64, 150_000.0, 32.0, 4096, 32, 1), (64, 10_000.0, 40.0, 2048, 16, 2),
        (16, 10_000.0, 2.0, 100, 32, 1), (32, 100.0, 2.0, 100_000, 32, 1),
        (8, 10_000.0, 1.0, 64, 32, 1)]


@pytest.mark.parametrize("head_dim, base, factor, original, fast, slow", YARN)
def test_yarn_is_transformers(head_dim, base, factor, original, fast, slow):
    config = llama(head_dim, base, rope_type="yarn", factor=factor, beta_fast=fast, beta_slow=slow,
                   original_max_position_embeddings=original)
    theirs, their_scale = ROPE_INIT_FUNCTIONS["yarn"](config)
    mine, scale = yarn_frequencies(head_dim, factor, original, base, fast, slow)
    assert_close(mine, theirs)
    assert scale == pytest.approx(their_scale)


def test_yarn_end_to_end():
    """Its attention scale goes onto cosine and sine, so scores grow by its square."""
    torch.manual_seed(0)
    x, positions = torch.randn(2, 4, 7, 64), torch.randint(500, (2, 7))
    config = llama(64, 10_000.0, rope_type="yarn", factor=4.0,
                   original_max_position_embeddings=4096)
    frequencies, scale = yarn_frequencies(64, 4, 4096)
    mine = RoPE(64, 500, frequencies=frequencies, attention_scale=scale)(x, positions[:, None])
    assert_close(mine, turned_by_llama(config, x, positions))
    plain = RoPE(64, 500, frequencies=frequencies)(x, positions[:, None])
    grown = (plain @ plain.mT) * scale**2
    assert_close(mine @ mine.mT, grown)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_gradients_against_finite_differences(layout):
    rope = RoPE(6, 32, layout=layout)
    x = torch.randn(2, 3, 6, dtype=torch.float64, requires_grad=True)
    at = torch.tensor([30, 1, 7])
    assert torch.autograd.gradcheck(lambda x: rope(x, at), x)


@pytest.mark.parametrize("cast", ["half", "bfloat16", "double"])
def test_tables_outlive_casts_and_follow_devices(cast):
    rope = RoPE(8, 16)
    before = rope.cos.clone()
    getattr(rope, cast)()
    assert rope.cos.dtype == rope.sin.dtype == torch.float32
    assert torch.equal(rope.cos, before)
    assert rope.to("meta", torch.bfloat16).cos.device.type == "meta"
    assert rope.cos.dtype == torch.float32 and not rope.state_dict()
