"""Chapter 10 against transformers' Llama, Qwen3 and Mistral, and against torch's fused attention."""

import pytest
import torch
from torch.nn import functional as F
from transformers import LlamaConfig, MistralConfig, Qwen3Config
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding
from transformers.models.mistral.modeling_mistral import MistralAttention
from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention

from solutions.ex07_rope import RoPE
from solutions.ex09_attention import causal_mask, scaled_dot_product_attention
from solutions.ex10_grouped_query_attention import (
    GroupedQueryAttention,
    grouped_attention,
    repeat_kv,
    sliding_window_mask,
)
from tests.course.close import assert_close

# All in float64 but the tables of RoPE: so what is compared is compared as float32.
pytestmark = pytest.mark.usefixtures("float64_norms")
D_MODEL, BATCH, SEQ = 24, 2, 9


def theirs(kind, heads, kv_heads, head_dim, **options):
    """An attention module of transformers with random weights, norms and biases included."""
    config_class, module_class = {"llama": (LlamaConfig, LlamaAttention),
                                  "qwen3": (Qwen3Config, Qwen3Attention),
                                  "mistral": (MistralConfig, MistralAttention)}[kind]
    config = config_class(hidden_size=D_MODEL, num_attention_heads=heads, num_key_value_heads=kv_heads,
                          head_dim=head_dim, num_hidden_layers=1, max_position_embeddings=64,
                          attn_implementation="eager", **options)
    module = module_class(config, 0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0, 0.3).add_(parameter.ndim == 1)
    return config, module


def compare(config, module, ours, mask, positions=None, given=None):
    """Outputs and all gradients; `mask` is what transformers is given, `given` what we are."""
    ours.load_state_dict(module.state_dict())
    module.eval()
    x = torch.randn(BATCH, SEQ, D_MODEL)
    one, other, pull = x.clone().requires_grad_(), x.clone().requires_grad_(), torch.randn_like(x)
    at = torch.arange(SEQ)[None] if positions is None else positions
    turns = LlamaRotaryEmbedding(config)(x, at)
    bias = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(x.dtype).min)
    expected = module(one, turns, bias[(None,) * (4 - mask.ndim)])[0]
    found = ours(other, mask=given, positions=positions)
    assert_close([found.float()], [expected])
    expected.backward(pull)
    found.backward(pull)
    assert_close([other.grad.float()], [one.grad])
    gradients = {name: p.grad for name, p in module.named_parameters()}
    assert gradients.keys() == dict(ours.named_parameters()).keys()
    mine = {name: p.grad.float() for name, p in ours.named_parameters()}
    assert all(mine[name].shape == gradients[name].shape for name in mine)
    assert_close([*mine.values()], [gradients[name] for name in mine])      # one row: a key's bias has hardly any


@pytest.mark.parametrize("heads, kv_heads, head_dim", [(6, 6, 4), (6, 2, 4), (6, 1, 4), (4, 2, 10)])
@pytest.mark.parametrize("bias", [False, True])
def test_llamas_attention(heads, kv_heads, head_dim, bias):
    torch.manual_seed(0)
    config, module = theirs("llama", heads, kv_heads, head_dim, attention_bias=bias)
    ours = GroupedQueryAttention(D_MODEL, heads, kv_heads, head_dim, qkv_bias=bias, o_bias=bias,
                                 rope=RoPE(head_dim, 64))
    compare(config, module, ours, causal_mask(SEQ))


def test_qwen3s_attention():
    """QK-norm, and heads that are wider together than the model."""
    torch.manual_seed(0)
    config, module = theirs("qwen3", 4, 2, 16, rms_norm_eps=1e-3)
    ours = GroupedQueryAttention(D_MODEL, 4, 2, 16, qk_norm=True, norm_eps=1e-3, rope=RoPE(16, 64))
    compare(config, module, ours, causal_mask(SEQ))


