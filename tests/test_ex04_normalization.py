"""What lesson 04 asks of LayerNorm, RMSNorm and the backward pass of RMSNorm."""

import torch

from grader import accepts, dtypes, points, raises, shape, tolerance
from grader.course.modes import again

FORBIDDEN = dict.fromkeys(("LayerNorm", "RMSNorm", "rms_norm_backward"), {
    "torch.nn.LayerNorm", "torch.nn.RMSNorm", "torch.nn.GroupNorm", "torch.nn.BatchNorm1d",
    "torch.nn.InstanceNorm1d",
    "torch.nn.functional.layer_norm", "torch.nn.functional.rms_norm",
    "torch.nn.functional.group_norm", "torch.nn.functional.batch_norm",
    "torch.nn.functional.instance_norm",
    "torch.layer_norm", "torch.native_layer_norm", "torch.rms_norm", "torch.group_norm",
    "torch.native_group_norm", "torch.batch_norm", "torch.instance_norm"})


def parameters(module):
    """Each parameter's shape, and the number that it starts at."""
    def start(values):
        return values[0] if len(values) == 1 else "numbers that differ"
    return {name: {"shape": shape(p), "starts at": start(p.unique().tolist())}
            for name, p in module.named_parameters()}


def equal_rows(draw):
    """A token of zeros, one of equal features, and its negative."""
    rows = draw(3, 8) * 0
    rows[1], rows[2] = 1 + draw.ints(9) / 8, -1 - draw.ints(9) / 8      # exact in any order of summation
    return rows


def rounded(draw, kind, dtype):
    """Whether a norm in half precision is, bit for bit, the float32 quotient rounded once, and then scaled."""
    x, plain = draw(8, 16).to(dtype), kind(16).to(draw.device)
    quotient = plain(x.float()).to(dtype)       # its own, so that only the order of rounding counts
    found = {"quotient": bool((kind(16).to(draw.device, dtype)(x) == quotient).all())}
    filled = draw.fill(kind(16)).to(dtype)
    with torch.no_grad():
        for name, parameter in filled.named_parameters():
            parameter *= name == "weight"       # a shift of 0 rounds nothing
    return {**found, "quotient, then scaled": bool((filled(x) == quotient * filled.weight).all()),
            "features near 200": plain.to(dtype)((draw.ints(9, 8, 16) + 196).to(dtype))}


def test_layer_parameters(impl, draw):
    """LayerNorm has two parameters, weight (all ones) and bias (all zeros), of shape (d_model,).

    A tensor trains only if it is wrapped in nn.Parameter and assigned to self in __init__.
    """
    return parameters(impl.LayerNorm(2 + int(draw.ints(20, 1))))


@points(2)
@dtypes("float32", "bfloat16", "float16", "float64")
def test_layer_forward(impl, draw, dtype):
    """LayerNorm computes (x − μ) / √(σ² + eps) for each token, in the dtype of x.

    Mean and variance run over the last axis, the features, and nothing else. The variance
    divides by d_model. Compute in float32 at least, keep float64, cast back to the dtype of x.
    """
    return impl.LayerNorm(6).to(draw.device, dtype)(draw(2, 3, 6).to(dtype))


def test_layer_weight_and_bias(impl, draw):
    """LayerNorm ends with · weight + bias, one number of each for each feature.

    Broadcasting stretches both over the batch.
    """
    return draw.fill(impl.LayerNorm(6))(draw(2, 3, 6))


def test_layer_eps(impl, draw):
    """In LayerNorm eps is added to the variance, under the root.

    The features here are quiet, about 0.1, and eps is large, 0.5: where it stands decides the
    result. Use the eps that was given, not a number of your own.
    """
    return draw.fill(impl.LayerNorm(6, eps=0.5))(draw(2, 3, 6, scale=0.1))


@tolerance(0.02)
def test_layer_far_from_zero(impl, draw):
    """LayerNorm of features near 10,000, which differ by about 1, is right.

    Subtract the mean first, then square. Here float32 leaves the mean uncertain by about 0.001,
    so 2 % is allowed; the squares, 100,000,000, are uncertain by 8, and so is any difference of
    their means.
    """
    return impl.LayerNorm(64).to(draw.device)(draw(2, 3, 64) + 10000)


