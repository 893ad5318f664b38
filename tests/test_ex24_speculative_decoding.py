"""What lesson 24 asks of acceptance, drafts, readers that rewind, and the loop around them."""

import math
from functools import partial

import torch

from grader import dtypes, points, raises

CHOICES = {"torch.multinomial", "torch.Tensor.multinomial", "torch.distributions.Categorical",
           "torch.distributions.categorical.Categorical", "torch.nn.functional.gumbel_softmax"}
FORBIDDEN = dict.fromkeys(("accept", "draft_tokens", "speculative_step", "speculative_generate"), CHOICES)

SIZES = {"vocab_size": 12, "d_model": 8, "layers": 1, "heads": 2, "d_ff": 12, "max_seq_len": 30}


def _model(impl, draw, **changes):
    return draw.fill(impl.Transformer(impl.ModelConfig(**{**SIZES, **changes})))


def _two(impl, draw):
    """A target, and a draft with its weights but one head, which agrees with it now and then."""
    return _model(impl, draw, positions="none"), _model(impl, draw, positions="none", heads=1)


def _prompts():
    return [[7, 1, 3], [5, 11, 0, 5, 11, 0, 5]]


def _generate(impl, *args, **how):
    """What speculative_generate says, in plain words."""
    new, statistics = impl.speculative_generate(*args, **how)
    return {"new ids": new, "statistics": statistics._asdict()}


def _rng(seed=0):
    return torch.Generator().manual_seed(seed)


def _probs(draw, *shape, scale=1.0):
    return torch.softmax(draw(*shape, scale=scale), -1)


def _parts(draw, *shape, of=32):
    """Probabilities that are whole numbers of 32nds, which every dtype can hold; many are 0."""
    thrown = draw.ints(shape[-1], *shape[:-1], of)
    return torch.nn.functional.one_hot(thrown, shape[-1]).sum(-2).to(draw.float) / of


def _one_hot(ids, vocab, draw):
    return torch.nn.functional.one_hot(ids, vocab).to(draw.float)


def _watch(model):
    """The ids that a model is given, a list for each forward pass from now on."""
    seen = []
    model.register_forward_hook(lambda module, args, out: seen.append(args[0][0].tolist()))
    return seen


# -- one token of the draft

def test_acceptance_rate(impl, draw):
    """acceptance_rate adds up the smaller of p and q over the vocabulary.

    A token that the draft says with probability q is kept with min(1, p / q): together that is min(p, q). The last
    axis is the vocabulary.
    """
    return {"a batch": impl.acceptance_rate(_probs(draw, 2, 3, 7), _probs(draw, 2, 3, 7, scale=2.0)),
            "a row": impl.acceptance_rate(_probs(draw, 7), _probs(draw, 7)),
            "half in common": impl.acceptance_rate(_parts(draw, 4, 5, of=8), _parts(draw, 4, 5, of=8))}


@points(2)
def test_residual(impl, draw):
    """residual is max(0, p − q), divided by its sum: what the draft says too rarely, as probabilities.

    Where q is above p the draft has said enough already: nothing is left there. The sum is over the last axis, and
    every row has its own.
    """
    return {"a batch": impl.residual(_probs(draw, 2, 3, 7), _probs(draw, 2, 3, 7, scale=2.0)),
            "a row": impl.residual(_probs(draw, 7), _probs(draw, 7))}


def test_residual_where_nothing_is_left(impl, draw):
    """Where p and q are equal, the residual is p, and not 0 / 0.

    max(0, p − q) is 0 everywhere then, and so is its sum. Other rows of the batch are as always.
    """
    p, q = _probs(draw, 3, 6), _probs(draw, 3, 6)
    return {"one row of three": impl.residual(p, torch.stack([q[0], p[1], q[2]])),
            "all rows": impl.residual(p, p.clone())}


def test_residual_of_certain_drafts(impl, draw):
    """Of a draft with probability 1, the residual is p without that token, made to add up to 1.

    So it is for prompt lookup, which draws nothing. Where p is certain of another token, the residual is p.
    """
    p, drafts = _probs(draw, 4, 6), draw.ints(6, 4)
    sure = _one_hot(drafts, 6, draw)
    return {"p without the draft": impl.residual(p, sure), "sure of another": impl.residual(sure.roll(1, -1), sure)}


@dtypes("float16", "bfloat16", "float64")
def test_rates_and_residuals_in_other_dtypes(impl, draw, dtype):
    """acceptance_rate and residual compute in at least float32, and their results stay there.

    In bfloat16 a sum of 1 comes out as 0.996. `widen` leaves float64 as it is.
    """
    p, q = _parts(draw, 5, 7).to(dtype), _parts(draw, 5, 7).to(dtype)
    return {"acceptance_rate": impl.acceptance_rate(p, q), "residual": impl.residual(p, q)}


