"""How long a training step with LoRA takes, as a multiple of one on all weights, and a merged model's pass.

Forward and backward of the POCKET preset on torch's kernels, in turn; medians of eleven runs.
"""

import torch

from given.torch_kernels import use_torch_kernels
from solutions.ex13_transformer import POCKET, Transformer
from solutions.ex20_fine_tuning import add_lora, merge_lora, sft_loss
from tests.course.bench.clock import in_turn

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate", "up", "down"]


def _models():
    torch.manual_seed(0)
    plain, thin = (use_torch_kernels(Transformer(POCKET)) for _ in range(2))
    return plain, add_lora(thin, ALL, 8, 16), torch.randint(POCKET.vocab_size, (4, 96))


def bench_lora_step():
    """The gradients of frozen weights are saved, and the thin products come on top."""
    plain, thin, ids = _models()
    learn = torch.ones_like(ids, dtype=torch.bool)
    ours, theirs = in_turn(*(lambda model=model: sft_loss(model(ids), ids, learn).backward() for model in (thin,
                                                                                                           plain)),
                           threads=2)
    return "a step's gradients with LoRA of rank 8, against all weights", ours / theirs, 1.3


@torch.no_grad()
def bench_merged():
    """A merged model has one product per Linear, as before."""
    plain, thin, ids = _models()
    merge_lora(thin)
    ours, theirs = in_turn(lambda: thin(ids), lambda: plain(ids), threads=2)
    return "a pass of a merged model, against the plain one", ours / theirs, 1.15
