"""What lesson 22 asks: what caches cost, latent attention on both roads, learned and kept sinks, sparse attention."""

import torch

from grader import accepts, devices, dtypes, points, raises, shapes, shares_memory
from grader.course.doubles import Operations

BORROWED = {"torch.nn.MultiheadAttention", "torch.nn.functional.multi_head_attention_forward",
            "torch.nn.functional.scaled_dot_product_attention"}
FORBIDDEN = {part: BORROWED for part in (
    "MultiHeadLatentAttention", "attention_with_sinks", "streaming_attention", "sparse_attention")}


def _config(impl, **changes):
    sizes = {"vocab_size": 11, "d_model": 24, "layers": 3, "heads": 6, "kv_heads": 2, "head_dim": 5, "d_ff": 7,
             "max_seq_len": 64, "positions": "none"}
    return impl.ModelConfig(**sizes | changes)


def _latent(impl, draw, q_rank=7, **options):
    """A small latent attention, whose sizes and sums of sizes differ: 3 heads, a latent of 13."""
    rope = options.pop("rope", impl.RoPE(4, 64))
    return draw.fill(impl.MultiHeadLatentAttention(9, 3, 13, 6, 4, 5, q_rank, rope, **options))


def _asked(draw, q=4, k=7, batch=2):
    """What both roads take: q_nope, q_rope, latents, turned."""
    return draw(batch, 3, q, 6), draw(batch, 3, q, 4), draw(batch, k, 13), draw(batch, k, 4)


def _roads(attention):
    """The same layer, on one road and on the other."""
    for absorb in (False, True):
        attention.absorb = absorb
        yield "absorbed" if absorb else "expanded", attention


def _pieces(attention, cache, x, cuts, mask=None, positions=None):
    """x through attention in pieces of the sizes `cuts`, put together again."""
    out, start = [], 0
    with torch.no_grad():
        for end in torch.tensor(cuts).cumsum(0).tolist():
            out.append(attention(x[:, start:end], None if mask is None else mask[..., :end],
                                 None if positions is None else positions[..., start:end], cache))
            start = end
    return torch.cat(out, dim=1)


def _qkv(draw, q=5, k=8, heads=6, kv_heads=2, head_dim=4, value_dim=3, batch=2):
    return draw(batch, heads, q, head_dim), draw(batch, kv_heads, k, head_dim), draw(batch, kv_heads, k, value_dim)


def _causal(draw, q, k):
    return torch.ones(q, k, dtype=torch.bool, device=draw.device).tril(k - q)


# -- what a text costs

@points(2)
def test_cache_bytes(impl, draw):
    """A cache keeps a key and a value for each layer, row, position and key/value head.

    2 · layers · batch · kv_heads · positions · head_dim numbers, of bytes_per_value each. Query heads keep nothing.
    """
    n, batch = 1000 + int(draw.ints(9000)), 2 + int(draw.ints(5))
    said = {f"{kv_heads} of 6 heads": [impl.cache_bytes(_config(impl, kv_heads=kv_heads), n),
                                       impl.cache_bytes(_config(impl, kv_heads=kv_heads), n, batch, 0.5625)]
            for kv_heads in (6, 2, 1)}
    return said | {"head_dim": impl.cache_bytes(_config(impl, head_dim=8, layers=2), n, batch, 1)}


@points(2)
def test_cache_bytes_of_windows(impl, draw):
    """A layer with a window keeps no more positions than that, and no more than there are.

    Count layer by layer: min(seq_len, window), or seq_len where the window is None.
    """
    windows = [(4, None, 9), (None, 4, 4), (200, 100, None)]
    lengths = [1, 3, 4, 5, 60 + int(draw.ints(100)), 1000 + int(draw.ints(9000))]
    return {str(own): [impl.cache_bytes(_config(impl, windows=own), n, 2, 1) for n in lengths] for own in windows}


def test_cache_bytes_of_latents(impl, draw):
    """With `latent` numbers a position, heads no longer matter, and there is no 2.

    latent is kv_rank + rope_dim: keys and values are both made from it.
    """
    n, latent = 1000 + int(draw.ints(9000)), 100 + int(draw.ints(500))
    return {f"{kv_heads} key/value heads": impl.cache_bytes(_config(impl, kv_heads=kv_heads, windows=windows), n, 3, 2,
                                                            latent)
            for kv_heads, windows in ((6, None), (1, None), (2, (4, None, None)))}


def test_cache_bytes_refuses(impl, draw):
    """Sizes below 1 and bytes_per_value of 0 or less raise a ValueError that names them.

    at_least_one for seq_len, batch and, where it is given, latent.
    """
    config, n = _config(impl), 5 + int(draw.ints(99))
    return {f"{name} {low}": raises(
        ValueError, lambda: impl.cache_bytes(config, **{"seq_len": n} | {name: low}), names=name)
            for name in ("seq_len", "batch", "latent", "bytes_per_value") for low in (0, -1 - int(draw.ints(5)))} | {
        "right": impl.cache_bytes(config, n, 1, 0.25), "sizes of 1": impl.cache_bytes(config, 1, 1, 1, 1)}


