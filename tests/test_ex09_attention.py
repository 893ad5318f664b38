"""What chapter 09 asks of masks, attention and the module of many heads."""

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


def _layer(impl, draw, **options):
    """d_model 12, three heads of 4 features."""
    return draw.fill(impl.MultiHeadAttention(12, 3, **options))


def _rope(impl, head_dim=4):
    return import_module(f"{impl.__package__}.ex07_rope").RoPE(head_dim, 16, base=10.0)


@points(2)
def test_causal_mask(impl, draw):
    """causal_mask(n) is True on and below the diagonal: a token sees itself and what came before.

    Rows are queries, columns are keys. torch.tril keeps a lower triangle, its diagonal too.
    """
    return {f"causal_mask({n})": impl.causal_mask(n, device=draw.device) for n in (4, 1)}


@points(2)
def test_causal_mask_with_more_keys(impl, draw):
    """With more keys than queries, the queries are the last of the keys: the last one sees all.

    Query i stands at position k_len − q_len + i, so the triangle moves right by k_len − q_len.
    """
    return {f"causal_mask({q}, {k})": impl.causal_mask(q, k, device=draw.device)
            for q, k in ((2, 5), (1, 3), (3, 3))}


def test_causal_mask_with_fewer_keys(impl, draw):
    """Fewer keys than queries raises a ValueError that names k_len.

    The first queries would stand before the first key and see nothing at all.
    """
    return raises(ValueError, lambda: impl.causal_mask(4, 3), names="k_len")


def test_causal_mask_device(impl, draw):
    """causal_mask makes its mask on the device that it is given.

    A mask on the CPU cannot hide scores on a GPU. torch.ones and its like take device=… . (Asked
    with torch's "meta" device, which every machine has; without a device it is torch's default.)
    """
    with Elsewhere() as there:
        made = impl.causal_mask(3, 5, device=there.device).device.type
    return {"device='meta'": made, "no device": impl.causal_mask(3, 5).device.type}


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


@points(3)
def test_attention_weights_masked(impl, draw):
    """A hidden key weighs exactly 0, and the visible keys of each query share the whole 1.

    True = may look. Where the mask is False, the score must be −∞ before the softmax; a key
    hidden afterwards has already taken its share from the others.
    """
    return impl.attention_weights(draw(2, 3, 4, 8), draw(2, 3, 6, 8), _mask(draw, 4, 6))


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
    """
    q, k = draw(1, 3, 4, 8), draw(1, 3, 5, 8)
    refused = {f"mask of shape {shape}": raises(
                   ValueError, lambda: impl.attention_weights(q, k, _mask(draw, *shape)), names="mask")
               for shape in ((4, 4), (2, 1, 4, 5))}
    return {**refused, "one that fits": accepts(lambda: impl.attention_weights(q, k, _mask(draw, 4, 5)))}


@points(2)
def test_query_that_sees_nothing(impl, draw):
    """A query that may look nowhere gets zeros and sends back a gradient of zero: no NaN.

    Chapter 05's softmax gives zeros for a row of −∞; torch's gives NaN. With −1e9 in the place of
    −∞ the row would be the mean of everything that it must not see.
    """
    q, k, v = (draw(2, 4, 8).requires_grad_() for _ in range(3))
    mask = _mask(draw, 4, 4)
    mask[2] = False
    out = impl.scaled_dot_product_attention(q, k, v, mask)
    (out * draw(2, 4, 8)).sum().backward()
    return {"output": out, "grad of q": q.grad, "grad of k": k.grad, "grad of v": v.grad}


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

    Chapter 08's Dropout on what softmax gave, before the values are averaged. (Here v is the
    identity, so the output shows 250,000 weights; each was 1/500.)
    """
    zeros, v = _ones(draw, 500, 2) * 0, torch.eye(500, dtype=draw.float, device=draw.device)
    weights = 500 * impl.scaled_dot_product_attention(zeros, zeros, v, dropout=0.2)
    return {"fraction of zeros": (weights == 0).to(draw.float).mean(), "mean": weights.mean(),
            "largest": weights.max()}


def test_dropout_drops_keys_not_features(impl, draw):
    """dropout takes a whole key out of a query's mean: all features lose the same.

    It falls on the weights, (q, k) of them, and not on the output. (Here all values are 1, so a
    query's features are equal: each is the sum of the weights it has left.)
    """
    zeros = _ones(draw, 50, 2) * 0
    out = impl.scaled_dot_product_attention(zeros, zeros, _ones(draw, 50, 8), dropout=0.5)
    return {"a query's features differ": bool((out - out[:, :1]).abs().max() > 1e-3),
            "queries differ": bool((out - out[:1]).abs().max() > 1e-3)}


