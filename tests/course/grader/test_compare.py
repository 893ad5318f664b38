"""What a student is told when an answer is not the right one."""

import math
import re

import pytest
import torch

from grader.judge import compare
from grader.sandbox import wire

X = torch.arange(6.0).reshape(2, 3) + 1


def said(mine, right, device="cpu", rtol=None) -> str:
    one, other = (wire.decode(*wire.encode(answer)) for answer in (mine, right))
    return "; ".join(f"{path} {line}".strip()
                     for path, lines in compare.differences(one, other, device, rtol).items()
                     for line in lines)


@pytest.mark.parametrize("mine, right, words", [
    (X.T, X, "your shape is (3, 2), expected (2, 3)"),
    (X[:, :1].expand(2, 3)[:1], X, "your shape is (1, 3), expected (2, 3)"),
    (X.double(), X, "your dtype is float64, expected float32"),
    (X.clone().requires_grad_(), X, "requires a gradient where none is due"),
    (X, X.clone().requires_grad_(), "detached"),
    (X * math.nan, X, "6 of 6 of your numbers are NaN, expected 0"),
    (X, X * math.inf, "0 of 6 of your numbers are infinite, expected 6"),
    (X + torch.tensor([0, 0, 1.0]), X, "2 of 6 numbers differ; the first is [0, 2]: you gave 4, expected 3"),
    (X.long() * 2, X.long(), "the first is [0, 0]: you gave 2, expected 1"),
    (None, X, "you gave None, expected a tensor of shape (2, 3); is a return missing?"),
    ([X, X], (X, X), "you gave a list of 2, expected a tuple of 2"),
    ({"a": 1}, {"a": 1, "b": 2}, "missing: b"),
    ({"a": 1, "c": 2}, {"a": 1}, "not expected: c"),
    ({"a": [1, 2]}, {"a": [1, 3]}, "a[1] you gave 2, expected 3"),
    (1, True, "you gave an int (1), expected a bool (True)"),
    (2.5, 2.0, "you gave 2.5, expected 2"),
    (2.0, 2, "you gave a float (2), expected an int (2)"),
    ("a", "b", "you gave 'a', expected 'b'"),
])
def test_differences_in_words(mine, right, words):
    assert words in said(mine, right)


@pytest.mark.parametrize("mine, right", [
    (X * (1 + 1e-6), X), (2, 2.0), (math.nan, math.nan), (X * math.nan, X * math.nan),
    (torch.tensor([math.inf, 1]), torch.tensor([math.inf, 1])), (torch.empty(0, 3), torch.empty(0, 3)),
])
def test_equal_answers(mine, right):
    assert said(mine, right) == ""


def test_the_sign_of_infinity_counts():
    assert said(torch.tensor([math.inf, 1]), torch.tensor([-math.inf, 1]))


def test_small_rows_are_not_hidden_by_large_ones():
    right = torch.tensor([[1e6, 2e6], [1.0, 2.0]])
    assert said(right + torch.tensor([[0, 0], [0.01, 0]]), right)


def test_a_statistic_has_its_own_tolerance():
    assert said(1.01, 1.0) and not said(1.01, 1.0, rtol=0.02)
    assert not said(torch.tensor(1.01), torch.tensor(1.0), rtol=0.02)


@pytest.mark.parametrize("mine, right", [
    (-0.14741501, -0.14741502), (1.0, 1.0 + 1e-3), (10**30, 10**30 + 1), (10**100, 10**100 + 1), (10**400, 2.0),
    (torch.tensor([0.1, 0.2], dtype=torch.float64), torch.tensor([0.1, 0.2 + 1e-8], dtype=torch.float64)),
    ("a" * 100 + "b", "a" * 100 + "c"),
])
def test_two_different_values_never_print_alike(mine, right):
    text = said(mine, right, rtol=1e-12)
    given, expected = re.search(r"you gave (.*?), expected (\S*)", text).groups()
    assert given != expected


def test_rounding_is_known_by_its_size():
    """Noise of one size is one cause, however its digits fall; a larger error is another."""
    right = torch.linspace(1, 2, 64, dtype=torch.float64)
    noise = torch.randn(2, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    exact, one, other, large = (wire.Leaf("tensor", right + x, "cpu")
                                for x in (0, 1e-7 * noise[0], 2e-7 * noise[1], 1e-4 * noise[1]))
    assert compare.rounded_alike(one, other, exact)
    assert not compare.rounded_alike(one, large, exact)
    assert not compare.rounded_alike(exact, other, exact)
