"""What only instructors ask of lesson 17."""

import torch

from grader import dtypes, needs, points, raises


def _inputs(draw, *batch, heads=2, kv_heads=1, q_len=5, k_len=6, head_dim=3, value_dim=2):
    return (draw(*batch, heads, q_len, head_dim), draw(*batch, kv_heads, k_len, head_dim),
            draw(*batch, kv_heads, k_len, value_dim))


def _through(impl, leaves, pull, *options):
    """out and the gradients of the autograd function, each as one row: some queries have next to none."""
    leaves = [x.detach().requires_grad_() for x in leaves]
    out = impl.FlashAttention.apply(*leaves, *options)
    return [out, *(grad.flatten() for grad in torch.autograd.grad((out * pull).sum(), leaves))]


@points(2)
def test_batch_axes(impl, draw):
    """Any number of batch axes, none too, forward, backward and in pieces."""
    said = {}
    for batch in ((), (3,), (2, 1, 2)):
        q, k, v = _inputs(draw, *batch, k_len=9)
        said[f"forward {batch}"] = list(impl.flash_attention(q, k, v, True, 2, 2))
        said[f"backward {batch}"] = _through(impl, (q, k, v), draw(*batch, 2, 5, 2), True, 2, 2)
        said[f"pieces {batch}"] = list(impl.split_decode(q, k, v, 3))
        parts = [draw(*batch, *shape) for shape in ((4, 2), (4,), (4, 2), (4,))]
        said[f"merge {batch}"] = list(impl.merge(*parts))
    return said


@points(2)
def test_views(impl, draw):
    """q, k, v and the gradient of out may be views of any strides, and stay as they were."""
    q, k, v = (draw(2, n, 4, 6).transpose(1, 2) for n in (7, 9, 9))
    kept = [x.clone() for x in (q, k, v)]
    pull = draw(6, 7, 4, 2).permute(3, 2, 1, 0)
    said = {"forward": list(impl.flash_attention(q, k, v, True, 4, 4)), "backward": _through(impl, (q, k, v), pull),
            "a gradient of ones": _through(impl, (q, k, v), q.new_ones(()).expand(2, 4, 7, 6), False, 2, 4),
            "mT": list(impl.flash_attention(q.mT, k[..., :7, :].mT, v[..., :7, :].mT, False, 2, 2))}
    return said | {"untouched": [bool(torch.equal(x, y)) for x, y in zip((q, k, v), kept)]}


@points(2)
def test_sizes_of_one(impl, draw):
    """One token, one head, one feature, blocks of 1 and blocks far larger than the text."""
    said = {}
    for sizes in ((1, 1, 1, 1), (1, 4, 1, 3), (3, 3, 2, 1)):
        q_len, k_len, head_dim, value_dim = sizes
        q, k, v = _inputs(draw, 3, heads=1, q_len=q_len, k_len=k_len, head_dim=head_dim, value_dim=value_dim)
        for block in (1, 1000):
            said[f"{sizes}, {block}"] = _through(impl, (q, k, v), draw(3, 1, q_len, value_dim), True, block, block)
    return said


@points(2)
def test_every_block(impl, draw):
    """out, lse and the gradients are the same for all blocks."""
    q, k, v = _inputs(draw, 1, q_len=7, k_len=11)
    pull = draw(1, 2, 7, 2)
    return {f"{block_q}, {block_k}": [*impl.flash_attention(q, k, v, True, block_q, block_k),
                                      *_through(impl, (q, k, v), pull, True, block_q, block_k)]
            for block_q in (2, 3, 7) for block_k in (1, 4, 11)}


@points(2)
def test_wide_scores(impl, draw):
    """Scores from −200 to 200 forward, and from −100 to 100 backward, in no order; and all below −25,000."""
    q, k, v = draw(2, 2, 9, 4, scale=20).round(), draw(2, 2, 13, 4, scale=20).round(), draw(2, 2, 13, 4)
    below = -100 - draw.ints(2048, 2, 2, 13, 1).to(draw.float) / 256       # with q = 256, whole numbers
    return {"forward": list(impl.flash_attention(q / 8, k, v, False, 4, 4)),
            "below": list(impl.flash_attention(torch.full_like(q[..., :1], 256), below, v, False, 4, 4)),
            "grad of v": _through(impl, (q / 16, k, v), draw(2, 2, 9, 4), False, 4, 4)[3]}


@points(2)
def test_blind_queries_through_autograd(impl, draw):
    """With more queries than keys and causal, gradients stay finite, and are zeros for blind queries."""
    q, k, v = _inputs(draw, 2, heads=4, kv_heads=2, q_len=9, k_len=4)
    return {str(blocks): _through(impl, (q, k, v), draw(2, 4, 9, 2), True, *blocks)
            for blocks in ((2, 3), (5, 2), (16, 16))}