def test_module_parameters(impl, draw):
    """MultiHeadAttention has q_proj, k_proj, v_proj and o_proj, with biases only if bias=True.

    Four Linear layers from d_model to d_model; no layer per head.
    """
    return {f"bias={bias}": shapes(impl.MultiHeadAttention(12, 3, bias=bias).named_parameters())
            for bias in (False, True)}


@points(3)
def test_module_self_attention(impl, draw):
    """Project x to q, k and v, split them into heads, attend, merge the heads, project with o_proj.

    Chapter 00's split_heads gives head 0 the first features, and merge_heads puts the heads of
    each token side by side again; a reshape alone would mix tokens with heads.
    """
    return _layer(impl, draw)(draw(2, 5, 12))


@points(2)
def test_module_cross_attention(impl, draw):
    """With a context, x asks and the context answers: q from x, k and v from the context.

    The output has one row per token of x, however long the context is. The mask has one column
    per token of the context.
    """
    layer, x, context = _layer(impl, draw, bias=True), draw(2, 3, 12), draw(2, 7, 12)
    return {"no mask": layer(x, context), "masked": layer(x, context, mask=_mask(draw, 2, 1, 3, 7))}


@points(2)
def test_module_causal(impl, draw):
    """A causal module hides the future and, if a mask is given, what that hides as well.

    Both must say True: causal_mask(seq) & mask. Without causal=True nothing is hidden.
    """
    x, mask = draw(2, 5, 12), _mask(draw, 2, 1, 1, 5)
    layer = _layer(impl, draw, causal=True)
    return {"no mask": layer(x), "masked": layer(x, mask=mask),
            "masked, not causal": _layer(impl, draw)(x, mask=mask)}


@points(2)
def test_module_rope(impl, draw):
    """rope turns queries and keys of every head, by each row's own positions; never the values.

    Split into heads first, then call rope. positions is (seq,) or (batch, seq), while q is
    (batch, heads, seq, head_dim): it needs an axis for the heads.
    """
    x, layer = draw(2, 5, 12), _layer(impl, draw, rope=_rope(impl), causal=True)
    apart = torch.tensor([[0, 1, 2, 5, 9], [3, 1, 4, 2, 8]], device=draw.device)
    return {"positions left out": layer(x), "of all rows": layer(x, positions=apart[0]),
            "of each row": layer(x, positions=apart)}


def test_module_context_refused(impl, draw):
    """A context given to a module with rope or causal=True raises a ValueError that names context.

    Positions of two sequences say nothing about each other.
    """
    x, context = draw(2, 5, 12), draw(2, 5, 12)
    return {what: raises(ValueError, lambda: layer(x, context), names="context")
            for what, layer in {"rope": _layer(impl, draw, rope=_rope(impl)),
                                "causal": _layer(impl, draw, causal=True)}.items()}


def test_module_dropout(impl, draw):
    """The module drops weights while training, and none in eval mode.

    self.training tells; scaled_dot_product_attention drops whenever it is told to. The answers:
    the output in eval mode, and whether two calls differ while training.
    """
    layer, x = _layer(impl, draw, dropout=0.5), draw(2, 16, 12)
    return {"two calls agree while training": bool((layer(x) == layer(x)).all()),
            "in eval mode": layer.eval()(x)}


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
    """
    make = impl.MultiHeadAttention
    return {"heads=5": raises(ValueError, lambda: make(12, 5), names="heads"),
            "heads=0": raises(ValueError, lambda: make(12, 0), names="heads"),
            "d_model=0": raises(ValueError, lambda: make(0, 1), names="d_model"),
            "rope of d_model": raises(ValueError, lambda: make(12, 3, rope=_rope(impl, 12)),
                                      names="rope"),
            "dropout=1": raises(ValueError, lambda: make(12, 3, dropout=1), names="dropout"),
            "dropout=-0.1": raises(ValueError, lambda: make(12, 3, dropout=-0.1), names="dropout"),
            "d_model=1, heads=1": accepts(lambda: make(1, 1))}


def test_attention_flops(impl, draw):
    """attention_flops counts q kᵀ and weights v: each 2 · batch · heads · q_len · k_len · head_dim.

    A matrix product of (m, n) and (n, p) multiplies and adds m · n · p times.
    """
    return {str(sizes): impl.attention_flops(*sizes)
            for sizes in ((1, 1, 3, 5, 4), (2, 8, 128, 128, 64))}
