"""What attention written out costs, as a multiple of torch's fused F.scaled_dot_product_attention.

Both sides run on one thread, in turn, on the same inputs: batch 1, 8 heads of 64 features.
"""

import torch
from torch.nn import functional as F

from solutions.ex09_attention import scaled_dot_product_attention
from tests.course.bench.clock import in_turn

SIDES = scaled_dot_product_attention, F.scaled_dot_product_attention


def ratio(seq_len: int, train: bool) -> float:
    """The median time of ours, forward or forward and backward, as a multiple of torch's."""
    qkv = [torch.randn(1, 8, seq_len, 64, requires_grad=train) for _ in range(3)]

    def call(attention):
        out = attention(*qkv)
        if train:
            torch.autograd.grad(out.sum(), qkv)

    ours, theirs = in_turn(*(lambda side=side: call(side) for side in SIDES), runs=7)
    return ours / theirs


def kept(attention, seq_len: int) -> int:
    """The bytes that attention keeps for its backward pass, each storage counted once."""
    storages = {}

    def note(x):
        storages[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    q, k, v = (torch.randn(1, 8, seq_len, 64, requires_grad=True) for _ in range(3))
    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        out = attention(q, k, v)
    del out
    return sum(storages.values())


def bench_forward_short():
    """Forward, 128 tokens."""
    return "attention, 128 tokens, against torch's fused", ratio(128, False), 3.0


def bench_forward_long():
    """Forward, 2,048 tokens: each pass over the scores costs as much as a matrix product saves."""
    return "attention, 2,048 tokens, against torch's fused", ratio(2048, False), 3.0


def bench_train_middle():
    """Forward and backward, 512 tokens."""
    return "attention forward and backward, 512 tokens", ratio(512, True), 3.0


def bench_train_long():
    """Forward and backward, 2,048 tokens."""
    return "attention forward and backward, 2,048 tokens", ratio(2048, True), 3.0


def bench_memory():
    """What is kept for backward at 2,048 tokens. It has no target: the square is what it costs."""
    ours, theirs = (kept(attention, 2048) for attention in SIDES)
    return "attention, bytes kept for backward, 2,048 tokens", ours / theirs, None
