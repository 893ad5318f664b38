"""How long calls take: medians, for the benches of the chapters and of the grader."""

import statistics
import time

import torch

REPEATS = 5


def seconds(call, repeats: int = REPEATS) -> float:
    """The median time of a call."""
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def in_turn(*calls, runs: int = 11, threads: int = 1) -> list[float]:
    """The median seconds of each call. They take turns, so that a busy moment hits all of them."""
    taken, before = [[] for _ in calls], torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for turn in range(runs + 1):
            for call, times in zip(calls, taken):
                start = time.perf_counter()
                call()
                times += [time.perf_counter() - start] * (turn > 0)     # the first turn warms up
    finally:
        torch.set_num_threads(before)
    return [statistics.median(times) for times in taken]
