"""What lesson 07 asks of rotary positions: frequencies, both layouts, longer contexts."""

import torch

from grader import accepts, dtypes, points, raises
from grader.course.doubles import Elsewhere
from grader.course.modes import default_dtype

FORBIDDEN = {}


def number(draw, low, high):
    """A whole number from low to high, both among them."""
    return low + int(draw.ints(high + 1 - low, 1))


def is_cast(answer, wide):
    """Whether at least 97 of 100 numbers are those of the wide answer, cast."""
    return bool((answer == wide.to(answer.dtype)).double().mean() > 0.97)


def turns(rope, x):
    """Whether a RoPE changes x at all: position 1 and later have to be turned."""
    return not torch.equal(rope(x), x)


def fresh_frequencies(draw, head_dim, base):
    """The frequencies before any scaling."""
    exponents = torch.arange(0, head_dim, 2, dtype=draw.float) / head_dim
    return (base ** -exponents).to(draw.device)


def test_frequencies(impl, draw):
    """Pair i turns by base^(−2i / head_dim) radians per position; base is 10,000 if not given.

    The answer is the logarithm of each: a straight line that starts at 0. With head_dim 8 it
    falls by a quarter of ln base from one pair to the next, and there are four pairs. They are
    float32, whatever torch's default dtype is: say dtype=torch.float32.
    """
    head_dim, base = 2 * number(draw, 5, 40), 1000.0 * number(draw, 2, 900)
    with default_dtype(torch.float64):
        dtype = str(impl.rope_frequencies(head_dim).dtype)
    return {"head_dim 8": impl.rope_frequencies(8).log(),
            f"head_dim {head_dim}": impl.rope_frequencies(head_dim).log(),
            f"base {base:,.0f}": impl.rope_frequencies(8, base=base).log(), "dtype, float64 the default": dtype}


@points(2)
@dtypes("float32", "bfloat16", "float16")
def test_half(impl, draw, dtype):
    """layout="half" turns feature i together with feature i + head_dim/2, in the dtype of x.

    A pair (a, b) becomes (a cos − b sin, a sin + b cos), and both go back to where they were
    taken from. The tables are float32, so the result has to be cast back.
    """
    return impl.RoPE(8, 16).to(draw.device)(draw(2, 3, 5, 8).to(dtype))


@dtypes("float16", "bfloat16")
def test_rounded_once(impl, draw, dtype):
    """A half-precision x is turned in the tables' float32, and only the result is rounded.

    Tables that are cast to the dtype of x, or products that are, round once more each. Let torch
    promote: half precision times float32 is float32. (Asked is whether at least 97 of 100 numbers
    are those of a float32 x, cast.)
    """
    answers, x = {}, draw(40, 12, 8).to(dtype)
    for layout in ("half", "interleaved"):
        rope = impl.RoPE(8, 16, layout=layout).to(draw.device)
        wide = rope(x.to(torch.promote_types(dtype, torch.float32)))
        answers[f"{layout}: is the wide one, cast"] = is_cast(rope(x), wide)
    return {**answers, "first row": impl.RoPE(8, 16).to(draw.device)(x[0, :1])}


def test_float64_x(impl, draw):
    """A float64 x keeps its digits, though the tables are float32.

    Compute in the wider of the two: torch does so by itself where nothing is cast. (Asked is whether
    a last digit that float32 does not have shows in the result.)
    """
    rope, x = impl.RoPE(8, 16).to(draw.device), (1 + draw.uniform(3, 8)).to(torch.float64)
    return {"a change of 1e-12 shows": bool((rope(x) != rope(x * (1 + 1e-12))).any()), "dtype": str(rope(x).dtype),
            "position 0": rope(x)[0]}


