"""What the parts of chapter 24 may be given."""

import torch
from hypothesis import strategies as st
from reference import ex11_kv_cache, ex13_transformer, ex15_generation

from tests.course.checks.configurations.ex15_generation import settings_of

FLOATS = (torch.float64, torch.float32)


def probs_of(draw, label, axes):
    """Probabilities: of softmax, some of them 0, or certain of one token."""
    scores = draw.tensor(label, axes, draw(f"{label} in", FLOATS), ("normal", "zeros", "whole", "large"), grad=False)
    if scores.numel() and draw(f"{label}, some 0", (False, True)):
        scores = scores.masked_fill(scores < scores.amax(-1, keepdim=True) - 1, -torch.inf)
    return scores.softmax(-1)


def a_row(impl, draw):
    shape = (*draw.shape("*batch"), draw("vocab", (3, 1, 2, 7)))
    p, q = probs_of(draw, "target_probs", shape), probs_of(draw, "draft_probs", shape)
    if draw("equal rows", (False, True)):
        q = torch.where(torch.arange(len(q)).view(-1, *[1] * (q.ndim - 1)) % 2 == 0, p, q) if q.ndim > 1 else p.clone()
    draw.asked(impl.acceptance_rate, p, q)
    draw.asked(impl.residual, p, q)


def accept(impl, draw):
    batch, k, vocab = draw.shape("*batch"), draw("k", (2, 0, 1, 4)), draw("vocab", (3, 1, 2, 6))
    p = probs_of(draw, "target_probs", (*batch, k + 1, vocab))
    q = probs_of(draw, "draft_probs", (*batch, k, vocab))
    if draw("q is p", (False, True)):
        q = p[..., :k, :].clone()
    ids = draw.ints("draft_ids", (*batch, k), vocab, dtypes=(torch.int64, torch.int32, torch.int16))
    if draw("one-hot", (False, True)):
        q = torch.nn.functional.one_hot(ids.long(), vocab).to(q.dtype)
    rng = torch.Generator().manual_seed(draw("seed", (0, 1, 2, 3)))
    draw.see("ids and count", impl.accept(ids, q, p, rng))
    draw.see("rng", rng.get_state())
    draw.asked(impl.accept, ids, q, p)


def worth(impl, draw):
    rate, k = draw("rate", (0.5, 0.0, 1.0, 1, 0, 0.9)), draw("k", (3, 0, 1, 8))
    draw.asked(impl.expected_tokens, rate, k)
    draw.asked(impl.speedup, rate, k, draw("cost", (0.1, 0.0, 1, 2.5)))


def prompt_lookup(impl, draw):
    high = draw("letters", (2, 1, 4, 9))
    ids = draw("ids", st.lists(st.integers(0, high - 1), max_size=14))
    draw.asked(impl.prompt_lookup, ids, draw("n", (1, 2, 3, 20)), draw("k", (1, 2, 5, 20)))


def sampling_probs(impl, draw):
    logits = draw.tensor("logits", (draw("rows", (2, 1, 0, 3)), draw("vocab", (5, 1, 3))), holes=True, grad=False)
    ids = [draw("ids", st.lists(st.integers(0, logits.shape[1] - 1), max_size=4)) for _ in range(len(logits))]
    draw.asked(impl.sampling_probs, logits, ids, ex15_generation.Sampling(**settings_of(draw)))


def a_model(draw, name, vocab, layers=(1, 2)):
    dtype = draw(f"{name} in", (torch.float32, torch.float32, torch.float64, torch.bfloat16))
    config = ex13_transformer.ModelConfig(
        vocab_size=vocab, d_model=4, layers=draw(f"{name} layers", layers), heads=draw(f"{name} heads", (2, 1)),
        d_ff=3, max_seq_len=24, positions=draw(f"{name} positions", ("rope", "learned", "none")),
        dropout=draw(f"{name} dropout", (0.0, 0.3)))
    model = draw.module(ex13_transformer.Transformer, config, dtype=dtype)
    return model


def watched(model):
    seen = []
    model.register_forward_hook(lambda module, args, out: seen.append([args[0].tolist(), module.training]) and None)
    return seen


def caches_of(model, capacity=24):
    return ex13_transformer.make_caches(model.config, 1, capacity, next(model.parameters()).dtype)


class Stubborn:
    """A cache without rewind."""


