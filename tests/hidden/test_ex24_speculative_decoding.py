"""Chapter 24 on other shapes and extremes."""

from grader import dtypes, points


@points(2)
@dtypes("float32", "float64")
def test_both_ends(impl, draw, dtype):
    """Numbers far above and far below zero may stand in one tensor."""
    return impl.softplus(draw(6, 4, scale=300.0).to(dtype))


def test_sharp(impl, draw):
    """With β = 50 softplus is close to max(x, 0), and still finite."""
    return impl.softplus(draw(3, 7, scale=10.0), beta=50)


def test_two_sides(impl, draw):
    """softplus(x) − softplus(−x) is x."""
    x = draw(3, 4)
    return impl.softplus(x) - impl.softplus(-x)


def test_non_contiguous(impl, draw):
    """The numbers of x may lie in memory in another order."""
    return [impl.softplus(draw(4, 3).T), impl.softplus(draw(3).expand(5, 3))]


def test_slope_far_out(impl, draw):
    """The slope is finite where e^x is not."""
    x = draw(5, scale=400.0).requires_grad_()
    impl.softplus(x).sum().backward()
    return x.grad