@dtypes("float16", "bfloat16", "float32")
def test_layer_large_values(impl, draw, dtype):
    """LayerNorm of features near 1,000 is right in every precision.

    1,000 squared is past float16's largest number, 65,504. Go to float32 before anything is
    squared or added up.
    """
    return impl.LayerNorm(64).to(draw.device, dtype)(draw(2, 8, 64, scale=1000.0).to(dtype))


def test_layer_batch_ranks(impl, draw):
    """LayerNorm takes any number of axes before the features: none, one or three.

    Count axes from the back (-1), keep the axis that a mean runs over, and let torch broadcast.
    """
    norm = draw.fill(impl.LayerNorm(6))
    return {"x of shape (6,)": norm(draw(6)), "x of shape (5, 6)": norm(draw(5, 6)),
            "x of shape (2, 1, 3, 6)": norm(draw(2, 1, 3, 6))}


def test_layer_constant(impl, draw):
    """LayerNorm of equal features, zeros or not, is the bias.

    Their variance is 0: without eps that is 0 / 0, which is NaN.
    """
    return draw.fill(impl.LayerNorm(8))(equal_rows(draw))


def test_layer_swapped_axes(impl, draw):
    """LayerNorm takes a batch whose axes were swapped, so that it is not contiguous.

    Nothing here has to be reshaped: a mean over axis -1 works wherever the numbers lie.
    """
    return draw.fill(impl.LayerNorm(6))(draw(3, 2, 6).transpose(0, 1))


@dtypes("bfloat16", "float16")
def test_layer_rounded_once(impl, draw, dtype):
    """In half precision LayerNorm is the float32 quotient, rounded once, and then scaled and shifted.

    Cast x first, and compute all of the quotient from what was cast, the mean too. Then
    back to the dtype of x, and only then · weight + bias: bit for bit.
    """
    return rounded(draw, impl.LayerNorm, dtype)


def test_layer_again(impl, draw):
    """LayerNorm computes with the weight and bias that it has now: in eval as in training, and after changes.

    Nothing is kept from an earlier call, and the statistics are those of x, in eval too. A gradient flows in
    both.
    """
    return again(draw, draw.fill(impl.LayerNorm(6)), draw(2, 3, 6))


def test_layer_wider_weight(impl, draw):
    """In LayerNorm the quotient is cast to the dtype of x, and then scaled and shifted.

    Half-precision tokens meet a float32 weight here, as in mixed precision. What is cast before it
    meets the weight comes out in float32; what is cast last does not.
    """
    y = draw.fill(impl.LayerNorm(6)).to(torch.float32)(draw(2, 3, 6).to(torch.bfloat16))
    return {"dtype": str(y.dtype), "numbers": y.to(torch.bfloat16)}


def test_layer_autograd(impl, draw):
    """Gradients reach LayerNorm's input, weight and bias, through the mean and the variance too.

    A .data, .detach() or torch.no_grad() on the way changes or cuts them.
    """
    norm = draw.fill(impl.LayerNorm(6))
    x = draw(2, 3, 6).requires_grad_()
    (norm(x) * draw(2, 3, 6)).sum().backward()
    return {"grad of x": x.grad, "grad of weight": norm.weight.grad,
            "grad of bias": norm.bias.grad}


def test_rms_parameters(impl, draw):
    """RMSNorm has one parameter, weight (all ones), of shape (d_model,), and no bias.

    A tensor trains only if it is wrapped in nn.Parameter and assigned to self in __init__.
    """
    return parameters(impl.RMSNorm(2 + int(draw.ints(20, 1))))


@points(2)
@dtypes("float32", "bfloat16", "float16", "float64")
def test_rms_forward(impl, draw, dtype):
    """RMSNorm computes x / √(mean(x²) + eps) for each token, in the dtype of x.

    Square, average over the last axis, add eps, take the root, divide. Compute in float32 at
    least, keep float64, cast back to the dtype of x.
    """
    return impl.RMSNorm(6).to(draw.device, dtype)(draw(2, 3, 6).to(dtype))


def test_rms_weight(impl, draw):
    """RMSNorm ends with · weight, one number for each feature.

    Broadcasting stretches it over the batch.
    """
    return draw.fill(impl.RMSNorm(6))(draw(2, 3, 6))


