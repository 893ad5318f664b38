"""What lesson 10 asks of grouped attention, window masks and the module of today's decoders."""

from importlib import import_module

import torch

from grader import accepts, dtypes, points, raises, shapes
from grader.course.doubles import Elsewhere, Operations

FORBIDDEN = dict.fromkeys(("grouped_attention", "GroupedQueryAttention"), {
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.nn.functional.multi_head_attention_forward", "torch.nn.MultiheadAttention"})


def _mask(draw, *shape):
    """A random mask in which every query may look at key 0, and at about half of the others."""
    mask = draw.ints(2, *shape) == 1
    mask[..., 0] = True
    return mask


def _layer(impl, draw, **options):
    """d_model 12, six query heads of 2 features; two key/value heads if not told otherwise."""
    return draw.fill(impl.GroupedQueryAttention(12, 6, **{"kv_heads": 2, **options}))


def _rope(impl, head_dim, max_seq_len):
    return import_module(f"{impl.__package__}.ex07_rope").RoPE(head_dim, max_seq_len)


def _shapes(module):
    return shapes(module.named_parameters())


@points(2)
def test_repeat_kv(impl, draw):
    """repeat_kv gives every head `groups` times in a row: a, b become a, a, a, b, b, b.

    Query head h reads key/value head h // groups. In einops' pattern the faster axis of
    "(kv_heads groups)" stands on the right; torch's word for it is repeat_interleave, not repeat. The gradient
    of a head is the sum over its copies: no .detach() or .data on the way.
    """
    x = draw(2, 2, 4, 3).requires_grad_()
    three = impl.repeat_kv(x, 3)
    (three * draw(2, 6, 4, 3)).sum().backward()
    return {"two heads, three times": three, "grad of x": x.grad,
            "once": impl.repeat_kv(draw(1, 3, 4, 3), 1)}


def test_repeat_kv_batch_axes(impl, draw):
    """repeat_kv takes any number of batch axes, none among them.

    `b, h, s, d = x.shape` and x[:, :, None] work only with one batch axis. Count from the end: heads are axis −3.
    """
    return {f"{batch or 'no'} batch": impl.repeat_kv(draw(*batch, 2, 3, 2), 2) for batch in ((), (3,), (2, 1, 3))}


def test_repeat_kv_bad_groups(impl, draw):
    """groups below 1 raises a ValueError that names groups.

    Repeating 0 times would leave no head, without a word.
    """
    x, low = draw(1, 2, 4, 3), -int(draw.ints(9))
    return {f"groups = {n}": accepts(lambda: impl.repeat_kv(x, n)) if n > 0
            else raises(ValueError, lambda: impl.repeat_kv(x, n), names="groups")
            for n in (0, 1, low - 1, 2 - low)}


@points(3)
@dtypes("float32", "float64")
def test_grouped_attention(impl, draw, dtype):
    """grouped_attention is softmax(q kᵀ / √head_dim) v, where heads in a row share k and v.

    With 6 query heads and 2 key/value heads, queries 0, 1, 2 read head 0 and queries 3, 4, 5 read
    head 1: it has to agree with attention on repeat_kv(k, 3) and repeat_kv(v, 3). Put the heads of
    a group back in the order in which they came. What came in float64 stays float64 throughout. The root is
    that of q's and k's features; values may be wider or narrower.
    """
    q = draw(2, 6, 3, 4).to(dtype)
    return {f"kv_heads = {n}, value_dim = {value_dim}": impl.grouped_attention(
                q, draw(2, n, 5, 4).to(dtype), draw(2, n, 5, value_dim).abs().to(dtype))      # nothing cancels
            for n, value_dim in ((6, 4), (2, 4), (1, 4), (3, 7), (6, 1))}


def test_grouped_attention_batch_axes(impl, draw):
    """grouped_attention takes any number of batch axes, none among them.

    Code that names or counts all four axes works only with one batch axis: `b, h, s, d = q.shape`, transpose(1, 2), a
    pattern without "...". Count from the end: heads are axis −3, seq −2 and features −1.
    """
    return {f"{batch or 'no'} batch": impl.grouped_attention(draw(*batch, 4, 3, 2), draw(*batch, 2, 5, 2),
                                                             draw(*batch, 2, 5, 2))
            for batch in ((), (3,), (2, 1, 3))}


@points(2)
def test_grouped_attention_masks(impl, draw):
    """A mask of any shape that broadcasts to (batch, heads, q, k) hides the keys where it is False.

    Heads of one group may have different masks. Expand a mask to (batch, heads, q, k) and stack it
    as you stack the queries, or unstack the scores before the mask meets them.
    """
    q, k, v = draw(2, 6, 3, 4), draw(2, 2, 5, 4), draw(2, 2, 5, 4)
    return {f"mask {shape}": impl.grouped_attention(q, k, v, _mask(draw, *shape))
            for shape in ((3, 5), (2, 1, 1, 5), (6, 3, 5), (2, 6, 1, 5), (5,))}


def test_grouped_attention_nowhere_to_look(impl, draw):
    """A query that may look nowhere gives zeros and gets no gradient: no NaN.

    A hidden score is −inf, and your softmax of a row of −inf is zeros. Minus a large number would
    give a row of equal weights.
    """
    q, k, v = (draw(2, n, 3, 4).requires_grad_() for n in (4, 2, 2))
    mask = torch.ones(3, 3, dtype=torch.bool, device=draw.device)
    mask[1] = False
    out = impl.grouped_attention(q, k, v, mask)
    (out * draw(2, 4, 3, 4)).sum().backward()
    return {"output": out} | {f"grad of {name}": x.grad.flatten(1) for name, x in zip("qkv", (q, k, v))}


@points(2)
def test_grouped_attention_copies_no_key(impl, draw):
    """No tensor as large as the repeated keys is made.

    Do not repeat k and v, and do not let matmul broadcast them over a groups axis (it copies them
    for that). Stack the queries of a group as rows instead: "(kv_heads groups) q d" becomes
    "kv_heads (groups q) d", and k stays as it is.
    """
    q, k, v = draw(1, 8, 1, 16), draw(1, 2, 64, 16), draw(1, 2, 64, 16)
    with Operations() as operations:
        out = impl.grouped_attention(q, k, v)
    return {"output": out, "made a tensor twice as large as k": operations.largest >= 2 * k.numel()}


@dtypes("bfloat16", "float16")
def test_grouped_attention_in_half_precision(impl, draw, dtype):
    """In half precision, scores past float16's 65,504 do no harm, and the dtype of q comes back.

    Widen q and k before they are multiplied, not the product afterwards, and cast the result.
    """
    q, k, v = draw(1, 4, 3, 8, scale=300), draw(1, 2, 5, 8, scale=300), draw(1, 2, 5, 8)
    return impl.grouped_attention(q.to(dtype), k.to(dtype), v.to(dtype))


@dtypes("bfloat16", "float16")
def test_grouped_attention_rounds_once(impl, draw, dtype):
    """Half precision is rounded once, at the end: the answer is the float32 answer, cast to q's dtype.

    Scores, weights and the sum of values all stay wide; only what you return is cast. Keys and values may
    be wider than q: do not round them to its dtype either.
    """
    q, k, v = draw(2, 4, 8, 8).to(dtype), draw(2, 2, 16, 8), draw(2, 2, 16, 5)
    said = {}
    for name, keys, values in (("all of them half", k.to(dtype), v.to(dtype)), ("values in float32", k.to(dtype), v),
                               ("keys in float32", k, v.to(dtype))):
        out = impl.grouped_attention(q, keys, values)
        wide = impl.grouped_attention(*(x.to(draw.float) for x in (q, keys, values))).to(dtype)
        said[f"{name}: numbers that are not the wide ones, rounded"] = int((out.to(dtype) != wide).sum())
        said[f"{name}: dtype"] = str(out.dtype)
    return said


def test_grouped_attention_bad_heads(impl, draw):
    """Query heads that kv_heads does not divide raise a ValueError that names kv_heads.

    6 query heads cannot share 4 evenly. Ask for the remainder before you compute.
    """
    heads = 2 * int(draw.ints(4)) + 4
    q, k = draw(1, heads, 3, 4), draw(1, heads, 3, 4)
    said = {}
    for n in range(1, heads + 1):
        def call(few=k[:, :n]):
            return impl.grouped_attention(q, few, few)
        said[f"{heads} heads, kv_heads = {n}"] = accepts(call) if heads % n == 0 \
            else raises(ValueError, call, names="kv_heads")
    return said


@points(2)
def test_window_mask(impl, draw):
    """With a window of w, a query sees itself and the w − 1 tokens before it, and none after it.

    So w = 1 is the diagonal alone. Of how far a query must look back, count − query position minus
    key position − the mask asks two things: at least 0, and less than w.
    """
    n = int(draw.ints(5)) + 6
    return {f"{n} tokens, window {w}": impl.sliding_window_mask(n, n, w, draw.device)
            for w in (1, 2 + int(draw.ints(n - 3)), n, n + 13)}


def test_window_mask_with_more_keys(impl, draw):
    """With more keys than queries, the queries are the last of the keys.

    Two queries for seven keys stand at positions 5 and 6.
    """
    said = {"2 of 7": impl.sliding_window_mask(2, 7, 3, draw.device)}
    for q_len in (1, 3):
        k_len, window = q_len + 2 + int(draw.ints(4)), 2 + int(draw.ints(3))
        said[f"{q_len} of {k_len}, window {window}"] = impl.sliding_window_mask(q_len, k_len, window, draw.device)
    return said


def test_window_mask_device(impl, draw):
    """sliding_window_mask makes its mask on the device that it is given.

    A mask on the CPU cannot hide scores on a GPU. torch.arange takes device=… . (Asked with torch's
    "meta" device, which every machine has; without a device it is torch's default.)
    """
    with Elsewhere() as there:
        made = impl.sliding_window_mask(3, 5, 2, device=there.device).device.type
    return {"device='meta'": made, "no device": impl.sliding_window_mask(3, 5, 2).device.type}


def test_window_mask_bad_sizes(impl, draw):
    """A window below 1 raises a ValueError that names window; fewer keys than queries, k_len.

    A window of 0 would hide a token from itself.
    """
    n = int(draw.ints(5)) + 2
    return {f"window {-n}": raises(ValueError, lambda: impl.sliding_window_mask(n, n, -n), names="window"),
            "window 0": raises(ValueError, lambda: impl.sliding_window_mask(n, n, 0), names="window"),
            f"{n} queries, {n - 1} keys": raises(ValueError, lambda: impl.sliding_window_mask(n, n - 1, 4),
                                                 names="k_len"),
            f"{n} queries, {n} keys": accepts(lambda: impl.sliding_window_mask(n, n, 1))}


def test_parameters(impl, draw):
    """q_proj makes heads · head_dim numbers, k_proj and v_proj kv_heads · head_dim; o_proj reads back.

    head_dim is d_model / heads only where it is left out. The biases of q, k and v come with
    qkv_bias and that of o_proj with o_bias. q_norm and k_norm have one weight per feature of a head.
    """
    make = impl.GroupedQueryAttention
    kv_heads, groups, head_dim, d_model = (int(n) + 2 for n in draw.ints(4, 4))
    return {"MHA": _shapes(make(12, 6, 6)), "GQA": _shapes(make(12, 6, 2)),
            "drawn": _shapes(make(d_model, kv_heads * groups, kv_heads, head_dim)),
            "head_dim 5": _shapes(make(12, 6, 2, head_dim=5)),
            "qkv_bias": _shapes(make(12, 6, 2, qkv_bias=True)),
            "o_bias": _shapes(make(12, 6, 2, o_bias=True)),
            "qk_norm": _shapes(make(12, 6, 2, head_dim=5, qk_norm=True))}


@points(2)
def test_forward(impl, draw):
    """From multi-head to multi-query, the module projects, attends causally and projects back.

    split_heads and merge_heads of lesson 00 cut the features into heads and join them again; k and v
    have kv_heads of them. Each token sees itself and what came before it.
    """
    x, make = draw(2, 5, 12), impl.GroupedQueryAttention
    return {f"kv_heads = {n}": draw.fill(make(12, 6, n))(x) for n in (6, 2, 1)}


def test_not_causal(impl, draw):
    """With causal=False every token sees every other.

    It is the module's own mask that goes; a given one stays.
    """
    layer, x = _layer(impl, draw, causal=False), draw(2, 5, 12)
    return {"no mask": layer(x), "masked": layer(x, mask=_mask(draw, 2, 1, 1, 5))}


@points(2)
def test_head_dim(impl, draw):
    """head_dim may be any size: the scores are divided by its root, and o_proj brings it back.

    Three heads of 8 in a model of 12 make 24 numbers per token. Never write d_model where you mean
    heads · head_dim.
    """
    layer = draw.fill(impl.GroupedQueryAttention(12, 3, 1, head_dim=8, qkv_bias=True, o_bias=True))
    return layer(draw(2, 4, 12))


@points(3)
def test_qk_norm(impl, draw):
    """QK-norm is RMSNorm over the features of every single head of q and of k, then RoPE.

    Split into heads, normalize with q_norm and k_norm, turn. RMSNorm's weight differs from feature
    to feature, so before or after RoPE is not the same; v is neither normalized nor turned.
    """
    layer = draw.fill(impl.GroupedQueryAttention(12, 6, 2, head_dim=4, qk_norm=True, norm_eps=0.1,
                                                 rope=_rope(impl, 4, 16)))
    q, k, v = layer.project(draw(2, 5, 12))
    return {"q": q, "k": k, "v": v}


@points(2)
def test_rope_positions(impl, draw):
    """q and k are turned by the tokens' positions: 0, 1, 2 … if left out, for all rows or for each.

    positions are (seq,) or (batch, seq), while q is (batch, heads, seq, head_dim): insert an axis
    for the heads before you call RoPE. v is not turned.
    """
    layer, x = _layer(impl, draw, rope=_rope(impl, 2, 32)), draw(2, 3, 12)
    rows, row = 1 + draw.ints(31, 2, 3), 1 + draw.ints(31, 3)
    said = {}
    for name, positions in (("left out", None), ("one row", row), ("a row each", rows)):
        q, k, v = layer.project(x, positions)
        said |= {f"q, {name}": q, f"k, {name}": k, f"v, {name}": v,
                 f"output, {name}": layer(x, positions=positions)}
    for name, part in zip("qkv", _layer(impl, draw, kv_heads=6, rope=_rope(impl, 2, 32)).project(x, rows)):
        said[f"{name}, kv_heads = heads"] = part
    return said


@points(2)
def test_window(impl, draw):
    """With a window, each token sees itself and the window − 1 tokens before it.

    sliding_window_mask in the place of causal_mask. A window longer than the text hides nothing more.
    """
    x, make = draw(2, 6, 12), impl.GroupedQueryAttention
    return {f"window {w}": draw.fill(make(12, 6, 2, window=w))(x) for w in (1, 3, 9)}


@points(2)
def test_mask(impl, draw):
    """A given mask is ANDed with the causal or window mask; it does not replace it.

    A padding mask says which keys are tokens. What lies ahead stays hidden.
    """
    x, padding = draw(2, 5, 12), torch.ones(2, 1, 1, 5, dtype=torch.bool, device=draw.device)
    padding[1, ..., :2] = False           # the first two queries of row 1 may look nowhere
    return {"causal": _layer(impl, draw)(x, mask=padding),
            "window": _layer(impl, draw, window=2)(x, mask=padding),
            "one mask per head": _layer(impl, draw)(x, mask=_mask(draw, 2, 6, 5, 5))}


def test_mask_is_left_alone(impl, draw):
    """The caller's mask is the same after the call as before it.

    `mask &= own`, `mask[...] = …` and logical_and_ write into the tensor that was handed in, which the next layer
    is given too. mask & own makes a new one.
    """
    mask, x = _mask(draw, 2, 1, 5, 5), draw(2, 5, 12)
    said = {"output": _layer(impl, draw)(x, mask=mask), "the mask, after the module": mask.clone()}
    q, k = draw(2, 6, 5, 2), draw(2, 2, 5, 2)
    mask[:, :, 1] = False           # a query that may look nowhere
    impl.grouped_attention(q, k, k, mask)
    return {**said, "the mask, after the function": mask.clone()}


@points(2)
def test_evaluated_and_called_again(impl, draw):
    """In eval mode, without gradients and at a second call a layer answers as at its first.

    Nothing here is random, and no mask, no position and no key belongs to an earlier call. A mask that is kept
    fits only where both lengths are the ones that it was made for.
    """
    options = {"qk_norm": True, "qkv_bias": True, "o_bias": True, "rope": _rope(impl, 2, 16)}
    said = {}
    for name, window in (("causal", None), ("window", 3)):
        layer = _layer(impl, draw, window=window, **options)
        said[f"{name}, training"] = layer(draw(2, 5, 12))
        layer.eval()
        with torch.no_grad():
            said[f"{name}, eval and no_grad"] = layer(draw(2, 5, 12))
            for n, k_len in ((5, 8), (1, 5), (2, 5), (2, 7)):
                said[f"{name}, {n} queries, {k_len} keys"] = layer.attend(
                    draw(2, 6, n, 2), draw(2, 2, k_len, 2), draw(2, 2, k_len, 2))
    return said


@points(2)
def test_attend_to_more_keys(impl, draw):
    """attend takes its queries for the last of the keys: the newest tokens of a longer text.

    Give both lengths to causal_mask and sliding_window_mask. A single query sees every key that
    the window reaches.
    """
    said = {}
    for name, window in (("causal", None), ("window", 3)):
        layer = _layer(impl, draw, window=window)
        for n in (1, 2):
            said[f"{name}, {n} of 7"] = layer.attend(
                draw(2, 6, n, 2), draw(2, 2, 7, 2), draw(2, 2, 7, 2))
    return said


def test_attend_with_a_longer_mask(impl, draw):
    """Of a mask with more columns than there are keys, the last columns count.

    A cache may have dropped the oldest keys, while the mask still speaks of all. One column counts
    for every key.
    """
    layer = _layer(impl, draw, causal=False)
    q, k, v = draw(2, 6, 2, 2), draw(2, 2, 4, 2), draw(2, 2, 4, 2)
    return {"9 columns": layer.attend(q, k, v, _mask(draw, 2, 1, 1, 9)[..., 1:]),
            "1 column": layer.attend(q, k, v, draw.ints(2, 2, 1, 2, 1) == 1)}


@points(2)
def test_gradients(impl, draw):
    """Gradients reach x and every parameter.

    A .data, .detach() or torch.no_grad() on the way cuts them off.
    """
    layer = _layer(impl, draw, qk_norm=True, qkv_bias=True, o_bias=True, rope=_rope(impl, 2, 8))
    x = draw(3, 6, 12).requires_grad_()
    (layer(x) * draw(*x.shape)).sum().backward()
    return {"grad of x": x.grad,
            **{f"grad of {name}": p.grad for name, p in layer.named_parameters()}}


def test_bad_sizes(impl, draw):
    """Sizes that do not fit raise a ValueError that names the argument, as the module is made.

    kv_heads must divide heads; heads must divide d_model where head_dim is left out; a window is at
    least 1 and needs causal=True; a rope must be for this head_dim. Sizes of 1 are taken.
    """
    make, heads = impl.GroupedQueryAttention, 2 * int(draw.ints(3)) + 4
    return {"all sizes 1": accepts(lambda: make(1, 1, 1, head_dim=1, window=1)),
            **{f"{heads} heads, {n} kv_heads": accepts(lambda: make(7, heads, n, head_dim=3)) if heads % n == 0
               else raises(ValueError, lambda: make(7, heads, n, head_dim=3), names="kv_heads")
               for n in range(1, heads + 2)},
            "d_model 0": raises(ValueError, lambda: make(0, 2, 1, head_dim=4), names="d_model"),
            "6 heads, 4 kv_heads": raises(ValueError, lambda: make(12, 6, 4), names="kv_heads"),
            "no kv_heads": raises(ValueError, lambda: make(12, 6, 0), names="kv_heads"),
            "5 heads in 12": raises(ValueError, lambda: make(12, 5, 5), names="heads"),
            "no heads": raises(ValueError, lambda: make(12, 0, 2), names="heads"),
            "head_dim 0": raises(ValueError, lambda: make(12, 6, 2, head_dim=0), names="head_dim"),
            "window 0": raises(ValueError, lambda: make(12, 6, 2, window=0), names="window"),
            "not causal": raises(ValueError, lambda: make(12, 6, 2, window=3, causal=False),
                                 names="window"),
            "rope": raises(ValueError, lambda: make(12, 6, 2, rope=_rope(impl, 4, 8)), names="rope")}
