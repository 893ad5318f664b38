"""Lesson 07 on other shapes, dtypes and extremes."""

import torch

from grader import accepts, dtypes, points, raises

BOTH = ("half", "interleaved")


def fresh_frequencies(draw, head_dim, base):
    """The frequencies before any scaling."""
    exponents = torch.arange(0, head_dim, 2, dtype=draw.float) / head_dim
    return (base ** -exponents).to(draw.device)


@points(2)
@dtypes("float32", "bfloat16", "float16")
def test_batch_ranks(impl, draw, dtype):
    """x may have any number of batch axes, none included, in either layout."""
    return {f"{layout}, {len(batch)} batch axes":
            impl.RoPE(6, 9, layout=layout).to(draw.device)(draw(*batch, 4, 6).to(dtype))
            for layout in BOTH for batch in ((), (3,), (2, 1, 3))}


def test_one_row_far_along(impl, draw):
    """A single row, as in decoding, stands where positions says, up to the tables' last."""
    at = torch.tensor([31], device=draw.device)
    return [impl.RoPE(8, 32, layout=layout).to(draw.device)(draw(2, 1, 8), at) for layout in BOTH]


def test_positions_broadcast(impl, draw):
    """positions of one sequence serve a whole batch, with axes of size 1 or without them."""
    rope, x, at = impl.RoPE(8, 32).to(draw.device), draw(2, 3, 4, 8), torch.tensor([3, 1, 4, 15])
    at = at.to(draw.device)
    return {"(4,)": rope(x, at), "(1, 4)": rope(x, at[None]), "(1, 1, 4)": rope(x, at[None, None])}


def test_positions_for_every_head(impl, draw):
    """positions may differ along every batch axis, and be int32."""
    at = draw.ints(32, 2, 3, 4).to(torch.int32)
    return impl.RoPE(8, 32, layout="interleaved").to(draw.device)(draw(2, 3, 4, 8), at)


def test_left_padding(impl, draw):
    """Sequences that start at different rows of a batch are turned as if each stood alone."""
    at = torch.tensor([[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]], device=draw.device)
    return impl.RoPE(8, 16).to(draw.device)(draw(2, 5, 8), at)


def test_non_contiguous(impl, draw):
    """x whose heads were moved by a transpose, so not contiguous, gives the same numbers."""
    x = draw(2, 5, 3, 8).transpose(1, 2)
    return [impl.RoPE(8, 16, layout=layout).to(draw.device)(x) for layout in BOTH]


@dtypes("float32", "float16")
def test_one_pair(impl, draw, dtype):
    """head_dim 2 is one pair, which turns by one radian per position in either layout."""
    return [impl.RoPE(2, 8, layout=layout).to(draw.device)(draw(5, 2).to(dtype)) for layout in BOTH]


def test_gradient_interleaved(impl, draw):
    """The gradient reaches x through explicit positions and the interleaved layout too."""
    x, at = draw(3, 8).requires_grad_(), torch.tensor([9, 2, 4], device=draw.device)
    (impl.RoPE(8, 16, layout="interleaved").to(draw.device)(x, at) * draw(3, 8)).sum().backward()
    return x.grad


def test_float64(impl, draw):
    """float64 stays float64, in either layout and through explicit positions."""
    frequencies, x = draw.uniform(4).to(torch.float64), draw(2, 5, 8).to(torch.float64)
    at = torch.tensor([4, 0, 11, 2, 7], device=draw.device)
    ropes = [impl.RoPE(8, 16, layout=layout, frequencies=frequencies) for layout in BOTH]
    return [rope.to(draw.device)(x, at) for rope in ropes]


def test_double_then_half(impl, draw):
    """Tables outlive several casts in a row."""
    rope = impl.RoPE(8, 64).to(draw.device).double().to(torch.float16).float()
    return rope(draw(3, 8), torch.tensor([11, 29, 63], device=draw.device))


def test_base_far(impl, draw):
    """A base given to RoPE as an int counts, for both layouts."""
    return [impl.RoPE(8, 64, base=50, layout=layout).to(draw.device)(draw(30, 8)) for layout in BOTH]


def test_scaled_and_turned(impl, draw):
    """Given frequencies and an attention scale work together, in the interleaved layout too."""
    frequencies, x = draw.uniform(4), draw(2, 6, 8)
    ropes = [impl.RoPE(8, 16, layout=layout, frequencies=frequencies, attention_scale=2)
             for layout in BOTH]
    return [rope.to(draw.device)(x) for rope in ropes]


