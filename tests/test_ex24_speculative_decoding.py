"""What chapter 24 asks of softplus."""

from grader import accepts, dtypes, points, raises

FORBIDDEN = {"softplus": {"torch.nn.Softplus", "torch.nn.functional.softplus"}}


@points(2)
@dtypes("float32", "float64")
def test_values(impl, draw, dtype):
    """softplus computes log(1 + eˣ), in the dtype of x.

    log1p(y) is log(1 + y).
    """
    return impl.softplus(draw(2, 3, 5, scale=2.0).to(dtype))


def test_beta(impl, draw):
    """softplus computes log(1 + e^(βx)) / β: β multiplies x, and divides the result.

    Without the division the slope far to the right would be β, and not 1.
    """
    return [impl.softplus(draw(2, 5), beta=3.0), impl.softplus(draw(2, 5), beta=0.5)]


@points(2)
def test_large(impl, draw):
    """softplus of numbers near 1,000 is finite, though e^1000 is not.

    log(1 + e^z) = z + log(1 + e^−z). Which of the two sides is safe where z is above 0?
    """
    return impl.softplus(draw.uniform(4) * 1000 + 100)


def test_far_below_zero(impl, draw):
    """softplus of numbers near −25 is small and not 0: it comes close to eˣ.

    In float32, 1 + 1e-11 is 1. log1p never makes that sum.
    """
    return impl.softplus(-20 - 10 * draw.uniform(6))


@points(2)
def test_slope(impl, draw):
    """The slope of softplus is the sigmoid of βx, at x = 0 too, where it is 1/2.

    The numbers here are half zeros. What slope does a maximum have where both sides are equal?
    """
    x = draw(4, 5)
    x = (x * (x > 0)).requires_grad_()
    (impl.softplus(x, beta=2.0) * draw(4, 5)).sum().backward()
    return x.grad


def test_any_shape(impl, draw):
    """x may have any shape, without an axis or without a number too.

    Every number goes by itself: nothing in the formula asks for an axis.
    """
    return {"shape ()": impl.softplus(draw()), "shape (0, 3)": impl.softplus(draw(0, 3)),
            "shape (2, 1, 3)": impl.softplus(draw(2, 1, 3))}


def test_bad_beta(impl, draw):
    """A beta of 0 or below raises a ValueError that names it.

    Look at beta before anything is computed with it.
    """
    return {"beta = 0": raises(ValueError, lambda: impl.softplus(draw(3), beta=0), names="beta"),
            "beta = -1": raises(ValueError, lambda: impl.softplus(draw(3), beta=-1), names="beta"),
            "beta = 0.1": accepts(lambda: impl.softplus(draw(3), beta=0.1))}
