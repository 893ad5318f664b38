"""What a student is told when an answer is not the right one."""

import math
import re

import pytest
import torch

from grader.judge import compare, resemblance
from grader.sandbox import wire

X = torch.arange(6.0).reshape(2, 3) + 1


def said(mine, right, device="cpu", rtol=None) -> str:
    one, other = (wire.decode(*wire.encode(answer)) for answer in (mine, right))
    found = compare.differences(one, other, device, rtol)
    assert compare.alike(one, other, device, rtol) == (not found)
    return "; ".join(f"{path} {line}".strip() for path, lines in found.items() for line in lines)


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


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.complex64, torch.int64,
                                   torch.bool])
@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (0,), (200,)])
def test_a_glance_says_no_only_where_the_whole_does(dtype, shape):
    kinds = [math.nan, math.inf, -math.inf, 0.0, 1.0, 1 + 1e-6, 1 + 1e-4, -1.0, 3e38]
    if dtype in (torch.int64, torch.bool):
        kinds = [0.0, 1.0, 5.0]
    numbers, answers = torch.tensor(kinds), set()
    for _ in range(100):
        right = numbers[torch.randint(len(kinds), shape)]
        other = numbers[torch.randint(len(kinds), shape)]
        mine = torch.where(torch.rand(shape) < torch.rand(()) ** 2, other, right)
        for rtol in (None, 1e-3):
            answers.add(said(mine.to(dtype), right.to(dtype), rtol=rtol) == "")
    assert answers == ({True} if shape == (0,) else {True, False})


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


# -- what a wrong answer has in common with the right one ---------------------------------------------

Y = torch.randn(2, 4, 4, 8, generator=torch.Generator().manual_seed(0))
ROWS = Y.softmax(-1).masked_fill(torch.arange(4)[:, None] == 1, 0)
ORDER = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])


def seen(mine, right, device="cpu", rtol=None) -> str:
    one, other = (wire.decode(*wire.encode(answer)) for answer in (mine, right))
    return resemblance.seen(one, other, compare.differences(one, other, device, rtol), device, rtol)


@pytest.mark.parametrize("mine, right, words", [
    (ROWS.masked_fill(ROWS == 0, math.nan), ROWS, "NaN stands in just the rows in which all 0 is expected"),
    (ROWS.masked_fill(ROWS == 0, math.nan), Y.masked_fill(ROWS == 0, -math.inf), ""),
    (Y.masked_fill(ROWS == 0, math.nan), Y.masked_fill(ROWS == 0, -math.inf), "in which all −∞ is expected"),
    (Y.masked_fill(ROWS == 0, math.nan), Y, "whole rows are NaN"),
    (Y.masked_fill(Y > 1, math.nan), Y, "every number that is not NaN is right"),
    (Y * math.nan, Y, ""),
    (-Y, Y, "every number is right but for its sign"),
    (2 * Y, Y, "every number is 2 times what is expected"),
    (Y / 8, Y, "1/8 of what is expected (8 is the length of axis 3)"),
    (Y * 8**0.5, Y, "√8 times what is expected (8 is"),
    (Y * 8**-0.5, Y, "1/√8 of what is expected (8 is"),
    (-3 * Y, Y, "every number is −3 times"),
    (1.234 * Y, Y, "every number is 1.234 times"),
    ((1.5 * Y).half(), Y.half(), "every number is 1.5 times"),
    (Y + 0.5, Y, "every number is 0.5 too large"),
    (torch.arange(6) + 1, torch.arange(6), "every number is 1 too large"),
    (Y / Y.sum(-1, keepdim=True), Y, "each row is right up to a factor of its own"),
    (Y - Y.logsumexp(-1, keepdim=True), Y, "each row is right up to a number that is added"),
    (Y.mT, Y, "axes 2 and 3 have changed places"),
    (Y.transpose(1, 2), Y, "axes 1 and 2 have changed places"),
    (Y.movedim(0, -1), Y, "the axes stand in the order 1, 2, 3, 0"),
    (Y.flatten(2), Y, "right and in order, but not their shape"),
    (Y.flip(-1), Y, "along axis 3 the order is reversed"),
    (Y.roll(1, -1), Y, "along axis 3 all is right, but turned by"),
    (Y[..., ORDER], Y, "along axis 3 all is right, but in another order: 0, 2, 4, 6, 1, 3, 5, 7"),
    (Y.flip(0), Y, "along axis 0 the two are swapped"),
    (torch.cat([Y[:, :, :1], Y[:, :, :-1]], 2), Y, "along axis 2 every number stands one place too late"),
    (torch.tensor([0.0, 1, 1, 1]), torch.tensor([0.0, 0, 1, 1]), ""),
    (torch.tensor([0.0, 0, 1, 2, 3]), torch.tensor([0.0, 1, 2, 3, 4]),
     "along axis 0 every number stands one place too late"),
    (Y[:1].expand(2, 4, 4, 8), Y, "along axis 0 only the first is right"),
    (torch.cat([Y[:, :3], Y[:, 3:].sin()], 1), Y, "along axis 1 only the last is wrong"),
    (torch.cat([Y[:, :, :2], Y[:, :, 2:].sin()], 2), Y, "along axis 2 the first 2 are right, the others are wrong"),
    (Y[..., :4] + torch.randn(4, 4).triu(1), Y[..., :4], "only numbers above the diagonal of the last two axes"),
    (torch.ones(3, 4).tril().bool(), ~torch.ones(3, 4).tril().bool(), "True and False have changed places"),
    (Y.double(), Y, "but for the dtype the numbers are right"),
    (Y.sin(), Y, ""),
    ({"one": -Y, "two": -X}, {"one": Y, "two": X}, "every number is right but for its sign"),
    ({"one": -Y, "two": X.sin()}, {"one": Y, "two": X}, "one: every number is right but for its sign"),
    ({"a": X.sin(), "b": X.sin().half(), "c": X}, {"a": X.sin(), "b": X.half(), "c": X},
     "what is of dtype float32 is right, what is of float16 is wrong"),
    ({"row": X[0].sin(), "rows": X, "more": X[None]}, {"row": X[0], "rows": X, "more": X[None]},
     "with 2 or 3 axes it is right, with 1 it is wrong"),
    ({"weight": X.sin(), "bias": X[:, 0]}, {"weight": X, "bias": X[:, 0]}, ""),
    (-2.5, 2.5, "minus what is expected"), (5.0, 2.5, "twice"), (1.234, 2.5, ""), (0.0, 2.5, ""), (2.5, 0.0, ""),
    ({"a": 1.0, "b": 3.0, "c": 5.0}, {"a": 2.0, "b": 6.0, "c": 10.0}, "every number is 1/2 of what is expected"),
    ({"a": 1.0, "b": 3.0, "c": 5.0}, {"a": 2.0, "b": 6.0, "c": 10.5}, ""),
    ("a", "b", ""), (None, X, ""), (X, None, ""), (torch.empty(0, 3), torch.empty(3, 0), ""), ([X], (X,), ""),
])
def test_what_a_wrong_answer_has_in_common(mine, right, words):
    text = seen(mine, right)
    assert words in text and bool(words) == bool(text), text


def test_an_undue_gradient_does_not_hide_the_numbers():
    text = said((2 * X).requires_grad_(), X)
    assert text.startswith("your result requires a gradient") and "you gave 2, expected 1" in text
    assert said(X.clone().requires_grad_(), X) == "your result requires a gradient where none is due"