def test_rms_eps(impl, draw):
    """In RMSNorm eps is added to the mean of squares, under the root.

    The features here are quiet, about 0.1, and eps is large, 0.5: where it stands decides the
    result. Use the eps that was given, not a number of your own.
    """
    return draw.fill(impl.RMSNorm(6, eps=0.5))(draw(2, 3, 6, scale=0.1))


@dtypes("float16", "bfloat16", "float32")
def test_rms_large_values(impl, draw, dtype):
    """RMSNorm of features near 1,000 is right in every precision.

    1,000 squared is past float16's largest number, 65,504. Go to float32 before you square.
    """
    return impl.RMSNorm(64).to(draw.device, dtype)(draw(2, 8, 64, scale=1000.0).to(dtype))


def test_rms_batch_ranks(impl, draw):
    """RMSNorm takes any number of axes before the features: none, one or three.

    Count axes from the back (-1), keep the axis that a mean runs over, and let torch broadcast.
    """
    norm = draw.fill(impl.RMSNorm(6))
    return {"x of shape (6,)": norm(draw(6)), "x of shape (5, 6)": norm(draw(5, 6)),
            "x of shape (2, 1, 3, 6)": norm(draw(2, 1, 3, 6))}


def test_rms_constant(impl, draw):
    """RMSNorm of zeros is 0, and of other equal features the weight, with their sign.

    Without eps a token of zeros is 0 / 0, which is NaN.
    """
    return draw.fill(impl.RMSNorm(8))(equal_rows(draw))


def test_rms_swapped_axes(impl, draw):
    """RMSNorm takes a batch whose axes were swapped, so that it is not contiguous.

    Nothing here has to be reshaped: a mean over axis -1 works wherever the numbers lie.
    """
    return draw.fill(impl.RMSNorm(6))(draw(3, 2, 6).transpose(0, 1))


@dtypes("bfloat16", "float16")
def test_rms_rounded_once(impl, draw, dtype):
    """In half precision RMSNorm is the float32 quotient, rounded once, and then scaled.

    Cast x first, and compute all of the quotient from what was cast. Then
    back to the dtype of x, and only then · weight: bit for bit.
    """
    return rounded(draw, impl.RMSNorm, dtype)


def test_rms_again(impl, draw):
    """RMSNorm computes with the weight that it has now: in eval as in training, and after changes.

    Nothing is kept from an earlier call, and the statistics are those of x, in eval too. A gradient flows in
    both.
    """
    return again(draw, draw.fill(impl.RMSNorm(6)), draw(2, 3, 6))


def test_rms_wider_weight(impl, draw):
    """In RMSNorm the quotient is cast to the dtype of x, and then scaled.

    Half-precision tokens meet a float32 weight here, as in mixed precision. What is cast before it
    meets the weight comes out in float32; what is cast last does not.
    """
    y = draw.fill(impl.RMSNorm(6)).to(torch.float32)(draw(2, 3, 6).to(torch.bfloat16))
    return {"dtype": str(y.dtype), "numbers": y.to(torch.bfloat16)}


def test_rms_autograd(impl, draw):
    """Gradients reach RMSNorm's input and weight, through the mean of squares too.

    A .data, .detach() or torch.no_grad() on the way changes or cuts them.
    """
    norm = draw.fill(impl.RMSNorm(6))
    x = draw(2, 3, 6).requires_grad_()
    (norm(x) * draw(2, 3, 6)).sum().backward()
    return {"grad of x": x.grad, "grad of weight": norm.weight.grad}


@points(2)
def test_backward_x(impl, draw):
    """rms_norm_backward's grad_x is r (g − n mean(g n)), with g = grad_out · weight.

    Each feature acts twice: through its own quotient, and through the r that all features of
    its token share. The second path is the mean, over the last axis.
    """
    return impl.rms_norm_backward(draw(5, 6), draw(6), 1e-5, draw(5, 6))[0]


@points(2)
def test_backward_weight(impl, draw):
    """rms_norm_backward's grad_weight is grad_out · n, added up over every axis but the last.

    n is what the weight met on the way forward: x already divided by its root mean square. The
    batch here has two axes.
    """
    return impl.rms_norm_backward(draw(2, 3, 6), draw(6), 1e-5, draw(2, 3, 6))[1]


