"""Lesson 22 on other shapes, dtypes and corners."""

import torch

from grader import devices, dtypes, points, raises, shares_memory
from grader.course.doubles import Operations
from grader.course.modes import default_dtype


def latent_of(impl, draw, heads=4, kv_rank=5, nope_dim=3, rope_dim=6, value_dim=7, q_rank=None, **options):
    """A latent attention whose rotated part is larger than the rest, for x of 8 features."""
    rope = options.pop("rope", impl.RoPE(rope_dim, 80))
    return draw.fill(impl.MultiHeadLatentAttention(8, heads, kv_rank, nope_dim, rope_dim, value_dim, q_rank, rope,
                                                   **options))


def roads(attention):
    for absorb in (False, True):
        attention.absorb = absorb
        yield f"absorb={absorb}", attention


def in_pieces(attention, cache, x, cuts, **options):
    with torch.no_grad():
        return torch.cat([attention(part, cache=cache, **options) for part in x.split(cuts, dim=1)], dim=1)


@points(2)
def test_costs_at_random(impl, draw):
    """Random models: every layer has its window, every size its place, the answer may be a fraction of a byte."""
    said = {}
    for n in range(6):
        layers, groups, kv_heads, head_dim, batch = (draw.ints(5, 5) + 1).tolist()
        windows = [None if w == 0 else w for w in draw.ints(9, layers).tolist()]
        config = impl.ModelConfig(vocab_size=3, d_model=4, layers=layers, heads=kv_heads * groups, kv_heads=kv_heads,
                                  head_dim=head_dim, d_ff=2, max_seq_len=9, positions="none", windows=windows)
        seq_len = 1 + int(draw.ints(12))
        said[f"{n}"] = [impl.cache_bytes(config, seq_len, batch, each, latent) for each, latent in
                        ((2, None), (0.5625, None), (1, 7 + n))]
        said[f"{n}, left out"] = impl.cache_bytes(config, seq_len)
    return said


def test_a_pattern_of_one(impl, draw):
    """Patterns of one, of more than there are layers, and out of an iterator that is read once."""
    n = 3 + int(draw.ints(6))
    return {"one": impl.layer_pattern(n, [n]), "none": impl.layer_pattern(1, (None, 7)),
            "iterator": impl.layer_pattern(n, (w for w in (None, n, 4))),
            "length": impl.layer_pattern(2 * n, range(1, n))}


@points(2)
@dtypes("float32", "float16", "bfloat16")
def test_latents_at_random(impl, draw, dtype):
    """Updates of random sizes, none among them, with rewinds and a reset: always what was put in, in order."""
    cache, said = impl.LatentCache(3, 12, 4, 2, dtype, draw.device), {}
    for number, q in enumerate((2, 0, 1, 1, 5, 3)):
        said[f"{number}"] = [*cache.update(draw(3, q, 4).to(dtype), draw(3, q, 2).to(dtype)), cache.length]
    n = 1 + int(draw.ints(11))
    cache.rewind(n)
    said["rewound"] = [cache.length, *cache.update(draw(3, n, 4).to(dtype), draw(3, n, 2).to(dtype))]
    storage = cache.latents, cache.turned
    cache.reset()
    return said | {"anew": cache.update(draw(3, 1, 4).to(dtype), draw(3, 1, 2).to(dtype)),
                   "storage": [shares_memory(a, b) for a, b in zip(storage, (cache.latents, cache.turned))]}


def test_latents_of_another_default(impl, draw):
    """Without a dtype the storage has torch's default; views and other strides are taken."""
    with default_dtype(torch.float64):
        cache = impl.LatentCache(2, 6, 3, 4, device=draw.device)
    first = cache.update(draw(3, 2, 2).permute(1, 2, 0).double(), draw(2, 2, 4).transpose(0, 1).double())
    sinks = impl.SinkCache(1, 1, 1, 1, 2, device=draw.device)
    return {"first": first, "again": cache.update(draw(2, 1, 3).double(), draw(2, 1, 4).double()),
            "sinks": sinks.keys.dtype == torch.get_default_dtype()}