@points(2)
def test_second_call(impl, draw):
    """A call leaves nothing behind for the next, and eval mode and no_grad change nothing.

    Positions count for the call that they are given to. Where they are left out, rows stand at 0, 1,
    2 …, whatever the call before was told, and whatever sizes agree by chance.
    """
    rope, x = impl.RoPE(8, 32).to(draw.device), draw(4, 8)
    first = {"positions left out": rope(x), "given": rope(x, draw.ints(32, 4)), "left out again": rope(x),
             "longer": rope(draw(3, 3, 9, 8)), "as many heads as rows": rope(draw(2, 4, 4, 8)), "shorter": rope(x[1:])}
    rope.eval()
    with torch.no_grad():
        silent = {"under no_grad, left out": rope(x), "under no_grad, given": rope(x, draw.ints(32, 4))}
    x.requires_grad_()
    (rope(x, draw.ints(32, 4)) * draw(4, 8)).sum().backward()
    return {**first, **silent, "grad of x in eval mode": x.grad}


@points(2)
@dtypes("float32", "bfloat16", "float16")
def test_interleaved(impl, draw, dtype):
    """layout="interleaved" turns feature 2i together with feature 2i + 1, in the dtype of x.

    The arithmetic is that of "half"; only where the pairs are taken from, and put back to, is
    different.
    """
    return impl.RoPE(8, 16, layout="interleaved").to(draw.device)(draw(2, 3, 5, 8).to(dtype))


@points(2)
def test_positions(impl, draw):
    """positions says where each row of x stands; rows need not stand in order.

    Look the rows of the tables up by position. Here row 0 stands at position 7, and row 2 at 15,
    the last of a RoPE for 16 positions.
    """
    positions = torch.tensor([7, 2, 15, 2], device=draw.device)
    return impl.RoPE(8, 16).to(draw.device)(draw(3, 4, 8), positions)


def test_positions_per_sequence(impl, draw):
    """Each sequence of a batch may have positions of its own, shared by its heads.

    positions of shape (2, 1, 4) meet x of shape (2, 3, 4, 8): what is looked up has shape
    (2, 1, 4, 4), and broadcasting does the rest.
    """
    positions = torch.tensor([[[0, 1, 2, 3]], [[5, 6, 7, 11]]], device=draw.device)
    rope = impl.RoPE(8, 16).to(draw.device)
    return {"of each sequence": rope(draw(2, 3, 4, 8), positions),
            "of one, for a batch": rope(draw(2, 3, 4, 8), positions[1:]),
            "of each head too, int32": rope(draw(2, 3, 4, 8), draw.ints(16, 2, 3, 4).to(torch.int32))}


def test_scores_see_distance(impl, draw):
    """The score of a query and a key depends on how far apart they stand, not on where.

    The same query stands at 3, 13 and 43, the same key always 2 places before it, so that the
    three scores are one number. Are both turned the same way, by the same frequencies?
    """
    rope, q, k = impl.RoPE(8, 64).to(draw.device), draw(1, 8).expand(3, 8), draw(1, 8).expand(3, 8)
    at = torch.tensor([3, 13, 43], device=draw.device)
    return (rope(q, at) * rope(k, at - 2)).sum(-1)


def test_base(impl, draw):
    """RoPE passes its base on to rope_frequencies.

    Where no frequencies are given, they are those of this head_dim and this base.
    """
    return impl.RoPE(8, 16, base=500.0).to(draw.device)(draw(2, 12, 8))


def test_given_frequencies(impl, draw):
    """RoPE turns by the frequencies that it is given, and base is then of no account.

    These are what llama3_frequencies and yarn_frequencies return.
    """
    frequencies = draw.uniform(4)
    return impl.RoPE(8, 16, frequencies=frequencies).to(draw.device)(draw(2, 6, 8))


def test_attention_scale(impl, draw):
    """attention_scale multiplies cosines and sines, so that the whole result is scaled.

    Scale the two tables once, when they are made. Scores, which are products of two turned
    vectors, then grow by its square.
    """
    x = draw(2, 6, 8)
    return {f"attention_scale {scale}": impl.RoPE(8, 16, attention_scale=scale).to(draw.device)(x)
            for scale in (1.5, number(draw, 3, 14) / 16)}


