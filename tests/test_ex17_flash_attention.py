"""What lesson 17 asks of attention in tiles: forward, backward, in pieces, and as a Triton kernel."""

import torch

from grader import dtypes, needs, points, raises
from grader.course.doubles import Operations

FORBIDDEN = dict.fromkeys(
    ("flash_attention", "flash_attention_backward", "FlashAttention", "split_decode", "flash_tiles"), {
        "torch.nn.functional.scaled_dot_product_attention",
        "torch.nn.functional.multi_head_attention_forward", "torch.nn.MultiheadAttention",
        "torch.nn.attention.flex_attention.flex_attention", "torch.nn.attention.varlen.varlen_attn"})


def _qkv(draw, q_len, k_len, heads=2, kv_heads=2, batch=2, head_dim=4, value_dim=4, scale=1.0):
    """Queries, keys and values."""
    return (draw(batch, heads, q_len, head_dim, scale=scale), draw(batch, kv_heads, k_len, head_dim),
            draw(batch, kv_heads, k_len, value_dim))


def _part(q, k, v):
    """(out, lse) of attention over these keys, all scores at once."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


def _coarse(x):
    """x in eighths: scores of such q and k have no rounding error, in float32 either."""
    return (8 * x).round() / 8


def _as_rows(*tensors):
    """Each as one row: a query that sees few keys has next to no gradient of its own, and rounding on top of it."""
    return [x.flatten() for x in tensors]


def _size(draw, low, high):
    """A size that nobody knows before it is drawn."""
    return low + int(draw.ints(high - low))


def _wide(x):
    """Half precision as float32, which changes no number."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def _forward(draw, q, k, v, causal=False):
    """out and lse for a backward pass, computed here, and a grad_out."""
    groups, (q_len, k_len) = q.shape[-3] // k.shape[-3], (q.shape[-2], k.shape[-2])
    scores = q @ k.repeat_interleave(groups, -3).mT / q.shape[-1] ** 0.5
    if causal:
        seen = torch.ones(q_len, k_len, dtype=torch.bool, device=q.device).tril(k_len - q_len)
        scores = scores.masked_fill(~seen, -torch.inf)
    out = scores.softmax(-1).nan_to_num(0) @ v.repeat_interleave(groups, -3)
    return out, scores.logsumexp(-1), draw(*out.shape).to(q.dtype)


# -- merge

@points(2)
def test_merge(impl, draw):
    """merge weighs each part by its share of the sum of e^score: e^(lse1 − lse) and e^(lse2 − lse).

    A part over five keys and a part over two are no equals, and softmax has divided each by its own sum. lse1 and
    lse2 are the logarithms of these sums. The logarithm of the sum of both is torch.logaddexp(lse1, lse2).
    """
    q, k, v = _qkv(draw, 3, 7)
    out, lse = impl.merge(*_part(q, k[..., :5, :], v[..., :5, :]), *_part(q, k[..., 5:, :], v[..., 5:, :]))
    return {"out": out, "lse": lse}


def test_merge_in_any_order(impl, draw):
    """Parts may be merged in any order: (a, b), then c; or a, then (b, c); or c first.

    That holds if the lse that comes back is that of all keys of both parts.
    """
    q, k, v = _qkv(draw, 2, 9, scale=3.0)
    a, b, c = (_part(q, k[..., keys, :], v[..., keys, :]) for keys in (slice(0, 2), slice(2, 6), slice(6, 9)))
    return {"(a, b), c": list(impl.merge(*impl.merge(*a, *b), *c)),
            "a, (b, c)": list(impl.merge(*a, *impl.merge(*b, *c))),
            "c, (b, a)": list(impl.merge(*c, *impl.merge(*b, *a)))}


@points(2)
def test_merge_with_an_empty_part(impl, draw):
    """A part that saw no key, zeros and −∞, changes nothing; two of them give zeros and −∞. No NaN.

    −∞ − (−∞) is NaN. Where lse is −∞ there is nothing to weigh: subtract 0 there instead.
    """
    q, k, v = _qkv(draw, 3, 5)
    full = _part(q, k, v)
    nothing = torch.zeros_like(full[0]), torch.full_like(full[1], -torch.inf)
    return {"first": list(impl.merge(*nothing, *full)), "second": list(impl.merge(*full, *nothing)),
            "both": list(impl.merge(*nothing, *nothing))}


