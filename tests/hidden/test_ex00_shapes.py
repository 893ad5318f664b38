"""Lesson 00 on other shapes, dtypes and extremes."""

import torch

from grader import dtypes, points, raises


def test_strides_drawn(impl, draw):
    """Strides of five axes of any size, given as a tuple, a list or a torch.Size."""
    shape = [2 + int(size) for size in draw.ints(9, 5)]
    return [impl.row_major_strides(kind(shape)) for kind in (tuple, list, torch.Size)]


def test_strides_of_ones(impl, draw):
    """Axes of size 1 have strides like any other."""
    n, m = (2 + int(size) for size in draw.ints(9, 2))
    return [impl.row_major_strides(shape) for shape in [(1,), (1, n, 1), (4, 1, n, 1, m), (1, 1, 1)]]


def test_strides_of_a_list(impl, draw):
    """A shape may be a list, and is left as it was."""
    shape = (1 + draw.ints(6, 4)).tolist()
    return {"strides": impl.row_major_strides(shape), "the list": shape}


def test_strides_of_large_sizes(impl, draw):
    """Strides are whole numbers, exact past 2⁵³ too, where a float64 no longer holds every one."""
    sizes = [2**27 + 1 + 2 * int(size) for size in draw.ints(2**20, 2)]
    return impl.row_major_strides((3, *sizes))


def test_split_extremes(impl, draw):
    """One head holds all features; as many heads as features hold one each."""
    return {"one head": impl.split_heads(draw(2, 5, 6), 1), "six heads": impl.split_heads(draw(2, 5, 6), 6)}


@points(2)
def test_equal_sizes(impl, draw):
    """Sizes that are equal tell no axis from another: as many heads as tokens, as features, as sentences."""
    n = 2 + int(draw.ints(3, 1))
    return {"split": impl.split_heads(draw(n, n, n * n), n), "merge": impl.merge_heads(draw(n, n, n, n)),
            "pairwise": impl.pairwise_dot(draw(n, n, n), draw(n, n, n)),
            "one feature": impl.pairwise_dot(draw(n, 1), draw(n, 1))}


@points(2)
def test_split_non_contiguous(impl, draw):
    """split_heads of a transposed matrix, whose rows are not contiguous, gives the same numbers."""
    return impl.split_heads(draw(12, 5).mT, 3)


@points(2)
def test_merge_non_contiguous(impl, draw):
    """merge_heads takes heads that lie in memory in any order."""
    return {"behind the tokens": impl.merge_heads(draw(5, 3, 4).transpose(0, 1)),
            "last": impl.merge_heads(draw(2, 4, 5, 3).transpose(-3, -1))}


@points(2)
def test_pairwise_non_contiguous(impl, draw):
    """pairwise_dot takes rows that are not contiguous in memory."""
    return impl.pairwise_dot(draw(4, 5).mT, draw(4, 3).mT)


@dtypes("int64", "bool", "float64")
def test_split_any_dtype(impl, draw, dtype):
    """split_heads moves numbers of any kind: ids, masks, doubles."""
    return impl.split_heads(draw.ints(2, 3, 5, 12).to(dtype), 3)


@dtypes("int64", "bool", "float64")
def test_merge_any_dtype(impl, draw, dtype):
    """merge_heads moves numbers of any kind: ids, masks, doubles."""
    return impl.merge_heads(draw.ints(2, 2, 3, 5, 4).to(dtype))


def test_split_short(impl, draw):
    """split_heads of one token."""
    return impl.split_heads(draw(2, 1, 6), 2)


def test_merge_short(impl, draw):
    """merge_heads of one token."""
    return impl.merge_heads(draw(2, 3, 1, 2))


def test_pairwise_short(impl, draw):
    """pairwise_dot of one query, as while decoding, and of one feature."""
    return {"one query": impl.pairwise_dot(draw(2, 1, 4), draw(2, 3, 4)),
            "one feature": impl.pairwise_dot(draw(5, 1), draw(3, 1))}


@points(2)
def test_there_and_back(impl, draw):
    """merge_heads undoes split_heads, and gradients come back through both to their old places."""
    x = draw(2, 5, 12).requires_grad_()
    y = impl.merge_heads(impl.split_heads(x, 3))
    (y * draw(2, 5, 12)).sum().backward()
    return {"merged": y, "grad of x": x.grad}


def test_split_bad_heads_batch(impl, draw):
    """The number of heads is looked at whatever the batch; a negative divisor is refused too."""
    x, bad = draw(2, 4, 12), [5, 7, 8, 9, 10, 11]
    return {f"heads={heads}": raises(ValueError, lambda: impl.split_heads(x, heads), names="heads")
            for heads in (24, bad[int(draw.ints(6, 1))], -3)}


def test_strides_bad_size_alone(impl, draw):
    """A size below 1 is refused wherever it stands, first and alone too."""
    bad = -int(draw.ints(9, 1))
    return {str(shape): raises(ValueError, lambda: impl.row_major_strides(shape), names="shape")
            for shape in [(0,), (bad - 1, 3), (4, 3, bad), (bad - 1, bad - 2)]}
