"""How long a training step of chapter 08 takes, as a multiple of torch's own layers.

Both sides run on one thread, in turn, on the same inputs; medians of eleven runs.
"""

import torch
from torch import nn
from torch.nn import functional as F

from solutions import ex08_feedforward
from tests.course.bench.clock import in_turn

D_MODEL, D_FF, TOKENS = 512, 1408, (8, 256)


class TorchSwiGLU(nn.Module):
    """SwiGLU made of nn.Linear and F.silu."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(D_MODEL, D_FF, bias=False)
        self.up = nn.Linear(D_MODEL, D_FF, bias=False)
        self.down = nn.Linear(D_FF, D_MODEL, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class TorchMLP(nn.Module):
    """MLP made of nn.Linear and F.gelu."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(D_MODEL, 4 * D_MODEL), nn.Linear(4 * D_MODEL, D_MODEL)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


def ratio(ours: nn.Module, theirs: nn.Module) -> float:
    """The median time of a forward and backward pass of ours, as a multiple of theirs."""
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(*TOKENS, D_MODEL, requires_grad=True)
    mine, torchs = in_turn(*(
        lambda module=module: torch.autograd.grad(module(x).sum(), (x, *module.parameters()))
        for module in (ours, theirs)))
    return mine / torchs


def bench_swiglu():
    """SwiGLU, forward and backward, 8 x 256 tokens of 512."""
    return "SwiGLU forward and backward, against torch", ratio(
        ex08_feedforward.SwiGLU(D_MODEL, D_FF), TorchSwiGLU()), 3.0


def bench_mlp():
    """MLP with GELU, forward and backward, 8 x 256 tokens of 512."""
    return "MLP (GELU) forward and backward, against torch", ratio(
        ex08_feedforward.MLP(D_MODEL, 4 * D_MODEL, "gelu"), TorchMLP()), 3.0
