"""What chapter 08 asks of the activations, Dropout, the MLP and SwiGLU."""

import torch

from grader import accepts, dtypes, points, raises, shape, shapes, shares_memory, tolerance

CURVES = {
    "torch.sigmoid", "torch.sigmoid_", "torch.Tensor.sigmoid", "torch.Tensor.sigmoid_",
    "torch.special.expit", "torch.nn.functional.sigmoid", "torch.nn.Sigmoid",
    "torch.nn.functional.logsigmoid", "torch.nn.LogSigmoid",
    "torch.nn.functional.silu", "torch.nn.SiLU", "torch.nn.functional.gelu", "torch.nn.GELU",
    "torch.nn.functional.glu", "torch.nn.GLU",
}
DROPOUTS = {
    "torch.dropout", "torch.dropout_", "torch.native_dropout", "torch.feature_dropout",
    "torch.alpha_dropout", "torch.nn.functional.dropout", "torch.nn.functional.alpha_dropout",
    "torch.nn.functional.dropout1d", "torch.nn.Dropout", "torch.nn.Dropout1d",
    "torch.nn.AlphaDropout",
}
FORBIDDEN = {**dict.fromkeys(("sigmoid", "silu", "gelu", "SwiGLU"), CURVES),
             "Dropout": DROPOUTS, "MLP": CURVES | DROPOUTS}


def _ones(draw, *shape):
    return torch.ones(*shape, dtype=draw.float, device=draw.device)


def _shapes(module):
    return shapes(module.named_parameters())


@dtypes("float32", "bfloat16", "float16", "float64")
def test_sigmoid(impl, draw, dtype):
    """sigmoid is 1 / (1 + e^−x), in the dtype of x.

    Compute in at least float32 (`widen` does it, and leaves float64 as it is) and cast the result
    back with .to(x.dtype).
    """
    return impl.sigmoid(draw(4, 7, scale=3.0).to(dtype))


@points(2)
@dtypes("float32", "bfloat16", "float16")
def test_sigmoid_far_out(impl, draw, dtype):
    """sigmoid is 0 at −100 and 1 at 100: no NaN.

    e^100 is past float32's largest number. Of the two forms 1 / (1 + e^−x) and e^x / (1 + e^x),
    take the one whose exponential is small.
    """
    x = 100 * _ones(draw, 3).to(dtype)
    return {"at 100": impl.sigmoid(x), "at -100": impl.sigmoid(-x)}


@points(2)
@dtypes("float32", "bfloat16", "float16")
def test_sigmoid_gradient_far_out(impl, draw, dtype):
    """The gradient of sigmoid is 0 at −100 and at 100: no NaN.

    torch.where sends a gradient of 0 into the branch that it did not take, and 0 · ∞ is NaN.
    So choose the argument of exp with where, before exp, not between two finished results.
    """
    x = torch.cat([100 * _ones(draw, 3), -100 * _ones(draw, 3), draw(3)]).to(dtype)
    x.requires_grad_()
    impl.sigmoid(x).sum().backward()
    return {"grad of x at 100": x.grad[:3], "grad of x at -100": x.grad[3:6],
            "grad of x near 0": x.grad[6:]}


def test_sigmoid_gradient_at_zero(impl, draw):
    """The gradient of sigmoid at exactly 0 is 1/4.

    abs has the gradient 0 at 0, so e^−|x| written with abs lets nothing through there. Which
    branch of a torch.where does 0 belong to, and what is that branch's slope?
    """
    x = (0 * draw(5)).requires_grad_()
    impl.sigmoid(x).sum().backward()
    return x.grad


def test_sigmoid_keeps_small_values(impl, draw):
    """sigmoid of −20 to −30 is small and not zero: σ(−20) is 2 · 10⁻⁹.

    For negative x use e^x / (1 + e^x). What is computed as 1 minus something cannot come out
    smaller than 10⁻⁷, and a clamped x stops falling.
    """
    return impl.sigmoid((-21 - draw.ints(73, 3, 5) / 8).to(draw.float))


@points(2)
@dtypes("float32", "bfloat16", "float16", "float64")
def test_silu(impl, draw, dtype):
    """silu is x · σ(x), in the dtype of x.

    The sigmoid that you wrote, times x.
    """
    return impl.silu(draw(4, 7, scale=3.0).to(dtype))


