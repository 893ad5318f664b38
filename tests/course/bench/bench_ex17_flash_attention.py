"""What attention in tiles costs: time against chapter 10's and torch's, memory, and the kernel on a GPU.

Batch 1, 8 heads of 64 features, 4 key heads, causal, float32 on a CPU (one thread) and bfloat16 on a GPU. Alone:

    python -m tests.course.bench.bench_ex17_flash_attention
"""

import time

import torch
from torch.nn import functional as F

from solutions.ex09_attention import causal_mask
from solutions.ex10_grouped_query_attention import grouped_attention
from solutions.ex17_flash_attention import FlashAttention, flash_attention, flash_kernel, triton
from tests.course.bench.bench_ex09_attention import kept
from tests.course.bench.clock import in_turn

LENGTH, BLOCK = 2048, 256


def inputs(length: int, grad: bool = False, **where) -> list[torch.Tensor]:
    return [torch.randn(1, heads, length, 64, requires_grad=grad, **where) for heads in (8, 4, 4)]


def plain(q, k, v):
    return grouped_attention(q, k, v, causal_mask(q.shape[-2], device=q.device))


def torchs(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def both(attention, qkv):
    torch.autograd.grad(attention(*qkv).sum(), qkv)


def bench_against_plain():
    """Forward: the tiles above the diagonal are left out, and each tile pays for a dozen calls of torch."""
    qkv = inputs(LENGTH)
    ours, theirs = in_turn(lambda: flash_attention(*qkv, True, BLOCK, BLOCK), lambda: plain(*qkv), runs=5)
    return f"flash attention, {LENGTH:,} tokens, against chapter 10's", ours / theirs, 1.0


def bench_against_torch():
    """Forward: torch's kernel does the same in C++, with half of a tile's passes over memory."""
    qkv = inputs(LENGTH)
    ours, theirs = in_turn(lambda: flash_attention(*qkv, True, BLOCK, BLOCK), lambda: torchs(*qkv), runs=5)
    return f"flash attention, {LENGTH:,} tokens, against torch's", ours / theirs, 5.0


def bench_training():
    """Forward and backward."""
    qkv = inputs(LENGTH, grad=True)
    ours, theirs = in_turn(lambda: both(lambda *x: FlashAttention.apply(*x, True, BLOCK, BLOCK), qkv),
                           lambda: both(plain, qkv), runs=5)
    return f"flash attention, forward and backward, {LENGTH:,} tokens, against chapter 10's", ours / theirs, 1.0


def bench_memory():
    """Bytes kept for the backward pass, against torch's kernel: both keep q, k, v, out and lse."""
    ours, theirs = (kept(attention, LENGTH) for attention in (FlashAttention.apply, F.scaled_dot_product_attention))
    return f"flash attention, bytes kept, {LENGTH:,} tokens, against torch's", ours / theirs, 1.1


def bench_kernel():
    """On a GPU: the Triton kernel against torch's, at lengths where the scores would take 0.3 and 21 GB."""
    if triton is None or not torch.cuda.is_available():
        print("no rows of the Triton kernel: it takes triton and a GPU")
        return []
    rows = []
    for length in (4096, 32_768):
        qkv = inputs(length, device="cuda", dtype=torch.bfloat16)
        ours, theirs = (_on_gpu(call) for call in (lambda: flash_kernel(*qkv, True, 128, 64), lambda: torchs(*qkv)))
        rows.append((f"Triton kernel, {length:,} tokens, against torch's", ours / theirs, 5.0))
    return rows


def _on_gpu(call, runs: int = 20) -> float:
    """The seconds of a call, a GPU's work included."""
    call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(runs):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / runs


if __name__ == "__main__":
    for name, bench in list(globals().items()):
        if name.startswith("bench_"):
            found = bench()
            for what, ratio, target in [found] if isinstance(found, tuple) else found:
                print(f"{what:<80} {ratio:8.2f}   (target {target:g})")
