"""How long chapter 05's softmax takes, forward and backward, as a multiple of torch's own.

8 x 256 tokens of 512 scores in float32, one thread, both in turn; medians of 41 runs.
"""

import torch
from torch.nn import functional as F

from solutions import ex05_softmax
from tests.course.bench.clock import in_turn

TARGET = 3.0


def ratio(ours, theirs) -> float:
    """The median time of ours as a multiple of the median time of theirs."""
    mine, torchs = in_turn(ours, theirs, runs=41)
    return mine / torchs


def _inputs():
    torch.manual_seed(0)
    return torch.randn(8, 256, 512, requires_grad=True), torch.randn(8, 256, 512)


def _through_autograd(softmax, x, grad_out):
    x.grad = None
    softmax(x, -1).backward(grad_out)


def _by_hand(x, grad_out):
    with torch.no_grad():
        ex05_softmax.softmax_backward(ex05_softmax.softmax(x), grad_out)


def bench_softmax_by_hand():
    """softmax and then softmax_backward, without autograd."""
    inputs = _inputs()
    return ("softmax + softmax_backward, against F.softmax", ratio(
        lambda: _by_hand(*inputs), lambda: _through_autograd(F.softmax, *inputs)), TARGET)


def bench_softmax_autograd():
    """softmax, and autograd going back through each of its steps."""
    inputs = _inputs()
    return ("softmax and autograd's backward, against F.softmax", ratio(
        lambda: _through_autograd(ex05_softmax.softmax, *inputs),
        lambda: _through_autograd(F.softmax, *inputs)), TARGET)
