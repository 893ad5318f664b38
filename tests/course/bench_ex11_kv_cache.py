"""What one decoded token costs with a cache, as a fraction of a whole forward pass without one.

Four layers of CachedAttention (d_model 256, 8 heads, 4 KV heads), one sequence, one thread;
medians. The fraction shrinks as the text grows: that is what the cache is for.
"""

from statistics import median
from time import perf_counter

import torch

from solutions.ex07_rope import RoPE
from solutions.ex11_kv_cache import CachedAttention, KVCache

LAYERS, D_MODEL, HEADS, KV_HEADS, RUNS = 4, 256, 8, 4, 9


@torch.no_grad()
def fraction(seq: int) -> float:
    """The median time of token number `seq` with a cache over that without."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    rope = RoPE(D_MODEL // HEADS, seq)
    layers = [CachedAttention(D_MODEL, HEADS, KV_HEADS, rope=rope) for _ in range(LAYERS)]
    caches = [KVCache(1, KV_HEADS, seq, D_MODEL // HEADS) for _ in layers]
    x = torch.randn(1, seq, D_MODEL)

    def through(x, caches):
        for layer, cache in zip(layers, caches):
            x = layer(x, cache=cache)

    def cached():
        for cache in caches:
            cache.rewind(1)
        through(x[:, -1:], caches)

    def uncached():
        through(x, [None] * LAYERS)

    through(x, caches)
    taken = {cached: [], uncached: []}
    for run in range(RUNS + 1):
        for call, times in taken.items():
            start = perf_counter()
            call()
            times += [perf_counter() - start] * (run > 0)      # the first warms up
    torch.set_num_threads(threads)
    return median(taken[cached]) / median(taken[uncached])


def bench_64():
    """A short text: a token's fixed costs weigh most."""
    return "KV cache: token 64 with a cache / without", fraction(64), 0.6


def bench_1024():
    """A longer one."""
    return "KV cache: token 1,024 with a cache / without", fraction(1024), 0.02