@points(2)
def test_layer_pattern(impl, draw):
    """A pattern goes on from layer to layer, and its last round may be cut short.

    Layer n has pattern[n mod length]. The answer is a tuple, what ModelConfig.windows holds.
    """
    layers, window = 7 + int(draw.ints(20)), 2 + int(draw.ints(500))
    patterns = {"Gemma 3": (window,) * 5 + (None,), "gpt-oss": [window, None], "SmolLM3": (True, True, True, False),
                "one": (window,)}
    said = {name: list(impl.layer_pattern(layers, pattern)) for name, pattern in patterns.items()}
    said["fewer layers than the pattern has"] = impl.layer_pattern(3, iter((1, 2, 3, 4, None)))
    said["in a config"] = list(_config(impl, layers=layers, windows=impl.layer_pattern(layers, (window, None))).windows)
    return said


def test_layer_pattern_refuses(impl, draw):
    """No layers, an empty pattern, and windows below 1 raise a ValueError that names layers or pattern.

    False is no window: it says that a layer has no RoPE.
    """
    n = 3 + int(draw.ints(9))
    said = {"empty": raises(ValueError, lambda: impl.layer_pattern(n, ()), names="pattern"),
            "False": impl.layer_pattern(n, (False, 1)), "one": impl.layer_pattern(1, (n,))}
    for low in (0, -1 - int(draw.ints(5))):
        said[f"{low} layers"] = raises(ValueError, lambda: impl.layer_pattern(low, (4, None)), names="layers")
        said[f"a window of {low}"] = raises(ValueError, lambda: impl.layer_pattern(n, (None, low)), names="pattern")
    return said


# -- the latent cache

@points(2)
@dtypes("float32", "bfloat16")
def test_latent_update(impl, draw, dtype):
    """update gives back the latents and turned keys of all positions so far, the new ones behind the old ones.

    Write into storage[:, length : length + q], move length on, and return what is filled.
    """
    cache, said = impl.LatentCache(2, 9, 5, 4, dtype, draw.device), {}
    for number, q in enumerate((3, 1, 1, 2), 1):
        answer = cache.update(draw(2, q, 5).to(dtype), draw(2, q, 4).to(dtype))
        said[f"update {number}, {q} new"] = [*answer, cache.length]
    cache.rewind(3)
    said["after rewind(3)"] = [*cache.update(draw(2, 2, 5).to(dtype), draw(2, 2, 4).to(dtype)), cache.length]
    cache.reset()
    return said | {"after reset": [*cache.update(draw(2, 1, 5).to(dtype), draw(2, 1, 4).to(dtype)), cache.length]}


def test_latent_storage(impl, draw):
    """A LatentCache allocates once: what update returns are views of what it holds, kv_rank + rope_dim numbers each.

    torch.cat copies every old position, at every token. Nothing has a heads axis: all heads share what is kept.
    """
    cache, new = impl.LatentCache(1, 8, 5, 4, draw.float, draw.device), draw(1, 3, 5)
    first, second = (cache.update(new[:, :n], draw(1, n, 4)) for n in (3, 1))
    return {"turned": second[1], "shares": [shares_memory(a, b) for a, b in zip(first, second)],
            "with what was given": shares_memory(first[0], new),
            "numbers": sum({x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() // x.element_size()
                            for x in second}.values())}


@points(2)
def test_latent_cache_refuses(impl, draw):
    """What does not fit raises a ValueError that names it, and leaves the cache as it was.

    The given _must_fit_rows looks at shape, dtype and gradients: at both, before anything is written. After that,
    capacity is compared with the length that there would be.
    """
    size = 5 + int(draw.ints(4))
    cache, good, key = impl.LatentCache(2, size, 5, 4, draw.float, draw.device), draw(2, 2, 5), draw(2, 2, 4)
    cache.update(draw(2, size - 1, 5), draw(2, size - 1, 4))
    said = {what: raises(ValueError, lambda: cache.update(a, b), names=named) for what, a, b, named in (
        ("one row", good[:1], key, "latents"), ("another rank", key, key, "latents"),
        ("another rope_dim", good, good, "turned"), ("other lengths", good, key[:, :1], "turned"),
        ("another dtype", good.to(torch.float16), key, "latents"), ("no room", good, key, "capacity"),
        ("gradients", good, key.clone().requires_grad_(), "turned"))}
    return said | {"length": cache.length, "then": cache.update(good[:, :1], key[:, :1])}


def test_latent_sizes(impl, draw):
    """Sizes below 1 are refused by name; dtype and device are those that are given, or torch's defaults.

    at_least_one, and torch.zeros takes dtype=… and device=… . (Asked with torch's "meta" device, which every machine
    has.)
    """
    said, names = {}, ["batch", "capacity", "kv_rank", "rope_dim"]
    for i in draw.uniform(4).argsort().tolist():
        sizes = (draw.ints(3, 4) + 1).tolist()
        said[f"LatentCache{tuple(sizes)}"] = accepts(lambda: impl.LatentCache(*sizes))
        for sizes[i] in (0, -1 - int(draw.ints(3))):
            said[f"LatentCache{tuple(sizes)}"] = raises(ValueError, lambda: impl.LatentCache(*sizes), names=names[i])
    cache = impl.LatentCache(1, 2, 3, 4, torch.bfloat16, "meta")
    return said | {"made": [str(x) for x in (cache.latents.dtype, cache.turned.dtype, cache.latents.device.type,
                                             cache.turned.device.type, impl.LatentCache(1, 1, 1, 1).turned.dtype)]}


