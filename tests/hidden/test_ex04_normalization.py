"""Lesson 04 on other shapes, dtypes and extremes."""

import torch

from grader import accepts, dtypes, points, raises, shapes
from grader.course.modes import default_dtype


def both(impl, draw, d_model, *arguments):
    """A LayerNorm and an RMSNorm of one size on the device of the check, by name."""
    return {"LayerNorm": impl.LayerNorm(d_model, *arguments).to(draw.device),
            "RMSNorm": impl.RMSNorm(d_model, *arguments).to(draw.device)}


@dtypes("float32", "float64")
def test_one_feature(impl, draw, dtype):
    """One feature is its own mean: LayerNorm leaves the bias, RMSNorm the sign and the weight."""
    x = draw(5, 1).to(dtype)
    return {name: draw.fill(norm).to(dtype)(x) for name, norm in both(impl, draw, 1).items()}


@points(2)
def test_constant_and_zero_rows(impl, draw):
    """A token of equal features, or of zeros, gives finite numbers, here and going back."""
    x = draw(3, 8) * 0
    x[1], x[2] = 3, -3
    answers = {}
    for name, norm in both(impl, draw, 8).items():
        mine = x.clone().requires_grad_()
        y = draw.fill(norm)(mine)
        (y * draw(3, 8)).sum().backward()
        answers[name] = {"y": y, "grad of x": mine.grad}
    return answers


def test_empty_batch(impl, draw):
    """An empty batch gives an empty result of the right shape."""
    n = 2 + int(draw.ints(9, 1))
    return {name: [norm(draw(0, n)), norm(draw(n, 0, n))] for name, norm in both(impl, draw, n).items()}


@points(2)
def test_non_contiguous(impl, draw):
    """A transposed input, whose features do not lie side by side, gives the same numbers."""
    return {name: [draw.fill(norm)(draw(6, 5).T), draw.fill(norm)(draw(6, 3, 2).transpose(0, 2))]
            for name, norm in both(impl, draw, 6).items()}


@dtypes("float16")
def test_tiny_values(impl, draw, dtype):
    """Features near 0.0001, whose squares vanish in float16, still come out in scale."""
    x = draw(2, 64, scale=1e-4).to(dtype)
    return {name: norm.to(dtype)(x) for name, norm in both(impl, draw, 64, 1e-9).items()}


def test_no_eps(impl, draw):
    """With eps=0 the result is the bare quotient."""
    return {name: [norm(draw(4, 6)), norm(draw(4, 6, scale=1e-7))] for name, norm in both(impl, draw, 6, 0).items()}


def test_tokens_stand_alone(impl, draw):
    """What a token becomes depends on that token alone, whoever stands beside it."""
    x, other = draw(1, 6), draw(3, 6, scale=5.0)
    mixed = x.new_empty(4, 6)
    mixed[:1], mixed[1:] = x, other
    return {name: norm(mixed) for name, norm in both(impl, draw, 6).items()}


def test_square_input(impl, draw):
    """Where tokens and features are as many, the mean still runs over the features."""
    return {name: draw.fill(norm)(draw(6, 6)) for name, norm in both(impl, draw, 6).items()}


def test_state_dict(impl, draw):
    """The state dict has torch's names and shapes and nothing else."""
    n = 1 + int(draw.ints(30, 1))
    return {name: shapes(norm.state_dict()) for name, norm in both(impl, draw, n).items()}


def test_moves_with_the_module(impl, draw):
    """The parameters go wherever the module is sent."""
    return {name: [parameter.device.type for parameter in norm.to("meta").parameters()]
            for name, norm in both(impl, draw, 6).items()}


@points(2)
@dtypes("float32", "float64", "bfloat16")
def test_backward_any_rank(impl, draw, dtype):
    """rms_norm_backward takes any number of batch axes, none included."""
    shapes = {"no batch axis": (), "three batch axes": (2, 1, 3)}
    return {name: impl.rms_norm_backward(draw(*batch, 6).to(dtype), draw(6).to(dtype), 1e-5,
                                         draw(*batch, 6).to(dtype))
            for name, batch in shapes.items()}


def test_backward_of_a_sum(impl, draw):
    """Where the loss is y.sum(), all gradients of y share one number in memory."""
    x = draw(5, 6)
    return impl.rms_norm_backward(x, draw(6), 1e-5, x.new_ones(()).expand(5, 6))


def test_backward_wider_x(impl, draw):
    """It is x that says how wide rms_norm_backward computes: float64 keeps its digits beside a float32 weight."""
    x, grad_out = draw(5, 6).to(torch.float64), draw(5, 6).to(torch.float64)
    return impl.rms_norm_backward(x, draw(6), 1e-5, grad_out)


def test_backward_non_contiguous(impl, draw):
    """rms_norm_backward takes tensors whose features do not lie side by side."""
    x, grad_out = draw(6, 3, 2).transpose(0, 2), draw(6, 3, 2).transpose(0, 2)
    return impl.rms_norm_backward(x, draw(6), 1e-5, grad_out)


def test_backward_zero_rows(impl, draw):
    """A token of zeros has a finite gradient, 1/√eps times the pull; it is bounded by eps."""
    return impl.rms_norm_backward(draw(2, 6) * 0, draw(6), 1e-4, draw(2, 6))


def test_too_wide(impl, draw):
    """An x that is wider or narrower than d_model is refused, whatever its batch."""
    wide, narrow = 7 + int(draw.ints(9, 1)), 2 + int(draw.ints(4, 1))
    return {name: {str(wide): raises(ValueError, lambda: norm(draw(wide)), names="x"),
                   str(narrow): raises(ValueError, lambda: norm(draw(2, 3, narrow)), names="x")}
            for name, norm in both(impl, draw, 6).items()}


def test_smallest_sizes(impl, draw):
    """One feature is enough for a norm."""
    return {"LayerNorm": accepts(lambda: impl.LayerNorm(1)),
            "RMSNorm": accepts(lambda: impl.RMSNorm(1, 0))}


def test_negative_sizes(impl, draw):
    """A negative d_model is refused by name, before torch complains of a negative dimension."""
    bad = -1 - int(draw.ints(20, 1))
    return {f"LayerNorm({bad})": raises(ValueError, lambda: impl.LayerNorm(bad), names="d_model"),
            f"RMSNorm({bad})": raises(ValueError, lambda: impl.RMSNorm(bad), names="d_model")}


def test_default_dtype(impl, draw):
    """Where no dtype is said, weight and bias have torch's default one."""
    with default_dtype(torch.float64):
        norms = [impl.LayerNorm(6), impl.RMSNorm(6)]
    x = draw(3, 6).double()
    return [(sorted({str(p.dtype) for p in norm.parameters()}), draw.fill(norm)(x)) for norm in norms]


@dtypes("bfloat16", "float16")
def test_weight_in_half_precision(impl, draw, dtype):
    """A wide x under a weight in half precision: x is cast to its own dtype, which it has, before the weight."""
    norms, x = both(impl, draw, 6), draw(4, 6).to(dtype).to(draw.float)
    for norm in norms.values():
        with torch.no_grad():       # whole numbers, which half precision holds
            for _, p in sorted(norm.to(dtype).named_parameters()):
                p.copy_(draw.ints(9, 6) - 4)
    return {name: norm(x) for name, norm in norms.items()}
