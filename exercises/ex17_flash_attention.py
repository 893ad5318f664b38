"""Flash attention: attention that never writes its scores.

Queries and keys are cut into tiles. The scores of one tile at a time are computed, used and
forgotten; a running maximum and a running sum per query make the result exact. Memory grows with
the length, not with its square (Dao et al., 2022, arXiv 2205.14135; Dao, 2023, arXiv 2307.08691).

The papers' letters: S, the scores of a tile, and P = e^(S − m), its weights. Per query m, the
largest score so far (high), ℓ, the sum of P (total), and O, the values mixed by P (mix). At the end
O is divided by ℓ. In the backward pass dX is the gradient of X, and D the sum of dO ∘ out.
"""

import os
from typing import no_type_check

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from given.sizes import at_least_one

# Triton reads these when it is imported: without a GPU its interpreter runs kernels, and an error
# in one is left as is.
os.environ.setdefault("TRITON_INTERPRET", "0" if torch.cuda.is_available() else "1")
os.environ.setdefault("TRITON_FRONT_END_DEBUGGING", os.environ["TRITON_INTERPRET"])
try:
    import triton
    from triton import language as tl
except ImportError:         # only flash_kernel needs it: pip install -r requirements-triton.txt
    triton = tl = None
jit, constexpr = (triton.jit, tl.constexpr) if triton else (lambda kernel: kernel, int)


def _tiles_must_fit(q: Tensor, k: Tensor, v: Tensor, block_q: int, block_k: int) -> None:
    """Given: raise a ValueError that names kv_heads, block_q or block_k where it cannot be used."""
    heads, kv_heads = q.shape[-3], k.shape[-3]
    if kv_heads < 1 or heads % kv_heads:
        raise ValueError(f"kv_heads must divide heads = {heads}, got {kv_heads}")
    at_least_one(block_q=block_q, block_k=block_k)


def tiles(length: int, block: int) -> list[slice]:
    """Given: 0 … length − 1 in slices of `block`; the last one may be shorter."""
    return [slice(start, min(start + block, length)) for start in range(0, length, block)]


def merge(
    out1: Float[Tensor, "*batch q value_dim"],
    lse1: Float[Tensor, "*batch q"],
    out2: Float[Tensor, "*batch q value_dim"],
    lse2: Float[Tensor, "*batch q"],
) -> tuple[Float[Tensor, "*batch q value_dim"], Float[Tensor, "*batch q"]]:
    """Two attentions of the same queries over different keys, made into the one over all of them.

    out: what attention gave for each query. lse: the logarithm of the sum of e^score over the keys
    that it saw. Together they are enough: lse = log(e^lse1 + e^lse2), and each part weighs e^(its
    lse − lse):

        out = e^(lse1 − lse) · out1 + e^(lse2 − lse) · out2

    A part that saw no key has zeros and −∞, and changes nothing; two such parts give zeros and −∞.
    Large values of lse do no harm. out comes in the dtype of out1, computed in at least float32;
    lse in its own, which is at least float32, as flash_attention gives it.
    """
    raise NotImplementedError


def flash_attention(
    q: Float[Tensor, "*batch heads q head_dim"],
    k: Float[Tensor, "*batch kv_heads k head_dim"],
    v: Float[Tensor, "*batch kv_heads k value_dim"],
    causal: bool = False,
    block_q: int = 64,
    block_k: int = 64,
) -> tuple[Float[Tensor, "*batch heads q value_dim"], Float[Tensor, "*batch heads q"]]:
    """softmax(q kᵀ / √head_dim) v, block_q queries and block_k keys at a time: (out, lse).

    lse: per query, the natural logarithm of the sum of e^score over the keys that it sees. heads /
    kv_heads query heads in a row share k and v, as in lesson 10.
    causal: the queries are the last of the keys: query i stands at position k_len − q_len + i, and
    sees the keys up to there. Tiles that lie wholly in the future of their queries are not
    computed. A query that sees no key (there are none, or causal with more queries than keys) gives
    zeros, lse −∞. The last tile of a row or a column may be smaller.

    No tensor of q · k numbers is made, in memory at any time are the scores of one tile per head.
    Computed in at least float32; out in the dtype of q, lse in promote_types(q.dtype, float32).

    Raises ValueError naming kv_heads where it does not divide heads, and block_q or block_k below
    1.

    To be written here: torch's scaled_dot_product_attention, MultiheadAttention, flex_attention and
    varlen_attn are not used.
    """
    raise NotImplementedError


