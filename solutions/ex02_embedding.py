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
    # BEGIN SOLUTION
    if ids.numel() == 0:
        return
    low, high = map(int, ids.aminmax())
    if low < 0 or high >= num_embeddings:
        bad = low if low < 0 else high
        raise ValueError(f"ids must be at least 0 and below {num_embeddings}, got {bad}")
    # END SOLUTION


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
        # BEGIN SOLUTION
        at_least_one(num_embeddings=num_embeddings, embedding_dim=embedding_dim)
        weight = torch.empty(num_embeddings, embedding_dim, dtype=dtype, device=device)
        self.weight = nn.Parameter(nn.init.trunc_normal_(weight, std=STD, a=-3 * STD, b=3 * STD))
        # END SOLUTION

    def forward(self, ids: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch d_model"]:
        # BEGIN SOLUTION
        check_ids(ids, self.weight.shape[0])
        # weight[ids] gives the same rows, more slowly; but of a scalar id, a view of the table
        rows = self.weight.index_select(0, rearrange(ids, "... -> (...)"))
        return rows.reshape(*ids.shape, self.weight.shape[1])
        # END SOLUTION


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
    # BEGIN SOLUTION
    check_ids(ids, num_embeddings)
    rows = widen(rearrange(grad_out, "... d_model -> (...) d_model"))
    grad_weight = rows.new_zeros(num_embeddings, grad_out.shape[-1])
    grad_weight.index_add_(0, rearrange(ids, "... -> (...)"), rows)
    return grad_weight.to(grad_out.dtype)
    # END SOLUTION


class Unembedding(nn.Module):
    """From vectors to one score (logit) per token: y = x weightᵀ + b.

    weight: (vocab, d_model), starting as Embedding's does. bias: (vocab,), zeros, or None.

    Raises ValueError, naming the size, where a size is below 1; and, naming x, where x does not
    have d_model features.

    To be written here: torch's Linear is not used.
    """

    def __init__(self, d_model: int, vocab: int, bias: bool = False):
        super().__init__()
        # BEGIN SOLUTION
        at_least_one(d_model=d_model, vocab=vocab)
        weight = torch.empty(vocab, d_model)
        self.weight = nn.Parameter(nn.init.trunc_normal_(weight, std=STD, a=-3 * STD, b=3 * STD))
        self.bias = nn.Parameter(torch.zeros(vocab)) if bias else None
        # END SOLUTION

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch vocab"]:
        # BEGIN SOLUTION
        if x.shape[-1] != self.weight.shape[1]:
            raise ValueError(f"x has {x.shape[-1]} features, expected {self.weight.shape[1]}")
        y = x @ self.weight.T
        return y if self.bias is None else y + self.bias
        # END SOLUTION

    def tie(self, embedding: Embedding) -> None:
        """Use the embedding's weight as this weight: one Parameter, so one storage, one gradient.

        The embedding's numbers stay and this module's are dropped; a bias is kept. Tie before
        the optimizer is made. (Press and Wolf, 2017, arXiv 1608.05859)

        Raises ValueError, naming embedding, where the two weights differ in shape, and then
        changes nothing.
        """
        # BEGIN SOLUTION
        if embedding.weight.shape != self.weight.shape:
            shapes = f"{tuple(embedding.weight.shape)}, expected {tuple(self.weight.shape)}"
            raise ValueError(f"embedding has a weight of shape {shapes}")
        self.weight = embedding.weight
        # END SOLUTION
