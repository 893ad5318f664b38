"""Lesson 08 on other shapes, dtypes and extremes."""

import torch

from grader import accepts, dtypes, points, raises, tolerance


@dtypes("float32", "float64", "bfloat16")
def test_shapes_of_activations(impl, draw, dtype):
    """A single number, an empty tensor and a transposed one go through each activation."""
    functions = {"sigmoid": impl.sigmoid, "silu": impl.silu, "gelu": impl.gelu}
    inputs = {"a single number": draw(1)[0], "an empty tensor": draw(0, 3),
              "a transpose": draw(3, 2, 5).transpose(0, 2)}
    return {f"{name} of {what}": f(x.to(dtype))
            for name, f in functions.items() for what, x in inputs.items()}


@dtypes("float32", "float64")
def test_sigmoid_at_infinity(impl, draw, dtype):
    """sigmoid of −∞ is 0 and of ∞ is 1, with zero gradients."""
    x = torch.tensor([float("-inf"), float("inf")], dtype=dtype, device=draw.device)
    x = torch.cat([x, draw(2).to(dtype)]).requires_grad_()
    y = impl.sigmoid(x)
    y.sum().backward()
    return {"at -inf": y[0], "at inf": y[1], "between": y[2:], "grad of x": x.grad}


@points(2)
@dtypes("float32", "bfloat16", "float16")
def test_gradients_of_activations(impl, draw, dtype):
    """Every activation has the right gradient, in the dtype of x."""
    functions = {"sigmoid": impl.sigmoid, "silu": impl.silu, "gelu": impl.gelu,
                 "gelu, tanh": lambda x: impl.gelu(x, approximate="tanh")}
    said, start = {}, draw(4, 8, scale=1.5)
    for name, f in functions.items():
        x = start.to(dtype).clone().requires_grad_()
        f(x).sum().backward()
        said[f"grad of x through {name}"] = x.grad
    return said


def test_gradients_at_zero(impl, draw):
    """Every activation has the slope at 0 that its neighbours have: 1/4 or 1/2."""
    functions = {"sigmoid": impl.sigmoid, "silu": impl.silu, "gelu": impl.gelu}
    said = {}
    for name, f in functions.items():
        x = torch.cat([draw(3), torch.zeros(3, dtype=draw.float, device=draw.device)]).requires_grad_()
        f(x).sum().backward()
        said[f"grad of x through {name}"] = x.grad
    return said


def test_silu_gradient_far_out_in_bfloat16(impl, draw):
    """silu's gradient at ±80 to ±100 is 0 or 1 in bfloat16 too, and its value at −20 to −30 is not 0."""
    far = (80 + 20 * draw.uniform(8)).to(torch.bfloat16)
    said = {"near -25": impl.silu((-21 - draw.ints(73, 3, 5) / 8).to(draw.float))}
    for name, start in (("positive", far), ("negative", -far)):
        x = start.clone().requires_grad_()
        impl.silu(x).sum().backward()
        said[f"grad of x, {name}"] = x.grad
    return said


def test_gelu_refuses_other_words(impl, draw):
    """An empty, capitalized or missing-by-habit word for approximate is refused."""
    x = draw(3)
    return {word: raises(ValueError, lambda: impl.gelu(x, approximate=word), names="approximate")
            for word in ("", "TANH", "exact", "None")}


def test_inputs_are_left_alone(impl, draw):
    """No activation or layer writes into the tensor it was given."""
    a, b, c, d, e = (draw(4, 6) for _ in range(5))
    impl.sigmoid(a), impl.silu(b), impl.gelu(c)
    impl.Dropout(0.5)(d)
    layer = draw.fill(impl.SwiGLU(6, 10))
    with torch.no_grad():
        impl.sigmoid(a), impl.silu(b), impl.gelu(c), impl.Dropout(0.5)(d), layer(e)
    return layer(e)


@tolerance(0.03)
def test_dropout_fraction_in_half_precision(impl, draw):
    """In bfloat16, too, p = 0.01 drops 1 % of the numbers. Of 2 million, known to 0.7 %."""
    x = torch.ones(2000, 1000, dtype=torch.bfloat16, device=draw.device)
    return (impl.Dropout(0.01)(x) == 0).to(draw.float).mean()


def test_dropout_of_nothing(impl, draw):
    """p = 0 changes nothing while training, and an empty tensor stays empty."""
    return [1 * impl.Dropout(0.0)(draw(4, 6)), impl.Dropout(0.5)(draw(0, 6))]


def test_dropout_has_no_state(impl, draw):
    """Dropout has no parameters and leaves nothing in the state dict; train() turns it on again."""
    layer = impl.Dropout(0.5)
    x = torch.ones(50, 50, dtype=draw.float, device=draw.device)
    layer.eval()(x), layer.train()
    return {"state dict": list(layer.state_dict()), "on again": bool((layer(x) == 0).any())}


def test_dropout_refuses_whole_numbers(impl, draw):
    """Whole numbers are judged like others."""
    return {str(p): raises(ValueError, lambda: impl.Dropout(p), names="p") for p in (1, 2, -1)}


