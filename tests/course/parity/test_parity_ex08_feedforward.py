"""Chapter 08 against torch's activations and dropout, and the MLPs of transformers."""

from copy import deepcopy

import pytest
import torch
from torch.nn import functional as F
from transformers import GPT2Config, LlamaConfig, Qwen3Config
from transformers.models.gpt2.modeling_gpt2 import GPT2MLP
from transformers.models.llama.modeling_llama import LlamaMLP
from transformers.models.qwen3.modeling_qwen3 import Qwen3MLP

from solutions import ex08_feedforward as ours
from tests.course.close import assert_as_near, assert_close

PAIRS = {
    "sigmoid": (ours.sigmoid, torch.sigmoid),
    "silu": (ours.silu, F.silu),
    "gelu": (ours.gelu, F.gelu),
    "gelu_tanh": (lambda x: ours.gelu(x, approximate="tanh"),
                  lambda x: F.gelu(x, approximate="tanh")),
}
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def forward_and_backward(function, x, grad_out):
    x = x.clone().requires_grad_()
    y = function(x)
    y.backward(grad_out)
    return y.detach(), x.grad


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", PAIRS)
def test_activations_are_torchs_both_ways(name, dtype):
    """Near 0, far out, and at 0 itself; torch computes half precision in float32 too."""
    torch.manual_seed(0)
    x = torch.cat([torch.linspace(-12, 12, 1001), torch.tensor([-100.0, -30, 0, 30, 100]),
                   torch.randn(1000)]).to(dtype)
    grad_out = torch.randn(len(x)).to(dtype)
    for mine, its in zip(forward_and_backward(PAIRS[name][0], x, grad_out),
                         forward_and_backward(PAIRS[name][1], x.double(), grad_out.double()), strict=True):
        assert mine.dtype == dtype and mine.isfinite().all()
        assert_close(mine, its)


@pytest.mark.parametrize("name", PAIRS)
def test_gradients_against_finite_differences(name):
    x = torch.linspace(-6, 6, 25, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(PAIRS[name][0], x)


def test_sigmoid_keeps_its_relative_precision_in_the_tail():
    x = -torch.linspace(0, 80, 500)
    assert_close(ours.sigmoid(x), torch.sigmoid(x.double()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("p", [0.0, 0.1, 0.9])
def test_dropout_has_torchs_statistics(p, dtype):
    torch.manual_seed(0)
    x = torch.ones(1_000_000, dtype=dtype)
    mine, its = ours.Dropout(p)(x), torch.nn.Dropout(p)(x)
    assert mine.dtype == its.dtype
    assert torch.equal(mine.unique(), its.unique())
    assert (mine == 0).double().mean().item() == pytest.approx(p, abs=0.002)
    assert torch.equal(ours.Dropout(p).eval()(x), x)


def copy(target, source, transposed=False):
    with torch.no_grad():
        target.weight.copy_(source.weight.T if transposed else source.weight)
        if source.bias is not None:
            target.bias.copy_(source.bias)


def assert_both_ways(mine, its, x, pairs):
    """Outputs, gradients of x and gradients of every weight are equal."""
    one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    y, expected = mine(one), its(other)
    assert_close(y, expected)
    grad_out = torch.randn_like(y)
    y.backward(grad_out)
    expected.backward(grad_out)
    assert_close(one.grad, other.grad)
    for layer, twin, transposed in pairs:
        assert_close(layer.weight.grad, twin.weight.grad.T if transposed else twin.weight.grad)
        if layer.bias is not None:
            assert_close(layer.bias.grad, twin.bias.grad)


@pytest.mark.parametrize("config, mlp", [(LlamaConfig, LlamaMLP), (Qwen3Config, Qwen3MLP)])
def test_swiglu_is_llamas_and_qwens(config, mlp):
    torch.manual_seed(0)
    its = mlp(config(hidden_size=24, intermediate_size=64, num_attention_heads=4)).double()
    mine = ours.SwiGLU(24).double()
    pairs = [(mine.gate, its.gate_proj, False), (mine.up, its.up_proj, False),
             (mine.down, its.down_proj, False)]
    for pair in pairs:
        copy(*pair)
    assert_both_ways(mine, its, torch.randn(2, 5, 24, dtype=torch.float64), pairs)


def test_swiglu_in_bfloat16_is_llamas():
    torch.manual_seed(0)
    config = LlamaConfig(hidden_size=24, intermediate_size=64, num_attention_heads=4)
    its = LlamaMLP(config).bfloat16()
    mine = ours.SwiGLU(24, 64).bfloat16()
    for name in ("gate", "up", "down"):
        copy(getattr(mine, name), getattr(its, f"{name}_proj"))
    x = torch.randn(2, 5, 24).bfloat16()
    assert_as_near(mine(x), its(x), deepcopy(its).double()(x.double()))


@pytest.mark.parametrize("theirs, name", [("gelu_new", "gelu_tanh"), ("gelu", "gelu"),
                                          ("relu", "relu"), ("silu", "silu")])
def test_mlp_is_gpt2s(theirs, name):
    """GPT-2's own activation is gelu_new; its Conv1D stores weights as (in, out)."""
    torch.manual_seed(0)
    config = GPT2Config(n_embd=24, activation_function=theirs, resid_pdrop=0.0)
    its = GPT2MLP(96, config).double()
    torch.nn.init.normal_(its.c_fc.bias)
    torch.nn.init.normal_(its.c_proj.bias)
    mine = ours.MLP(24, 96, name).double()
    pairs = [(mine.up, its.c_fc, True), (mine.down, its.c_proj, True)]
    for pair in pairs:
        copy(*pair)
    assert_both_ways(mine, its, torch.randn(2, 5, 24, dtype=torch.float64), pairs)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_mlp_is_the_inside_of_torchs_encoder_layer(activation):
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(24, 4, 96, 0.1, activation).double().eval()
    mine = ours.MLP(24, 96, activation, dropout=0.1).double().eval()
    copy(mine.up, layer.linear1)
    copy(mine.down, layer.linear2)
    x = torch.randn(2, 5, 24, dtype=torch.float64)
    assert_close(mine(x), layer._ff_block(x))


def test_default_widths_of_known_models():
    """Llama 7B rounds to 256: 11,008. With 64 the same 4,096 gives 10,944."""
    with torch.device("meta"):
        widths = {n: ours.SwiGLU(n).gate.weight.shape[0] for n in range(1, 2000, 37)}
        assert ours.SwiGLU(4096).gate.weight.shape[0] == 10_944
    assert all(width % 64 == 0 and 0 <= width - 8 * n / 3 < 64 for n, width in widths.items())
