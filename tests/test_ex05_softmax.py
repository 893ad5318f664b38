"""What lesson 05 asks of softmax, its logarithm, the loss and the backward pass."""

import math

import torch

from grader import dtypes, points, raises

FORBIDDEN = dict.fromkeys(
    ("softmax", "logsumexp", "log_softmax", "cross_entropy", "perplexity", "softmax_backward"), {
        "torch.softmax", "torch.Tensor.softmax", "torch.nn.functional.softmax",
        "torch.special.softmax", "torch.nn.Softmax", "torch.nn.Softmax2d",
        "torch.nn.functional.softmin", "torch.nn.Softmin", "torch.nn.functional.gumbel_softmax",
        "torch.log_softmax", "torch.Tensor.log_softmax", "torch.nn.functional.log_softmax",
        "torch.special.log_softmax", "torch.nn.LogSoftmax",
        "torch.logsumexp", "torch.Tensor.logsumexp", "torch.special.logsumexp",
        "torch.nn.functional.cross_entropy", "torch.nn.CrossEntropyLoss",
        "torch.nn.functional.nll_loss", "torch.nn.NLLLoss"})


def masked(draw):
    """Three rows of five scores: none masked, two masked, all masked."""
    scores = draw(3, 5).clone()
    scores[1, 3:] = -math.inf
    scores[2] = -math.inf
    return scores


def shares(draw, *shape):
    """Probabilities along the last axis, in sixteenths, which every dtype holds exactly."""
    tickets = draw.ints(shape[-1], *shape[:-1], 16)
    return torch.nn.functional.one_hot(tickets, shape[-1]).sum(-2).to(draw.float) / 16


def number(draw, low, high):
    """A whole number from low to high, both among them."""
    return low + int(draw.ints(high + 1 - low, 1))


def is_cast(answer, wide):
    """Whether at least 97 of 100 numbers are those of the wide answer, cast."""
    return bool((answer == wide.to(answer.dtype)).double().mean() > 0.97)


# -- softmax

@points(2)
@dtypes("float32", "bfloat16", "float16", "float64")
def test_softmax(impl, draw, dtype):
    """softmax turns each row of scores into e^x over the row's sum of e^x, in the dtype of x.

    Three steps along the last axis: exponentiate, add up, divide. float64 stays float64 all along:
    the given widen(x) is float32 at least.
    """
    return impl.softmax(draw(3, 5).to(dtype))


@points(2)
@dtypes("float32", "float16")
def test_softmax_large_scores(impl, draw, dtype):
    """softmax of scores in the hundreds stays finite.

    e^89 is past float32's largest number. What may be taken from every score of a row without
    changing one probability?
    """
    return impl.softmax(draw(4, 6, scale=300.0).to(dtype))


@points(2)
def test_softmax_rows_apart(impl, draw):
    """Each row is computed from its own largest score, not from the largest of the tensor.

    Row 0 has scores near 0, row 1 up to 500. Take 500 from row 0 and every e^x there is 0.
    """
    small, large = draw(6), draw(6).new_tensor([0, 100, 500, 300, 200, 400])
    return impl.softmax(torch.stack([small, large]))


@points(2)
def test_softmax_dim(impl, draw):
    """softmax works along the axis that dim names, counted from either end.

    The maximum and the sum both run along dim. Keep that axis, with size 1, so that they
    broadcast back.
    """
    x = draw(2, 3, 4)
    return {"dim=0": impl.softmax(x, dim=0), "dim=1": impl.softmax(x, dim=1),
            "dim=-2": impl.softmax(x, dim=-2), "dim=0 of a square": impl.softmax(draw(4, 4), dim=0),
            "no rows at all": impl.softmax(draw(0, 4))}


