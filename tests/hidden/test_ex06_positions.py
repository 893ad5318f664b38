"""Lesson 06 on other shapes, dtypes and extremes."""

import torch

from grader import accepts, dtypes, points, raises, shape, shapes, shares_memory
from grader.course.doubles import Elsewhere


def test_sinusoid_smallest(impl, draw):
    """Two features make one pair, which turns by 1; one position is one row; base may be an int."""
    base = 2 + int(draw.ints(20, 1))
    return {"2 features": impl.sinusoidal_encoding(4, 2, base=base),
            "1 position": impl.sinusoidal_encoding(1, 4)}


@points(2)
def test_sinusoid_wide(impl, draw):
    """The paper's width, 512, over 40 positions or so."""
    return impl.sinusoidal_encoding(30 + int(draw.ints(20, 1)), 512)


def test_sinusoid_rows_stay(impl, draw):
    """A longer table begins with the shorter one, and nothing in it trains."""
    n = 3 + int(draw.ints(5, 1))
    long, short = impl.sinusoidal_encoding(9, 6), impl.sinusoidal_encoding(n, 6)
    return {"same rows": bool((long[:n] == short).all()), "trains": long.requires_grad, "shorter": short}


@points(2)
@dtypes("float16", "float64")
def test_learned_dtypes(impl, draw, dtype):
    """The rows come in the weight's dtype, for int32 positions, in any number of batch axes."""
    learned = draw.fill(impl.LearnedPositions(6, 4)).to(dtype)
    positions = draw.ints(6, 2, 1, 3)
    return [learned(positions.int()), learned(positions[0, 0])]


def test_learned_range_says_the_value(impl, draw):
    """The error names the position that is out of range, not one that is in it."""
    learned = impl.LearnedPositions(6, 4)
    return {value: raises(ValueError, lambda at=at: learned(torch.tensor(at)), names=value)
            for value, at in {"9": [0, 9, 2], "1": [3, -1, 2], "8": [0, 8, 0]}.items()}


def test_learned_left_padding(impl, draw):
    """A left-padded batch: padding is at position 0, and each text starts at 0."""
    learned = draw.fill(impl.LearnedPositions(6, 4))
    return learned(torch.tensor([[0, 0, 0, 1], [0, 1, 2, 3]], device=draw.device))


def test_learned_non_contiguous(impl, draw):
    """Positions whose axes were swapped give the same rows."""
    return draw.fill(impl.LearnedPositions(6, 4))(draw.ints(6, 4, 3, 2).transpose(0, 2))


def test_learned_is_a_copy(impl, draw):
    """Writing into the result leaves the table alone."""
    learned = draw.fill(impl.LearnedPositions(6, 4))
    rows = learned(torch.arange(6, device=draw.device))
    return [shares_memory(rows, learned.weight), rows]


def test_no_sizes(impl, draw):
    """Tables without a row or a column, and a base below 0, are refused."""
    return [raises(ValueError, lambda: impl.LearnedPositions(0, 4), names="max_seq_len"),
            raises(ValueError, lambda: impl.LearnedPositions(4, 0), names="d_model"),
            raises(ValueError, lambda: impl.sinusoidal_encoding(4, 0), names="d_model"),
            raises(ValueError, lambda: impl.sinusoidal_encoding(4, -2), names="d_model"),
            raises(ValueError, lambda: impl.sinusoidal_encoding(4, 4, -1), names="base"),
            raises(ValueError, lambda: impl.alibi_slopes(-1), names="heads")]


def test_smallest_sizes(impl, draw):
    """One position, one feature, one head, a distance of 1: each is enough."""
    d = torch.arange(-3, 4, device=draw.device)
    calls = {"sinusoidal": lambda: impl.sinusoidal_encoding(1, 2, base=1),
             "learned": lambda: impl.LearnedPositions(1, 1),
             "clipped": lambda: impl.ClippedRelativeBias(1, 1),
             "distance": lambda: impl.relative_distance(1, 1),
             "buckets": lambda: impl.t5_bucket(d, 2, 2, False),
             "buckets on both sides": lambda: impl.t5_bucket(d, 4, 2),
             "slopes": lambda: impl.alibi_slopes(1), "ALiBi": lambda: impl.alibi_bias(1, 1, 1)}
    return {name: accepts(call) for name, call in calls.items()}


