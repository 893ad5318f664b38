"""What only instructors ask of lesson 10."""

from importlib import import_module

import torch

from grader import accepts, dtypes, points, raises


def _rope(impl, head_dim, max_seq_len):
    return import_module(f"{impl.__package__}.ex07_rope").RoPE(head_dim, max_seq_len)


def _shapes(module):
    return {name: f"{tuple(p.shape)} on {p.device.type}" for name, p in module.state_dict().items()}


@points(2)
def test_grouped_attention_of_views(impl, draw):
    """Queries, keys and values may be transposed views, with gradients, and stay as they were."""
    q, k, v = (draw(2, 4, n, 6).requires_grad_() for n in (6, 3, 3))
    before = [x.detach().clone() for x in (q, k, v)]
    mask = draw.ints(4, 6, 4, 4) > 0
    mask[..., :2] = True        # of one key alone the gradient is 0, but for rounding
    out = impl.grouped_attention(*(x.transpose(1, 2) for x in (q, k, v)), mask)
    (out * draw(2, 6, 4, 6)).sum().backward()
    return {"output": out} | {f"grad of {name}": x.grad.flatten(1) for name, x in zip("qkv", (q, k, v))} | {
            "untouched": [bool(torch.equal(x, y)) for x, y in zip((q, k, v), before, strict=True)]}


def test_one_token(impl, draw):
    """A text of one token, alone or in a batch, with everything switched on."""
    for_head = _rope(impl, 4, 8)
    layer = draw.fill(impl.GroupedQueryAttention(6, 4, 2, head_dim=4, qk_norm=True, rope=for_head,
                                                 window=1))
    return [[layer(x), *layer.project(x)] for x in (draw(1, 1, 6), draw(3, 1, 6))]


@dtypes("bfloat16", "float16")
def test_module_in_half_precision(impl, draw, dtype):
    """A module cast to half precision answers in it."""
    layer = draw.fill(impl.GroupedQueryAttention(8, 4, 2, qk_norm=True, rope=_rope(impl, 2, 8))).to(dtype)
    out = layer(draw(2, 4, 8).to(dtype))
    return {"dtype": str(out.dtype), "finite": bool(out.isfinite().all())}


@points(2)
def test_gradients_of_windows_and_blind_queries(impl, draw):
    """With a window, a mask and queries that may look nowhere, gradients are finite and right."""
    layer = draw.fill(impl.GroupedQueryAttention(16, 4, 2, window=3, qk_norm=True))
    x = draw(6, 10, 16).requires_grad_()
    mask = torch.ones(6, 1, 1, 10, dtype=torch.bool, device=draw.device)
    mask[0, ..., :3] = False
    (layer(x, mask=mask) * draw(6, 10, 16)).sum().backward()
    return {"grad of x": x.grad,
            **{f"grad of {name}": p.grad for name, p in layer.named_parameters()}}


def test_token_by_token(impl, draw):
    """project and attend, one token at a time over kept keys, give what forward gives at once."""
    layer = draw.fill(impl.GroupedQueryAttention(8, 4, 2, rope=_rope(impl, 2, 16), window=3))
    x, keys, values, said = draw(2, 6, 8), [], [], []
    for at in range(6):
        q, k, v = layer.project(x[:, at : at + 1], torch.tensor([at], device=draw.device))
        keys.append(k)
        values.append(v)
        said.append(layer.attend(q, torch.cat(keys, 2), torch.cat(values, 2)))
    return {"token by token": torch.cat(said, 1), "at once": layer(x)}


def test_window_masks_of_other_sizes(impl, draw):
    """Window masks for no query, one key, and windows as long as the queries or the keys."""
    drawn = [(int(q), int(q + more), int(window) + 1) for q, more, window in draw.ints(6, 4, 3)]
    return {str(sizes): impl.sliding_window_mask(*sizes)
            for sizes in ((0, 4, 2), (1, 1, 1), (3, 8, 3), (3, 8, 8), (3, 8, 6), *drawn)}


