"""What the parts of chapter 25 may be given."""

import torch
from hypothesis import strategies as st
from reference import ex13_transformer, ex15_generation

from tests.course.checks.configurations.ex15_generation import settings_of

FLOATS = (torch.float32, torch.bfloat16, torch.float64)


def tried(draw, label, call):
    """What a call gives, or the kind of what it raises."""
    try:
        draw.see(label, call())
        return True
    except (ValueError, RuntimeError, KeyError) as error:
        draw.see(label, type(error).__name__)
        return False


def see_allocator(draw, allocator):
    draw.see("blocks", [list(allocator.counts), list(allocator.unused), sorted(allocator.by_hash.values()),
                        sorted(allocator.hashes)])


def see_cache(draw, cache):
    draw.see("texts", [{id: list(table) for id, table in cache.tables.items()}, dict(cache.lengths)])
    draw.see("numbers", [cache.keys.clone(), cache.values.clone()])
    see_allocator(draw, cache.allocator)


def counts(impl, draw):
    size = draw("block_size", (1, 2, 3, 0, 16))
    tried(draw, "blocks_needed", lambda: impl.blocks_needed(draw("positions", st.integers(-1, 40)), size))
    config = ex13_transformer.ModelConfig(
        vocab_size=3, d_model=4, layers=draw("layers", (1, 2, 3)), heads=4, kv_heads=draw("kv_heads", (1, 2, 4)),
        head_dim=draw("head_dim", (2, 4)), d_ff=2, max_seq_len=9)
    memory, each = draw("memory", st.integers(0, 5000)), draw("bytes", (1, 2, 4))
    tried(draw, "blocks_that_fit", lambda: impl.blocks_that_fit(config, size, memory, each))


def hashes(impl, draw):
    known = st.sampled_from((0, 1, 2, 12, 23, 256, 65_536, 2**40))
    lists, made = [draw("ids", st.lists(known, max_size=4)) for _ in range(3)], []
    for ids in lists:
        given = list(ids)
        made += [impl.block_hash(b"", given), impl.block_hash(made[-1] if made else b"x", given)]
        draw.see("ids", given)
    draw.see("equal", [[one == other for one in made] for other in made])
    draw.see("sizes", [[type(hash).__name__, len(hash)] for hash in made])


def allocator(impl, draw):
    blocks = draw("blocks", (3, 1, 2, 5))
    lender = impl.BlockAllocator(blocks)
    for _ in range(draw("calls", st.integers(1, 25))):
        what = draw("do", ("allocate", "allocate", "free", "free", "share", "register", "register", "reuse"))
        block, name = draw("block", st.integers(-1, blocks)), bytes([draw("hash", (0, 1, 2))])
        call = {"allocate": lender.allocate, "free": lambda: lender.free(block), "share": lambda: lender.share(block),
                "register": lambda: lender.register(block, name), "reuse": lambda: lender.reuse(name)}[what]
        tried(draw, what, call)
        see_allocator(draw, lender)


def paged_attention(impl, draw):
    batch, new, size = draw("batch", (2, 1, 3)), draw("q", (1, 2, 3)), draw("block_size", (2, 1, 4))
    kv_heads, head_dim, most = draw("kv_heads", (1, 2)), draw("head_dim", (2, 1, 4)), draw("most blocks", (2, 1, 3))
    dtype = draw("dtype", FLOATS)
    pools = [draw.tensor(name, (7, size, kv_heads, head_dim), dtype) for name in ("keys", "values")]
    q = draw.tensor("q", (batch, kv_heads * draw("groups", (1, 2, 3)), new, head_dim), dtype)
    tables = draw.ints("tables", (batch, most), 7, dtypes=(torch.int64, torch.int32))
    low, high = new - draw("shorter", (0, 0, 0, 1)), most * size + draw("longer", (1, 1, 1, 2))
    lengths = draw.ints("lengths", (batch,), high, low, dtypes=(torch.int64, torch.int32))
    if tried(draw, "answer", lambda: impl.paged_attention(q, *pools, tables, lengths)):
        draw.asked(impl.paged_attention, q, *pools, tables, lengths)


