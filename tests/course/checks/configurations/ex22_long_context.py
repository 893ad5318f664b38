"""What the parts of chapter 22 may be given."""

import torch
from hypothesis import strategies as st
from reference.ex07_rope import RoPE
from reference.ex11_kv_cache import KVCache, RollingKVCache
from reference.ex13_transformer import ModelConfig

WINDOWS = (None, 1, 2, 3, 5)
FLOATS = (torch.float32, torch.bfloat16, torch.float64)


def costs(impl, draw):
    layers, kv_heads = draw("layers", st.integers(1, 5)), draw("kv_heads", (1, 2, 3))
    pattern = draw("pattern", st.lists(st.sampled_from((*WINDOWS, True, False)), max_size=4))
    draw.asked(impl.layer_pattern, layers, iter(pattern) if draw("an iterator", (False, True)) else pattern)
    windows = draw("windows", st.lists(st.sampled_from(WINDOWS), min_size=layers, max_size=layers))
    config = ModelConfig(
        vocab_size=3, d_model=4, layers=layers, heads=kv_heads * draw("groups", (1, 2)), kv_heads=kv_heads,
        head_dim=draw("head_dim", (1, 2, 3)), d_ff=2, max_seq_len=9, positions="none",
        windows=windows if draw("with windows", (False, True)) else None,
    )
    given = {}
    for name, values in {"batch": (1, 2, 3), "bytes_per_value": (2, 1, 0.5625, 4.0), "latent": (1, 7, None)}.items():
        if draw(f"with {name}", (False, True)):
            given[name] = draw(name, values)
    draw.asked(impl.cache_bytes, config, draw("seq_len", st.integers(1, 9)), **given)


def latent_cache(impl, draw):
    batch, rank, rope_dim = draw("batch", (1, 2)), draw("kv_rank", (1, 2, 3)), draw("rope_dim", (1, 2, 4))
    dtype = draw("dtype", (None, *FLOATS))
    cache = impl.LatentCache(batch, draw("capacity", st.integers(1, 9)), rank, rope_dim, dtype)
    draw.see("new", cache)
    for _ in range(draw("updates", st.integers(1, 6))):
        how = draw("do", ("update", "update", "update", "rewind", "reset"))
        if how == "rewind":
            cache.rewind(draw("n", st.integers(0, cache.length)))
        elif how == "reset":
            cache.reset()
        else:
            q = draw("q", (1, 1, 2, 3, 0))
            latents = draw.tensor("latents", (batch, q, rank), cache.latents.dtype, grad=False)
            turned = draw.tensor("turned", (batch, q, rope_dim), cache.turned.dtype, grad=False)
            draw.see("answer", cache.update(latents, turned), [latents, turned, cache.latents, cache.turned])
            draw.see("given", [latents, turned])
        draw.see("cache", cache)


