"""What lesson 03 asks of Linear, its backward pass and its cost."""


from grader import accepts, dtypes, points, raises, shape, shapes, shares_memory, tolerance
from grader.course.modes import again

FORBIDDEN = dict.fromkeys(("Linear", "linear_backward"), {
    "torch.nn.Linear", "torch.nn.LazyLinear", "torch.nn.functional.linear", "torch.nn.Bilinear",
    "torch.nn.functional.bilinear", "torch.bilinear", "torch.nn.Conv1d", "torch.nn.functional.conv1d", "torch.conv1d"})


def sizes(draw, n: int) -> list[int]:
    """n different sizes from 2 to 9."""
    return [2 + int(i) for i in draw.uniform(8).argsort()[:n]]


def test_parameters(impl, draw):
    """Linear has one parameter, weight, of shape (out_features, in_features).

    A tensor trains only if it is wrapped in nn.Parameter and assigned to self. Row i of the
    weight holds what output i multiplies with the input, so the outputs come first.
    """
    layer = impl.Linear(*sizes(draw, 2))
    return {"parameters": shapes(layer.named_parameters()), "state dict": shapes(layer.state_dict()),
            "trains": {name: p.requires_grad for name, p in layer.named_parameters()}}


def test_bias_parameters(impl, draw):
    """With bias=True there is a second parameter, bias, of shape (out_features,), all zeros.

    Give it one number per output, on one axis, and wrap it in nn.Parameter, or it never trains.
    """
    bias = impl.Linear(*sizes(draw, 2), bias=True).bias
    return {"shape": shape(bias), "starts at zero": bool((bias == 0).all()),
            "trains": bias.requires_grad}


def test_memory_order(impl, draw):
    """Each output's weights lie side by side in memory: strides (in_features, 1).

    Allocate (out_features, in_features) from the start. A transpose of something else has the
    right shape and the wrong order in memory.
    """
    return str(tuple(impl.Linear(*sizes(draw, 2)).weight.stride()))


@tolerance(0.02)
def test_init_spread(impl, draw):
    """The weight starts with standard deviation √(2 / (in_features + out_features)).

    Measured over 120,000 numbers, whose standard deviation is known to 0.2 %; for 600 inputs
    and 200 outputs σ is 0.05. (The cut at ±3σ takes 1.3 % off, for you and the reference alike.)
    """
    return impl.Linear(600, 200).weight.std()


@tolerance(0.02)
def test_init_truncated(impl, draw):
    """No weight starts further than 3σ from zero, and some start close to 3σ, on either side.

    The answers are the largest and the smallest of 120,000 weights over their standard deviation,
    cut at ±4; they are known to 0.5 %. Ask trunc_normal_ what a and b mean: weights, or multiples
    of std?
    """
    weight = impl.Linear(600, 200).weight
    return {"largest": (weight.max() / weight.std()).clamp(-4, 4),
            "smallest": (weight.min() / weight.std()).clamp(-4, 4)}


def test_init_fresh(impl, draw):
    """Two layers start with different weights.

    Draw from torch's own generator, and leave its seed to whoever calls you.
    """
    return bool((impl.Linear(6, 4).weight == impl.Linear(6, 4).weight).all())


@points(2)
@dtypes("float32", "float64", "bfloat16", "float16")
def test_forward(impl, draw, dtype):
    """Linear computes y = x Wᵀ, in the dtype of x.

    weight is (out_features, in_features) and x ends in in_features, so one of them has to be
    transposed.
    """
    layer = draw.fill(impl.Linear(6, 4)).to(dtype)
    return layer(draw(2, 3, 6).to(dtype))


def test_forward_bias(impl, draw):
    """With bias=True, Linear computes y = x Wᵀ + b.

    The bias is added once to every row; broadcasting does it.
    """
    layer = draw.fill(impl.Linear(6, 4, bias=True))
    return layer(draw(2, 3, 6))


def test_forward_swapped_axes(impl, draw):
    """x may be a tensor whose batch axes were swapped, so not contiguous in memory.

    `@` takes it as it is, forward and backward. If you flatten the batch, do it with something
    that copies where it must.
    """
    layer = draw.fill(impl.Linear(6, 4, bias=True))
    x = draw(3, 2, 6).transpose(0, 1).requires_grad_()
    y = layer(x)
    (y * draw(2, 3, 4)).sum().backward()
    return {"y": y, "grad of x": x.grad, "grad of weight": layer.weight.grad}


def test_batch_ranks(impl, draw):
    """x may have any number of axes before in_features: none, one or three.

    Multiply with x on the left and let torch broadcast over the axes before the last.
    """
    layer = draw.fill(impl.Linear(6, 4))
    return {"x of shape (6,)": layer(draw(6)),
            "x of shape (5, 6)": layer(draw(5, 6)),
            "x of shape (2, 1, 3, 6)": layer(draw(2, 1, 3, 6))}


