"""Lesson 05 on other shapes, dtypes and extremes."""

import math

import torch

from grader import dtypes, points, raises

INF = math.inf


def sixteenths(draw, *shape):
    """Probabilities along the last axis, in sixteenths, which every dtype holds exactly."""
    tickets = draw.ints(shape[-1], *shape[:-1], 16)
    return torch.nn.functional.one_hot(tickets, shape[-1]).sum(-2).to(draw.float) / 16


@dtypes("float64", "float32")
def test_ranks(impl, draw, dtype):
    """softmax, its logarithm and logsumexp take one axis, four, and axes of length 1 or 0."""
    answers = {}
    for shape in [(5,), (2, 1, 3, 4), (4, 1), (0, 3)]:
        x = draw(*shape).to(dtype)
        answers[f"softmax of {shape}"] = impl.softmax(x)
        answers[f"log_softmax of {shape}"] = impl.log_softmax(x)
        answers[f"logsumexp of {shape}"] = impl.logsumexp(x)
    return answers


def test_not_contiguous(impl, draw):
    """Scores that do not lie row by row in memory give the same numbers."""
    x = draw(5, 2, 4).transpose(0, 2)
    return {"softmax": impl.softmax(x), "log_softmax": impl.log_softmax(x, dim=1),
            "logsumexp": impl.logsumexp(x, dim=1),
            "softmax_backward": impl.softmax_backward(
                sixteenths(draw, 3, 4).T, draw(3, 4).T, dim=0)}


@points(2)
def test_inputs_unchanged(impl, draw):
    """No function writes to its inputs."""
    x, targets, grad_out = draw(3, 5), draw.ints(5, 3), draw(3, 5)

    def answers():
        return [impl.softmax(x), impl.softmax(x, temperature=2), impl.logsumexp(x),
                impl.log_softmax(x), impl.cross_entropy(x, targets), impl.softmax_backward(x, grad_out)]
    with torch.no_grad():
        silent = answers()
    return {"under no_grad": silent, "recorded": answers()}


@points(2)
@dtypes("float16", "bfloat16")
def test_loss_of_wide_rows_in_half_precision(impl, draw, dtype):
    """The loss over a vocabulary of 70,000 is finite: float16 ends at 65,504."""
    logits = draw(4, 70_000, scale=0.01).to(dtype)
    return impl.cross_entropy(logits, draw.ints(70_000, 4))


@dtypes("float16", "bfloat16")
def test_large_scores_in_half_precision(impl, draw, dtype):
    """Logarithm, loss and logsumexp of scores in the hundreds are finite in half precision."""
    x = draw(4, 6, scale=300.0).to(dtype)
    return {"log_softmax": impl.log_softmax(x), "logsumexp": impl.logsumexp(x),
            "cross_entropy": impl.cross_entropy(x, draw.ints(6, 4))}


def test_masked_along_the_first_axis(impl, draw):
    """Columns of nothing but −inf, along dim=0, in float64 too."""
    x = draw(3, 4).double()
    x[:, 1] = -INF
    x[0, 2] = -INF
    return {"softmax": impl.softmax(x, dim=0), "logsumexp": impl.logsumexp(x, dim=0),
            "log_softmax": impl.log_softmax(x, dim=0)}


@points(2)
@dtypes("float32", "float16")
def test_masked_gradient_at_a_temperature(impl, draw, dtype):
    """An empty row's gradient is zero at any temperature, and through half precision."""
    x = draw(3, 4).to(dtype)
    x[1] = -INF
    x.requires_grad_()
    (impl.softmax(x, temperature=0.5) * draw(3, 4).to(dtype)).sum().backward()
    return {"grad of x": x.grad}


def test_rows_far_apart_everywhere(impl, draw):
    """Rows 500 apart do not disturb one another in the logarithm and the loss either."""
    x = torch.stack([draw(6), draw(6).new_tensor([0, 100, 500, 300, 200, 400])])
    return {"logsumexp": impl.logsumexp(x), "log_softmax": impl.log_softmax(x),
            "cross_entropy": impl.cross_entropy(x, torch.tensor([1, 4], device=draw.device))}