def test_mask_that_does_not_fit(impl, draw):
    """A mask with too few columns, with too many rows or few, or for other heads, is a ValueError naming mask."""
    x, q, k = draw(2, 5, 8), draw(2, 4, 5, 2), draw(2, 2, 5, 2)
    said = {}
    for shape in ((5, 3), (5, 4), (2, 2, 5, 5)):
        mask = torch.ones(*shape, dtype=torch.bool, device=draw.device)
        said[f"function, {shape}"] = raises(
            ValueError, lambda: impl.grouped_attention(q, k, k, mask), names="mask")
        layer = draw.fill(impl.GroupedQueryAttention(8, 4, 2))
        said[f"module, {shape}"] = raises(ValueError, lambda: layer(x, mask=mask), names="mask")
    q_len = 2 + int(draw.ints(3))
    for rows in range(1, 7):        # a mask for all keys has more rows than there are queries
        mask = draw.ints(2, rows, 6) == 1

        def attend(mask=mask):
            layer.attend(draw(1, 4, q_len, 2), draw(1, 2, 6, 2), draw(1, 2, 6, 2), mask)
        said[f"{q_len} queries, {rows} rows"] = accepts(attend) if rows in (1, q_len) \
            else raises(ValueError, attend, names="mask")
    return said


def test_rope_of_another_size(impl, draw):
    """A rope for a smaller head_dim is refused as one for a larger is, when the module is made."""
    head_dim, said = 4 + 2 * int(draw.ints(4)), {}
    for n in range(2, 14, 2):
        def make(n=n):
            impl.GroupedQueryAttention(7, 2, 1, head_dim, rope=_rope(impl, n, 8))
        said[f"head_dim {head_dim}, rope for {n}"] = accepts(make) if n == head_dim \
            else raises(ValueError, make, names="rope")
    return said


def test_wrong_width(impl, draw):
    """An x that does not end in d_model features raises a ValueError."""
    layer = impl.GroupedQueryAttention(8, 4, 2)
    return raises(ValueError, lambda: layer(draw(2, 5, 6)))


@dtypes("float16", "bfloat16")
def test_dtype_of_q(impl, draw, dtype):
    """Queries of half precision with keys and values in float32: the answer has the dtype of q."""
    q, k, v = draw(4, 3, 4).to(dtype), draw(2, 5, 4), draw.uniform(2, 5, 4)
    mask = draw.ints(2, 3, 5) == 1
    mask[..., 0] = True
    return {"no mask": impl.grouped_attention(q, k, v), "masked": impl.grouped_attention(q, k, v, mask)}


@points(2)
def test_module_of_views(impl, draw):
    """x may be a view with axes swapped; so may the q, k and v that attend is given."""
    layer = draw.fill(impl.GroupedQueryAttention(8, 4, 2, qk_norm=True, window=3))
    q, k, v = (draw(2, 5, n, 2).transpose(1, 2) for n in (4, 2, 2))
    return {"batch and seq": layer(draw(5, 2, 8).transpose(0, 1)),
            "seq and features": layer(draw(2, 8, 5).mT),
            "every other token": layer(draw(2, 10, 8)[:, ::2]), "attend": layer.attend(q, k, v)}


def test_sizes_of_one(impl, draw):
    """One feature, one head, a head of one feature, a window of one."""
    return {str(sizes): draw.fill(impl.GroupedQueryAttention(*sizes, window=1))(
                draw(1, seq, sizes[0]))
            for sizes, seq in (((1, 1, 1), 2), ((4, 1, 1, 1), 3), ((1, 2, 1, 3), 2), ((4, 4, 4), 3))}


def test_moves_with_the_module(impl, draw):
    """The state dict has the names that checkpoints use, and moves as one; RoPE adds nothing."""
    layer = impl.GroupedQueryAttention(8, 4, 2, head_dim=6, qk_norm=True, qkv_bias=True, o_bias=True,
                                       rope=_rope(impl, 6, 8), window=3)
    return _shapes(layer.to("meta"))
