"""Lesson 25 on long walks, other models, other sizes."""

import torch

from given.torch_kernels import use_torch_kernels
from grader import dtypes, points, raises
from grader.course.doubles import Elsewhere

SIZES = {"vocab_size": 9, "d_model": 8, "layers": 1, "heads": 2, "d_ff": 10, "max_seq_len": 24}
KINDS = {
    "learned positions": {"positions": "learned", "norm": "layer", "feed_forward": "mlp"},
    "QK-norm, tied": {"heads": 4, "kv_heads": 2, "qk_norm": True, "tie_embeddings": True},
    "windows": {"layers": 2, "windows": (3, None)},
}


def _model(impl, draw, **changes):
    return draw.fill(impl.Transformer(impl.ModelConfig(**{**SIZES, **changes})))


def _ids(draw, size, high=9):
    return draw.ints(high, size).tolist()


def _state(allocator):
    known = sorted(allocator.by_hash.values())
    return {"counts": list(allocator.counts), "free": list(allocator.unused), "known": known}


def _texts(cache):
    return {"tables": {id: list(table) for id, table in cache.tables.items()}, "lengths": dict(cache.lengths),
            **_state(cache.allocator)}


def _write(cache, draw, id, n):
    cache.reserve(id, n)
    layers, _, _, kv_heads, head_dim = cache.keys.shape
    slots = cache.slots(id)[None, -n:].to(draw.device)
    for layer in range(layers):
        k, v = (draw(1, kv_heads, n, head_dim).to(cache.keys.dtype) for _ in range(2))
        cache.write(layer, slots, k, v)


def _read(cache, id):
    slots = cache.slots(id)[None].to(cache.keys.device)
    return [cache.gather(layer, slots) for layer in range(len(cache.keys))]


def _request(impl, id, prompt, new=4, **how):
    sampling = impl.Sampling(**{"temperature": 1.0, **how.pop("sampling", {})})
    return impl.Request(id=id, prompt=prompt, max_new_tokens=new, sampling=sampling, **how)


def _served(engine, requests):
    texts = {request.id: [] for request in requests}
    for request in requests:
        engine.add(request)
    for _ in range(80):
        for id, *said in engine.step():
            texts[id].append(said[:2])
        if not engine.unfinished:
            break
    return {"texts": texts, "left": [sum(engine.cache.allocator.counts), len(engine.cache.allocator.unused),
                                     len(engine.cache.tables), engine.unfinished]}


def _drive(scheduler, steps):
    seen = []
    for _ in range(steps):
        plan = scheduler.plan()
        for job, _ in plan:
            scheduler.cache.commit(job.id, job.tokens)
            if scheduler.cache.lengths[job.id] == len(job.tokens):
                job.tokens.append(job.new_tokens)
                if job.new_tokens == job.request.max_new_tokens:
                    scheduler.remove(job)
        seen.append([[[job.id, n] for job, n in plan], [job.id for job in scheduler.waiting],
                     [scheduler.preemptions, scheduler.computed, scheduler.reused], _state(scheduler.cache.allocator)])
    return seen


@points(2)
def test_a_long_walk_of_the_allocator(impl, draw):
    """60 random calls: lent, shared, freed, registered, found, refused."""
    blocks = 3 + int(draw.ints(3))
    allocator, seen = impl.BlockAllocator(blocks), []
    for what, block, name in zip(_ids(draw, 60), _ids(draw, 60, blocks), _ids(draw, 60, 5)):
        call = [allocator.allocate, allocator.allocate, lambda: allocator.free(block), lambda: allocator.free(block),
                lambda: allocator.free(block), lambda: allocator.share(block),
                lambda: allocator.register(block, bytes([name])), lambda: allocator.register(block, bytes([name])),
                lambda: allocator.reuse(bytes([name]))][what]
        try:
            seen.append([call(), _state(allocator)])
        except (ValueError, impl.OutOfBlocks) as error:
            seen.append([isinstance(error, impl.OutOfBlocks), _state(allocator)])
    return seen


def test_one_block(impl, draw):
    """An allocator of one block lends it, knows it, finds it, and lends it anew."""
    allocator, name = impl.BlockAllocator(1), bytes(_ids(draw, 3))
    allocator.register(allocator.allocate(), name)
    said = [raises(impl.OutOfBlocks, allocator.allocate), allocator.reuse(name), list(allocator.counts)]
    allocator.free(0), allocator.free(0)
    return [*said, allocator.reuse(name), _state(allocator), allocator.free(0), allocator.allocate(),
            allocator.reuse(name), _state(allocator)]


