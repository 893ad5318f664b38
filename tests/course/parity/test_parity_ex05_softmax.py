"""Chapter 05 against torch's functional calls, autograd and finite differences."""

import math

import pytest
import torch
from torch.nn import functional as F

from solutions import ex05_softmax
from tests.course.close import assert_close

SHAPES = [((5,), -1), ((3, 5), 0), ((3, 5), -1), ((2, 3, 4), 1), ((2, 3, 4), -3), ((2, 0, 4), -1)]
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
PAIRS = [(ex05_softmax.softmax, F.softmax), (ex05_softmax.log_softmax, F.log_softmax),
         (ex05_softmax.logsumexp, torch.logsumexp)]
EVERY_PAIR = pytest.mark.parametrize("ours, theirs", PAIRS, ids=lambda f: f.__name__)


@EVERY_PAIR
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("scale", [1.0, 1000.0])
@pytest.mark.parametrize("shape, dim", SHAPES)
def test_values_are_torchs(ours, theirs, dtype, scale, shape, dim):
    torch.manual_seed(0)
    x = (scale * torch.randn(shape, dtype=torch.float64)).to(dtype)
    assert ours(x, dim).dtype == dtype
    assert_close(ours(x, dim), theirs(x.double(), dim))


@EVERY_PAIR
def test_accurate_far_from_zero(ours, theirs):
    """Scores near 10,000 that differ by about 1: still right to float32's last digits."""
    torch.manual_seed(0)
    x = 10_000 + torch.randn(64, 100)
    assert_close(ours(x, -1), theirs(x.double(), -1))


@EVERY_PAIR
@pytest.mark.parametrize("shape, dim", SHAPES)
def test_gradients_are_torchs(ours, theirs, shape, dim):
    torch.manual_seed(0)
    one = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    other = one.detach().clone().requires_grad_()
    mine, expected = ours(one, dim), theirs(other, dim)
    pull = torch.randn_like(expected)
    mine.backward(pull)
    expected.backward(pull)
    assert_close(one.grad, other.grad)


@EVERY_PAIR
def test_partly_masked_rows(ours, theirs):
    x = torch.randn(4, 6, dtype=torch.float64)
    x[1, 2:] = x[2, :5] = -math.inf
    one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    mine, expected = ours(one, -1), theirs(other, -1)
    assert_close(mine, expected)
    pull = torch.randn_like(expected)
    mine.backward(pull)
    expected.backward(pull)
    assert_close(one.grad, other.grad)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("function, value", [
    (ex05_softmax.softmax, 0.0), (ex05_softmax.log_softmax, -math.inf),
    (ex05_softmax.logsumexp, -math.inf)])
def test_an_empty_row_is_defined_where_torchs_is_nan(function, value, dtype):
    x = torch.full((2, 3), -math.inf, dtype=dtype, requires_grad=True)
    y = function(x)
    assert (y == value).all()
    y.backward(torch.ones_like(y))
    assert not x.grad.isnan().any()
    if function is not ex05_softmax.log_softmax:
        assert (x.grad == 0).all()


@EVERY_PAIR
def test_gradients_against_finite_differences(ours, theirs):
    torch.manual_seed(0)
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: ours(x, 0), x)
    assert torch.autograd.gradgradcheck(lambda x: ours(x, -1), x)


@pytest.mark.parametrize("temperature", [0.1, 0.7, 1, 1.0, 2, 30.0])
def test_temperature_is_a_division(temperature):
    torch.manual_seed(0)
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    y = ex05_softmax.softmax(x, temperature=temperature)
    assert_close(y, F.softmax(x / temperature, -1))
    assert torch.autograd.gradcheck(
        lambda x: ex05_softmax.softmax(x, temperature=temperature), x)


@pytest.mark.parametrize("shape, dim", SHAPES)
def test_backward_by_hand_is_autograds(shape, dim):
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    y = F.softmax(x, dim)
    pull = torch.randn_like(y)
    expected, = torch.autograd.grad(y, x, pull)
    assert_close(ex05_softmax.softmax_backward(y.detach(), pull, dim), expected)


def test_backward_by_hand_against_finite_differences():
    """As the backward pass of a torch.autograd.Function, where gradcheck can see it."""
    class ByHand(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = ex05_softmax.softmax(x, 1)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, grad_out):
            return ex05_softmax.softmax_backward(*ctx.saved_tensors, grad_out, 1)

    torch.manual_seed(0)
    assert torch.autograd.gradcheck(
        ByHand.apply, torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_cross_entropy_is_torchs(dtype, scale):
    torch.manual_seed(0)
    logits = (scale * torch.randn(2, 5, 7, dtype=torch.float64)).to(dtype)
    targets = torch.randint(7, (2, 5))
    targets[0, 3] = targets[1, 1] = -100
    mine = ex05_softmax.cross_entropy(logits, targets)
    expected = F.cross_entropy(logits.double().movedim(-1, 1), targets)
    assert mine.dtype == dtype
    assert_close(mine, expected)


@pytest.mark.parametrize("ignore_index", [-100, -1, 0, 6, 99])
def test_cross_entropy_gradient_is_torchs(ignore_index):
    torch.manual_seed(0)
    one = torch.randn(6, 7, dtype=torch.float64, requires_grad=True)
    other = one.detach().clone().requires_grad_()
    targets = torch.tensor([1, 5, ignore_index, 2, ignore_index, 3])
    mine = ex05_softmax.cross_entropy(one, targets, ignore_index)
    expected = F.cross_entropy(other, targets, ignore_index=ignore_index)
    assert_close(mine, expected)
    mine.backward()
    expected.backward()
    assert_close(one.grad, other.grad)
    assert torch.autograd.gradcheck(
        lambda x: ex05_softmax.cross_entropy(x, targets, ignore_index), one)


def test_a_model_that_knows_nothing():
    loss = ex05_softmax.cross_entropy(torch.zeros(4, 50_257, dtype=torch.float64), torch.arange(4))
    assert_close(loss, torch.tensor(math.log(50_257), dtype=torch.float64))
    assert_close(ex05_softmax.perplexity(loss), torch.tensor(50_257, dtype=torch.float64))
    assert ex05_softmax.perplexity(math.log(50_257)) == pytest.approx(50_257)


def test_cross_entropy_of_a_row_that_allows_nothing():
    """Its loss is infinite; its gradient, and its neighbour's, are finite."""
    logits = torch.stack([torch.full((4,), -torch.inf), torch.zeros(4)]).requires_grad_()
    loss = ex05_softmax.cross_entropy(logits, torch.tensor([1, 2]))
    loss.backward()
    assert loss == torch.inf
    assert torch.equal(2 * logits.grad, torch.tensor([[0, -1, 0, 0], [0.25, 0.25, -0.75, 0.25]]))
