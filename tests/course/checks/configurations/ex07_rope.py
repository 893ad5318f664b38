"""What the parts of chapter 07 may be given."""

BASES = (10_000.0, 500_000.0, 100.0, 1.5, 1.0, 0.5)
EVEN = (2, 4, 6, 8, 16, 64)
FACTORS = (8.0, 1.0, 2.0, 1.5, 32.0, 4)


def rope_frequencies(impl, draw):
    draw.asked(impl.rope_frequencies, draw("head_dim", EVEN), draw("base", BASES))
    draw.asked(impl.rope_frequencies, draw("head_dim", EVEN))


def rope(impl, draw):
    head_dim, most = draw("head_dim", EVEN[:5]), draw("max_seq_len", (4, 1, 2, 7, 5000))
    own = {}
    if draw("own frequencies", (False, True)):
        own["frequencies"] = draw.tensor("frequencies", (head_dim // 2,), grad=False)
    if draw("scaled", (False, True)):
        own["attention_scale"] = draw("attention_scale", (1.3, 0.5, 0.0))
    rope = draw.module(
        impl.RoPE, head_dim, most, draw("base", BASES[:3]), draw("layout", ("half", "interleaved")), **own
    )
    x = draw.tensor("x", (*draw.shape("*batch seq"), head_dim))
    draw.asked(rope, x)
    axes = "seq"
    if len(x.shape) > 2:
        axes = draw("axes of positions", ("seq", "*batch seq", "1 seq") if len(x.shape) == 3 else ("seq", "*batch seq"))
    draw.asked(rope, x, draw.ints("positions", axes, most))
    rope.half()
    draw.see("tables after half()", rope)


def interleaved_to_half(impl, draw):
    heads = draw.size("heads")
    rows = heads * 2 * draw("half_dim", (1, 2, 3))
    weight = draw.tensor("weight", (rows, draw.size("d_in")) if draw("matrix", (False, True)) else (rows,))
    draw.asked(impl.interleaved_to_half, weight, heads)


def llama3(impl, draw):
    frequencies = draw.tensor("frequencies", (draw.size("half_dim"),), kinds=("normal", "spread", "small"))
    low = draw("low", (1.0, 0.5, 2, 0))
    draw.asked(
        impl.llama3_frequencies,
        frequencies.abs() if draw("positive", (True, False)) else frequencies,
        draw("factor", FACTORS),
        low,
        low + draw("high − low", (3.0, 1, 0.5)),
        draw("original_max", (8192, 1, 16, 40)),
    )


def yarn(impl, draw):
    given = {}
    if draw("own turns", (False, True)):
        slow = draw("beta_slow", (1, 0.25, 2.0, 8))
        given = {"beta_slow": slow, "beta_fast": slow + draw("beta_fast − beta_slow", (31, 0.5, 3))}
    draw.asked(
        impl.yarn_frequencies,
        draw("head_dim", EVEN),
        draw("factor", FACTORS),
        draw("original_max", (8192, 1, 3, 7, 16, 64, 200)),
        draw("base", (10_000.0, 500_000.0, 100.0, 1.5, 1.01)),
        **given,
    )
