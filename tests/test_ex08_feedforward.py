"""What lesson 08 asks of the activations, Dropout, the MLP and SwiGLU."""

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


def _number(draw, low, high):
    """A whole number from low to high, both among them."""
    return low + int(draw.ints(high + 1 - low, 1))


def _word(draw, *words):
    return words[_number(draw, 0, len(words) - 1)]


def _far(draw, dtype):
    """Three whole numbers from 100 to 200, which every dtype holds."""
    return (100 + draw.ints(101, 3)).to(draw.float).to(dtype)


def _is_cast(answer, wide):
    """Whether at least 97 of 100 numbers are those of the wide answer, cast."""
    return bool((answer == wide.to(answer.dtype)).double().mean() > 0.97)


def _shapes(module):
    return shapes(module.named_parameters())


@dtypes("float32", "bfloat16", "float16", "float64")
def test_sigmoid(impl, draw, dtype):
    """sigmoid is 1 / (1 + e^−x), in the dtype of x.

    Compute in at least float32 (`widen` does it, and leaves float64 as it is) and cast the result
    back with .to(x.dtype).
    """
    return impl.sigmoid(draw(4, 7, scale=3.0).to(dtype))


@dtypes("float16", "bfloat16")
def test_sigmoid_rounded_once(impl, draw, dtype):
    """sigmoid in half precision is sigmoid of the same numbers in float32, cast: rounded once.

    Cast the quotient, not what goes into it. (Asked is whether at least 97 of 100 numbers are those.)
    """
    x = draw(40, 9, scale=3.0).to(dtype)
    wide = impl.sigmoid(x.to(torch.promote_types(dtype, torch.float32)))
    return {"sigmoid": impl.sigmoid(x[0]), "is the wide one, cast": _is_cast(impl.sigmoid(x), wide)}


@points(2)
@dtypes("float32", "bfloat16", "float16")
def test_sigmoid_far_out(impl, draw, dtype):
    """sigmoid is 0 at −100 and below and 1 at 100 and above: no NaN.

    e^100 is past float32's largest number. Of the two forms 1 / (1 + e^−x) and e^x / (1 + e^x),
    take the one whose exponential is small.
    """
    x = _far(draw, dtype)
    return {"at 100 to 200": impl.sigmoid(x), "at -100 to -200": impl.sigmoid(-x),
            "among others": impl.sigmoid(torch.cat([x, draw(3).to(dtype)]))}


@points(2)
@dtypes("float32", "bfloat16", "float16")
def test_sigmoid_gradient_far_out(impl, draw, dtype):
    """The gradient of sigmoid is 0 at ±100 and farther out: no NaN.

    torch.where sends a gradient of 0 into the branch that it did not take, and 0 · ∞ is NaN.
    So choose the argument of exp with where, before exp, not between two finished results.
    """
    far = _far(draw, dtype)
    x = torch.cat([far, -far, draw(3).to(dtype)])
    x.requires_grad_()
    impl.sigmoid(x).sum().backward()
    return {"grad of x at 100 to 200": x.grad[:3], "grad of x at -100 to -200": x.grad[3:6],
            "grad of x near 0": x.grad[6:]}


def test_sigmoid_gradient_at_zero(impl, draw):
    """The gradient of sigmoid at exactly 0 is 1/4.

    abs has the gradient 0 at 0, so e^−|x| written with abs lets nothing through there. Which
    branch of a torch.where does 0 belong to, and what is that branch's slope?
    """
    x = torch.cat([0 * draw(2), draw(3)]).requires_grad_()
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


@dtypes("float16", "bfloat16")
def test_silu_rounded_once(impl, draw, dtype):
    """silu in half precision is silu of the same numbers in float32, cast: rounded once.

    sigmoid(x) of a half-precision x is rounded already. Widen x, then take the sigmoid and the
    product, and cast that. (Asked is whether at least 97 of 100 numbers are those.)
    """
    x = draw(40, 9, scale=2.0).to(dtype)
    wide = impl.silu(x.to(torch.promote_types(dtype, torch.float32)))
    return {"silu": impl.silu(x[0]), "is the wide one, cast": _is_cast(impl.silu(x), wide)}


