"""What lesson 25 asks of blocks, of the cache that is made of them, of the scheduler, and of the engine."""

import math

import torch

from grader import accepts, dtypes, points, raises

ATTENTION = {"torch.nn.functional.scaled_dot_product_attention", "torch.nn.MultiheadAttention"}
FORBIDDEN = {"paged_attention": ATTENTION}

SIZES = {"vocab_size": 12, "d_model": 8, "layers": 1, "heads": 2, "d_ff": 12, "max_seq_len": 30}


def _model(impl, draw, **changes):
    return draw.fill(impl.Transformer(impl.ModelConfig(**{**SIZES, **changes})))


def _ids(draw, size, high=12):
    return draw.ints(high, size).tolist()


def _state(allocator):
    """Who holds what, and which block is taken next."""
    return {"counts": list(allocator.counts), "free, the longest first": list(allocator.unused)}


def _cache(impl, draw, blocks=8, block_size=4, layers=1, kv_heads=1, head_dim=2):
    return impl.PagedKVCache(layers, kv_heads, head_dim, blocks, block_size, draw.float, draw.device)


def _texts(cache):
    return {"tables": {id: list(table) for id, table in cache.tables.items()}, "lengths": dict(cache.lengths),
            **_state(cache.allocator)}


def _write(cache, draw, id, n):
    """Reserve n positions of a text and write drawn keys and values into them, in all layers."""
    cache.reserve(id, n)
    layers, _, _, kv_heads, head_dim = cache.keys.shape
    slots = cache.slots(id)[None, -n:].to(draw.device)
    for layer in range(layers):
        cache.write(layer, slots, draw(1, kv_heads, n, head_dim), draw(1, kv_heads, n, head_dim))


def _read(cache, id):
    """The keys and values of a text, layer by layer."""
    slots = cache.slots(id)[None].to(cache.keys.device)
    return [cache.gather(layer, slots) for layer in range(len(cache.keys))]


def _request(impl, id, prompt, new=4, **how):
    sampling = impl.Sampling(**{"temperature": 0, **how.pop("sampling", {})})
    return impl.Request(id=id, prompt=prompt, max_new_tokens=new, sampling=sampling, **how)


def _scheduler(impl, draw, sizes, new=4, blocks=8, block_size=4, budget=100, most=100, reuse=False):
    """A scheduler for whom requests wait, with prompts of these sizes."""
    scheduler = impl.Scheduler(_cache(impl, draw, blocks, block_size), budget, most, reuse)
    for id, size in enumerate(sizes):
        scheduler.add(impl.Job(_request(impl, id, _ids(draw, size), new)))
    return scheduler


def _where(scheduler):
    return {"running": [job.id for job in scheduler.running], "waiting": [job.id for job in scheduler.waiting],
            "lengths": dict(scheduler.cache.lengths), "free blocks": len(scheduler.cache.allocator.unused),
            "counters": [scheduler.preemptions, scheduler.computed, scheduler.reused]}


def _named(plan):
    return [[job.id, n] for job, n in plan]


def _drive(scheduler, steps):
    """Plans of this many steps, in which a job whose tokens are all computed gets a token, as if there were a model."""
    seen = []
    for _ in range(steps):
        plan = scheduler.plan()
        for job, _ in plan:
            scheduler.cache.commit(job.id, job.tokens)
            if scheduler.cache.lengths[job.id] == len(job.tokens):
                job.tokens.append(job.new_tokens)
                if job.new_tokens == job.request.max_new_tokens:
                    scheduler.remove(job)
        seen.append({"plan": _named(plan), **_where(scheduler)})
    return seen


def _watch(model):
    """The ids that a model is given, a list of rows for each forward pass from now on."""
    seen = []
    model.register_forward_hook(lambda module, args, out: seen.append(args[0].tolist()))
    return seen


def _steps(engine):
    """What step gives, step by step, until nobody is left, or for ever as it seems."""
    seen = []
    while engine.unfinished and len(seen) < 60:
        seen.append([list(output) for output in engine.step()])
    return seen


def _served(engine, requests):
    """What each request gets, and what is left in the cache afterwards."""
    texts = {request.id: [] for request in requests}
    for request in requests:
        engine.add(request)
    for id, token, finished, _ in sum(_steps(engine), []):
        texts[id] += [token, finished] if finished else [token]
    return {"texts": texts, "left": [sum(engine.cache.allocator.counts), len(engine.cache.allocator.unused),
                                     len(engine.cache.tables), engine.unfinished]}


# -- blocks

def test_blocks_needed(impl, draw):
    """blocks_needed rounds up: a text of one position more than n blocks hold needs n + 1.

    `//` rounds down, and −(−a // b) up. No position needs no block. What is below 0, or a block_size below 1, is a
    ValueError that names it.
    """
    size = 2 + int(draw.ints(9))
    around = (0, 1, size - 1, size, size + 1, 5 * size + 1)
    return {"around a full block": [impl.blocks_needed(n, size) for n in around],
            "drawn": [impl.blocks_needed(int(n), size) for n in draw.ints(200, 6)],
            "refused": [raises(ValueError, lambda: impl.blocks_needed(-1, size), names="positions"),
                        raises(ValueError, lambda: impl.blocks_needed(size, 0), names="block_size")]}


