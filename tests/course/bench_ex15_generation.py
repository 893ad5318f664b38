"""What a padded batch saves: 8 prompts of unequal lengths at once, as a multiple of one by one.

A model of the pocket model's size with random weights, greedy, on one thread; medians of five runs.
"""

from statistics import median
from time import perf_counter

import torch

from solutions.ex13_transformer import POCKET, Transformer
from solutions.ex15_generation import generate

PROMPTS = [list(range(1, length)) for length in (5, 9, 12, 17, 20, 26, 31, 40)]
NEW = 32


def _seconds(call) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start


def bench_batch():
    """8 prompts, 32 new tokens each."""
    torch.manual_seed(0)
    model, threads = Transformer(POCKET), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        generate(model, PROMPTS, 2, temperature=0)               # warms up
        together, alone = [], []
        for _ in range(5):
            together.append(_seconds(lambda: generate(model, PROMPTS, NEW, temperature=0)))
            alone.append(_seconds(lambda: [generate(model, [p], NEW, temperature=0) for p in PROMPTS]))
    finally:
        torch.set_num_threads(threads)
    return "generate: a padded batch of 8, against 8 prompts alone", median(together) / median(alone), 0.5
