"""What lesson 11 asks of KVCache, RollingKVCache, CachedAttention and cache_bytes."""

import torch

from grader import accepts, dtypes, points, raises, shares_memory

FORBIDDEN = {"CachedAttention": {
    "torch.nn.MultiheadAttention", "torch.nn.functional.multi_head_attention_forward",
    "torch.nn.functional.scaled_dot_product_attention"}}


def _both(impl, draw):
    """An empty cache of each kind for a batch of 2, 3 KV heads and head_dim 4."""
    return {"KVCache": impl.KVCache(2, 3, 8, 4, draw.float, draw.device),
            "RollingKVCache": impl.RollingKVCache(2, 3, 4, 4, draw.float, draw.device)}


def _rolled(impl, draw, dtype, window, cuts):
    """What a RollingKVCache returns at each update, and its length."""
    cache = impl.RollingKVCache(1, 2, window, 3, dtype, draw.device)
    said = {}
    for number, q in enumerate(cuts, 1):
        k, v = cache.update(draw(1, 2, q, 3).to(dtype), draw(1, 2, q, 3).to(dtype))
        said[f"update {number}, {q} new"] = {"keys": k, "values": v, "length": cache.length}
    return said


def _attention(impl, draw, **options):
    """A small CachedAttention, 4 query heads on 2 KV heads of size 6, with RoPE."""
    rope = impl.RoPE(6, 64)
    return draw.fill(impl.CachedAttention(8, 4, 2, head_dim=6, rope=rope, **options))


def _decode(attention, cache, x, cuts, mask=None, positions=None):
    """x through attention in pieces of the sizes `cuts`, put together again."""
    out, start = [], 0
    with torch.no_grad():
        for end in torch.tensor(cuts).cumsum(0).tolist():
            out.append(attention(
                x[:, start:end], None if mask is None else mask[..., :end],
                None if positions is None else positions[..., start:end], cache))
            start = end
    return torch.cat(out, dim=1)


@points(2)
@dtypes("float32", "bfloat16")
def test_update(impl, draw, dtype):
    """update gives back all keys and values so far, the new ones behind the old ones.

    Write into storage[:, :, length : length + q], then move length on, and return what is filled:
    no more and no less.
    """
    cache, said = impl.KVCache(2, 3, 8, 4, dtype, draw.device), {}
    for number, q in enumerate((3, 1, 2), 1):
        k, v = cache.update(draw(2, 3, q, 4).to(dtype), draw(2, 3, q, 4).to(dtype))
        said[f"update {number}, {q} new"] = {"keys": k, "values": v, "length": cache.length}
    return said


@points(2)
def test_storage_is_allocated_once(impl, draw):
    """Whatever update returns lies in one storage, which is as old as the cache.

    torch.cat makes a new tensor and copies every old key, at every token. Write the new positions
    into the storage that __init__ made, and return a slice of it: a slice is a view.
    """
    cache, new = impl.KVCache(1, 2, 8, 4, draw.float, draw.device), draw(1, 2, 3, 4)
    first, second = cache.update(new, new), cache.update(draw(1, 2, 1, 4), draw(1, 2, 1, 4))
    return {"keys": second[0], "keys share memory with the keys before": shares_memory(first[0], second[0]),
            "values share memory with the values before": shares_memory(first[1], second[1]),
            "keys share memory with what was given": shares_memory(first[0], new)}


@points(2)
def test_overflow(impl, draw):
    """Where there is no room, update raises a ValueError that names capacity, and changes nothing.

    A full cache takes no position more. Compare before you write or count: a slice past the end
    is empty, and torch writes one position into an empty slice without a word.
    """
    cache, said = impl.KVCache(1, 2, 5, 3, draw.float, draw.device), {}
    for q, fits in ((3, True), (4, False), (2, True), (1, False)):
        k, v = draw(1, 2, q, 3), draw(1, 2, q, 3)
        said[f"{q} more"] = accepts(lambda: cache.update(k, v)) if fits else raises(
            ValueError, lambda: cache.update(k, v), names="capacity")
        said[f"length after {q} more"] = cache.length
    if cache.length == 5:
        cache.rewind(1)
        said["keys"], said["values"] = cache.update(draw(1, 2, 1, 3), draw(1, 2, 1, 3))
    return said


