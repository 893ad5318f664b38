"""What lesson 06 asks of positions: sinusoidal, learned, clipped, in buckets, ALiBi."""

import torch

from grader import accepts, dtypes, points, raises, shapes, tolerance
from grader.course.modes import default_dtype

FORBIDDEN = dict.fromkeys(("LearnedPositions", "ClippedRelativeBias"),
                          {"torch.nn.Embedding", "torch.nn.functional.embedding", "torch.embedding"})


# num_buckets and max_distance of which no distance lies on an edge, where rounding would decide
TWO_SIDES = [(11, 45), (13, 75), (19, 61), (21, 53), (27, 97), (33, 37)]
ONE_SIDE = [(10, 37), (11, 53), (13, 97), (14, 45), (19, 83), (22, 37)]


def _number(draw, low, high):
    """A whole number from low to high, both among them."""
    return low + int(draw.ints(high + 1 - low, 1))


def _one_of(draw, some):
    return some[_number(draw, 0, len(some) - 1)]


def _again(make):
    """What a second call gives, after the caller of the first has changed its answer."""
    first = make()
    first.neg_()
    second = make().clone()
    first.neg_()        # as it was, should it be kept somewhere
    return second


def test_sinusoid_first_row(impl, draw):
    """Position 0 is 0, 1, 0, 1, …: sine on even features, cosine on odd ones.

    Every angle of position 0 is 0, and sin 0 = 0, cos 0 = 1. Sine and cosine of one angle stand
    side by side: two blocks, all sines and then all cosines, are another convention. (A caller may
    change the table: each call makes a new one.)
    """
    seq_len, d_model = _number(draw, 2, 5), 2 * _number(draw, 2, 6)
    return {f"d_model = {d_model}": impl.sinusoidal_encoding(seq_len, d_model)[0],
            "after another was changed": _again(lambda: impl.sinusoidal_encoding(seq_len, d_model))[0]}


@points(2)
def test_sinusoid_angles(impl, draw):
    """Features 2i and 2i + 1 turn by base^(−2i / d_model) from each position to the next.

    With d_model = 6 the exponents are 0, −2/6, −4/6: twice the pair's number, over d_model. Feature
    0 is sin p, and its partner is cos p, of the same angle.
    """
    seq_len, d_model = _number(draw, 4, 9), 2 * _number(draw, 3, 7)
    return {f"({n}, {d})": impl.sinusoidal_encoding(n, d) for n, d in ((seq_len, d_model), (d_model, d_model))}


def test_sinusoid_base(impl, draw):
    """base sets how much slower the last pair turns than the first.

    It is an argument: 10,000 is its default and stands nowhere else. The table is float32, whatever
    torch's default dtype is: say dtype=torch.float32.
    """
    base = _number(draw, 20, 400) / 4
    with default_dtype(torch.float64):
        dtype = str(impl.sinusoidal_encoding(2, 4).dtype)
    return {f"base = {base}": impl.sinusoidal_encoding(4, 8, base=base), "dtype, float64 the default": dtype}


def test_sinusoid_bad_sizes(impl, draw):
    """An odd d_model, a seq_len below 1 and a base not above 0 raise a ValueError that names them.

    A sine without its cosine has no place: look at the remainder by 2 before making anything. NaN is
    not above 0, and not below it either: ask `not base > 0`.
    """
    odd, low = 2 * _number(draw, 1, 9) + 1, -_number(draw, 1, 40) / 4
    asked = {"d_model": [odd, 0, -2], "seq_len": [0, int(low) - 1], "base": [0, low, float("nan")]}
    return {f"{name} = {value}": raises(ValueError, lambda name=name, value=value: impl.sinusoidal_encoding(
                **{"seq_len": 4, "d_model": 4, name: value}), name)
            for name, values in asked.items() for value in values}


def test_learned_parameters(impl, draw):
    """LearnedPositions has one parameter, weight, of shape (max_seq_len, d_model).

    A row per position, as the embedding has a row per token. Wrap it in nn.Parameter and assign
    it to self, or it never trains.
    """
    positions = impl.LearnedPositions(_number(draw, 6, 9), _number(draw, 2, 5))
    return shapes(positions.named_parameters())