def a_cache(impl, draw):
    return impl.PagedKVCache(draw("layers", (1, 2)), draw("kv_heads", (1, 2)), draw("head_dim", (1, 2)),
                             draw("blocks", (4, 1, 3, 8)), draw("block_size", (2, 1, 3)), draw("dtype", FLOATS))


def write(draw, cache, id, n):
    layers, _, _, kv_heads, head_dim = cache.keys.shape
    slots = cache.slots(id)[None, -n:]
    for layer in range(layers):
        k, v = (draw.tensor(name, (1, kv_heads, n, head_dim), cache.keys.dtype, grad=False) for name in "kv")
        cache.write(layer, slots, k, v)
        draw.see("given", [slots, k, v])
    draw.see("slots", cache.slots(id))
    draw.see("read", cache.gather(draw("layer", st.integers(0, layers - 1)), cache.slots(id)[None]))


def texts(impl, draw):
    cache, ids, written = a_cache(impl, draw), {}, set()
    for number in range(draw("calls", st.integers(1, 12))):
        id = draw("text", st.sampled_from(list(ids))) if ids else None
        what = draw("do", ("start", "write", "write", "write", "fork", "free", "start again"))
        if what == "start" or id is None:
            ids[number] = draw("ids", st.lists(st.integers(0, 1), max_size=7))
            shared = draw("shared", (True, True, False))
            given = list(ids[number])
            draw.see("found", cache.start(number, given if shared else None))
            draw.see("given", given)
        elif what == "write":
            n = draw("n", (1, 2, 3, 0))
            if tried(draw, "reserve", lambda: cache.reserve(id, n)):
                ids[id] += [draw("token", (0, 1))] * max(0, cache.lengths[id] - len(ids[id]))
                write(draw, cache, id, n)
                written.add(id)
                if draw("commit", (True, True, False)):
                    cache.commit(id, ids[id])
        elif what == "fork":
            if tried(draw, "fork", lambda: cache.fork(id, draw("new", (number, id)))) and number in cache.tables:
                ids[number] = list(ids[id])
        elif what == "free":
            cache.free(id)
            del ids[id]
        else:
            tried(draw, "start again", lambda: cache.start(id, ids[id]))
        see_cache(draw, cache)


def rows(impl, draw):
    cache, n = a_cache(impl, draw), draw("n", (1, 2))
    lengths = [n + draw("before", (0, 1, 2)) for _ in range(draw("rows", (1, 2)))]
    seen = torch.full((len(lengths), max(lengths)), cache.padding)
    for id, length in enumerate(lengths):
        cache.start(id)
        if length > n:
            cache.reserve(id, length - n)
            write(draw, cache, id, length - n)
        cache.reserve(id, n)
        seen[id, max(lengths) - length:] = cache.slots(id)
    view = impl.PagedRows(cache, draw("layer", st.integers(0, len(cache.keys) - 1)), seen[:, -n:], seen)
    shape = (len(lengths), cache.keys.shape[3], n, cache.keys.shape[4])
    draw.see("update", view.update(*(draw.tensor(name, shape, cache.keys.dtype, grad=False) for name in "kv")))
    see_cache(draw, cache)


def a_request(impl, draw, id, vocab, most):
    prompt = draw("prompt", st.lists(st.integers(0, vocab - 1), min_size=1, max_size=most))
    return impl.Request(id=id, prompt=prompt, max_new_tokens=draw("new", (2, 1, 5)),
                        stop=draw("stop", ((), (0,), (1, 2))), seed=draw("seed", (0, 1, 2)),
                        sampling=ex15_generation.Sampling(**settings_of(draw)))