@dtypes("float32", "float16")
def test_reorder_heads(impl, draw, dtype):
    """Rows stay within their head, for one head as for many, in the dtype of the weight."""
    return {f"{heads} heads": impl.interleaved_to_half(draw(24, 24).to(dtype), heads)
            for heads in (1, 2, 6)}


def test_reorder_gradient(impl, draw):
    """The gradient of a reordered weight goes back to the row it came from."""
    weight = draw(8, 3).requires_grad_()
    (impl.interleaved_to_half(weight, 2) * draw(8, 3)).sum().backward()
    return weight.grad


def test_llama3_other_numbers(impl, draw):
    """Other factors and limits, as Llama 3.2 has them or as nobody has."""
    small, large = fresh_frequencies(draw, 32, 10_000.0), fresh_frequencies(draw, 64, 500_000.0)
    return {"factor 32": impl.llama3_frequencies(large, 32, 1, 4, 8192) / large,
            "factor 3, low 2, high 40": impl.llama3_frequencies(small, 3, 2, 40, 500) / small}


def test_yarn_other_numbers(impl, draw):
    """Other bases, limits and lengths, and ends that are cut off at the first pair."""
    cases = {"base 500": (32, 16, 512, 500), "base 10⁶, factor 4": (128, 4, 32768, 1e6),
             "limits 16 and 2": (64, 8, 2048, 10_000.0, 16, 2), "short": (16, 2, 100)}
    return {name: impl.yarn_frequencies(*case)[0].to(draw.device) / fresh_frequencies(
        draw, case[0], case[3] if len(case) > 3 else 10_000.0) for name, case in cases.items()}


def test_bad_limits(impl, draw):
    """Limits of 0 or less, a RoPE of no features or no rows and negative heads are refused."""
    return {"beta_slow": raises(ValueError, lambda: impl.yarn_frequencies(8, 2, 64, beta_slow=0),
                                names="beta_slow"),
            "beta_fast": raises(ValueError, lambda: impl.yarn_frequencies(
                8, 2, 64, beta_fast=2, beta_slow=2), names="beta_fast"),
            "head_dim": [raises(ValueError, call, names="head_dim") for call in
                         (lambda: impl.rope_frequencies(0), lambda: impl.RoPE(0, 4),
                          lambda: impl.RoPE(-2, 4))],
            "max_seq_len": raises(ValueError, lambda: impl.RoPE(8, -1), names="max_seq_len"),
            "frequencies": raises(ValueError, lambda: impl.RoPE(8, 4, frequencies=draw.uniform(1)),
                                  names="frequencies"),
            "heads": raises(ValueError, lambda: impl.interleaved_to_half(draw(24), -2),
                            names="heads"),
            "turned": impl.RoPE(8, 16).to(draw.device)(draw(3, 8))}


def test_smallest_arguments(impl, draw):
    """One pair, one position, one head, a factor of 1 and a trained length of 1 are taken."""
    calls = {"RoPE": lambda: impl.RoPE(2, 1), "frequencies": lambda: impl.rope_frequencies(2),
             "base below 1": lambda: impl.rope_frequencies(4, base=0.5),
             "llama3": lambda: impl.llama3_frequencies(draw.uniform(4), 1, 1, 2, 1),
             "yarn": lambda: impl.yarn_frequencies(2, 1, 1, base=1.5, beta_fast=1, beta_slow=0.5),
             "one head of one pair": lambda: impl.interleaved_to_half(draw(2, 3), 1)}
    return {name: accepts(call) for name, call in calls.items()}


def test_nothing_is_kept(impl, draw):
    """A call leaves the module as it was: the same rows are turned alike before and after."""
    rope, x = impl.RoPE(8, 32).to(draw.device), draw(4, 8)
    first = rope(x)
    rope(draw(4, 8), torch.tensor([9, 1, 20, 3], device=draw.device))
    return [first, rope(x)]


def test_part_of_a_layout(impl, draw):
    """A layout is named in full: a part of its name, or nothing, is refused."""
    refused = [raises(ValueError, lambda name=name: impl.RoPE(4, 8, layout=name), "layout")
               for name in ("inter", "", "hal")]
    rope = impl.RoPE(4, 8, layout="interleaved").to(draw.device)
    return refused, rope(draw(3, 4))
