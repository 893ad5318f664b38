"""Chapter 25 against what it promises: every request's text as chapter 15's generate gives it alone, no block lost."""

import random

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from given.torch_kernels import use_torch_kernels
from solutions.ex13_transformer import POCKET, ModelConfig, Transformer
from solutions.ex15_generation import Sampling, generate
from solutions.ex25_serving import (
    BlockAllocator,
    Engine,
    OutOfBlocks,
    PagedKVCache,
    Request,
    blocks_needed,
    blocks_that_fit,
    paged_attention,
    serve,
)
from tests.course.close import assert_close

TINY = ModelConfig(vocab_size=7, d_model=8, layers=2, heads=2, kv_heads=1, d_ff=8, max_seq_len=24, windows=(None, 5))
PREFIX = [1, 2, 3, 4, 5, 6, 0, 1]


def a_model(config: ModelConfig, dtype: torch.dtype = torch.float64) -> Transformer:
    """Random weights that are large enough for texts to depend on every token."""
    torch.manual_seed(0)
    model = Transformer(config)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=parameter.shape[1]**-0.5)
    return model.to(dtype).eval()


MODEL = a_model(TINY)


def alone(request: Request, model: Transformer = MODEL) -> list[int]:
    """What generate gives a request's prompt alone."""
    how = request.sampling
    return generate(model, [list(request.prompt)], request.max_new_tokens, request.stop,
                    torch.Generator().manual_seed(request.seed), temperature=how.temperature, top_k=how.top_k,
                    top_p=how.top_p, min_p=how.min_p, repetition_penalty=how.repetition_penalty)[0]


@st.composite
def schedules(draw) -> dict:
    """An engine's sizes, and requests: each with the step at which it comes, and perhaps one at which its user goes."""
    size = draw(st.integers(1, 4))
    blocks = draw(st.integers(6, 14)) // size
    sizes = {"blocks": blocks, "block_size": size, "budget": draw(st.integers(1, 12)), "most": draw(st.integers(2, 4)),
             "reuse": draw(st.booleans())}
    most = min(TINY.max_seq_len, blocks * size + 1)
    requests = []
    for id in range(draw(st.integers(1, 5))):
        own = draw(st.lists(st.integers(0, 6), min_size=1, max_size=3))
        prompt = (PREFIX[:draw(st.sampled_from([0, 2, 5, 8]))] + own)[:most - 1]
        how = {"temperature": draw(st.sampled_from([0, 1.0, 0.7])), "top_k": draw(st.sampled_from([None, 3])),
               "repetition_penalty": draw(st.sampled_from([1.0, 1.3]))}
        new = min(draw(st.sampled_from([9, 6, 2, 1])), most - len(prompt))
        request = Request(id=id, prompt=prompt, max_new_tokens=new, stop=draw(st.sampled_from([(), (3,)])),
                          seed=draw(st.integers(0, 3)), sampling=Sampling(**how))
        requests.append((draw(st.integers(0, 4)), draw(st.none() | st.integers(0, 10)), request))
    return {"sizes": sizes, "requests": sorted(requests, key=lambda entry: entry[0])}


def must_be_conserved(engine: Engine) -> None:
    """Every block is free or in as many tables as it has holders, and every hash leads to its block and back."""
    allocator, tables = engine.cache.allocator, list(engine.cache.tables.values())
    held = [block for table in tables for block in table]
    assert [held.count(block) for block in range(len(allocator.counts))] == allocator.counts
    assert set(allocator.unused) == {block for block, count in enumerate(allocator.counts) if not count}
    assert {hash: block for block, hash in allocator.hashes.items()} == allocator.by_hash
    assert {job.id for job in engine.scheduler.running} == set(engine.cache.tables)
    for id, table in engine.cache.tables.items():
        assert len(table) == blocks_needed(engine.cache.lengths[id], engine.cache.block_size)
    for pool in (engine.cache.keys, engine.cache.values):
        assert not pool[:, -1].any(), "padding was written"


PREEMPTED, SHARED, CANCELLED = [], [], []


