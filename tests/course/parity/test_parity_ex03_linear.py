"""Chapter 03 against torch.nn.Linear, F.linear, autograd and torch's own FLOP counter."""

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from solutions import ex03_linear
from tests.course.close import assert_close

BATCHES = [(), (5,), (2, 3), (2, 1, 3)]


def twins(in_features: int, out_features: int, bias: bool, dtype=torch.float64):
    """Our layer and torch's, with the same numbers, passed through the state dict."""
    torch.manual_seed(0)
    theirs = torch.nn.Linear(in_features, out_features, bias=bias).to(dtype)
    ours = ex03_linear.Linear(in_features, out_features, bias=bias).to(dtype)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("batch", BATCHES)
def test_forward_and_gradients_equal_torchs(batch, bias):
    ours, theirs = twins(6, 4, bias)
    x = torch.randn(*batch, 6, dtype=torch.float64)
    one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    y, expected = ours(one), theirs(other)
    assert_close(y, expected)
    assert_close(y, F.linear(x, ours.weight, ours.bias))
    grad_out = torch.randn_like(y)
    y.backward(grad_out)
    expected.backward(grad_out)
    assert_close(one.grad, other.grad)
    for mine, its in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_close(mine.grad, its.grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_half_precision_forward_is_torchs(dtype):
    ours, theirs = twins(64, 32, True, dtype)
    x = torch.randn(7, 64).to(dtype)
    assert ours(x).dtype == dtype
    assert_close(ours(x), theirs.double()(x.double()))


@pytest.mark.parametrize("batch", BATCHES)
def test_backward_is_autograds(batch):
    torch.manual_seed(0)
    x = torch.randn(*batch, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(4, dtype=torch.float64, requires_grad=True)
    y = F.linear(x, weight, bias)
    grad_out = torch.randn_like(y)
    expected = torch.autograd.grad(y, (x, weight, bias), grad_out)
    found = ex03_linear.linear_backward(x.detach(), weight.detach(), grad_out)
    for mine, its in zip(found, expected, strict=True):
        assert_close(mine, its)


def test_gradients_against_finite_differences():
    ours, _ = twins(3, 2, True)
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(ours, x)


def test_state_dicts_load_both_ways():
    ours, theirs = twins(6, 4, True)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())


@pytest.mark.parametrize("sizes", [(600, 200), (64, 1024)])
def test_init_is_glorots_normal_cut_at_three_sigma(sizes):
    torch.manual_seed(0)
    weight = ex03_linear.Linear(*sizes).weight.detach()
    reference = torch.nn.init.xavier_normal_(torch.empty(sizes[1], sizes[0]))
    # A normal cut at ±3σ keeps a standard deviation of 0.98658 σ.
    assert (weight.std() / reference.std()).item() == pytest.approx(0.98658, rel=0.015)
    assert weight.abs().max() <= 3 * (2 / sum(sizes)) ** 0.5


def test_flops_are_what_torchs_counter_counts():
    layer = ex03_linear.Linear(48, 80)
    with FlopCounterMode(display=False) as counter:
        layer(torch.randn(2, 5, 48))
    assert ex03_linear.linear_flops(10, 48, 80) == counter.get_total_flops()
