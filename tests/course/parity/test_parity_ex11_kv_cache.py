"""Chapter 11's reference against one forward pass, and transformers' caches and attention."""

import pytest
import torch
from transformers import DynamicCache, LlamaConfig, MistralConfig
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding
from transformers.models.mistral.modeling_mistral import MistralAttention, MistralRotaryEmbedding

from solutions.ex07_rope import RoPE
from solutions.ex10_grouped_query_attention import GroupedQueryAttention
from solutions.ex11_kv_cache import CachedAttention, KVCache, RollingKVCache, cache_bytes
from tests.course.close import assert_close

SEQ, SIZES = 21, {"hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8}
CUTS = [(10,) + (1,) * 11, (1,) * 21, (7, 1, 9, 4), (2, 17, 2), (21,)]
DTYPES = [torch.float32, torch.bfloat16, torch.float64]


def attention_of(dtype=torch.float32, **options):
    torch.manual_seed(0)
    rope = RoPE(8, 64)
    return CachedAttention(48, 6, 2, head_dim=8, rope=rope, **options).to(dtype)


def caches_for(window, dtype, batch=2):
    yield KVCache(batch, 2, SEQ, 8, dtype)
    if window:
        yield RollingKVCache(batch, 2, window, 8, dtype)
        yield RollingKVCache(batch, 2, window + 3, 8, dtype)


def close(ours, wanted, dtype):
    assert ours.dtype == dtype
    assert_close(ours, wanted)


@torch.no_grad()
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("window", [None, 1, 4, 30])
def test_every_way_to_cut_equals_one_forward_pass(dtype, window):
    attention = attention_of(dtype, window=window, qk_norm=True)
    x = torch.randn(2, SEQ, 48).to(dtype)
    wanted = GroupedQueryAttention.forward(attention, x)
    for cuts in CUTS:
        for cache in caches_for(window, dtype):
            ours = torch.cat([attention(part, cache=cache) for part in x.split(cuts, 1)], 1)
            close(ours, wanted, dtype)
            assert cache.length == SEQ


@torch.no_grad()
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("window", [None, 1, 4])
def test_padded_rows_equal_each_row_alone(dtype, window):
    attention, lengths = attention_of(dtype, window=window), (21, 13, 6)
    x = torch.randn(3, SEQ, 48).to(dtype)
    padding = SEQ - torch.tensor(lengths)
    positions = (torch.arange(SEQ) - padding[:, None]).clamp(min=0)
    real = torch.arange(SEQ) >= padding[:, None]
    for cuts in CUTS:
        for cache in caches_for(window, dtype, batch=3):
            out, start = [], 0
            for q in cuts:
                end = start + q
                out.append(attention(x[:, start:end], real[:, None, None, :end],
                                     positions[:, start:end], cache))
                start = end
            out = torch.cat(out, 1)
            for row, length in enumerate(lengths):
                close(out[row, -length:], attention(x[row:row + 1, -length:])[0], dtype)


@torch.no_grad()
def test_rewound_positions_leave_no_trace():
    attention, x, other = attention_of(), torch.randn(1, SEQ, 48), torch.randn(1, 5, 48)
    cache = KVCache(1, 2, SEQ, 8)
    first = attention(x[:, :9], cache=cache)
    attention(other, cache=cache)
    cache.rewind(5)
    again = torch.cat([first, attention(x[:, 9:], cache=cache)], 1)
    close(again, attention(x), torch.float32)


@torch.no_grad()
def test_keys_in_the_cache_are_those_of_transformers():
    ours, theirs = KVCache(2, 2, SEQ, 8), DynamicCache()
    for q in (5, 1, 9):
        k, v = torch.randn(2, 2, 2, q, 8)
        for mine, wanted in zip(ours.update(k, v), theirs.update(k, v, 0)):
            assert torch.equal(mine, wanted)


@torch.no_grad()
@pytest.mark.parametrize("window", range(2, 6))     # theirs keeps no position at all for a window of 1
def test_the_ring_holds_what_transformers_keeps(window):
    config = MistralConfig(**SIZES, num_hidden_layers=1, sliding_window=window)
    ours, theirs = RollingKVCache(2, 2, window, 8), DynamicCache(config=config)
    for q in (2, 1, 1, 7, 1, 1, 1, 3):
        k, v = torch.randn(2, 2, 2, q, 8)
        for mine, wanted in zip(ours.update(k, v), theirs.update(k, v, 0)):
            assert torch.equal(mine, wanted)


@torch.no_grad()
@pytest.mark.parametrize("window", [None, 4])
def test_decoding_is_transformers(window):
    """Llama's and Mistral's attention with their own caches, the same weights, token by token."""
    if window is None:
        config = LlamaConfig(**SIZES, num_hidden_layers=1)
        theirs, rotary = LlamaAttention(config, 0), LlamaRotaryEmbedding(config)
    else:
        config = MistralConfig(**SIZES, num_hidden_layers=1, sliding_window=window)
        theirs, rotary = MistralAttention(config, 0), MistralRotaryEmbedding(config)
    config._attn_implementation = "eager"
    ours = attention_of(window=window)
    theirs.load_state_dict(ours.state_dict())
    x, their_cache = torch.randn(2, SEQ, 48), DynamicCache(config=config)
    our_cache = KVCache(2, 2, SEQ, 8) if window is None else RollingKVCache(2, 2, window, 8)
    for at in range(SEQ):
        new = x[:, at:at + 1]
        wanted, _ = theirs(new, rotary(new, torch.full((2, 1), at)), None, past_key_values=their_cache)
        close(ours(new, cache=our_cache), wanted, torch.float32)


def test_gradients_without_a_cache_are_the_parents():
    child, x = attention_of(torch.float64, window=3, qk_norm=True), torch.randn(2, 6, 48).double()
    pull, grads = torch.randn_like(x), []
    for forward in (CachedAttention.forward, GroupedQueryAttention.forward):
        child.zero_grad()
        (forward(child, x) * pull).sum().backward()
        grads.append([p.grad.clone() for p in child.parameters()])
    for mine, wanted in zip(*grads):
        assert torch.equal(mine, wanted) and mine.abs().sum() > 0


@pytest.mark.parametrize("kind", [KVCache, RollingKVCache])
def test_gradients_are_refused_or_never_asked_for(kind):
    cache, k = kind(1, 1, 4, 2), torch.randn(1, 1, 1, 2, requires_grad=True)
    with pytest.raises(ValueError, match="no_grad"):
        cache.update(k, k)
    assert cache.length == 0
    with torch.inference_mode():
        assert not cache.update(k, k)[0].requires_grad
    assert cache.keys.grad_fn is None and not cache.keys.requires_grad


@torch.no_grad()
def test_a_token_allocates_nothing_but_itself():
    """However full it is, KVCache.update makes no tensor as large as a key."""
    cache, k = KVCache(1, 4, 512, 64), torch.randn(1, 4, 1, 64)
    cache.update(*torch.randn(2, 1, 4, 500, 64))
    with torch.profiler.profile(profile_memory=True) as profile:
        cache.update(k, k)
    assert sum(max(event.self_cpu_memory_usage, 0) for event in profile.events()) == 0


def test_cache_bytes_are_those_of_the_caches():
    layers, caches = 3, [KVCache(2, 4, 100, 16, torch.bfloat16) for _ in range(3)]
    held = sum(x.nbytes for cache in caches for x in (cache.keys, cache.values))
    assert cache_bytes(layers, 4, 16, 100, 2, 2) == held