def test_temperature(impl, draw):
    """softmax divides the scores by the temperature: below 1 sharpens, above 1 flattens.

    The limit towards 0 is all on the largest score; towards infinity, equal shares. A small
    temperature is used as it is: nothing is added to it.
    """
    x, cold, warm = draw(3, 5), number(draw, 1, 7) / 10, 1 + number(draw, 1, 19) / 8
    answers = {f"temperature={t}": impl.softmax(x, temperature=t) for t in (cold, warm, 3)}
    for t in (1e-6, 1e-36, 10.0 ** number(draw, 4, 8)):
        answers[f"temperature={t:g}, scores of its size"] = impl.softmax(draw(3, 5, scale=t), temperature=t)
    return answers


def test_temperature_refused(impl, draw):
    """A temperature that is not above 0 raises a ValueError that names temperature.

    Look at it before anything is computed. 0 is refused too: nothing can be divided by it. NaN is
    not above 0 either, and not below: every comparison with it is False.
    """
    low = -number(draw, 1, 40) / 10
    return {"temperature=0": raises(ValueError, lambda: impl.softmax(draw(3), temperature=0),
                                    names="temperature"),
            f"temperature={low}": raises(ValueError, lambda: impl.softmax(draw(3), temperature=low),
                                         names="temperature"),
            "temperature=nan": raises(
                ValueError, lambda: impl.softmax(draw(3), temperature=math.nan),
                names="temperature")}


def test_temperature_half_precision(impl, draw):
    """Scores are divided by the temperature in float32, not in half precision.

    1,000 over 0.001 is a million, past float16's largest number. Cast first, then divide.
    """
    return impl.softmax(draw(4, 6, scale=1000.0).to(torch.float16), temperature=0.001)


def test_softmax_wide_row(impl, draw):
    """softmax adds up 70,000 weights in float32: float16 ends at 65,504.

    Real vocabularies are this large. Cast to float32 first, and back at the very end.
    """
    y = impl.softmax(draw(70_000, scale=0.01).to(torch.float16))
    return {"adds up to about 1": bool(y.float().sum() > 0.5), "the first eight, times 70,000": y[:8].float() * 70_000}


@dtypes("float16", "bfloat16")
def test_softmax_rounded_once(impl, draw, dtype):
    """softmax in half precision is softmax of the same scores in float32, cast: rounded once.

    Widen before anything else, before the maximum is subtracted and before the division by the
    temperature too, and cast at the very end. (Asked is whether at least 97 of 100 numbers are those.)
    """
    x, t = draw(40, 9, scale=4.0).to(dtype), number(draw, 3, 9) / 10
    wide = x.to(torch.promote_types(dtype, torch.float32))
    return {"softmax": impl.softmax(x[:2], temperature=t),
            "is the wide one, cast": is_cast(impl.softmax(x), impl.softmax(wide)),
            f"with temperature={t} too": is_cast(impl.softmax(x, temperature=t), impl.softmax(wide, temperature=t))}


@points(2)
def test_softmax_masked(impl, draw):
    """A score of −inf gets probability 0, and a row of nothing but −inf gives zeros, not NaN.

    Attention masks with −inf. Two steps go wrong in an empty row: −inf minus −inf, and 0 over 0.
    """
    return impl.softmax(masked(draw))


@points(2)
def test_softmax_masked_gradient(impl, draw):
    """The gradient of a row of nothing but −inf is zero, not NaN.

    Replacing NaN at the end repairs the output and not the gradient: the NaN is still inside.
    Prevent it where it would arise. The other rows must learn as usual.
    """
    x = masked(draw).requires_grad_()
    (impl.softmax(x) * draw(3, 5)).sum().backward()
    return {"grad of the row without a mask": x.grad[0], "grad of the half-masked row": x.grad[1],
            "grad of the masked row": x.grad[2]}


# -- logsumexp and log_softmax

@dtypes("float32", "bfloat16", "float16", "float64")
def test_logsumexp(impl, draw, dtype):
    """logsumexp is log Σ e^x along the last axis, which disappears: one number per row.

    (3, 5) becomes (3,), in the dtype of x. float64 stays float64 all along.
    """
    return impl.logsumexp(draw(3, 5).to(dtype))


