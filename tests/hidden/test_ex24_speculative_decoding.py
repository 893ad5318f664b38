"""Lesson 24 on other shapes, dtypes, models and drafts."""

import math

import torch

from grader import dtypes, points, raises
from grader.course.doubles import Elsewhere

SIZES = {"vocab_size": 9, "d_model": 8, "layers": 1, "heads": 2, "d_ff": 10, "max_seq_len": 24}
KINDS = {
    "learned positions": {"positions": "learned", "norm": "layer", "feed_forward": "mlp"},
    "QK-norm, tied": {"heads": 4, "kv_heads": 2, "qk_norm": True, "tie_embeddings": True},
}


def _model(impl, draw, **changes):
    return draw.fill(impl.Transformer(impl.ModelConfig(**{**SIZES, **changes})))


def _prompts():
    return [[3], [8, 0, 4, 2]]


def _generate(impl, *args, **how):
    """What speculative_generate says, in plain words."""
    new, statistics = impl.speculative_generate(*args, **how)
    return {"new ids": new, "statistics": statistics._asdict()}


def _rng(seed=0):
    return torch.Generator().manual_seed(seed)


def _probs(draw, *shape, scale=1.0):
    return torch.softmax(draw(*shape, scale=scale), -1)


def _watch(model):
    seen = []
    model.register_forward_hook(lambda module, args, out: seen.append(args[0][0].tolist()))
    return seen


def test_rates_of_any_shape(impl, draw):
    """acceptance_rate and residual take transposed numbers, one token, and batches of nothing."""
    p, q = (torch.softmax(draw(6, 3, 2), 0).permute(2, 1, 0) for _ in range(2))
    one = torch.ones(3, 1, dtype=draw.float, device=draw.device)
    return [[f(p, q), f(one, one.clone()), f(p[:0], q[:0])] for f in (impl.acceptance_rate, impl.residual)]


@dtypes("bfloat16", "float64")
def test_rates_of_two_dtypes(impl, draw, dtype):
    """p and q of two dtypes: the sum of a target in half precision and a draft in float32."""
    balls = [draw.ints(5, 4, 16) for _ in range(2)]
    p, q = (torch.nn.functional.one_hot(x, 5).sum(-2).to(draw.float) / 16 for x in balls)
    return [f(*pair) for f in (impl.acceptance_rate, impl.residual) for pair in ((p.to(dtype), q), (p, q.to(dtype)))]


def test_the_residual_is_given_anew(impl, draw):
    """Whoever writes into a residual changes nothing that he gave."""
    p, q = _probs(draw, 4, 5), _probs(draw, 4, 5)
    q[1:3] = p[1:3]
    p, q = p.clone(), q.clone()
    found = [impl.residual(p, q), impl.residual(p[1:3], q[1:3])]
    for x in found:
        x.fill_(7.0)
    return [p, q]


def test_accept_of_long_drafts(impl, draw):
    """20 drafts, most of which are accepted, of transposed numbers."""
    p = torch.softmax(draw(5, 21, 12), 0).permute(2, 1, 0)
    q = torch.softmax(p[:, :20].log() + draw(12, 20, 5, scale=0.1), -1)
    drafts = draw.ints(5, 20, 12).T
    return impl.accept(drafts, q, p, _rng(1))


def test_accept_of_one_token(impl, draw):
    """A vocabulary of one token: every draft is accepted, and the bonus is that token, too."""
    one = torch.ones(4, 3, 1, dtype=draw.float, device=draw.device)
    return impl.accept(draw.ints(1, 4, 2), one[:, :2].clone(), one, _rng(3))


def test_accept_what_is_left_out(impl, draw):
    """A token with p = 0 never comes, neither as a draft nor as an own token, whatever u is."""
    p = torch.softmax(torch.cat([draw(200, 2, 4), draw.uniform(200, 2, 2).log() * math.inf], -1).nan_to_num(
        neginf=-math.inf), -1)
    q = _probs(draw, 200, 1, 6)
    ids, count = impl.accept(draw.ints(6, 200, 1), q, p, _rng(4))
    return {"ids": ids, "count": count}


