"""What a batch of rollouts saves, and what picking log-probabilities costs, as ratios within one run.

On one thread; medians of five runs. The sorter of the lesson, its weights as they are made.
"""

import torch
from torch.nn import functional as F

from solutions.ex13_transformer import Transformer
from solutions.ex21_preferences import SORTER, rollouts, token_log_probs
from tests.course.bench.clock import in_turn

PROMPTS = [[n // 10, n % 10, 3, 7, 10] for n in range(32)]


def bench_rollouts():
    """8 answers to each of 32 prompts: in one call, and a prompt at a time."""
    torch.manual_seed(0)
    model = Transformer(SORTER)
    together, apart = in_turn(
        lambda: rollouts(model, PROMPTS, 8, 10, 11, torch.Generator().manual_seed(0)),
        lambda: [rollouts(model, [prompt], 8, 10, 11, torch.Generator().manual_seed(0)) for prompt in PROMPTS], runs=5)
    return "rollouts: 32 prompts in one call, against 32 calls", together / apart, 0.2


def bench_log_probs():
    """8 texts of 128 tokens in a vocabulary of 4,096, forward and backward, against torch's loss."""
    rng = torch.Generator().manual_seed(0)
    logits = torch.randn(8, 128, 4096, generator=rng).requires_grad_()
    ids = torch.randint(4096, (8, 128), generator=rng)
    ours, theirs = in_turn(
        lambda: token_log_probs(logits, ids).sum().backward(),
        lambda: F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="sum").backward(), runs=5)
    return "token_log_probs, against torch's cross-entropy", ours / theirs, 4.0
