"""How long AdamW's step takes, as a multiple of torch's, which handles all tensors in one call.

Both sides run on two threads, in turn, on equal parameters and gradients; medians of eleven runs.
"""

from statistics import median
from time import perf_counter

import torch

from solutions.ex13_transformer import POCKET, Transformer
from solutions.ex14_training import AdamW, parameter_groups


def bench_adamw():
    """A step on the 4.6 million parameters of the POCKET preset, in two groups."""
    threads, steps = torch.get_num_threads(), {}
    for kind in (AdamW, torch.optim.AdamW):
        torch.manual_seed(0)
        model = Transformer(POCKET)
        for p in model.parameters():
            p.grad = torch.randn_like(p)
        steps[kind] = kind(parameter_groups(model, 0.1), lr=1e-4).step
    taken = {kind: [] for kind in steps}
    torch.set_num_threads(2)
    try:
        for run in range(12):
            for kind, step in steps.items():
                start = perf_counter()
                step()
                if run:                                  # the first makes the state
                    taken[kind].append(perf_counter() - start)
    finally:
        torch.set_num_threads(threads)
    ours, theirs = (median(times) for times in taken.values())
    return "AdamW's step on 4.6 M parameters, against torch", ours / theirs, 3.0
