"""The block: residual streams.

Pre-norm: x + sublayer(norm(x)). Post-norm, the order of 2017: norm(x + sublayer(x)).
"""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from given.sizes import at_least_one

from .ex04_normalization import LayerNorm
from .ex08_feedforward import MLP, Dropout
from .ex09_attention import MultiHeadAttention


class PreNormBlock(nn.Module):
    """A block of GPT-2, Llama or Qwen3: each sublayer reads a normed copy and adds to the stream.

    x ← x + dropout(attention(norm1(x)))
    x ← x + dropout(feed_forward(norm2(x)))

    The four parts are given as modules and kept under these names, so one class serves every
    model whose blocks are pre-norm. Nothing but these sums ever touches the stream x itself.

    Raises ValueError where dropout is not in [0, 1), as Dropout does. Radford et al., 2019 (GPT-2);
    Xiong et al., 2020 (arXiv 2002.04745).

    To be written here: torch's Transformer modules and MultiheadAttention are not used.
    """

    def __init__(
        self,
        norm1: nn.Module,
        attention: nn.Module,
        norm2: nn.Module,
        feed_forward: nn.Module,
        dropout: float = 0.0,
    ):
        super().__init__()
        raise NotImplementedError

    def forward(
        self,
        x: Float[Tensor, "batch seq d_model"],
        mask: Bool[Tensor, "..."] | None = None,
        positions: Int[Tensor, "..."] | None = None,
        cache: object | None = None,
    ) -> Float[Tensor, "batch seq d_model"]:
        """mask and positions go to attention by name, and so does a cache, if there is one.

        Without a cache attention is not told of one, so an attention that knows none fits too.
        """
        raise NotImplementedError


class PostNormBlock(nn.Module):
    """The encoder block of 2017: every sum is normed, and the normed sum is the new stream.

    x ← norm1(x + dropout(attention(x)))
    x ← norm2(x + dropout(feed_forward(x)))

    norm1, norm2: LayerNorm with norm_eps. attention: MultiHeadAttention with biases.
    feed_forward: MLP with biases. The same dropout also falls inside them, on the attention
    weights and on the MLP's hidden numbers, as in torch.nn.TransformerEncoderLayer.

    Raises ValueError where a size is bad, the activation unknown or dropout not in [0, 1), as
    the parts do. Vaswani et al., 2017 (arXiv 1706.03762).

    To be written here: torch's Transformer modules and MultiheadAttention are not used.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        d_ff: int,
        activation: str = "gelu",
        dropout: float = 0.0,
        norm_eps: float = 1e-5,
    ):
        super().__init__()
        raise NotImplementedError

    def forward(
        self,
        x: Float[Tensor, "batch seq d_model"],
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch seq d_model"]:
        """Every token may look at all others, but for what the mask hides."""
        raise NotImplementedError


class CrossBlock(nn.Module):
    """The decoder block of 2017: a post-norm block that also reads a context, between the two.

    x ← norm1(x + dropout(attention(x)))
    x ← norm2(x + dropout(cross_attention(x, context)))
    x ← norm3(x + dropout(feed_forward(x)))

    The parts, their dropout and the errors are those of PostNormBlock. Queries come from x, keys
    and values from the context, such as what an encoder made of the sentence to be translated.

    To be written here: torch's Transformer modules and MultiheadAttention are not used.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        d_ff: int,
        activation: str = "gelu",
        dropout: float = 0.0,
        norm_eps: float = 1e-5,
    ):
        super().__init__()
        raise NotImplementedError

    def forward(
        self,
        x: Float[Tensor, "batch seq d_model"],
        context: Float[Tensor, "batch context_seq d_model"],
        mask: Bool[Tensor, "..."] | None = None,
        context_mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch seq d_model"]:
        """mask says what x may see of itself (a decoder gives a causal one), context_mask what
        it may see of the context (True = may look, in both).
        """
        raise NotImplementedError


def scaled_residual_init(module: nn.Module, layers: int) -> None:
    """Scale down, in place, what every sublayer of a new model writes into the stream.

    The weights that end a branch, those of the submodules called o_proj and down at any depth, are
    multiplied by 1 / √(2 · layers): a stream of `layers` blocks is a sum of 2 · layers terms, and
    the scale keeps the sum's variance at that of one term. Biases stay. To be called once, on fresh
    weights. Raises ValueError naming layers where it is below 1, before any weight has changed.
    Radford et al., 2019 (GPT-2), section 2.3.
    """
    raise NotImplementedError