# -- latent attention

def test_latent_state(impl, draw):
    """A latent attention has a way down and a way up: q_down, q_norm, q_up or q_proj; kv_down, kv_norm, kv_up; o_proj.

    kv_down ends in kv_rank + rope_dim features, kv_up in nope_dim + value_dim for each head, q_up in nope_dim +
    rope_dim. No biases. RoPE keeps nothing in the state dict.
    """
    heads, rank = 2 + int(draw.ints(3)), 3 + int(draw.ints(9))
    make = impl.MultiHeadLatentAttention
    return {f"q_rank={q_rank}": shapes(make(9, heads, rank, 6, 4, 5, q_rank, impl.RoPE(4, 8)).state_dict())
            for q_rank in (None, rank + 2)}


@points(2)
def test_queries(impl, draw):
    """Each head's query is cut into nope_dim plain features and rope_dim turned ones, in this order.

    With q_rank x goes down, through q_norm, and up. Heads first, then the cut; RoPE turns the second part alone,
    and every head of a row stands at the row's positions (unsqueeze(-2)). score_scale multiplies both parts.
    """
    said, positions = {}, draw.ints(64, 2, 4)
    for q_rank in (7, None):
        attention, x = _latent(impl, draw, q_rank), draw(2, 4, 9)
        said |= {f"q_rank={q_rank}": attention.queries(x),
                 f"at positions, q_rank={q_rank}": attention.queries(x, positions)}
    return said | {"no RoPE": _latent(impl, draw, rope=None).queries(draw(2, 4, 9), positions),
                   "score_scale=3": _latent(impl, draw, score_scale=3.0).queries(draw(2, 4, 9), positions)}


@points(2)
def test_compress(impl, draw):
    """kv_down gives the latent, which is normed, and one key for all heads, which is turned.

    The latent knows no position: RoPE between W_K and the latent could not be absorbed. The turned key is not normed.
    """
    attention, x = _latent(impl, draw), draw(2, 4, 9)
    return {"latents, turned": attention.compress(x), "at positions": attention.compress(x, draw.ints(64, 2, 4)),
            "for all rows": attention.compress(x, draw.ints(64, 4)),
            "no RoPE": _latent(impl, draw, rope=None).compress(x)}


@points(2)
def test_expanded(impl, draw):
    """The expanded road makes every head's keys, c W_Kᵀ and the one turned key, and its values c W_Vᵀ.

    kv_up gives, for each head, nope_dim features of the key and then value_dim of the value. Scores are divided by
    √(nope_dim + rope_dim): cat both parts, and grouped_attention does it.
    """
    attention = _latent(impl, draw)
    return {"all": attention.expanded(*_asked(draw)), "causal": attention.expanded(*_asked(draw), _causal(draw, 4, 7))}


@points(3)
def test_absorbed(impl, draw):
    """The absorbed road gives the same: W_K goes into the query, and W_V is left for the mix of latents.

    weight of kv_up is (heads · (nope_dim + value_dim), kv_rank): cut into heads first. Divide by √(nope_dim +
    rope_dim), as before, and not by the root of kv_rank.
    """
    attention = _latent(impl, draw)
    return {"all": attention.absorbed(*_asked(draw)), "causal": attention.absorbed(*_asked(draw), _causal(draw, 4, 7)),
            "one query": attention.absorbed(*_asked(draw, q=1, k=3, batch=1))}


@points(2)
def test_forward(impl, draw):
    """forward goes down, up and through attention, causal, on the road that absorb says.

    Both roads give the same numbers. o_proj takes the heads side by side.
    """
    said = {}
    for q_rank in (7, None):
        x = draw(2, 6, 9)
        said |= {f"{name}, q_rank={q_rank}": layer(x) for name, layer in _roads(_latent(impl, draw, q_rank))}
    said["not causal"] = _latent(impl, draw, causal=False, absorb=True)(draw(2, 6, 9))
    return said | {"scores doubled": _latent(impl, draw, score_scale=2.0)(draw(2, 6, 9))}


@points(3)
@devices("cpu")
def test_no_key_is_made(impl, draw):
    """Absorbed, one token reads the latents as they are: no tensor of keys × heads × head size is made.

    Scores are keys × heads, and that is all that grows with both. Bring the query to the latents' size, not the
    latents to the heads'. (Counted is the largest storage that an operation returns, for each key and head.)
    """
    heads, n = 6 + int(draw.ints(3)), 200
    attention = draw.fill(impl.MultiHeadLatentAttention(9, heads, 8, 12, 4, 10, rope=impl.RoPE(4, n + 1), absorb=True))
    said, token = {}, draw(1, 1, 9)
    for training in (True, False):
        cache = impl.LatentCache(1, n + 1, 8, 4, draw.float, draw.device)
        cache.update(draw(1, n, 8), draw(1, n, 4))
        attention.train(training)
        with torch.no_grad(), Operations() as operations:
            y = attention(token, cache=cache)
        made = operations.largest // (n * heads)
        said["in training" if training else "in eval"] = {"made for each key and head": made * (made >= 8), "y": y}
    return said


