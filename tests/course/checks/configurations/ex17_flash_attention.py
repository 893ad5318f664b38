"""What the parts of chapter 17 may be given."""

import torch

BLOCKS = (64, 1, 2, 3, 4, 5)


def qkv(draw, grad=None):
    kv_heads, groups, batch = draw("kv_heads", (1, 2, 3)), draw("groups", (1, 2, 3)), draw.shape("*batch")
    q = draw.tensor("q", (*batch, kv_heads * groups, *draw.shape("q head_dim")), grad=grad)
    k = draw.tensor("k", (*batch, kv_heads, *draw.shape("k head_dim")), grad=grad)
    return q, k, draw.tensor("v", (*batch, kv_heads, *draw.shape("k value_dim")), grad=grad)


def options(draw):
    if draw("options left out", (False, True)):
        return ()
    return draw("causal", (False, True)), draw("block_q", BLOCKS), draw("block_k", BLOCKS)


def merge(impl, draw):
    out1, lse1 = draw.tensor("out1", "*batch q value_dim"), draw.tensor("lse1", "*batch q", torch.float32, holes=True)
    out2, lse2 = draw.tensor("out2", "*batch q value_dim"), draw.tensor("lse2", "*batch q", torch.float32, holes=True)
    draw.asked(impl.merge, out1, lse1, out2, lse2)


def flash_attention(impl, draw):
    draw.asked(impl.flash_attention, *qkv(draw, False), *options(draw))


def backward(impl, draw):
    (q, k, v), given = qkv(draw, False), options(draw)
    out, lse = impl.flash_attention(q, k, v, *given)
    grad_out = draw.tensor("grad_out", tuple(out.shape), kinds=("normal", "large", "whole"), grad=False)
    draw.asked(impl.flash_attention_backward, q, k, v, out, lse, grad_out, *given)


def function(impl, draw):
    draw.asked(impl.FlashAttention.apply, *qkv(draw), *options(draw))


def split_decode(impl, draw):
    draw.asked(impl.split_decode, *qkv(draw, False), draw("splits", (1, 2, 3, 7)))


def kernel(impl, draw):
    """flash_tiles, where Triton is installed: of up to 32 bits."""
    draw.size("dtype", (torch.float32, torch.bfloat16, torch.float16), told=False)
    draw.size("mixed", (False,), told=False)
    for axis, among in {"q": (1, 17, 40, 3, 0), "k": (1, 17, 40, 3, 0), "head_dim": (1, 3, 16, 20),
                        "value_dim": (1, 2, 16, 17)}.items():
        draw.size(axis, among, told=False)
    options = draw("causal", (False, True)), draw("block_q", (16, 32)), draw("block_k", (16, 32))
    draw.asked(impl.flash_kernel, *qkv(draw, False), *options)