def test_gradient(impl, draw):
    """The gradient that reaches x is turned back by the same angles.

    Build the result from x with plain arithmetic, outside of torch.no_grad().
    """
    x = draw(2, 5, 8).requires_grad_()
    (impl.RoPE(8, 16).to(draw.device)(x) * draw(2, 5, 8)).sum().backward()
    return x.grad


def test_cast_module(impl, draw):
    """Casting the module to half precision leaves the tables in float32.

    The check casts a RoPE, as a model is cast, and then turns a float32 x with it. `_apply`,
    which is given, restores buffers after a cast: are your tables buffers, made in float32?
    """
    x, at = draw(3, 8), torch.tensor([5, 40, 60], device=draw.device)
    return {"after .to(torch.bfloat16)": impl.RoPE(8, 64).to(draw.device).to(torch.bfloat16)(x, at),
            "after .half()": impl.RoPE(8, 64).to(draw.device).half()(x, at)}


@dtypes("bfloat16", "float16")
def test_far_positions(impl, draw, dtype):
    """Angles are computed in float32, however x is stored: position 2,047 is not 2,048.

    bfloat16 has 8 significant bits, so above 256 it skips whole positions.
    """
    at = torch.tensor([255, 259, 1027, 2045, 2047], device=draw.device)
    return impl.RoPE(16, 2048).to(draw.device)(draw(5, 16).to(dtype), at)


def test_precise_frequencies(impl, draw):
    """Tables have the precision of the frequencies, but at least float32.

    The given widen(frequencies) is that precise. Widen the frequencies before they meet the
    positions. The tables are kept in it too, and no wider.
    """
    def bits(rope):
        return sorted({torch.finfo(table.dtype).bits for table in rope.buffers()})

    near, far = (torch.tensor(at, device=draw.device) for at in ([7, 41], [77, 4001]))
    x = draw(2, 8)
    exact = draw.uniform(4).to(torch.float64)
    fine = impl.RoPE(8, 4096, frequencies=exact).to(draw.device)
    coarse = impl.RoPE(8, 4096, frequencies=exact.to(torch.bfloat16)).to(draw.device)
    return {"float64": fine(x.to(torch.float64), far), "bfloat16": coarse(x, near),
            "bits of a table's number": [bits(rope) for rope in (fine, coarse, impl.RoPE(8, 16))]}


def test_state_dict(impl, draw):
    """RoPE has no parameters and leaves nothing in the state dict.

    The tables follow from a few numbers. A checkpoint that held them could not be loaded for
    another length: register the buffers with persistent=False.
    """
    rope = impl.RoPE(8, 16)
    return {"state dict": list(rope.state_dict()),
            "parameters": [name for name, _ in rope.named_parameters()],
            "x is turned": turns(rope, draw(2, 5, 8).to("cpu")),
            "its second row": rope.to(draw.device)(draw(2, 8))}


def test_moves_with_the_module(impl, draw):
    """The tables go where the module is sent.

    A tensor that is assigned to self stays behind; one that is registered as a buffer goes along.
    """
    rope, x = impl.RoPE(8, 16), draw(2, 5, 8).to("cpu")
    turned, rows = turns(rope, x), 1 * rope(x)[0]
    rope.to("meta")
    tensors = [*rope.buffers(), *(v for v in vars(rope).values() if isinstance(v, torch.Tensor))]
    return {"all tensors moved": all(tensor.device.type == "meta" for tensor in tensors),
            "x is turned": turned, "turned before": rows.to(draw.device)}


