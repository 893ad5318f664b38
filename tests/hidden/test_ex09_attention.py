"""Lesson 09 on other shapes, dtypes and corners."""

from importlib import import_module

import torch

from grader import dtypes, points, raises


def _mask(draw, *shape):
    mask = draw.ints(2, *shape) == 1
    mask[..., 0] = True
    return mask


@points(2)
@dtypes("float32", "float64")
def test_other_shapes(impl, draw, dtype):
    """No batch axis, four of them, one query, one key, transposed inputs: all go through."""
    attention = impl.scaled_dot_product_attention
    q, k, v = draw(3, 5).to(dtype), draw(6, 5).to(dtype), draw(6, 2).to(dtype)
    many = [draw(2, 1, 3, 2, n, 4).to(dtype) for n in (3, 4, 4)]
    turned = [draw(2, 4, 3).to(dtype).mT for _ in range(3)]
    return {"no batch": attention(q, k, v), "four batch axes": attention(*many),
            "one query": attention(q[:1], k, v), "one key": attention(q, k[:1], v[:1]),
            "a mask of one number": attention(q, k, v, torch.tensor(True, device=draw.device)),
            "transposed": attention(*turned)}


def test_causal_masks_of_many_lengths(impl, draw):
    """causal_mask is boolean and aligned to the end for every pair of lengths."""
    most = 5 + int(draw.ints(4, 1))
    return {f"{q}, {k}": impl.causal_mask(q, k, device=draw.device)
            for k in range(most) for q in range(k + 1)}


@points(2)
def test_inputs_stay_as_they_are(impl, draw):
    """q, k, v, the mask and x have the same numbers after the call as before."""
    q, k, v, x = draw(2, 4, 6), draw(2, 4, 6), draw(2, 4, 6), draw(2, 4, 6)
    mask = _mask(draw, 4, 4)
    layer = draw.fill(impl.MultiHeadAttention(6, 2, causal=True))
    for recorded in (True, False):
        with torch.set_grad_enabled(recorded):
            impl.attention_weights(q, k, mask)
            impl.scaled_dot_product_attention(q, k, v, mask)
            layer(x, mask=mask)
    return {"q": q, "k": k, "v": v, "x": x, "mask": mask}


@dtypes("float32", "bfloat16", "float16")
def test_weights_of_distant_scores(impl, draw, dtype):
    """Scores from −1,000 to 1,000 give weights of 0 and 1 and finite gradients, the values their places."""
    q = torch.tensor([[1.0], [-1.0]], dtype=draw.float, device=draw.device).to(dtype)
    k = torch.tensor([[1000.0], [0.0], [-1000.0]], dtype=draw.float, device=draw.device).to(dtype)
    q.requires_grad_()
    weights = impl.attention_weights(q, k)
    (weights * draw(2, 3).to(dtype)).sum().backward()
    return {"weights": weights, "grad of q": q.grad,
            "values": impl.scaled_dot_product_attention(q, k, draw(3, 2).to(dtype))}


@points(2)
def test_padded_rows(impl, draw):
    """In a batch of unequal lengths, causal and padded, a row that sees nothing passes as zeros.

    Left padding: its queries see no key at all. o_proj's bias is then all that is left.
    """
    layer = draw.fill(impl.MultiHeadAttention(8, 2, bias=True, causal=True))
    x, length = draw(3, 5, 8).requires_grad_(), torch.tensor([5, 3, 1], device=draw.device)
    real = torch.arange(5, device=draw.device) >= 5 - length[:, None]
    out = layer(x, mask=real[:, None, None])
    (out * draw(3, 5, 8)).sum().backward()
    return {"output": out, "grad of x": x.grad}


@points(2)
def test_future_has_no_say(impl, draw):
    """The gradient of token i's output is 0 at every later token, whatever is masked besides."""
    layer, x = draw.fill(impl.MultiHeadAttention(8, 4, causal=True)), draw(6, 8).requires_grad_()
    seen = [torch.autograd.grad(row.sum(), x, retain_graph=True)[0].abs().sum(-1) > 0
            for row in layer(x, mask=_mask(draw, 6, 6))]
    return torch.stack(seen)


