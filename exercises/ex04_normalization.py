"""Normalization: LayerNorm and RMSNorm, which keep every token in scale.

LayerNorm(x) = (x − mean) / √(variance + eps) · weight + bias
RMSNorm(x) = x / √(mean of squares + eps) · weight
"""

import torch
from einops import reduce
from jaxtyping import Float
from torch import Tensor, nn

from given.sizes import at_least_one, widen


class LayerNorm(nn.Module):
    """Layer normalization (Ba, Kiros and Hinton, 2016): each token to mean 0 and variance 1.

    y = (x − μ) / √(σ² + eps) · weight + bias, with the mean μ and the variance σ² = mean((x − μ)²)
    taken over the features of one token. weight: (d_model,), ones. bias: (d_model,), zeros.

    Raises ValueError where d_model is below 1 or eps below 0.

    To be written here: torch's LayerNorm, RMSNorm, GroupNorm, BatchNorm and InstanceNorm are not
    used.
    """

    def __init__(self, d_model: int, eps: float = 1e-5):
        super().__init__()
        raise NotImplementedError

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Normalize over the last axis of x; the axes before it, if any, are a batch.

        Mean, variance and quotient are computed in float32 at least (float64 stays float64);
        the quotient is cast to the dtype of x, then scaled and shifted. So where the weight is of a
        wider dtype than x, the result is too.

        Raises ValueError where x does not end in d_model features.
        """
        raise NotImplementedError


class RMSNorm(nn.Module):
    """Root-mean-square normalization (Zhang and Sennrich, 2019, arXiv 1910.07467).

    y = x / √(mean(x²) + eps) · weight, with the mean taken over the features of one token.
    weight: (d_model,), ones. Nothing is subtracted and there is no bias.

    Raises ValueError where d_model is below 1 or eps below 0.

    To be written here: torch's LayerNorm, RMSNorm, GroupNorm, BatchNorm and InstanceNorm are not
    used.
    """

    def __init__(self, d_model: int, eps: float = 1e-5):
        super().__init__()
        raise NotImplementedError

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Normalize over the last axis of x; the axes before it, if any, are a batch.

        The mean of squares and the quotient are computed in float32 at least (float64 stays
        float64); the quotient is cast to the dtype of x, then scaled. This is Llama's order: where
        the weight is of a wider dtype than x, the result is too.

        Raises ValueError where x does not end in d_model features.
        """
        raise NotImplementedError


def rms_norm_backward(
    x: Float[Tensor, "*batch d_model"],
    weight: Float[Tensor, " d_model"],
    eps: float,
    grad_out: Float[Tensor, "*batch d_model"],
) -> tuple[Float[Tensor, "*batch d_model"], Float[Tensor, " d_model"]]:
    """The gradients of a loss through y = RMSNorm(x), given grad_out = ∂loss/∂y.

    With r = 1 / √(mean(x²) + eps), n = x r and g = grad_out · weight:
    grad_x = r (g − n mean(g n)), grad_weight = Σ grad_out n. The means run over the features of
    one token, the sum over every position of the batch. Computed in float32 at least (float64
    stays float64) and cast to the dtypes of x and weight. Returns (grad_x, grad_weight).

    To be written here: torch's LayerNorm, RMSNorm, GroupNorm, BatchNorm and InstanceNorm are not
    used.
    """
    raise NotImplementedError