def test_logsumexp_large_scores(impl, draw):
    """logsumexp of scores in the hundreds, of either sign, stays finite and right.

    Take the maximum out of every score, and add it back after the logarithm.
    """
    x = draw(4, 6, scale=300.0)
    return {"mixed": impl.logsumexp(x), "all below zero": impl.logsumexp(-x.abs() - 200)}


def test_logsumexp_dim(impl, draw):
    """logsumexp works along the axis that dim names, and removes that axis.

    (2, 3, 4) becomes (3, 4) for dim=0 and (2, 4) for dim=-2.
    """
    x = draw(2, 3, 4)
    return {"dim=0": impl.logsumexp(x, dim=0), "dim=-2": impl.logsumexp(x, dim=-2),
            "one row of four": impl.logsumexp(draw(1, 4)), "no rows at all": impl.logsumexp(draw(0, 4))}


@dtypes("float16", "bfloat16")
def test_logsumexp_rounded_once(impl, draw, dtype):
    """logsumexp in half precision is logsumexp of the same scores in float32, cast: rounded once.

    The maximum and the logarithm are added while both are wide. (Asked is whether at least 97 of 100
    numbers are those.)
    """
    x = draw(200, 5, scale=4.0).to(dtype)
    wide = impl.logsumexp(x.to(torch.promote_types(dtype, torch.float32)))
    return {"logsumexp": impl.logsumexp(x[:4].abs()), "is the wide one, cast": is_cast(impl.logsumexp(x), wide)}


def test_logsumexp_wide_row(impl, draw):
    """logsumexp adds up 70,000 numbers in float32: float16 ends at 65,504.

    The answer, about 11 and what all scores have in common, fits easily; the sum does not.
    """
    return impl.logsumexp(number(draw, 0, 40) + draw(70_000, scale=0.01).to(torch.float16))


def test_logsumexp_masked(impl, draw):
    """logsumexp of nothing but −inf is −inf, with a gradient of zero.

    The logarithm of 0 is −inf, which is right, but its derivative there is infinite, and infinity
    times 0 is NaN. Let the empty row's logarithm see something else than 0. And the maximum is only
    a shift: detached, it sends nothing back.
    """
    x = masked(draw).requires_grad_()
    y = impl.logsumexp(x)
    (y * draw(3)).sum().backward()     # y.backward(…) would import sympy
    return {"value": y, "grad of x": x.grad}


@dtypes("float32", "bfloat16", "float16", "float64")
def test_log_softmax(impl, draw, dtype):
    """log_softmax is x − log Σ e^x: the logarithm of softmax, in the dtype of x.

    A logarithm of a quotient is a difference of logarithms. float64 stays float64 all along.
    """
    return impl.log_softmax(draw(3, 5).to(dtype))


@points(2)
def test_log_softmax_far(impl, draw):
    """log_softmax is finite for every finite score, however far below the largest.

    e^−200 is 0 in float32, and its logarithm is lost. Never go through the probability.
    """
    return impl.log_softmax(draw(4, 6, scale=300.0))


def test_log_softmax_large_and_close(impl, draw):
    """log_softmax of scores near 10,000,000 that differ by a few keeps their differences.

    float32 holds such numbers to the nearest whole one, so log Σ e^x, which is not whole, is rounded
    there, and x minus it has the error of that. Shift first, and both are small.
    """
    x = draw.ints(5, 4, 6).to(draw.float)
    return {"near 10,000,000": impl.log_softmax(1e7 + x), "near -10,000,000": impl.log_softmax(x - 1e7)}