@points(3)
def test_latent_decoding(impl, draw):
    """A prompt, then single tokens, then a chunk: with a LatentCache each road gives what one pass gives.

    Without positions the new tokens stand at cache.length, cache.length + 1, … : read it before update. Queries are
    the last of the keys.
    """
    said, x = {}, draw(2, 9, 9)
    for name, layer in _roads(_latent(impl, draw)):
        for cuts in ((4, 1, 1, 3), (1,) * 3):
            said[f"{name}, {cuts}"] = _pieces(layer, impl.LatentCache(2, 9, 13, 4, draw.float, draw.device), x, cuts)
    return said


@points(2)
def test_latent_padding(impl, draw):
    """Rows padded on the left, with masks and positions of their own, give what each gives alone.

    positions have a batch axis; the mask is (batch, 1, 1, keys), over all keys so far, ANDed with the causal one.
    """
    x, cuts = draw(2, 8, 9), (5, 1, 2)
    padding = torch.tensor([0, 3], device=draw.device)[:, None]
    places = torch.arange(8, device=draw.device)
    mask, positions = (places >= padding)[:, None, None], (places - padding).clamp(min=0)
    said = {}
    for name, layer in _roads(_latent(impl, draw)):
        rows = _pieces(layer, impl.LatentCache(2, 8, 13, 4, draw.float, draw.device), x, cuts, mask, positions)
        said |= {f"{name}, row 0": rows[0], f"{name}, row 1, its own tokens": rows[1, 3:],
                 f"{name}, at once": layer(x, mask, positions)[1, 3:].detach()}
    return said


@points(2)
def test_latent_gradients(impl, draw):
    """Gradients reach x and every matrix on both roads: the latents' own way too.

    Nothing is detached: absorbed weights are views of kv_up's.
    """
    said, x, weights = {}, draw(2, 5, 9), draw(2, 5, 9)
    for name, layer in _roads(_latent(impl, draw)):
        layer.zero_grad()
        x = x.detach().clone().requires_grad_()
        (layer(x) * weights).sum().backward()
        said |= {f"x, {name}": x.grad} | {f"{n}, {name}": p.grad for n, p in layer.named_parameters()}
    return said


@dtypes("bfloat16", "float16", "float64")
def test_latent_dtype(impl, draw, dtype):
    """In half precision both roads answer in it; scores, softmax and the mix are computed in at least float32.

    The given widen. float64 stays float64: .float() would take digits away. (Scores near 2,000 that differ by 3 are
    alike in bfloat16.)
    """
    attention = _latent(impl, draw)
    with torch.no_grad():
        attention.kv_up.weight.abs_()               # all is positive, so that nothing cancels
    attention.to(dtype)
    q_nope, q_rope, latents, turned = (part.abs().to(dtype) for part in _asked(draw, q=1, k=3, batch=1))
    said = {road: getattr(attention, road)(q_nope, q_rope, latents, turned) for road in ("expanded", "absorbed")}
    q_rope, turned = 16 * torch.ones_like(q_rope), 100 * torch.ones_like(turned)
    turned[:, 1] = 100 + torch.tensor([0.5, 0, 0, 0], device=draw.device)
    near = [getattr(attention, road)(0 * q_nope, q_rope, latents, turned) for road in ("expanded", "absorbed")]
    return {name: [str(y.dtype), y] for name, y in said.items()} | {"scores near 2,000": near}


def test_latent_rows_that_see_nothing(impl, draw):
    """A query that may look nowhere gives zeros on both roads, and a gradient without NaN.

    Lesson 05's softmax of a row of −∞ is a row of zeros.
    """
    said, mask = {}, draw.ints(2, 2, 1, 4, 7).bool()
    mask[:, :, 1] = False
    for road in ("expanded", "absorbed"):
        given = [part.requires_grad_() for part in _asked(draw)]
        out = getattr(_latent(impl, draw), road)(*given, mask)
        out.square().sum().backward()
        said[road] = [out[:, :, 1], out[:, :, 2], given[2].grad]
    return said


def test_latent_attention_refuses(impl, draw):
    """Sizes below 1 and a rope for another size raise a ValueError that names them, as does a mask that does not fit.

    With a cache, look at causal and mask before update: what is refused leaves the cache as it was.
    """
    names, said = ["d_model", "heads", "kv_rank", "nope_dim", "rope_dim", "value_dim", "q_rank"], {}
    for i in range(7):
        sizes = (draw.ints(4, 7) + 2).tolist()
        for sizes[i] in (0, -1 - int(draw.ints(4))):
            said[f"{names[i]} {sizes[i]}"] = raises(
                ValueError, lambda: impl.MultiHeadLatentAttention(*sizes), names=names[i])
    said["sizes of 1"] = accepts(lambda: impl.MultiHeadLatentAttention(1, 1, 1, 1, 1, 1, 1))
    size = 2 * int(draw.ints(9)) + 6
    said["rope"] = raises(ValueError, lambda: _latent(impl, draw, rope=impl.RoPE(size, 9)), names="rope")
    attention, cache, x = _latent(impl, draw), impl.LatentCache(2, 6, 13, 4, draw.float, draw.device), draw(2, 3, 9)
    with torch.no_grad():
        attention(x, cache=cache)
        mask = torch.ones(2, 1, 3, 5, dtype=torch.bool, device=draw.device)
        said["mask"] = raises(ValueError, lambda: attention(x, mask, cache=cache), names="mask")
        attention.causal = False
        said["causal"] = raises(ValueError, lambda: attention(x, cache=cache), names="causal")
        attention.causal = True
        said["then"] = [cache.length, attention(x, cache=cache)]
    return said