@points(2)
@dtypes("bfloat16", "float16")
def test_mlp_in_half_precision(impl, draw, dtype):
    """An MLP cast to half precision computes and answers in it (all positive: little rounding)."""
    layer = draw.fill(impl.MLP(6, 10, "relu")).to(dtype)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.abs_()
    return layer(draw.uniform(2, 3, 6).to(dtype))


def test_mlp_gradients(impl, draw):
    """Gradients reach x and all four parameters of the MLP."""
    layer, x = draw.fill(impl.MLP(6, 10, "silu")), draw(4, 6).requires_grad_()
    (layer(x) * draw(4, 6)).sum().backward()
    return {"grad of x": x.grad,
            **{f"grad of {name}": p.grad for name, p in layer.named_parameters()}}


def test_mlp_without_bias(impl, draw):
    """Without biases, an MLP gives 0 for a token of zeros, and its numbers are right."""
    layer = draw.fill(impl.MLP(6, 10, "relu", bias=False))
    return [layer(draw(5, 6)), bool((layer(0 * draw(5, 6)) == 0).all())]


def test_mlp_eval_is_steady(impl, draw):
    """In eval mode an MLP with dropout gives what one without it gives."""
    layer = draw.fill(impl.MLP(6, 10, "gelu", dropout=0.9)).eval()
    x = draw(3, 6)
    return {"twice the same": bool((layer(x) == layer(x)).all()), "numbers": layer(x),
            "as without": bool(torch.allclose(layer(x), draw.fill(impl.MLP(6, 10, "gelu"))(x)))}


def test_mlp_refuses_bad_dropout(impl, draw):
    """A dropout outside [0, 1) is refused as the MLP is made, by its own name or by Dropout's, p."""
    def refused(dropout):
        said = [raises(ValueError, lambda: impl.MLP(6, 10, "gelu", dropout=dropout), names=name)
                for name in ("dropout", "p")]
        return any(words.startswith("ValueError that names") for words in said)
    return [refused(1.0), refused(-0.5)]


def test_smallest_sizes(impl, draw):
    """A d_model and a d_ff of 1 are taken, and x has one feature then."""
    layers = {"MLP": lambda: draw.fill(impl.MLP(1, 1, "gelu")),
              "SwiGLU": lambda: draw.fill(impl.SwiGLU(1, 1)), "without d_ff": lambda: impl.SwiGLU(1)}
    return {**{name: accepts(layer) for name, layer in layers.items()},
            "numbers": [layers[name]()(draw(3, 1)) for name in ("MLP", "SwiGLU")]}


def test_dropout_of_swapped_axes(impl, draw):
    """Dropout takes a tensor that is not contiguous: survivors are x / (1 − p) where they stood."""
    x, p = draw(3, 2, 50).transpose(0, 1), (1 + int(draw.ints(4, 1))) / 10
    kept = impl.Dropout(p)(x) / x
    return {"smallest": kept[kept != 0].min(), "largest": kept.max()}


def test_mlp_refuses_a_capital(impl, draw):
    """Names of activations are exact."""
    return [raises(ValueError, lambda: impl.MLP(6, 10, name), names="activation")
            for name in ("GELU", "", "gelu_new")]


def test_swiglu_width_of_real_models(impl, draw):
    """The default width from d_model = 1 upwards is a whole number of 64s."""
    with torch.device("meta"):
        return {str(n): impl.SwiGLU(n).down.weight.shape[1] for n in (1, 24, 25, 768, 1000, 4096)}


def test_swiglu_narrow(impl, draw):
    """d_ff may be smaller than d_model, and 1."""
    return [draw.fill(impl.SwiGLU(6, width))(draw(4, 6)).flatten() for width in (1, 5)]


def test_tokens_do_not_mix(impl, draw):
    """A token's output is the same alone, among others, and in a transposed batch."""
    layer, x = draw.fill(impl.SwiGLU(6, 10)), draw(3, 2, 6)
    return {"alone": layer(x[1, 0]), "in a batch": layer(x)[1, 0],
            "transposed": layer(x.transpose(0, 1))[0, 1]}


def test_wrong_width(impl, draw):
    """An x that does not end in d_model features raises a ValueError that names x."""
    mlp, swiglu, width = impl.MLP(6, 10, "gelu"), impl.SwiGLU(6, 10), 1 + int(draw.ints(5, 1))
    return {f"{n} features": [raises(ValueError, lambda: mlp(draw(2, n)), names="x"),
                              raises(ValueError, lambda: swiglu(draw(2, n)), names="x")] for n in (width, width + 6)}


def test_moves_with_the_module(impl, draw):
    """Every parameter goes wherever the module is sent, under the names that checkpoints use."""
    said = {}
    for name, layer in (("MLP", impl.MLP(6, 10, "gelu")), ("SwiGLU", impl.SwiGLU(6))):
        state = layer.to("meta").state_dict()
        said[name] = {key: f"{tuple(tensor.shape)} on {tensor.device.type}"
                      for key, tensor in sorted(state.items())}
    return said