def test_residual_and_rate_ask_for_probabilities(impl, draw):
    """Logits, negative numbers and NaN are no probabilities: a ValueError that names the argument.

    must_be_probabilities, which is given, says it: call it before anything is computed.
    """
    p, logits = _probs(draw, 3, 5), 2 + draw(3, 5).abs()
    nan, low = p.masked_fill(p == p.amax(), math.nan), p - 0.4 * (torch.arange(5, device=p.device) - 2)
    said = {}
    for name, x, other in (("logits, NaN", logits, nan), ("below 0, too much", low, 2 * p)):
        said[name] = [raises(ValueError, lambda: impl.acceptance_rate(x, p), names="target_probs"),
                      raises(ValueError, lambda: impl.acceptance_rate(p, other), names="draft_probs"),
                      raises(ValueError, lambda: impl.residual(other, p), names="target_probs"),
                      raises(ValueError, lambda: impl.residual(p, x), names="draft_probs")]
    return {**said, "what is fine": [impl.acceptance_rate(p, p), impl.residual(p, p)]}


# -- accept

@points(3)
def test_accept_of_a_batch(impl, draw):
    """Draft i is accepted where u[i] · q < p, up to the first that is not; then one token of the target's own.

    u is torch.rand((*batch, k + 1), generator=rng, dtype=torch.float64). Behind the accepted drafts stands a token
    drawn with u[k] by inverse_cdf: from the residual in the place of the first rejection, or, where all k drafts were
    accepted, from the last row of target_probs. Behind it −1. count counts drafts only.
    """
    p, q, drafts = _probs(draw, 60, 4, 6), _probs(draw, 60, 3, 6), draw.ints(6, 60, 3)
    ids, count = impl.accept(drafts, q, p, _rng())
    return {"ids": ids, "count": count}


@points(2)
def test_accept_of_one_row(impl, draw):
    """accept takes one text as well, k drafts without a batch axis, and any batch: (k + 1) ids each.

    Count axes from the end: -1 is the vocabulary, -2 the places.
    """
    said, rng = {}, _rng(1)
    for name, batch in {"no batch": (), "two axes": (3, 5), "one text": (1,), "no text": (0,)}.items():
        p, q = _probs(draw, *batch, 3, 6, scale=0.3), _probs(draw, *batch, 2, 6, scale=0.3)
        said[name] = impl.accept(draw.ints(6, *batch, 2), q, p, rng)
    return said


def test_accept_the_bonus(impl, draw):
    """Where every draft is accepted, the pass gives k + 1 tokens: the last is drawn from the target's last row.

    Nothing was drafted in the place behind the last draft: there is no residual there. Here p and q are equal, so that
    all are accepted.
    """
    p, drafts = _probs(draw, 40, 3, 8, scale=2.0), draw.ints(8, 40, 2)
    return dict(zip(("ids", "count"), impl.accept(drafts, p[:, :2].clone(), p, _rng(2))))


def test_accept_stops_at_the_first_rejection(impl, draw):
    """Behind a rejected draft none is accepted: it was drafted for another text.

    Here the first drafts are certain to be accepted, the one in the middle to be rejected, and the last would be
    accepted again. cumprod turns 1, 0, 1 into 1, 0, 0.
    """
    q, place = _probs(draw, 30, 4, 7), draw.ints(4, 30)
    drafts = q.argmax(-1)
    p = torch.cat([q, _probs(draw, 30, 1, 7)], 1)
    rejected = _one_hot(place, 4, draw)[..., None] * _one_hot(drafts, 7, draw)         # p is 0 there
    p = torch.cat([p[:, :4] * (1 - rejected), p[:, 4:]], 1)
    p = p / p.sum(-1, keepdim=True)
    return dict(zip(("ids", "count"), impl.accept(drafts, q, p, _rng(3))))


def test_accept_nothing_drafted(impl, draw):
    """Without drafts, k = 0, accept draws one token from the target's only row.

    So a pass goes on where a lookup finds nothing.
    """
    p = _probs(draw, 30, 1, 7)
    none = torch.zeros(30, 0, dtype=torch.int64, device=draw.device)
    ids, count = impl.accept(none, p[:, :0].clone(), p, _rng(4))
    return {"ids": ids, "count": count}


@points(2)
def test_accept_certain_drafts(impl, draw):
    """A draft that was not drawn has q = 1: it is accepted with probability p, and else not said again.

    The residual is p without that token.
    """
    p, drafts = _probs(draw, 60, 3, 5), draw.ints(5, 60, 2)
    ids, count = impl.accept(drafts, _one_hot(drafts, 5, draw), p, _rng(5))
    return {"ids": ids, "count": count}