def test_ignored_targets_of_other_integers(impl, draw):
    """−100 in int8, or another number in int16, is left out as in int64."""
    logits, targets = draw(5, 4), draw.ints(4, 5).clone()
    targets[[0, 3]] = -100
    other = targets.masked_fill(targets == -100, 999).to(torch.int16)
    near = torch.tensor([44, 3, 44], device=draw.device).to(torch.int8)     # 300 − 256 is 44
    return [impl.cross_entropy(logits, targets.to(torch.int8)),
            impl.cross_entropy(logits, other, ignore_index=999),
            impl.cross_entropy(draw(3, 50), near, ignore_index=300)]


def test_one_loss_past_half_precision(impl, draw):
    """A loss of 120,000, past float16's largest number, is averaged with others before the cast."""
    logits = draw(4, 2).to(torch.float16)
    logits[:, 0], logits[:, 1] = 60_000, -32 * (1000 + int(draw.ints(875, 1)))
    return impl.cross_entropy(logits, torch.tensor([1, 0, 0, 0], device=draw.device))


def test_one_class(impl, draw):
    """A vocabulary of one token leaves nothing to learn: loss 0, gradient 0."""
    logits = draw(3, 1).requires_grad_()
    loss = impl.cross_entropy(logits, 0 * draw.ints(1, 3))
    loss.backward()
    return {"loss": loss, "grad of logits": logits.grad}


def test_tiny_temperatures(impl, draw):
    """However small the temperature is, it is what the scores are divided by."""
    return {"scores of its size": impl.softmax(draw(3, 5, scale=1e-30), temperature=1e-30),
            "scores far above it": impl.softmax(draw(3, 5), temperature=1e-37),
            "smaller than any number in float32": impl.softmax(draw(3, 5), temperature=1e-50)}


@dtypes("float32", "float16")
def test_ignored_logits_of_a_batch(impl, draw, dtype):
    """NaN in ignored positions of a batch stays there, whatever ignore_index is."""
    logits, targets = draw(2, 3, 5).to(dtype).clone(), torch.tensor(
        [[4, 1, 0], [2, 2, 4]], device=draw.device)
    logits[targets == 2] = math.nan
    return impl.cross_entropy(logits, targets, ignore_index=2)


def test_minus_hundred_is_a_target_once_it_is_not_ignored(impl, draw):
    """With another ignore_index, −100 is out of range; and ignored targets may be anywhere."""
    def loss(targets, ignored):
        return impl.cross_entropy(draw(3, 4), torch.tensor(targets, device=draw.device), ignored)
    return {"-100 with ignore_index=-1": raises(ValueError, lambda: loss([0, -100, 1], -1),
                                                names="targets"),
            "99 with ignore_index=99": loss([0, 99, 3], 99),
            "only 2 with ignore_index=2": raises(ValueError, lambda: loss([2, 2, 2], 2),
                                                 names="targets")}


def test_no_targets(impl, draw):
    """No targets at all is refused like nothing but ignored ones."""
    return raises(ValueError, lambda: impl.cross_entropy(draw(0, 4), draw.ints(4, 0)),
                  names="targets")


def test_backward_of_an_empty_row(impl, draw):
    """A row of zeros, which is what an empty row of scores gave, sends zeros back."""
    y = sixteenths(draw, 3, 4)
    y[1] = 0
    return impl.softmax_backward(y, draw(3, 4))


def test_backward_ranks(impl, draw):
    """softmax_backward takes one axis and four."""
    return {"(4,)": impl.softmax_backward(sixteenths(draw, 4), draw(4)),
            "(2, 1, 3, 4)": impl.softmax_backward(sixteenths(draw, 2, 1, 3, 4), draw(2, 1, 3, 4))}


def test_perplexity_of_a_half(impl, draw):
    """perplexity keeps the dtype of a tensor, and takes an int."""
    return {"float64": impl.perplexity(draw.uniform(2).double()),
            "bfloat16": impl.perplexity(draw.uniform(2).to(torch.bfloat16)),
            "an int": impl.perplexity(3)}