def _future(rows: slice, keys: slice, q_len: int, k_len: int, device: torch.device) -> Tensor:
    """Given: for a tile, (its rows, its keys): True where the key stands after the query."""
    positions = torch.arange(rows.start, rows.stop, device=device) + k_len - q_len
    return torch.arange(keys.start, keys.stop, device=device) > positions[:, None]


def flash_attention_backward(
    q: Float[Tensor, "*batch heads q head_dim"],
    k: Float[Tensor, "*batch kv_heads k head_dim"],
    v: Float[Tensor, "*batch kv_heads k value_dim"],
    out: Float[Tensor, "*batch heads q value_dim"],
    lse: Float[Tensor, "*batch heads q"],
    grad_out: Float[Tensor, "*batch heads q value_dim"],
    causal: bool = False,
    block_q: int = 64,
    block_k: int = 64,
) -> tuple[
    Float[Tensor, "*batch heads q head_dim"],
    Float[Tensor, "*batch kv_heads k head_dim"],
    Float[Tensor, "*batch kv_heads k value_dim"],
]:
    """The gradients (grad_q, grad_k, grad_v) of flash_attention's out, given grad_out for it.

    Nothing but out and lse is kept of the forward pass. The weights of a tile are made again:

        P = e^(q kᵀ / √head_dim − lse)          grad_v = Pᵀ dO, where dO is grad_out
        dS = P ∘ (dO vᵀ − D)                    D = the sum of dO ∘ out over the features
        grad_q = dS k / √head_dim               grad_k = dSᵀ q / √head_dim

    A key head that several query heads share gets the sum of their gradients. A query that sees no
    key gets and gives zeros. No tensor of q · k numbers is made, and tiles in the future are not
    computed. Computed in at least float32; each gradient in the dtype of what it is the gradient
    of.

    Raises what flash_attention raises.

    To be written here: torch's scaled_dot_product_attention, MultiheadAttention, flex_attention and
    varlen_attn are not used.
    """
    raise NotImplementedError


class FlashAttention(torch.autograd.Function):
    """flash_attention's out, with its own backward pass.

    FlashAttention.apply(q, k, v, causal, block_q, block_k) gives it.

    Between the passes it keeps q, k, v, out and lse, and nothing else. It can be differentiated
    once; the gradient of a gradient is refused (RuntimeError), since the backward pass takes lse
    for a constant.

    To be written here: torch's scaled_dot_product_attention, MultiheadAttention, flex_attention and
    varlen_attn are not used.
    """

    @staticmethod
    def forward(
        ctx,
        q: Float[Tensor, "*batch heads q head_dim"],
        k: Float[Tensor, "*batch kv_heads k head_dim"],
        v: Float[Tensor, "*batch kv_heads k value_dim"],
        causal: bool = False,
        block_q: int = 64,
        block_k: int = 64,
    ) -> Float[Tensor, "*batch heads q value_dim"]:
        raise NotImplementedError

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        raise NotImplementedError