@dtypes("bfloat16", "float16")
def test_module_in_half_precision(impl, draw, dtype):
    """A module cast to half precision, with a rope, computes and answers in it."""
    rope = import_module(f"{impl.__package__}.ex07_rope").RoPE(4, 8)
    layer = draw.fill(impl.MultiHeadAttention(8, 2, rope=rope, causal=True)).to(dtype)
    with torch.no_grad():
        for name, weight in layer.named_parameters():
            weight.copy_(weight.abs() if name[0] in "vo" else weight / 4)
    return layer(draw.uniform(2, 6, 8).to(dtype))


@points(2)
def test_module_of_any_batch_rank(impl, draw):
    """x and context may have no batch axis or two; a mask may tell the heads apart."""
    layer = draw.fill(impl.MultiHeadAttention(8, 2))
    return {"none": layer(draw(5, 8), mask=_mask(draw, 2, 5, 5)),
            "two": layer(draw(2, 3, 4, 8), draw(2, 3, 6, 8), mask=_mask(draw, 2, 1, 2, 4, 6)),
            "one token": layer(draw(2, 1, 8))}


def test_bad_inputs(impl, draw):
    """Wrong features and masks raise ValueErrors, in a causal module too."""
    layer, x = draw.fill(impl.MultiHeadAttention(8, 2, causal=True)), draw(2, 4, 8)
    qkv, width = [draw(1, 4, 8) for _ in range(3)], int(draw.ints(7, 1)) + 1
    return {f"{width} features of x": raises(ValueError, lambda: layer(draw(2, 4, width))),
            "a causal module's mask": raises(ValueError, lambda: layer(x, mask=_mask(draw, 4, 5)),
                                             names="mask"),
            "dropout": [raises(ValueError, lambda: impl.scaled_dot_product_attention(
                *qkv, dropout=p)) for p in (1.0, -0.1)]}


@dtypes("float16", "bfloat16")
def test_dtype_of_q(impl, draw, dtype):
    """Queries of half precision with keys and values in float32, or float64 with either: the answer has q's dtype."""
    q, k, v = draw(2, 3, 4).to(dtype), draw(2, 5, 4), draw.uniform(2, 5, 4)
    return {"weights": impl.attention_weights(q, k),
            "float64 q": impl.attention_weights(q.double(), k),
            "float64 k": impl.attention_weights(q, k.double()),
            "output": impl.scaled_dot_product_attention(q, k, v, _mask(draw, 3, 5))}


@points(2)
def test_module_of_views(impl, draw):
    """x and context may be views with axes swapped, of any batch rank."""
    layer = draw.fill(impl.MultiHeadAttention(8, 2, bias=True))
    return {"batch and seq": layer(draw(5, 2, 8).transpose(0, 1), draw(7, 2, 8).transpose(0, 1)),
            "two batch axes": layer(draw(3, 2, 5, 8).transpose(0, 1)),
            "seq and features": layer(draw(2, 8, 5).mT),
            "every other token": layer(draw(2, 10, 8)[:, ::2])}


def test_sizes_of_one(impl, draw):
    """One feature and one head; as many heads as features; one head for all of them."""
    return {f"{d_model}, {heads}": draw.fill(impl.MultiHeadAttention(d_model, heads, causal=True))(
                draw(batch, seq, d_model))
            for d_model, heads, batch, seq in ((1, 1, 1, 2), (4, 4, 2, 3), (4, 1, 1, 3))}


def test_gradient_in_eval(impl, draw):
    """Gradients pass in eval mode too: what is tuned in front of a model needs them."""
    layer = draw.fill(impl.MultiHeadAttention(8, 2, dropout=0.5)).eval()
    x = draw(2, 3, 8).requires_grad_()
    (layer(x) * draw(2, 3, 8)).sum().backward()
    return x.grad


def test_nothing_but_weights_is_saved(impl, draw):
    """The state dict holds the projections alone, with causal as without, before and after a call."""
    said = []
    for causal in (False, True):
        layer = draw.fill(impl.MultiHeadAttention(8, 2, causal=causal))
        before = sorted(layer.state_dict())
        said.append((before, layer(draw(2, 3, 8)), sorted(layer.state_dict())))
    return said
