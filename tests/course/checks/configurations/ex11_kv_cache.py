"""What the parts of chapter 11 may be given."""

import torch
from hypothesis import strategies as st
from reference.ex07_rope import RoPE


def cache(impl, draw):
    batch, kv_heads, head_dim = draw.size("batch"), draw.size("kv_heads"), draw.size("head_dim")
    dtype = draw("dtype", (None, torch.float32, torch.bfloat16, torch.float64))
    kind = draw("kind", ("KVCache", "RollingKVCache"))
    make = impl.KVCache if kind == "KVCache" else impl.RollingKVCache
    cache = make(batch, kv_heads, draw("room", st.integers(1, 12)), head_dim, dtype)
    draw.see("new", cache)
    for _ in range(draw("updates", st.integers(1, 6))):
        how = draw("do", ("update", "update", "update", "rewind", "reset"))
        if how == "rewind" and kind == "KVCache":
            cache.rewind(draw("n", st.integers(0, cache.length)))
        elif how == "reset":
            cache.reset()
        else:
            shape = batch, kv_heads, draw("q", (1, 1, 2, 3, 5, 0)), head_dim
            k, v = (draw.tensor(name, shape, cache.keys.dtype, grad=False) for name in "kv")
            draw.see("answer", cache.update(k, v), [k, v, cache.keys, cache.values])
            draw.see("given", [k, v])
        draw.see("cache", cache)


def attention(impl, draw):
    kv_heads, groups, rope = draw("kv_heads", (1, 2)), draw("groups", (1, 2)), draw("rope", (False, True))
    head_dim, window = draw("head_dim", (2, 4)), draw("window", (None, 1, 2, 3, 5))
    heads = kv_heads * groups
    d_model, dtype = heads * head_dim, draw.dtype()
    given = {"window": window, "qk_norm": draw("qk_norm", (False, True))}
    module = draw.module(
        impl.CachedAttention, d_model, heads, kv_heads, **given, dtype=dtype, rope=RoPE(head_dim, 32) if rope else None
    )
    batch = draw("batch", (1, 2))
    rolls = window and draw("rolling", (False, True))
    cache = (
        impl.RollingKVCache(batch, kv_heads, window + draw("spare", (0, 1, 3)), head_dim, dtype)
        if rolls
        else impl.KVCache(batch, kv_heads, 24, head_dim, dtype)
    )
    with torch.no_grad():
        for _ in range(draw("calls", st.integers(1, 5))):
            x = draw.tensor("x", (batch, draw("seq", (1, 1, 2, 3, 5, 0)), d_model), dtype, grad=False)
            asked, end = {}, cache.length + x.shape[1]
            if draw("with positions", (False, True)):
                asked["positions"] = draw.ints("positions", (batch, x.shape[1]), 32)
            asked["mask"] = draw.mask("mask", (batch, heads, x.shape[1], end))
            draw.see("answer", module(x, cache=cache, **asked), [x, cache.keys, cache.values])
            draw.see("given", [x, asked])
            draw.see("cache", cache)
    x = draw.tensor("x", (batch, draw("seq", (1, 2, 3)), d_model), dtype)
    draw.asked(module, x, draw.mask("mask", (batch, heads, x.shape[1], x.shape[1])))


def cache_bytes(impl, draw):
    draw.asked(
        impl.cache_bytes,
        *(draw(name, st.integers(1, 10**6)) for name in ("layers", "heads", "dim", "seq", "batch")),
        draw("bytes_per_value", (2, 1, 0.5, 0.5625, 4)),
    )