def test_default_device(impl, draw):
    """What holds no parameter is made on torch's default device, which may be the meta device."""
    with Elsewhere() as there, there.device:
        made = {"sinusoidal": impl.sinusoidal_encoding(3, 4), "slopes": impl.alibi_slopes(6),
                "distance": impl.relative_distance(2, 3), "ALiBi": impl.alibi_bias(6, 2, 3)}
        return {name: [tensor.device.type, shape(tensor)] for name, tensor in made.items()}


def test_state_dicts(impl, draw):
    """Checkpoints hold one tensor each, named weight."""
    n = 1 + int(draw.ints(5, 1))
    modules = [impl.LearnedPositions(6, n), impl.ClippedRelativeBias(n, 3)]
    return [shapes(module.state_dict()) for module in modules]


def test_moves_with_the_module(impl, draw):
    """The tables go wherever the module is sent."""
    modules = [impl.LearnedPositions(6, 4), impl.ClippedRelativeBias(2, 3)]
    return [module.to("meta").weight.device.type for module in modules]


def test_distance_one_query(impl, draw):
    """The newest token alone: every key is at its own distance behind, the last at 0."""
    return [impl.relative_distance(1, 2 + int(draw.ints(9, 1))), impl.relative_distance(1, 1)]


@points(2)
@dtypes("float32", "bfloat16")
def test_clipped_decoding(impl, draw, dtype):
    """While decoding, 2 queries meet 7 keys; the bias has the weight's dtype."""
    return draw.fill(impl.ClippedRelativeBias(2, 3)).to(dtype)(2, 7)


def test_clipped_short_sequence(impl, draw):
    """A sequence shorter than max_distance uses the middle of the table."""
    bias = draw.fill(impl.ClippedRelativeBias(2, 6))
    return [bias(3, 3), bias(1, 1)]


def test_clipped_agrees_with_itself(impl, draw):
    """The last queries' rows are the same, asked alone or with all the others."""
    bias = draw.fill(impl.ClippedRelativeBias(2, 2))
    n = 4 + int(draw.ints(5, 1))
    return [bool((bias(n, n)[:, -2:] == bias(2, n)).all()), bias(2, n)]


@points(2)
def test_bucket_any_shape(impl, draw):
    """Distances of any shape and integer dtype: a scalar, a table, a batch of tables."""
    d = draw.ints(400, 2, 3, 4) - 200
    return [impl.t5_bucket(d), impl.t5_bucket(d[0].int()), impl.t5_bucket(d[0, 0, 0]),
            impl.t5_bucket(d.transpose(0, 2), bidirectional=False)]


def test_bucket_very_far(impl, draw):
    """Past max_distance everything shares the last bucket, at a million tokens too."""
    d = torch.cat([torch.tensor([-1_000_000, -5000, 5000, 1_000_000], device=draw.device), draw.ints(999, 3) - 500])
    return [impl.t5_bucket(d), impl.t5_bucket(d, bidirectional=False)]


def test_bucket_smallest(impl, draw):
    """Two buckets on one side, four on two, are the fewest; odd numbers waste one."""
    d = torch.arange(-9, 10 + int(draw.ints(9, 1)), device=draw.device)
    return [impl.t5_bucket(d, 2, 5, False), impl.t5_bucket(d, 4, 5), impl.t5_bucket(d, 9, 7),
            raises(ValueError, lambda: impl.t5_bucket(d, 1, 5, False), names="num_buckets")]


@points(2)
def test_slopes_many(impl, draw):
    """Slopes for 1, 2, 3, 7, 16, 25, 40 heads and another number."""
    return [impl.alibi_slopes(heads) for heads in (1, 2, 3, 7, 16, 25, 40, 41 + int(draw.ints(60, 1)))]


@points(2)
def test_alibi_decoding(impl, draw):
    """3 queries at the end of 8 keys or more, 5 heads."""
    return impl.alibi_bias(5, 3, 8 + int(draw.ints(9, 1)))


def test_alibi_bad_sizes(impl, draw):
    """What ALiBi is made of refuses for it: queries that no key has, no heads."""
    return [raises(ValueError, lambda: impl.alibi_bias(4, 5, 3), names="q_len"),
            raises(ValueError, lambda: impl.alibi_bias(0, 3, 3), names="heads")]