def test_blocks_that_fit(impl, draw):
    """A block holds keys and values of block_size positions in all layers; one block more than is lent has to fit.

    cache_bytes of lesson 11 counts the bytes of a row of block_size positions.
    """
    config = impl.ModelConfig(vocab_size=9, d_model=8, layers=3, heads=4, kv_heads=2, head_dim=6, d_ff=4, max_seq_len=9)
    block = 2 * 3 * 2 * 6 * 5 * 4
    sizes = [2 * block, 3 * block - 1, 3 * block, *(4 * block + draw.ints(99 * block, 3)).tolist()]
    return {"blocks": [impl.blocks_that_fit(config, 5, memory, 4) for memory in sizes],
            "half precision": impl.blocks_that_fit(config, 5, sizes[-1], 2),
            "too little": [raises(ValueError, lambda: impl.blocks_that_fit(config, 5, memory, 4), names="memory")
                           for memory in (2 * block - 1, block, 0)]}


@points(2)
def test_block_hash(impl, draw):
    """A block's hash depends on its own tokens, in their order, and, by the hash before it, on all earlier ones.

    Equal texts have equal hashes, also in another list. Give every id 8 bytes: as decimal digits side by side, 1, 23
    is 12, 3; as one byte, 256 is 0.
    """
    a, b = _ids(draw, 4, 50_000), _ids(draw, 4, 50_000)
    first = impl.block_hash(b"", a)
    hashes = {"a": first, "a again": impl.block_hash(b"", list(a)), "a, reversed": impl.block_hash(b"", a[::-1]),
              "b": impl.block_hash(b"", b), "a, b": impl.block_hash(first, b),
              "b, b": impl.block_hash(impl.block_hash(b"", b), b), "1, 23": impl.block_hash(b"", [1, 23]),
              "12, 3": impl.block_hash(b"", [12, 3]), "0": impl.block_hash(b"", [0]),
              "256": impl.block_hash(b"", [256]), "65536": impl.block_hash(b"", [65536]),
              "0, 0": impl.block_hash(b"", [0, 0]),
              "1, 2": impl.block_hash(b"", [1, 2]), "2, 1": impl.block_hash(b"", [2, 1]),
              "1, 2 after a": impl.block_hash(first, [1, 2]),
              "the same sum": impl.block_hash(b"", [a[0] + a[1], 0, *a[2:]])}
    return {"equal": [[one, other] for one in hashes for other in hashes
                      if one < other and hashes[one] == hashes[other]],
            "bytes": [len(hash) for hash in hashes.values()], "a": a}


def test_allocate(impl, draw):
    """allocate lends each block once, the one that is free for the longest time first; then OutOfBlocks.

    A new allocator has the blocks in order. `popitem(last=False)` takes the first key of an OrderedDict. A refused
    call changes nothing.
    """
    blocks = 2 + int(draw.ints(5))
    allocator = impl.BlockAllocator(blocks)
    lent = [allocator.allocate() for _ in range(blocks - 1)]
    between = _state(allocator)
    lent.append(allocator.allocate())
    none = [raises(impl.OutOfBlocks, allocator.allocate) for _ in range(2)]
    return {"lent": lent, "before the last": between, "none is left": none, "after": _state(allocator)}


@points(2)
def test_share_and_free(impl, draw):
    """A shared block is free when the last of its holders has freed it, and then it is the last to be taken.

    counts goes up with share and down with free. A block joins unused, at its end, when its count reaches 0.
    """
    blocks = 4 + int(draw.ints(3))
    allocator, held, seen = impl.BlockAllocator(blocks), [], []
    for number in draw.ints(9, 25).tolist():
        if number < 4 and allocator.unused:
            held.append(allocator.allocate())
        elif number < 6 and held:
            allocator.share(held[0])
            held.append(held[0])
        elif held:
            allocator.free(held.pop(number % len(held)))
        seen.append(_state(allocator))
    return seen


@points(2)
def test_free_twice(impl, draw):
    """Freeing or sharing a block that nobody holds is a ValueError that names block, and changes nothing.

    A block freed twice would be lent to two texts at once. _must_be_held, which is given, looks at it; −1 is no block.
    """
    blocks = 3 + int(draw.ints(4))
    allocator = impl.BlockAllocator(blocks)
    one, other = allocator.allocate(), allocator.allocate()
    allocator.free(one)
    said = {f"{name} {block}": raises(ValueError, lambda: getattr(allocator, name)(block), names="block")
            for name in ("free", "share") for block in (one, blocks - 1, blocks, -1)}
    said["register"] = [raises(ValueError, lambda: allocator.register(block, b"a"), names="block")
                        for block in (one, -1, blocks)]
    allocator.share(other), allocator.free(other), allocator.free(other)
    return {**said, "a third time": raises(ValueError, lambda: allocator.free(other), names="block"),
            "after": _state(allocator), "found": allocator.reuse(b"a")}


@points(2)
def test_reuse(impl, draw):
    """reuse finds a registered block by its hash and takes it: one more holds it, and it is no longer free.

    Whether it was held or free does not matter. An unknown hash gives None, and changes nothing.
    """
    blocks = 4 + int(draw.ints(4))
    allocator, seen = impl.BlockAllocator(blocks), []
    for name in (b"a", b"b", b"c"):
        allocator.register(allocator.allocate(), name)
    for block in draw.ints(3, 2).unique().tolist():
        allocator.free(block)
    for name in (b"b", b"a", b"unknown", b"b", b"c"):
        seen.append([allocator.reuse(name), _state(allocator)])
    return seen


@points(2)
def test_hashes_of_free_blocks(impl, draw):
    """A free block is found by its hash until allocate lends it for something new: then the hash is forgotten.

    Taken are the never used blocks first, since they are free for the longest time. A block that was found, and freed
    again, is the last in the row.
    """
    blocks = 5 + int(draw.ints(3))
    allocator = impl.BlockAllocator(blocks)
    for name in (b"a", b"b", b"c"):
        allocator.register(allocator.allocate(), name)
    order = draw.uniform(3).argsort().tolist()
    for block in order:
        allocator.free(block)
    again = b"abc"[order[0]:order[0] + 1]
    allocator.free(allocator.reuse(again))
    seen = [_state(allocator)]
    for _ in range(blocks):
        allocator.allocate()
        seen.append(sorted(allocator.by_hash.items()))
    return {"seen": seen, "found": [allocator.reuse(name) for name in (b"a", b"b", b"c")],
            "hashes": dict(allocator.hashes), "after": _state(allocator)}