@dtypes("float32", "float16")
def test_silu_far_out(impl, draw, dtype):
    """silu is 0 at −100 and 100 at 100, and its gradient there is 0 and 1; and so on farther out.

    It follows if sigmoid is right there. (x may be huge: where e^|x| overflows, sigmoid is 0 or 1.)
    """
    far = _far(draw, dtype)
    x = torch.cat([far, -far]).requires_grad_()
    y = impl.silu(x)
    y.sum().backward()
    return {"at 100 to 200": y[:3], "at -100 to -200": y[3:],
            "grad of x at 100 to 200": x.grad[:3], "grad of x at -100 to -200": x.grad[3:]}


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

    So it goes on farther out. 100³ is past float16's largest number, 65,504: compute in at least
    float32, then cast back.
    """
    said, far = {}, _far(draw, dtype)
    for form in ("none", "tanh"):
        x = torch.cat([far, -far]).requires_grad_()
        y = impl.gelu(x, approximate=form)
        y.sum().backward()
        said |= {f"{form} at 100 to 200": y[:3], f"{form} at -100 to -200": y[3:],
                 f"{form}, grad of x at 100 to 200": x.grad[:3], f"{form}, grad of x at -100 to -200": x.grad[3:]}
    return said


@dtypes("float16", "bfloat16")
def test_gelu_rounded_once(impl, draw, dtype):
    """gelu in half precision is gelu of the same numbers in float32, cast: rounded once.

    Φ(x) is still wide when it meets x. (Asked is whether at least 97 of 100 numbers are those.)
    """
    x, answers = draw(40, 9, scale=2.0).to(dtype), {}
    for form in ("none", "tanh"):
        wide = impl.gelu(x.to(torch.promote_types(dtype, torch.float32)), approximate=form)
        answers[f"{form}: is the wide one, cast"] = _is_cast(impl.gelu(x, approximate=form), wide)
    return {**answers, "gelu": impl.gelu(x[0].abs())}


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
    x, word = draw(3), _word(draw, "erf", "exact", "fast", "sigmoid", "quick", "pytorch_tanh", "TANH", "")
    return {f"approximate={word!r}": raises(ValueError, lambda: impl.gelu(x, approximate=word), names="approximate")}


@points(2)
@tolerance(0.02)
def test_dropout_fraction(impl, draw):
    """While training, Dropout(p) sets the fraction p of all numbers to 0, whatever p is.

    The answers are fractions of a million numbers, each known to 0.3 % or better.
    """
    x = _ones(draw, 1000, 1000)
    answers = {f"zeros with p = {p}": (impl.Dropout(p)(x) == 0).to(draw.float).mean() for p in (0.1, 0.75)}
    with torch.no_grad():
        answers["zeros with p = 0.25, under no_grad"] = (impl.Dropout(0.25)(x) == 0).to(draw.float).mean()
    return answers


def test_dropout_survivors(impl, draw):
    """While training, every number that survives comes out as x / (1 − p).

    The answers are the smallest and the largest of y / x, over all that is not zero.
    """
    x, p = draw(40, 50), _word(draw, 0.1, 0.2, 0.3, 0.4, 0.6, 0.7)
    y = impl.Dropout(p)(x)
    kept = (y / x)[y != 0]
    return {f"p = {p}, smallest y / x": kept.min(), f"p = {p}, largest y / x": kept.max(),
            "some are zero": bool((y == 0).any())}


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
    survivor = 1 + draw.uniform(1)
    out = impl.Dropout(0.5)(survivor * _ones(draw, 3, 64, 64))
    kept = out != 0
    some = [kept.any(dim).all() & ~kept.all(dim).any() for dim in (1, 2)]
    return {"every column has both": bool(some[0]), "every row has both": bool(some[1]),
            "the batch shares one mask": bool((kept[0] == kept[1]).all()), "a survivor": out.max()}


def test_dropout_fresh_draws(impl, draw):
    """Every call draws anew, and torch's own seed decides what: the same seed, the same zeros.

    Draw from torch's generator in forward, and leave its seed to whoever calls you. Keep no mask:
    what a layer drew in one call is no use to the next, however alike they are.
    """
    layer, x = impl.Dropout(0.5), (1 + draw.uniform(1)) * _ones(draw, 20, 20)
    torch.manual_seed(draw.seed)
    first, second = layer(x), layer(x)
    torch.manual_seed(draw.seed)
    again = layer(x)
    torch.manual_seed(draw.seed + 1)
    other = layer(x)
    return {"a second call gives the same": bool((first == second).all()),
            "the same seed gives the same": bool((first == again).all()),
            "another seed gives the same": bool((first == other).all()),
            "another layer gives the same": bool((first == impl.Dropout(0.5)(x)).all()), "a survivor": first.max()}


def test_dropout_gradient(impl, draw):
    """A dropped number gets no gradient, and a survivor gets 1 / (1 − p) of it.

    The answers compare the gradient with what the forward pass did to each number.
    """
    x, p = draw(20, 30).requires_grad_(), _number(draw, 1, 7) / 10
    y = impl.Dropout(p)(x)
    y.sum().backward()
    done = y.detach() / x.detach()
    return {"agrees with the forward pass": bool(torch.allclose(x.grad, done)),
            f"largest, p = {p}": x.grad.max(), "smallest": x.grad.min()}


@dtypes("float32", "bfloat16", "float16")
def test_dropout_dtype(impl, draw, dtype):
    """Dropout gives back the dtype and shape of x.

    A float32 mask times a half-precision x is float32: make the mask like x, or cast the result.
    """
    y = impl.Dropout(0.5)(draw(_number(draw, 1, 4), _number(draw, 5, 9)).to(dtype))
    return {"dtype is kept": y.dtype == dtype, "shape": shape(y)}


def test_dropout_bad_p(impl, draw):
    """A p outside [0, 1) raises a ValueError that names p, as the layer is made; 0 is allowed.

    At p = 1 nothing would survive, and 1 / (1 − p) is a division by zero. NaN is not in [0, 1).
    """
    refused = {str(p): raises(ValueError, lambda: impl.Dropout(p), names="p")
               for p in (-_number(draw, 1, 9) / 10, 1.0, 1, 1 + _number(draw, 1, 9) / 10, float("nan"))}
    return {"0": accepts(lambda: impl.Dropout(0)), **refused}


def test_mlp_parameters(impl, draw):
    """MLP has up (d_model to d_ff) and down (d_ff to d_model), with biases only if bias=True.

    Two Linear layers, handed the bias. Their state dict names are up.weight, up.bias and so on.
    """
    d_model, d_ff = _number(draw, 2, 5), _number(draw, 6, 12)
    return {"bias=True": _shapes(impl.MLP(d_model, d_ff, "gelu")),
            "bias=False": _shapes(impl.MLP(d_model, d_ff, "gelu", bias=False))}


@points(2)
def test_mlp_forward(impl, draw):
    """MLP computes W_down act(W_up x + b_up) + b_down with the activation it was told.

    Up, bend, down. ACTIVATIONS holds the function for every name.
    """
    x = draw(2, 3, 6)
    return {name: draw.fill(impl.MLP(6, width, name))(x)
            for name, width in (("relu", 10), ("gelu", 24), ("gelu_tanh", 6), ("silu", 5))}


@points(2)
def test_eval_mode(impl, draw):
    """In eval mode and under no_grad the layers compute what they compute while training.

    Dropout alone asks for self.training. Biases are added, and gradients flow, in both modes; and the
    second call gives what the first gave, or a new weight's answer where the weight is new.
    """
    layers = {"MLP": impl.MLP(6, 10, "silu", dropout=0.5), "SwiGLU": impl.SwiGLU(6, 10)}
    answers = {}
    for name, layer in layers.items():
        draw.fill(layer).eval()
        x = draw(3, 6).requires_grad_()
        with torch.no_grad():
            answers[f"{name}, under no_grad"] = layer(x)
        layer(x).pow(2).sum().backward()
        answers[f"{name}, grad of x"] = x.grad
        answers |= {f"{name}, grad of {key}": one.grad for key, one in layer.named_parameters()}
        with torch.no_grad():
            for one in layer.parameters():
                one.mul_(1.5)
        answers[f"{name}, with other weights"] = layer(x)
    return answers


def test_mlp_dropout(impl, draw):
    """MLP's dropout falls on the hidden numbers, between the activation and down.

    With d_ff = 1 there is one hidden number: lose it and a token's whole output is 0. The answers
    are facts about 200 tokens.
    """
    layer, x = draw.fill(impl.MLP(6, 1, "silu", bias=False, dropout=0.5)), draw(200, 6)
    lost = layer(x) == 0
    whole = lost.all(-1)
    return {"some tokens lose all": bool(whole.any()), "all tokens lose all": bool(whole.all()),
            "some tokens lose a part": bool((lost.any(-1) & ~whole).any()),
            "in eval mode": layer.eval()(x[:2])}


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
    words = _word(draw, "swish", "tanh", "Silu", "geglu"), _word(draw, "GELU", "gelu_new", "", "relu6")
    return {f"activation={word!r}": raises(ValueError, lambda word=word: impl.MLP(6, 10, word), names="activation")
            for word in words}


def test_swiglu_parameters(impl, draw):
    """SwiGLU has gate and up (d_model to d_ff) and down (d_ff to d_model), and no bias.

    Three Linear layers, assigned to self under these names. A d_ff that is given is not rounded.
    """
    widths = _number(draw, 7, 15), _number(draw, 65, 127), 24
    return {f"d_ff = {d_ff}": _shapes(impl.SwiGLU(6, d_ff)) for d_ff in widths}


@points(2)
def test_swiglu_default_width(impl, draw):
    """Without d_ff, SwiGLU's width is 8/3 · d_model, rounded up to a multiple of 64.

    A width that is a multiple of 64 already stays: d_model = 48 gives 128. Divide by 64, round
    up to a whole number, multiply by 64.
    """
    some = (24 + 48 * _number(draw, 0, 1), 48 * _number(draw, 1, 2), _number(draw, 49, 95), _number(draw, 1, 23))
    return {f"d_model = {n}": impl.SwiGLU(n).gate.weight.shape[0] for n in some}


@points(3)
def test_swiglu_forward(impl, draw):
    """SwiGLU computes W_down (silu(W_gate x) ⊙ W_up x).

    gate and up both read x. SiLU bends the gate alone; then the two are multiplied, number by
    number, and down brings them back to d_model.
    """
    return {f"d_ff = {width}": draw.fill(impl.SwiGLU(6, width))(draw(2, 3, 6)) for width in (10, 6, 24)}


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
    """x may have any number of axes before d_model: none, one or three, and no tokens at all.

    Nothing in here mixes tokens, so nothing has to know how many axes there are.
    """
    layers = {"MLP": draw.fill(impl.MLP(6, 10, "relu")), "SwiGLU": draw.fill(impl.SwiGLU(6, 10))}
    return {f"{name}, x of shape {shape}": layer(draw(*shape))
            for name, layer in layers.items() for shape in ((6,), (5, 6), (2, 1, 3, 6), (0, 6))}


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
    n, low = _number(draw, 2, 9), -_number(draw, 1, 9)
    return {f"MLP(0, {n})": raises(ValueError, lambda: impl.MLP(0, n, "gelu"), names="d_model"),
            f"MLP(4, {low})": raises(ValueError, lambda: impl.MLP(4, low, "gelu"), names="d_ff"),
            "SwiGLU(0)": raises(ValueError, lambda: impl.SwiGLU(0), names="d_model"),
            f"SwiGLU({low}, {n})": raises(ValueError, lambda: impl.SwiGLU(low, n), names="d_model"),
            "SwiGLU(4, 0)": raises(ValueError, lambda: impl.SwiGLU(4, 0), names="d_ff")}