def test_merge_large(impl, draw):
    """lse may be far from 0: e^110 is past the largest float32, and e^−110 is 0.

    Only differences of lse may go into e^…, and never above 0.
    """
    out1, out2, near = draw(2, 3, 4), draw(2, 3, 4), _coarse(draw(2, 3))
    return {f"{at:+}": list(impl.merge(out1, at + near, out2, at - near)) for at in (110, -110)} | {
        "far apart": list(impl.merge(out1, 400 + near, out2, near - 400))}


@dtypes("bfloat16", "float16")
def test_merge_in_half_precision(impl, draw, dtype):
    """out comes in the dtype of out1, computed in at least float32; lse stays as wide as it was.

    The weights are as wide as lse. Multiply first, cast the sum: then it is, to the last bit, what float32 would give,
    rounded once.
    """
    out1, out2 = draw(2, 3, 4).to(dtype), draw(2, 3, 4).to(dtype)
    lse1, lse2 = (draw(2, 3).to(dtype).to(draw.float) for _ in range(2))
    out, lse = impl.merge(out1, lse1, out2, lse2)
    wide = impl.merge(_wide(out1), lse1, _wide(out2), lse2)[0]
    return {"out": out, "lse": lse, "rounded once": torch.equal(out, wide.to(dtype)),
            "the second part is wider": impl.merge(out1, lse1, _wide(out2), lse2)[0],
            "the first part is wider": impl.merge(_wide(out1), lse1, out2, lse2)[0]}


# -- forward

@points(3)
@dtypes("float32", "float64")
def test_forward(impl, draw, dtype):
    """flash_attention gives softmax(q kᵀ / √head_dim) v, and the logarithm of the sum of e^score.

    lse is the maximum plus the logarithm of the sum: what was subtracted from the scores comes back. What came in
    float64 stays float64 throughout.
    """
    q, k, v = (x.to(dtype) for x in _qkv(draw, 8, 12))
    out, lse = impl.flash_attention(q, k, v, block_q=4, block_k=4)
    return {"out": out, "lse": lse}


@points(2)
def test_forward_any_lengths(impl, draw):
    """Lengths need not be multiples of the blocks, nor as long as one; the default block is 64.

    The last tile of a row or of a column is smaller, and counts: there are ⌈length / block⌉ of them, where
    length // block would drop it. Queries are counted by q_len, keys by k_len. If the last tile were padded, the
    padding would need to weigh 0.
    """
    n, m = _size(draw, 9, 14), _size(draw, 14, 21)
    said = {}
    for q_len, k_len, block_q, block_k in ((n, m, 4, 8), (m, n, 8, 5), (1, 7, 4, 3), (5, 1, 2, 4), (4, 6, 1, 1)):
        said[f"{q_len} queries, {k_len} keys, blocks {block_q} and {block_k}"] = list(impl.flash_attention(
            *_qkv(draw, q_len, k_len, batch=1), block_q=block_q, block_k=block_k))
    return said | {"default blocks": list(impl.flash_attention(*_qkv(draw, 66, 65, batch=1)))}


def test_forward_value_dim(impl, draw):
    """Values may be wider or narrower than queries and keys: out is as wide as v, and the scale is that of head_dim.

    Make room for out by the last axis of v. q.shape[-1] is head_dim, of which the root is taken.
    """
    return {f"head_dim {head_dim}, value_dim {value_dim}": list(impl.flash_attention(
                *_qkv(draw, 5, 6, head_dim=head_dim, value_dim=value_dim), block_q=2, block_k=4))
            for head_dim, value_dim in ((4, 3), (3, _size(draw, 5, 9)))}


@points(3)
def test_forward_causal(impl, draw):
    """With causal=True a query sees the keys up to its own position; the queries are the last of the keys.

    Query i stands at position k_len − q_len + i. On the diagonal a tile is partly hidden.
    """
    n = _size(draw, 9, 14)
    said = {}
    for q_len, k_len, block_q, block_k in ((n, n, 4, 4), (n, n, 8, 2), (n, n, 2, 8), (3, n, 2, 4), (1, n, 4, 4)):
        said[f"{q_len} queries, {k_len} keys, blocks {block_q} and {block_k}"] = list(impl.flash_attention(
            *_qkv(draw, q_len, k_len, batch=1), causal=True, block_q=block_q, block_k=block_k))
    return said