@tolerance(0.02)
def test_learned_start(impl, draw):
    """LearnedPositions starts as the embedding of lesson 02: σ = 0.02, truncated at ±3σ.

    Measured over 120,000 numbers, whose spread is known to 0.2 %; the largest is given over their
    spread, at most 4, known to 0.5 %. trunc_normal_ takes its cut as numbers, not multiples of std.
    """
    weight = impl.LearnedPositions(600, 200).weight
    return {"spread": weight.std(), "largest": (weight.abs().max() / weight.std()).clamp(max=4)}


@points(2)
@dtypes("float32", "bfloat16")
def test_learned_rows(impl, draw, dtype):
    """Each token gets the row of the position that it was given, in eval mode too.

    The rows here are two sequences of a batch: one starts at 0, the other goes on at 3, as while
    decoding with a cache. So the place in the tensor is not the position. A position is a whole
    number: half precision does not hold those past 2,048, or past 256, one by one.
    """
    learned, long = (draw.fill(impl.LearnedPositions(*sizes)).to(dtype) for sizes in ((8, 5), (5000, 1)))
    places = torch.tensor([[0, 1, 2, 3], [3, 4, 5, 7]], device=draw.device)
    far = 4990 + draw.ints(10, 6)
    answers = {"two rows": learned(places), "far out": long(far)[:, 0], "one token": learned(places[1, 3:])}
    with torch.no_grad():
        return {**answers, "in eval mode": learned.eval()(draw.ints(8, 2, 3))}


def test_learned_packed(impl, draw):
    """A row may be longer than max_seq_len, as long as each position is below it.

    Here two sequences, of 3 and 2 tokens, are packed into one row for a table of 4. Look at the
    positions' values, not at how many there are.
    """
    learned = draw.fill(impl.LearnedPositions(4, 3))
    return {"packed": learned(torch.tensor([0, 1, 2, 0, 1], device=draw.device)),
            "a table of 1": draw.fill(impl.LearnedPositions(1, 3))(0 * draw.ints(1, 3))}


def test_learned_grad(impl, draw):
    """A position's gradients add up over the rows of the batch, and unused positions get zeros.

    Index the Parameter itself: a .data, .detach() or torch.no_grad() cuts the gradient off.
    """
    learned = draw.fill(impl.LearnedPositions(5, 3))
    positions = torch.tensor([[0, 1, 2], [0, 0, 1]], device=draw.device)
    (learned(positions) * draw(2, 3, 3)).sum().backward()
    trained, learned.weight.grad = learned.weight.grad, None
    (learned.eval()(positions) * draw(2, 3, 3)).sum().backward()
    return {"grad of weight": trained, "grad of weight in eval mode": learned.weight.grad}


@points(2)
def test_learned_range(impl, draw):
    """A position below 0, or not below max_seq_len, raises a ValueError that names positions.

    Compare the smallest and the largest position with the table before indexing. The last valid one
    is max_seq_len − 1, and −1 would read that row in silence. Every row of a batch counts.
    """
    size = _number(draw, 3, 8)
    learned = impl.LearnedPositions(size, 3).to(draw.device)

    def at(*positions):
        return lambda: learned(torch.tensor(positions, device=draw.device))

    refused = {f"0, {last} of {size}": raises(ValueError, at(0, last), names="positions")
               for last in (size, size + _number(draw, 1, 9), -1)}
    return {f"0, {size - 1} of {size}": accepts(at(0, size - 1)), **refused,
            "in the second row": [raises(ValueError, at([0, 1], [2, bad]), names="positions") for bad in (size, -1)]}


def test_learned_empty(impl, draw):
    """No tokens give no rows, of the right width.

    The smallest of no numbers does not exist: look whether there are any positions first.
    """
    rows, learned = _number(draw, 1, 4), draw.fill(impl.LearnedPositions(6, _number(draw, 2, 5)))
    return learned(torch.zeros(rows, 0, dtype=torch.int64, device=draw.device))


def test_distance(impl, draw):
    """relative_distance is key − query: negative is the past, positive the future.

    Rows are queries and columns are keys. Broadcasting a row of keys against a column of queries
    makes the table. (A caller may change it: each call makes a new one.)
    """
    n = _number(draw, 3, 7)
    return {f"{n} tokens": impl.relative_distance(n, n),
            "after another was changed": _again(lambda: impl.relative_distance(n, n))}


def test_distance_fewer_queries(impl, draw):
    """With more keys than queries, the queries are the last of the keys.

    2 queries and 5 keys: the queries are at positions 3 and 4. The last query's own key is always
    the last key, at distance 0.
    """
    k_len = _number(draw, 4, 8)
    return {f"{q} queries, {k_len} keys": impl.relative_distance(q, k_len) for q in (2, 1, 3)}


