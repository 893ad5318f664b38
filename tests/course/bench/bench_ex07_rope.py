"""How long chapter 07 takes, as a multiple of transformers' own rotation.

Queries and keys of 8 × 256 tokens (d_model 512, 8 heads), forward and backward, on one thread, in
turn; medians of 15 runs. transformers' cosines and sines are made beforehand, as our tables are.
"""

import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from solutions.ex07_rope import RoPE
from tests.course.bench.clock import in_turn

BATCH, HEADS, SEQ, HEAD_DIM = 8, 8, 256, 64


def ratio(layout: str, positions=None) -> float:
    """The median time of RoPE on q and k as a multiple of the median time of transformers'."""
    q, k = (torch.randn(BATCH, HEADS, SEQ, HEAD_DIM, requires_grad=True) for _ in "qk")
    grad = torch.randn_like(q)
    rope = RoPE(HEAD_DIM, SEQ, layout=layout)
    config = LlamaConfig(hidden_size=HEADS * HEAD_DIM, num_attention_heads=HEADS)
    cos, sin = LlamaRotaryEmbedding(config)(q, torch.arange(SEQ).expand(BATCH, SEQ))

    def ours():
        torch.autograd.grad((rope(q, positions), rope(k, positions)), (q, k), (grad, grad))

    def theirs():
        torch.autograd.grad(apply_rotary_pos_emb(q, k, cos, sin), (q, k), (grad, grad))

    mine, hf = in_turn(ours, theirs, runs=15)
    return mine / hf


def bench_half():
    """Halves, as transformers has them."""
    return "RoPE, half: 8 × 256 tokens, against transformers", ratio("half"), 3.0


def bench_interleaved():
    """Neighbours."""
    return "RoPE, interleaved, against transformers (half)", ratio("interleaved"), 3.0


def bench_positions():
    """Halves, with explicit positions for each sequence."""
    positions = torch.arange(SEQ).expand(BATCH, 1, SEQ)
    return "RoPE, half, positions given, against transformers", ratio("half", positions), 3.0