@points(2)
def test_forward_rising_scores(impl, draw):
    """When a tile brings a larger maximum, what was summed with the old one shrinks by e^(old − new).

    That is both the sum and the mixed values. The scores here rise by hundreds from tile to tile, or fall.
    """
    q, k, v = _qkv(draw, 3, 8, head_dim=3)
    q, steps = torch.cat([q[..., :2], q.new_ones(*q.shape[:-1], 1)], -1), torch.arange(8, device=q.device) * 100.0
    rising = torch.cat([k[..., :2], steps.expand(*k.shape[:-1]).unsqueeze(-1)], -1)
    slowly = torch.cat([k[..., :2], steps.expand(*k.shape[:-1]).unsqueeze(-1) / 100], -1)
    return {name: list(impl.flash_attention(q, keys, v, block_q=2, block_k=2))
            for name, keys in (("fast", rising), ("slowly", slowly), ("falling", slowly.flip(-2)))}


@points(2)
def test_forward_scores_far_below_zero(impl, draw):
    """Scores near −300 are as good as others: the running maximum starts at −∞, not at 0.

    From 0, every e^(score − maximum) would be 0, and nothing divided by nothing is NaN.
    """
    q, k, v = _qkv(draw, 3, 6)
    return list(impl.flash_attention(_coarse(q) + 12, _coarse(k) - 12, v, block_q=2, block_k=4))


@points(2)
def test_forward_queries_that_see_nothing(impl, draw):
    """A query that sees no key gives zeros and an lse of −∞: no NaN.

    With causal=True and more queries than keys, the first ones stand before every key. Their maximum stays −∞, and
    −∞ − (−∞) is NaN: subtract 0 instead. Their sum is 0: divide by 1 instead.
    """
    said = {}
    for q_len, k_len, block_q, block_k in ((7, 3, 2, 2), (7, 3, 4, 2), (5, 2, 8, 8)):
        said[f"{q_len} queries, {k_len} keys, blocks {block_q} and {block_k}"] = list(impl.flash_attention(
            *_qkv(draw, q_len, k_len, batch=1), causal=True, block_q=block_q, block_k=block_k))
    return said | {"no keys": list(impl.flash_attention(*_qkv(draw, 2, 0)))}


@points(2)
def test_forward_grouped_heads(impl, draw):
    """heads / kv_heads query heads in a row share k and v: query head h reads key head h // groups.

    As grouped_attention in lesson 10.
    """
    return {f"6 heads, {n} kv_heads": list(impl.flash_attention(
                *_qkv(draw, 5, 6, heads=6, kv_heads=n), causal=True, block_q=2, block_k=4)) for n in (6, 3, 2, 1)}


@dtypes("bfloat16", "float16")
def test_forward_in_half_precision(impl, draw, dtype):
    """In half precision out has the dtype of q and lse is float32; scores past 65,504 do no harm.

    Widen a tile of q, k and v before it is multiplied, and leave its weights wide when they meet the values; add up in
    float32; cast the result once. Then it is, to the last bit, what float32 gives, rounded. q, k and v may differ in
    dtype.
    """
    q, k, v = (x.to(dtype) for x in _qkv(draw, 5, 9, head_dim=6))
    out, lse = impl.flash_attention(q, k, v, block_q=2, block_k=4)
    wide = impl.flash_attention(*map(_wide, (q, k, v)), block_q=2, block_k=4)
    said = {"out and lse": [out, lse], "rounded once": torch.equal(out, wide[0].to(dtype)),
            "lse of wide scores": torch.equal(lse, wide[1]),
            "k is float32": impl.flash_attention(q, _wide(k), v, block_q=2, block_k=4)[0],
            "q is float32": impl.flash_attention(_wide(q), k, v, block_q=2, block_k=4)[0]}
    q, k = 256 * _coarse(q), 256 * _coarse(k)       # of such scores the largest is the same for everyone
    return said | {"large scores": impl.flash_attention(q, k, v, block_q=2, block_k=4)[0].flatten(-2)}