def test_accept_greedy(impl, draw):
    """With probabilities of 0 and 1 on both sides, a draft is kept if it is the target's choice, else replaced by it.

    Nothing is to be written for it: u · 1 < 1 holds for every u, u · 1 < 0 for none, and the residual is p.
    """
    choices = draw.ints(3, 30, 4)
    drafts = torch.where(draw.uniform(30, 3) < 0.7, choices[:, :3], (choices[:, :3] + 1) % 3)
    ids, count = impl.accept(drafts, _one_hot(drafts, 3, draw), _one_hot(choices, 3, draw), _rng(6))
    return {"ids": ids, "count": count}


def test_accept_impossible_drafts(impl, draw):
    """A token with p = 0 is never accepted, and one with q = 0 always is, unless p is 0, too: no division, no NaN.

    u · q < p instead of u < p / q. Such a q comes from rounding, or from a draft that says other probabilities than
    those that it draws with.
    """
    p, q = _parts(draw, 60, 4, 8, of=6), _parts(draw, 60, 3, 8, of=6)       # most are 0
    ids, count = impl.accept(draw.ints(8, 60, 3), q, p, _rng(7))
    return {"ids": ids, "count": count}


def test_accept_at_the_edge(impl, draw):
    """u is a float64 number and is compared strictly: u · q < p. A billionth decides, and p = u · q is too little.

    In float32 the next number after 0.5 is 0.50000006. Leave u, p and q in float64.
    """
    u = torch.rand(9, 3, generator=_rng(2), dtype=torch.float64).to(draw.device)[:, :2]
    drafts, said = draw.ints(2, 9, 2), []
    for gap in (1e-10, 0.0, -1e-10):
        p = torch.stack([u + gap, 1 - (u + gap)], -1)
        p = torch.cat([torch.where(drafts[..., None] == 0, p, p.flip(-1)), p[:, :1]], 1)
        said.append(impl.accept(drafts, torch.nn.functional.one_hot(drafts, 2).double(), p, _rng(2)))
    return said


def test_accept_random_numbers(impl, draw):
    """accept draws k + 1 float64 numbers for every text, whatever is rejected; without an rng, from torch's own.

    So the next call finds rng in the same state with every right implementation.
    """
    p, q, drafts = _probs(draw, 5, 4, 6), _probs(draw, 5, 3, 6), draw.ints(6, 5, 3)
    rng = _rng(8)
    said = [impl.accept(drafts, q, p, rng), impl.accept(drafts[0], q[0], p[0], rng)]
    went_on = torch.rand(1, generator=rng, dtype=torch.float64).item()
    torch.manual_seed(draw.seed)
    return {"twice": said, "rng went on": went_on, "without an rng": impl.accept(drafts, q, p)}


@dtypes("bfloat16", "float16", "float64")
def test_accept_in_other_dtypes(impl, draw, dtype):
    """accept computes in float64, from probabilities of any dtype, and takes drafts of any whole numbers.

    ids and count are int64. p and q may be of different dtypes: a model in half precision may have a draft in float32.
    """
    p, q = _parts(draw, 40, 3, 6).to(dtype), _parts(draw, 40, 2, 6)
    drafts = q.argmax(-1).to(torch.int32)
    return [impl.accept(drafts, q.to(dtype), p, _rng(9)), impl.accept(drafts.to(torch.int16), q, p, _rng(10))]


def test_accept_leaves_its_arguments(impl, draw):
    """What accept is given stays as it was, also where the caller then writes into what comes back.

    `masked_fill` makes a new tensor; with a _ at the end of the name it writes into the old one.
    """
    p, q, drafts = _probs(draw, 6, 3, 5), _probs(draw, 6, 2, 5), draw.ints(5, 6, 2)
    given = [p.clone(), q.clone(), drafts.clone()]
    ids, count = impl.accept(given[2], given[1], given[0], _rng(11))
    ids.fill_(99), count.fill_(99)
    left = impl.residual(given[0][:, :2], given[1])
    left.zero_()
    equal = impl.residual(given[1], given[1])
    equal.zero_()
    return given


def test_accept_refuses(impl, draw):
    """A draft outside the vocabulary, and target_probs without k + 1 rows, are ValueErrors; nothing is drawn then.

    They name draft_ids and target_probs. Look before rng is asked.
    """
    p, q, rng = _probs(draw, 2, 4, 5), _probs(draw, 2, 3, 5), _rng(draw.seed)
    inside = draw.ints(5, 2, 3)
    high, low = inside.clone(), inside.clone()
    high[1, 2], low[0, 0] = 5, -1
    return {"too high": raises(ValueError, lambda: impl.accept(high, q, p, rng), names="draft_ids"),
            "below 0": raises(ValueError, lambda: impl.accept(low, q, p, rng), names="draft_ids"),
            "k rows": raises(ValueError, lambda: impl.accept(inside, q, p[:, :3], rng), names="target_probs"),
            "k + 2 rows": raises(ValueError, lambda: impl.accept(inside[:, :2], q[:, :2], p, rng),
                                 names="target_probs"),
            "logits": [raises(ValueError, lambda: impl.accept(inside, q, 3 * p, rng), names="target_probs"),
                       raises(ValueError, lambda: impl.accept(inside, 3 * q, p, rng), names="draft_probs")],
            "logits for the bonus": raises(ValueError, lambda: impl.accept(
                inside, q, torch.cat([p[:, :3], 3 * p[:, 3:]], 1), rng), names="target_probs"),
            "drawn afterwards": torch.rand(2, generator=rng).tolist()}