def test_distance_bad_sizes(impl, draw):
    """More queries than keys, or none, raise a ValueError that names q_len.

    The queries are some of the keys, so there are at least 1 and at most k_len.
    """
    keys = _number(draw, 2, 6)
    return {f"{q} queries, {keys} keys": raises(ValueError, lambda: impl.relative_distance(q, keys), "q_len")
            for q in (keys + 1, keys + _number(draw, 2, 5), 0, -1)}


def test_clipped_parameters(impl, draw):
    """ClippedRelativeBias has one parameter, weight, (heads, 2 · max_distance + 1), all zeros.

    Each head has its own row. A row has a number for every distance from −max_distance to
    +max_distance, 0 included.
    """
    bias = impl.ClippedRelativeBias(_number(draw, 2, 4), _number(draw, 3, 6))
    return {"parameters": shapes(bias.named_parameters()),
            "starts at zero": bool((bias.weight == 0).all())}


@points(2)
def test_clipped_bias(impl, draw):
    """Each head's bias is its own number for the clipped distance, farthest past first.

    The distances here, −4 to 4, pass max_distance = 2 on both sides. The index of distance −2 is
    0, so of distance 0 it is 2. Nothing is kept from one call to the next: other lengths and other
    weights have other biases.
    """
    bias = draw.fill(impl.ClippedRelativeBias(3, 2))
    first = {"5 of 5": bias(5, 5), "3 of 6": bias(3, 6), "6 of 6": bias(6, 6)}
    with torch.no_grad():
        bias.weight.mul_(2)
    return {**first, "with other weights": bias(6, 6), "in eval mode": bias.eval()(4, 5)}


def test_clipped_grad(impl, draw):
    """Far tokens all train the number at the end of the range.

    With 4 queries, 4 keys and max_distance = 1, the past's number is used 6 times. Index the
    Parameter itself, so that its gradients add up.
    """
    bias = draw.fill(impl.ClippedRelativeBias(2, 1))
    (bias(4, 4) * draw(2, 4, 4)).sum().backward()
    return {"grad of weight": bias.weight.grad}


def test_bucket_near(impl, draw):
    """The nearest distances have a bucket each; past and future have different ones.

    With 32 buckets in two directions, a side has 16 and the first 8 of them are exact: 0, −1 …
    −7 are in 0, 1 … 7. The future starts at 16, so distance 1 is in bucket 17.
    """
    near = torch.arange(-7, 8, device=draw.device)
    return {"-7 … 7": impl.t5_bucket(near), "some of them": impl.t5_bucket(near[draw.ints(15, 4)])}


@points(2)
def test_bucket_far(impl, draw):
    """Farther distances share buckets, which widen with the logarithm up to max_distance.

    With 16 buckets on a side: 8 + ⌊log(d / 8) / log(128 / 8) · 8⌋ from distance 8 on, never
    above 15. ⌊ ⌋ rounds down. Distances may have any integer dtype, and int8 has a −128 and no 128:
    .long() comes first.
    """
    reach = _number(draw, 150, 250)
    far = torch.arange(-reach, reach + 1, device=draw.device)
    small = torch.cat([draw.ints(256, 8), 0 * draw.ints(1, 1)]) - 128
    return {f"-{reach} … {reach}": impl.t5_bucket(far), "of int8": impl.t5_bucket(small.to(torch.int8))}


@points(2)
def test_bucket_causal(impl, draw):
    """With bidirectional=False all buckets are for the past, and the future is in bucket 0.

    A decoder never looks ahead, so no bucket is spent there: 32 on one side, the first 16 exact.
    """
    reach, (buckets, farthest) = _number(draw, 150, 250), _one_of(draw, ONE_SIDE)
    d = torch.arange(-reach, 6, device=draw.device)
    return {"32 buckets": impl.t5_bucket(d, bidirectional=False), f"{buckets} buckets, the last from {farthest} on":
            impl.t5_bucket(d, buckets, farthest, bidirectional=False)}


def test_bucket_sizes(impl, draw):
    """num_buckets and max_distance are arguments: here 12 buckets, the last from 40 on, and others.

    6 buckets on a side, 3 of them exact. No 8, 16, 32 or 128 stands in the function. An odd number
    of buckets is halved and rounded down, and so is the half of it.
    """
    d, (buckets, farthest) = torch.arange(-130, 131, device=draw.device), _one_of(draw, TWO_SIDES)
    return {"12 buckets, the last from 40 on": impl.t5_bucket(d, 12, 40),
            f"{buckets} buckets, the last from {farthest} on": impl.t5_bucket(d, buckets, farthest)}