@points(2)
def test_sizes_of_every_kind(impl, draw):
    """One head, a latent of one number, as many heads as tokens, value_dim above and below the others: both roads."""
    said = {}
    for sizes in ((1, 4, 5, 2, 3), (4, 1, 2, 4, 1), (3, 16, 2, 2, 9), (2, 6, 6, 6, 6)):
        for q_rank in (None, 3):
            attention, x = latent_of(impl, draw, *sizes, q_rank), draw(3, 3, 8)
            said |= {f"{sizes}, q_rank={q_rank}, {name}": layer(x).detach() for name, layer in roads(attention)}
    return said


@points(2)
def test_pieces_of_every_kind(impl, draw):
    """Two single tokens in a row, chunks, after a rewind and a reset: as in one pass."""
    said, x = {}, draw(2, 10, 8)
    for name, layer in roads(latent_of(impl, draw, q_rank=3)):
        cache = impl.LatentCache(2, 10, 5, 6, draw.float, draw.device)
        said[name] = in_pieces(layer, cache, x, (1, 1, 5, 1, 1, 1))
        cache.rewind(4)
        said[f"{name}, rewound"] = in_pieces(layer, cache, x[:, 6:], (1, 3))
        cache.reset()
        said[f"{name}, anew"] = [in_pieces(layer, cache, x.flip(1)[:, :4], (3, 1)), cache.length]
    return said


@points(2)
def test_roads_may_change(impl, draw):
    """A prompt on one road and tokens on the other, in training mode and in eval: the cache is the same."""
    attention, x = latent_of(impl, draw), draw(1, 7, 8)
    said = {}
    for training in (True, False):
        attention.train(training)
        cache = impl.LatentCache(1, 7, 5, 6, draw.float, draw.device)
        attention.absorb = training
        parts = [in_pieces(attention, cache, x[:, :4], (4,))]
        for n in range(4, 7):
            attention.absorb = not attention.absorb
            parts.append(in_pieces(attention, cache, x[:, n:n + 1], (1,)))
        said[f"training={training}"] = [torch.cat(parts, dim=1), cache.latents]
    return said


@points(2)
def test_masks_and_positions(impl, draw):
    """Masks of a head, of a row, with a hole, positions with gaps and for all rows: on both roads, with a cache too."""
    said, x = {}, draw(2, 6, 8)
    mask = draw.ints(3, 2, 4, 6, 6).bool()
    places = draw.ints(70, 2, 6)
    for name, layer in roads(latent_of(impl, draw)):
        said[f"each head's, {name}"] = layer(x, mask, places).detach()
        said[f"all heads', {name}"] = layer(x, mask[:1, :1], places[0]).detach()
        cache = impl.LatentCache(2, 6, 5, 6, draw.float, draw.device)
        with torch.no_grad():
            said[f"cached, {name}"] = [layer(x[:, a:b], mask[:, :, a:b, :b], places[:, a:b], cache)
                                       for a, b in ((0, 3), (3, 4), (4, 6))]
    return said | {"mask, positions and x": [mask, places, x]}


@points(2)
def test_a_latent_kept_by_chapter_11(impl, draw):
    """A KVCache of one head, as make_caches makes it for such a model, is taken too: the given _kept does it."""
    attention, x, said = latent_of(impl, draw), draw(2, 6, 8), {}
    for name, layer in roads(attention):
        said[name] = in_pieces(layer, impl.KVCache(2, 1, 6, 6, draw.float, draw.device), x, (3, 1, 1, 1))
    with torch.no_grad():
        for what, cache in (("two heads", impl.KVCache(2, 2, 6, 6, draw.float, draw.device)),
                            ("no room", impl.KVCache(2, 1, 6, 5, draw.float, draw.device))):
            said[what] = raises(ValueError, lambda: attention(x, cache=cache), names="cache")
    return said