@dtypes("float32", "float16")
def test_silu_far_out(impl, draw, dtype):
    """silu is 0 at −100 and 100 at 100, and its gradient there is 0 and 1.

    It follows if sigmoid is right there.
    """
    x = torch.cat([100 * _ones(draw, 3), -100 * _ones(draw, 3)]).to(dtype).requires_grad_()
    y = impl.silu(x)
    y.sum().backward()
    return {"at 100": y[:3], "at -100": y[3:],
            "grad of x at 100": x.grad[:3], "grad of x at -100": x.grad[3:]}


@points(2)
@dtypes("float32", "float64")
def test_gelu(impl, draw, dtype):
    """gelu is x · Φ(x) with the exact Φ, unless it is told otherwise.

    Φ(x) = ½ (1 + erf(x / √2)). The tanh form is up to 0.0005 off; that is wrong here.
    """
    return impl.gelu(draw(4, 16, scale=1.5).to(dtype))


@points(2)
@dtypes("float32", "float64")
def test_gelu_tanh(impl, draw, dtype):
    """gelu with approximate="tanh" is ½ x (1 + tanh(√(2/π) (x + 0.044715 x³))).

    Mind the bracket: √(2/π) multiplies both terms. The exact form is up to 0.0005 off.
    """
    return impl.gelu(draw(4, 16, scale=1.5).to(dtype), approximate="tanh")


@dtypes("float32", "bfloat16", "float16")
def test_gelu_far_out(impl, draw, dtype):
    """gelu is 0 at −100 and 100 at 100 with gradients 0 and 1, in both forms and the dtype of x.

    100³ is past float16's largest number, 65,504: compute in at least float32, then cast back.
    """
    said = {}
    for form in ("none", "tanh"):
        x = torch.cat([100 * _ones(draw, 3), -100 * _ones(draw, 3)]).to(dtype).requires_grad_()
        y = impl.gelu(x, approximate=form)
        y.sum().backward()
        said |= {f"{form} at 100": y[:3], f"{form} at -100": y[3:],
                 f"{form}, grad of x at 100": x.grad[:3], f"{form}, grad of x at -100": x.grad[3:]}
    return said


@dtypes("bfloat16", "float16")
def test_gelu_tail_in_half_precision(impl, draw, dtype):
    """Between −4 and −2, gelu in half precision is as exact as its dtype can say.

    1 + erf is there the difference of two numbers close to 1, and half precision has too few
    digits for it. Compute in float32, and cast only the result.
    """
    x = (-2 - draw.ints(65, 4, 8) / 32).to(dtype)         # exact in both dtypes
    return {"none": impl.gelu(x), "tanh": impl.gelu(x, approximate="tanh")}


def test_gelu_unknown_form(impl, draw):
    """An approximate that is neither "none" nor "tanh" raises a ValueError that names approximate.

    Look at it before computing, and say in the message what it was.
    """
    x = draw(3)
    return raises(ValueError, lambda: impl.gelu(x, approximate="erf"), names="approximate")


@points(2)
@tolerance(0.02)
def test_dropout_fraction(impl, draw):
    """While training, Dropout(p) sets the fraction p of all numbers to 0, whatever p is.

    The answers are fractions of a million numbers, each known to 0.3 % or better.
    """
    x = _ones(draw, 1000, 1000)
    return {f"zeros with p = {p}": (impl.Dropout(p)(x) == 0).to(draw.float).mean()
            for p in (0.1, 0.75)}


def test_dropout_survivors(impl, draw):
    """While training, every number that survives comes out as x / (1 − p).

    The answers are the smallest and the largest of y / x, over all that is not zero.
    """
    x = draw(40, 50)
    y = impl.Dropout(0.2)(x)
    kept = (y / x)[y != 0]
    return {"smallest y / x": kept.min(), "largest y / x": kept.max()}


@tolerance(0.02)
def test_dropout_mean(impl, draw):
    """While training, Dropout keeps the mean: what is lost to zeros, the survivors make up for.

    The mean of a million ones after dropout, known to 0.1 %.
    """
    return impl.Dropout(0.5)(_ones(draw, 1000, 1000)).mean()


@points(2)
def test_dropout_eval(impl, draw):
    """In eval mode, Dropout gives x itself, not a copy.

    model.eval() sets self.training to False on every module. Ask for it in forward.
    """
    x = draw(4, 6)
    y = impl.Dropout(0.5).eval()(x)
    return {"numbers": 1 * y, "is x itself": shares_memory(x, y)}