@dtypes("float16", "bfloat16")
def test_log_softmax_rounded_once(impl, draw, dtype):
    """log_softmax in half precision is log_softmax of the same scores in float32, cast: rounded once.

    Widen before the maximum is subtracted, and cast at the very end. (Asked is whether at least 97 of
    100 numbers are those.)
    """
    x = draw(40, 9, scale=4.0).to(dtype)
    wide = impl.log_softmax(x.to(torch.promote_types(dtype, torch.float32)))
    return {"log_softmax": impl.log_softmax(x[:2]), "is the wide one, cast": is_cast(impl.log_softmax(x), wide)}


def test_log_softmax_dim(impl, draw):
    """log_softmax works along the axis that dim names, and keeps its shape.

    The sum runs along dim and has to broadcast back.
    """
    x = draw(2, 3, 4)
    return {"dim=0": impl.log_softmax(x, dim=0), "dim=-2": impl.log_softmax(x, dim=-2)}


def test_log_softmax_wide_row(impl, draw):
    """log_softmax adds up 70,000 numbers in float32: float16 ends at 65,504.

    Cast to float32 first, and back at the very end. The answer here is its first eight numbers.
    """
    return impl.log_softmax(draw(70_000, scale=0.01).to(torch.float16))[:8]


def test_log_softmax_masked(impl, draw):
    """log_softmax of −inf is −inf, in a row of nothing else too, and no gradient is NaN.

    −inf minus −inf is NaN. What may be taken from an empty row instead?
    """
    x = masked(draw).requires_grad_()
    y = impl.log_softmax(x)
    (y * draw(3, 5)).sum().backward()
    return {"value": y, "grad of x": x.grad}


# -- cross_entropy and perplexity

@points(2)
@dtypes("float32", "bfloat16", "float16")
def test_cross_entropy(impl, draw, dtype):
    """cross_entropy is the mean of −log p(target), in the dtype of the logits.

    From each row of log-probabilities take the one at the target. One number comes out.
    """
    return impl.cross_entropy(draw(6, 6).to(dtype), draw.ints(6, 6))


def test_cross_entropy_batch(impl, draw):
    """Classes are on the last axis of the logits, behind any number of batch axes.

    Logits (2, 3, 7) go with targets (2, 3). (torch's own function wants (2, 7, 3).)
    """
    return {"logits of shape (2, 3, 7)": impl.cross_entropy(draw(2, 3, 7), draw.ints(7, 2, 3)),
            "logits of shape (7,)": impl.cross_entropy(draw(7), draw.ints(7)),
            "logits of shape (2, 1, 3, 7)": impl.cross_entropy(draw(2, 1, 3, 7), draw.ints(7, 2, 1, 3))}


def test_cross_entropy_swapped_axes(impl, draw):
    """Logits and targets whose batch axes were swapped, so not contiguous, have the same loss.

    A view wants numbers that lie side by side. reshape copies where it must, and indexing with a
    boolean mask does not care.
    """
    return impl.cross_entropy(draw(3, 2, 7).transpose(0, 1), draw.ints(7, 3, 2).T)


def test_cross_entropy_integers(impl, draw):
    """Targets may have any integer dtype: int8, int16 or int32 in place of int64.

    torch indexes with int64. Cast the kept targets once.
    """
    logits, targets = draw(5, 4), draw.ints(4, 5)
    answers = {str(dtype): impl.cross_entropy(logits, targets.to(dtype))
               for dtype in (torch.int8, torch.int16, torch.int32)}
    return {**answers, "int8, 300 classes": impl.cross_entropy(draw(3, 300), draw.ints(128, 3).to(torch.int8))}


@dtypes("float16", "bfloat16")
def test_cross_entropy_rounded_once(impl, draw, dtype):
    """The loss in half precision is the loss of the same logits in float32, cast: rounded once.

    Widen the logits before anything else; the losses are still wide when their mean is taken. (Asked
    is whether all of 24 losses are those.)
    """
    logits, targets = draw(24, 5, 7, scale=3.0).to(dtype), draw.ints(7, 24, 5)
    wide = logits.to(torch.promote_types(dtype, torch.float32))
    one, other = ([impl.cross_entropy(x, ids) for x, ids in zip(rows, targets)] for rows in (logits, wide))
    return {"loss": one[0], "is the wide one, cast": is_cast(torch.stack(one), torch.stack(other))}


