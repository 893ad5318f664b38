"""Softmax: scores to probabilities to loss.

pᵢ = e^(xᵢ/T) / Σⱼ e^(xⱼ/T), its logarithm, and the loss that a language model trains on.
"""

import math

import torch  # noqa: F401 (for the student)
from jaxtyping import Float, Int
from torch import Tensor

from given.sizes import widen


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
    raise NotImplementedError


def logsumexp(x: Float[Tensor, "*shape"], dim: int = -1) -> Float[Tensor, "..."]:
    """log Σⱼ e^xⱼ along dim, which disappears: max x + log Σⱼ e^(xⱼ − max x).

    Computed in at least float32 and cast back. Where every score is −inf: −inf, and a gradient
    of zero.

    To be written here: torch's softmax, softmin, log_softmax, logsumexp, cross_entropy and nll_loss
    are not used.
    """
    raise NotImplementedError


def log_softmax(x: Float[Tensor, "*shape"], dim: int = -1) -> Float[Tensor, "*shape"]:
    """The logarithm of softmax(x), without going through it: xᵢ − log Σⱼ e^xⱼ along dim.

    Computed in at least float32 and cast back, finite for every finite score, and from x − max x, so
    that large scores which lie close keep their differences. Where every score is −inf, so is every
    answer.

    To be written here: torch's softmax, softmin, log_softmax, logsumexp, cross_entropy and nll_loss
    are not used.
    """
    raise NotImplementedError


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
    raise NotImplementedError


def perplexity(loss: Float[Tensor, "*batch"] | float) -> Float[Tensor, "*batch"] | float:
    """e^loss: among how many equally likely tokens a model of this loss (in nats) hesitates.

    To be written here: torch's softmax, softmin, log_softmax, logsumexp, cross_entropy and nll_loss
    are not used.
    """
    raise NotImplementedError


def softmax_backward(
    y: Float[Tensor, "*shape"], grad_out: Float[Tensor, "*shape"], dim: int = -1
) -> Float[Tensor, "*shape"]:
    """The gradient of a loss through y = softmax(x, dim), given grad_out = ∂loss/∂y.

    grad_xᵢ = yᵢ (grad_outᵢ − Σⱼ yⱼ grad_outⱼ): the mean of the gradients, weighed by y, is taken away from each.
    Computed in at least float32 and cast back to the dtype of y.

    To be written here: torch's softmax, softmin, log_softmax, logsumexp, cross_entropy and nll_loss
    are not used.
    """
    raise NotImplementedError
