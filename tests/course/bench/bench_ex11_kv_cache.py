"""What one decoded token costs with a cache, as a fraction of a whole forward pass without one.

Four layers of CachedAttention (d_model 256, 8 heads, 4 KV heads), one sequence, one thread;
medians. The fraction shrinks as the text grows: that is what the cache is for.
"""

import torch

from solutions.ex07_rope import RoPE
from solutions.ex11_kv_cache import CachedAttention, KVCache
from tests.course.bench.clock import in_turn

LAYERS, D_MODEL, HEADS, KV_HEADS = 4, 256, 8, 4


@torch.no_grad()
def fraction(seq: int) -> float:
    """The median time of token number `seq` with a cache over that without."""
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
    one, all_again = in_turn(cached, uncached, runs=9)
    return one / all_again


def bench_64():
    """A short text: a token's fixed costs weigh most."""
    return "KV cache: token 64 with a cache / without", fraction(64), 0.6


def bench_1024():
    """A longer one."""
    return "KV cache: token 1,024 with a cache / without", fraction(1024), 0.02