def test_only_some_gradients(impl, draw):
    """Only one of q, k and v may need a gradient; a second backward pass over a new graph gives the same."""
    said = {}
    for number, name in enumerate("qkv"):
        leaves = list(_inputs(draw, 1))
        leaves[number] = leaves[number].requires_grad_()
        out = impl.FlashAttention.apply(*leaves, False, 2, 4)
        out.sum().backward()
        said[name] = [leaves[number].grad, *(x.grad is None for x in leaves)]
    return said


@dtypes("bfloat16", "float16")
def test_function_in_half_precision(impl, draw, dtype):
    """The autograd function in half precision: dtypes, and values up to rounding."""
    q, k, v = (x.to(dtype) for x in _inputs(draw, 1, heads=2, q_len=6, k_len=20, head_dim=8, value_dim=8))
    return _through(impl, (q / 2, k, v), draw(1, 2, 6, 8).to(dtype), False, 4, 4)


def test_backward_of_two_dtypes(impl, draw):
    """The backward pass takes a float32 q as it is, beside k and v of bfloat16, as the forward pass did."""
    q, k, v = _inputs(draw, 1)
    k, v = (x.to(torch.bfloat16) for x in (k, v))
    return _through(impl, (3 * q, k, v), draw(1, 2, 5, 2), False, 2, 4)


def test_lse_of_half_precision(impl, draw):
    """lse is float32 for half precision and float64 for float64, as are the pieces' sums."""
    said = {}
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        q, k, v = (x.to(dtype) for x in _inputs(draw, 1))
        said[str(dtype)] = [*impl.flash_attention(q, k, v), *impl.split_decode(q, k, v, 2)]
    return said


def test_pieces_of_several_queries(impl, draw):
    """split_decode over several queries, all of which see all keys, at large scores."""
    q, k, v = _inputs(draw, 2, heads=6, kv_heads=3, q_len=4, k_len=17, head_dim=4)
    q, k = (32 * q).round(), (8 * k).round() / 8
    return {str(splits): list(impl.split_decode(q, k, v, splits)) for splits in (2, 5, 16)}


def test_bad_arguments_of_the_others(impl, draw):
    """The backward pass, the autograd function and the pieces refuse what flash_attention refuses."""
    q, k, v = _inputs(draw, 1, heads=3, kv_heads=2)
    out, lse, bad = draw(1, 3, 5, 2), draw(1, 3, 5), -1 - int(draw.ints(20))
    backward, one = impl.flash_attention_backward, (q, k[:, :1], v[:, :1])
    return {"backward": raises(ValueError, lambda: backward(q, k, v, out, lse, out), "kv_heads"),
            f"block of {bad}": raises(ValueError, lambda: backward(*one, out, lse, out, False, bad, 4), "block_q"),
            "apply": raises(ValueError, lambda: impl.FlashAttention.apply(q, k, v), "kv_heads"),
            "apply's block": raises(ValueError, lambda: impl.FlashAttention.apply(*one, False, bad, 4), "block_q"),
            "pieces": raises(ValueError, lambda: impl.split_decode(q, k, v, 2), "kv_heads"),
            "splits": [raises(ValueError, lambda: impl.split_decode(*one, splits), "splits") for splits in (0, bad)]}


def test_merge_infinite_differences(impl, draw):
    """Some rows of a part are empty and others are not, on either side."""
    out1, out2, lse1, lse2 = draw(2, 6, 3), draw(2, 6, 3), draw(2, 6).clone(), draw(2, 6, scale=100).clone()
    lse1[0, :3], lse2[0, 2:5] = -torch.inf, -torch.inf
    out1, out2 = (out.masked_fill((lse == -torch.inf).unsqueeze(-1), 0) for out, lse in ((out1, lse1), (out2, lse2)))
    return list(impl.merge(out1, lse1, out2, lse2))


@points(2)
@needs("triton")
def test_kernel_of_views(impl, draw):
    """The kernel on views, with grouped heads, batches and odd sizes, causal and not."""
    q, k = draw(2, 21, 4, 6).transpose(1, 2), draw(2, 37, 2, 6).transpose(1, 2)
    v = draw(2, 5, 37, 2).permute(0, 3, 2, 1)
    return {str(causal): list(impl.flash_kernel(q, k, v, causal, 16, 32)) for causal in (False, True)}


@needs("triton")
def test_kernel_blind_queries(impl, draw):
    """More queries than keys, so that whole tiles see nothing; and no key at all."""
    return {"causal": list(impl.flash_kernel(*_inputs(draw, 1, q_len=40, k_len=3), True, 16, 16)),
            "no keys": list(impl.flash_kernel(*_inputs(draw, 1, k_len=0), False, 16, 16))}


@needs("triton")
def test_kernel_in_other_blocks(impl, draw):
    """Tiles that are wide or high, under a text and over it."""
    q, k, v = _inputs(draw, 1, q_len=33, k_len=50, head_dim=20, value_dim=17)
    return {str(blocks): list(impl.flash_kernel(q, k, v, True, *blocks)) for blocks in ((16, 64), (64, 16), (32, 32))}