@points(2)
def test_convert_deepseek(impl, draw):
    """DeepSeek's tensors get our names, and the rows that RoPE turns our order: even features first, then odd ones.

    The last rope_dim rows of every head of the queries, and the last rope_dim of kv_down; all other rows stay. Names
    may have a prefix.
    """
    heads, d = 2 + int(draw.ints(3)), 5
    theirs = {"q_a_proj.weight": draw(4, d), "q_a_layernorm.weight": draw(4), "q_b_proj.weight": draw(heads * 10, 4),
              "kv_a_proj_with_mqa.weight": draw(13, d), "kv_a_layernorm.weight": draw(7),
              "kv_b_proj.weight": draw(heads * 8, 7), "o_proj.weight": draw(d, heads * 3)}
    prefix = "model.layers.3.self_attn."
    ours = impl.convert_deepseek(theirs, heads, 6)
    named = impl.convert_deepseek({prefix + name: x for name, x in theirs.items()} | {"lm_head.weight": draw(3, d)},
                                  heads, 6)
    return {"converted": ours, "names": sorted(named), "q_proj": impl.convert_deepseek(
        {"q_proj.weight": draw(heads * 10, d)}, heads, 4), "kv_down": named.get(prefix + "kv_down.weight")}


def test_convert_deepseek_refuses(impl, draw):
    """heads that do not divide the rows, and a rope_dim that is odd or too large, raise a ValueError that names them.

    Say it before rearranging: einops' own error names neither.
    """
    heads, odd = 3 + int(draw.ints(4)), 1 + 2 * int(draw.ints(3))
    rows = {"q_b_proj.weight": draw(10 * heads, 3)}
    return {f"{wrong} heads": raises(ValueError, lambda: impl.convert_deepseek(rows, wrong, 2), names="heads")
            for wrong in (10 * heads + 1, 0)} | {
        f"rope_dim {wrong}": raises(ValueError, lambda: impl.convert_deepseek(rows, heads, wrong), names="rope_dim")
        for wrong in (odd, 12, 0, -2)} | {"all": impl.convert_deepseek(rows, heads, 10)}


# -- sinks that are learned

@points(3)
def test_attention_with_sinks(impl, draw):
    """A sink is one more score of each head, with no value: the keys' weights sum to less than 1.

    Put the head's sink behind its scores as one more column, take the softmax, and drop that column.
    """
    q, k, v = _qkv(draw)
    return {"all": impl.attention_with_sinks(q, k, v, draw(6)),
            "causal": impl.attention_with_sinks(q, k, v, draw(6, scale=2.0), _causal(draw, 5, 8)),
            "as many key heads": impl.attention_with_sinks(*_qkv(draw, heads=3, kv_heads=3), draw(3)),
            "no batch": impl.attention_with_sinks(*(x[0] for x in _qkv(draw)), draw(6))}


@points(2)
def test_extreme_sinks(impl, draw):
    """A sink of −∞ changes nothing, one far above all scores takes everything, and neither gives NaN or infinity.

    Nor do gradients. The maximum that softmax subtracts must see the sink too: join first, then softmax.
    """
    q, k, v = _qkv(draw)
    far = ((draw.ints(17, *x.shape) - 8).to(draw.float) * unit for x, unit in ((q, 125), (k, 0.125)))   # exact scores
    said = {"scores near 1,000": impl.attention_with_sinks(*far, v, draw(6, scale=500.0).round())}
    for sink in (-torch.inf, -1e4, 200.0, 1e4):
        sinks = torch.full((6,), sink, device=draw.device, dtype=draw.float)
        q.grad, out = None, impl.attention_with_sinks(q.requires_grad_(), k, v, sinks)
        (out * draw(2, 6, 5, 3)).sum().backward()
        said[f"{sink}"] = [out, q.grad]
    return said


@points(2)
def test_sink_gradients(impl, draw):
    """Gradients reach the sinks, one for each head, and q, k and v.

    A sink learns from what it takes away. Nothing is detached.
    """
    given = [*_qkv(draw), draw(6)]
    for x in given:
        x.requires_grad_()
    (impl.attention_with_sinks(*given, _causal(draw, 5, 8)) * draw(2, 6, 5, 3)).sum().backward()
    return dict(zip(("q", "k", "v", "sinks"), (x.grad for x in given)))


def test_sinks_and_masks(impl, draw):
    """A query that may look nowhere gives zeros: the sink takes all. Masks of any axes broadcast.

    The mask hides keys, and never the sink's column.
    """
    q, k, v = _qkv(draw)
    mask = draw.ints(2, 2, 6, 5, 8).bool()
    mask[:, :, 2] = False
    return {"each head's": impl.attention_with_sinks(q, k, v, draw(6), mask),
            "one row's": impl.attention_with_sinks(q, k, v, draw(6), mask[1, :1]),
            "the keys'": impl.attention_with_sinks(q, k, v, draw(6), mask[0, 0, 0]),
            "does not fit": raises(ValueError, lambda: impl.attention_with_sinks(q, k, v, draw(6), mask[..., :7]),
                                   names="mask")}