def test_tables_device(impl, draw):
    """The tables are made on the device of the frequencies, which may be the meta device.

    A model is often made on the meta device, as shapes without numbers, and filled later. Make the
    positions on frequencies.device; where none are given, that is torch's default device.
    """
    with Elsewhere() as there:
        given = impl.RoPE(8, 16, frequencies=torch.ones(4, device=there.device))
        with there.device:
            own = impl.RoPE(8, 16)
        places = [sorted({table.device.type for table in rope.buffers()}) for rope in (given, own)]
    frequencies = draw.uniform(4)
    return {"of given frequencies, of its own": places,
            "turned": impl.RoPE(8, 16, frequencies=frequencies)(draw(3, 8))}


def test_head_dim(impl, draw):
    """RoPE keeps its head_dim as an attribute of that name.

    Attention reads rope.head_dim in lesson 09, to see whether it fits the heads.
    """
    return {f"RoPE({n}, 4)": impl.RoPE(n, 4).head_dim for n in (2, 2 * number(draw, 2, 20))}


def test_out_of_range(impl, draw):
    """A position below 0, or of max_seq_len or more, raises a ValueError that names positions.

    Compare before looking anything up: −1 would read the tables' last row without a word, and
    torch's own IndexError comes late, on a GPU as a crash. Every row of a batch counts. Where positions
    are left out, the last row of x stands at seq − 1.
    """
    n, x = number(draw, 9, 20), draw(3, 8)
    rope = impl.RoPE(8, n).to(draw.device)
    asked = {f"position {n} of {n}": n, f"position {n + 80}": n + number(draw, 60, 80), "position −1": -1}
    calls = {name: torch.tensor([3, at, 4], device=draw.device) for name, at in asked.items()}
    calls["in the second sequence"] = torch.tensor([[3, 1, 4], [2, n, 1]], device=draw.device)
    calls[f"{n + 1} rows, {n} positions"] = None
    return {**{name: raises(ValueError, lambda: rope(draw(2, 3, 8) if at is not None and at.ndim > 1 else
                                                     x if at is not None else draw(n + 1, 8), at),
                            names="positions") for name, at in calls.items()},
            "position 1 of 1": raises(ValueError, lambda: impl.RoPE(8, 1)(draw(1, 8), draw.ints(1, 1) + 1),
                                      names="positions")}


def test_full_length(impl, draw):
    """An x of exactly max_seq_len rows is taken, whatever its batch.

    Where positions are left out, the last row stands at seq − 1, and seq is the axis before the
    features: x.shape[-2].
    """
    n = number(draw, 9, 20)
    rope = impl.RoPE(8, n).to(draw.device)
    return {f"{n} rows, {n} positions": rope(draw(2, n, 8)),
            f"{n + 4} sequences of 3 rows": accepts(lambda: rope(draw(n + 4, 3, 8))),
            "1 row, 1 position": impl.RoPE(8, 1).to(draw.device)(draw(2, 1, 8))}


def test_wrong_width(impl, draw):
    """An x whose last axis is not head_dim raises a ValueError that names x.

    Two features would be stretched over all pairs by broadcasting, without a word.
    """
    rope = impl.RoPE(8, 16).to(draw.device)
    return {f"{width} features": raises(ValueError, lambda: rope(draw(3, width)), names="x")
            for width in (2, 16, (1, 4, 6, 10, 12)[number(draw, 0, 4)])}