# -- what it is worth

def test_expected_tokens(impl, draw):
    """A pass yields 1 + a + a² + … + aᵏ tokens: the i-th draft counts if it and all before it were accepted.

    The 1 is the target's own token, which comes with every pass.
    """
    rates = draw.uniform(3).tolist()
    return {"drawn": [impl.expected_tokens(rate, k) for rate in rates for k in (1, 4, 9)],
            "no draft": impl.expected_tokens(rates[0], 0)}


def test_expected_tokens_ends(impl, draw):
    """At a rate of 1 a pass yields k + 1 tokens, not 0 / 0, and at a rate of 0 one. Other rates are refused.

    The closed form (1 − aᵏ⁺¹) / (1 − a) divides by 0 where a is 1. A ValueError names rate or k.
    """
    k = int(draw.ints(9)) + 1
    return {"1": impl.expected_tokens(1, k), "1.0": impl.expected_tokens(1.0, k), "0": impl.expected_tokens(0.0, k),
            "rate": [raises(ValueError, lambda: impl.expected_tokens(rate, k), names="rate")
                     for rate in (-0.1, 1.1, math.nan)],
            "k": [raises(ValueError, lambda: impl.expected_tokens(0.5, low), names="k") for low in (-1, -k)]}


def test_speedup(impl, draw):
    """speedup is the tokens of a pass over its time: expected_tokens / (1 + k · cost).

    k drafts take k · cost of the time of a pass of the target, which adds 1. A cost below 0 is a ValueError.
    """
    rate, cost = float(draw.uniform()), float(draw.uniform())
    return {"drawn": [impl.speedup(rate, k, cost) for k in (1, 3, 8)], "for nothing": impl.speedup(rate, 4, 0),
            "no draft": impl.speedup(rate, 0, cost),
            "refused": [raises(ValueError, lambda: impl.speedup(rate, 2, bad), names="cost") for bad in (-1, math.nan)]}


# -- drafts

@points(2)
def test_prompt_lookup(impl, draw):
    """The last n tokens are searched for before their own place; the k tokens behind the occurrence are the draft.

    Where n tokens did not occur before, try n − 1, and so on down to one. No match, no draft: [].
    """
    said = {}
    for letters in (2, 4, 9):
        texts = [draw.ints(letters, int(size) + 1).tolist() for size in draw.ints(16, 8)]
        said[f"{letters} letters"] = [impl.prompt_lookup(text, n, k)
                                      for text in texts for n, k in ((1, 2), (2, 3), (4, 5))]
    return said


def test_prompt_lookup_takes_the_latest(impl, draw):
    """Of several occurrences the latest counts: what was written last is the likelier to come again.

    Search from the end. Here 7, 8 stands three times, and each time something else comes then.
    """
    a, b, c, d = draw.ints(5, 4).tolist()
    text = [7, 8, a, b, 7, 8, c, d, 6, 7, 8]
    return [impl.prompt_lookup(text, n, k) for n in (1, 2, 3) for k in (1, 2, 9)]


def test_prompt_lookup_at_the_end(impl, draw):
    """The last tokens are not an occurrence of themselves; one that overlaps with them is. At the end, fewer than k.

    Of 5 5 5 5, the last two occurred one place before: 5 follows. What would start at the last tokens has nothing
    behind it.
    """
    one, two = int(draw.ints(9)), 9 + int(draw.ints(9))
    return {"one letter": [impl.prompt_lookup([one] * size, n, 3) for size in (1, 2, 3, 6) for n in (1, 2, 9)],
            "two letters": [impl.prompt_lookup([one, two] * 3, n, 5) for n in (1, 2, 3, 5, 6)],
            "new": impl.prompt_lookup([one, one, two], 2, 3)}


def test_prompt_lookup_refuses(impl, draw):
    """n and k below 1 are ValueErrors that name them; the list that was searched stays as it was.

    at_least_one, which is given, names what is below 1. Slices are lists of their own.
    """
    text = draw.ints(3, 12).tolist()
    found = impl.prompt_lookup(text, 2, 4)
    found.append(99)
    return {"n": raises(ValueError, lambda: impl.prompt_lookup([1, 1], 0, 3), names="n"),
            "k": raises(ValueError, lambda: impl.prompt_lookup([1, 1], 1, 0), names="k"), "text": text,
            "nothing to search": impl.prompt_lookup([], 2, 2)}


