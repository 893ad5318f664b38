"""What lesson 15 asks of filters, sampling, generate and stream."""

import math

import torch

from grader import dtypes, points, raises

CHOICES = {"torch.multinomial", "torch.Tensor.multinomial", "torch.distributions.Categorical",
           "torch.distributions.categorical.Categorical", "torch.nn.functional.gumbel_softmax"}
PADDING = {"torch.nn.utils.rnn.pad_sequence"}
FORBIDDEN = {**dict.fromkeys(("inverse_cdf", "sample", "Sampling"), CHOICES), "left_pad": PADDING,
             "decode_steps": CHOICES | PADDING, "generate": CHOICES | PADDING}

SIZES = {"vocab_size": 40, "d_model": 8, "layers": 1, "heads": 2, "d_ff": 12, "max_seq_len": 24}
PROMPTS = [[7, 1, 30], [12], [5, 39, 0, 22, 8, 11]]


def _model(impl, draw, **changes):
    return draw.fill(impl.Transformer(impl.ModelConfig(**{**SIZES, **changes})))


def _rng(seed=0):
    return torch.Generator().manual_seed(seed)


def _logits_of(model, call):
    """What `call` gives, and the logits of the last token at every forward pass meanwhile."""
    seen = []
    hook = model.register_forward_hook(lambda *passed: seen.append(passed[-1].detach()))
    said = call()
    hook.remove()
    return said, seen


def _kept(logits):
    return (logits > -math.inf).to(torch.int64)


class Codec:
    """A tokenizer whose ids stand for these strings of bytes, one after the other."""

    def __init__(self, *tokens):
        self.tokens = tokens

    def encode(self, text):
        return [self.tokens.index(character.encode()) for character in text]

    def decode(self, ids):
        return b"".join(self.tokens[id] for id in ids).decode("utf-8", errors="replace")


class EachByte:
    """A tokenizer with an id per byte that decodes to U+FFFD for each byte that is no character yet."""

    def decode(self, ids):
        text = ""
        for raw in _characters(bytes(ids)):
            try:
                text += raw.decode()
            except UnicodeDecodeError:
                text += "\ufffd" * len(raw)
        return text


def _characters(text):
    """The bytes of a text, cut in front of every character."""
    starts = [i for i, byte in enumerate(text) if byte & 0xC0 != 0x80]
    return [text[i:j] for i, j in zip(starts, [*starts[1:], len(text)])]


# -- filters

@dtypes("float32", "bfloat16")
def test_temperature(impl, draw, dtype):
    """apply_temperature divides the logits by the temperature.

    A temperature of 0.5 doubles every distance between logits: what was likely gets likelier.
    """
    logits = draw(2, 9).to(dtype)
    return {str(t): impl.apply_temperature(logits, t) for t in (0.5, 1, 2.0, 0.001)}


def test_temperature_refuses(impl, draw):
    """A temperature of 0 or below, or NaN, is a ValueError that names temperature.

    `not temperature > 0` is true of NaN as well.
    """
    logits, said = draw(3), {}
    for t in [0, float("nan"), *(2 * draw.uniform(5) - 1).tolist()]:
        said[f"{t:.2f}"] = impl.apply_temperature(logits, t) if t > 0 \
            else raises(ValueError, lambda: impl.apply_temperature(logits, t), names="temperature")
    return said


@dtypes("float32", "float16")
def test_top_k(impl, draw, dtype):
    """top_k leaves the k largest logits of each row as they are and puts −inf for the others.

    Each row has k largest of its own. A k above the vocabulary keeps everything.
    """
    logits = draw(2, 3, 9).to(dtype)
    return {str(k): impl.top_k(logits, k) for k in (1, 4, 9, 20)}


def test_top_k_ties(impl, draw):
    """Of equal logits, top_k keeps those with the lowest ids, and k of them altogether.

    "All that are at least the k-th largest" may be more than k. A stable sort leaves equals in
    the order of their ids; a plain one may not, and shows it only in a long vocabulary.
    """
    few = draw.ints(3, 6, 12).to(draw.float)
    equal = torch.zeros(12, dtype=draw.float, device=draw.device)
    long = draw.ints(3, 2, 500).to(draw.float)
    return {"many ties": _kept(impl.top_k(few, 5)), "all equal": _kept(impl.top_k(equal, 5)),
            "a long vocabulary": _kept(impl.top_k(long, 250))}