def test_accept_by_turns(impl, draw):
    """One text after the other from one rng draws what a loop over the texts draws."""
    p, q, drafts, rng = _probs(draw, 6, 3, 5), _probs(draw, 6, 2, 5), draw.ints(5, 6, 2), _rng(5)
    return {"one by one": [impl.accept(*row, rng) for row in zip(drafts, q, p)],
            "at once": impl.accept(drafts, q, p, _rng(5))}


def test_accept_on_another_device(impl, draw):
    """The numbers are drawn where rng is, and what comes back lies where the probabilities lie."""
    p, q, drafts = _probs(draw, 3, 5), _probs(draw, 2, 5), draw.ints(5, 2)
    with Elsewhere() as there:
        moved = [x.to(there.device) for x in (drafts, q, p)]
        return {name: x.device.type for name, x in zip(("ids", "count"), impl.accept(*moved, _rng(6)))}


def test_worth_of_many(impl, draw):
    """expected_tokens and speedup at rates near 1, near 0, and for hundreds of drafts."""
    small = 0.01 * float(draw.uniform())
    return [[impl.expected_tokens(rate, k), impl.speedup(rate, k, small)]
            for rate in (small, 0.5, 1 - small, 1) for k in (0, 1, 300)]


def test_lookup_of_everything(impl, draw):
    """Texts of one, two and three tokens and longer ones, n beyond the text, k beyond what follows."""
    texts = [draw.ints(high, size).tolist() for high in (1, 2, 3, 20) for size in (0, 1, 2, 3, 7, 30)]
    return [impl.prompt_lookup(text, n, k) for text in texts for n in (1, 3, 40) for k in (1, 40)]


@dtypes("bfloat16", "float16", "float64")
def test_sampling_probs_of_other_dtypes(impl, draw, dtype):
    """Logits in half precision are widened before anything is done, and probabilities are float64."""
    logits = (draw.ints(64, 4, 7).to(draw.float) / 8).to(dtype)
    large = (draw.ints(9, 4, 7).to(draw.float) * 1000).to(dtype)
    ids = draw.ints(7, 4, 2).tolist()
    return [impl.sampling_probs(logits, ids, impl.Sampling(temperature=0.7, top_p=0.8, repetition_penalty=1.3)),
            impl.sampling_probs(large, [[]] * 4, impl.Sampling(temperature=0.1)),
            raises(ValueError, lambda: impl.sampling_probs(logits, ids[1:], impl.Sampling()), names="ids")]


@points(2)
def test_reader_of_many_texts(impl, draw):
    """Texts in any order, of any length, with beginnings in common or without."""
    model = _model(impl, draw)
    given, reader, said = _watch(model), impl.new_reader(model, 12), []
    text = draw.ints(3, 4).tolist()
    for size in (draw.ints(4, 9) + 1).tolist():
        text = text[:max(1, len(text) - size)] + draw.ints(3, size).tolist()
        last = 1 + int(draw.ints(len(text)))
        said.append([reader(text, last), [cache.length for cache in reader.caches]])
    return {"logits": said, "given": given}


def test_reader_after_an_error(impl, draw):
    """After an id that is not in the vocabulary, which the model refuses, the Reader goes on."""
    model = _model(impl, draw, layers=2)
    reader = impl.new_reader(model, 12)
    text = draw.ints(9, 6).tolist()
    reader(text, 1)
    refused = raises(ValueError, lambda: reader(text[:3] + [99], 1))
    given = _watch(model)
    return {"refused": refused, "afterwards": [reader(text, 2), reader(text + [1], 1)], "given": given}


class Counter:
    """A cache that can count and rewind, but is none of the course's."""

    def __init__(self, length=0):
        self.length, self.calls = length, []

    def rewind(self, n):
        self.calls.append(n)
        self.length -= n


