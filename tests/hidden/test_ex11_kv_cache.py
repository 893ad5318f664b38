"""Lesson 11 on other shapes, dtypes and corners."""

import torch

from grader import dtypes, points, raises, shares_memory
from grader.course.modes import default_dtype


def attention_of(impl, draw, head_dim=4, **options):
    """A CachedAttention of 6 query heads on 2 KV heads."""
    rope = impl.RoPE(head_dim, 64)
    return draw.fill(impl.CachedAttention(12, 6, 2, head_dim=head_dim, rope=rope, **options))


def in_pieces(attention, cache, x, cuts, **options):
    """x through attention in pieces of the sizes `cuts`, put together again."""
    with torch.no_grad():
        return torch.cat([attention(part, cache=cache, **options)
                          for part in x.split(cuts, dim=1)], dim=1)


def test_nothing_new(impl, draw):
    """An update by no position at all changes nothing and returns what is there to be seen."""
    said = {}
    for cache in (impl.KVCache(1, 2, 8, 3, draw.float, draw.device),
                  impl.RollingKVCache(1, 2, 4, 3, draw.float, draw.device)):
        name, none = type(cache).__name__, draw(1, 2, 0, 3)
        said[f"{name}, empty"] = cache.update(none, none)
        cache.update(draw(1, 2, 6, 3), draw(1, 2, 6, 3))
        said[name] = [*cache.update(none, none), cache.length]
    return said


def test_earlier_answers_stay(impl, draw):
    """What KVCache.update returned still holds the same numbers after later updates."""
    cache = impl.KVCache(2, 2, 8, 3, draw.float, draw.device)
    first = cache.update(draw(2, 2, 3, 3), draw(2, 2, 3, 3))
    cache.update(draw(2, 2, 4, 3), draw(2, 2, 4, 3))
    last = cache.update(draw(2, 2, 1, 3), draw(2, 2, 1, 3))
    return {"first": first, "last": last,
            "shares": [shares_memory(a, b) for a, b in zip(first, last)]}


def test_rewind_corners(impl, draw):
    """n below 0 is refused, an empty cache may rewind by 0, and a refusal changes nothing."""
    cache = impl.KVCache(1, 1, 4, 2, draw.float, draw.device)
    cache.rewind(0)
    said = {"empty by 1": raises(ValueError, lambda: cache.rewind(1), names="n")}
    cache.update(draw(1, 1, 3, 2), draw(1, 1, 3, 2))
    said["by -1"] = raises(ValueError, lambda: cache.rewind(-1), names="n")
    said["length"] = cache.length
    cache.rewind(3)
    cache.rewind(0)
    said["all"] = cache.update(draw(1, 1, 4, 2), draw(1, 1, 4, 2))
    said["full"] = raises(ValueError, lambda: cache.update(draw(1, 1, 1, 2), draw(1, 1, 1, 2)),
                          names="capacity")
    return said


@dtypes("float32", "float16")
def test_default_dtype_and_given(impl, draw, dtype):
    """Without a dtype the storage has torch's default; with one, that, in both caches."""
    said = {}
    for kind in (impl.KVCache, impl.RollingKVCache):
        cache = kind(1, 1, 4, 2, device=draw.device)
        k = draw(1, 1, 2, 2).to(torch.float32)
        said[f"{kind.__name__}, default"] = cache.update(k, k)[0].dtype == torch.get_default_dtype()
        with default_dtype(torch.float64):
            cache = kind(1, 1, 4, 2, device=draw.device)
        said[f"{kind.__name__}, a default of float64"] = cache.update(k.double(), k.double())
        cache = kind(1, 1, 4, 2, dtype=dtype, device=draw.device)
        said[f"{kind.__name__}, given"] = cache.update(k.to(dtype), -k.to(dtype))
    return said


@points(2)
@dtypes("float32", "bfloat16", "float16")
def test_rolling_at_random(impl, draw, dtype):
    """Rings of every width from 1 on, with chunks of random sizes: the right ones in order."""
    said = {}
    for window in (1, 2, 5):
        cache = impl.RollingKVCache(2, 1, window, 2, dtype, draw.device)
        for number, q in enumerate((draw.ints(2 * window + 2, 8)).tolist()):
            said[f"window {window}, update {number}, {q} new"] = cache.update(
                draw(2, 1, q, 2).to(dtype), draw(2, 1, q, 2).to(dtype))
        said[f"window {window}, length"] = cache.length
        cache.reset()
        said[f"window {window}, anew"] = cache.update(*draw(2, 2, 1, 3, 2).to(dtype))
    return said


