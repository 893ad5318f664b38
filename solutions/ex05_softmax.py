"""Softmax: scores to probabilities to loss.

pᵢ = e^(xᵢ/T) / Σⱼ e^(xⱼ/T), its logarithm, and the loss that a language model trains on.
"""

import math

import torch  # noqa: F401 (for the student)
from jaxtyping import Float, Int
from torch import Tensor

from given.sizes import widen


# BEGIN SOLUTION
def _shifted(wide: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """x − max x along dim, and max x, a constant to the gradient; x itself where max x is ±inf."""
    top = wide.detach().amax(dim, keepdim=True)
    return wide - top.masked_fill(top.isinf(), 0), top      # −inf − (−inf) would be NaN


# END SOLUTION
def softmax(
    x: Float[Tensor, "*shape"], dim: int = -1, temperature: float = 1.0
) -> Float[Tensor, "*shape"]:
    """Scores to probabilities along dim: e^(xᵢ/T) / Σⱼ e^(xⱼ/T), with T the temperature.

    Computed from (x − max x)/T in at least float32, so that no e^… overflows, and cast back to
    the dtype of x. Where every score is −inf there is nothing to choose from: all zeros, and a
    gradient of zero.

    Raises ValueError where temperature is not above 0; NaN is not.

    To be written here: torch's softmax, softmin, log_softmax, logsumexp, cross_entropy and nll_loss
    are not used.
    """
    # BEGIN SOLUTION
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}")
    wide = widen(x)
    limits = torch.finfo(wide.dtype)
    temperature = min(max(temperature, limits.tiny), limits.max)    # −inf / inf and 0 / 0 would be NaN
    weights = (_shifted(wide, dim)[0] / temperature).exp()
    total = weights.sum(dim, keepdim=True)
    total = total.clamp(min=1)                  # the top adds e⁰ = 1: below is only the empty sum
    return (weights / total).to(x.dtype)
    # END SOLUTION


def logsumexp(x: Float[Tensor, "*shape"], dim: int = -1) -> Float[Tensor, "..."]:
    """log Σⱼ e^xⱼ along dim, which disappears: max x + log Σⱼ e^(xⱼ − max x).

    Computed in at least float32 and cast back. Where every score is −inf: −inf, and a gradient
    of zero.

    To be written here: torch's softmax, softmin, log_softmax, logsumexp, cross_entropy and nll_loss
    are not used.
    """
    # BEGIN SOLUTION
    wide = widen(x)
    shifted, top = _shifted(wide, dim)
    total = shifted.exp().sum(dim, keepdim=True).clamp(min=1)
    return (top + total.log()).squeeze(dim).to(x.dtype)
    # END SOLUTION


def log_softmax(x: Float[Tensor, "*shape"], dim: int = -1) -> Float[Tensor, "*shape"]:
    """The logarithm of softmax(x), without going through it: xᵢ − log Σⱼ e^xⱼ along dim.

    Computed in at least float32 and cast back, finite for every finite score, and from x − max x, so
    that large scores which lie close keep their differences. Where every score is −inf, so is every
    answer.

    To be written here: torch's softmax, softmin, log_softmax, logsumexp, cross_entropy and nll_loss
    are not used.
    """
    # BEGIN SOLUTION
    wide = widen(x)
    shifted, _ = _shifted(wide, dim)
    total = shifted.exp().sum(dim, keepdim=True).clamp(min=1)
    return (shifted - total.log()).to(x.dtype)
    # END SOLUTION


def cross_entropy(
    logits: Float[Tensor, "*batch vocab"],
    targets: Int[Tensor, "*batch"],
    ignore_index: int = -100,
) -> Float[Tensor, ""]:
    """The mean of −log softmax(logits)[target] over the targets that are kept, in nats.

    A target equal to ignore_index is left out of the sum and of the count, whatever its logits are.
    Targets may have any integer dtype (int8 … int64). Computed in at least float32 and cast back to
    the dtype of logits.

    Raises ValueError where a kept target is not in 0 … vocab − 1, or no target is kept.

    To be written here: torch's softmax, softmin, log_softmax, logsumexp, cross_entropy and nll_loss
    are not used.
    """
    # BEGIN SOLUTION
    vocab = logits.shape[-1]
    kept = targets != ignore_index
    ids = targets[kept].long()
    wrong = ids[(ids < 0) | (ids >= vocab)]
    if len(wrong):
        raise ValueError(f"targets must be 0 … {vocab - 1}, or ignored, got {wrong[0].item()}")
    if not len(ids):
        raise ValueError(f"targets must hold one to learn from, got only {ignore_index}")
    rows = widen(logits[kept])
    losses = -log_softmax(rows).gather(-1, ids.unsqueeze(-1))
    return losses.mean().to(logits.dtype)
    # END SOLUTION


def perplexity(loss: Float[Tensor, "*batch"] | float) -> Float[Tensor, "*batch"] | float:
    """e^loss: among how many equally likely tokens a model of this loss (in nats) hesitates.

    To be written here: torch's softmax, softmin, log_softmax, logsumexp, cross_entropy and nll_loss
    are not used.
    """
    # BEGIN SOLUTION
    return loss.exp() if isinstance(loss, Tensor) else math.exp(loss)
    # END SOLUTION


def softmax_backward(
    y: Float[Tensor, "*shape"], grad_out: Float[Tensor, "*shape"], dim: int = -1
) -> Float[Tensor, "*shape"]:
    """The gradient of a loss through y = softmax(x, dim), given grad_out = ∂loss/∂y.

    grad_xᵢ = yᵢ (grad_outᵢ − Σⱼ yⱼ grad_outⱼ): the mean of the gradients, weighed by y, is taken away from each.
    Computed in at least float32 and cast back to the dtype of y.

    To be written here: torch's softmax, softmin, log_softmax, logsumexp, cross_entropy and nll_loss
    are not used.
    """
    # BEGIN SOLUTION
    wide = widen(y)
    grad = grad_out.to(wide.dtype)
    mean = (wide * grad).sum(dim, keepdim=True)
    return (wide * (grad - mean)).to(y.dtype)
    # END SOLUTION