def test_dropout_each_number_alone(impl, draw):
    """Each number is dropped or kept by itself: no row and no column goes as a whole.

    Draw a random number for every number of x. (64 draws at p = 0.5 agree once in 10¹⁹ times.)
    """
    kept = impl.Dropout(0.5)(_ones(draw, 3, 64, 64)) != 0
    some = [kept.any(dim).all() & ~kept.all(dim).any() for dim in (1, 2)]
    return {"every column has both": bool(some[0]), "every row has both": bool(some[1]),
            "the batch shares one mask": bool((kept[0] == kept[1]).all())}


def test_dropout_fresh_draws(impl, draw):
    """Every call draws anew, and torch's own seed decides what: the same seed, the same zeros.

    Draw from torch's generator in forward, and leave its seed to whoever calls you.
    """
    layer, x = impl.Dropout(0.5), _ones(draw, 20, 20)
    torch.manual_seed(draw.seed)
    first, second = layer(x), layer(x)
    torch.manual_seed(draw.seed)
    again = layer(x)
    torch.manual_seed(draw.seed + 1)
    return {"a second call gives the same": bool((first == second).all()),
            "the same seed gives the same": bool((first == again).all()),
            "another seed gives the same": bool((first == layer(x)).all())}


def test_dropout_gradient(impl, draw):
    """A dropped number gets no gradient, and a survivor gets 1 / (1 − p) of it.

    The answers compare the gradient with what the forward pass did to each number.
    """
    x = draw(20, 30).requires_grad_()
    y = impl.Dropout(0.2)(x)
    y.sum().backward()
    done = y.detach() / x.detach()
    return {"agrees with the forward pass": bool(torch.allclose(x.grad, done)),
            "largest": x.grad.max()}


@dtypes("float32", "bfloat16", "float16")
def test_dropout_dtype(impl, draw, dtype):
    """Dropout gives back the dtype and shape of x.

    A float32 mask times a half-precision x is float32: make the mask like x, or cast the result.
    """
    y = impl.Dropout(0.5)(draw(3, 5).to(dtype))
    return {"dtype is kept": y.dtype == dtype, "shape": shape(y)}


def test_dropout_bad_p(impl, draw):
    """A p outside [0, 1) raises a ValueError that names p, as the layer is made; 0 is allowed.

    At p = 1 nothing would survive, and 1 / (1 − p) is a division by zero. NaN is not in [0, 1).
    """
    refused = {str(p): raises(ValueError, lambda: impl.Dropout(p), names="p")
               for p in (-0.1, 1.0, 1.5, float("nan"))}
    return {"0": accepts(lambda: impl.Dropout(0)), **refused}


def test_mlp_parameters(impl, draw):
    """MLP has up (d_model to d_ff) and down (d_ff to d_model), with biases only if bias=True.

    Two Linear layers, handed the bias. Their state dict names are up.weight, up.bias and so on.
    """
    return {"bias=True": _shapes(impl.MLP(6, 10, "gelu")),
            "bias=False": _shapes(impl.MLP(6, 10, "gelu", bias=False))}


@points(2)
def test_mlp_forward(impl, draw):
    """MLP computes W_down act(W_up x + b_up) + b_down with the activation it was told.

    Up, bend, down. ACTIVATIONS holds the function for every name.
    """
    x = draw(2, 3, 6)
    return {name: draw.fill(impl.MLP(6, 10, name))(x)
            for name in ("relu", "gelu", "gelu_tanh", "silu")}


def test_mlp_dropout(impl, draw):
    """MLP's dropout falls on the hidden numbers, between the activation and down.

    With d_ff = 1 there is one hidden number: lose it and a token's whole output is 0. The answers
    are facts about 200 tokens.
    """
    lost = draw.fill(impl.MLP(6, 1, "silu", bias=False, dropout=0.5))(draw(200, 6)) == 0
    whole = lost.all(-1)
    return {"some tokens lose all": bool(whole.any()), "all tokens lose all": bool(whole.all()),
            "some tokens lose a part": bool((lost.any(-1) & ~whole).any())}