@points(2)
def test_top_p(impl, draw):
    """top_p keeps the fewest tokens, most likely first, that together have at least p.

    Sort, softmax, add up. A token stays if those before it have less than p together.
    """
    logits = draw(4, 9, scale=2.0)
    return {str(p): impl.top_p(logits, p) for p in (0.2, 0.5, 0.8, 0.95)}


def test_top_p_crossing(impl, draw):
    """The token that takes the sum across p stays.

    Of 50 %, 30 %, 15 % and 5 %, p = 0.6 keeps two: the first has only 0.5. If the sum is p
    exactly, nothing more is needed: of four times 25 %, p = 0.5 keeps two.
    """
    order = draw.uniform(4).argsort()
    chances = torch.tensor([0.15, 0.5, 0.05, 0.3], dtype=draw.float, device=draw.device)[order].clone()
    said = {f"{p} of unequal ones": _kept(impl.top_p(chances.log(), p)) for p in (0.45, 0.6, 0.9)}
    even = torch.full((4,), 1.5, dtype=draw.float, device=draw.device)
    return {**said, **{f"{p} of equal ones": _kept(impl.top_p(even, p)) for p in (0.25, 0.5, 0.6)}}


def test_top_p_ends(impl, draw):
    """A tiny p leaves one token, and p = 1 leaves all of them, even those that rounding loses.

    Here one token has nearly all the probability: in float32 the sum is 1 already after the
    first, though others may still be drawn.
    """
    logits = draw(2, 30)
    logits = torch.cat([logits, logits.new_full((2, 1), 25.0)], dim=-1)
    return {"p = 1": impl.top_p(logits, 1), "tiny p": impl.top_p(logits, 1e-9)}


def test_min_p(impl, draw):
    """min_p keeps the tokens at least p times as likely as the likeliest of their row.

    The limit moves with the model's confidence: p times the largest probability, not p itself.
    p = 0 keeps all.
    """
    logits = draw(4, 9, scale=2.0)
    return {str(p): impl.min_p(logits, p) for p in (0, 0.05, 0.3, 1)}


@dtypes("bfloat16")
def test_filters_in_half_precision(impl, draw, dtype):
    """top_p and min_p compare probabilities in at least float32, whatever the dtype of the logits.

    bfloat16 has three digits: sums of many small probabilities stop growing, and 70.1 % is 70 %.
    """
    flat = draw.ints(2, 2, 500).to(dtype) / 256
    near = -torch.arange(256, device=draw.device).to(dtype) / 512
    return {"top_p": [_kept(impl.top_p(flat, p)) for p in (0.701, 0.3, 0.95)],
            "min_p": [_kept(impl.min_p(near, p)) for p in (0.7, 0.8, 0.9)]}


def test_filters_after_filters(impl, draw):
    """What a filter has put to −inf stays there, and counts nothing for the next filter.

    top_p after top_k adds up probabilities of what top_k has left, so they must be computed anew.
    """
    logits = draw(4, 12)
    few = impl.top_k(logits, 4)
    return {"top_p": impl.top_p(few, 0.7), "min_p": impl.min_p(few, 0.5), "top_k": impl.top_k(few, 6)}


def test_filters_refuse(impl, draw):
    """Limits that make no sense are refused: k below 1, p of top_p not in (0, 1], of min_p not in [0, 1].

    Each a ValueError. p = 0 would leave no token to top_p, but all to min_p.
    """
    logits = draw(5)
    return {
        "that make sense": [impl.top_k(logits, 1), impl.top_p(logits, 0.01), impl.min_p(logits, 1),
                            impl.top_p(logits, 1)],
        "top_k": [raises(ValueError, lambda: impl.top_k(logits, k)) for k in (0, -3)],
        "top_p": [raises(ValueError, lambda: impl.top_p(logits, p)) for p in (0, -0.1, 1.01, float("nan"))],
        "min_p": [raises(ValueError, lambda: impl.min_p(logits, p)) for p in (-0.1, 1.01, float("nan"))],
    }