def see_scheduler(draw, scheduler):
    draw.see("jobs", [[[job.id, list(job.tokens)] for job in jobs] for jobs in (scheduler.running, scheduler.waiting)])
    draw.see("counters", [scheduler.preemptions, scheduler.computed, scheduler.reused, dict(scheduler.cache.lengths)])
    see_allocator(draw, scheduler.cache.allocator)


def plans(impl, draw):
    size = draw("block_size", (2, 1, 4))
    cache = impl.PagedKVCache(1, 1, 1, draw("blocks", st.integers(12, 20)) // size, size)
    scheduler = impl.Scheduler(cache, draw("budget", (4, 1, 2, 9, 30)), draw("most", (3, 1, 2, 9)),
                               *draw("reuse", ((), (False,), (True,))))
    for number in range(draw("steps", st.integers(1, 20))):
        what = draw("do", ("add", "add", "plan", "plan", "plan", "plan", "remove", "preempt"))
        present = [*scheduler.running, *scheduler.waiting]
        if what == "add":
            scheduler.add(impl.Job(a_request(impl, draw, number, 2, 6)))
        elif what == "remove" and present:
            scheduler.remove(present[draw("which", st.integers(0, len(present) - 1))])
        elif what == "preempt" and scheduler.running:
            scheduler.preempt()
        else:
            plan = scheduler.plan()
            draw.see("plan", [[job.id, n] for job, n in plan])
            for job, _ in plan:
                cache.commit(job.id, job.tokens)
                if cache.lengths[job.id] == len(job.tokens):
                    job.tokens.append(draw("token", (0, 1)))
                    if job.new_tokens == job.request.max_new_tokens:
                        scheduler.remove(job)
        see_scheduler(draw, scheduler)


def engines(impl, draw):
    vocab = draw("vocab", (3, 2, 6))
    config = ex13_transformer.ModelConfig(
        vocab_size=vocab, d_model=4, layers=draw("layers", (1, 2)), heads=draw("heads", (2, 1)), d_ff=3,
        max_seq_len=draw("window", (24, 9)), positions=draw("positions", ("rope", "learned", "none")),
        dropout=draw("dropout", (0.0, 0.3)))
    model = draw.module(ex13_transformer.Transformer, config, dtype=draw("model in", (torch.float64, torch.float32)))
    given, broken = [], []
    model.register_forward_hook(lambda module, args, out: given.append(args[0].tolist()) and None)
    model.register_forward_pre_hook(lambda module, args: 1 / 0 if broken else None)
    size, sizes = draw("block_size", (2, 1, 4)), {}
    for name, values in {"budget": (4, 1, 9), "most": (2, 1, 9), "reuse": (True, False)}.items():
        if draw(f"with {name}", (True, True, False)):
            sizes[name] = draw(name, values)
    engine = impl.Engine(model, draw("blocks", st.integers(8, 14)) // size, size, **sizes)
    for number in range(draw("steps", st.integers(1, 14))):
        what = draw("do", ("add", "add", "step", "step", "step", "step", "cancel", "break"))
        if what == "add":
            request = a_request(impl, draw, draw("id", (number, 0)), vocab + draw("more ids", (0, 0, 0, 1)), 9)
            tried(draw, "add", lambda: engine.add(request))
        elif what == "cancel":
            draw.see("cancel", engine.cancel(draw("id", st.integers(0, number))))
        else:
            if what == "break":
                broken.append(1)
            try:
                draw.see("step", [list(output) for output in engine.step()])
            except ZeroDivisionError:
                draw.see("step", "failed")
            broken.clear()
        draw.see("model", [sorted(given), model.training])
        see_scheduler(draw, engine.scheduler)
    draw.see("torch's own numbers", torch.default_generator.get_state())
    steps = 0
    while engine.unfinished and steps < 60:
        draw.see("then", [list(output)[:3] for output in engine.step()])
        steps += 1
    draw.see("steps", steps)