def test_hashes_of_long_texts(impl, draw):
    """Blocks of any size, ids up to 2⁶², and a hash that is the same for the same chain however it was made."""
    ids = [id << 30 for id in _ids(draw, 12, 2**31)]
    chain = [b""]
    for start in range(0, 12, 3):
        chain.append(impl.block_hash(chain[-1], ids[start:start + 3]))
    again = impl.block_hash(impl.block_hash(b"", ids[:3]), ids[3:6])
    others = [impl.block_hash(b"", ids[:size]) for size in (1, 2, 3, 12)]
    return {"different": len({*chain, *others}), "again": again == chain[2], "of three": others[2] == chain[1],
            "ids": ids}


@points(2)
def test_attention_of_other_sizes(impl, draw):
    """Blocks of one position, one large block, tables of int32 that were cut from larger ones, rows of equal length."""
    said = {}
    for name, (size, lengths) in {"of one": (1, [3, 5]), "one block": (9, [9, 2, 4]), "equal": (2, [4, 4])}.items():
        most = -(-max(lengths) // size)
        keys, values = draw(40, size, 2, 4), draw(40, size, 2, 4)
        tables = draw.uniform(40).argsort()[:len(lengths) * (most + 3)].view(len(lengths), -1)[:, 1:most + 2]
        lengths = torch.tensor(lengths, dtype=torch.int32, device=draw.device)
        said[name] = impl.paged_attention(draw(len(lengths), 4, 2, 4), keys, values, tables.to(torch.int32), lengths)
    return said


def test_attention_leaves_the_blocks(impl, draw):
    """Keys and values stay as they were, also where a place of the last block is not looked at."""
    keys, values = draw(5, 4, 1, 6), draw(5, 4, 1, 6)
    given = [keys.clone(), values.clone()]
    tables, lengths = torch.tensor([[3, 1]], device=draw.device), torch.tensor([6], device=draw.device)
    impl.paged_attention(draw(1, 2, 2, 6), *given, tables, lengths)
    return given


def test_attention_on_another_device(impl, draw):
    """The mask is made where q is."""
    keys, values, q = draw(4, 4, 1, 4), draw(4, 4, 1, 4), draw(2, 2, 2, 4)
    tables, lengths = draw.ints(4, 2, 2), torch.tensor([5, 3])
    with Elsewhere() as there:
        moved = [x.to(there.device) for x in (q, keys, values, tables, lengths)]
        out = impl.paged_attention(*moved)
        return [out.device.type, out.cpu()]


@points(3)
def test_a_long_walk_of_the_cache(impl, draw):
    """Random starts, writes, commits, forks and frees: what each text reads stays what was written for it."""
    cache = impl.PagedKVCache(2, 1, 2, 10, 2, draw.float, draw.device)
    texts, seen, next_id = {}, [], 0
    for what, which in zip(_ids(draw, 40, 10), _ids(draw, 40, 99)):
        id = list(texts)[which % len(texts)] if texts else None
        try:
            if what < 2 or id is None:
                ids = [0, 1, 2, 3, which % 3, which % 2]
                found = cache.start(next_id, ids)
                texts[next_id] = ids
                seen.append(found)
                next_id += 1
            elif what < 7:
                n = 1 + which % 3
                cache.reserve(id, n)
                ids = texts[id] = texts[id] + [which % 9] * max(0, cache.lengths[id] - len(texts[id]))
                slots = cache.slots(id)[None, -n:].to(draw.device)
                told = torch.tensor(ids[cache.lengths[id] - n:cache.lengths[id]], dtype=draw.float, device=draw.device)
                for layer in range(2):
                    cache.write(layer, slots, *(told.view(1, 1, n, 1).expand(1, 1, n, 2) * (layer + 1) for _ in "kv"))
                cache.commit(id, ids)
            elif what < 9:
                cache.fork(id, next_id)
                texts[next_id] = list(texts[id])
                next_id += 1
            else:
                cache.free(id)
                del texts[id]
        except impl.OutOfBlocks:
            seen.append("no room")
        seen.append(_texts(cache))
    return {"seen": seen, "read": {id: _read(cache, id) for id in texts}}


def test_blocks_of_one(impl, draw):
    """Blocks of one position: every block is full at once, nothing is ever copied, the last token is left."""
    cache, text = impl.PagedKVCache(1, 1, 2, 12, 1, draw.float, draw.device), _ids(draw, 5)
    cache.start("a", text)
    _write(cache, draw, "a", 5)
    cache.commit("a", text)
    cache.fork("a", "b")
    _write(cache, draw, "b", 2)
    return {"found": [cache.start("c", text), cache.start("d", text[:1]), cache.start("e", [])], **_texts(cache)}


@dtypes("bfloat16", "float64")
def test_cache_in_other_dtypes(impl, draw, dtype):
    """What is written in a dtype is read in it, copies too."""
    cache = impl.PagedKVCache(1, 2, 3, 6, 4, dtype, draw.device)
    cache.start("a")
    _write(cache, draw, "a", 6)
    cache.fork("a", "b"), cache.fork("b", "c")
    _write(cache, draw, "c", 1)
    _write(cache, draw, "a", 3)
    return {**_texts(cache), "read": [_read(cache, id) for id in "abc"]}


def test_the_same_text_twice(impl, draw):
    """Two texts that were computed at the same time: one's blocks are known, and stay so when the other's go."""
    cache, text = impl.PagedKVCache(1, 1, 2, 7, 2, draw.float, draw.device), _ids(draw, 5)
    for id in "ab":
        cache.start(id, text)
    for id in "ba":
        _write(cache, draw, id, 5)
        cache.commit(id, text)
    seen = [_texts(cache)]
    cache.free("a")
    seen += [cache.start("c", text), _texts(cache)]
    cache.free("b"), cache.free("c")
    return [*seen, _texts(cache), cache.start("d", text), _texts(cache)]


@points(3)
def test_long_plans(impl, draw):
    """Random prompts, budgets and pools, with and without sharing, until nobody is left: plans, and who holds what."""
    said = {}
    for budget, most, size, reuse in ((3, 9, 2, True), (9, 2, 1, True), (20, 9, 3, False), (1, 9, 2, True)):
        cache = impl.PagedKVCache(1, 1, 1, 12 // size, size, draw.float, draw.device)
        scheduler = impl.Scheduler(cache, budget, most, reuse)
        for id, length in enumerate((1 + draw.ints(7, 5)).tolist()):
            scheduler.add(impl.Job(_request(impl, id, [1, 2, 1, 2, 1, 0, 1][:length], 1 + length % 5)))
        said[str((budget, most, size, reuse))] = _drive(scheduler, 45)
    return said


def test_a_preempted_job_is_removed(impl, draw):
    """A job that waits after a preemption holds nothing; it can go as any other."""
    scheduler = impl.Scheduler(impl.PagedKVCache(1, 1, 1, 9, 3, draw.float, draw.device), 30, 9)
    for id, size in enumerate((2 + draw.ints(4, 3)).tolist()):
        scheduler.add(impl.Job(_request(impl, id, _ids(draw, size), 5)))
    seen = _drive(scheduler, 1)
    scheduler.preempt(), scheduler.preempt()
    scheduler.remove(scheduler.find(1))
    return [*seen, _drive(scheduler, 6)]


@points(2)
def test_other_models(impl, draw):
    """Learned positions, layer norms, QK-norm, shared heads, tied weights, windows: texts as alone."""
    said = {}
    for name, changes in KINDS.items():
        engine = impl.Engine(_model(impl, draw, **changes), 14, 3, budget=7)
        said[name] = _served(engine, [
            _request(impl, 0, _ids(draw, 9), 4, sampling={"temperature": 0}),
            _request(impl, 1, _ids(draw, 1), 5, seed=3)])
    return said


def test_on_torch_kernels(impl, draw):
    """Models whose parts are swapped for torch's kernels are served as well."""
    engine = impl.Engine(use_torch_kernels(_model(impl, draw, layers=2, kv_heads=1)), 8, 4, budget=9)
    return _served(engine, [_request(impl, size, _ids(draw, size), 4, seed=size) for size in (6, 3, 11)])


@points(2)
def test_other_sizes(impl, draw):
    """A budget of one token, blocks of one position, one request at a time, no sharing: the texts are the same."""
    model, prompts = _model(impl, draw), [_ids(draw, size) for size in (4, 2)]
    said = []
    for how in ({"budget": 1}, {"block_size": 1, "most": 1}, {"reuse": False, "blocks": 4, "block_size": 2}):
        engine = impl.Engine(model, **{"blocks": 10, "block_size": 4, **how})
        said.append(_served(engine, [_request(impl, id, prompt, 3, seed=7) for id, prompt in enumerate(prompts)]))
    return said


@dtypes("bfloat16", "float64")
def test_in_other_dtypes(impl, draw, dtype):
    """The cache takes its dtype from the model's parameters, and the logits are the model's.

    What a whole model rounds in bfloat16 is more than a check could tell from a fault: there the first layer's keys are
    looked at.
    """
    engine = impl.Engine(_model(impl, draw).to(dtype), 8, 4)
    jobs = [impl.Job(_request(impl, id, _ids(draw, size))) for id, size in enumerate((2, 2))]
    for job in jobs:
        engine.cache.start(job.id), engine.cache.reserve(job.id, 2)
    logits = engine.forward(jobs, 2)
    table = engine.cache.tables[jobs[0].id]
    computed = logits if dtype == torch.float64 else engine.cache.keys[0, table[0], :2]
    return {"computed": computed, "dtypes": [str(engine.cache.keys.dtype), str(logits.dtype)]}


def test_on_another_device(impl, draw):
    """What a model is given lies where the cache does, and a random number where the logits do."""
    engine, told, row = impl.Engine(_model(impl, draw), 8, 4), [], draw(9)
    jobs = [impl.Job(_request(impl, id, _ids(draw, size))) for id, size in enumerate((2, 5))]
    for job in jobs:
        engine.cache.start(job.id), engine.cache.reserve(job.id, len(job.tokens))

    def model(ids, mask, positions, caches):
        told.append([x.device.type for x in (ids, mask, positions, caches[0].new, caches[0].seen)])
        return torch.zeros(2, 2, 9)
    model.config = engine.model.config
    engine.model = model
    with Elsewhere() as there:
        engine.cache.keys = engine.cache.keys.to(there.device)
        engine.forward(jobs, 2)
        return [told, list(engine.choose(jobs[0], row.to(there.device)))]


@points(2)
def test_comings_and_goings(impl, draw):
    """Requests that come at any step, and users who leave at any: the others' texts, and no block is lost."""
    engine, texts = impl.Engine(_model(impl, draw), 8, 2, budget=5, most=3), {}
    come, go = sorted(_ids(draw, 5, 9)), _ids(draw, 5, 20)
    for step in range(60):
        for id in range(5):
            if come[id] == step:
                engine.add(_request(impl, id, [1, 2, 3, id, 4][:2 + id % 4], 5, seed=id))
                texts[id] = []
            if id in texts and go[id] == step:
                texts[id].append(["left", engine.cancel(id)])
        for output in engine.step():
            texts[output.id].append(list(output))
    return {"texts": texts, "come, go": [come, go], "left": _texts(engine.cache), "unfinished": engine.unfinished}


def test_the_same_id_again(impl, draw):
    """An id is free as soon as its request is finished or cancelled; the prompt is the caller's own list."""
    engine, prompt = impl.Engine(_model(impl, draw), 8, 4), _ids(draw, 5)
    engine.add(_request(impl, "me", prompt, 3))
    said = [[list(output) for output in engine.step()], engine.cancel("me")]
    first = _request(impl, "me", prompt, 3, stop=iter([8]))
    prompt.append(99)
    said += [_served(engine, [first]), _served(engine, [first]), prompt[:-1]]
    return said


def test_random_numbers_are_ones_own(impl, draw):
    """Torch's own generator is not asked, and equal seeds give equal texts, whoever else is there."""
    engine, prompt = impl.Engine(_model(impl, draw), 20, 4), _ids(draw, 3)
    torch.manual_seed(draw.seed)
    said = _served(engine, [_request(impl, id, prompt, 5, seed=seed) for id, seed in enumerate((1, 2, 1))])
    return {**said, "torch's next": torch.rand(1).item()}


def test_an_error_while_others_wait(impl, draw):
    """Requests that cannot be served take nobody's blocks, also where they were preempted before."""
    engine = impl.Engine(_model(impl, draw), 5, 2, budget=6)
    return _served(engine, [
        _request(impl, id, _ids(draw, 3), 5, sampling={"temperature": 1e-320 if id % 2 else 1.0}) for id in range(5)])


def test_a_pass_fails_in_a_long_prompt(impl, draw):
    """Where the second of two passes fails, what the first has reserved is given back, too; texts are as alone."""
    model = _model(impl, draw)
    engine = impl.Engine(model, 12, 4, budget=6)
    engine.add(_request(impl, 0, _ids(draw, 3), 4)), engine.add(_request(impl, 1, _ids(draw, 12), 4))
    said = [[list(output) for output in engine.step()]]
    fails = model.register_forward_pre_hook(lambda module, args: None if args[0].shape[1] == 1 else 1 / 0)
    said += [raises(ZeroDivisionError, engine.step), _state(engine.cache.allocator)["counts"]]
    fails.remove()
    for _ in range(9):
        said.append([list(output) for output in engine.step()])
    return said


def test_many_wait(impl, draw):
    """200 wait, two run: who waits holds no block, and all can be cancelled."""
    engine = impl.Engine(_model(impl, draw), 6, 4, most=2)
    for id in range(200):
        engine.add(_request(impl, id, [1 + id % 8, *_ids(draw, 2)], 3))
    said = [[list(output) for output in engine.step()], sum(engine.cache.allocator.counts), engine.unfinished]
    cancelled = sum(engine.cancel(id) for id in range(200))
    return [*said, cancelled, sum(engine.cache.allocator.counts), engine.unfinished, engine.step()]
