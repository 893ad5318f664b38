"""How long chapter 04 takes, as a multiple of what torch's own functions take.

Forward and backward in float32 on one thread, 8 x 256 tokens of 512 features, in turn; medians.
"""

import torch
from torch.nn import functional as F

from solutions.ex04_normalization import LayerNorm, RMSNorm
from tests.course.bench.clock import in_turn

BATCH, SEQ, D_MODEL = 8, 256, 512


def ratio(ours, theirs, parameters) -> float:
    """The median time of ours as a multiple of the median time of theirs."""
    x = torch.randn(BATCH, SEQ, D_MODEL, requires_grad=True)
    pull = torch.randn(BATCH, SEQ, D_MODEL)
    mine, torchs = in_turn(*(
        lambda function=function: torch.autograd.grad(function(x), (x, *parameters), pull)
        for function in (ours, theirs)), runs=29)
    return mine / torchs


def bench_rms_norm():
    """RMSNorm's forward and backward, against F.rms_norm."""
    norm = RMSNorm(D_MODEL)
    times = ratio(norm, lambda x: F.rms_norm(x, (D_MODEL,), norm.weight, norm.eps), [norm.weight])
    return "RMSNorm: forward and backward, against F.rms_norm", times, 3.0


def bench_layer_norm():
    """LayerNorm's forward and backward, against F.layer_norm.

    torch's is one fused loop and ours is written in steps, so this is over its target; the
    lesson's section on cost predicts by how much.
    """
    norm = LayerNorm(D_MODEL)
    times = ratio(norm, lambda x: F.layer_norm(x, (D_MODEL,), norm.weight, norm.bias, norm.eps),
                  [norm.weight, norm.bias])
    return "LayerNorm: forward and backward, against F.layer_norm", times, 3.0