def test_empty_batch(impl, draw):
    """An empty batch gives an empty result: x of shape (0, in_features) one of shape (0, out_features).

    Of no numbers torch cannot tell how long an axis of -1 is to be. `@` needs no such axis.
    """
    features, outputs, batch = sizes(draw, 3)
    layer = draw.fill(impl.Linear(features, outputs, bias=True))
    return {"(0, in)": shape(layer(draw(0, features))), "(n, 0, in)": shape(layer(draw(batch, 0, features)))}


def test_again(impl, draw):
    """Linear computes with the weight that it has now: in eval as in training, and after it has changed.

    Keep no transpose from an earlier call. The bias and the gradient are for eval too.
    """
    return again(draw, draw.fill(impl.Linear(6, 4, bias=True)), draw(2, 3, 6))


def test_autograd(impl, draw):
    """Gradients reach the input, the weight and the bias.

    A .data, .detach() or torch.no_grad() on the way cuts them off.
    """
    layer = draw.fill(impl.Linear(6, 4, bias=True))
    x = draw(2, 3, 6).requires_grad_()
    (layer(x) * draw(2, 3, 4)).sum().backward()
    return {"grad of x": x.grad, "grad of weight": layer.weight.grad,
            "grad of bias": layer.bias.grad}


@points(2)
def test_backward_x(impl, draw):
    """linear_backward's grad_x is grad_out W.

    The gradient of every output comes back to every input through the weight that joins them. The layer here is square,
    so that a wrong transpose shows as wrong numbers.
    """
    return impl.linear_backward(draw(5, 4), draw(4, 4), draw(5, 4))[0]


@points(2)
def test_backward_weight(impl, draw):
    """linear_backward's grad_weight is Σ grad_outᵀ x, with the shape of the weight.

    Entry (o, i) adds up, over every row, the gradient of output o times input i. The layer here
    is square, so that a wrong transpose shows as wrong numbers.
    """
    return impl.linear_backward(draw(5, 4), draw(4, 4), draw(5, 4))[1]


def test_backward_bias(impl, draw):
    """linear_backward's grad_bias is grad_out added up over every axis but the last.

    The batch here has two axes: grad_out of shape (2, 3, 4) becomes (4,).
    """
    return impl.linear_backward(draw(2, 3, 4), draw(4, 4), draw(2, 3, 4))[2]


def test_backward_shapes(impl, draw):
    """Each gradient has the shape of what it is the gradient of, for other sizes too.

    grad_x is shaped like x, grad_weight like weight, and grad_bias has one number per output.
    """
    batch, features, outputs = sizes(draw, 3)
    grad_x, grad_weight, grad_bias = impl.linear_backward(
        draw(batch, features), draw(outputs, features), draw(batch, outputs))
    return {"grad_x": shape(grad_x), "grad_weight": shape(grad_weight), "grad_bias": shape(grad_bias)}


@dtypes("float32", "float64")
def test_backward_no_batch(impl, draw, dtype):
    """linear_backward takes a single x, without any batch axis, and gives new tensors, in the dtype of x.

    A sum over no axes is either the tensor itself or, as torch reads dim=(), the sum over all of them.
    """
    x, weight, grad_out = draw(6).to(dtype), draw(4, 6).to(dtype), draw(4).to(dtype)
    grads = impl.linear_backward(x, weight, grad_out)
    return {"gradients": grads,
            "in the memory of an argument": [any(shares_memory(grad, a) for a in (x, weight, grad_out))
                                             for grad in grads]}


def test_backward_swapped_axes(impl, draw):
    """linear_backward takes tensors whose batch axes were swapped, so not contiguous in memory.

    If you flatten the batch, do it with something that copies where it must.
    """
    x, grad_out = draw(3, 2, 4).transpose(0, 1), draw(3, 2, 4).transpose(0, 1)
    return impl.linear_backward(x, draw(4, 4), grad_out)


def test_flops(impl, draw):
    """linear_flops counts a multiply and an add for every (row, input, output).

    One row of 3 inputs and 2 outputs meets 6 weights. What happens at each of them? Count both
    operations, and no bias.
    """
    cases = [[1, *sizes(draw, 2)], [2**18 + 1 + int(size) for size in draw.ints(2**18, 3)]]
    return [impl.linear_flops(*case) for case in cases]


def test_wrong_width(impl, draw):
    """An x whose last axis is not in_features raises a ValueError that names x.

    Compare x.shape[-1] with the weight's second axis before multiplying.
    """
    layer, found = impl.Linear(6, 4), {}
    for training in (True, False):
        layer.train(training)
        for width in (5, 4, 1, 7 + int(draw.ints(20, 1))):
            found[f"{width} features{', in eval' * (not training)}"] = raises(
                ValueError, lambda: layer(draw(2, width)), names="x")
    return found


def test_bad_sizes(impl, draw):
    """A size below 1 raises a ValueError that names it; a size of 1 is a good size.

    Look at in_features and out_features before anything is made of them.
    """
    bad = -1 - int(draw.ints(20, 1))
    return {"Linear(0, 4)": raises(ValueError, lambda: impl.Linear(0, 4), names="in_features"),
            f"Linear(4, {bad})": raises(ValueError, lambda: impl.Linear(4, bad), names="out_features"),
            "Linear(1, 1)": accepts(lambda: impl.Linear(1, 1))}
