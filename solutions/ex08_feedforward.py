"""Feed-forward: where a layer thinks alone.

MLP: y = W_down act(W_up x). SwiGLU: y = W_down (silu(W_gate x) ⊙ W_up x). Each token by itself.
"""

import math
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from given.sizes import at_least_one, widen

from .ex03_linear import Linear


def sigmoid(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """σ(x) = 1 / (1 + e^−x) = e^x / (1 + e^x), whichever of the two has the small exponential.

    Computed in at least float32 and returned in the dtype of x. Values and gradients are right
    for every x: nothing overflows, small results stay small, and the slope at 0 is 1/4.

    To be written here: torch's sigmoid, expit, silu, gelu and glu are not used.
    """
    # BEGIN SOLUTION
    wide = widen(x)
    positive = wide >= 0
    small = torch.exp(torch.where(positive, -wide, wide))  # e^−|x|; abs has the slope 0 at 0
    return (torch.where(positive, 1, small) / (1 + small)).to(x.dtype)
    # END SOLUTION


def silu(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """SiLU, also called Swish: x · σ(x), in the dtype of x.

    Computed in at least float32; values and gradients are right for every x, as sigmoid's are.
    (x / (1 + e^−x) is the same on paper; where e^−x overflows, its gradient is NaN.) Elfwing et al.,
    2017 (arXiv 1702.03118).

    To be written here: torch's sigmoid, expit, silu, gelu and glu are not used.
    """
    # BEGIN SOLUTION
    wide = widen(x)
    return (wide * sigmoid(wide)).to(x.dtype)
    # END SOLUTION


def gelu(x: Float[Tensor, "*shape"], approximate: str = "none") -> Float[Tensor, "*shape"]:
    """GELU: x · Φ(x), where Φ(x) is the chance that a normal number lies below x.

    approximate="none": Φ(x) = ½ (1 + erf(x / √2)) = ½ erfc(−x / √2).
    approximate="tanh": Φ(x) ≈ ½ (1 + tanh(√(2/π) (x + 0.044715 x³))), as GPT-2 has it.

    Computed in at least float32 and returned in the dtype of x. Raises ValueError where
    approximate is neither. Hendrycks and Gimpel, 2016 (arXiv 1606.08415).

    To be written here: torch's sigmoid, expit, silu, gelu and glu are not used.
    """
    # BEGIN SOLUTION
    if approximate not in ("none", "tanh"):
        raise ValueError(f"approximate must be 'none' or 'tanh', got {approximate!r}")
    wide = widen(x)
    if approximate == "none":
        below = 0.5 * torch.erfc(-wide / math.sqrt(2))
    else:
        bent = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)
        below = 0.5 * (1 + torch.tanh(bent))
    return (wide * below).to(x.dtype)
    # END SOLUTION


# What an MLP may be told to use, by name, so that a config can hold the choice.
ACTIVATIONS = {
    "relu": torch.relu,
    "gelu": gelu,
    "gelu_tanh": partial(gelu, approximate="tanh"),
    "silu": silu,
}


class Dropout(nn.Module):
    """While training, each number becomes 0 with probability p, or else x / (1 − p).

    Dividing by 1 − p keeps the mean, so nothing is left to do in eval mode: x passes as it is.
    Raises ValueError where p is not in [0, 1); NaN is not. Srivastava et al., 2014.

    To be written here: torch's dropout is not used.
    """

    def __init__(self, p: float):
        super().__init__()
        # BEGIN SOLUTION
        if not 0 <= p < 1:
            raise ValueError(f"the dropout probability p must be in [0, 1), got {p}")
        self.p = p
        # END SOLUTION

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """x with a fresh draw for every number, in the dtype of x; x itself in eval mode.

        p is p in every dtype: a uniform number in bfloat16 is too coarse to be compared with a p of
        0.01.
        """
        # BEGIN SOLUTION
        if not self.training or self.p == 0:
            return x
        keep = torch.empty_like(x).bernoulli_(1 - self.p)
        return x.masked_fill(keep == 0, 0) / (1 - self.p)       # times 0, an infinite x would be NaN
        # END SOLUTION


class MLP(nn.Module):
    """Widen, bend, narrow: y = W_down dropout(act(W_up x + b_up)) + b_down, for each token alone.

    up: Linear, d_model to d_ff. down: Linear, d_ff to d_model. activation is a name out of
    ACTIVATIONS. Dropout falls on the d_ff hidden numbers; on y it is the block's affair.

    Raises ValueError where a size is below 1, the activation is unknown or dropout is not
    in [0, 1). Vaswani et al., 2017 (arXiv 1706.03762), section 3.3.

    To be written here: torch's sigmoid, expit, silu, gelu, glu and dropout are not used.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        activation: str,
        bias: bool = True,
        dropout: float = 0.0,
    ):
        super().__init__()
        # BEGIN SOLUTION
        at_least_one(d_model=d_model, d_ff=d_ff)
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {list(ACTIVATIONS)}, got {activation!r}")
        self.up = Linear(d_model, d_ff, bias=bias)
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)
        self.down = Linear(d_ff, d_model, bias=bias)
        # END SOLUTION

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Raises ValueError where x does not end in d_model features."""
        # BEGIN SOLUTION
        return self.down(self.dropout(self.activation(self.up(x))))
        # END SOLUTION


class SwiGLU(nn.Module):
    """A gated MLP: y = W_down (silu(W_gate x) ⊙ W_up x), for each token alone, without biases.

    gate and up: Linear, d_model to d_ff. down: Linear, d_ff to d_model. Without d_ff the width
    is 8/3 · d_model, rounded up to a multiple of 64: three matrices of that width hold as many
    numbers as the MLP's two of width 4 · d_model. A d_ff that is given is used as it is.

    Raises ValueError where a size is below 1. Shazeer, 2020 (arXiv 2002.05202).

    To be written here: torch's sigmoid, expit, silu, gelu and glu are not used.
    """

    def __init__(self, d_model: int, d_ff: int | None = None):
        super().__init__()
        # BEGIN SOLUTION
        at_least_one(d_model=d_model)
        if d_ff is None:
            d_ff = 64 * math.ceil(8 / 3 * d_model / 64)
        at_least_one(d_ff=d_ff)
        self.gate = Linear(d_model, d_ff)
        self.up = Linear(d_model, d_ff)
        self.down = Linear(d_ff, d_model)
        # END SOLUTION

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Raises ValueError where x does not end in d_model features."""
        # BEGIN SOLUTION
        return self.down(silu(self.gate(x)) * self.up(x))
        # END SOLUTION