@points(2)
def test_attention_in_any_pieces(impl, draw):
    """QK-norm, biases and no RoPE: in pieces as in one."""
    said, x, cuts = {}, draw(2, 10, 12), (3, 1, 6)
    for name, options in {"QK-norm": {"qk_norm": True},
                          "biases": {"qkv_bias": True, "o_bias": True}}.items():
        cache = impl.KVCache(2, 2, 12, 4, draw.float, draw.device)
        said[name] = in_pieces(attention_of(impl, draw, **options), cache, x, cuts)
    cache = impl.KVCache(2, 2, 12, 2, draw.float, draw.device)
    said["no RoPE"] = in_pieces(draw.fill(impl.CachedAttention(12, 6, 2)), cache, x, cuts)
    return said


@points(2)
def test_windows_in_any_pieces(impl, draw):
    """A window of 1, 4 or more than there is, rolling or not, in one piece or many."""
    said, x = {}, draw(1, 13, 12)
    for window in (1, 4, 20):
        attention = attention_of(impl, draw, window=window)
        for cuts in ((13,), (1, 11, 1), (6, 1, 1, 5)):
            cache = impl.RollingKVCache(1, 2, window, 4, draw.float, draw.device)
            said[f"window {window}, {cuts}"] = in_pieces(attention, cache, x, cuts)
        cache = impl.KVCache(1, 2, 13, 4, draw.float, draw.device)
        said[f"window {window}, KVCache"] = in_pieces(attention, cache, x, (6, 1, 6))
    return said


@points(2)
def test_three_rows_of_unequal_length(impl, draw):
    """Three padded rows with a window, a chunk wider than it, and positions with gaps."""
    attention, x = attention_of(impl, draw, window=3, qk_norm=True), draw(3, 9, 12)
    padding = torch.tensor([[4], [0], [1]], device=draw.device)
    places = torch.arange(9, device=draw.device)
    real, positions = places >= padding, (places - padding).clamp(min=0) * 3
    out, cache = [], impl.RollingKVCache(3, 2, 3, 4, draw.float, draw.device)
    with torch.no_grad():
        for start, end in ((0, 2), (2, 7), (7, 8), (8, 9)):
            out.append(attention(x[:, start:end], real[:, None, None, :end],
                                 positions[:, start:end], cache))
    out = torch.cat(out, dim=1)
    return {"rows": [row[int(pad):] for row, pad in zip(out, padding)], "length": cache.length}


def test_views(impl, draw):
    """Keys, values and x may be views with axes swapped."""
    said = {}
    for cache in (impl.KVCache(2, 3, 8, 4, draw.float, draw.device),
                  impl.RollingKVCache(2, 3, 4, 4, draw.float, draw.device)):
        said[type(cache).__name__] = [cache.update(draw(2, q, 3, 4).transpose(1, 2), draw(3, 2, q, 4).transpose(0, 1))
                                      for q in (3, 1, 2, 1)]
    cache, x = impl.KVCache(2, 2, 8, 4, draw.float, draw.device), draw(7, 2, 12).transpose(0, 1)
    said["attention"] = in_pieces(attention_of(impl, draw), cache, x, (3, 1, 3))
    return said


def test_refusals_change_nothing(impl, draw):
    """Bad positions, another batch and an overflow leave an attention's cache as it was."""
    attention = attention_of(impl, draw)
    cache, far = impl.KVCache(2, 2, 4, 4, draw.float, draw.device), torch.tensor([64], device=draw.device)
    with torch.no_grad():
        said = {"before": attention(draw(2, 3, 12), cache=cache)}
        one, three, two = draw(2, 1, 12), draw(3, 1, 12), draw(2, 2, 12)
        said["position 64"] = raises(
            ValueError, lambda: attention(one, positions=far, cache=cache), names="positions")
        said["another batch"] = raises(ValueError, lambda: attention(three, cache=cache), names="k")
        said["no room"] = raises(ValueError, lambda: attention(two, cache=cache), names="capacity")
        five = torch.ones(1, 2, 1, 1, 4, dtype=torch.bool, device=draw.device)
        said["mask of five axes"] = raises(ValueError, lambda: attention(one, five, cache=cache), names="mask")
        said["length"] = cache.length
        said["after"] = attention(one, cache=cache)
    said["with gradients"] = raises(ValueError, lambda: attention(one, cache=cache), names="k")
    return said


def test_bad_numbers(impl, draw):
    """Every size of cache_bytes is looked at; a fourth of a byte is fine."""
    names = ["layers", "kv_heads", "head_dim", "seq_len", "batch"]
    sizes = (draw.ints(9, 5) + 1).tolist()
    return {"refused": [raises(ValueError, lambda: impl.cache_bytes(
                            *[size * (i != j) for j, size in enumerate(sizes)], 2), names=name)
                        for i, name in enumerate(names)],
            "below 0": raises(ValueError, lambda: impl.cache_bytes(*sizes, -1), names="bytes_per_value"),
            "as they are": impl.cache_bytes(*sizes, 0.125),
            "2 bits": impl.cache_bytes(4, 3, 2, 5, 1, 0.25)}
