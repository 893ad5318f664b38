"""Embedding: from ids to vectors and back.

A table with one row per token. Embedding reads rows; Unembedding compares with every row.
"""

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from given.init import STD
from given.sizes import at_least_one, widen


def check_ids(ids: Int[Tensor, "*batch"], num_embeddings: int) -> None:
    """Raise ValueError, naming ids and the value, unless every id is in [0, num_embeddings).

    No ids at all are fine.
    """
    raise NotImplementedError


class Embedding(nn.Module):
    """A table of vectors: y = weight[ids], a copy of one row per id, of a single id too.

    weight: (num_embeddings, embedding_dim), normal with σ = 0.02, truncated at ±3σ; made with
    the given dtype, on the given device. ids: int64 or int32, of any shape.

    Raises ValueError, naming the size, where a size is below 1; and, naming ids, where an id is
    outside [0, num_embeddings).

    To be written here: torch's Embedding and EmbeddingBag are not used.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ):
        super().__init__()
        raise NotImplementedError

    def forward(self, ids: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch d_model"]:
        raise NotImplementedError


def embedding_backward(
    ids: Int[Tensor, "*batch"], grad_out: Float[Tensor, "*batch d_model"], num_embeddings: int
) -> Float[Tensor, "{num_embeddings} d_model"]:
    """The gradient of a loss through y = weight[ids], given grad_out = ∂loss/∂y.

    grad_weight[v] = Σ grad_out[p] over the places p with ids[p] = v: a repeated id adds up, and
    a row that was never read gets zeros. Adds up in at least float32; returns grad_out's dtype.
    ids: int64 or int32, of any shape.

    Raises ValueError, naming ids, where an id is outside [0, num_embeddings).

    To be written here: torch's Embedding and EmbeddingBag are not used.
    """
    raise NotImplementedError


class Unembedding(nn.Module):
    """From vectors to one score (logit) per token: y = x weightᵀ + b.

    weight: (vocab, d_model), starting as Embedding's does. bias: (vocab,), zeros, or None.

    Raises ValueError, naming the size, where a size is below 1; and, naming x, where x does not
    have d_model features.

    To be written here: torch's Linear is not used.
    """

    def __init__(self, d_model: int, vocab: int, bias: bool = False):
        super().__init__()
        raise NotImplementedError

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch vocab"]:
        raise NotImplementedError

    def tie(self, embedding: Embedding) -> None:
        """Use the embedding's weight as this weight: one Parameter, so one storage, one gradient.

        The embedding's numbers stay and this module's are dropped; a bias is kept. Tie before
        the optimizer is made. (Press and Wolf, 2017, arXiv 1608.05859)

        Raises ValueError, naming embedding, where the two weights differ in shape, and then
        changes nothing.
        """
        raise NotImplementedError
