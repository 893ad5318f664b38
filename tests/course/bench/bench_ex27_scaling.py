"""How long Muon's step takes, as a multiple of torch's, and what making the step orthogonal costs.

Both sides run on one thread, in turn, on equal parameters and gradients; medians of several runs.
"""

import torch
from torch import nn

from solutions.ex14_training import AdamW
from solutions.ex27_scaling import Muon
from tests.course.bench.clock import in_turn

SHAPES = 8 * [(256, 256)] + 4 * [(512, 256), (256, 512)]        # three layers of the pocket model, about


def steps_of(*kinds):
    """A step of each of these optimizers on matrices of its own."""
    found = []
    for kind, options in kinds:
        torch.manual_seed(0)
        parameters = [nn.Parameter(torch.randn(shape)) for shape in SHAPES]
        for p in parameters:
            p.grad = torch.randn_like(p)
        found.append(kind(parameters, lr=1e-4, **options).step)
    return found


def bench_muon():
    """A step on 1.6 million parameters against torch's Muon, both with Newton–Schulz in bfloat16."""
    ours, theirs = in_turn(*steps_of((Muon, {"dtype": torch.bfloat16}), (torch.optim.Muon, {})), runs=7)
    return "Muon's step on 1.6 M parameters in bfloat16, against torch", ours / theirs, 1.5


def bench_muon_against_adamw():
    """What a step of Muon costs in steps of lesson 14's AdamW on the same matrices."""
    muon, adamw = in_turn(*steps_of((Muon, {}), (AdamW, {})), runs=7)
    return "Muon's step on 1.6 M parameters, against lesson 14's AdamW", muon / adamw, 60.0