@points(3)
def test_forward_makes_no_square(impl, draw):
    """No tensor as large as q · k is ever made: counted, operation by operation.

    128 queries and 128 keys have 16,384 scores; tiles of 16 have 256. A mask of all queries and keys is such a
    tensor too: make it for a tile. Nor does a tile of queries meet all keys at once, or a tile of keys all queries:
    a tile is block_q times block_k.
    """
    said, n, long = {}, _size(draw, 120, 136), _size(draw, 480, 520)
    for causal in (False, True):
        with Operations() as counted:
            impl.flash_attention(*_qkv(draw, n, n, 1, 1, 1), causal, 16, 16)
        said[f"made a tensor of {n} · {n} numbers, causal={causal}"] = counted.largest >= n * n
    for q_len, k_len in ((64, long), (long, 64)):
        with Operations() as counted:
            impl.flash_attention(*_qkv(draw, q_len, k_len, 1, 1, 1), False, 32, 32)
        said[f"{q_len} queries, {k_len} keys, blocks of 32, at most made of"] = (
            "all queries and keys" if counted.largest >= 64 * long else
            f"32 of the one and all {long} of the other" if counted.largest >= 32 * long else "a tile")
    return said


@points(2)
def test_forward_skips_the_future(impl, draw):
    """With causal=True, tiles that lie wholly in the future of their queries are not computed.

    Of 8 · 8 tiles 36 are needed. The first key of a needed tile is not behind the last query of the tile.
    """
    work, n = [], 8 * _size(draw, 7, 12)
    for causal in (False, True):
        with Operations() as counted:
            impl.flash_attention(*_qkv(draw, n, n, 1, 1, 1), causal, 8, 8)
        work.append(counted.multiply_adds)
    return {f"{n} tokens, at most 0.6 of the work": work[1] <= 0.6 * work[0],
            "at most 0.8 of it": work[1] <= 0.8 * work[0], "all of it without causal": work[0] >= n * n * 8}


def test_forward_bad_arguments(impl, draw):
    """kv_heads that does not divide heads, and blocks below 1, raise a ValueError that names them.

    _tiles_must_fit, which is given, asks for that. Call it first.
    """
    (q, k, v), bad = _qkv(draw, 3, 4, heads=1 + 2 * _size(draw, 1, 4)), -_size(draw, 1, 9)
    return {f"{q.shape[1]} heads, 2 kv_heads": raises(ValueError, lambda: impl.flash_attention(q, k, v), "kv_heads"),
            **{f"{name} {block}": raises(ValueError, lambda: impl.flash_attention(k, k, v, **{name: block}), names=name)
               for name in ("block_q", "block_k") for block in (0, bad)}}


# -- backward

@points(3)
@dtypes("float32", "float64")
def test_backward(impl, draw, dtype):
    """flash_attention_backward makes the weights of each tile again, and gives grad_q, grad_k and grad_v.

    P = e^(score − lse), since lse holds the maximum and the sum of the row. dS = P ∘ (grad_out vᵀ − D), where D is the
    row's sum of grad_out ∘ out. Each of grad_q and grad_k has one factor 1 / √head_dim.
    """
    q, k, v = (x.to(dtype) for x in _qkv(draw, 8, 12))
    grads = impl.flash_attention_backward(q, k, v, *_forward(draw, q, k, v), block_q=4, block_k=4)
    return dict(zip(("grad_q", "grad_k", "grad_v"), grads))


@points(2)
def test_backward_causal_any_lengths(impl, draw):
    """The backward pass hides the same keys as the forward pass, for any lengths and blocks.

    A hidden pair has the weight 0 in every one of the three gradients. The last tile of queries or keys may be
    smaller, and values may be narrower than keys.
    """
    n = _size(draw, 9, 14)
    said = {}
    for q_len, k_len, block_q, block_k in ((n, n, 4, 4), (n, n, 8, 3), (n, n, 2, 8), (4, n, 3, 4), (1, 1, 4, 4)):
        q, k, v = _qkv(draw, q_len, k_len, batch=1, value_dim=3)
        said[f"{q_len} queries, {k_len} keys, blocks {block_q} and {block_k}"] = _as_rows(
            *impl.flash_attention_backward(q, k, v, *_forward(draw, q, k, v, True), True, block_q, block_k))
    return said


