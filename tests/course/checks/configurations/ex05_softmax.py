"""What the parts of chapter 05 may be given."""

import torch
from hypothesis import strategies as st

TEMPERATURES = (1.0, 0.5, 2.0, 1e-3, 1e3, 1e-36, float("inf"))


def along(draw):
    x = draw.tensor("x", ("", "a", "a b", "a b c")[draw("axes", (1, 2, 3), told=False)], holes=True)
    return x, draw("dim", st.integers(-x.ndim, x.ndim - 1))


def softmax(impl, draw):
    x, dim = along(draw)
    draw.asked(impl.softmax, x, dim, draw("temperature", TEMPERATURES))
    draw.asked(impl.softmax, x)


def logarithms(impl, draw):
    x, dim = along(draw)
    draw.asked(impl.logsumexp, x, dim)
    draw.asked(impl.log_softmax, x, dim)
    draw.asked(impl.logsumexp, x)
    draw.asked(impl.log_softmax, x)


def cross_entropy(impl, draw):
    logits = draw.tensor("logits", "*batch vocab", holes=True)
    ignored = draw("ignore_index", (-100, -1, 0, 1))
    targets = draw.ints("targets", "*batch", draw.size("vocab"), dtypes=(torch.int64, torch.int8, torch.int32))
    hidden = draw.bools("ignored", tuple(targets.shape))
    targets = targets.masked_fill(hidden & draw("some ignored", (False, True)), ignored)
    draw.asked(impl.cross_entropy, logits, targets, ignored)
    draw.asked(impl.cross_entropy, logits, targets)


def perplexity(impl, draw):
    draw.asked(impl.perplexity, draw.tensor("loss", "*batch", kinds=("normal", "large", "zeros")))
    draw.asked(impl.perplexity, draw("loss", (0.5, 0.0, 3.0)))


def softmax_backward(impl, draw):
    y, dim = along(draw)
    draw.asked(impl.softmax_backward, y, draw.tensor("grad_out", tuple(y.shape)), dim)