def test_register_a_hash_twice(impl, draw):
    """A hash that is known stays with the block that has it; the other block has none, and takes none away.

    Two texts with the same beginning may be computed in the same step. When the second one's block is lent anew, the
    first can still be found.
    """
    first = int(draw.ints(2))
    allocator = impl.BlockAllocator(2)
    blocks = [allocator.allocate(), allocator.allocate()]
    for block in (blocks[first], blocks[1 - first]):
        allocator.register(block, b"same")
    found = [allocator.reuse(b"same"), dict(allocator.hashes)]
    allocator.free(blocks[1 - first])
    allocator.allocate()
    return {"found": found, "after": [allocator.reuse(b"same"), dict(allocator.hashes)]}


# -- attention through block tables

def _paged(draw, lengths, block_size=4, kv_heads=1, blocks=None, dim=6):
    """Blocks in no order: (keys, values, tables, lengths); every block is in one table at most."""
    most = max(-(-length // block_size) for length in lengths)
    blocks = blocks or most * len(lengths) + 2
    keys, values = draw(blocks, block_size, kv_heads, dim), draw(blocks, block_size, kv_heads, dim)
    tables = draw.uniform(blocks).argsort()[:most * len(lengths)].view(len(lengths), most)
    return keys, values, tables, torch.tensor(lengths, device=draw.device)


@points(3)
def test_paged_attention(impl, draw):
    """Each row's query sees all of its row's keys, block after block as its table says, and nothing else.

    keys[tables] are (batch, blocks, block_size, kv_heads, head_dim): put blocks and places together to one axis, and
    mask what is at or behind the row's length.
    """
    keys, values, tables, lengths = _paged(draw, [5, 12, 1, 8])
    return {"four rows": impl.paged_attention(draw(4, 1, 1, 6), keys, values, tables, lengths),
            "one row": impl.paged_attention(draw(1, 1, 1, 6), keys, values, tables[1:2], lengths[1:2])}


@points(2)
def test_paged_attention_of_several_queries(impl, draw):
    """Several new queries are the last positions of their row: each sees itself and what is before it, not the next.

    Query i of q in a row of length n stands at position n − q + i.
    """
    keys, values, tables, lengths = _paged(draw, [3, 11, 6])
    return {"three": impl.paged_attention(draw(3, 1, 3, 6), keys, values, tables, lengths),
            "a whole text": impl.paged_attention(draw(1, 1, 11, 6), keys, values, tables[1:2], lengths[1:2])}


@points(2)
def test_paged_attention_of_grouped_heads(impl, draw):
    """Query heads share the heads of keys and values as in lesson 10: neighbours share one.

    grouped_attention, imported from there, does it.
    """
    keys, values, tables, lengths = _paged(draw, [7, 4], kv_heads=2)
    return impl.paged_attention(draw(2, 6, 2, 6), keys, values, tables, lengths)


def test_paged_attention_of_unused_places(impl, draw):
    """What stands behind a row's last position is not looked at, whatever it holds, be it NaN.

    A block that was held before still has its old numbers, and a table its padding. NaN times a weight of 0 is NaN:
    make the values that nobody sees 0.
    """
    keys, values, tables, lengths = _paged(draw, [6, 2])
    keys, values = keys.clone(), values.clone()
    for row, length in enumerate(lengths.tolist()):
        for place in range(length, 8):
            at = (tables[row, place // 4], place % 4)
            keys[at], values[at] = math.nan, math.nan
    return impl.paged_attention(draw(2, 2, 2, 6), keys, values, tables, lengths)


@dtypes("float16", "bfloat16", "float64")
def test_paged_attention_in_other_dtypes(impl, draw, dtype):
    """In half precision the scores and their softmax are computed in float32, and the answer has the dtype of q.

    As lesson 09's attention does.
    """
    keys, values, tables, lengths = _paged(draw, [7, 5])
    return impl.paged_attention(draw(2, 2, 1, 6).to(dtype), keys.to(dtype), values.to(dtype), tables, lengths)


def test_paged_attention_refuses(impl, draw):
    """A length below the number of queries, or above what the table has room for, is a ValueError that names lengths.

    Such a query would stand before the text's first position, or see keys that are in no block.
    """
    keys, values, tables, lengths = _paged(draw, [6, 8])
    q = draw(2, 1, 2, 6)
    return {str(bad): raises(ValueError, lambda: impl.paged_attention(
        q, keys, values, tables, torch.tensor(bad, device=draw.device)), names="lengths")
        for bad in ([1, 8], [6, 9], [0, 0])} | {"just right": impl.paged_attention(
            q, keys, values, tables, torch.tensor([2, 8], device=draw.device))}


# -- the cache

@points(2)
def test_reserve(impl, draw):
    """reserve makes a text n positions longer, and lends it a new block only where the old ones are full.

    A table is a list of blocks. Two texts that grow by turns have theirs in no order.
    """
    cache, seen = _cache(impl, draw, blocks=12), []
    cache.start("a"), cache.start("b")
    for id, n in zip("abababab", (1 + draw.ints(6, 8)).tolist()):
        cache.reserve(id, n)
        seen.append(_texts(cache))
    return seen


@points(2)
def test_reserve_without_room(impl, draw):
    """Where the blocks do not suffice, reserve raises OutOfBlocks, and nothing was lent, not even what there was.

    Count first: blocks_needed for the new length, less what the table has. n below 1 is a ValueError.
    """
    cache = _cache(impl, draw, blocks=4)
    cache.start("a"), cache.start("b")
    cache.reserve("a", 1 + int(draw.ints(4)))
    cache.reserve("b", 5)
    said = [raises(impl.OutOfBlocks, lambda: cache.reserve("b", 8)), _texts(cache)]
    cache.reserve("b", 3)
    said += [raises(impl.OutOfBlocks, lambda: cache.reserve("a", 12)), _texts(cache)]
    cache.reserve("b", 4)
    return [*said, raises(impl.OutOfBlocks, lambda: cache.reserve("b", 1)),
            raises(ValueError, lambda: cache.reserve("b", 0), names="n"), _texts(cache)]


def test_a_text_ends(impl, draw):
    """free gives back all blocks of a text, the last one of its table first, and forgets its table and its length.

    Blocks join the end of unused in this order, and the other text keeps its own.
    """
    cache, seen = _cache(impl, draw, blocks=12), {}
    cache.start("a"), cache.start("b")
    for id, n in zip("abab", (3 + draw.ints(4, 4)).tolist()):
        cache.reserve(id, n)
    for id in "ab":
        cache.free(id)
        seen[f"{id} has ended"] = {**_texts(cache), "chains of": list(cache.chains)}
    return {**seen, "a ends again": raises(KeyError, lambda: cache.free("a")),
            "a begins again": [cache.start("a"), _texts(cache)]}


@points(2)
def test_a_table_forks(impl, draw):
    """A fork holds the same blocks, one more for each; who then grows in a partly filled one moves to a copy of it.

    The fork's table is a list of its own. Keys and values are copied in every layer. Who is left alone with the old
    block stays in it, and a full block is not copied.
    """
    seen, cache = {}, _cache(impl, draw, blocks=16, layers=2)
    cache.keys.copy_(draw(*cache.keys.shape)), cache.values.copy_(draw(*cache.values.shape))
    for n, (one, other) in enumerate(("ab", "cd")):
        cache.start(one)
        cache.reserve(one, 8 - (1 + int(draw.ints(3))) * n)
        cache.fork(one, other)
        seen[f"{one} forks into {other}"] = _texts(cache)
        for id in (other, one):
            cache.reserve(id, 1)
            last = cache.tables[id][-1]
            seen[f"{id} grows"] = {**_texts(cache), "its last block's keys": cache.keys[:, last],
                                   "its last block's values": cache.values[:, last]}
    return {**seen, "into a text that is there": raises(ValueError, lambda: cache.fork("a", "d"), names="new"),
            "afterwards": _texts(cache)}


def test_slots(impl, draw):
    """Position p of a text lies in slot block · block_size + p mod block_size; as many slots as positions.

    The block is the table's entry number p // block_size. The last block may be partly filled.
    """
    cache, seen = _cache(impl, draw, blocks=12, block_size=3), []
    cache.start("a"), cache.start("b")
    for id, n in zip("abaab", (1 + draw.ints(4, 5)).tolist()):
        cache.reserve(id, n)
        seen.append([cache.slots("a"), cache.slots("b")])
    return seen


@points(2)
def test_write_and_gather(impl, draw):
    """What is written into a layer's slots is read from there, position by position, by every head, in no other layer.

    k and v have the heads before the positions, the cache has them behind: `rearrange` turns them round. The layer's
    blocks and places become one axis of slots, `flatten(0, 1)`, which shares their memory.
    """
    cache = _cache(impl, draw, layers=2, kv_heads=2, head_dim=3)
    cache.start("a"), cache.start("b")
    for id, n in (("a", 3), ("b", 5), ("a", 2), ("b", 1)):
        _write(cache, draw, id, n)
    return {"a": _read(cache, "a"), "b": _read(cache, "b"), "two rows, two tokens": cache.gather(1, torch.stack(
        [cache.slots(id)[[4, 1]] for id in "ab"]).to(draw.device))}


def test_write_rows(impl, draw):
    """Rows of several texts are written at once, each position of each row into its own slot.

    The slots are (batch, q), k and v (batch, kv_heads, q, head_dim).
    """
    cache = _cache(impl, draw, layers=2, kv_heads=2, head_dim=3)
    for id, n in (("a", 2), ("b", 6), ("c", 4)):
        cache.start(id), cache.reserve(id, n)
    new = torch.stack([cache.slots(id)[-2:] for id in "abc"]).to(draw.device)
    cache.write(1, new, draw(3, 2, 2, 3), draw(3, 2, 2, 3))
    return {"layer 1": [cache.gather(1, cache.slots(id)[None].to(draw.device)) for id in "abc"],
            "layer 0": cache.keys[0].abs().sum(), "padding": cache.keys[1, -1]}


def test_fork(impl, draw):
    """A fork shares every block of a text, the partly filled one, too, and has a table of its own.

    One more holds each block. If both texts had one list for a table, what the one is lent later would be the other's.
    """
    cache = _cache(impl, draw)
    cache.start("a")
    _write(cache, draw, "a", 4 + 4 * int(draw.ints(2)))
    cache.fork("a", "b")
    forked = _texts(cache)
    _write(cache, draw, "b", 2)
    return {"forked": forked, "b is longer": _texts(cache), "a": _read(cache, "a"),
            "refused": raises(ValueError, lambda: cache.fork("a", "b"), names="new")}


@points(3)
def test_copy_on_write(impl, draw):
    """Who writes into a partly filled block that others hold gets a copy of it first, in all layers, and lets go of it.

    Otherwise the other text would change. The block's count goes down by one; who is left alone with it writes into
    it as it is.
    """
    seen = []
    for full in (0, 2):
        cache = _cache(impl, draw, layers=2)
        cache.start("a")
        _write(cache, draw, "a", 4 * full + 1 + int(draw.ints(3)))
        cache.fork("a", "b"), cache.fork("a", "c")
        for id in "bac":
            _write(cache, draw, id, 1)
            seen.append([_texts(cache), *(_read(cache, other) for other in "abc")])
    return seen


def test_copy_needs_a_block(impl, draw):
    """The copy needs a block, too: where none is free for it, OutOfBlocks, and both texts are as they were.

    Also where new blocks are needed besides: ask for all of them together.
    """
    cache = _cache(impl, draw, blocks=3)
    cache.start("a")
    _write(cache, draw, "a", 5 + int(draw.ints(3)))
    cache.fork("a", "b")
    said = [raises(impl.OutOfBlocks, lambda: cache.reserve("b", 4)), _texts(cache), _read(cache, "a")]
    cache.start("c"), cache.reserve("c", 1)
    return [*said, raises(impl.OutOfBlocks, lambda: cache.reserve("b", 1)), _texts(cache)]


def test_full_blocks_are_not_copied(impl, draw):
    """A full block is never written again, so it stays shared: only a partly filled last block is copied.

    Where the length is a multiple of block_size, the next position has a new block anyway.
    """
    cache = _cache(impl, draw)
    cache.start("a")
    _write(cache, draw, "a", 4 * (1 + int(draw.ints(2))))
    cache.fork("a", "b")
    _write(cache, draw, "b", 3)
    _write(cache, draw, "b", 1)
    _write(cache, draw, "a", 1)
    return _texts(cache)


@points(3)
def test_start_shares(impl, draw):
    """A new text shares the full blocks, from the first on, that hold its first tokens, and tells their positions.

    Go along its blocks with block_hash and reuse; the first that is unknown ends it. Block by block one hash leads to
    the next.
    """
    cache, text = _cache(impl, draw, blocks=12), _ids(draw, 14)
    cache.start("a", text)
    _write(cache, draw, "a", 14)
    cache.commit("a", text)
    other = [id + 1 for id in text]
    found = {"all": cache.start("b", text), "the first block": cache.start("c", text[:4] + other[4:]),
             "nothing": cache.start("d", other), "another first block": cache.start("e", other[:4] + text[4:]),
             "not asked for": cache.start("f")}
    return {"found": found, **_texts(cache), "b": _read(cache, "b")}


@points(2)
def test_start_leaves_a_token(impl, draw):
    """The last token is always left to compute, since its logits are needed: never all of a text is shared.

    A text of exactly two full blocks shares one of them, a text of one token more shares both.
    """
    block = 3 + int(draw.ints(3))
    cache, text = _cache(impl, draw, blocks=12, block_size=block), _ids(draw, 2 * block + 1)
    cache.start("a", text)
    _write(cache, draw, "a", len(text))
    cache.commit("a", text)
    sizes = (block - 1, block, block + 1, 2 * block - 1, 2 * block, 2 * block + 1)
    return {size: [cache.start(size, text[:size]), list(cache.tables[size])] for size in sizes}


@points(3)
def test_commit(impl, draw):
    """commit registers the blocks that are full, each under the hash of its whole text; a partly filled one is not.

    The text grows, and so does the number of its full blocks: the same call then registers the new ones. A block that
    is partly filled would be found by a text that goes on otherwise.
    """
    cache, text, seen = _cache(impl, draw, blocks=12), _ids(draw, 24), []
    cache.start("a", text)
    for n in (3, 1, *(1 + draw.ints(6, 3)).tolist()):
        _write(cache, draw, "a", n)
        cache.commit("a", text)
        found = [cache.start("b", text), cache.start("c", text[:cache.lengths["a"]])]
        seen.append([found, sorted(cache.allocator.hashes)])
        cache.free("b"), cache.free("c")
    return seen


def test_start_ends_at_the_first_unknown_block(impl, draw):
    """Where a block is unknown, what comes behind it is not shared either, even if it is known.

    A text needs the keys of all its positions. Here the first block was lent anew, and the second is still there.
    """
    cache, text = _cache(impl, draw, blocks=4), _ids(draw, 9 + int(draw.ints(4)))
    cache.start("a", text)
    _write(cache, draw, "a", len(text))
    cache.commit("a", text)
    second = cache.tables["a"][1]
    cache.allocator.share(second)
    cache.free("a")
    cache.start("b"), cache.reserve("b", 12)
    cache.free("b")
    return {"known": sorted(cache.allocator.hashes), "found": cache.start("c", text), **_texts(cache)}


def test_commit_of_a_sharer(impl, draw):
    """A text that shares its beginning goes on from there: its own blocks are found under the whole text's hashes.

    The chain of hashes goes on from the last shared block's. So does a fork's.
    """
    cache, text = _cache(impl, draw, blocks=14), _ids(draw, 14)
    cache.start("a", text[:6])
    _write(cache, draw, "a", 6)
    cache.commit("a", text[:6])
    cache.start("b", text)
    _write(cache, draw, "b", 8)
    cache.commit("b", text)
    other = text[:6] + [id + 1 for id in text[6:]]
    cache.fork("a", "c")
    _write(cache, draw, "c", 7)
    cache.commit("c", other)
    return {"found": [cache.start("d", text), cache.start("e", other), cache.start("f", text[4:])], **_texts(cache)}


@points(2)
def test_free_a_text(impl, draw):
    """free lets go of all blocks of a text, the last one first, and forgets the text; its id may begin anew.

    What was shared stays the others'. The beginning of a text is likelier to be shared, so it should be lent last.
    """
    cache, text = _cache(impl, draw, blocks=9), _ids(draw, 10 + int(draw.ints(5)))
    cache.start("a", text)
    _write(cache, draw, "a", len(text))
    cache.commit("a", text)
    cache.start("b", text[:10])
    _write(cache, draw, "b", 2)
    cache.free("a")
    seen = [_texts(cache)]
    cache.free("b")
    return [*seen, _texts(cache), raises(KeyError, lambda: cache.free("a")), cache.start("a", text), _texts(cache)]


def test_a_text_of_the_same_id(impl, draw):
    """start refuses an id that is in the cache, with a ValueError that names id, and takes no block for it.

    Its blocks would be lost: nobody could free them.
    """
    cache, text = _cache(impl, draw), _ids(draw, 5 + int(draw.ints(9)))
    cache.start(7, text)
    _write(cache, draw, 7, len(text))
    cache.commit(7, text)
    return {"refused": raises(ValueError, lambda: cache.start(7, text), names="id"), **_texts(cache)}


def test_rows_of_a_pass(impl, draw):
    """PagedRows writes the new keys and values first, and then reads all that the rows see: the new ones, too.

    Where a row is shorter, padding stands in front, which is 0.
    """
    cache = _cache(impl, draw, layers=2)
    cache.start("a"), cache.start("b")
    _write(cache, draw, "a", 5), _write(cache, draw, "b", 3)
    cache.reserve("a", 2), cache.reserve("b", 2)
    seen = torch.full((2, 7), cache.padding)
    seen[0], seen[1, 2:] = cache.slots("a"), cache.slots("b")
    seen = seen.to(draw.device)
    rows = impl.PagedRows(cache, 1, seen[:, -2:], seen)
    return {"length": rows.length, "update": rows.update(draw(2, 1, 2, 2), draw(2, 1, 2, 2)), "a": _read(cache, "a")}


# -- the scheduler

@points(2)
def test_advance(impl, draw):
    """advance reserves what of a job's tokens is not computed yet, at most what is left, and tells how many.

    A long prompt goes in pieces; once it is computed, one token a step. The cache's length says how far it is.
    """
    scheduler = _scheduler(impl, draw, [6 + int(draw.ints(3))])
    job = scheduler.waiting[0]
    scheduler.cache.start(0)
    seen = []
    for left in (2 + int(draw.ints(3)), 1, 9):
        seen.append([scheduler.advance(job, left), _where(scheduler)])
    job.tokens.append(3)
    return [*seen, scheduler.advance(job, 5), _where(scheduler)]


def test_come_and_go(impl, draw):
    """add puts a job behind all who wait; remove takes it from where it stands: if it runs, its blocks are free.

    Who waits is not in the cache, and holds no block.
    """
    scheduler = _scheduler(impl, draw, (1 + draw.ints(9, 4)).tolist())
    for _ in range(2):
        job = scheduler.waiting.popleft()
        scheduler.cache.start(job.id)
        scheduler.advance(job, 5)
        scheduler.running.append(job)
    seen = {"two run": _where(scheduler)}
    for id in (0, 3):
        scheduler.remove(scheduler.find(id))
        seen[f"{id} is removed"] = _where(scheduler)
    return seen


@points(3)
def test_plan(impl, draw):
    """First come, first served: in order, each gets what it needs in a step, until the budget is spent.

    Who runs already gets one token each; what is left goes to the prompt of who comes next, in pieces where it is long.
    """
    sizes = (1 + draw.ints(9, 5)).tolist()
    return _drive(_scheduler(impl, draw, sizes, blocks=30, budget=6), 12)


def test_plan_at_most(impl, draw):
    """No more than `most` jobs run at once; when one is finished, the next is let in.

    The one that waits for the longest time.
    """
    return _drive(_scheduler(impl, draw, (1 + draw.ints(4, 5)).tolist(), new=2, blocks=30, most=2), 6)


@points(3)
def test_preemption(impl, draw):
    """Where the blocks do not suffice, the job that arrived last goes back to wait, and is computed again later.

    It waits in front of all others, keeps its tokens, and gives back all of its blocks. Nobody is let in in that step.
    """
    sizes = (3 + draw.ints(4, 4)).tolist()
    return {budget: _drive(_scheduler(impl, draw, sizes, new=7, blocks=5, block_size=3, budget=budget), 30)
            for budget in (9, 3)}


@points(2)
def test_preempt_the_last(impl, draw):
    """preempt takes the last of the running jobs: its blocks are free, and it is the first of those who wait.

    Its tokens, those it got, too, stay with it.
    """
    scheduler = _scheduler(impl, draw, (3 + draw.ints(5, 4)).tolist(), blocks=20, most=3)
    seen = _drive(scheduler, 2)
    for _ in range(2):
        scheduler.preempt()
        seen.append([_where(scheduler), [job.tokens for job in scheduler.waiting]])
    return [*seen, _drive(scheduler, 3)]


def test_plan_running(impl, draw):
    """A running job that finds no block preempts the last one, and tries again; the last one preempts itself.

    Here three jobs hold all blocks, and each needs one more. Who was preempted gets no turn.
    """
    scheduler = _scheduler(impl, draw, [4, 4, 4], blocks=3)
    seen = _drive(scheduler, 1)
    seen += [_named(scheduler.plan_running(50)), _where(scheduler)]
    alone = _scheduler(impl, draw, [1 + int(draw.ints(3)), 8], blocks=3)
    seen += [_named(alone.plan_waiting(12)), _where(alone)]
    for job in alone.running:
        job.tokens.append(3)
    return [*seen, _named(alone.plan_running(3)), _where(alone)]


def test_plan_running_with_little_left(impl, draw):
    """plan_running hands out at most what is left, to the first of those who run: the others wait for the next step.

    Nobody is preempted for it.
    """
    scheduler = _scheduler(impl, draw, (1 + draw.ints(4, 4)).tolist())
    seen = _drive(scheduler, 1)
    return [*seen, _named(scheduler.plan_running(2)), _where(scheduler), _named(scheduler.plan_running(0)),
            _where(scheduler)]


@points(2)
def test_nobody_overtakes(impl, draw):
    """Who finds too few blocks waits, and all behind him wait, too, however little they need.

    Otherwise small requests would pass a large one for ever. What it shared while it tried is given back.
    """
    scheduler = _scheduler(impl, draw, [9, 17 + int(draw.ints(2)), 1], new=2, blocks=5, reuse=True)
    text = list(scheduler.waiting[0].tokens)
    scheduler.waiting[1].tokens[:9] = text
    return [_drive(scheduler, 1), _named(scheduler.plan_waiting(20)), _where(scheduler), _texts(scheduler.cache),
            _drive(scheduler, 4)]


@points(2)
def test_prefixes_are_shared(impl, draw):
    """A job that is let in shares what is in the cache: those positions are not planned, and are counted in reused.

    reuse=False shares nothing. A job that was preempted finds its own blocks again, if nobody has taken them.
    """
    prefix, seen = _ids(draw, 8 + int(draw.ints(6))), {}
    for reuse in (True, False):
        scheduler = _scheduler(impl, draw, [], blocks=20, budget=12, reuse=reuse)
        for id in range(3):
            scheduler.add(impl.Job(_request(impl, id, prefix + _ids(draw, 2), 3)))
        seen[reuse] = [_drive(scheduler, 2)]
        scheduler.preempt()
        seen[reuse].append(_drive(scheduler, 4))
    return seen


def test_remove(impl, draw):
    """remove takes a job out, whether it runs or waits: its blocks are free, and the others keep their order.

    Who waits holds no block, so there is nothing to free.
    """
    scheduler = _scheduler(impl, draw, (1 + draw.ints(9, 6)).tolist(), blocks=20, most=3)
    seen = _drive(scheduler, 1)
    for id in (1, 4):
        scheduler.remove(scheduler.find(id))
        seen.append(_where(scheduler))
    return [*seen, _drive(scheduler, 2)]


# -- the engine

@points(3)
def test_texts_are_as_alone(impl, draw):
    """Each request gets what `generate` gives its prompt alone, with its own settings, seed and stop tokens.

    Prompts of unequal length are in one pass: each row has its own slots, mask and positions.
    """
    engine = impl.Engine(_model(impl, draw, layers=2, kv_heads=1), 30, 4)
    return _served(engine, [
        _request(impl, "greedy", _ids(draw, 5), 6), _request(impl, "longer", _ids(draw, 9), 4),
        _request(impl, "drawn", _ids(draw, 2), 6, seed=5, sampling={"temperature": 1.0}),
        _request(impl, "another seed", _ids(draw, 2), 6, seed=6, sampling={"temperature": 1.5, "top_k": 5})])


@points(2)
def test_prompts_in_pieces(impl, draw):
    """A prompt longer than the budget is computed in pieces, over several steps, while the others get their tokens.

    The model is given the pieces that were planned: one pass for all with equally many tokens. The texts are the same.
    """
    model = _model(impl, draw)
    given, engine = _watch(model), impl.Engine(model, 30, 4, budget=5)
    said = _served(engine, [_request(impl, size, _ids(draw, size), 5) for size in (2, 13, 3)])
    return {**said, "given to the model": [sorted(rows) for rows in sorted(given)]}


@points(3)
def test_preempted_work_is_not_lost(impl, draw):
    """With too few blocks for all, requests are preempted and resumed, and get the same texts; no block is lost.

    A resumed request computes its prompt and the tokens that it got, and goes on with its next random number.
    """
    engine = impl.Engine(_model(impl, draw), 5, 2, budget=8)
    said = _served(engine, [_request(impl, id, _ids(draw, 3), 6, seed=id, sampling={"temperature": 1.0})
                                  for id in range(3)])
    return {**said, "preemptions": engine.scheduler.preemptions}


@points(2)
def test_a_shared_prefix(impl, draw):
    """Requests that begin alike compute their common full blocks once, and get the texts that they get alone.

    The second request is let in when the first one's blocks are full and known. The model is given only what is new.
    """
    model, prefix = _model(impl, draw), _ids(draw, 9)
    given, engine = _watch(model), impl.Engine(model, 20, 4)
    engine.add(_request(impl, "first", prefix + _ids(draw, 1), 3))
    said = [[list(output) for output in engine.step()]]
    engine.add(_request(impl, "second", prefix + _ids(draw, 3), 3))
    engine.add(_request(impl, "third", prefix, 3))
    return {"said": said + _steps(engine), "given to the model": sorted(given), "reused": engine.scheduler.reused}


@points(2)
def test_what_a_step_says(impl, draw):
    """A step says who got which token, in the order of arrival, and who is finished: by a stop token, or by length.

    A stop token ends a text, and is not part of it: token is None then. The last of max_new_tokens comes with "length".
    """
    model = _model(impl, draw)
    prompt = _ids(draw, 4)
    alone = [_request(impl, 0, prompt, 5, sampling={"temperature": 1.5})]
    free = _served(impl.Engine(model, 20, 4), alone)["texts"][0]
    engine = impl.Engine(model, 20, 4)
    for id, stop in enumerate([(), (free[3],), range(12), (12,)]):
        engine.add(_request(impl, id, prompt, 5, stop=stop, sampling={"temperature": 1.5}))
    return {"free": free, "steps": _steps(engine), "left": engine.unfinished}


def test_cancel(impl, draw):
    """cancel ends a request at once, whether it runs or waits: it gets nothing more, and its blocks are free.

    It tells whether there was such a request. The others go on as if nothing had been.
    """
    engine = impl.Engine(_model(impl, draw), 20, 4, most=2)
    for id in range(4):
        engine.add(_request(impl, id, _ids(draw, 5), 4))
    said = [[list(output) for output in engine.step()]]
    found = [engine.cancel(0), engine.cancel(3), engine.cancel(3), engine.cancel("nobody")]
    between = _where(engine.scheduler)
    return {"found": found, "between": between, "said": said + _steps(engine),
            "left": [sum(engine.cache.allocator.counts), len(engine.cache.tables)]}


@points(2)
def test_add_refuses(impl, draw):
    """What can never be served is refused when it comes: ValueErrors that name prompt, max_new_tokens or id.

    A prompt needs room for one new token, in max_seq_len and in all blocks together. The last token that a request gets
    is never computed with, and needs no place in a block.
    """
    engine, small = impl.Engine(_model(impl, draw, max_seq_len=11), 9, 4), impl.Engine(_model(impl, draw), 2, 4)
    text = _ids(draw, 12)
    bad = {"prompt, the window": (engine, text[:11], 1), "prompt, an unknown id": (engine, [3, 12], 1),
           "prompt, the blocks": (small, text[:9], 1), "max_new_tokens, the window": (engine, text[:4], 8),
           "max_new_tokens, the blocks": (small, text[:4], 6)}
    said = {name: raises(ValueError, lambda: of.add(_request(impl, name, prompt, new)), names=name.split(",")[0])
            for name, (of, prompt, new) in bad.items()}
    for of, size, new in ((engine, 10, 1), (engine, 4, 7), (small, 8, 1), (small, 4, 5)):
        said[f"{size}, {new}"] = accepts(lambda: of.add(_request(impl, size, text[:size], new)))
    said["id"] = raises(ValueError, lambda: engine.add(_request(impl, 10, text[:1], 1)), names="id")
    return {**said, "taken in": [[job.id for job in of.scheduler.waiting] for of in (engine, small)],
            "texts": [_steps(small)]}


@points(2)
def test_an_error_is_one_requests_own(impl, draw):
    """A request whose token cannot be chosen ends with an error, which is told; the others get theirs in the same step.

    Sampling takes a temperature of 1e-320, but no token is left to choose from then: choose raises ValueError.
    """
    engine = impl.Engine(_model(impl, draw), 20, 4)
    engine.add(_request(impl, "before", _ids(draw, 3), 3))
    engine.add(_request(impl, "absurd", _ids(draw, 2), 3, sampling={"temperature": 1e-320}))
    engine.add(_request(impl, "behind", _ids(draw, 3), 3))
    steps = _steps(engine)
    words = [output[3] for step in steps for output in step if output[3]]
    return {"steps": [[output[:3] for output in step] for step in steps], "told": [bool(said) for said in words],
            "left": [sum(engine.cache.allocator.counts), len(engine.cache.tables)]}


def test_a_pass_that_fails(impl, draw):
    """Where the model fails, the error goes on, all running requests are preempted, and a later step begins them anew.

    The places that they had reserved were never written. Nobody loses a token that he got.
    """
    model = _model(impl, draw)
    engine = impl.Engine(model, 20, 4)
    engine.add(_request(impl, 0, _ids(draw, 5), 4)), engine.add(_request(impl, 1, _ids(draw, 3), 4))
    said = [[list(output) for output in engine.step()]]
    fails = model.register_forward_pre_hook(lambda module, args: 1 / 0)
    refused = raises(ZeroDivisionError, engine.step)
    fails.remove()
    return {"refused": refused, "then": _where(engine.scheduler), "said": said + _steps(engine)}


@points(2)
def test_forward(impl, draw):
    """forward gives each job's logits after its last reserved position, as if each were alone in the model.

    Rows end together: the n new positions of each are its last ones, and padding stands in front of the shorter rows.
    """
    model, seen = _model(impl, draw, layers=2, windows=(None, 4)), {}
    for name, n in {"one token": 1, "three tokens": 3}.items():
        engine = impl.Engine(model, 30, 4)
        jobs = [impl.Job(_request(impl, id, _ids(draw, 9), 3)) for id in range(3)]
        for job, size in zip(jobs, (n, 5, 7)):
            engine.cache.start(job.id)
            if size > n:
                engine.cache.reserve(job.id, size - n)
                engine.forward([job], size - n)
            engine.cache.reserve(job.id, n)
        logits = engine.forward(jobs, n)
        seen[name] = [logits, logits.requires_grad, engine.cache.keys[1, :6]]
    return seen


def test_choose(impl, draw):
    """choose takes the request's next random number, and its whole text so far, prompt and all, for the penalty.

    `sampling.choose` wants a row of logits, a list of texts and a number for each row. u[n] is for new token n.
    """
    engine, seen = impl.Engine(_model(impl, draw), 20, 4), []
    for id, how in enumerate(({"temperature": 2.0}, {"temperature": 0, "repetition_penalty": 9.0},
                              {"temperature": 1.0, "top_p": 0.7})):
        row = draw(12)
        best = row.argsort(descending=True).tolist()        # the prompt holds some of the likeliest tokens
        job = impl.Job(_request(impl, id, best[:2], 4, seed=id, stop=best[4:5], sampling=how))
        seen.append([[list(engine.choose(job, row)) for _ in range(4)], job.tokens])
    return seen


def test_nobody_there(impl, draw):
    """A step in which nobody is there says nothing, and computes nothing.

    A server may call step again and again.
    """
    model = _model(impl, draw)
    given, engine = _watch(model), impl.Engine(model, 8, 4)
    said = [engine.step(), _served(engine, [_request(impl, 0, _ids(draw, 3), 2)]), engine.step()]
    return {"said": said, "given to the model": given}