@points(2)
def test_refuses_what_does_not_fit(impl, draw):
    """k and v of another shape or dtype raise a ValueError that names k or v, in both caches.

    `cache_must_fit` does it: call it first. Without it a batch of 1 would be written to every row, and
    float64 would silently be rounded. Write no k before v has been looked at: what is refused changes nothing.
    """
    said, good = {}, draw(2, 3, 2, 4)
    other = torch.float16
    for name, cache in _both(impl, draw).items():
        cache.update(draw(2, 3, 6, 4), draw(2, 3, 6, 4))
        before = cache.length
        said[name] = {what: raises(ValueError, lambda: cache.update(k, v), names=wrong)
                      for what, k, v, wrong in (
                          ("k of one row", draw(1, 3, 2, 4), good, "k"),
                          ("v of one head", good, draw(2, 1, 2, 4), "v"),
                          ("k of another head_dim", draw(2, 3, 2, 1), good, "k"),
                          ("v of more positions than k", good, draw(2, 3, 3, 4), "v"),
                          ("k of another dtype", good.to(other), good, "k"),
                          ("v of another dtype", good, good.to(other), "v"))}
        said[f"{name}, length has changed"] = cache.length != before
        said[f"{name}, keys"], said[f"{name}, values"] = cache.update(good[:, :, :1], good[:, :, 1:])
    return said


def test_refuses_gradients(impl, draw):
    """A k or v that records gradients raises a ValueError; under torch.no_grad() it is taken.

    Written into the storage, its graph would be held as long as the cache. `cache_must_fit` does it.
    """
    said = {}
    for name, cache in _both(impl, draw).items():
        k, v = draw(2, 3, 1, 4).requires_grad_(), draw(2, 3, 1, 4)
        said[name] = [raises(ValueError, lambda: cache.update(k, v), names="k"),
                      raises(ValueError, lambda: cache.update(v, k), names="v")]
        with torch.no_grad():
            said[f"{name} under no_grad"] = cache.update(k, v)
    return said


def test_a_layer_with_gradients_is_refused(impl, draw):
    """A layer that records gradients and is given a cache raises the cache's ValueError, which names k.

    Hand on what project returns. A .detach() would hide from a training loop that nothing reaches the keys.
    """
    attention, x = _attention(impl, draw, window=3), draw(2, 3, 8)
    return {type(cache).__name__: raises(ValueError, lambda: attention(x, cache=cache), names="k")
            for cache in (impl.KVCache(2, 2, 4, 6, draw.float, draw.device),
                          impl.RollingKVCache(2, 2, 3, 6, draw.float, draw.device))}


def test_rewind(impl, draw):
    """rewind(n) drops the last n positions, and the next update writes over them.

    Nothing has to be erased: what lies behind length is never read. n may be all of them.
    """
    cache, said = impl.KVCache(1, 2, 8, 3, draw.float, draw.device), {}
    for n, q in ((0, 6), (1, 2), (7, 2)):
        cache.rewind(n)
        k, v = cache.update(draw(1, 2, q, 3), draw(1, 2, q, 3))
        said[f"rewind({n}), {q} new"] = {"length": cache.length, "keys": k, "values": v}
    return said


def test_rewind_too_far(impl, draw):
    """rewind of more positions than there are raises a ValueError that names n; length stays.

    A negative length would make the next slices count from the end.
    """
    cache, filled = impl.KVCache(1, 2, 8, 3, draw.float, draw.device), 3 + int(draw.ints(5))
    cache.update(draw(1, 2, filled, 3), draw(1, 2, filled, 3))
    said = {}
    for n in (filled + 1, 1 + int(draw.ints(filled)), filled):
        said[f"rewind({n}) of {cache.length}"] = accepts(lambda: cache.rewind(n)) if n <= cache.length \
            else raises(ValueError, lambda: cache.rewind(n), names="n")
        said[f"length after rewind({n})"] = cache.length
    return said


def test_reset(impl, draw):
    """After reset a cache is as good as new: length is 0, and the first position comes first.

    Set length back. The storage may keep its old numbers, and it stays the same: a new one is memory and time.
    """
    said = {}
    for name, cache in _both(impl, draw).items():
        cache.update(draw(2, 3, 8, 4), draw(2, 3, 8, 4))
        before = cache.keys, cache.values
        cache.reset()
        said[name] = [cache.length, *cache.update(draw(2, 3, 2, 4), draw(2, 3, 2, 4))]
        said[f"{name}, keys and values in the old storage"] = [
            shares_memory(old, new) for old, new in zip(before, (cache.keys, cache.values))]
    return said