@points(2)
def test_backward_grouped_heads(impl, draw):
    """A key head that several query heads read gets the sum of their gradients, and so does its value head.

    grad_k and grad_v have the shapes of k and v.
    """
    said = {}
    for n in (6, 2, 1):
        q, k, v = _qkv(draw, 3, 5, heads=6, kv_heads=n)
        said[f"6 heads, {n} kv_heads"] = list(impl.flash_attention_backward(
            q, k, v, *_forward(draw, q, k, v), block_q=2, block_k=2))
    return said


def test_backward_queries_that_see_nothing(impl, draw):
    """A query that sees no key gets a gradient of zeros, and changes no other: no NaN.

    Its lse is −∞. Set the weights of hidden keys to 0 after the exponential; or put 0 in the place of that lse.
    """
    q, k, v = _qkv(draw, 7, 3)
    given = _forward(draw, q, k, v, True)
    said = {f"blocks of {block}": _as_rows(*impl.flash_attention_backward(q, k, v, *given, True, block, 2))
            for block in (2, 3, 8)}
    out, grad = torch.zeros_like(q), draw(*q.shape)
    lse = torch.full_like(q[..., 0], -torch.inf)
    return said | {"no keys": list(impl.flash_attention_backward(q, k[..., :0, :], v[..., :0, :], out, lse, grad))}


@dtypes("bfloat16", "float16")
def test_backward_in_half_precision(impl, draw, dtype):
    """Gradients add up in float32, over all tiles, and come back in the dtypes of q, k and v, which may differ.

    Widen the tiles before they are multiplied, those of out and grad_out for D too, and leave P wide. Cast once, at the
    end: to the last bit it is what float32 gives, rounded. Each gradient has the dtype of what it is the gradient of.
    """
    q, k, v = (x.to(dtype) for x in _qkv(draw, 6, 40, head_dim=6, value_dim=6))
    out, lse, grad_out = _forward(draw, *map(_wide, (q, k, v)))
    out = out.to(draw.exact or dtype).to(dtype)     # D comes from out as it was rounded, in float64 too
    grad_out = grad_out.to(dtype)
    grads = impl.flash_attention_backward(q, k, v, out, lse, grad_out, False, 2, 2)
    wide = impl.flash_attention_backward(*map(_wide, (q, k, v, out)), lse, _wide(grad_out), False, 2, 2)
    once = {f"{name}, rounded once": torch.equal(mine, right.to(dtype))
            for name, mine, right in zip(("grad_q", "grad_k", "grad_v"), grads, wide)}
    mixed = [impl.flash_attention_backward(*qkv, out, lse, grad_out, False, 2, 2)
             for qkv in ((q, _wide(k), v), (_wide(q), k, v), (q, k, _wide(v)))]
    return {"gradients": _as_rows(*grads), **once, **{f"{name} is float32": _as_rows(*grads)
                                                      for name, grads in zip("kqv", mixed)}}


@dtypes("bfloat16")
def test_backward_adds_up_wide(impl, draw, dtype):
    """Where 600 tiles of queries add to the gradient of a key, the sum is rounded once, at the end.

    bfloat16 has 8 bits: to a sum of 256 it cannot add 1. Collect the gradients in float32.
    """
    q, k, v = (x.to(dtype) for x in _qkv(draw, 600, 2, 1, 1, 1, head_dim=2, value_dim=2))
    out, lse, _ = _forward(draw, q.float(), k.float(), v.float())
    pull = draw.uniform(*out.shape) + 0.5
    return impl.flash_attention_backward(q, k, v, out.to(dtype), lse, pull.to(dtype), False, 1, 2)[2]


@points(3)
def test_backward_makes_no_square(impl, draw):
    """Nor does the backward pass make a tensor as large as q · k, or compute tiles in the future.

    With tiles of 8, 64 queries and 64 keys take at most 64 numbers at a time, and causal 36 of 64 tiles.
    """
    said, work, n = {}, [], 8 * _size(draw, 7, 12)
    for causal in (False, True):
        q, k, v = _qkv(draw, n, n, 1, 1, 1)
        given = _forward(draw, q, k, v, causal)
        with Operations() as counted:
            impl.flash_attention_backward(q, k, v, *given, causal, 8, 8)
        said[f"made a tensor of {n} · {n} numbers, causal={causal}"] = counted.largest >= n * n
        work.append(counted.multiply_adds)
    return said | {"at most 0.6 of the work": work[1] <= 0.6 * work[0], "at most 0.8 of it": work[1] <= 0.8 * work[0]}