@dtypes("bfloat16", "float16", "float64")
def test_sinks_dtype(impl, draw, dtype):
    """Computed in at least float32 and returned in the dtype of q, whatever the dtype of the sinks.

    The given widen; the sinks are brought to the scores' dtype.
    """
    q, k, v = (x.to(dtype) for x in _qkv(draw))
    outs = [impl.attention_with_sinks(q, k, v, draw(6).to(other)) for other in (dtype, torch.float32, torch.float64)]
    far = impl.attention_with_sinks(torch.full_like(q, 30), 30 + k.sign() / 8, v, torch.full_like(draw(6), 1800))
    return {"outs": outs, "scores near 1,800": far, "dtype": [str(x.dtype) for x in (*outs, far)]}


@points(2)
def test_sink_attention(impl, draw):
    """gpt-oss's layer is lesson 11's with one more parameter, sinks, of zeros at first: windows and caches as ever.

    Override attend alone: _visible gives the mask, o_proj takes the heads side by side.
    """
    said, x = {}, draw(2, 9, 8)
    for window in (None, 3):
        attention = impl.SinkAttention(8, 4, 2, 6, rope=impl.RoPE(6, 64), window=window, qkv_bias=True)
        said[f"state, window={window}"] = [shapes(attention.state_dict()), attention.sinks.tolist()]
        draw.fill(attention)
        cache = (impl.KVCache(2, 2, 9, 6, draw.float, draw.device) if window is None
                 else impl.RollingKVCache(2, 2, 3, 6, draw.float, draw.device))
        mask = draw.ints(3, 2, 1, 1, 9).bool()
        said |= {f"at once, window={window}": attention(x), f"masked, window={window}": attention(x, mask),
                 f"in pieces, window={window}": _pieces(attention, cache, x, (4, 1, 1, 3), mask)}
    return said


# -- sinks that are kept

def _streamed(impl, draw, dtype, sinks, window, cuts):
    """What a SinkCache returns at each update, and its length."""
    cache, said = impl.SinkCache(2, 3, sinks, window, 4, dtype, draw.device), {}
    for number, q in enumerate(cuts, 1):
        k, v = cache.update(draw(2, 3, q, 4).to(dtype), draw(2, 3, q, 4).to(dtype))
        said[f"update {number}, {q} new"] = [k, v, cache.length]
    return said


@points(2)
@dtypes("float32", "bfloat16")
def test_sink_cache(impl, draw, dtype):
    """A SinkCache gives the first `sinks` positions and the last `window`, oldest first, and drops all between.

    The sinks' slots are never written again; the rest is a ring, as in lesson 11. length counts all that was seen.
    """
    return _streamed(impl, draw, dtype, 2, 4, (1,) * 13)


@points(2)
def test_sink_cache_chunks(impl, draw):
    """Of q new positions the first query sees the sinks and window − 1 others: sinks + window − 1 + q come back.

    Also where a chunk reaches from the sinks to past the window. Put the answer together before the ring takes the
    new ones in.
    """
    return {f"{sinks} sinks, window {window}": _streamed(impl, draw, draw.float, sinks, window, cuts)
            for sinks, window, cuts in ((2, 4, (1, 3, 1, 9, 1, 1, 6)), (3, 2, (20, 1, 1)), (0, 3, (2, 3, 1, 1)),
                                        (4, 1, (2, 5, 1, 2)))}


def test_sink_cache_memory(impl, draw):
    """A SinkCache holds sinks + window positions, however many it has seen; what it returns is its own.

    Storage is made once, and position p lies in slot sinks + (p − sinks) mod window of it, a sink in its own. What
    update gave stays as it was when the ring goes on, so it is no view.
    """
    cache, after = impl.SinkCache(1, 2, 2, 5, 3, draw.float, draw.device), {}
    storage = cache.keys, cache.values
    first = cache.update(draw(1, 2, 50, 3), draw(1, 2, 50, 3))
    before = [x.clone() for x in first]
    for q in (1, 1, 7):
        cache.update(draw(1, 2, q, 3), draw(1, 2, q, 3))
    after["unchanged"] = [bool(torch.equal(a, b)) for a, b in zip(first, before)]
    after["storage"] = [shares_memory(a, b) for a, b in zip(storage, (cache.keys, cache.values))]
    after["slots"] = [x.clone() for x in (cache.keys, cache.values)]
    cache.reset()
    return after | {"numbers": [x.numel() for x in storage], "length": cache.length,
                    "anew": cache.update(draw(1, 2, 3, 3), draw(1, 2, 3, 3))}