def split_decode(
    q: Float[Tensor, "*batch heads q head_dim"],
    k: Float[Tensor, "*batch kv_heads k head_dim"],
    v: Float[Tensor, "*batch kv_heads k value_dim"],
    splits: int,
) -> tuple[Float[Tensor, "*batch heads q value_dim"], Float[Tensor, "*batch heads q"]]:
    """A new token's attention over all keys, cut into `splits` pieces and merged: (out, lse).

    A GPU computes the pieces at the same time ("flash decoding"): with a single query, there would
    be too few tiles to keep it busy. The pieces need not be equally long, and may be empty.

    Raises ValueError naming splits where it is below 1, and what flash_attention raises.

    To be written here: torch's scaled_dot_product_attention, MultiheadAttention, flex_attention and
    varlen_attn are not used.
    """
    raise NotImplementedError


@jit
@no_type_check      # Triton compiles this function's text: no type checker may wrap it
def flash_tiles(
    q_ptr: Tensor, k_ptr: Tensor, v_ptr: Tensor, out_ptr: Tensor, lse_ptr: Tensor,
    q_len: int, k_len: int, head_dim: int, value_dim: int, groups: int, scale: float,
    CAUSAL: constexpr, BLOCK_Q: constexpr, BLOCK_K: constexpr,
    HEAD_DIM: constexpr, VALUE_DIM: constexpr,
):
    """The kernel: one program computes one tile of queries of one head, over all keys.

    Program (i, j) has the queries i · BLOCK_Q … of row j, where a row is a head of a text. The
    pointers are to contiguous memory: q (rows, q_len, head_dim), k (rows / groups, k_len,
    head_dim), v (rows / groups, k_len, value_dim); to be filled are out (rows, q_len, value_dim)
    and lse (rows, q_len), float32. HEAD_DIM and VALUE_DIM are powers of two, at least as large as
    head_dim and value_dim: a tile is that wide. What lies outside of a row's memory must not be
    read or written (mask=…), nor be counted. A query that sees no key gives zeros, lse −∞. All
    numbers are float32.

    To be written here: torch's scaled_dot_product_attention, MultiheadAttention, flex_attention and
    varlen_attn are not used.
    """
    raise NotImplementedError


def flash_kernel(
    q: Float[Tensor, "*batch heads q head_dim"],
    k: Float[Tensor, "*batch kv_heads k head_dim"],
    v: Float[Tensor, "*batch kv_heads k value_dim"],
    causal: bool = False,
    block_q: int = 64,
    block_k: int = 64,
) -> tuple[Float[Tensor, "*batch heads q value_dim"], Float[Tensor, "*batch heads q"]]:
    """Given: flash_attention by the kernel flash_tiles, of up to 32 bits: (out, lse).

    A program per tile of queries and per head. Triton compiles the kernel for a GPU, once for each
    dtype and choice of blocks; its interpreter runs it on a CPU, where TRITON_INTERPRET is 1.

    Raises ImportError where Triton is not installed, and ValueError naming kv_heads, or block_q or
    block_k where it is no power of two of at least 16, which is what a GPU's matrix units take.
    """
    if triton is None:
        raise ImportError("flash_kernel needs Triton: pip install -r requirements-triton.txt")
    _tiles_must_fit(q, k, v, block_q, block_k)
    for name, size in (("block_q", block_q), ("block_k", block_k)):
        if size < 16 or size & (size - 1):
            raise ValueError(f"{name} must be a power of two of at least 16, got {size}")
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    (q_len, head_dim), (k_len, value_dim) = q.shape[-2:], v.shape[-2:]
    out, lse = q.new_empty(*q.shape[:-1], value_dim), q.new_empty(q.shape[:-1], dtype=torch.float32)
    flash_tiles[triton.cdiv(q_len, block_q), q.shape[:-2].numel()](
        q, k, v, out, lse, q_len, k_len, head_dim, value_dim,
        q.shape[-3] // k.shape[-3], head_dim ** -0.5,
        CAUSAL=causal, BLOCK_Q=block_q, BLOCK_K=block_k,
        HEAD_DIM=max(16, triton.next_power_of_2(head_dim)),
        VALUE_DIM=max(16, triton.next_power_of_2(value_dim)))
    return out, lse
