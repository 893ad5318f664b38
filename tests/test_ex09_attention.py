"""What lesson 09 asks of masks, attention and the module of many heads."""

from importlib import import_module

import torch

from grader import accepts, dtypes, points, raises, shapes, tolerance
from grader.course.doubles import Elsewhere

FORBIDDEN = dict.fromkeys(("attention_weights", "scaled_dot_product_attention", "MultiHeadAttention"), {
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.nn.functional.multi_head_attention_forward", "torch.nn.MultiheadAttention"})


def _ones(draw, *shape):
    return torch.ones(*shape, dtype=draw.float, device=draw.device)


def _mask(draw, *shape):
    """A random mask in which every query may look at key 0, and at about half of the others."""
    mask = draw.ints(2, *shape) == 1
    mask[..., 0] = True
    return mask


def _number(draw, low, high):
    """A whole number from low to high, both among them."""
    return low + int(draw.ints(high + 1 - low, 1))


def _layer(impl, draw, **options):
    """d_model 12, three heads of 4 features."""
    return draw.fill(impl.MultiHeadAttention(12, 3, **options))


def _rope(impl, head_dim=4):
    return import_module(f"{impl.__package__}.ex07_rope").RoPE(head_dim, 16, base=10.0)


@points(2)
def test_causal_mask(impl, draw):
    """causal_mask(n) is True on and below the diagonal: a token sees itself and what came before.

    Rows are queries, columns are keys. torch.tril keeps a lower triangle, its diagonal too. (What
    the caller does with a mask is the caller's affair: each call makes a new one.)
    """
    n = _number(draw, 3, 7)
    masks = {f"causal_mask({size})": impl.causal_mask(size, device=draw.device) for size in (n, 1)}
    changed = impl.causal_mask(n, device=draw.device).logical_not_()
    masks["after another was changed"] = impl.causal_mask(n, device=draw.device).clone()
    changed.logical_not_()      # as it was, should it be kept somewhere
    return masks


@points(2)
def test_causal_mask_with_more_keys(impl, draw):
    """With more keys than queries, the queries are the last of the keys: the last one sees all.

    Query i stands at position k_len − q_len + i, so the triangle moves right by k_len − q_len.
    """
    k = _number(draw, 4, 7)
    return {f"causal_mask({q}, {k})": impl.causal_mask(q, k, device=draw.device) for q in (2, 1, k, 0)}


def test_causal_mask_with_fewer_keys(impl, draw):
    """Fewer keys than queries raises a ValueError that names k_len.

    The first queries would stand before the first key and see nothing at all. No keys, k_len = 0,
    are not the same as a k_len that is left out: ask `k_len is None`.
    """
    q = _number(draw, 3, 9)
    return {f"causal_mask({q}, {k})": raises(ValueError, lambda: impl.causal_mask(q, k), names="k_len")
            for k in (q - 1, 1, 0)}


def test_causal_mask_device(impl, draw):
    """causal_mask makes its mask on the device that it is given.

    A mask on the CPU cannot hide scores on a GPU. torch.ones and its like take device=… . (Asked
    with torch's "meta" device, which every machine has; without a device it is torch's default.)
    """
    q, k = _number(draw, 1, 4), _number(draw, 4, 7)
    with Elsewhere() as there:
        made = impl.causal_mask(q, k, device=there.device).device.type
    return {"device='meta'": made, "no device": impl.causal_mask(q, k).device.type,
            "its mask": impl.causal_mask(q, k, device=draw.device)}


@points(3)
@dtypes("float32", "float64")
def test_attention_weights(impl, draw, dtype):
    """attention_weights is softmax(q kᵀ / √head_dim), taken over the keys.

    Each row of q kᵀ belongs to a query and each column to a key, and each row of weights sums to
    1. head_dim is the last axis of q: the features of one head, not of all of them. "At least
    float32" means that float64 stays float64 throughout: the given widen(q) leaves it alone.
    Without a mask every query looks at every key.
    """
    return impl.attention_weights(draw(2, 3, 5, 16).to(dtype), draw(2, 3, 5, 16).to(dtype))


def test_no_batch_and_other_sizes(impl, draw):
    """The axes before the last two may be none, one or many, and a batch may be empty.

    `@` and .mT leave them alone, whatever their number; an einsum says "..." for them. The answers
    for sizes that are equal, or 1, are no others: an axis is known by its place, not by its size.
    """
    attention, mask = impl.scaled_dot_product_attention, _mask(draw, 5, 5)
    alike, one = [draw(5, 5) for _ in range(3)], [draw(2, 1) for _ in range(3)]
    hidden = draw.ints(2, 3, 1) == 1
    hidden[0] = False
    return {"no batch": attention(*alike, mask), "one feature": attention(*one),
            "one key": impl.attention_weights(draw(2, 3, 4), draw(2, 1, 4), hidden),
            "one query": attention(draw(1, 4), draw(6, 4), draw(6, 3), _mask(draw, 6)),
            "three batch axes": attention(draw(2, 1, 3, 2, 4), draw(2, 1, 3, 4, 4), draw(2, 1, 3, 4, 3)),
            "an empty batch": attention(draw(0, 2, 3, 4), draw(0, 2, 5, 4), draw(0, 2, 5, 3), _mask(draw, 3, 5))}


@points(3)
def test_attention_weights_masked(impl, draw):
    """A hidden key weighs exactly 0, and the visible keys of each query share the whole 1.

    True = may look. Where the mask is False, the score must be −∞ before the softmax; a key
    hidden afterwards has already taken its share from the others.
    """
    return impl.attention_weights(draw(2, 3, 4, 8), draw(2, 3, 6, 8), _mask(draw, 4, 6))


def test_hidden_beside_low_scores(impl, draw):
    """A hidden key weighs 0 however low the scores of the others are.

    Its score is −∞, below every number. A number in its place, −1e4 or −1e9, is above some of the
    scores that a model may have, and then the hidden key is the one that is seen. (Here the visible
    keys score about −10,000,000,000.)
    """
    q, k = 1e5 * (1 + draw.uniform(2, 3, 4)), -1e5 * (1 + draw.uniform(2, 5, 4))
    mask = _mask(draw, 3, 5)
    mask[:, 1] = False
    k[:, 1] = 0
    return impl.attention_weights(q.clone(), k.clone(), mask)


def test_mask_broadcasts(impl, draw):
    """A mask broadcasts to (batch, heads, q, k): the same for all heads, for all queries, for all.

    masked_fill and torch.where broadcast by themselves; reshape no masks.
    """
    q, k = draw(2, 3, 4, 8), draw(2, 3, 5, 8)
    return {f"mask of shape {shape}": impl.attention_weights(q, k, _mask(draw, *shape))
            for shape in ((5,), (4, 5), (3, 1, 5), (2, 1, 1, 5), (2, 3, 4, 5), (4, 1))}


def test_mask_that_does_not_fit(impl, draw):
    """A mask that does not broadcast to (*batch, q, k) raises a ValueError that names mask.

    `mask_must_fit` does it. A mask with a batch of its own would otherwise make the answer larger.
    A causal module asks before it puts the mask together with its own.
    """
    keys = _number(draw, 5, 8)
    q, k, x = draw(1, 3, 4, 8), draw(1, 3, keys, 8), draw(1, keys, 12)
    layer = _layer(impl, draw, causal=True)
    refused = {f"mask of shape {shape}": raises(
                   ValueError, lambda: impl.attention_weights(q, k, _mask(draw, *shape)), names="mask")
               for shape in ((4, 4), (2, 1, 4, keys))}
    return {**refused, "one that fits": accepts(lambda: impl.attention_weights(q, k, _mask(draw, 4, keys))),
            "in a causal module": [raises(ValueError, lambda: layer(x, mask=_mask(draw, *shape)), names="mask")
                                   for shape in ((keys, keys + 1), (2, 1, keys, keys))]}


@points(2)
def test_query_that_sees_nothing(impl, draw):
    """A query that may look nowhere gets zeros and sends back a gradient of zero: no NaN.

    Lesson 05's softmax gives zeros for a row of −∞; torch's gives NaN. With −1e9 in the place of
    −∞ the row would be the mean of everything that it must not see.
    """
    q, k, v = (draw(2, 4, 8).requires_grad_() for _ in range(3))
    mask = _mask(draw, 4, 4)
    mask[2] = False
    out = impl.scaled_dot_product_attention(q, k, v, mask)
    (out * draw(2, 4, 8)).sum().backward()      # of one key alone the gradient is 0, but for rounding
    return {"output": out} | {f"grad of {name}": x.grad.flatten(1) for name, x in zip("qkv", (q, k, v))}


@points(3)
@dtypes("float32", "float64", "bfloat16", "float16")
def test_scaled_dot_product_attention(impl, draw, dtype):
    """scaled_dot_product_attention is attention_weights times v, in the dtype of q.

    Keys and values come in pairs; v may have another number of features than q and k. Work in
    at least float32 and cast the result.
    """
    q, k, v = draw(2, 3, 4, 8), draw(2, 3, 6, 8), draw.uniform(2, 3, 6, 5)
    return impl.scaled_dot_product_attention(q.to(dtype), k.to(dtype), v.to(dtype),
                                             _mask(draw, 4, 6))


@dtypes("float16", "bfloat16")
def test_rounded_once(impl, draw, dtype):
    """Only the result is rounded to half precision: it is the answer in float32, cast.

    Widen q, k and v before they are used, take √head_dim as a number, and cast once, at the end. The
    weights that meet the values are not yet rounded: ask attention_weights with a widened q. Half
    precision may come in one of the three only. ("is the wide one, cast" answers whether at least
    97 of 100 numbers are.)
    """
    wide = torch.promote_types(dtype, torch.float32)
    q, k, v = draw(4, 12, 6, scale=2.0).to(dtype), draw(4, 9, 6, scale=2.0), draw.uniform(4, 9, 30)
    given = {"all in half precision": (q, k.to(dtype), v.to(dtype)), "k and v in float32": (q, k, v),
             "q in float32": (q.to(wide), k.to(dtype), v.to(dtype))}
    answers = {}
    for what, (q, k, v) in given.items():
        weights, out = impl.attention_weights(q, k), impl.scaled_dot_product_attention(q, k, v)
        right = (impl.attention_weights(q.to(wide), k.to(wide)),
                 impl.scaled_dot_product_attention(q.to(wide), k.to(wide), v.to(wide)))
        alike = [bool((one == other.to(one.dtype)).double().mean() > 0.97)
                 for one, other in zip((weights, out), right)]
        answers[what] = {"weights: is the wide one, cast": alike[0], "output: is the wide one, cast": alike[1]}
    q, k, v = given["all in half precision"]
    return {**answers, "output": impl.scaled_dot_product_attention(q[0, :2], k[0], v[0])}


@dtypes("float16", "bfloat16")
def test_scores_past_float16(impl, draw, dtype):
    """Scores past float16's largest number, 65,504, do no harm: no NaN, no inf.

    Cast q and k to float32 before the product, not the scores after it. (Here every score is
    80,000, so every key weighs the same.)
    """
    q = (100 * _ones(draw, 2, 3, 64)).to(dtype)
    return {"weights": impl.attention_weights(q, q),
            "output": impl.scaled_dot_product_attention(q, q, draw(2, 3, 4).to(dtype))}


@tolerance(0.02)
@points(2)
def test_dropout_on_weights(impl, draw):
    """dropout sets this fraction of the weights to 0 and divides the others by 1 − dropout.

    Lesson 08's Dropout on what softmax gave, before the values are averaged. It falls whenever
    dropout is above 0, under torch.no_grad() too. (Here v is the identity, so the output shows
    250,000 weights; each was 1/500.)
    """
    p = _number(draw, 2, 6) / 10
    zeros, v = _ones(draw, 500, 2) * 0, torch.eye(500, dtype=draw.float, device=draw.device)
    weights = 500 * impl.scaled_dot_product_attention(zeros, zeros, v, dropout=p)
    with torch.no_grad():
        unrecorded = 500 * impl.scaled_dot_product_attention(zeros, zeros, v, dropout=p)
    return {f"fraction of zeros, dropout={p}": (weights == 0).to(draw.float).mean(), "mean": weights.mean(),
            "largest": weights.max(), "fraction of zeros under no_grad": (unrecorded == 0).to(draw.float).mean()}


def test_dropout_drops_keys_not_features(impl, draw):
    """dropout takes a whole key out of a query's mean: all features lose the same.

    It falls on the weights, and each of them has a draw of its own, in every head and every row of
    a batch. It does not fall on the output. (Here all values are the same number, so a query's
    features are equal: each is the sum of the weights it has left.)
    """
    zeros, value = _ones(draw, 2, 3, 50, 2) * 0, 1 + draw.uniform(1)
    out = impl.scaled_dot_product_attention(zeros, zeros, value * _ones(draw, 2, 3, 50, 8), dropout=0.5)
    one_key = impl.scaled_dot_product_attention(
        zeros, zeros[..., :1, :], value * _ones(draw, 2, 3, 1, 8), dropout=0.5)
    return {"a query's features differ": bool((out - out[..., :1]).abs().max() > 1e-3),
            "queries differ": bool((out - out[..., :1, :]).abs().max() > 1e-3),
            "heads differ": bool((out - out[:, :1]).abs().max() > 1e-3),
            "rows of a batch differ": bool((out - out[:1]).abs().max() > 1e-3),
            "one key, largest and smallest": torch.stack([one_key.max(), one_key.min()])}


def test_module_parameters(impl, draw):
    """MultiHeadAttention has q_proj, k_proj, v_proj and o_proj, with biases only if bias=True.

    Four Linear layers from d_model to d_model; no layer per head.
    """
    heads = _number(draw, 2, 4)
    return {f"bias={bias}": shapes(impl.MultiHeadAttention(4 * heads, heads, bias=bias).named_parameters())
            for bias in (False, True)}


@points(3)
def test_module_self_attention(impl, draw):
    """Project x to q, k and v, split them into heads, attend, merge the heads, project with o_proj.

    Lesson 00's split_heads gives head 0 the first features, and merge_heads puts the heads of
    each token side by side again; a reshape alone would mix tokens with heads.
    """
    layer = _layer(impl, draw)
    return {"5 tokens": layer(draw(2, 5, 12)), "as many tokens as heads": layer(draw(2, 3, 12)),
            "one row, without a batch axis": layer(draw(4, 12))}


@points(2)
def test_module_cross_attention(impl, draw):
    """With a context, x asks and the context answers: q from x, k and v from the context.

    The output has one row per token of x, however long the context is. The mask has one column
    per token of the context.
    """
    layer, x, context = _layer(impl, draw, bias=True), draw(2, 3, 12), draw(2, 7, 12)
    return {"no mask": layer(x, context), "masked": layer(x, context, mask=_mask(draw, 2, 1, 3, 7)),
            "a context as long as x": layer(x, draw(2, 3, 12)), "one token": layer(x, context[:, :1])}


@points(2)
def test_module_causal(impl, draw):
    """A causal module hides the future and, if a mask is given, what that hides as well.

    Both must say True: causal_mask(seq) & mask. Without causal=True nothing is hidden. The mask is
    the caller's: make a new one, do not write into it.
    """
    x, mask = draw(2, 5, 12), _mask(draw, 2, 1, 1, 5)
    layer, square = _layer(impl, draw, causal=True), _mask(draw, 2, 3, 5, 5)
    return {"no mask": layer(x), "masked": layer(x, mask=mask),
            "masked, not causal": _layer(impl, draw)(x, mask=mask),
            "a mask of each head": layer(x, mask=square), "that mask afterwards": square}


@points(2)
def test_module_in_eval_mode(impl, draw):
    """Eval mode and no_grad change nothing but dropout, and a call leaves nothing for the next.

    Causal masks, given masks, positions and biases count in eval mode as while training, and a mask
    that belonged to another call, of other tokens or of another length, is not used again.
    """
    layer = _layer(impl, draw, bias=True, rope=_rope(impl), dropout=0.5, causal=True).eval()
    x, mask, places = draw(2, 5, 12), _mask(draw, 2, 1, 5, 5), draw.ints(16, 2, 5)
    with torch.no_grad():
        silent = layer(x, mask=mask, positions=places)
    return {"under no_grad": silent, "recorded": layer(x, mask=mask, positions=places),
            "next, another mask": layer(x, mask=_mask(draw, 2, 1, 5, 5)), "next, no mask": layer(x),
            "next, a shorter text": layer(x[:, 1:4]), "next, a longer text": layer(draw(1, 7, 12), mask=_mask(draw, 7))}


@points(2)
def test_module_rope(impl, draw):
    """rope turns queries and keys of every head, by each row's own positions; never the values.

    Split into heads first, then call rope. positions is (seq,) or (batch, seq), while q is
    (batch, heads, seq, head_dim): it needs an axis for the heads. rope is one of the module's own
    modules, so that .to(device) moves it along.
    """
    rope = _rope(impl)
    x, layer = draw(2, 5, 12), _layer(impl, draw, rope=rope, causal=True)
    apart = torch.tensor([[0, 1, 2, 5, 9], [3, 1, 4, 2, 8]], device=draw.device)
    return {"positions left out": layer(x), "of all rows": layer(x, positions=apart[0]),
            "of each row": layer(x, positions=apart), "of one row, for all": layer(x, positions=apart[1:]),
            "three rows, three heads, three tokens": layer(draw(3, 3, 12), positions=draw.ints(16, 3, 3)),
            "rope is among its modules": any(module is rope for module in layer.modules())}


def test_module_context_refused(impl, draw):
    """A context given to a module with rope or causal=True raises a ValueError that names context.

    Positions of two sequences say nothing about each other.
    """
    x, context = draw(2, 5, 12), draw(2, 7, 12)
    layers = {"rope": _layer(impl, draw, rope=_rope(impl)), "causal": _layer(impl, draw, causal=True)}
    return {what: {"a context": raises(ValueError, lambda: layer(x, context), names="context"),
                   "x as its own context": raises(ValueError, lambda: layer(x, x), names="context"),
                   "none": layer(x)} for what, layer in layers.items()}


def test_module_dropout(impl, draw):
    """The module drops weights while training, and none in eval mode.

    self.training tells, and nothing else; scaled_dot_product_attention drops whenever it is told to.
    The answers: the output in eval mode, and whether two calls differ while training.
    """
    layer, x = _layer(impl, draw, dropout=0.5), draw(2, 16, 12)
    with torch.no_grad():
        unrecorded = bool((layer(x) == layer(x)).all())
    return {"two calls agree while training": bool((layer(x) == layer(x)).all()),
            "under no_grad too": unrecorded, "in eval mode": layer.eval()(x)}


@points(2)
def test_module_gradients(impl, draw):
    """Gradients reach x, the context and all four projections with their biases.

    A .data, .detach() or torch.no_grad() on the way cuts them off.
    """
    layer = _layer(impl, draw, bias=True)
    x, context = draw(2, 3, 12).requires_grad_(), draw(2, 4, 12).requires_grad_()
    (layer(x, context, mask=_mask(draw, 3, 4)) * draw(2, 3, 12)).sum().backward()
    # Equal pushes on all keys change nothing: k_proj.bias has the gradient 0, up to rounding.
    return {"grad of x": x.grad, "grad of the context": context.grad,
            **{f"grad of {name}": p.grad for name, p in layer.named_parameters()
               if name != "k_proj.bias"}}


def test_module_bad_options(impl, draw):
    """heads that do not divide d_model, a rope for another width or a dropout of 1 raise ValueErrors.

    Ask in __init__, before any layer is made, and name the argument. A size of 1 is as good as any.
    NaN is neither below 0 nor at least 1: ask for what is right, `not 0 <= dropout < 1`. Numbers
    below 0 divide too: 12 % −2 is 0.
    """
    make, few = impl.MultiHeadAttention, (5, 7, 8, 9, 10, 11)[_number(draw, 0, 5)]
    qkv = [draw(3, 4) for _ in range(3)]
    return {f"heads={few}": raises(ValueError, lambda: make(12, few), names="heads"),
            "heads=0": raises(ValueError, lambda: make(12, 0), names="heads"),
            "heads=-2": raises(ValueError, lambda: make(12, -2), names="heads"),
            "d_model=0": raises(ValueError, lambda: make(0, 1), names="d_model"),
            "d_model=-4": raises(ValueError, lambda: make(-4, 2), names="d_model"),
            "dropout=nan": raises(ValueError, lambda: make(12, 3, dropout=float("nan")), names="dropout"),
            "dropout of attention": [
                raises(ValueError, lambda: impl.scaled_dot_product_attention(*qkv, dropout=p))
                for p in (1.0, -0.1, float("nan"))],
            "rope of d_model": raises(ValueError, lambda: make(12, 3, rope=_rope(impl, 12)),
                                      names="rope"),
            "dropout=1": raises(ValueError, lambda: make(12, 3, dropout=1), names="dropout"),
            "dropout=-0.1": raises(ValueError, lambda: make(12, 3, dropout=-0.1), names="dropout"),
            "d_model=1, heads=1": accepts(lambda: make(1, 1))}


def test_attention_flops(impl, draw):
    """attention_flops counts q kᵀ and weights v: each 2 · batch · heads · q_len · k_len · head_dim.

    A matrix product of (m, n) and (n, p) multiplies and adds m · n · p times. Counted in whole
    numbers, which Python has of any size: a float is exact up to 2⁵³ only.
    """
    drawn = [tuple(1 + int(n) for n in draw.ints(high, 5)) for high in (9, 99, 2**20)]
    odd = tuple(2 * n + 1 for n in drawn[-1])
    return {str(sizes): impl.attention_flops(*sizes) for sizes in (*drawn, odd)}
