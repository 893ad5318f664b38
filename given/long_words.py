"""Byte-pair merges for long words, as in a text without spaces: a heap in place of a search."""

from heapq import heapify, heappop, heappush
from itertools import pairwise

LONG = 64       # bytes; up to here a search of the whole word for each merge is quick enough


def merge_long(tokens: list[bytes], rank: dict[tuple[bytes, bytes], int]) -> list[bytes]:
    """The tokens after all merges, the pair of the lowest rank first; in n log n steps for n tokens, not n².

    The heap holds every pair that may be merged, the lowest rank on top. A merge leaves b"" where
    the pair's second token stood, and two new pairs at most.

    Raises ValueError naming tokens where they are fewer than LONG: those are for lesson 01's own loop.
    """
    if len(tokens) < LONG:
        raise ValueError(f"tokens must be at least {LONG}, got {len(tokens)}")
    tokens = [*tokens, b""]     # b"": no token here, and none before the first
    before, after = list(range(-1, len(tokens) - 1)), [*range(1, len(tokens)), 0]
    heap = [(rank[pair], i) for i, pair in enumerate(pairwise(tokens)) if pair in rank]
    heapify(heap)
    while heap:
        lowest, i = heappop(heap)
        j = after[i]
        if rank.get((tokens[i], tokens[j])) != lowest:
            continue            # one of the two has been merged since
        tokens[i], tokens[j] = tokens[i] + tokens[j], b""
        after[i], before[after[j]] = after[j], i
        for k in (before[i], i):
            if (pair := (tokens[k], tokens[after[k]])) in rank:
                heappush(heap, (rank[pair], k))
    return [token for token in tokens if token]