@points(2)
@devices("cpu")
def test_work_of_a_token(impl, draw):
    """Absorbed, a further key costs heads · (2 · kv_rank + rope_dim) multiply-adds, and no head's key is made of it."""
    heads, rank, said = 4 + int(draw.ints(3)), 6, {}
    attention = draw.fill(impl.MultiHeadLatentAttention(8, heads, rank, 16, 4, 14, rope=impl.RoPE(4, 400), absorb=True))
    token = draw(1, 1, 8)
    for training in (True, False):
        attention.train(training)
        work = []
        for n in (100, 300):
            cache = impl.LatentCache(1, n + 1, rank, 4, draw.float, draw.device)
            cache.update(draw(1, n, rank), draw(1, n, 4))
            with torch.no_grad(), Operations() as operations:
                y = attention(token, cache=cache)
            work.append(operations.multiply_adds)
        made = operations.largest // (300 * heads)
        said[f"training={training}"] = [work[1] - work[0] <= 200 * heads * (2 * rank + 4), made * (made >= 10), y]
    return said


@points(2)
@dtypes("bfloat16", "float16")
def test_latent_layer_in_half(impl, draw, dtype):
    """The whole layer in half precision, with a cache of its dtype, answers in it on both roads."""
    attention, x = latent_of(impl, draw, q_rank=4), draw.uniform(2, 5, 8)
    with torch.no_grad():
        for part in (attention.kv_down, attention.kv_up, attention.o_proj):
            part.weight.abs_()                      # nothing cancels, so rounding stays small
    attention.to(dtype)
    return {name: in_pieces(layer, impl.LatentCache(2, 5, 5, 6, dtype, draw.device), x.to(dtype), (3, 1, 1))
            for name, layer in roads(attention)}


@points(2)
def test_prefixes_and_biases(impl, draw):
    """convert_deepseek knows names in any place, biases, and leaves the caller's dict and tensors as they were."""
    state = {"layers.0.q_a_proj.bias": draw(4), "layers.1.kv_a_proj_with_mqa.bias": draw(9),
             "x.q_b_proj.weight": draw(12, 4), "x.kv_b_proj.weight": draw(8, 3), "q_b_proj_scale": draw(12)}
    before = {name: x.clone() for name, x in state.items()}
    ours = impl.convert_deepseek(state, 2, 4)
    return {"ours": ours, "theirs": [list(state), [bool(torch.equal(x, state[name])) for name, x in before.items()]],
            "a pair": impl.convert_deepseek({"q_proj.weight": draw(6, 2)}, 3, 2),
            "nothing": impl.convert_deepseek({}, 3, 2)}


@points(2)
def test_sinks_of_every_size(impl, draw):
    """One query, one key, three batch axes, sinks of unlike size."""
    def said(q, k, **sizes):
        heads = sizes.get("heads", 6)
        sinks = draw(heads, scale=3.0)
        return impl.attention_with_sinks(draw(2, heads, q, 4), draw(2, sizes.get("kv_heads", 2), k, 4),
                                         draw(2, sizes.get("kv_heads", 2), k, 3), sinks)

    deep = impl.attention_with_sinks(draw(2, 1, 2, 4, 3, 5), draw(2, 1, 2, 1, 4, 5), draw(2, 1, 2, 1, 4, 5), draw(4))
    return {"one query": said(1, 9), "one key": said(3, 1),
            "one head": said(3, 4, heads=1, kv_heads=1), "all share": said(2, 4, heads=4, kv_heads=1), "deep": deep}


@points(2)
@dtypes("bfloat16", "float16")
def test_sinks_are_not_rounded(impl, draw, dtype):
    """Sinks in float32 beside q in half precision keep their digits: a sink of 1000.4 is not one of 1000."""
    n = 3
    q = torch.full((1, 2, 1, 4), 20.0, dtype=dtype, device=draw.device)
    k = torch.full((1, 2, n, 4), 25.0, dtype=dtype, device=draw.device)
    v = draw(1, 2, n, 3).abs().to(dtype)
    return impl.attention_with_sinks(q, k, v, torch.tensor([1000.4, 999.3], device=draw.device) + draw(2, scale=0.1))