def test_bad_sizes(impl, draw):
    """A size below 1 raises a ValueError that names it, as the cache is made.

    `at_least_one(batch=batch, …)` names the first size that is too small. Sizes of 1 are taken.
    """
    said = {"all sizes 1": [accepts(lambda: kind(1, 1, 1, 1)) for kind in (impl.KVCache, impl.RollingKVCache)]}
    for kind, length in ((impl.KVCache, "capacity"), (impl.RollingKVCache, "window")):
        names = ["batch", "kv_heads", length, "head_dim"]
        for i in draw.uniform(4).argsort().tolist():
            sizes = (draw.ints(3, 4) + 1).tolist()
            said[f"{kind.__name__}{tuple(sizes)}"] = accepts(lambda: kind(*sizes))
            for sizes[i] in (0, -1 - int(draw.ints(3))):
                said[f"{kind.__name__}{tuple(sizes)}"] = raises(ValueError, lambda: kind(*sizes), names=names[i])
    return said


def test_device(impl, draw):
    """Both caches make their keys and values on the device that they are given.

    A cache on the CPU cannot take in what a GPU computed. torch.zeros takes device=… . (Asked with
    torch's "meta" device, which every machine has; without a device it is torch's default.)
    """
    return {f"{kind.__name__}, device={device}": [storage.device.type for cache in [kind(1, 2, 3, 4, device=device)]
                                                  for storage in (cache.keys, cache.values)]
            for kind in (impl.KVCache, impl.RollingKVCache) for device in ("meta", None)}


@points(2)
@dtypes("float32", "bfloat16")
def test_rolling_token_by_token(impl, draw, dtype):
    """RollingKVCache gives the last `window` positions, oldest first; fewer while it is young.

    Position p lies in slot p mod window. Once the ring is full, the oldest position to return is in
    the slot behind the one to be written next: from there to the end, then from the start.
    """
    return _rolled(impl, draw, dtype, 4, (1,) * 11)


@points(2)
def test_rolling_chunks(impl, draw):
    """Of q new positions the first query sees window − 1 old ones: window − 1 + q come back.

    The old ones in order, then all new ones, also where q is above window. Only then does the ring
    take in the last `window` of them.
    """
    return _rolled(impl, draw, draw.float, 4, (2, 3, 1, 9, 1, 4, 6, 2))


def test_rolling_memory(impl, draw):
    """A RollingKVCache holds on to little more than its window, however much it has seen.

    Twice the window is allowed. A view of what update returned, kept as an attribute, keeps all
    of a long prompt alive: copy into storage of a fixed size.
    """
    cache = impl.RollingKVCache(1, 2, 4, 3, draw.float, draw.device)
    for q in (50, 1, 1, 1, 50):
        k, _ = cache.update(draw(1, 2, q, 3), draw(1, 2, q, 3))
    held, left = {}, list(vars(cache).values())
    while left:
        thing = left.pop()
        if isinstance(thing, (list, tuple)):
            left += thing
        elif isinstance(thing, torch.Tensor):
            held[thing.untyped_storage().data_ptr()] = thing.untyped_storage().nbytes()
    return sum(held.values()) <= 2 * (2 * 4 * 2 * 3 * k.element_size())


@points(3)
def test_prefill_then_tokens(impl, draw):
    """A prompt at once and then token by token gives what one forward pass gives at each position.

    Without positions the new tokens stand at cache.length, cache.length + 1, … : read it before
    update moves it on. Then project the new tokens, update the cache, attend over what it returns.
    """
    cache = impl.KVCache(2, 2, 9, 6, draw.float, draw.device)
    return _decode(_attention(impl, draw), cache, draw(2, 9, 8), (4, 1, 1, 1, 1, 1))