@tolerance(0.02)
def test_mlp_dropout_order(impl, draw):
    """The activation sees the hidden numbers as they are; dropout comes after it.

    The mean of the output over 200,000 equal tokens, known to 0.3 %: silu of doubled numbers is
    not the double of silu.
    """
    mlp = draw.fill(impl.MLP(2, 1, "silu", bias=False, dropout=0.5))
    with torch.no_grad():
        mlp.up.weight.fill_(0.5)
        return mlp(_ones(draw, 200_000, 2)).mean(0)


def test_mlp_unknown_activation(impl, draw):
    """An unknown activation raises a ValueError that names activation, as the layer is made.

    Ask whether the name is in ACTIVATIONS before you look it up.
    """
    return raises(ValueError, lambda: impl.MLP(6, 10, "swish"), names="activation")


def test_swiglu_parameters(impl, draw):
    """SwiGLU has gate and up (d_model to d_ff) and down (d_ff to d_model), and no bias.

    Three Linear layers, assigned to self under these names. A d_ff that is given is not rounded.
    """
    return {f"d_ff = {d_ff}": _shapes(impl.SwiGLU(6, d_ff)) for d_ff in (10, 71)}


@points(2)
def test_swiglu_default_width(impl, draw):
    """Without d_ff, SwiGLU's width is 8/3 · d_model, rounded up to a multiple of 64.

    A width that is a multiple of 64 already stays: d_model = 48 gives 128. Divide by 64, round
    up to a whole number, multiply by 64.
    """
    return {f"d_model = {n}": impl.SwiGLU(n).gate.weight.shape[0] for n in (48, 64, 49, 96)}


@points(3)
def test_swiglu_forward(impl, draw):
    """SwiGLU computes W_down (silu(W_gate x) ⊙ W_up x).

    gate and up both read x. SiLU bends the gate alone; then the two are multiplied, number by
    number, and down brings them back to d_model.
    """
    return draw.fill(impl.SwiGLU(6, 10))(draw(2, 3, 6))


@dtypes("bfloat16", "float16")
def test_swiglu_in_half_precision(impl, draw, dtype):
    """A SwiGLU cast to half precision computes and answers in it.

    silu and the layers keep the dtype of x; cast nothing in forward. (Here all numbers are
    positive, so that rounding errors stay small.)
    """
    layer = draw.fill(impl.SwiGLU(6, 10)).to(dtype)
    with torch.no_grad():
        for weight in layer.parameters():
            weight.abs_()
    return layer(draw.uniform(2, 3, 6).to(dtype))


def test_swiglu_gradients(impl, draw):
    """Gradients reach x and all three weights of SwiGLU.

    A .data, .detach() or torch.no_grad() on the way cuts them off.
    """
    layer, x = draw.fill(impl.SwiGLU(6, 10)), draw(4, 6).requires_grad_()
    (layer(x) * draw(4, 6)).sum().backward()
    return {"grad of x": x.grad,
            **{f"grad of {name}": p.grad for name, p in layer.named_parameters()}}


def test_batch_ranks(impl, draw):
    """x may have any number of axes before d_model: none, one or three.

    Nothing in here mixes tokens, so nothing has to know how many axes there are.
    """
    layers = {"MLP": draw.fill(impl.MLP(6, 10, "relu")), "SwiGLU": draw.fill(impl.SwiGLU(6, 10))}
    return {f"{name}, x of shape {shape}": layer(draw(*shape))
            for name, layer in layers.items() for shape in ((6,), (5, 6), (2, 1, 3, 6))}


def test_swapped_axes(impl, draw):
    """x may be a batch whose axes were swapped, so that it is not contiguous.

    Linear takes x as it is: nothing has to be flattened here.
    """
    x = draw(3, 2, 6).transpose(0, 1)
    return {"MLP": draw.fill(impl.MLP(6, 10, "relu"))(x),
            "SwiGLU": draw.fill(impl.SwiGLU(6, 10))(x)}


def test_bad_sizes(impl, draw):
    """A d_model or d_ff below 1 raises a ValueError that names it.

    `at_least_one` does it. Call it before Linear complains of its in_features.
    """
    return {"MLP(0, 4)": raises(ValueError, lambda: impl.MLP(0, 4, "gelu"), names="d_model"),
            "MLP(4, -1)": raises(ValueError, lambda: impl.MLP(4, -1, "gelu"), names="d_ff"),
            "SwiGLU(0)": raises(ValueError, lambda: impl.SwiGLU(0), names="d_model"),
            "SwiGLU(4, 0)": raises(ValueError, lambda: impl.SwiGLU(4, 0), names="d_ff")}