def test_reader_of_other_caches(impl, draw):
    """Any cache with rewind will do; what it held before is not of this text, and goes."""
    calls, model = [], _model(impl, draw)

    def answer(ids, *args, caches=None, **kwargs):
        calls.append(ids.tolist())
        caches = args[-1] if args else caches
        for cache in caches:
            cache.length += ids.shape[1]
        return torch.nn.functional.one_hot(ids, 9).to(draw.float)
    model.forward = answer
    reader, text = impl.Reader(model, [Counter(), Counter(2)]), draw.ints(9, 5).tolist()
    said = [reader(text[:3], 1), reader(text, 2), reader(text[:2] + text[3:], 1)]
    return {"logits": said, "rewound": [cache.calls for cache in reader.caches], "given": calls,
            "no rewind": raises(ValueError, lambda: impl.Reader(model, [Counter(), object()]), names="caches")}


def test_drafts_of_other_models(impl, draw):
    """A draft may have another width, other heads and positions; only the vocabulary is the target's."""
    target, said = _model(impl, draw), {}
    for name, kind in KINDS.items():
        draft = _model(impl, draw, **kind)
        said[name] = [_generate(impl, target, draft, _prompts(), 5, k=2, temperature=0),
                      _generate(impl, draft, target, _prompts()[1:], 5, rng=_rng(7), k=2)]
    return said


@dtypes("float64", "float16")
def test_generate_in_other_dtypes(impl, draw, dtype):
    """Caches are made in each model's own dtype: the target in one, the draft in float32."""
    target, draft = _model(impl, draw).to(dtype), _model(impl, draw, heads=1)
    new, statistics = impl.speculative_generate(target, draft, _prompts(), 5, rng=_rng(8), k=2)
    return [[len(row) for row in new], sum(map(len, new)) == statistics.passes + statistics.accepted]


@points(2)
def test_generate_penalized(impl, draw):
    """With a repetition penalty greedy text is generate's: drafts before a place count, rejected ones do not."""
    target, draft = _model(impl, draw), _model(impl, draw, heads=1)
    return [_generate(impl, target, by, _prompts(), 6, k=3, temperature=0, repetition_penalty=2.0)
            for by in (target, draft, impl.lookup_draft(1))]


def test_generate_by_itself(impl, draw):
    """The target as its own draft: everything is accepted, and its mode is put back once."""
    model = _model(impl, draw, dropout=0.3).train()
    said = _generate(impl, model, model, _prompts(), 6, k=3, temperature=0)
    return {"said": said, "training": [part.training for part in (model, model.norm)],
            "rate": said["statistics"]["accepted"] / said["statistics"]["judged"]}


def test_generate_without_an_rng(impl, draw):
    """Without an rng the numbers come from torch's own generator; the same seed, the same text."""
    target, draft = _model(impl, draw), _model(impl, draw, heads=1)
    torch.manual_seed(draw.seed)
    return [_generate(impl, target, draft, _prompts(), 4, k=2) for _ in range(2)]


def test_generate_by_a_draft_that_hesitates(impl, draw):
    """A function may give fewer tokens than k, and none at times."""
    target, asked = _model(impl, draw), []

    def draft(ids, k):
        asked.append([list(ids), k])
        return [ids[-1]] * min(k, len(ids) % 3), None
    return {"said": _generate(impl, target, draft, _prompts(), 7, rng=_rng(9), k=3), "asked": asked}


def test_generate_stops_by_its_own_token(impl, draw):
    """A stop token may be the target's own or the last that there is room for; in the prompt it stops nothing."""
    target, draft = _model(impl, draw), _model(impl, draw, heads=1)
    [free], _ = impl.speculative_generate(target, draft, _prompts()[1:], 6, k=2, temperature=0)
    return [_generate(impl, target, draft, _prompts()[1:], 6, [id], k=2, temperature=0)
            for id in (free[0], free[-1], _prompts()[1][0])]


def test_generate_leaves_gradients_on(impl, draw):
    """Afterwards gradients can be computed, and nothing has recorded any."""
    target, draft = _model(impl, draw), _model(impl, draw, heads=1)
    _generate(impl, target, draft, _prompts()[:1], 2, k=1, temperature=0)
    x = draw(3).requires_grad_()
    (x * x).sum().backward()
    return {"slope": x.grad, "none recorded": all(p.grad is None for p in target.parameters())}