@dtypes("bfloat16", "float16")
def test_attention_in_half_precision(impl, draw, dtype):
    """A layer in half precision, with a cache in half precision, answers in it.

    Everything keeps the dtype of x; cast nothing in forward. (Here all values are positive, so that
    rounding errors stay small.)
    """
    attention, x = _attention(impl, draw), draw.uniform(2, 7, 8)
    with torch.no_grad():
        attention.v_proj.weight.abs_()
        attention.o_proj.weight.abs_()
    cache = impl.KVCache(2, 2, 7, 6, dtype, draw.device)
    return _decode(attention.to(dtype), cache, x.to(dtype), (3, 1, 1, 2))


@points(2)
def test_chunks(impl, draw):
    """A chunk of new tokens sees everything before it, and in itself only what is not later.

    The queries are the last of the keys. attend makes that mask by itself.
    """
    attention, x = _attention(impl, draw), draw(2, 9, 8)
    return {f"chunks of {cuts}": _decode(
                attention, impl.KVCache(2, 2, 9, 6, draw.float, draw.device), x, cuts)
            for cuts in ((2, 3, 4), (1, 8))}


@points(2)
def test_rolling_attention(impl, draw):
    """With a window, a rolling cache and a full one both give what one forward pass gives.

    attend cuts the window out of whatever keys there are, counted from the end. There is nothing
    to tell the two caches apart in forward but a check that the ring is wide enough.
    """
    attention, x, cuts = _attention(impl, draw, window=3), draw(1, 11, 8), (2, 1, 5, 1, 2)
    return {"RollingKVCache": _decode(
                attention, impl.RollingKVCache(1, 2, 3, 6, draw.float, draw.device), x, cuts),
            "a wider one": _decode(
                attention, impl.RollingKVCache(1, 2, 5, 6, draw.float, draw.device), x, cuts),
            "KVCache": _decode(
                attention, impl.KVCache(1, 2, 11, 6, draw.float, draw.device), x, cuts)}


@points(2)
def test_left_padding(impl, draw):
    """Rows padded on the left, with a mask that hides the padding, give what each gives alone.

    Hand the mask on to attend as it came: its columns are all keys so far, and attend takes the
    last ones where a rolling cache returns fewer.
    """
    x, cuts = draw(2, 8, 8), (5, 1, 2)
    padding = torch.tensor([0, 3], device=draw.device)[:, None]
    places = torch.arange(8, device=draw.device)
    mask, positions = (places >= padding)[:, None, None], (places - padding).clamp(min=0)
    full = _decode(_attention(impl, draw),
                   impl.KVCache(2, 2, 8, 6, draw.float, draw.device), x, cuts, mask, positions)
    rolling = _decode(_attention(impl, draw, window=4),
                      impl.RollingKVCache(2, 2, 4, 6, draw.float, draw.device), x, cuts, mask, positions)
    return {"row 0": full[0], "row 1, its own tokens": full[1, 3:],
            "row 0, rolling": rolling[0], "row 1, its own tokens, rolling": rolling[1, 3:]}


@points(2)
def test_evaluated_and_a_second_text(impl, draw):
    """For a second text in new caches, and in eval mode, pieces give what the whole text gives.

    A layer keeps nothing of an earlier call: no positions, no mask, no cache. What there is to be remembered is in the
    cache that it is given.
    """
    said, places = {}, torch.arange(7, device=draw.device)
    for name, window in (("KVCache", None), ("RollingKVCache", 3)):
        attention = _attention(impl, draw, window=window, qk_norm=True)
        for text, training, cuts in (("first", True, (3, 1, 1, 1, 1)), ("second", False, (1, 1, 4, 1))):
            attention.train(training)
            cache = impl.KVCache(2, 2, 7, 6, draw.float, draw.device) if window is None \
                else impl.RollingKVCache(2, 2, 3, 6, draw.float, draw.device)
            mask = places != 1 + draw.ints(5, 2, 1)         # each row hides another token
            said[f"{name}, {text} text"] = _decode(attention, cache, draw(2, 7, 8), cuts, mask[:, None, None])
    return said


def test_given_positions(impl, draw):
    """Positions that are given are used as they are, for each row its own.

    Only where positions is None does the cache's length say where the new tokens stand.
    """
    attention, x = _attention(impl, draw), draw(2, 5, 8)
    positions = 1 + draw.ints(63, 2, 5)
    return {name: _decode(attention, impl.KVCache(2, 2, 5, 6, draw.float, draw.device), x, (3, 1, 1),
                          positions=at)
            for name, at in (("for each row", positions), ("for all rows", positions[1]))}