@points(2)
def test_cross_entropy_confident(impl, draw):
    """A confident mistake costs what it should: hundreds of nats, neither inf nor a ceiling.

    Logits 300 apart. A small number added inside the logarithm hides the worst mistakes. And logits
    near 10,000,000 that differ by a few: log Σ e^x is rounded there, log_softmax from shifted ones is not.
    """
    large = 1e7 + draw.ints(5, 8, 6).to(draw.float)
    return {"300 apart": impl.cross_entropy(draw(8, 6, scale=300.0), draw.ints(6, 8)),
            "large and close": impl.cross_entropy(large, draw.ints(6, 8))}


@points(2)
def test_cross_entropy_ignored(impl, draw):
    """Targets of −100 are left out of the sum and of the count.

    Three of eight are ignored here, so the mean is over five. The targets are the caller's, who needs
    them again: nothing is written into them.
    """
    targets = draw.ints(7, 8).clone()
    targets[[1, 4, 5]] = -100
    return {"loss": impl.cross_entropy(draw(8, 7), targets), "the targets afterwards": targets}


def test_cross_entropy_ignored_logits(impl, draw):
    """Whatever stands in an ignored row, even −inf or NaN, neither the loss nor its gradient sees it.

    Infinity times 0 is NaN, so a row cannot be left out by multiplying its loss by 0; and on the way
    back 0 times NaN is NaN again. Leave it out before anything is computed.
    """
    answers = {}
    for what in (-math.inf, math.nan):
        logits, targets = draw(4, 5).clone(), draw.ints(5, 4).clone()
        logits[1], targets[1] = what, -100
        logits.requires_grad_()
        loss = impl.cross_entropy(logits, targets)
        loss.backward()
        answers[f"a row of {what}"] = {"loss": loss, "grad of logits": logits.grad}
    return answers


def test_cross_entropy_ignore_index(impl, draw):
    """Which target is ignored is the caller's choice; it may be a class of the vocabulary.

    Padding often has id 0. Compare with ignore_index and not with −100. 0 is an id like any other,
    though Python takes it for False, and with another ignore_index no other id is special: neither
    the classes below it nor −100.
    """
    targets, some = torch.tensor([0, 3, 0, 5, 6, 0, 2, 1], device=draw.device), (2, 3, 5)[number(draw, 0, 2)]
    answers = {f"ignore_index={i}": impl.cross_entropy(draw(8, 7), targets, ignore_index=i) for i in (0, some)}
    try:
        answers["-100 among targets, ignore_index=0"] = impl.cross_entropy(
            draw(3, 7), torch.tensor([1, -100, 2], device=draw.device), ignore_index=0)
    except ValueError:
        answers["-100 among targets, ignore_index=0"] = "ValueError"
    return answers


@dtypes("float32", "float64")
def test_cross_entropy_gradient(impl, draw, dtype):
    """The gradient of the logits is (probabilities − one-hot target) / kept, zero where ignored.

    autograd finds it, unless a .detach(), .data or .item() on the way cuts it off. float64 stays
    float64 all along.
    """
    logits, targets = draw(5, 4).to(dtype).requires_grad_(), draw.ints(4, 5).clone()
    targets[2] = -100
    impl.cross_entropy(logits, targets).backward()
    return {"grad of logits": logits.grad}


def test_all_ignored(impl, draw):
    """With every target ignored there is no mean: a ValueError that names targets.

    0 / 0 would be NaN, which one optimizer step spreads over all weights.
    """
    ignored, n = number(draw, -99, -1), number(draw, 2, 5)
    return {f"{n} of {i}, ignore_index={i}": raises(ValueError, lambda i=i: impl.cross_entropy(
                draw(n, 4), torch.full((n,), i, device=draw.device), ignore_index=i), names="targets")
            for i in (-100, ignored)}