@settings(max_examples=200, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(schedules())
def test_every_text_is_as_alone(schedule):
    """Requests that come and go in 200 random schedules, through pools that are too small for all of them.

    Nobody starves: who arrived first of those who are there is never preempted, and gets at least one token computed in
    every step. So after the last has come, there are no more steps than tokens.
    """
    engine, texts, ended, left = Engine(MODEL, **schedule["sizes"]), {}, {}, set()
    requests = schedule["requests"]
    tokens = sum(len(request.prompt) + request.max_new_tokens for _, _, request in requests)
    for step in range(7 + tokens):
        for come, go, request in requests:
            if come == step:
                engine.add(request)
                texts[request.id] = []
            if go == step and engine.cancel(request.id):
                left.add(request.id)
        oldest = [*engine.scheduler.running, *engine.scheduler.waiting][:1]
        computed, before = engine.scheduler.computed, [(job.id, engine.cache.lengths.get(job.id, 0)) for job in oldest]
        for id, token, finished, error in engine.step():
            assert id not in ended and id not in left and error is None
            texts[id] += [token] if token is not None else []
            if finished:
                ended[id] = finished
        assert engine.scheduler.computed - computed <= schedule["sizes"]["budget"]
        for id, length in before:
            assert id in ended or engine.cache.lengths[id] > length, "who came first did not get on"
        must_be_conserved(engine)
    assert engine.unfinished == 0, "somebody starves"
    assert not any(engine.cache.allocator.counts) and not engine.cache.lengths and not engine.cache.chains
    for _, _, request in requests:
        text, wanted = texts[request.id], alone(request)
        if request.id in left:
            assert text == wanted[:len(text)]
        else:
            assert text == wanted
            length = len(text) == request.max_new_tokens
            assert ended[request.id] == ("length" if length else "stop")
    PREEMPTED.append(engine.scheduler.preemptions)
    SHARED.append(engine.scheduler.reused)
    CANCELLED.append(len(left))


def test_the_schedules_were_worth_it():
    """In many of them jobs were preempted, prefixes shared, users gone."""
    if not PREEMPTED:
        pytest.skip("no schedule was run in this process")
    many = [sum(map(bool, what)) for what in (PREEMPTED, SHARED, CANCELLED)]
    assert min(many) >= 25, many


@pytest.mark.parametrize("kernels", [False, True], ids=["own", "torch's kernels"])
def test_the_pocket_models_size(kernels):
    """Five requests at the pocket model's size: texts as alone, with prefixes shared."""
    model = a_model(POCKET, torch.float32)
    if kernels:
        use_torch_kernels(model)
    torch.manual_seed(1)
    prefix = torch.randint(4096, (40,)).tolist()
    requests = [Request(id=id, prompt=prefix[:8 * id + 8] + [id], max_new_tokens=4, seed=id,
                        sampling=Sampling(temperature=id % 2)) for id in range(5)]
    engine = Engine(model, 20, 16, budget=24)
    assert serve(engine, requests) == {request.id: alone(request, model) for request in requests}
    assert engine.scheduler.reused > 0 and not any(engine.cache.allocator.counts)


@pytest.mark.parametrize("changes", [
    {"positions": "learned", "norm": "layer", "feed_forward": "mlp", "windows": None},
    {"qk_norm": True, "tie_embeddings": True, "heads": 4, "kv_heads": 2},
    {"windows": (3, 2)}, {"windows": None, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
], ids=["GPT-2's parts", "Qwen3's", "windows", "scaled RoPE"])
def test_models_of_all_kinds(changes):
    model = a_model(ModelConfig(**{**TINY.__dict__, "head_dim": None, **changes}))
    requests = [Request(id=id, prompt=PREFIX[:1 + 2 * id], max_new_tokens=6, seed=id) for id in range(4)]
    texts = serve(Engine(model, 12, 3, budget=5), requests)
    assert texts == {request.id: alone(request, model) for request in requests}


def test_1_000_requests_wait():
    """All of them are served, in the order in which they came, and no block is lost."""
    engine = Engine(MODEL, 12, 4, budget=16, most=8)
    for id in range(1000):
        engine.add(Request(id=id, prompt=[id % 7], max_new_tokens=1 + id % 2, seed=id))
    begun = []
    while engine.unfinished:
        begun += [output.id for output in engine.step() if output.id not in begun[-20:]]
    assert list(dict.fromkeys(begun)) == list(range(1000))
    assert not any(engine.cache.allocator.counts)


@pytest.mark.parametrize("heads, kv_heads, new, size", [
    (1, 1, 1, 4), (4, 2, 1, 3), (6, 1, 5, 4), (4, 4, 3, 1), (8, 2, 2, 16)])
def test_paged_attention_against_torch(heads, kv_heads, new, size):
    """Each row against scaled_dot_product_attention over its own keys, put together one by one."""
    torch.manual_seed(0)
    lengths = [new, new + 1, 4 * size, 2 * size + 1, 4 * size - 1]
    lengths = [max(length, new) for length in lengths]
    most = max(blocks_needed(length, size) for length in lengths)
    blocks = most * len(lengths)
    keys, values = (torch.randn(blocks, size, kv_heads, 8, dtype=torch.float64) for _ in range(2))
    q, tables = torch.randn(len(lengths), heads, new, 8, dtype=torch.float64), torch.randperm(blocks).view(-1, most)
    out = paged_attention(q, keys, values, tables, torch.tensor(lengths))
    for row, length in enumerate(lengths):
        k, v = (torch.stack([pool[tables[row, p // size], p % size] for p in range(length)], 1)
                for pool in (keys, values))
        mask = torch.ones(new, length, dtype=torch.bool).tril(length - new)
        wanted = torch.nn.functional.scaled_dot_product_attention(q[row], k, v, mask, enable_gqa=True)
        assert_close(out[row], wanted)


def test_what_is_found_is_what_was_computed():
    """1,000 random calls of a cache whose keys tell their own token and all before it: sharing never mixes texts up."""
    rng = random.Random(0)
    cache, texts, found = PagedKVCache(1, 1, 1, 12, 2, torch.float64), {}, 0

    def write(id: int) -> None:
        ids, length = texts[id], cache.lengths[id]
        try:
            cache.reserve(id, len(ids) - length)
        except OutOfBlocks:
            cache.free(id)
            del texts[id]
            return
        keys = torch.tensor([hash(tuple(ids[:n + 1])) % 2**40 for n in range(len(ids))], dtype=torch.float64)
        new = cache.slots(id)[None, length:]
        cache.write(0, new, keys[None, None, length:, None], -keys[None, None, length:, None])
        cache.commit(id, ids)

    for id in range(1000):
        if texts and rng.random() < 0.4:
            cache.free(old := rng.choice(list(texts)))
            del texts[old]
        if texts and rng.random() < 0.3:
            cache.fork(old := rng.choice(list(texts)), id)
            texts[id] = texts[old] + [rng.randrange(3)]
        else:
            texts[id] = [rng.randrange(2) for _ in range(rng.randint(1, 9))]
            found += cache.start(id, texts[id])
        write(id)
        if texts and rng.random() < 0.5:
            old = rng.choice(list(texts))
            texts[old] = texts[old] + [rng.randrange(3) for _ in range(rng.randint(1, 3))]
            write(old)
        for id, ids in texts.items():
            k, v = cache.gather(0, cache.slots(id)[None])
            wanted = [hash(tuple(ids[:n + 1])) % 2**40 for n in range(len(ids))]
            assert k.flatten().tolist() == wanted and (-v).flatten().tolist() == wanted
    assert found > 500


def test_the_memory_that_it_takes():
    """As many blocks as blocks_that_fit says take at most the memory, and one more would take too much."""
    for memory in (10**6, 3 * 10**6 + 17):
        blocks = blocks_that_fit(POCKET, 16, memory, 4)
        takes = [2 * PagedKVCache(POCKET.layers, POCKET.kv_heads, POCKET.head_dim, n, 16).keys.nbytes
                 for n in (blocks, blocks + 1)]
        assert takes[0] <= memory < takes[1]


def test_an_error_leaves_all_as_it_was():
    """An allocator that refuses does not change."""
    allocator = BlockAllocator(2)
    blocks = [allocator.allocate(), allocator.allocate()]
    allocator.free(blocks[0])
    before = (list(allocator.counts), list(allocator.unused), dict(allocator.by_hash))
    for bad in (blocks[0], 2, -1):
        for call in (allocator.free, allocator.share, lambda block: allocator.register(block, b"x")):
            with pytest.raises(ValueError, match="block"):
                call(bad)
    assert (list(allocator.counts), list(allocator.unused), dict(allocator.by_hash)) == before
