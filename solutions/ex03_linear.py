"""Linear: the layer behind nearly every other.

y = x Wᵀ + b, with W stored as (out_features, in_features).
"""

import math

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor, nn

from given.sizes import at_least_one


class Linear(nn.Module):
    """A linear layer: y = x Wᵀ + b.

    weight: (out_features, in_features), contiguous, normal with
    σ = √(2 / (in_features + out_features)) (Glorot and Bengio, 2010), truncated at ±3σ, drawn
    with torch's own generator. bias: (out_features,), zeros, or None.

    Raises ValueError, naming the size, where a size is below 1.

    To be written here: torch's Linear, Bilinear and Conv1d are not used.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = False):
        super().__init__()
        # BEGIN SOLUTION
        at_least_one(in_features=in_features, out_features=out_features)
        std = math.sqrt(2 / (in_features + out_features))
        weight = torch.empty(out_features, in_features)
        nn.init.trunc_normal_(weight, std=std, a=-3 * std, b=3 * std)
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None
        # END SOLUTION

    def forward(
        self, x: Float[Tensor, "*batch in_features"]
    ) -> Float[Tensor, "*batch out_features"]:
        """x Wᵀ + b over the last axis of x, in x's dtype; the axes before it are a batch.

        A batch may be empty: no rows in, no rows out.

        Raises ValueError, naming x, where x does not end in in_features features.
        """
        # BEGIN SOLUTION
        if x.shape[-1] != self.weight.shape[1]:
            raise ValueError(f"x has {x.shape[-1]} features, expected {self.weight.shape[1]}")
        y = x @ self.weight.T
        return y if self.bias is None else y + self.bias
        # END SOLUTION


def linear_backward(
    x: Float[Tensor, "*batch in_features"],
    weight: Float[Tensor, "out_features in_features"],
    grad_out: Float[Tensor, "*batch out_features"],
) -> tuple[
    Float[Tensor, "*batch in_features"],
    Float[Tensor, "out_features in_features"],
    Float[Tensor, " out_features"],
]:
    """The gradients of a loss through y = x Wᵀ + b, given grad_out = ∂loss/∂y.

    grad_x = grad_out W, grad_weight = Σ grad_outᵀ x, grad_bias = Σ grad_out; the sums run over
    every position of the batch. Returns (grad_x, grad_weight, grad_bias), new tensors each: none of them
    lies in the memory of an argument.

    To be written here: torch's Linear, Bilinear and Conv1d are not used.
    """
    # BEGIN SOLUTION
    grad_x = grad_out @ weight
    grad_weight = einsum(grad_out, x, "... d_out, ... d_in -> d_out d_in")
    grad_bias = rearrange(grad_out, "... d_out -> (...) d_out").sum(0)
    return grad_x, grad_weight, grad_bias
    # END SOLUTION


def linear_flops(batch: int, in_features: int, out_features: int) -> int:
    """Floating-point operations of x Wᵀ for `batch` rows; a multiply and an add count as two.

    2 · batch · in_features · out_features: every weight multiplies once and adds once, per row.
    """
    # BEGIN SOLUTION
    return 2 * batch * in_features * out_features
    # END SOLUTION