def test_bad_arguments(impl, draw):
    """An odd head_dim, and other arguments that make no RoPE, raise a ValueError that names them.

    Features have to make pairs, a table has at least one row, there are two layouts, and one
    frequency per pair. Look at all of them before anything is made. NaN is not above 0, and not
    below it either: ask `not base > 0`.
    """
    odd, low, word = 2 * number(draw, 1, 9) + 1, -number(draw, 1, 9), ("split", "Half", "neox", "")[number(draw, 0, 3)]
    calls = {f"rope_frequencies, head_dim {odd}": ("head_dim", lambda: impl.rope_frequencies(odd)),
             f"RoPE, head_dim {odd}": ("head_dim", lambda: impl.RoPE(odd, 16)),
             f"RoPE, head_dim {2 * low}": ("head_dim", lambda: impl.RoPE(2 * low, 16)),
             "base 0": ("base", lambda: impl.rope_frequencies(8, base=0)),
             f"base {low}": ("base", lambda: impl.rope_frequencies(8, base=low)),
             "base NaN": ("base", lambda: impl.rope_frequencies(8, base=float("nan"))),
             "max_seq_len 0": ("max_seq_len", lambda: impl.RoPE(8, 0)),
             f"layout {word!r}": ("layout", lambda: impl.RoPE(8, 16, layout=word)),
             "frequencies for head_dim 16":
                 ("frequencies", lambda: impl.RoPE(8, 16, frequencies=draw.uniform(8))),
             "frequencies for head_dim 4":
                 ("frequencies", lambda: impl.RoPE(8, 16, frequencies=draw.uniform(2)))}
    said = {name: raises(ValueError, call, names=argument)
            for name, (argument, call) in calls.items()}
    return {**said, "good ones turn x": turns(impl.RoPE(8, 16), draw(2, 5, 8).to("cpu"))}


@points(2)
def test_reorder_rows(impl, draw):
    """interleaved_to_half moves, within each head, row 2i to i and row 2i + 1 to i + head_dim/2.

    A projection's rows are heads · head_dim. Name the three factors of that axis in an einops
    pattern: which head, which pair, which of the two.
    """
    return {"3 heads": impl.interleaved_to_half(draw(24, 5), heads=3),
            "as many heads as features": impl.interleaved_to_half(draw(16, 5), heads=4)}


def test_reorder_bias(impl, draw):
    """A bias, one number per row of the projection, is reordered as the rows are.

    In an einops pattern `...` stands for any number of further axes, none included.
    """
    return impl.interleaved_to_half(draw(24), heads=3)


def test_one_layouts_weights_in_the_other(impl, draw):
    """Weights made for "interleaved" give the same scores in "half" once both are reordered.

    q and k are reordered alike, so every product meets its partner again. Unconverted weights
    load without a word and give the scores of another model.
    """
    def scores(layout, *weights):
        rope = impl.RoPE(4, 8, layout=layout).to(draw.device)
        q, k = (rope((x @ w.T).reshape(6, 2, 4).transpose(0, 1)) for w in weights)
        return q @ k.transpose(1, 2)

    x, q_proj, k_proj = draw(6, 5), draw(8, 5), draw(8, 5)
    moved = [impl.interleaved_to_half(w, heads=2) for w in (q_proj, k_proj)]
    return {"scores of interleaved": scores("interleaved", q_proj, k_proj),
            "scores of half, reordered": scores("half", *moved)}


@points(2)
def test_llama3_frequencies(impl, draw):
    """Llama 3: pairs that turn often in the trained length stay, rare ones are divided by factor.

    The answer is new / old: 1 for pairs with `high` turns or more (original_max · θ / 2π), 1/8 for
    those with `low` or fewer. Between, s = (turns − low) / (high − low) is the share of the old.
    """
    old, factor = fresh_frequencies(draw, 128, 500_000.0), number(draw, 2, 9) + 0.25
    ratio = impl.llama3_frequencies(old, 8.0, 1.0, 4.0, 8192) / old
    low, high, trained = number(draw, 1, 3) / 4, number(draw, 9, 30) / 2, number(draw, 400, 900)
    return {"fast pairs": ratio[:29], "pairs between": ratio[29:35], "slow pairs": ratio[36:],
            f"factor {factor}": impl.llama3_frequencies(old, factor, 1.0, 4.0, 8192) / old,
            f"low {low}, high {high}, original_max {trained}": impl.llama3_frequencies(
                old, 3, low, high, trained) / old,
            "in float64": impl.llama3_frequencies(old.double() * (1 + 1e-8), factor, 1.0, 4.0, 8192) / old.double()}


