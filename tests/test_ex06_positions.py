"""What chapter 06 asks of positions: sinusoidal, learned, clipped, in buckets, ALiBi."""

import torch

from grader import accepts, dtypes, points, raises, shapes, tolerance

FORBIDDEN = dict.fromkeys(("LearnedPositions", "ClippedRelativeBias"),
                          {"torch.nn.Embedding", "torch.nn.functional.embedding", "torch.embedding"})


def test_sinusoid_first_row(impl, draw):
    """Position 0 is 0, 1, 0, 1, …: sine on even features, cosine on odd ones.

    Every angle of position 0 is 0, and sin 0 = 0, cos 0 = 1. Sine and cosine of one angle stand
    side by side: two blocks, all sines and then all cosines, are another convention.
    """
    return impl.sinusoidal_encoding(3, 6)[0]


@points(2)
def test_sinusoid_angles(impl, draw):
    """Features 2i and 2i + 1 turn by base^(−2i / d_model) from each position to the next.

    With d_model = 6 the exponents are 0, −2/6, −4/6: twice the pair's number, over d_model. Feature
    0 is sin p, and its partner is cos p, of the same angle.
    """
    return impl.sinusoidal_encoding(5, 6)


def test_sinusoid_base(impl, draw):
    """base sets how much slower the last pair turns than the first.

    It is an argument: 10,000 is its default and stands nowhere else.
    """
    return impl.sinusoidal_encoding(4, 8, base=100.0)


def test_sinusoid_bad_sizes(impl, draw):
    """An odd d_model, a seq_len below 1 and a base of 0 raise a ValueError that names them.

    A sine without its cosine has no place: look at the remainder by 2 before making anything.
    """
    return {"d_model = 5": raises(ValueError, lambda: impl.sinusoidal_encoding(4, 5), "d_model"),
            "seq_len = 0": raises(ValueError, lambda: impl.sinusoidal_encoding(0, 4), "seq_len"),
            "base = 0": raises(ValueError, lambda: impl.sinusoidal_encoding(4, 4, 0), "base")}


def test_learned_parameters(impl, draw):
    """LearnedPositions has one parameter, weight, of shape (max_seq_len, d_model).

    A row per position, as the embedding has a row per token. Wrap it in nn.Parameter and assign
    it to self, or it never trains.
    """
    positions = impl.LearnedPositions(7, 4)
    return shapes(positions.named_parameters())


@tolerance(0.02)
def test_learned_start(impl, draw):
    """LearnedPositions starts as the embedding of chapter 02: σ = 0.02, truncated at ±3σ.

    Measured over 120,000 numbers, whose spread is known to 0.2 %; the largest is given over their
    spread, at most 4, known to 0.5 %. trunc_normal_ takes its cut as numbers, not multiples of std.
    """
    weight = impl.LearnedPositions(600, 200).weight
    return {"spread": weight.std(), "largest": (weight.abs().max() / weight.std()).clamp(max=4)}


@points(2)
@dtypes("float32", "bfloat16")
def test_learned_rows(impl, draw, dtype):
    """Each token gets the row of the position that it was given.

    The rows here are two sequences of a batch: one starts at 0, the other goes on at 3, as while
    decoding with a cache. So the place in the tensor is not the position.
    """
    learned = draw.fill(impl.LearnedPositions(8, 5)).to(dtype)
    return learned(torch.tensor([[0, 1, 2, 3], [3, 4, 5, 7]], device=draw.device))


def test_learned_packed(impl, draw):
    """A row may be longer than max_seq_len, as long as each position is below it.

    Here two sequences, of 3 and 2 tokens, are packed into one row for a table of 4. Look at the
    positions' values, not at how many there are.
    """
    learned = draw.fill(impl.LearnedPositions(4, 3))
    return learned(torch.tensor([0, 1, 2, 0, 1], device=draw.device))


def test_learned_grad(impl, draw):
    """A position's gradients add up over the rows of the batch, and unused positions get zeros.

    Index the Parameter itself: a .data, .detach() or torch.no_grad() cuts the gradient off.
    """
    learned = draw.fill(impl.LearnedPositions(5, 3))
    positions = torch.tensor([[0, 1, 2], [0, 0, 1]], device=draw.device)
    (learned(positions) * draw(2, 3, 3)).sum().backward()
    return {"grad of weight": learned.weight.grad}


@points(2)
def test_learned_range(impl, draw):
    """A position below 0, or not below max_seq_len, raises a ValueError that names positions.

    Compare the smallest and the largest position with the table before indexing. The last valid one
    is max_seq_len − 1, and −1 would read that row in silence.
    """
    learned = impl.LearnedPositions(4, 3).to(draw.device)

    def at(*positions):
        return lambda: learned(torch.tensor(positions, device=draw.device))

    refused = {f"0, {last}": raises(ValueError, at(0, last), names="positions") for last in (4, 9, -1)}
    return {"0, 3": accepts(at(0, 3)), **refused}


def test_learned_empty(impl, draw):
    """No tokens give no rows, of the right width.

    The smallest of no numbers does not exist: look whether there are any positions first.
    """
    learned = draw.fill(impl.LearnedPositions(6, 4))
    return learned(torch.zeros(2, 0, dtype=torch.int64, device=draw.device))