def test_targets_out_of_range(impl, draw):
    """A kept target below 0 or past the vocabulary raises a ValueError that names targets.

    Torch says it late, or on a GPU by ending the process, and a negative index may count from
    the end. Look at the kept targets first.
    """
    answers, vocab = {}, number(draw, 4, 9)
    for bad in (vocab, -1, vocab + number(draw, 1, 9)):
        targets = draw.ints(vocab, 5).clone()
        targets[number(draw, 0, 4)] = bad
        logits = draw(5, vocab)
        said = raises(ValueError, lambda: impl.cross_entropy(logits, targets), names="targets")
        answers[f"target {bad} of {vocab} classes"] = \
            impl.cross_entropy(logits, targets) if said == "no error" else said
    return answers


def test_perplexity(impl, draw):
    """perplexity is e^loss, for a tensor or a plain number.

    The loss is in nats, so the base is e. A model that knows nothing of V tokens has loss ln V
    and perplexity V. However large the loss is, nothing is cut off, and the loss stays what it was.
    """
    losses, number_of_nats = draw.uniform(2, 3) * 40, float(draw.uniform(1)) * 40
    one = (losses[0, 0] / 10).requires_grad_()
    return {"of a tensor": impl.perplexity(losses), "the losses afterwards": losses,
            "of a number": impl.perplexity(number_of_nats), "of a loss with a gradient": impl.perplexity(one),
            "in float64": impl.perplexity(losses.double())}


# -- backward

@points(2)
@dtypes("float32", "bfloat16", "float16", "float64")
def test_backward(impl, draw, dtype):
    """softmax_backward is y (grad_out − Σ y grad_out), the sum along the row.

    Each score moves all the probabilities of its row, not only its own. float64 stays float64.
    """
    return impl.softmax_backward(shares(draw, 3, 5).to(dtype), draw(3, 5).to(dtype))


def test_backward_dim(impl, draw):
    """softmax_backward's sum runs along the axis that dim names.

    Keep that axis, with size 1, so that the sum broadcasts back.
    """
    y, grad_out = shares(draw, 4, 3, 4), draw(4, 3, 4)
    return {"dim=0": impl.softmax_backward(y.transpose(0, 2), grad_out, dim=0),
            "dim=-2": impl.softmax_backward(y.transpose(1, 2).contiguous(),
                                            draw(4, 4, 3), dim=-2)}


@dtypes("float16", "bfloat16")
def test_backward_nearly_equal(impl, draw, dtype):
    """softmax_backward of nearly equal gradients keeps their differences in half precision.

    Gradients between 200 and 207: their mean, rounded to bfloat16, is off by up to a half. Compute
    in float32, and cast back at the end.
    """
    grads = (200 + draw.ints(8, 4, 5)).to(draw.float).to(dtype)
    return impl.softmax_backward(shares(draw, 4, 5).to(dtype), grads)


@dtypes("float16", "bfloat16")
def test_backward_rounded_once(impl, draw, dtype):
    """softmax_backward in half precision is what float32 gives for the same numbers, cast: rounded once.

    The answer has the dtype of y. grad_out may be wider, and is then not rounded on the way. (Asked
    is whether at least 97 of 100 numbers are those.)
    """
    y, grad_out = shares(draw, 30, 9).to(dtype), draw(30, 9)
    wide = y.to(torch.promote_types(dtype, torch.float32))
    answers = {"answer": impl.softmax_backward(y[:2], grad_out[:2].to(dtype)),
               "its dtype with grad_out in float32": str(impl.softmax_backward(y, grad_out).dtype)}
    for what, grads in (("both in half precision", grad_out.to(dtype)), ("grad_out in float32", grad_out)):
        right = impl.softmax_backward(wide, grads.to(wide.dtype))
        answers[f"is the wide one, cast: {what}"] = is_cast(impl.softmax_backward(y, grads), right)
    return answers