def reader(impl, draw):
    vocab = draw("vocab", (3, 2, 6))
    model = a_model(draw, "model", vocab).eval()
    seen, caches = watched(model), caches_of(model)
    read = impl.Reader(model, caches)
    text = []
    for _ in range(draw("reads", st.integers(1, 5))):
        text = text[:draw("kept", (99, 0, 1, 2, 4))] + draw("more", st.lists(st.integers(0, vocab - 1), max_size=4))
        text = text[:20] or [0]
        logits = read(text, draw("last", st.integers(1, len(text))))
        draw.see("logits", logits)
        draw.see("seen", [list(read.seen), [cache.length for cache in caches], seen])
        draw.see("text", text)
        if draw("the caller's list grows", (False, True)):
            text.append(0)
    for other in ([*caches, Stubborn()], [ex11_kv_cache.RollingKVCache(1, 1, 4, 2)]):
        try:
            impl.Reader(model, other)
            draw.see("taken", True)
        except ValueError:
            draw.see("taken", False)


def draft_tokens(impl, draw):
    vocab = draw("vocab", (3, 2, 6))
    model = a_model(draw, "draft", vocab).eval()
    read, seen = impl.Reader(model, caches_of(model)), watched(model)
    how, rng = ex15_generation.Sampling(**settings_of(draw)), torch.Generator().manual_seed(draw("seed", (0, 1, 2)))
    for _ in range(draw("calls", (1, 2))):
        ids = draw("ids", st.lists(st.integers(0, vocab - 1), min_size=1, max_size=4))
        draw.see("drafts", impl.draft_tokens(ids, draw("k", (2, 1, 4)), read, how, rng))
        draw.see("ids", [ids, seen])
    draw.see("rng", rng.get_state())


def a_function(draw, vocab):
    """A draft that knows no model: some tokens, drawn from something or from nothing."""
    tokens = draw("tokens", st.lists(st.integers(0, vocab - 1), max_size=6))
    table, told = None, []
    if draw("with probabilities", (False, True)):
        table = probs_of(draw, "table", (6, vocab))

    def draft(ids, k):
        told.append([list(ids), k])
        n = min(k, len(tokens))
        return tokens[:n], None if table is None else table[:n]
    return draft, told


def speculative_step(impl, draw):
    vocab = draw("vocab", (3, 2, 6))
    model = a_model(draw, "target", vocab).eval()
    seen, (draft, told) = watched(model), a_function(draw, vocab)
    how, rng = ex15_generation.Sampling(**settings_of(draw)), torch.Generator().manual_seed(draw("seed", (0, 1, 2)))
    text, read = [draw("first", (0, 1))], impl.Reader(model, caches_of(model))
    for _ in range(draw("passes", (1, 3))):
        new, *counts = impl.speculative_step(text, draw("k", (2, 0, 1, 5)), read, draft, how, rng)
        draw.see("step", [new, counts, list(text), seen, told])
        text = text + new
    draw.see("rng", rng.get_state())


def generate(impl, draw):
    vocab = draw("vocab", (3, 2, 6))
    target = a_model(draw, "target", vocab)
    told, seen, drafted = [], watched(target), []
    kind = draw("draft", ("model", "itself", "function", "lookup"))
    if kind == "model":
        draft = a_model(draw, "draft", vocab)
        drafted = watched(draft)
    elif kind == "itself":
        draft = target
    elif kind == "lookup":
        draft = impl.lookup_draft(draw("n", (1, 2, 3)))
    else:
        draft, told = a_function(draw, vocab)
    ids = draw("ids", st.lists(st.lists(st.integers(0, vocab - 1), min_size=1, max_size=4), min_size=1, max_size=2))
    given = settings_of(draw)
    if draw("with stop", (False, True)):
        stop = draw("stop", st.lists(st.integers(0, vocab - 1), max_size=2))
        given["stop"] = iter(stop) if draw("stop once", (False, True)) else stop
    if draw("says k", (False, True)):
        given["k"] = draw("k", (1, 2, 7))
    rng = torch.Generator().manual_seed(draw("seed", (0, 1))) if draw("with rng", (True, False)) else None
    draw.see("said", impl.speculative_generate(target, draft, ids, draw("new", (3, 0, 1, 6)), rng=rng, **given))
    draw.see("passes", [seen, drafted, told])
    draw.see("afterwards", [ids, rng and rng.get_state(), torch.default_generator.get_state()])
    draw.see("modes", [part.training for part in target.modules()])