# -- the autograd function

@points(3)
def test_function(impl, draw):
    """FlashAttention.apply(q, k, v, causal, block_q, block_k) gives out, and its backward pass the three gradients.

    backward returns a gradient for each argument of forward, in order, and None for those that are no tensors. Two
    layers go forward before the first goes backward: what a pass needs is kept on its own ctx.
    """
    said, passes = {}, []
    for causal in (False, True):
        leaves = [x.requires_grad_() for x in _qkv(draw, 7, 9, heads=4, batch=1)]
        passes.append((leaves, impl.FlashAttention.apply(*leaves, causal, 2, 4)))
    for causal, (leaves, out) in zip((False, True), passes):
        (out * draw(*out.shape)).sum().backward()
        said[f"causal={causal}"] = [out, *_as_rows(*(x.grad for x in leaves))]
    leaf = draw(1, 2, 5, 4).requires_grad_()
    out = impl.FlashAttention.apply(leaf, leaf, leaf)
    return said | {"default options": [out, *torch.autograd.grad(out.sum(), leaf)]}


@points(2)
def test_function_keeps_no_square(impl, draw):
    """Between the passes, q, k, v, out and lse are kept, by ctx.save_for_backward, and nothing else.

    Autograd through flash_attention itself would keep the weights of every tile, which is all of them. And the blocks
    are those of the forward pass in the backward pass too.
    """
    q_len, k_len = _size(draw, 60, 64), _size(draw, 61, 65)
    kept, leaves = {}, [x.requires_grad_() for x in _qkv(draw, q_len, k_len, 2, 1, 1)]

    def note(x):
        kept[x.untyped_storage().data_ptr()] = x.numel()
        return x

    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        out = impl.FlashAttention.apply(*leaves, False, 8, 8)
    with Operations() as counted:
        out.sum().backward()
    return {"numbers kept": sum(kept.values()),
            "the backward pass made a tensor of q · k numbers": counted.largest >= q_len * k_len}


def test_function_is_differentiated_once(impl, draw):
    """The gradient of a gradient is refused with a RuntimeError: it would be wrong.

    The backward pass takes lse for a constant. torch.autograd.function.once_differentiable, above backward and
    below @staticmethod, says so; the stub has it.
    """
    q, k, v = (x.requires_grad_() for x in _qkv(draw, 3, 3))
    grad, = torch.autograd.grad(impl.FlashAttention.apply(q, k, v).square().sum(), q, create_graph=True)
    return {"once": grad.detach().flatten(), "twice": raises(RuntimeError, lambda: torch.autograd.grad(grad.sum(), q))}


# -- pieces

@points(2)
def test_split_decode(impl, draw):
    """split_decode cuts the keys into pieces, attends to each, and merges: out and lse of all keys.

    9 keys in 4 pieces are 3 + 2 + 2 + 2. k.tensor_split(splits, dim=-2) cuts like that, chunk does not always.
    """
    q, k, v = _qkv(draw, 1, 9, heads=4, value_dim=3)
    return {f"{splits} pieces": list(impl.split_decode(q, k, v, splits)) for splits in (1, 2, 4, 9)}


def test_split_decode_more_pieces_than_keys(impl, draw):
    """There may be more pieces than keys: the empty ones change nothing. Fewer than 1 is a ValueError naming splits.

    flash_attention over no keys gives zeros and −∞, which merge takes for what they are.
    """
    q, k, v = _qkv(draw, 1, 3)
    return {"5 pieces of 3 keys": list(impl.split_decode(q, k, v, 5)),
            "0 pieces": raises(ValueError, lambda: impl.split_decode(q, k, v, 0), names="splits")}


# -- the kernel

def _kernel(impl, draw, q_len, k_len, causal=False, block_q=16, block_k=16, dtype=torch.float32, **sizes):
    """The kernel's answer, and not what lies in its memory where it wrote nothing."""
    q, k, v = (_before_nan(x.to(dtype)) for x in _qkv(draw, q_len, k_len, **{"heads": 1, "kv_heads": 1, "batch": 1,
                                                                            **sizes}))
    return list(impl.flash_kernel(q, k, v, causal, block_q, block_k))


def _before_nan(x):
    """The same numbers, in memory behind which NaN follow."""
    memory = x.new_full((2, *x.shape), torch.nan)
    memory[0] = x
    return memory[0]