def test_sink_cache_refuses(impl, draw):
    """Bad sizes, and keys or values that do not fit, raise a ValueError that names them; 0 sinks are fine.

    cache_must_fit, before anything is written.
    """
    said, names = {}, ["batch", "kv_heads", "sinks", "window", "head_dim"]
    for i in range(5):
        sizes = (draw.ints(3, 5) + 1).tolist()
        sizes[i] = -1 - int(draw.ints(3))
        said[names[i]] = raises(ValueError, lambda: impl.SinkCache(*sizes), names=names[i])
        sizes[i] = 0
        said[f"{names[i]} of 0"] = accepts(lambda: impl.SinkCache(*sizes)) if i == 2 \
            else raises(ValueError, lambda: impl.SinkCache(*sizes), names=names[i])
    cache, good = impl.SinkCache(2, 3, 1, 2, 4, draw.float, draw.device), draw(2, 3, 2, 4)
    said |= {what: raises(ValueError, lambda: cache.update(k, v), names=name) for what, k, v, name in (
        ("one row", good[:1], good, "k"), ("one head", good, good[:, :1], "v"),
        ("dtype", good, good.to(torch.float16), "v"), ("gradients", good.clone().requires_grad_(), good, "k"))}
    made = impl.SinkCache(1, 1, 1, 1, 1, torch.float16, "meta")
    return said | {"length": cache.length, "then": cache.update(good, good),
                   "made": [str(x) for x in (impl.SinkCache(1, 1, 1, 1, 1).keys.dtype, made.keys.device.type,
                                             made.values.device.type)]}


@points(3)
def test_streaming_attention(impl, draw):
    """A single query stands behind all keys of the cache, at the place that this makes, and sees all of them.

    RoPE turns key i of the cache to place i and the query to the last place, wherever in the text they come from.
    """
    rope, said = impl.RoPE(6, 40).to(draw.device), {}
    for sinks, window in ((2, 5), (0, 7), (4, 3)):
        q, k, v = draw(2, 4, 1, 6), draw(2, 2, 7, 6), draw(2, 2, 7, 6)
        said[f"{sinks} sinks, window {window}"] = impl.streaming_attention(q, k, v, rope, sinks, window)
    return said | {"young": impl.streaming_attention(q, k[:, :, :4], v[:, :, :4], rope, 2, 9)}


@points(3)
def test_streaming_chunks(impl, draw):
    """Each query of a chunk sees the sinks as the last of a full cache, and its window at the real distances.

    A query at index i stands at min(i, sinks + window − 1) towards the sinks. Two sets of scores, and torch.where
    chooses by key. It may look back: at a sink from anywhere, at others from less than window away.
    """
    rope, said = impl.RoPE(6, 40).to(draw.device), {}
    for sinks, window, n, q_len in ((2, 5, 12, 6), (2, 5, 14, 14), (0, 3, 7, 5), (3, 1, 8, 5), (2, 30, 9, 9)):
        q, k, v = draw(2, 4, q_len, 6), draw(2, 2, n, 6), draw(2, 2, n, 6)
        said[f"{sinks} sinks, window {window}, {q_len} of {n}"] = impl.streaming_attention(q, k, v, rope, sinks, window)
    return said


@points(2)
def test_streaming_through_the_cache(impl, draw):
    """Token by token through a SinkCache, a text of any length gives what its chunks give.

    Keys go into the cache before RoPE, and are turned to their places in it each time.
    """
    rope = impl.RoPE(6, 12)
    attention = draw.fill(impl.StreamingAttention(8, 4, 2, 6, rope=rope, sinks=2, window=5))
    x, said = draw(2, 16, 8), {}
    for cuts in ((1,) * 16, (16,), (5, 1, 1, 9)):
        said[f"{cuts[:3]}"] = _pieces(attention, impl.SinkCache(2, 2, 2, 5, 6, draw.float, draw.device), x, cuts)
    return said


@dtypes("bfloat16", "float64")
def test_streaming_dtype(impl, draw, dtype):
    """Streaming attention answers in the dtype of q, computed in at least float32 once RoPE has turned.

    The given widen; RoPE gives back the dtype that it was given.
    """
    q, k, v = (draw(1, heads, n, 6).to(dtype) for heads, n in ((4, 3), (2, 9), (2, 9)))
    exact = 10_000.0 ** -(torch.arange(3, dtype=torch.float64) / 3)     # so that its tables round nothing away
    return impl.streaming_attention(q, k, v, impl.RoPE(6, 20, frequencies=exact).to(draw.device), 1, 4)


# -- sparse attention

@points(2)
def test_index_scores(impl, draw):
    """I[t, s] = Σ_j weights[t, j] · ReLU(q[j, t] · k[s]): a few heads, and one key for all of them.

    ReLU before the sum over heads: a head may add or take away, by its weight, but only where it fires.
    """
    return {"a batch": impl.index_scores(draw(2, 3, 4, 5), draw(2, 6, 5), draw(2, 4, 3)),
            "none": impl.index_scores(draw(3, 4, 5), draw(6, 5), draw(4, 3)),
            "one head": impl.index_scores(draw(2, 1, 4, 5), draw(2, 6, 5), draw(2, 4, 1))}


@dtypes("bfloat16", "float16", "float64")
def test_index_scores_dtype(impl, draw, dtype):
    """Index scores are computed and returned in at least float32: nearly equal ones must not tie.

    widen q, k and weights before the products.
    """
    q, k, weights = draw(2, 3, 4, 5).to(dtype), draw(2, 6, 5).to(dtype), draw(2, 4, 3).to(dtype)
    return impl.index_scores(q, k, weights)


