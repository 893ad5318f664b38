"""Chapter 03 on other shapes, dtypes and extremes."""

from grader import dtypes, points, raises, shapes, tolerance


@points(2)
@dtypes("float32", "float64")
def test_one_feature(impl, draw, dtype):
    """Sizes of one work: one feature in, one out, one row."""
    sizes = [(1, 1), (1, 7), (7, 1)]
    layers = [draw.fill(impl.Linear(*size, bias=True)).to(dtype) for size in sizes]
    return [layer(draw(1, n).to(dtype)) for layer, (n, _) in zip(layers, sizes)]


def test_empty_batch(impl, draw):
    """An empty batch gives an empty result of the right shape."""
    return draw.fill(impl.Linear(6, 4, bias=True))(draw(0, 6))


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
    layers = [impl.Linear(6, 4), impl.Linear(6, 4, bias=True)]
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
    return [impl.linear_flops(0, 4, 4), impl.linear_flops(10**9, 10**6, 10**6)]


def test_width_one(impl, draw):
    """An x with one feature is not stretched to fit six."""
    layer = impl.Linear(6, 4)
    return raises(ValueError, lambda: layer(draw(2, 1)), names="x")


def test_zero_outputs(impl, draw):
    """A layer without outputs is refused too, with or without a bias."""
    return [raises(ValueError, lambda: impl.Linear(4, 0), names="out_features"),
            raises(ValueError, lambda: impl.Linear(-3, 4, bias=True), names="in_features")]