def test_filters_leave_their_input(impl, draw):
    """A filter returns new logits; those that it is given stay as they are.

    Whoever called may need them again. scatter and masked_fill make a new tensor; with a _ at the
    end of the name, they write into the old one.
    """
    logits, ids = draw(2, 7), [[1, 1, 4], [0]]
    filters = {"temperature": lambda x: impl.apply_temperature(x, 0.5), "top_k": lambda x: impl.top_k(x, 2),
               "top_p": lambda x: impl.top_p(x, 0.5), "min_p": lambda x: impl.min_p(x, 0.4),
               "repetition_penalty": lambda x: impl.repetition_penalty(x, ids, 2.0)}
    said = {}
    for name, keep in filters.items():
        given = logits.clone()
        keep(given)
        said[f"after {name}"] = given
    whole = {"temperature 1": lambda x: impl.apply_temperature(x, 1), "top_k of all": lambda x: impl.top_k(x, 9),
             "top_p = 1": lambda x: impl.top_p(x, 1), "min_p = 0": lambda x: impl.min_p(x, 0),
             "penalty 1": lambda x: impl.repetition_penalty(x, ids, 1)}
    for name, keep in whole.items():
        given = logits.clone()
        keep(given).zero_()
        said[f"given to {name}, when its answer is overwritten"] = given
    return said


@points(2)
@dtypes("float32", "bfloat16")
def test_repetition_penalty(impl, draw, dtype):
    """The logits of ids seen in a row get smaller there: positive ones divided, negative multiplied.

    Dividing −2 by 1.5 gives −1.3, which is larger. An id that came three times is penalized once.
    A row with nothing seen stays as it is.
    """
    logits = draw(3, 8).to(dtype)
    ids = [[1, 1, 1, 4, 0], [], [7, 2, 3, 2, 6]]
    return {str(p): impl.repetition_penalty(logits, ids, p) for p in (1, 1.5, 0.5)}


def test_repetition_penalty_refuses(impl, draw):
    """A penalty that is not above 0 is refused, and so are ids that are not one list per row.

    ValueErrors, the second of which names ids.
    """
    logits = draw(2, 5)
    return {"penalty": [raises(ValueError, lambda: impl.repetition_penalty(logits, [[1], [2]], p))
                        for p in (0, -1, float("nan"))],
            "ids": raises(ValueError, lambda: impl.repetition_penalty(logits, [[1]], 2), names="ids")}


# -- drawing

@points(2)
def test_inverse_cdf(impl, draw):
    """inverse_cdf gives the first id whose cumulative probability is above u.

    For 20 %, 50 % and 30 %: 0 … 0.2 is id 0, 0.2 … 0.7 is id 1, 0.7 … 1 is id 2. Softmax, then
    cumsum in the order of the ids.
    """
    return {"one row": impl.inverse_cdf(draw(9).expand(50, 9), draw.uniform(50)),
            "a batch": impl.inverse_cdf(draw(2, 20, 9), draw.uniform(2, 20))}


def test_inverse_cdf_ends(impl, draw):
    """A token of probability 0 is never chosen, not at u = 0 and not at the largest u below 1.

    At u = 0 the first id is right only if it has any probability: the sum must be *above* u. At
    the other end, rounding may leave the sum of all a little below 1: compare with u times it. All in float64, where
    a token of one in a billion still has its place.
    """
    logits = draw(40, 30)
    logits = torch.nn.functional.pad(logits, (2, 3), value=-math.inf)       # ids 2 … 31 remain
    u = torch.zeros(40, dtype=torch.float64, device=draw.device)
    rare = torch.tensor([[0.0, -20.7]] * 2, dtype=draw.float, device=draw.device)
    places = torch.tensor([0.9999999985, 0.9999999995], dtype=torch.float64, device=draw.device)
    return {"u = 0": impl.inverse_cdf(logits, u),
            "u just below 1": impl.inverse_cdf(logits, u + 1 - 2**-53),
            "one in a billion": impl.inverse_cdf(rare, places),
            "one token left": impl.inverse_cdf(impl.top_k(logits, 1), u + 0.5)}


def test_inverse_cdf_refuses(impl, draw):
    """A row that leaves nothing to choose is a ValueError that names logits.

    All −inf, or a NaN: any id would be a lie. (softmax gives zeros for the first.)
    """
    nothing, broken, u = draw(2, 5), draw(2, 5), draw.uniform(2)
    nothing[1], broken[0, 2] = -math.inf, math.nan
    nothing, broken = nothing.clone(), broken.clone()
    return {"refused": [raises(ValueError, lambda: impl.inverse_cdf(x, u), names="logits") for x in (nothing, broken)],
            "the rows that are whole": [impl.inverse_cdf(nothing[0], u[0]), impl.inverse_cdf(broken[1], u[1])]}


