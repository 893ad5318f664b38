"""How long chapter 04 takes, as a multiple of what torch's own functions take.

Forward and backward in float32 on one thread, 8 x 256 tokens of 512 features, in turn; medians.
"""

from statistics import median
from time import perf_counter

import torch
from torch.nn import functional as F

from solutions.ex04_normalization import LayerNorm, RMSNorm

BATCH, SEQ, D_MODEL = 8, 256, 512


def ratio(ours, theirs, parameters, runs: int = 30) -> float:
    """The median time of ours as a multiple of the median time of theirs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        x = torch.randn(BATCH, SEQ, D_MODEL, requires_grad=True)
        pull = torch.randn(BATCH, SEQ, D_MODEL)
        times = ([], [])
        for _ in range(runs):
            for taken, function in zip(times, (ours, theirs)):
                start = perf_counter()
                torch.autograd.grad(function(x), (x, *parameters), pull)
                taken.append(perf_counter() - start)
    finally:
        torch.set_num_threads(threads)
    return median(times[0][2:]) / median(times[1][2:])    # without the first two, which warm up


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
