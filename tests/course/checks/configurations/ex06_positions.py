"""What the parts of chapter 06 may be given."""

import torch
from hypothesis import strategies as st

SMALL = st.integers(1, 9)


def sinusoidal_encoding(impl, draw):
    seq_len, d_model = draw("seq_len", st.sampled_from([1, 2, 3, 7, 3000])), 2 * draw("pairs", st.integers(1, 8))
    draw.asked(impl.sinusoidal_encoding, seq_len, d_model, draw("base", (10_000.0, 100.0, 1.0, 0.5)))
    draw.asked(impl.sinusoidal_encoding, seq_len, d_model)


def learned_positions(impl, draw):
    most = draw.size("max_seq_len")
    module = draw.module(impl.LearnedPositions, most, draw.size("d_model"))
    draw.asked(module, draw.ints("positions", "*batch seq", most))


def relative_distance(impl, draw):
    q_len, k_len = draw("q_len", SMALL), draw("k_len", SMALL)
    draw.asked(impl.relative_distance, q_len, k_len)
    draw.asked(impl.alibi_bias, draw("heads", st.integers(1, 20)), q_len, k_len)


def clipped(impl, draw):
    module = draw.module(impl.ClippedRelativeBias, draw("heads", SMALL), draw("max_distance", SMALL))
    q_len = draw("q_len", SMALL)
    draw.asked(module, q_len, q_len + draw("more keys", st.integers(0, 9)))


def t5_bucket(impl, draw):
    far = draw("farthest", (3, 20, 200, 100_000))
    kinds = (torch.int64, torch.int32) + (torch.int16, torch.int8) * (far < 100)
    distance = draw.ints("distance", "*shape", far, -far, kinds)
    draw.asked(
        impl.t5_bucket,
        distance,
        draw("num_buckets", st.integers(2, 40)),
        draw("max_distance", st.integers(2, 200)),
        draw("bidirectional", (True, False)),
    )
    draw.asked(impl.t5_bucket, distance)


def alibi_slopes(impl, draw):
    draw.asked(impl.alibi_slopes, draw("heads", st.integers(1, 70)))