def test_sample(impl, draw):
    """sample draws one float64 number per row from rng and gives it to inverse_cdf.

    torch.rand(batch shape, generator=rng, dtype=torch.float64). The answer has the shape of the
    batch: a single row gives a single id. Without an rng, torch's own generator gives the numbers.
    """
    rng, logits = _rng(), draw(4, 25, 9)
    said = {"a batch": impl.sample(logits, rng), "a row, from the same rng": impl.sample(logits[0, 0], rng)}
    torch.manual_seed(draw.seed)
    return {**said, "without an rng": impl.sample(logits)}


@points(2)
def test_choose(impl, draw):
    """Sampling.choose: penalty, then temperature, then top_k, top_p and min_p, then inverse_cdf.

    The temperature changes how many tokens top_p keeps, so it comes first. self.filters() gives
    the filters in use, in order.
    """
    logits, u = draw(60, 12, scale=2.0), draw.uniform(60)
    ids = draw.ints(12, 60, 4).tolist()
    settings = [{}, {"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.6, "temperature": 2.0},
                {"min_p": 0.2, "temperature": 2.0}, {"repetition_penalty": 2.0, "temperature": 0.7},
                {"top_k": 5, "top_p": 0.7, "temperature": 1.5, "min_p": 0.1, "repetition_penalty": 1.2}]
    return {str(how): impl.Sampling(**how).choose(logits, ids, u) for how in settings}


def test_choose_greedy(impl, draw):
    """Temperature 0 chooses the largest logit after the penalty, whatever u is.

    Dividing by 0 would give ∞: it is a case of its own, and takes no random number. Of equal
    logits, the lowest id.
    """
    logits, u = draw(8, 12), draw.uniform(8)
    ids = logits.argsort(-1)[:, -2:].tolist()
    ties = draw.ints(3, 8, 12).to(draw.float)
    return {"plain": impl.Sampling(temperature=0).choose(logits, [[]] * 8, u),
            "penalty": impl.Sampling(temperature=0, repetition_penalty=3.0).choose(logits, ids, u),
            "ties": impl.Sampling(temperature=0.0).choose(ties, [[]] * 8, u)}


# -- generate

def test_left_pad(impl, draw):
    """Shorter prompts get zeros in front; positions start at 0 on each row's first real token.

    Padding stands in front so that all rows end, and go on, together. On padding the position
    is 0 (any would do, but it must exist) and real is False.
    """
    tokens, positions, real = impl.left_pad(
        [(1 + draw.ints(90, int(n) + 1)).tolist() for n in draw.ints(6, 4)], draw.device)
    return {"tokens": tokens, "positions": positions, "real": real,
            "a single prompt": impl.left_pad([[3, 0, 4]], draw.device)}


@points(3)
def test_generate_greedy(impl, draw):
    """With temperature 0, generate gives the most likely next token, again and again: the new ids only.

    The logits of the last position decide. With a cache the model sees the prompt once and then
    each new token at its own position; without, the whole text every time. Both say the same.
    """
    model, said = _model(impl, draw), {}
    for use_cache in (True, False):
        new, passes = _logits_of(model, lambda: impl.generate(
            model, [PROMPTS[2]], 5, temperature=0, use_cache=use_cache))
        said[f"use_cache={use_cache}"] = {
            "new ids": new, "tokens that the model saw": [p.shape[1] for p in passes],
            "last logits": torch.cat([p[:, -1] for p in passes])}
    return said


@points(3)
def test_generate_batch(impl, draw):
    """In a batch of prompts of unequal lengths, each says what it would say alone.

    Three things make it so: padding in front, a mask of shape (batch, 1, 1, keys) that hides it,
    and positions that start at each row's first token. Mask and positions grow with the text.
    """
    model, said = _model(impl, draw), {}
    for use_cache in (True, False):
        new, passes = _logits_of(model, lambda: impl.generate(
            model, PROMPTS, 4, temperature=0, use_cache=use_cache))
        said[f"use_cache={use_cache}"] = {"new ids": new,
                                          "last logits": torch.stack([p[:, -1] for p in passes])}
    return said


@points(2)
def test_generate_sampled(impl, draw):
    """Drawn text: a row of float64 numbers per prompt, drawn before the first step.

    torch.rand(rows, max_new_tokens, generator=rng, dtype=torch.float64), then one column per step.
    So prompts say in a batch what they say one after the other. Temperature 0 draws nothing.
    """
    model, how = _model(impl, draw), {"temperature": 1.2, "top_k": 30}
    rng, again = _rng(), _rng()
    return {"a batch": impl.generate(model, PROMPTS, 4, rng=rng, **how),
            "one by one": [impl.generate(model, [p], 4, rng=again, **how) for p in PROMPTS[:2]],
            "greedy": impl.generate(model, PROMPTS[:1], 1, rng=rng, temperature=0),
            "rng went on": torch.rand(1, generator=rng).item()}


def test_generate_penalty(impl, draw):
    """The repetition penalty counts the prompt and all that was said, row by row, but no padding.

    Padding is id 0: it must not make a real 0 less likely. Here 0 and then 12 are by far the best,
    until they have been said.
    """
    model = _model(impl, draw)
    best = torch.zeros(40, dtype=draw.float, device=draw.device)
    best[0], best[12] = 20.0, 15.0
    model.register_forward_hook(lambda *passed: passed[-1] + best)
    return impl.generate(model, PROMPTS[:2], 4, temperature=0, repetition_penalty=20.0)


@points(2)
def test_generate_stop(impl, draw):
    """A row ends before its first stop token, which is not given out; the others go on.

    A row that has stopped stays so, whatever would come next. When all rows have stopped, no
    further forward pass is made. stop may be an iterator, which gives its ids only once: set(stop)
    keeps them.
    """
    model = _model(impl, draw)
    free = impl.generate(model, PROMPTS, 4, rng=_rng(), temperature=1.0)
    said = {}
    for name, stop in {"one": (free[0][1],), "each row's": [row[1] for row in free],
                       "an iterator": iter([row[2] for row in free])}.items():
        new, passes = _logits_of(model, lambda: impl.generate(model, PROMPTS, 4, stop, _rng()))
        said[name] = {"new ids": new, "passes": len(passes)}
    return said


def test_generate_twice(impl, draw):
    """A second call knows nothing of the first: caches are made anew, and prompts stay as they were.

    A cache that is kept still holds the other prompt. And the caller's lists are the caller's.
    """
    model, prompts = _model(impl, draw), [[7, 1, 30], [12, 4, 9]]
    return {"first": impl.generate(model, prompts[:1], 2, temperature=0),
            "second": _logits_of(model, lambda: impl.generate(model, prompts[1:], 2, temperature=0)),
            "prompts": prompts}


def test_generate_ends_with_its_rows(impl, draw):
    """When every row has stopped, the model is not asked again, with a cache and without.

    Nothing that it could say would be given out. Look at `going` before the next step begins.
    """
    model, said = _model(impl, draw), {}
    free = impl.generate(model, PROMPTS, 4, temperature=0)
    for use_cache in (True, False):
        new, passes = _logits_of(model, lambda: impl.generate(
            model, PROMPTS, 8, [row[1] for row in free], temperature=0, use_cache=use_cache))
        said[f"use_cache={use_cache}"] = {"new ids": new, "passes": len(passes)}
    return said


def test_generate_mode(impl, draw):
    """generate runs in eval mode and without gradients, and puts every module's mode back.

    Dropout would garble the text. Note which modules were training, and set these back, also where
    the model raised an error (`finally`): a part that its owner has frozen in eval mode stays so.
    """
    model, seen = _model(impl, draw, dropout=0.5), []
    model.register_forward_hook(
        lambda *passed: seen.append([passed[0].training, passed[-1].requires_grad]))
    said = []
    new = []
    for training in (True, False):
        new.append(impl.generate(model.train(training), PROMPTS[:1], 2, use_cache=False, temperature=0))
        said.append(model.training)
    model.train()
    unknown = raises(ValueError, lambda: impl.generate(model, [[99]], 2))
    said.append(model.training)
    model.blocks[0].eval()                             # frozen by its owner
    impl.generate(model, PROMPTS[:1], 2, use_cache=False)
    return {"new ids": new, "training, gradients": seen, "training, eval, after an error": said,
            "an unknown id": unknown,
            "a frozen part": [module.training for module in (model, model.norm, model.blocks[0])]}


def test_generate_refuses(impl, draw):
    """No prompt, an empty prompt, no room for max_new_tokens: ValueErrors before anything is computed.

    `_prompts_must_fit`, which is given, says them. The rows count up to the longest prompt plus
    max_new_tokens; exactly max_seq_len is allowed.
    """
    model, said = _model(impl, draw, max_seq_len=8), {}
    calls = {"ids": ([[]], [[1], []], []), "max_new_tokens": ([[1] * 8], [[1], [2] * 6])}
    for name, prompts in calls.items():
        for ids in prompts:
            said[str(ids)] = _logits_of(model, lambda: raises(
                ValueError, lambda: impl.generate(model, ids, 3), names=name))
    said["top_k"] = _logits_of(model, lambda: raises(
        ValueError, lambda: impl.generate(model, [[1]], 3, top_k=0), names="top_k"))
    return {**said, "just fits": impl.generate(model, [[1] * 5, [2]], 3, temperature=0)}


# -- text

@points(2)
def test_text_pieces(impl, draw):
    """Every piece is given out as soon as its characters are whole, and no piece is empty.

    The bytes of 🙂 lie in three tokens here: nothing comes out after the first two. What stands
    before the unfinished character does. Decode all ids so far; an end of U+FFFD waits.
    """
    codec = Codec(b"a", b" b\xf0\x9f", b"\x99", b"\x82", b"\x82c", "é".encode(), b"\xc3", b"\xa9 \xe6\x9d", b"d")
    said = {}
    before = draw.ints(9, int(draw.ints(4))).tolist()      # pieces of characters, and whole ones
    for name, ids in {"in order": [0, 1, 2, 3, 5, 0], "joined": [1, 2, 4, 6, 7, 4], "drawn": [*before, 0, 0]}.items():
        events = []
        def given(ids=ids, events=events):
            for id in ids:
                events.append(id)
                yield id
        for piece in impl.text_pieces(codec, given()):
            events.append(piece)
        said[name] = events
    return said


def test_text_pieces_of_bad_bytes(impl, draw):
    """Joined, the pieces are the decoded text, also where bytes are no UTF-8 and at a cut-off end.

    A U+FFFD that is really there comes out when something follows it, or at the end. There may be several at an
    end, one for each byte that is no character yet: all of them wait.
    """
    codec = Codec(b"a", b"\xff", b"\xf0\x9f", b"\x99\x82", "\ufffd".encode())
    ids = {"cut off": [0, 2], "invalid": [0, 1, 1, 0, 2, 0], "real": [4, 0, 4], "whole": [2, 3], "none": [],
           "drawn": draw.ints(5, 12).tolist()}
    said = {name: "".join(impl.text_pieces(codec, row)) for name, row in ids.items()}
    rest = bytes(97 + letter for letter in draw.ints(26, 4).tolist())
    return {**said, "a U+FFFD for each byte": list(impl.text_pieces(EachByte(), "a😀b".encode() + b"\xff\xff" + rest))}


@points(2)
def test_stream(impl, draw):
    """stream gives generate's text, piece by piece, each after the forward pass that made it.

    Encode the prompt, hand the ids of decode_steps to text_pieces as they come. The prompt itself
    is not repeated.
    """
    letters = [bytes([97 + i]) for i in range(26)] + [b" ", b".", b"\xc3", b"\xa9", b"\xbc", b"\xff"] + \
        [b"ab", b"the ", b"q\xc3", b"\xa9s", b"!", b"?", b"1", b"2"]
    codec, model = Codec(*letters), _model(impl, draw)
    how = {"temperature": 1.5, "top_k": 38}
    arrived = []
    def listen(passes=arrived):
        pieces = []
        for piece in impl.stream(model, codec, "the dog", 8, rng=_rng(1), **how):
            pieces.append([piece, len(passes)])
        return pieces
    hook = model.register_forward_hook(lambda *passed: arrived.append(1))
    pieces = listen()
    hook.remove()
    new = impl.generate(model, [codec.encode("the dog")], 8, rng=_rng(1), **how)
    return {"whole": "".join(p for p, _ in pieces) == codec.decode(new[0]), "pieces": pieces}