def latent_attention(impl, draw):
    heads, rank, rope_dim = draw("heads", (1, 2, 3)), draw("kv_rank", (1, 2, 5)), draw("rope_dim", (2, 4))
    nope_dim, value_dim, d_model = draw("nope_dim", (1, 2, 3)), draw("value_dim", (1, 2, 4)), draw("d_model", (1, 3, 4))
    dtype, given = draw.dtype(), {}
    for name, values in {"q_rank": (1, 3, None), "score_scale": (1.0, 2.0), "norm_eps": (1e-6, 0.1)}.items():
        if draw(f"with {name}", (False, True)):
            given[name] = draw(name, values)
    module = draw.module(
        impl.MultiHeadLatentAttention, d_model, heads, rank, nope_dim, rope_dim, value_dim, dtype=dtype,
        rope=RoPE(rope_dim, 32) if draw("rope", (True, False)) else None, absorb=draw("absorb", (False, True)), **given,
    )
    batch = draw("batch", (1, 2))
    kind = draw("cache", ("LatentCache", "KVCache"))
    cache = (
        impl.LatentCache(batch, 24, rank, rope_dim, dtype)
        if kind == "LatentCache"
        else KVCache(batch, 1, 24, (rank + rope_dim + 1) // 2, dtype)
    )
    with torch.no_grad():
        for _ in range(draw("calls", st.integers(1, 4))):
            x = draw.tensor("x", (batch, draw("seq", (1, 1, 2, 3, 5)), d_model), dtype, grad=False)
            asked, end = {}, cache.length + x.shape[1]
            if draw("with positions", (False, True)):
                asked["positions"] = draw.ints("positions", (batch, x.shape[1]), 32)
            asked["mask"] = draw.mask("mask", (batch, heads, x.shape[1], end))
            draw.see("answer", module(x, cache=cache, **asked))
            draw.see("given", [x, asked])
            draw.see("cache", cache)
            module.absorb ^= draw("the other road", (False, True))
    module.causal = draw("causal", (True, False))
    x = draw.tensor("x", (batch, draw("seq", (1, 2, 3)), d_model), dtype)
    draw.asked(module, x, draw.mask("mask", (batch, heads, x.shape[1], x.shape[1])))
    draw.asked(module.queries, x)
    draw.asked(module.compress, x)


def converted(impl, draw):
    heads, rope_dim = draw("heads", (1, 2, 3)), draw("rope_dim", (2, 4, 6))
    size = rope_dim + draw("nope_dim", (0, 1, 2))
    rows = {
        "q_a_proj.weight": 3, "q_a_layernorm.weight": 3, "q_b_proj.weight": heads * size, "q_proj.weight": heads * size,
        "kv_a_proj_with_mqa.weight": rope_dim + 2, "kv_a_layernorm.weight": 2, "kv_b_proj.weight": heads * 2,
        "o_proj.weight": 3, "other": 2, "q_b_proj": 2, "x.q_proj.bias": heads * size,
    }
    names = draw("names", st.lists(st.sampled_from(sorted(rows)), unique=True))
    if "q_b_proj.weight" in names and "q_proj.weight" in names:
        names.remove("q_proj.weight")
    state = {name: torch.arange(3.0 * rows[name]).reshape(rows[name], 3) + n for n, name in enumerate(names)}
    draw.asked(impl.convert_deepseek, state, heads, rope_dim)


def qkv(draw):
    kv_heads, groups = draw("kv_heads", (1, 2)), draw("groups", (1, 2, 3))
    heads, q_len, k_len = kv_heads * groups, draw("q", (1, 2, 3, 5)), draw("k", (1, 2, 4, 6))
    head_dim, value_dim = draw("head_dim", (2, 1, 4)), draw("value_dim", (2, 1, 3))
    batch = draw.size("batch", ((2,), (1,), (), (2, 1)))
    return (
        draw.tensor("q", (*batch, heads, q_len, head_dim)),
        draw.tensor("k", (*batch, kv_heads, k_len, head_dim)),
        draw.tensor("v", (*batch, kv_heads, k_len, value_dim)),
        batch,
    )


def learned_sinks(impl, draw):
    q, k, v, batch = qkv(draw)
    mask = draw.mask("mask", (*batch, q.shape[-3], q.shape[-2], k.shape[-2]))
    sinks = draw.tensor("sinks", (q.shape[-3],), kinds=("normal", "zeros", "large"), holes=True)
    draw.asked(impl.attention_with_sinks, q, k, v, sinks, mask)


def sink_attention(impl, draw):
    kv_heads, head_dim, window = draw("kv_heads", (1, 2)), draw("head_dim", (2, 4)), draw("window", (None, 1, 2, 4))
    heads, dtype = kv_heads * draw("groups", (1, 2)), draw.dtype()
    module = draw.module(
        impl.SinkAttention, 3, heads, kv_heads, head_dim, window=window, dtype=dtype,
        rope=RoPE(head_dim, 32) if draw("rope", (False, True)) else None,
    )
    batch = draw("batch", (1, 2))
    cache = RollingKVCache(batch, kv_heads, window, head_dim, dtype) if window and draw("rolling", (False, True)) \
        else KVCache(batch, kv_heads, 24, head_dim, dtype)
    with torch.no_grad():
        for _ in range(draw("calls", st.integers(1, 4))):
            x = draw.tensor("x", (batch, draw("seq", (1, 1, 2, 5)), 3), dtype, grad=False)
            mask = draw.mask("mask", (batch, heads, x.shape[1], cache.length + x.shape[1]))
            draw.see("answer", module(x, mask, cache=cache))
            draw.see("given", [x, mask])
    x = draw.tensor("x", (batch, draw("seq", (1, 2, 3)), 3), dtype)
    draw.asked(module, x, draw.mask("mask", (batch, heads, x.shape[1], x.shape[1])))


def sink_cache(impl, draw):
    batch, kv_heads, head_dim = draw("batch", (1, 2)), draw("kv_heads", (1, 2)), draw("head_dim", (1, 3))
    dtype = draw("dtype", (None, *FLOATS))
    cache = impl.SinkCache(batch, kv_heads, draw("sinks", (1, 2, 0, 4)), draw("window", (1, 2, 3, 5)), head_dim, dtype)
    draw.see("new", cache)
    for _ in range(draw("updates", st.integers(1, 7))):
        if draw("do", ("update", "update", "update", "update", "reset")) == "reset":
            cache.reset()
        else:
            shape = batch, kv_heads, draw("q", (1, 1, 2, 3, 7, 0)), head_dim
            k, v = (draw.tensor(name, shape, cache.keys.dtype, grad=False) for name in "kv")
            draw.see("answer", cache.update(k, v), [k, v, cache.keys, cache.values])
            draw.see("given", [k, v])
        draw.see("cache", [cache.length, cache.keys.shape])


def streaming(impl, draw):
    kv_heads, groups, batch = draw("kv_heads", (1, 2)), draw("groups", (1, 2)), draw("batch", (1, 2))
    k_len = draw("k", (1, 3, 5, 9))
    q_len, dtype = draw("q", st.integers(1, k_len)), draw.dtype()
    q = draw.tensor("q", (batch, kv_heads * groups, q_len, 4), dtype)
    k, v = (draw.tensor(name, (batch, kv_heads, k_len, 4), dtype) for name in "kv")
    rope = RoPE(4, 20, layout=draw("layout", ("half", "interleaved")))
    draw.asked(impl.streaming_attention, q, k, v, rope, draw("sinks", (1, 0, 2, 5)), draw("window", (1, 2, 4, 9)))


def indexer(impl, draw):
    q = draw.tensor("q", "*batch index_heads q index_dim")
    k, weights = draw.tensor("k", "*batch k index_dim"), draw.tensor("weights", "*batch q index_heads")
    draw.asked(impl.index_scores, q, k, weights)


def sparse(impl, draw):
    q, k, v, batch = qkv(draw)
    q_len, k_len = q.shape[-2], k.shape[-2]
    seed = draw("order", st.integers(0, 2**16))
    order = torch.rand(*batch, q_len, k_len, generator=torch.Generator().manual_seed(seed)).argsort(-1)     # no ties
    scores = order.to(draw("dtype", FLOATS))
    mask = draw.mask("mask", (*batch, 1, q_len, k_len))
    draw.asked(impl.sparse_attention, q, k, v, scores, draw("top_k", (1, 2, 3, 6, 100)), mask)