@points(2)
def test_sink_layers(impl, draw):
    """With QK-norm, without RoPE, with a window of 1, a cache that rolls, in eval and in training: sinks count."""
    said, x = {}, draw(2, 7, 8)
    for name, options in (("QK-norm", {"qk_norm": True}), ("window 1", {"window": 1}),
                          ("not causal", {"causal": False}), ("o_bias", {"o_bias": True})):
        layer = draw.fill(impl.SinkAttention(8, 4, 2, **options))
        said |= {name: layer(x).detach(), f"{name}, eval": layer.eval()(x).detach()}
    layer = draw.fill(impl.SinkAttention(8, 4, 4, 6, rope=impl.RoPE(6, 30), window=3))
    said["rolls"] = in_pieces(layer, impl.RollingKVCache(2, 4, 5, 6, draw.float, draw.device), x, (1, 1, 4, 1))
    (layer(x) * draw(2, 7, 8)).sum().backward()
    return said | {"gradient": layer.sinks.grad}


@points(2)
@dtypes("float32", "bfloat16")
def test_sink_caches_at_random(impl, draw, dtype):
    """Sinks from 0 on, windows from 1 on, chunks of random sizes, none among them: the right ones in order."""
    said = {}
    for sinks, window in ((0, 1), (1, 1), (3, 2), (1, 5), (9, 3)):
        cache = impl.SinkCache(2, 1, sinks, window, 2, dtype, draw.device)
        for number, q in enumerate((draw.ints(sinks + window + 3, 7)).tolist()):
            k, v = draw(2, 1, q, 2).to(dtype), draw(2, 1, q, 2).to(dtype)
            said[f"{sinks}, {window}: update {number}, {q} new"] = [*cache.update(k, v), cache.length]
        cache.reset()
        said[f"{sinks}, {window}: anew"] = cache.update(*draw(2, 2, 1, 3, 2).to(dtype))
    return said


def test_sink_caches_and_views(impl, draw):
    """Keys that are views with axes swapped are taken, and what was returned may be written into."""
    cache, said = impl.SinkCache(2, 3, 2, 3, 4, draw.float, draw.device), []
    for q in (1, 4, 1, 1):
        k, v = cache.update(draw(2, q, 3, 4).transpose(1, 2), draw(3, 2, q, 4).transpose(0, 1))
        said.append([k.clone(), v.clone()])
        k.zero_()
        v.zero_()
    return said


@points(2)
def test_streams_of_every_kind(impl, draw):
    """As many key heads as heads, one for all, no sinks, a window of 1, more sinks than keys, an interleaved RoPE."""
    said = {}
    for kv_heads, sinks, window, q_len, n in ((4, 1, 3, 5, 9), (1, 2, 1, 7, 7), (2, 0, 4, 9, 12), (2, 12, 3, 4, 9),
                                              (2, 3, 2, 1, 1), (2, 1, 2, 0, 3)):
        for layout in ("half", "interleaved"):
            rope = impl.RoPE(6, 30, layout=layout).to(draw.device)
            said[f"{kv_heads}, {sinks}, {window}, {q_len} of {n}, {layout}"] = impl.streaming_attention(
                draw(2, 4, q_len, 6), draw(2, kv_heads, n, 6), draw(2, kv_heads, n, 6), rope, sinks, window)
    return said


def test_streams_have_gradients(impl, draw):
    """Streaming attention is made of plain operations: gradients reach q, k and v, and q and k stay as they were."""
    given = [draw(1, 4, 6, 6), draw(1, 2, 9, 6), draw(1, 2, 9, 6)]
    before = [x.clone() for x in given]
    rope = impl.RoPE(6, 20).to(draw.device)
    out = impl.streaming_attention(*(x.requires_grad_() for x in given), rope, 2, 3)
    (out * draw(1, 4, 6, 6)).sum().backward()
    return {"gradients": [x.grad for x in given],
            "as they were": [bool(torch.equal(a, b)) for a, b in zip(given, before)]}