def test_distance(impl, draw):
    """relative_distance is key − query: negative is the past, positive the future.

    Rows are queries and columns are keys. Broadcasting a row of keys against a column of queries
    makes the table.
    """
    return impl.relative_distance(4, 4)


def test_distance_fewer_queries(impl, draw):
    """With more keys than queries, the queries are the last of the keys.

    2 queries and 5 keys: the queries are at positions 3 and 4. The last query's own key is always
    the last key, at distance 0.
    """
    return impl.relative_distance(2, 5)


def test_distance_bad_sizes(impl, draw):
    """More queries than keys, or none, raise a ValueError that names q_len.

    The queries are some of the keys, so there are at least 1 and at most k_len.
    """
    return {"5 queries, 3 keys": raises(ValueError, lambda: impl.relative_distance(5, 3), "q_len"),
            "no queries": raises(ValueError, lambda: impl.relative_distance(0, 3), "q_len")}


def test_clipped_parameters(impl, draw):
    """ClippedRelativeBias has one parameter, weight, (heads, 2 · max_distance + 1), all zeros.

    Each head has its own row. A row has a number for every distance from −max_distance to
    +max_distance, 0 included.
    """
    bias = impl.ClippedRelativeBias(2, 3)
    return {"parameters": shapes(bias.named_parameters()),
            "starts at zero": bool((bias.weight == 0).all())}


@points(2)
def test_clipped_bias(impl, draw):
    """Each head's bias is its own number for the clipped distance, farthest past first.

    The distances here, −4 to 4, pass max_distance = 2 on both sides. The index of distance −2 is
    0, so of distance 0 it is 2.
    """
    return draw.fill(impl.ClippedRelativeBias(3, 2))(5, 5)


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
    return impl.t5_bucket(torch.arange(-7, 8, device=draw.device))


@points(2)
def test_bucket_far(impl, draw):
    """Farther distances share buckets, which widen with the logarithm up to max_distance.

    With 16 buckets on a side: 8 + ⌊log(d / 8) / log(128 / 8) · 8⌋ from distance 8 on, never
    above 15. ⌊ ⌋ rounds down.
    """
    return impl.t5_bucket(torch.arange(-200, 201, device=draw.device))


@points(2)
def test_bucket_causal(impl, draw):
    """With bidirectional=False all buckets are for the past, and the future is in bucket 0.

    A decoder never looks ahead, so no bucket is spent there: 32 on one side, the first 16 exact.
    """
    return impl.t5_bucket(torch.arange(-200, 6, device=draw.device), bidirectional=False)


def test_bucket_sizes(impl, draw):
    """num_buckets and max_distance are arguments: here 12 buckets, the last from 40 on.

    6 buckets on a side, 3 of them exact. No 8, 16, 32 or 128 stands in the function.
    """
    return impl.t5_bucket(torch.arange(-60, 61, device=draw.device), 12, 40)


def test_bucket_bad_sizes(impl, draw):
    """Too few buckets, or a max_distance no larger than the exact ones, raise a ValueError.

    log(max_distance / m) is divided by: it must be above 0, and m must be at least 1.
    """
    d = torch.arange(3)
    return {"3 buckets": raises(ValueError, lambda: impl.t5_bucket(d, 3), "num_buckets"),
            "max_distance = 8":
                raises(ValueError, lambda: impl.t5_bucket(d, 32, 8), "max_distance")}


def test_slopes(impl, draw):
    """For n heads, n a power of two, the slopes are 2^(−8/n), 2^(−16/n), … 2^(−8).

    8 heads: a half, a quarter, … 1/256. 4 heads have every other one of these. The first head
    is the steepest.
    """
    return {f"{heads} heads": impl.alibi_slopes(heads) for heads in (4, 8)}


@points(2)
def test_slopes_other_heads(impl, draw):
    """For 6 heads: the slopes of 4 heads, then the 1st and 3rd slopes of 8.

    Take the largest power of two that is not above heads, n. What is missing comes from the slopes
    of 2n heads, every other one, from the first on: they lie between those that are there.
    """
    return {f"{heads} heads": impl.alibi_slopes(heads) for heads in (6, 12)}


@points(2)
def test_alibi_past(impl, draw):
    """ALiBi's bias in the past is −slope · how far back, one slope per head.

    The newest of 5 tokens looks at all of them. The token itself has bias 0; the farther back, the
    more is taken off.
    """
    return impl.alibi_bias(2, 1, 5)


def test_alibi_future(impl, draw):
    """ALiBi's bias is 0 in the future.

    A causal mask will hide the future, and masking is its job. Clamp the distance at 0.
    """
    return impl.alibi_bias(2, 3, 3)


def test_bad_heads(impl, draw):
    """No heads, or no distance, raise a ValueError that names the argument.

    Look at heads and max_distance before anything is made of them.
    """
    return {"ALiBi, 0 heads": raises(ValueError, lambda: impl.alibi_slopes(0), "heads"),
            "clipped, 0 heads": raises(ValueError, lambda: impl.ClippedRelativeBias(0, 2), "heads"),
            "clipped, max_distance = 0":
                raises(ValueError, lambda: impl.ClippedRelativeBias(2, 0), "max_distance")}