@points(2)
def test_sampling_probs(impl, draw):
    """sampling_probs: penalty, temperature, filters in their order, softmax: the probabilities that choose draws with.

    The same as in lesson 15's choose, and in float64 at the end. What was filtered out has probability 0, and the rest
    adds up to 1.
    """
    logits, ids = draw(5, 9, scale=2.0), draw.ints(9, 5, 3).tolist()
    settings = [{}, {"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.6, "temperature": 2.0},
                {"min_p": 0.2, "temperature": 2.0}, {"repetition_penalty": 2.0, "temperature": 0.7},
                {"top_k": 5, "top_p": 0.7, "temperature": 1.5, "min_p": 0.1, "repetition_penalty": 1.2}]
    return {str(how): impl.sampling_probs(logits, ids, impl.Sampling(**how)) for how in settings}


def test_sampling_probs_greedy(impl, draw):
    """With temperature 0 the largest logit has probability 1, after the penalty; of equals the lowest id.

    Nothing can be divided by 0: it is a case of its own, before the temperature. float64, too.
    """
    logits, ties = draw(6, 9), draw.ints(3, 6, 9).to(draw.float)
    ids = logits.argsort(-1)[:, -2:].tolist()
    return {"plain": impl.sampling_probs(logits, [[]] * 6, impl.Sampling(temperature=0)),
            "penalty": impl.sampling_probs(logits, ids, impl.Sampling(temperature=0.0, repetition_penalty=3.0)),
            "ties": impl.sampling_probs(ties, [[]] * 6, impl.Sampling(temperature=0))}


# -- reading

def _read(impl, draw, texts, **changes):
    """What a Reader gives for texts read one after the other, and what its model was given to read."""
    model = _model(impl, draw, **changes)
    given = _watch(model)
    reader = impl.new_reader(model, 20)
    said = []
    for ids, last in texts:
        logits = reader(list(ids), last)
        said.append([logits, list(reader.seen), [cache.length for cache in reader.caches]])
    return {"logits, seen, lengths": said, "given to the model": given}


@points(3)
def test_reader(impl, draw):
    """A Reader gives the logits behind the last tokens of a text, and has its model read only what is new.

    First the whole text, later what was added. `last` rows, the last of them behind the last token.
    """
    text = draw.ints(12, 9).tolist()
    return _read(impl, draw, [(text[:4], 1), (text[:5], 1), (text[:8], 3), (text, 1)])


@points(3)
def test_reader_rewinds(impl, draw):
    """Where a text differs from what was read, the caches are rewound to where both are still the same.

    After a rejection the caches hold keys of tokens that are no longer in the text. Compare seen with ids from the
    start on, token by token: as long as the texts may be, they may still be different ones.
    """
    a, b = draw.ints(12, 5).tolist(), draw.ints(5, 4).tolist()
    other = [5 + id for id in b]
    return _read(impl, draw, [(a + b, 5), (a + b[:2] + other[2:], 1), (a + other, 2), (a + other[:1] + b, 1)], layers=2)


def test_reader_reads_the_last_tokens_again(impl, draw):
    """What is asked for is read, even if it was read before: the logits are not kept, only keys and values.

    The same text a second time, or a shorter one: go back by `last` tokens at least.
    """
    text = draw.ints(12, 6).tolist()
    return _read(impl, draw, [(text, 2), (text, 1), (text, 6), (text[:3], 1)])


def test_reader_of_other_models(impl, draw):
    """Readers work for every model with caches that rewind, such as one with learned positions.

    Hand the caches to the model, and let it find the positions where they end.
    """
    text = draw.ints(12, 8).tolist()
    asked = [(text[:3], 1), (text[:6], 3), (text[:4] + text[5:], 1)]
    return [_read(impl, draw, asked, positions="learned", norm="layer", feed_forward="mlp"),
            _read(impl, draw, asked[1:], heads=4, kv_heads=2, tie_embeddings=True)]


def test_reader_refuses(impl, draw):
    """last outside 1 … len(ids) is refused, and a Reader of caches that cannot rewind: ValueErrors.

    They name last, and caches. A RollingKVCache has no rewind: it has written over what it would go back to. After a
    refusal the Reader goes on from what it has read.
    """
    text = draw.ints(12, 5).tolist()
    rolling = [impl.make_caches(impl.ModelConfig(**{**SIZES, "layers": 2, "windows": windows}), 1, 20)
               for windows in ((None, 4), (4, None))]
    model = _model(impl, draw)
    reader = impl.new_reader(model, 20)
    reader(text[:4], 1)
    given = _watch(model)
    return {"caches": [raises(ValueError, lambda: impl.Reader(model, caches), names="caches") for caches in rolling],
            "last": [raises(ValueError, lambda: reader(ids, last), names="last")
                     for ids, last in ((text, 0), (text, 6), ([], 1), (text[1:], -1))],
            "afterwards": reader(text, 1), "given to the model": given}


def test_reader_without_gradients(impl, draw):
    """A Reader reads without gradients: a cache takes no keys that record them.

    torch.inference_mode() around the model's call. What was read may be computed with afterwards.
    """
    model = _model(impl, draw)
    grads = []
    model.register_forward_hook(lambda module, args, out: grads.append(torch.is_grad_enabled()))
    reader = impl.new_reader(model, 20)
    ids = draw.ints(12, 4).tolist()
    logits = reader(ids, 2)
    return {"enabled": grads, "requires grad": logits.requires_grad, "ids": ids, "after": torch.is_grad_enabled()}


def test_reader_keeps_a_copy(impl, draw):
    """A caller who goes on writing into his list changes nothing that the Reader has seen.

    `self.seen = list(ids)`: the caller's own list may grow before the next call, as if all of it had been read.
    """
    model = _model(impl, draw)
    given, reader, text = _watch(model), impl.new_reader(model, 20), draw.ints(12, 4).tolist()
    said = [reader(text, 1)]
    text += draw.ints(12, 2).tolist()
    said.append(reader(text, 1))
    text[3] = (text[3] + 1) % 12
    return {"logits": [*said, reader(text, 1)], "given to the model": given, "text": text}


# -- a model as a draft

@points(2)
def test_draft_tokens(impl, draw):
    """draft_tokens draws k tokens from a model, one after the other, and tells the probabilities that each came from.

    One number of rng per token, by `sample` of the logarithms. The Reader reads the text and what was drafted so far.
    """
    model, said = _model(impl, draw), {}
    for name, k, how in (("plain", 3, {}), ("set", 2, {"temperature": 1.3, "top_k": 4})):
        given, rng = _watch(model), _rng(13)
        reader = impl.new_reader(model, 20)
        said[name] = [impl.draft_tokens(_prompts()[0], k, reader, impl.Sampling(**how), rng),
                      impl.draft_tokens(_prompts()[0] + [1], 1, reader, impl.Sampling(**how), rng), list(given),
                      torch.rand(1, generator=rng).item()]
    return said


def test_draft_tokens_settings(impl, draw):
    """The probabilities are those after penalty, temperature and filters: the ones that the tokens were drawn with.

    The penalty counts the drafts, too. With temperature 0 they are 0 and 1.
    """
    model, said = _model(impl, draw), {}
    for how in ({"temperature": 0}, {"repetition_penalty": 3.0, "temperature": 0.3}, {"top_p": 0.5}):
        text = list(_prompts()[1])
        said[str(how)] = impl.draft_tokens(text, 3, impl.new_reader(model, 20), impl.Sampling(**how), _rng(14))
        said[f"{how}: text"] = text
    none = raises(ValueError, lambda: impl.draft_tokens([1], 0, impl.new_reader(model, 20), impl.Sampling()), names="k")
    return {**said, "k = 0": none}


# -- the loop

def _step(impl, target, draft, k=3, seed=15, **how):
    rng, text = _rng(seed), [5, 1, 5, 1, 5]
    said = impl.speculative_step(text, k, impl.new_reader(target, 20), draft, impl.Sampling(**how), rng)
    return {"said": said, "rng went on": torch.rand(1, generator=rng).item()}


@points(2)
def test_step(impl, draw):
    """speculative_step: draft, read all drafts in one pass, accept: (new tokens, how many drafted, how many accepted).

    The target reads the text and the k drafts at once: k + 1 logits, one for each draft and one behind them. New are
    the accepted drafts and one token more, a list without −1.
    """
    target, said = _model(impl, draw), {}
    given = _watch(target)
    for number in range(4):
        probs = _probs(draw, 3, 12)
        drafts = draw.ints(12, 3).tolist()
        said[f"draft {number}"] = _step(impl, target, lambda ids, k: (drafts, probs))
    return {**said, "given to the target": given}


def test_step_of_certain_drafts(impl, draw):
    """A draft without probabilities, None, was not drawn: each of its tokens had a probability of 1.

    As a lookup says it. Make the one-hot rows yourself. Fewer drafts than k, and none, are fine.
    """
    target, said = _model(impl, draw), {}
    given = _watch(target)
    for size in (0, 1, 3):
        drafts = draw.ints(12, size).tolist()
        said[f"{size} drafts"] = _step(impl, target, lambda ids, k: (drafts, None))
    return {**said, "k = 0": _step(impl, target, lambda ids, k: 1 / 0, k=0), "given to the target": given}


@points(2)
def test_step_settings(impl, draw):
    """The target's probabilities are those after penalty, temperature and filters, in every place for its own text.

    The text in front of the third place is ids and two drafts: the penalty has to know them.
    """
    target, plain, order = _model(impl, draw), _model(impl, draw), draw.uniform(12).argsort()[:3]
    best = torch.zeros(12, dtype=draw.float, device=draw.device)
    best[order] = best.new_tensor([30.0, 20.0, 10.0])
    target.register_forward_hook(lambda module, args, logits: logits + best)
    said = {f"penalty, {name}": _step(impl, target, lambda text, k: (ids, None), temperature=0, repetition_penalty=10.0)
            for name, ids in {"in order": order.tolist(), "one token": order[:1].tolist() * 3}.items()}
    for seed, how in enumerate([{"temperature": 0}, {"temperature": 0.4, "top_k": 2}, {"top_p": 0.4}] * 2):
        drafts = draw.ints(12, 2).tolist()
        said[f"{how}, {seed}"] = _step(impl, plain, lambda text, k: (drafts, None), seed=seed, **how)
    return said


def test_step_refuses(impl, draw):
    """A draft of more than k tokens is a ValueError that names draft: there may be no room for them.

    draft is told k; what it gives is looked at before the target reads.
    """
    target = _model(impl, draw)
    given, reader = _watch(target), impl.new_reader(target, 20)
    drafts, text = draw.ints(12, 4).tolist(), [1, 2]
    told = []
    def draft(ids, k):
        told.append([list(ids), k])
        return drafts, None
    refused = raises(ValueError, lambda: impl.speculative_step(text, 3, reader, draft, impl.Sampling()), names="draft")
    _, drafted, _ = impl.speculative_step(text, 4, reader, draft, impl.Sampling(), _rng(16))
    return {"refused": refused, "k = 4": drafted, "told": told, "given to the target": given,
            "text and drafts": [text, drafts]}


@points(3)
def test_generate_greedy(impl, draw):
    """With temperature 0 the text is the target's own, whatever the draft says: max_new_tokens new ids for each prompt.

    By a model, by a lookup, by the target itself. Statistics count the target's passes, the drafted tokens, those that
    decided something, and the accepted ones.
    """
    target, draft = _two(impl, draw)
    return {"a model": _generate(impl, target, draft, _prompts(), 3, k=2, temperature=0),
            "a lookup": _generate(impl, target, impl.lookup_draft(2), _prompts()[1:], 4, k=2, temperature=0),
            "the target": _generate(impl, target, target, _prompts()[:1], 4, k=2, temperature=0)}


@points(3)
def test_generate_drawn(impl, draw):
    """Drawn text: in every pass the draft takes one number per token from rng, and then accept k + 1.

    The settings hold for both models. The prompts come one after the other.
    """
    target, draft = _two(impl, draw)
    rng = _rng(17)
    said = [_generate(impl, target, draft, _prompts(), 3, rng=rng, k=2),
            _generate(impl, target, draft, _prompts()[:1], 5, rng=rng, temperature=1.4, top_k=4),
            _generate(impl, target, impl.lookup_draft(), _prompts()[1:], 3, rng=rng, k=2, temperature=0.6)]
    return {"said": said, "rng went on": torch.rand(1, generator=rng).item()}


@points(2)
def test_generate_passes(impl, draw):
    """The target reads each token once, but for rejected drafts; so does the draft model.

    One Reader for each of them, from the first pass to the last. The last accepted token is read with the next drafts.
    """
    target, draft = _two(impl, draw)
    said = {}
    for name, how in {"greedy": {"temperature": 0}, "drawn": {"rng": _rng(18)}}.items():
        given, drafted = _watch(target), _watch(draft)
        new = _generate(impl, target, draft, _prompts()[:1], 5, k=2, **how)
        said[name] = {"new ids": new, "target": given, "draft": drafted}
    return said


@points(2)
def test_generate_stops(impl, draw):
    """A row ends before the first stop token, also where that stands in the middle of a draft.

    Accepted drafts behind it are not said. Here the draft is the target itself, and all of its drafts are accepted.
    stop may be an iterator: read it once.
    """
    target = _model(impl, draw)
    free, _ = impl.speculative_generate(target, target, _prompts(), 4, rng=_rng(19), k=2, temperature=1.5)
    said = {}
    for name, stop, prompts in (("one id", (free[0][1],), _prompts()), ("at once", range(12), _prompts()[:1]),
                                ("an iterator", iter([row[2] for row in free]), _prompts())):
        said[name] = _generate(impl, target, target, prompts, 4, stop, _rng(19), k=2, temperature=1.5)
    return said


@points(2)
def test_generate_length(impl, draw):
    """Never more than max_new_tokens, and the last pass drafts no more than there is room for.

    A pass says one token more than it drafts, so that max_new_tokens − 1 drafts are enough. The whole max_seq_len may
    be filled. 0 new tokens take no pass.
    """
    target, draft = _model(impl, draw, max_seq_len=8), _model(impl, draw, max_seq_len=8, heads=1)
    said = {f"{new} by {k}": _generate(impl, target, target, _prompts()[:1], new, k=k, temperature=0)
            for new, k in ((0, 3), (1, 3), (2, 3), (5, 20))}
    said["4 by 2, by another"] = _generate(impl, target, draft, _prompts()[:1], 4, k=2, temperature=0)
    asked = []
    def none(ids, k):
        asked.append(k)
        return [], None
    _generate(impl, target, none, _prompts()[:1], 4, k=2, temperature=0)
    return {**said, "asked for": asked}


def test_generate_greedy_takes_no_numbers(impl, draw):
    """With temperature 0 nothing is left to chance: rng is left alone, and so is torch's own generator.

    As generate has it. accept and draft_tokens want numbers all the same: give both another generator. Seen here are
    the next number of rng, and the next of torch's.
    """
    target, draft = _two(impl, draw)
    rng = _rng(20)
    torch.manual_seed(draw.seed)
    _generate(impl, target, draft, _prompts()[:1], 2, rng=rng, temperature=0)
    _generate(impl, target, draft, _prompts()[:1], 2, temperature=0.0)
    return [torch.rand(1, generator=rng).item(), torch.rand(1).item()]


def test_generate_mode(impl, draw):
    """Both models run in eval mode, and every module's mode is put back, also after an error.

    evaluating(…), which is given, does it for the models it is handed. A draft that is a function is none.
    """
    target, draft = _model(impl, draw, dropout=0.5), _model(impl, draw, heads=1, dropout=0.5)
    modes = []
    for model in (target, draft):
        model.register_forward_hook(lambda *passed: modes.append(passed[0].training))
    target.train(), draft.train()
    target.blocks[0].eval()                             # frozen by its owner
    new = _generate(impl, target, draft, _prompts()[:1], 2, temperature=0)
    unknown = raises(ValueError, lambda: _generate(impl, target, draft, [[99]], 4))
    after = [part.training for part in (target, target.blocks[0], target.norm, draft, draft.norm)]
    return {"new ids": new, "training": modes, "an unknown id": unknown, "afterwards": after}


def test_generate_refuses(impl, draw):
    """What cannot be done is refused before a model runs: ValueErrors that name the argument.

    models_must_fit, which is given, looks at prompts, room and vocabularies; Sampling at its fields; Reader at caches.
    """
    target, draft, windowed, narrow, short = (
        impl.Transformer(impl.ModelConfig(**{**SIZES, **changes}))
        for changes in ({}, {"heads": 1}, {"windows": (3,)}, {"vocab_size": 11}, {"max_seq_len": 8}))
    given = []
    for model in (target, draft):
        model.register_forward_hook(lambda *passed: given.append(1))
    bad = {"k": (target, draft, [[1]], 3, {"k": 0}), "top_k": (target, draft, [[1]], 3, {"top_k": 0}),
           "ids": (target, draft, [[1], []], 3, {}), "max_new_tokens": (target, draft, [[1]], -1, {}),
           "max_new_tokens, the draft": (target, short, [[1] * 4], 5, {}),
           "max_new_tokens, the target": (short, target, [[1] * 4], 5, {}),
           "draft": (target, narrow, [[1]], 3, {}), "caches": (windowed, draft, [[1]], 3, {}),
           "caches, the draft": (target, windowed, [[1]], 3, {})}
    said = {}
    for name, (one, other, ids, new, how) in bad.items():
        said[name] = raises(ValueError, lambda: _generate(impl, one, other, ids, new, **how),
                            names=name.split(",")[0])
    return {**said, "given to the models": given}


def test_generate_twice(impl, draw):
    """A second call knows nothing of the first, a row nothing of the row before it; prompts stay as they were.

    New Readers for each prompt. And the caller's lists are the caller's: `list(prompt)` before you add to it.
    """
    target, draft = _two(impl, draw)
    prompts = [[7, 1, 3], [7, 1, 4, 9]]
    said = [_generate(impl, target, draft, rows, 2, k=1, temperature=0)
            for rows in (prompts[:1], prompts, prompts[1:])]
    return {"said": said, "prompts": prompts}


def test_generate_by_a_function(impl, draw):
    """A draft may be any function (ids, k) → (ids, probabilities): it is told the whole text and how many it may give.

    So a lookup, a table of pairs of words or a friend can draft. What comes out has the target's distribution.
    """
    target = _model(impl, draw)
    table, told = _probs(draw, 12, 12), []

    def draft(ids, k):
        told.append([list(ids), k])
        chain = [table[ids[-1]].argmax().item()]
        for _ in range(k - 1):
            chain.append(table[chain[-1]].argmax().item())
        return chain, table[[ids[-1], *chain[:-1]]]
    said = [_generate(impl, target, draft, _prompts(), 3, k=2, temperature=0),
            _generate(impl, target, partial(draft), _prompts()[:1], 5, k=3, rng=_rng(21), temperature=2.0)]
    return {"said": said, "told": told}