@points(2)
def test_index_scores_of_every_size(impl, draw):
    """Many batch axes, no key, one feature, weights of 0 and below: and gradients, by which an indexer is trained."""
    q, k, weights = draw(2, 1, 3, 4, 1), draw(2, 1, 6, 1), draw(2, 1, 4, 3)
    for x in (q, k, weights):
        x.requires_grad_()
    scores = impl.index_scores(q, k, weights)
    (scores * draw(2, 1, 4, 6)).sum().backward()
    return {"scores": scores, "gradients": [x.grad for x in (q, k, weights)],
            "no key": impl.index_scores(draw(2, 4, 3), draw(0, 3), draw(4, 2)),
            "below": impl.index_scores(draw(2, 4, 3), draw(5, 3), -draw.uniform(4, 2))}


@points(2)
@dtypes("bfloat16")
def test_index_scores_that_nearly_tie(impl, draw, dtype):
    """Products near 1,024 that differ by 1 stay apart in half precision: widened first, they are exact."""
    k = torch.ones(6, 16, device=draw.device, dtype=dtype)
    k[:, 0] += (draw.ints(2**20, 6).argsort() / 64).to(dtype)
    q = torch.full((2, 1, 16), 64.0, device=draw.device, dtype=dtype)
    weights = torch.ones(1, 2, device=draw.device, dtype=dtype)
    return impl.index_scores(q, k, weights).diff(dim=-1)


@points(2)
def test_sparse_of_every_size(impl, draw):
    """One query, one key, top_k of 1, three batch axes, value_dim above head_dim, all heads on one key head."""
    def said(q, k, n, heads=4, kv_heads=2, **given):
        return impl.sparse_attention(draw(2, heads, q, 5), draw(2, kv_heads, k, 5), draw(2, kv_heads, k, 7),
                                     draw(2, q, k), n, **given)

    deep = impl.sparse_attention(draw(2, 1, 2, 4, 3, 5), draw(2, 1, 2, 1, 6, 5), draw(2, 1, 2, 1, 6, 5),
                                 draw(2, 1, 2, 3, 6), 2)
    return {"one query": said(1, 9, 4), "one key": said(3, 1, 5), "top 1": said(3, 6, 1),
            "all share": said(3, 6, 2, kv_heads=1), "one head": said(3, 6, 2, heads=1, kv_heads=1), "deep": deep}


@points(2)
def test_sparse_decodes_as_it_reads(impl, draw):
    """The last queries alone give what they give among all: keys are chosen query by query. No input is changed."""
    q, k, v, scores = draw(2, 4, 8, 5), draw(2, 2, 8, 5), draw(2, 2, 8, 5), draw(2, 8, 8)
    mask = torch.ones(8, 8, dtype=torch.bool, device=draw.device).tril()
    before = [x.clone() for x in (q, k, v, scores, mask)]
    said = {"all": impl.sparse_attention(q, k, v, scores, 3, mask),
            "the last two": impl.sparse_attention(q[:, :, 6:], k, v, scores[:, 6:], 3, mask[6:]),
            "scores of −∞": impl.sparse_attention(q, k, v, scores.masked_fill(~mask, -torch.inf), 3)}
    return said | {"as they were": [bool(torch.equal(a, b)) for a, b in zip(before, (q, k, v, scores, mask))]}


@points(2)
@dtypes("bfloat16", "float16")
def test_sparse_chooses_finely(impl, draw, dtype):
    """Index scores in float32 beside q in half precision choose by all their digits."""
    q, k, v = (draw(1, heads, n, 4).to(dtype) for heads, n in ((2, 3), (2, 9), (2, 9)))
    scores = 100 + draw.ints(2**20, 1, 3, 9).argsort() / 1024
    return impl.sparse_attention(q, k, v, scores.float(), 2)