def test_backward_eps(impl, draw):
    """rms_norm_backward uses the eps that the forward pass used.

    It stands under the root, beside the mean of squares. Here x is about 0.1 and eps is 0.5.
    """
    return impl.rms_norm_backward(draw(5, 6, scale=0.1), draw(6), 0.5, draw(5, 6))


@dtypes("float16", "bfloat16", "float64")
def test_backward_precision(impl, draw, dtype):
    """rms_norm_backward of features near 1,000 is right in every precision, in the dtypes given.

    Go to float32 at least before you square, keep float64, and cast each gradient to the dtype of
    what it belongs to.
    """
    return impl.rms_norm_backward(draw(5, 64, scale=1000.0).to(dtype), draw(64).to(dtype), 1e-5,
                                  draw(5, 64, scale=1000.0).to(dtype))


def test_backward_swapped_axes(impl, draw):
    """rms_norm_backward takes tensors whose batch axes were swapped, so not contiguous.

    A view wants numbers that lie side by side. Sum over the axes as they are, by name with einops.
    """
    x, grad_out = draw(3, 2, 6).transpose(0, 1), draw(3, 2, 6).transpose(0, 1)
    return impl.rms_norm_backward(x, draw(6), 1e-5, grad_out)


@dtypes("bfloat16", "float16")
def test_backward_rounded_once(impl, draw, dtype):
    """In half precision rms_norm_backward's gradients are those of float32, rounded once, bit for bit.

    Widen all three tensors before anything is multiplied, grad_out and the weight too, and cast at the end.
    """
    half = [draw(8, 16).to(dtype), draw(16).to(dtype), draw(8, 16).to(dtype)]
    grads = [impl.rms_norm_backward(x, weight, 1e-5, grad_out)
             for x, weight, grad_out in (half, [tensor.float() for tensor in half])]
    return {name: bool((mine == wide.to(dtype)).all()) for name, mine, wide in zip(("grad_x", "grad_weight"), *grads)}


def test_backward_two_dtypes(impl, draw):
    """Each gradient has the dtype of what it belongs to: grad_x that of x, grad_weight the weight's.

    In mixed precision x is in half precision and the weight in float32, and its gradient with it.
    """
    half, wide = draw(2, 3, 6).to(torch.bfloat16), draw(2, 3, 6).to(torch.float32)
    return {"x in bfloat16": impl.rms_norm_backward(half, draw(6).to(torch.float32), 1e-5, wide),
            "weight in bfloat16": impl.rms_norm_backward(
                wide, draw(6).to(torch.bfloat16), 1e-5, half)}


def test_wrong_width(impl, draw):
    """An x whose last axis is not d_model raises a ValueError that names x.

    Compare x.shape[-1] with the size of the weight before anything is computed. A single feature
    would otherwise be stretched to fit.
    """
    found = {}
    for name, norm in (("LayerNorm", impl.LayerNorm(6)), ("RMSNorm", impl.RMSNorm(6))):
        for width in (1, 7 + int(draw.ints(9, 1))):
            found[f"{name}, {width} features"] = raises(ValueError, lambda: norm(draw(2, width)), names="x")
        found[f"{name}, in eval"] = raises(ValueError, lambda: norm.eval()(draw(2, 1)), names="x")
    return found


def test_bad_arguments(impl, draw):
    """A d_model below 1 and an eps below 0 raise a ValueError that names the argument.

    Look at both before anything is made of them. An eps of 0 is allowed.
    """
    eps = -1e-5 * (1 + int(draw.ints(50, 1)))
    return {name: {"d_model = 0": raises(ValueError, lambda: kind(0), names="d_model"),
                   f"eps = {eps:.0e}": raises(ValueError, lambda: kind(6, eps), names="eps"),
                   "eps = -1e-12": raises(ValueError, lambda: kind(6, -1e-12), names="eps"),
                   "eps = 0": accepts(lambda: kind(6, 0))}
            for name, kind in (("LayerNorm", impl.LayerNorm), ("RMSNorm", impl.RMSNorm))}
