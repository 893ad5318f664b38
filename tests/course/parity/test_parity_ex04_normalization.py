"""Chapter 04 against torch's layers, transformers' LlamaRMSNorm, autograd and gradcheck."""

import copy

import pytest
import torch
from torch.nn import functional as F
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from solutions import ex04_normalization
from solutions.ex04_normalization import LayerNorm, RMSNorm, rms_norm_backward
from tests.course.close import assert_as_near, assert_close

BATCHES = [(), (5,), (2, 3), (2, 1, 3)]
PAIRS = [(LayerNorm, torch.nn.LayerNorm), (RMSNorm, torch.nn.RMSNorm)]
PAIR = pytest.mark.parametrize("pair", PAIRS, ids=["layer", "rms"])


def twins(pair, d_model: int, eps: float = 1e-5, dtype=torch.float64):
    """Our layer and torch's, with the same random numbers, passed through the state dict."""
    torch.manual_seed(0)
    ours, theirs = pair[0](d_model, eps=eps), pair[1](d_model, eps=eps)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(1.0, 0.5)
    ours.load_state_dict(theirs.state_dict())
    return ours.to(dtype), theirs.to(dtype)


@PAIR
@pytest.mark.parametrize("eps", [0.0, 1e-6, 0.5])
@pytest.mark.parametrize("batch", BATCHES)
def test_forward_and_gradients_equal_torchs(pair, batch, eps):
    ours, theirs = twins(pair, 6, eps)
    x = torch.randn(*batch, 6, dtype=torch.float64)
    one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    y, expected = ours(one), theirs(other)
    assert_close(y, expected)
    grad_out = torch.randn_like(y)
    y.backward(grad_out)
    expected.backward(grad_out)
    assert_close(one.grad, other.grad)
    for mine, its in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_close(mine.grad, its.grad)


def test_the_functions_of_torch_agree_too():
    torch.manual_seed(0)
    x, norm, layer = torch.randn(4, 6), RMSNorm(6), LayerNorm(6)
    assert_close(norm(x), F.rms_norm(x, (6,), norm.weight, 1e-5))
    assert_close(layer(x), F.layer_norm(x, (6,), layer.weight, layer.bias, 1e-5))


@PAIR
def test_names_shapes_and_start_are_torchs(pair):
    ours, theirs = pair[0](6).state_dict(), pair[1](6).state_dict()
    assert list(ours) == list(theirs)
    for name in ours:
        assert_close(ours[name], theirs[name])


@PAIR
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1000.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_half_precision_is_torchs_but_for_a_rounding(pair, dtype, scale):
    """We cast before scaling, as Llama does, so there is one rounding more; torch's in float64 has none."""
    ours, theirs = twins(pair, 64, dtype=dtype)
    x = (torch.randn(7, 64) * scale).to(dtype)
    assert ours(x).dtype == dtype
    assert_as_near(ours(x), theirs(x), copy.deepcopy(theirs).double()(x.double()))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1000.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_bit_is_llamas(dtype, scale):
    """The same order of casts gives the same bits, in every precision."""
    torch.manual_seed(0)
    theirs, ours = LlamaRMSNorm(64, eps=1e-5), RMSNorm(64, eps=1e-5)
    theirs.weight.data.normal_(1.0, 0.5)
    ours.load_state_dict(theirs.state_dict())
    x = (torch.randn(2, 7, 64) * scale).to(dtype)
    assert torch.equal(ours.to(dtype)(x), theirs.to(dtype)(x))


@pytest.mark.parametrize("eps", [0.0, 1e-5, 0.5])
@pytest.mark.parametrize("batch", BATCHES)
def test_backward_is_autograds(batch, eps):
    torch.manual_seed(0)
    x = torch.randn(*batch, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(6, dtype=torch.float64, requires_grad=True)
    y = F.rms_norm(x, (6,), weight, eps)
    grad_out = torch.randn_like(y)
    expected = torch.autograd.grad(y, (x, weight), grad_out)
    found = rms_norm_backward(x.detach(), weight.detach(), eps, grad_out)
    for mine, its in zip(found, expected, strict=True):
        assert_close(mine, its)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_backward_in_half_precision_is_autograds(dtype):
    """Autograd's in float64, but for the rounding at the end."""
    torch.manual_seed(0)
    norm = RMSNorm(64).to(dtype)
    norm.weight.data.normal_(1.0, 0.5)
    x, grad_out = torch.randn(7, 64).to(dtype).requires_grad_(), torch.randn(7, 64).to(dtype)
    found = rms_norm_backward(x.detach(), norm.weight.detach(), 1e-5, grad_out)
    norm, x = norm.double(), x.detach().double().requires_grad_()
    expected = torch.autograd.grad(norm(x), (x, norm.weight), grad_out.double())
    for mine, its in zip(found, expected, strict=True):
        assert mine.dtype == dtype
        assert_close(mine, its)


class _ByHand(torch.autograd.Function):
    """RMSNorm with the hand-written backward pass, for gradcheck."""

    @staticmethod
    def forward(x, weight, eps):
        norm = RMSNorm(x.shape[-1], eps).to(x.dtype)
        norm.weight.data.copy_(weight)
        return norm(x).detach()

    @staticmethod
    def setup_context(context, inputs, output):
        context.save_for_backward(*inputs[:2])
        context.eps = inputs[2]

    @staticmethod
    def backward(context, grad_out):
        return *rms_norm_backward(*context.saved_tensors, context.eps, grad_out), None


@pytest.mark.parametrize("eps", [0.0, 1e-5, 0.5])
def test_backward_against_finite_differences(eps):
    torch.manual_seed(0)
    x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, w: _ByHand.apply(x, w, eps), (x, weight))


@pytest.mark.parametrize("layer", [LayerNorm, RMSNorm])
def test_forward_gradients_against_finite_differences(layer):
    torch.manual_seed(0)
    x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer(4).double(), x)


def test_the_gradient_has_no_part_along_the_token():
    """Scaling a token changes nothing where eps is 0, so no gradient points that way."""
    torch.manual_seed(0)
    x, weight, pull = (torch.randn(5, 6, dtype=torch.float64) for _ in range(3))
    grad_x, _ = ex04_normalization.rms_norm_backward(x, weight[0], 0.0, pull)
    assert_close(1 + (grad_x * x).sum(-1), x.new_ones(5))
