"""Lesson 03 on other shapes, dtypes and extremes."""

import torch

from grader import dtypes, points, raises, shapes, tolerance
from grader.course.modes import default_dtype


@points(2)
@dtypes("float32", "float64")
def test_one_feature(impl, draw, dtype):
    """Sizes of one work: one feature in, one out, one row."""
    sizes = [(1, 1), (1, 7), (7, 1)]
    layers = [draw.fill(impl.Linear(*size, bias=True)).to(dtype) for size in sizes]
    return [layer(draw(1, n).to(dtype)) for layer, (n, _) in zip(layers, sizes)]


def test_equal_sizes(impl, draw):
    """As many inputs as outputs, and as rows: nothing tells a square weight from its transpose, but the numbers."""
    n = 2 + int(draw.ints(6, 1))
    return {"y": draw.fill(impl.Linear(n, n, bias=True))(draw(n, n, n)),
            "gradients": impl.linear_backward(draw(n, n, n), draw(n, n), draw(n, n, n))}


@points(2)
def test_non_contiguous(impl, draw):
    """Inputs whose features, or whose batch axes, lie in memory in another order."""
    layer = draw.fill(impl.Linear(6, 4))
    return {"features": layer(draw(6, 5).T),
            "batch and features": layer(draw(6, 3, 2).permute(2, 1, 0)),
            "one row, expanded": layer(draw(6).expand(2, 3, 6))}


@tolerance(0.03)
def test_init_spread_other_side(impl, draw):
    """σ depends on both sizes: a wide-to-narrow layer starts like a narrow-to-wide one.

    Each is measured over 65,536 numbers, so known to 0.3 %.
    """
    return [impl.Linear(1024, 64).weight.std(), impl.Linear(64, 1024).weight.std()]


@points(2)
@dtypes("float32", "float64", "bfloat16")
def test_backward_any_rank(impl, draw, dtype):
    """linear_backward takes any number of batch axes, none included."""
    shapes = {"no batch axis": (), "three batch axes": (2, 1, 3)}
    return {name: impl.linear_backward(draw(*batch, 4).to(dtype), draw(4, 4).to(dtype),
                                       draw(*batch, 4).to(dtype))
            for name, batch in shapes.items()}


def test_backward_of_a_sum(impl, draw):
    """Where the loss is y.sum(), every gradient of y is 1 and all of them share one number."""
    x = draw(5, 4)
    return impl.linear_backward(x, draw(4, 4), x.new_ones(()).expand(5, 4))


def test_state_dict(impl, draw):
    """The state dict has torch's names and shapes and nothing else, with and without a bias."""
    n, m = (1 + int(size) for size in draw.ints(30, 2))
    layers = [impl.Linear(n, m), impl.Linear(n, m, bias=True)]
    return [shapes(layer.state_dict()) for layer in layers]


def test_moves_with_the_module(impl, draw):
    """Weight and bias go wherever the module is sent."""
    layer = impl.Linear(6, 4, bias=True).to("meta")
    return [layer.weight.device.type, layer.bias.device.type]


def test_no_bias_is_none(impl, draw):
    """Without a bias the attribute is there and is None, as in torch."""
    return getattr(impl.Linear(6, 4), "bias", "no attribute") is None


def test_flops_of_nothing(impl, draw):
    """No rows cost nothing, and counts past 64 bits stay exact."""
    n = 10**6 + int(draw.ints(1000, 1))
    return [impl.linear_flops(0, n, 4), impl.linear_flops(10**9 + 1, n + 1, n)]


def test_zero_outputs(impl, draw):
    """A layer without outputs is refused too, with or without a bias."""
    bad = -1 - int(draw.ints(20, 1))
    return {"(4, 0)": raises(ValueError, lambda: impl.Linear(4, 0), names="out_features"),
            f"({bad}, 4)": raises(ValueError, lambda: impl.Linear(bad, 4, bias=True), names="in_features")}


def test_default_dtype(impl, draw):
    """Where no dtype is said, the parameters have torch's default one."""
    with default_dtype(torch.float64):
        layer = impl.Linear(5, 3, bias=True)
    return [layer.weight.dtype == layer.bias.dtype == torch.float64, draw.fill(layer)(draw(2, 5).double())]


def test_bias_of_zeros_learns(impl, draw):
    """A bias begins at 0, and has a gradient all the same."""
    layer = draw.fill(impl.Linear(4, 3, bias=True))
    with torch.no_grad():
        layer.bias.zero_()
    (layer(draw(5, 4)) * draw(5, 3)).sum().backward()
    return layer.bias.grad
