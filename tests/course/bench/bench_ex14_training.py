"""How long AdamW's step takes, as a multiple of torch's, which handles all tensors in one call.

Both sides run on two threads, in turn, on equal parameters and gradients; medians of eleven runs.
"""

import torch

from solutions.ex13_transformer import POCKET, Transformer
from solutions.ex14_training import AdamW, parameter_groups
from tests.course.bench.clock import in_turn


def bench_adamw():
    """A step on the 4.6 million parameters of the POCKET preset, in two groups."""
    steps = {}
    for kind in (AdamW, torch.optim.AdamW):
        torch.manual_seed(0)
        model = Transformer(POCKET)
        for p in model.parameters():
            p.grad = torch.randn_like(p)
        steps[kind] = kind(parameter_groups(model, 0.1), lr=1e-4).step
    ours, theirs = in_turn(*steps.values(), threads=2)      # the first turn makes the state
    return "AdamW's step on 4.6 M parameters, against torch", ours / theirs, 3.0