def test_without_a_cache(impl, draw):
    """Without a cache CachedAttention is its parent: same numbers, and gradients flow.

    super().forward(x, mask, positions) is all of it.
    """
    attention, x = _attention(impl, draw, qk_norm=True), draw(2, 5, 8).requires_grad_()
    mask = torch.arange(5, device=draw.device) != 1
    positions = torch.tensor([0, 1, 4, 9, 16], device=draw.device)
    out = attention(x, mask=mask, positions=positions)
    (out * draw(2, 5, 8)).sum().backward()
    return {"output": out, "grad of x": x.grad, "grad of k_proj": attention.k_proj.weight.grad}


def test_bad_mask(impl, draw):
    """A mask that does not cover all keys so far raises a ValueError that names mask.

    It must broadcast to (batch, heads, new tokens, cache.length + new tokens): every axis of it is
    1 or fits. Look before update, so that the cache is left as it was.
    """
    attention = _attention(impl, draw)
    cache, said = impl.KVCache(2, 2, 9, 6, draw.float, draw.device), {}
    with torch.no_grad():
        attention(draw(2, 4, 8), cache=cache)
        for shape in ((2, 1, 1, 2), (4, 4), (2, 1, 1, 9), (6, 6), (3, 1, 1, 6)):
            mask, x = torch.ones(shape, dtype=torch.bool, device=draw.device), draw(2, 2, 8)
            said[f"mask of {shape}"] = raises(ValueError, lambda: attention(x, mask, cache=cache),
                                              names="mask")
        said["length"] = cache.length
        for shape in ((6,), (2, 6), (2, 1, 2, 6), (2, 4, 1, 1)):
            cache = impl.KVCache(2, 2, 9, 6, draw.float, draw.device)
            attention(draw(2, 4, 8), cache=cache)
            mask = torch.ones(shape, dtype=torch.bool, device=draw.device)
            said[f"mask of {shape}"] = attention(draw(2, 2, 8), mask, cache=cache)
    return said


def test_bad_cache(impl, draw):
    """A ring narrower than the window, or a layer that is not causal, raises a ValueError.

    It names cache, or causal. A layer without a window sees everything: no ring is wide enough.
    """
    said, x = {}, draw(1, 2, 8)
    with torch.no_grad():
        for window, fits in ((None, False), (5, False), (4, True), (3, True)):
            cache = impl.RollingKVCache(1, 2, 4, 6, draw.float, draw.device)
            attention = _attention(impl, draw, window=window)
            said[f"a ring of 4, window = {window}"] = accepts(lambda: attention(x, cache=cache)) if fits \
                else raises(ValueError, lambda: attention(x, cache=cache), names="cache")
            said[f"length, window = {window}"] = cache.length
            if fits:
                said[f"keys, window = {window}"] = cache.update(draw(1, 2, 0, 6), draw(1, 2, 0, 6))[0]
        cache = impl.KVCache(1, 2, 4, 6, draw.float, draw.device)
        encoder = _attention(impl, draw, causal=False)
        said["causal=False"] = raises(ValueError, lambda: encoder(x, cache=cache), names="causal")
        said["length, causal=False"] = cache.length
    return said


def test_cache_bytes(impl, draw):
    """cache_bytes counts keys and values of every layer, KV head, position and row of the batch.

    Two numbers for each feature of each head. bytes_per_value may be a half, 4 bits, or 0.5625 where 32 values share
    a scale: round nothing.
    """
    layers, kv_heads, head_dim, seq_len, batch = (int(n) + 2 for n in draw.ints(90, 5))
    return {"drawn": impl.cache_bytes(layers, kv_heads, head_dim, seq_len, batch, 2),
            "4.5 bits": impl.cache_bytes(1, 1, 2 * (layers % 4) + 3, 1, 1, 0.5625),
            "4 bits": impl.cache_bytes(2, 3, 4, 5, 6, 0.5),
            "no layers": raises(ValueError, lambda: impl.cache_bytes(0, 1, 1, 1, 1, 2),
                                names="layers"),
            "no bytes": raises(ValueError, lambda: impl.cache_bytes(1, 1, 1, 1, 1, 0),
                               names="bytes_per_value")}
