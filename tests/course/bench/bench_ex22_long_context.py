"""What a token of a long text costs: latent attention on both roads, sparse attention against full.

All on one thread, in turn, on the same inputs; medians of several runs.
"""

import torch

from given.torch_kernels import use_torch_kernels
from solutions.ex07_rope import RoPE
from solutions.ex10_grouped_query_attention import grouped_attention
from solutions.ex11_kv_cache import CachedAttention, KVCache
from solutions.ex13_transformer import ModelConfig
from solutions.ex22_long_context import LatentCache, MultiHeadLatentAttention, cache_bytes, sparse_attention
from tests.course.bench.clock import in_turn

# a layer of DeepSeek's proportions, at an eighth of its width
SIZES = {"d_model": 896, "heads": 16, "kv_rank": 64, "nope_dim": 32, "rope_dim": 16, "value_dim": 32, "q_rank": 192}


def decoding(n: int):
    """One token behind n, on the absorbed road and on the expanded one: what to run."""
    torch.manual_seed(0)
    attention = use_torch_kernels(MultiHeadLatentAttention(**SIZES, rope=RoPE(16, n + 1))).eval()
    cache, token = LatentCache(1, n + 1, 64, 16), torch.randn(1, 1, 896)
    with torch.no_grad():
        cache.update(torch.randn(1, n, 64), torch.randn(1, n, 16))

    def road(absorb: bool):
        attention.absorb = absorb
        with torch.no_grad():
            attention(token, cache=cache)
        cache.rewind(1)

    return (lambda: road(True)), (lambda: road(False))


def bench_absorbed_short():
    """One token after 256: what absorbing saves where there is little to save."""
    absorbed, expanded = in_turn(*decoding(256))
    return "absorbed against expanded latent attention, one token after 256", absorbed / expanded, 1.2


def bench_absorbed():
    """One token after 4,096: the expanded road makes every head's keys and values anew."""
    absorbed, expanded = in_turn(*decoding(4096), runs=7)
    return "absorbed against expanded latent attention, one token after 4,096", absorbed / expanded, 0.5


def bench_against_heads():
    """One token after 4,096, absorbed, against multi-head attention with as many heads, whose keys are cached."""
    torch.manual_seed(0)
    plain = use_torch_kernels(CachedAttention(896, 16, 16, 48, rope=RoPE(48, 4097))).eval()
    cache, token = KVCache(1, 16, 4097, 48), torch.randn(1, 1, 896)
    cache.update(torch.randn(1, 16, 4096, 48), torch.randn(1, 16, 4096, 48))

    def heads():
        with torch.no_grad():
            plain(token, cache=cache)
        cache.rewind(1)

    absorbed, other = in_turn(decoding(4096)[0], heads, runs=7)
    return "absorbed latent attention against heads with a cache, after 4,096", absorbed / other, 2.0


def bench_memory():
    """Bytes a token in DeepSeek-V3: latents against keys and values of 128 heads."""
    # keys of 192 and values of 128 take as much as both of 160
    heads = ModelConfig(vocab_size=1, d_model=7168, layers=61, heads=128, head_dim=160, d_ff=1, max_seq_len=1)
    return "memory of latents against keys and values of 128 heads", \
        cache_bytes(heads, 4096, latent=576) / cache_bytes(heads, 4096), 0.015


def bench_sparse():
    """One query of 16 heads over 32,768 keys, reading 512: against reading all."""
    torch.manual_seed(0)
    q, k, v, scores = (torch.randn(1, *shape) for shape in ((16, 1, 64), (4, 32768, 64), (4, 32768, 64), (1, 32768)))
    with torch.no_grad():
        sparse, full = in_turn(lambda: sparse_attention(q, k, v, scores, 512), lambda: grouped_attention(q, k, v))
    return "sparse against full attention, 512 of 32,768 keys", sparse / full, 0.6