@points(3)
@needs("triton")
def test_kernel(impl, draw):
    """flash_tiles gives flash_attention's out and lse: a tile of queries, key tile after key tile.

    Load the queries once, scale them, and go through the keys with a running maximum, sum and mix. Store out and lse.
    """
    return {"one tile": _kernel(impl, draw, 16, 16, head_dim=16, value_dim=16),
            "two by three, two heads": _kernel(impl, draw, 32, 48, heads=2, kv_heads=2, head_dim=16, value_dim=16)}


@points(2)
@needs("triton")
def test_kernel_any_lengths(impl, draw):
    """Tiles that reach over the edge load zeros there, count no key there, and store nothing there.

    mask= keeps loads and stores inside. A key past the end has the score −∞, not 0. The features are padded too.
    Behind the end lie NaN here, and 0 · NaN is NaN.
    """
    n = _size(draw, 17, 31)
    return {"lengths": _kernel(impl, draw, n, n + 9, block_k=32, head_dim=16, value_dim=16),
            "features": _kernel(impl, draw, 16, 16, head_dim=12, value_dim=5),
            "one query": _kernel(impl, draw, 1, n, heads=2, kv_heads=2, head_dim=8)}


@points(2)
@needs("triton")
def test_kernel_causal(impl, draw):
    """With CAUSAL, a query sees the keys up to k_len − q_len + its own number, and later tiles are not read.

    The program's last query is (i + 1) · BLOCK_Q − 1: the loop over keys ends behind its position. In the tiles on
    the diagonal, a key that stands after a query has the score −∞.
    """
    n = _size(draw, 33, 47)
    q, k, v = _qkv(draw, 48, 48, 1, 1, 1)
    v = torch.cat([v[..., :32, :], torch.full_like(v[..., 32:, :], torch.nan)], -2)
    return {"the last tile, which no other may read, is NaN": impl.flash_kernel(q, k, v, True, 16, 16)[0][..., :32, :],
            "as many keys": _kernel(impl, draw, n, n, True, head_dim=8),
            "more keys": _kernel(impl, draw, 3, n, True, head_dim=8),
            "fewer keys": _kernel(impl, draw, 20, 3, True, head_dim=8)}


@needs("triton")
def test_kernel_rising_scores(impl, draw):
    """The kernel's maximum starts at −∞, and what it has summed shrinks when the maximum rises.

    Scores near −100 in the first tile, and near 100 in the last.
    """
    q, k, v = _qkv(draw, 16, 48, 1, 1, 1)
    steps = torch.linspace(-100, 100, 48, device=q.device).to(k.dtype)
    low = torch.cat([k[..., :3], steps.expand(1, 1, 48).unsqueeze(-1)], -1)
    q = torch.cat([q[..., :3], torch.full_like(q[..., :1], 2)], -1)
    return {"rising": list(impl.flash_kernel(q, low, v, False, 16, 16)),
            "below zero": list(impl.flash_kernel(q, low - 300, v, False, 16, 16))}


@needs("triton")
def test_kernel_grouped_heads(impl, draw):
    """Row j of the queries reads row j // groups of the keys and values, in every text of a batch.

    With 4 heads and 2 key heads, rows 4 and 5, the second text's first, read row 2.
    """
    return _kernel(impl, draw, 5, 7, heads=4, kv_heads=2, batch=2, head_dim=4, value_dim=3)


@needs("triton")
@dtypes("float16", "bfloat16")
def test_kernel_in_half_precision(impl, draw, dtype):
    """Tiles are widened to float32 as they are loaded; out is stored in the dtype of q, lse in float32.

    .to(tl.float32) behind tl.load; the weights stay wide in the second product. tl.store casts by itself to what its
    pointer points to. Then nearly every number is that of float32, rounded once.
    """
    q, k, v = (x.to(dtype) for x in _qkv(draw, 9, 40, 1, 1, 1, head_dim=8, value_dim=6))
    wide, _ = impl.flash_kernel(*map(_wide, (q, k, v)), False, 16, 16)
    out, lse = impl.flash_kernel(q, k, v, False, 16, 16)
    return {"out": out, "lse": lse, "9 of 10 rounded once": (out == wide.to(dtype)).float().mean().item() > 0.9}
