"""Inputs are the same everywhere, for good."""

import hashlib

import pytest
import torch
from torch import nn

from grader.course.draw import Draw, seed_of


def _digest(*tensors) -> str:
    return hashlib.sha256(b"".join(t.detach().contiguous().numpy().tobytes() for t in tensors)).hexdigest()[:16]


def test_the_stream_is_frozen():
    """Recorded once. If this fails, every recorded answer and every grade would change."""
    draw = Draw(7)
    numbers = _digest(draw(3, 4), draw.uniform(5), draw.ints(100, 6), draw(2, scale=1000.0))
    layer = draw.fill(nn.Linear(3, 4))
    assert numbers == "5baf739d89ecb0f9"
    assert _digest(layer.weight, layer.bias) == "3dedb2955db325ac"
    assert hashlib.sha256(draw.text(200).encode()).hexdigest()[:16] == "8d98f94083dadbc5"
    assert seed_of(0, "ex03_linear", "test_forward") == 1389671331


class Norm(nn.Module):
    def __init__(self, names):
        super().__init__()
        for name, shape in names:
            self.register_parameter(name, nn.Parameter(torch.zeros(shape)))


def test_fill_does_not_depend_on_the_order_of_registration():
    names = [("weight", (5,)), ("bias", (5,)), ("matrix", (400, 100))]
    one, other = Draw(0).fill(Norm(names)), Draw(0).fill(Norm(names[::-1]))
    assert all(torch.equal(a, dict(other.named_parameters())[n]) for n, a in one.named_parameters())
    assert not torch.equal(one.weight, one.bias)
    assert one.matrix.std().item() == pytest.approx(0.1, rel=0.02)
    assert (one.weight - 1).abs().max() < 1 and one.bias.mean().item() == pytest.approx(0.1, abs=0.1)


def test_a_tied_parameter_is_filled_the_same_from_either_side():
    def tied(first):
        model = nn.ModuleDict({"a": nn.Linear(3, 3, bias=False), "b": nn.Linear(3, 3, bias=False)})
        other = "b" if first == "a" else "a"
        model[other].weight = model[first].weight
        return Draw(0).fill(model)["a"].weight
    assert torch.equal(tied("a"), tied("b"))


def test_changes_in_place_are_seen():
    draw = Draw(0)
    x, y, z = draw(3), draw(3), draw(3)
    y.data.mul_(2)
    z.resize_(2)
    assert draw.changed() == [1, 2] and x.shape == (3,)


def test_exact_numbers_are_those_of_the_dtype():
    plain, exact = Draw(3), Draw(3, exact=torch.bfloat16)
    x, y = plain(50), exact(50)
    assert y.dtype == torch.float64 and torch.equal(x.to(torch.bfloat16).double(), y)
    layers = plain.fill(nn.Linear(4, 4)), exact.fill(nn.Linear(4, 4))
    assert torch.equal(layers[0].weight.to(torch.bfloat16).double(), layers[1].weight)


def test_ranges():
    draw = Draw(1)
    assert 0 <= draw.uniform(10_000).min() and draw.uniform(10_000).max() < 1
    assert set(draw.ints(3, 200).tolist()) == {0, 1, 2}
    assert len(draw.text(77)) == 77
    assert draw().shape == draw.uniform().shape == draw.ints(3).shape == ()
