"""What a padded batch saves: 8 prompts of unequal lengths at once, as a multiple of one by one.

A model of the pocket model's size with random weights, greedy, on one thread; medians of five runs.
"""

import torch

from solutions.ex13_transformer import POCKET, Transformer
from solutions.ex15_generation import generate
from tests.course.bench.clock import in_turn

PROMPTS = [list(range(1, length)) for length in (5, 9, 12, 17, 20, 26, 31, 40)]
NEW = 32


def bench_batch():
    """8 prompts, 32 new tokens each."""
    torch.manual_seed(0)
    model = Transformer(POCKET)
    together, alone = in_turn(
        lambda: generate(model, PROMPTS, NEW, temperature=0),
        lambda: [generate(model, [prompt], NEW, temperature=0) for prompt in PROMPTS], runs=5)
    return "generate: a padded batch of 8, against 8 prompts alone", together / alone, 0.5
