"""The stand-ins that checks use in place of torch's own parts."""

import pytest
import torch
from torch import nn

from grader.course.doubles import Descent, Elsewhere, Operations

MADE = {
    "a factory is told": lambda d: torch.arange(3, device=d),
    "computed from it": lambda d: torch.arange(3, device=d)[:, None] * 2.0 + torch.tensor(1.0),
    "sent there": lambda d: torch.ones(3).to(d),
    "sent there by name": lambda d: torch.ones(3).to(device="meta"),
    "sent where another is": lambda d: torch.ones(3).to(torch.zeros(1, device=d)),
    "written into": lambda d: torch.zeros(3, device=d).copy_(torch.ones(3)),
    "an index of the CPU": lambda d: torch.zeros(3, device=d)[torch.tensor([0, 2])],
    "like another": lambda d: torch.zeros_like(torch.ones(3, device=d)),
    "one of several": lambda d: torch.ones(4, device=d).split(2)[1],
    "where torch's default is": lambda d: _under(d),
    "a buffer": lambda d: nn.BatchNorm1d(2, device=d).running_mean,
    "by a condition": lambda d: torch.where(torch.ones(3, device=d) > 0, 1.0, 0.0),
}
NOT_MADE = {
    "no device": lambda d: torch.arange(3),
    "brought back": lambda d: torch.ones(3, device=d).cpu(),
    "its numbers": lambda d: torch.tensor(torch.ones(3, device=d).tolist()),
    "the device of another, unasked": lambda d: torch.ones(torch.zeros(3, device=d).shape),
}


def _under(device):
    with device:
        return torch.arange(3)


@pytest.mark.parametrize("what", MADE)
def test_lies_elsewhere(what):
    with Elsewhere() as there:
        assert MADE[what](there.device).device == there.device


@pytest.mark.parametrize("what", NOT_MADE)
def test_lies_here(what):
    with Elsewhere() as there:
        assert NOT_MADE[what](there.device).device.type == "cpu"


@pytest.mark.parametrize("meet", [lambda x, y: x + y, lambda x, y: y @ x, lambda x, y: torch.cat([x, y]),
                                  lambda x, y: torch.outer(y, x)])
def test_tensors_of_two_devices_do_not_meet(meet):
    with Elsewhere() as there, pytest.raises(RuntimeError, match="meta and cpu"):
        meet(torch.ones(3, device=there.device), torch.ones(3))


def test_what_was_sent_away_stays_here():
    with Elsewhere() as there:
        x = torch.ones(3)
        assert x.to(there.device).device == there.device and x.device.type == "cpu"


def test_descent_takes_a_step():
    p = nn.Parameter(torch.tensor([1.0, 2.0]))
    (p * torch.tensor([1.0, -4.0])).sum().backward()
    Descent([p], lr=0.5).step()
    assert p.tolist() == [0.5, 4.0]


def test_operations_are_counted():
    x, y = torch.ones(3, 4), torch.ones(4, 5)
    with Operations() as seen:
        (x @ y).exp()
    assert (seen.count, seen.largest, seen.multiply_adds) == (2, 15, 60)
    with Operations() as seen:
        torch.addmm(torch.zeros(5), x, y)
        torch.bmm(x[None], y[None])
    assert seen.multiply_adds == 120