@points(2)
def test_yarn_frequencies(impl, draw):
    """YaRN: fast pairs stay, slow ones are divided by factor, between them runs a straight line.

    The answer is new / old. Unlike Llama 3's, the blend is linear in the *index* of the pair,
    from ⌊i(beta_fast)⌋ to ⌈i(beta_slow)⌉.
    """
    factors = number(draw, 2, 9) + 0.25, number(draw, 10, 30) + 0.5
    cases = {"base 10,000": (64, 4.0, 4096), "base 150,000": (64, factors[1], 4096, 150_000.0),
             "base 20,000": (64, factors[0], 2048 + 64 * number(draw, 0, 20), 20_000.0, 16, 2)}
    old = {name: fresh_frequencies(draw, 64, float(name[5:].replace(",", ""))) for name in cases}
    return {name: impl.yarn_frequencies(*case)[0].to(draw.device) / old[name]
            for name, case in cases.items()}


def test_yarn_ends(impl, draw):
    """YaRN's start is at least 0, its end at most head_dim − 1, and end lies above start.

    Where all pairs turn fast, start lies past the last of them; where all turn slowly, the two
    limits meet at 0, and end is start + 0.001. The answer is new / old.
    """
    factor = number(draw, 9, 20) / 4
    cases = {"all fast": (64, factor, 10**6, 10), "all slow": (8, factor, 6, 10_000.0),
             "end past the last": (64, factor, 1741, 10)}
    return {name: impl.yarn_frequencies(*case)[0].to(draw.device)
            / fresh_frequencies(draw, case[0], case[3]) for name, case in cases.items()}


def test_yarn_attention_scale(impl, draw):
    """YaRN's attention scale is 0.1 ln(factor) + 1, and it is the second thing returned.

    It is a number, the same for all pairs; RoPE takes it as attention_scale.
    """
    factors = 1, 1 + number(draw, 1, 7) / 16, number(draw, 9, 40) / 4, 40
    return {f"factor {factor}": impl.yarn_frequencies(64, factor, 4096)[1] for factor in factors}


def test_bad_scaling(impl, draw):
    """Arguments that make no sense, such as a factor below 1, raise a ValueError that names them.

    Look at the arguments before anything is computed: limits in the wrong order, a trained length
    below 1, heads that do not cut the rows into heads of even size.
    """
    old, weight = fresh_frequencies(draw, 8, 100.0), draw(24, 3)
    small, few = number(draw, 1, 15) / 16, -number(draw, 1, 4)
    calls = {f"llama3, factor {small}": ("factor", lambda: impl.llama3_frequencies(old, small, 1, 4, 64)),
             "llama3, factor NaN": ("factor", lambda: impl.llama3_frequencies(old, float("nan"), 1, 4, 64)),
             "llama3, high = low": ("high", lambda: impl.llama3_frequencies(old, 2, 4, 4, 64)),
             "llama3, original_max 0":
                 ("original_max", lambda: impl.llama3_frequencies(old, 2, 1, 4, 0)),
             f"yarn, factor {small}": ("factor", lambda: impl.yarn_frequencies(8, small, 64)),
             "yarn, original_max 0": ("original_max", lambda: impl.yarn_frequencies(8, 2, 0)),
             "yarn, base 1": ("base", lambda: impl.yarn_frequencies(8, 2, 64, base=1)),
             "yarn, limits 1 and 32": ("beta_fast", lambda: impl.yarn_frequencies(
                 8, 2, 64, beta_fast=1, beta_slow=32)),
             "5 heads": ("heads", lambda: impl.interleaved_to_half(weight, 5)),
             "8 heads of size 3": ("heads", lambda: impl.interleaved_to_half(weight, 8)),
             f"{few} heads": ("heads", lambda: impl.interleaved_to_half(weight, few)),
             "0 heads": ("heads", lambda: impl.interleaved_to_half(weight, 0))}
    return {name: raises(ValueError, call, names=argument)
            for name, (argument, call) in calls.items()}