def test_bucket_bad_sizes(impl, draw):
    """Too few buckets, or a max_distance no larger than the exact ones, raise a ValueError.

    log(max_distance / m) is divided by: it must be above 0, and m must be at least 1.
    """
    d = torch.arange(3)
    m = _number(draw, 4, 9)
    return {**{f"{n} buckets": raises(ValueError, lambda: impl.t5_bucket(d, n), "num_buckets")
               for n in (3, _number(draw, 0, 2))},
            "1 bucket on one side": raises(
                ValueError, lambda: impl.t5_bucket(d, 1, bidirectional=False), "num_buckets"),
            **{f"{4 * m} buckets, max_distance = {far}": raises(
                   ValueError, lambda far=far: impl.t5_bucket(d, 4 * m, far), "max_distance")
               for far in (m, m - _number(draw, 1, 3))}}


def test_slopes(impl, draw):
    """For n heads, n a power of two, the slopes are 2^(−8/n), 2^(−16/n), … 2^(−8).

    8 heads: a half, a quarter, … 1/256. 4 heads have every other one of these. The first head
    is the steepest. (Always float32, and new at each call: the caller may change them.)
    """
    n = 2 ** _number(draw, 1, 5)
    with default_dtype(torch.float64):
        dtypes = [str(impl.alibi_slopes(n).dtype), str(impl.alibi_bias(2, 1, 2).dtype)]
    return {**{f"{heads} heads": impl.alibi_slopes(heads) for heads in (4, 8, n)},
            "dtypes of slopes and bias, float64 the default": dtypes,
            "after others were changed": _again(lambda: impl.alibi_slopes(n))}


@points(2)
def test_slopes_other_heads(impl, draw):
    """For 6 heads: the slopes of 4 heads, then the 1st and 3rd slopes of 8.

    Take the largest power of two that is not above heads, n. What is missing comes from the slopes
    of 2n heads, every other one, from the first on: they lie between those that are there.
    """
    return {f"{heads} heads": impl.alibi_slopes(heads) for heads in (6, _number(draw, 11, 15))}


@points(2)
def test_alibi_past(impl, draw):
    """ALiBi's bias in the past is −slope · how far back, one slope per head.

    The newest of 5 tokens looks at all of them. The token itself has bias 0; the farther back, the
    more is taken off. (A caller may change it: each call makes a new one.)
    """
    heads, k_len = _number(draw, 2, 7), _number(draw, 4, 8)
    return {f"{heads} heads, 1 query, {k_len} keys": impl.alibi_bias(heads, 1, k_len),
            "as many heads as tokens": impl.alibi_bias(heads, heads, heads),
            "after another was changed": _again(lambda: impl.alibi_bias(heads, 1, k_len))}


def test_alibi_future(impl, draw):
    """ALiBi's bias is 0 in the future.

    A causal mask will hide the future, and masking is its job. Clamp the distance at 0.
    """
    heads, n = _number(draw, 2, 4), _number(draw, 3, 6)
    return {f"{heads} heads, {n} tokens": impl.alibi_bias(heads, n, n),
            f"the last 2 of {n}": impl.alibi_bias(heads, 2, n)}


def test_bad_heads(impl, draw):
    """No heads, or no distance, raise a ValueError that names the argument.

    Look at heads and max_distance before anything is made of them.
    """
    few, k = -_number(draw, 1, 5), _number(draw, 3, 6)
    return {"ALiBi, 0 heads": raises(ValueError, lambda: impl.alibi_slopes(0), "heads"),
            f"ALiBi, {few} heads": raises(ValueError, lambda: impl.alibi_slopes(few), "heads"),
            f"ALiBi's bias, {k + 1} queries, {k} keys":
                raises(ValueError, lambda: impl.alibi_bias(2, k + 1, k), "q_len"),
            "clipped, 0 heads": raises(ValueError, lambda: impl.ClippedRelativeBias(0, 2), "heads"),
            f"clipped, {few} heads": raises(ValueError, lambda: impl.ClippedRelativeBias(few, 2), "heads"),
            "clipped, max_distance = 0":
                raises(ValueError, lambda: impl.ClippedRelativeBias(2, 0), "max_distance")}