@points(3)
def test_sparse_attention(impl, draw):
    """Each query reads the top_k keys of its largest index scores, all heads the same ones, and no others.

    topk gives the ids for every query; take those keys and values, and attend over them as ever.
    """
    (q, k, v), scores = _qkv(draw), draw(2, 5, 8)
    return {f"top_k={n}": impl.sparse_attention(q, k, v, scores, n) for n in (1, 3)} | {
        "as many key heads": impl.sparse_attention(*_qkv(draw, heads=3, kv_heads=3), scores, 4),
        "no batch": impl.sparse_attention(*(x[0] for x in _qkv(draw)), scores[0], 2)}


@points(2)
def test_sparse_is_full(impl, draw):
    """With top_k at the number of keys, or far above it, sparse attention is full attention.

    topk refuses more than there are: min(top_k, keys).
    """
    (q, k, v), scores = _qkv(draw), draw(2, 5, 8)
    return {f"top_k={n}": impl.sparse_attention(q, k, v, scores, n, mask)
            for n, mask in ((8, None), (10**9, _causal(draw, 5, 8)))}


@points(2)
def test_sparse_masks(impl, draw):
    """Keys that the mask hides are not chosen, and a query that sees fewer than top_k reads those alone.

    Hide their index scores before topk, and again what topk had to fill up with. A query that sees nothing gives
    zeros.
    """
    (q, k, v), scores = _qkv(draw), draw(2, 5, 8)
    mask = draw.ints(2, 2, 1, 5, 8).bool()
    mask[:, :, 3], mask[:, :, 4] = False, True
    mask[:, :, 2], mask[:, :, 2, 5] = False, True
    return {"each row's": impl.sparse_attention(q, k, v, scores, 3, mask),
            "causal": impl.sparse_attention(q, k, v, scores, 3, _causal(draw, 5, 8)),
            "the keys'": impl.sparse_attention(q, k, v, scores, 3, mask[0, 0, 1]),
            "no batch": impl.sparse_attention(q[1], k[1], v[1], scores[1], 3, mask[1]),
            "does not fit": [raises(ValueError, lambda: impl.sparse_attention(q, k, v, scores, 3, wrong), names="mask")
                             for wrong in (mask[..., :7], mask.expand(2, 6, 5, 8), mask.expand(2, 2, 5, 8))]}


@points(3)
@devices("cpu")
def test_sparse_work(impl, draw):
    """Only chosen keys are multiplied: four times the keys take as many products, and no more of them.

    A mask over full attention gives the right numbers at the full price. (Counted are the products of matrices.)
    """
    said, products = {}, []
    for n in (40, 160):
        q, k, v = _qkv(draw, q=3, k=n)
        with torch.no_grad(), Operations() as operations:
            said[f"{n} keys"] = impl.sparse_attention(q, k, v, draw(2, 3, n), 5)
        products.append(operations.multiply_adds)
    return said | {"as many products": products[0] == products[1], "few": products[0] <= 2 * 6 * 3 * 5 * (4 + 3)}


@points(2)
def test_sparse_gradients(impl, draw):
    """Gradients reach q, and of k and v the positions that were read; the choice itself has none.

    What topk chooses are whole numbers: the indexer is trained by a loss of its own.
    """
    given, scores = list(_qkv(draw)), draw(2, 5, 8).requires_grad_()
    for x in given:
        x.requires_grad_()
    (impl.sparse_attention(*given, scores, 2, _causal(draw, 5, 8)) * draw(2, 6, 5, 3)).sum().backward()
    return {name: x.grad.flatten() for name, x in zip("qkv", given)} | {"the scores have none": scores.grad is None}


@dtypes("bfloat16", "float16", "float64")
def test_sparse_dtype(impl, draw, dtype):
    """Sparse attention is computed in at least float32 and answers in the dtype of q.

    widen queries, keys and values behind the choice; the index scores choose in their own dtype.
    """
    q, k, v = (x.to(dtype) for x in _qkv(draw))
    scores = draw.ints(2**20, 2, 5, 8).to(draw.float)
    return {"all alike": impl.sparse_attention(q, k, v, scores, 3),
            "scores near 1,800": impl.sparse_attention(torch.full_like(q, 30), 30 + k.sign() / 8, v, scores, 6)}


def test_sparse_refuses(impl, draw):
    """top_k below 1 and key heads that do not divide the heads raise a ValueError that names them.

    Asked of both functions with grouped heads: kv_heads is what attention_with_sinks names, too.
    """
    (q, k, v), scores, below = _qkv(draw), draw(2, 5, 8), -1 - int(draw.ints(5))
    _, k4, v4 = _qkv(draw, kv_heads=4)
    return {"top_k": [raises(ValueError, lambda: impl.sparse_attention(q, k, v, scores, low), names="top_k")
                      for low in (0, below)],
            "kv_heads": raises(ValueError, lambda: impl.sparse_attention(q, k4, v4, scores, 2), names="kv_heads"),
            "sinks": raises(ValueError, lambda: impl.attention_with_sinks(q, k4, v4, draw(6)), names="kv_heads"),
            "right": impl.sparse_attention(q, k, v, scores, 1)}