@pytest.mark.parametrize("window", [1, 4, SEQ, 20])
def test_mistrals_window_is_ours(window):
    """transformers' own sliding_window mask, made by its masking functions."""
    from transformers.masking_utils import create_sliding_window_causal_mask

    torch.manual_seed(0)
    config, module = theirs("mistral", 6, 2, 4, sliding_window=window)
    x = torch.zeros(BATCH, SEQ, D_MODEL)
    config._attn_implementation = "sdpa"                  # there the mask is boolean
    mask = create_sliding_window_causal_mask(
        config=config, inputs_embeds=x, attention_mask=torch.ones(BATCH, SEQ, dtype=torch.long),
        past_key_values=None, position_ids=torch.arange(SEQ)[None], allow_is_causal_skip=False)
    config._attn_implementation = "eager"
    assert torch.equal(mask[0, 0], sliding_window_mask(SEQ, SEQ, window))
    ours = GroupedQueryAttention(D_MODEL, 6, 2, 4, rope=RoPE(4, 64), window=window)
    compare(config, module, ours, mask[0, 0])


def test_padded_rows_with_positions_of_their_own():
    torch.manual_seed(0)
    config, module = theirs("qwen3", 4, 2, 8)
    ours = GroupedQueryAttention(D_MODEL, 4, 2, 8, qk_norm=True, rope=RoPE(8, 64))
    positions = torch.stack([torch.arange(SEQ), torch.arange(SEQ) + 30])
    given = torch.ones(BATCH, 1, 1, SEQ, dtype=torch.bool)
    given[1, ..., 3] = False
    compare(config, module, ours, causal_mask(SEQ) & given, positions, given)


@pytest.mark.parametrize("kv_heads", [6, 3, 2, 1])
@pytest.mark.parametrize("shape", [None, (5, 7), (2, 1, 1, 7), (2, 6, 5, 7)])
def test_grouped_attention_is_torchs_and_that_on_repeated_keys(kv_heads, shape):
    """Blind queries included: zeros, and zero gradients, in all three."""
    torch.manual_seed(0)
    mask = None if shape is None else torch.rand(shape) > 0.5
    if mask is not None:
        mask[..., :1, :] = False
    inputs = [torch.randn(2, n, length, 4, dtype=torch.float64)
              for n, length in ((6, 5), (kv_heads, 7), (kv_heads, 7))]
    pull = torch.randn(2, 6, 5, 4, dtype=torch.float64)

    def repeated(q, k, v, mask):
        k, v = (repeat_kv(x, 6 // kv_heads) for x in (k, v))
        return scaled_dot_product_attention(q, k, v, mask)

    def torchs(q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)

    found = []
    for attention in (grouped_attention, repeated, torchs):
        leaves = [x.clone().requires_grad_() for x in inputs]
        out = attention(*leaves, mask)
        found.append([out, *torch.autograd.grad(out, leaves, pull)])
    for other in found[1:]:
        for mine, theirs in zip(found[0], other):
            assert_close([mine], [theirs])          # as one row: those that see one key have no gradient


def test_repeat_kv_is_transformers():
    from transformers.models.llama.modeling_llama import repeat_kv as expected

    x = torch.randn(2, 3, 5, 4)
    assert torch.equal(repeat_kv(x, 4), expected(x, 4))


@pytest.mark.parametrize("window", [None, 3])
def test_the_module_is_torchs_attention(window):
    """Through attend: every mask, fewer queries than keys, blind queries, and gradients."""
    torch.manual_seed(0)
    layer = GroupedQueryAttention(12, 6, 2, window=window)
    padding = torch.ones(2, 1, 1, 7, dtype=torch.bool)
    padding[1, ..., :6] = False
    for q_len in (1, 2, 7):
        own = sliding_window_mask(q_len, 7, window or 7)
        for mask in (None, padding, torch.rand(2, 6, q_len, 7) > 0.5, torch.rand(2, 1, 1, 9) > 0.5):
            seen = own if mask is None else own & mask[..., -7:]

            def torchs(q, k, v):
                out = F.scaled_dot_product_attention(q, k, v, seen, enable_gqa=True)
                return layer.o_proj(out.transpose(1, 2).flatten(2))

            q, k, v = torch.randn(2, 6, q_len, 2), torch.randn(2, 2, 7, 2), torch.randn(2, 2, 7, 2)
            pull, answers = torch.randn(2, q_len, 12), []
            for attend in (lambda q, k, v: layer.attend(q, k, v, mask), torchs):
                leaves = [x.clone().requires_grad_() for x in (q, k, v)]
                out = attend(*leaves)
                answers.append([out, *torch.autograd.grad(out, leaves, pull)])
            for mine, theirs in zip(*answers):
                assert_close([mine], [theirs])          # as one row: those that see one key have no gradient
