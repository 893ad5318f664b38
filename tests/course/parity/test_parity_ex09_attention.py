"""Chapter 09 against torch's own attention: F.scaled_dot_product_attention and nn.MultiheadAttention."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from solutions.ex00_shapes import split_heads
from solutions.ex07_rope import RoPE
from solutions.ex09_attention import (
    MultiHeadAttention,
    attention_weights,
    causal_mask,
    scaled_dot_product_attention,
)
from tests.course.close import assert_close

WIDTH, HEADS = 24, 3
FLOAT64 = pytest.mark.usefixtures("float64")


def random_mask(*shape):
    """About half of it True; every query may look at key 0."""
    mask = torch.rand(*shape) < 0.5
    mask[..., 0] = True
    return mask


def both(inputs, mine, theirs):
    """Outputs and gradients of two functions of the same inputs are close."""
    copies = [[x.clone().requires_grad_() for x in inputs] for _ in "ab"]
    outs = mine(*copies[0]), theirs(*copies[1])
    assert_close(*outs)
    pull = torch.randn_like(outs[0])
    # as one row: a query that sees one key has no gradient
    grads = [torch.autograd.grad((out * pull).sum(), xs) for out, xs in zip(outs, copies)]
    assert_close(*map(list, grads))


@FLOAT64
@pytest.mark.parametrize("q_len, k_len", [(5, 5), (1, 7), (4, 7), (64, 64)])
@pytest.mark.parametrize("shape", [None, "q k", "batch 1 1 k", "1 heads q k", "batch heads q k"])
def test_attention_is_torchs(q_len, k_len, shape):
    torch.manual_seed(0)
    sizes = {"batch": 2, "heads": 3, "q": q_len, "k": k_len, "1": 1}
    mask = None if shape is None else random_mask(*(sizes[name] for name in shape.split()))
    q, k, v = torch.randn(2, 3, q_len, 16), torch.randn(2, 3, k_len, 16), torch.randn(2, 3, k_len, 8)
    both((q, k, v), lambda *qkv: scaled_dot_product_attention(*qkv, mask),
         lambda *qkv: F.scaled_dot_product_attention(*qkv, attn_mask=mask))


@FLOAT64
def test_causal_is_torchs_is_causal():
    torch.manual_seed(0)
    both(torch.randn(3, 2, 4, 33, 16), lambda *qkv: scaled_dot_product_attention(*qkv, causal_mask(33)),
         lambda *qkv: F.scaled_dot_product_attention(*qkv, is_causal=True))


def test_mask_aligned_to_the_end_is_torchs_lower_right_bias():
    from torch.nn.attention.bias import causal_lower_right
    for q_len, k_len in itertools.combinations_with_replacement(range(1, 9), 2):
        theirs = causal_lower_right(q_len, k_len)._materialize()
        assert torch.equal(causal_mask(q_len, k_len), theirs.bool())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_nearer_to_the_exact_answer_than_torchs(dtype):
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, 50, 64).to(dtype)
    exact = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True)
    mine = scaled_dot_product_attention(q, k, v, causal_mask(50))
    theirs = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert mine.dtype == theirs.dtype == dtype
    assert_close(mine, exact)
    assert (mine - exact).abs().mean() <= 1.01 * (theirs - exact).abs().mean()


@FLOAT64
def test_query_that_sees_nothing_is_torchs_zeros():
    """torch gives zeros on CPU as well (2.5 and later); gradients are finite in both."""
    torch.manual_seed(0)
    mask = random_mask(6, 6)
    mask[[0, 3]] = False
    q, k, v = (torch.randn(2, 6, 8, requires_grad=True) for _ in range(3))
    out = scaled_dot_product_attention(q, k, v, mask)
    assert_close(out, F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
    out.square().sum().backward()
    assert not out[:, [0, 3]].any() and not q.grad[:, [0, 3]].any()
    assert all(x.grad.isfinite().all() for x in (q, k, v))


@pytest.mark.parametrize("masked", [False, True])
def test_gradients_against_finite_differences(masked):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True) for _ in range(3))
    mask = None
    if masked:
        mask = random_mask(4, 4)
        mask[1] = False
    assert torch.autograd.gradcheck(lambda *qkv: scaled_dot_product_attention(*qkv, mask), (q, k, v))


# -- nn.MultiheadAttention

def twins(bias, **options):
    """Ours and torch's, with the same random weights. torch keeps q, k and v in one tensor."""
    torch.manual_seed(0)
    mine = MultiHeadAttention(WIDTH, HEADS, bias=bias, **options)
    theirs = nn.MultiheadAttention(WIDTH, HEADS, bias=bias, batch_first=True,
                                   dropout=options.get("dropout", 0.0))
    with torch.no_grad():
        for p in mine.parameters():
            p.normal_(std=0.3)
        projections = (mine.q_proj, mine.k_proj, mine.v_proj)
        theirs.in_proj_weight.copy_(torch.cat([p.weight for p in projections]))
        theirs.out_proj.weight.copy_(mine.o_proj.weight)
        if bias:
            theirs.in_proj_bias.copy_(torch.cat([p.bias for p in projections]))
            theirs.out_proj.bias.copy_(mine.o_proj.bias)
    return mine, theirs


def their_mask(mask):
    """torch wants (batch · heads, q, k) or (q, k), and True = may NOT look."""
    return None if mask is None else ~mask if mask.ndim == 2 else ~mask.flatten(0, 1)


def parameter_gradients(mine, theirs):
    """Pairs of gradients: what torch keeps in one tensor is cut in three."""
    ours = (mine.q_proj, mine.k_proj, mine.v_proj)
    pairs = list(zip([p.weight.grad for p in ours], theirs.in_proj_weight.grad.chunk(3)))
    pairs.append((mine.o_proj.weight.grad, theirs.out_proj.weight.grad))
    if mine.o_proj.bias is not None:
        pairs += zip([p.bias.grad for p in ours], theirs.in_proj_bias.grad.chunk(3))
        pairs.append((mine.o_proj.bias.grad, theirs.out_proj.bias.grad))
    return pairs


@FLOAT64
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("context_len", [None, 3, 9])
@pytest.mark.parametrize("shape", [None, "q k", "batch heads q k"])
def test_module_is_torchs(bias, context_len, shape):
    mine, theirs = twins(bias)
    x = torch.randn(2, 5, WIDTH)
    context = None if context_len is None else torch.randn(2, context_len, WIDTH)
    sizes = {"batch": 2, "heads": HEADS, "q": 5, "k": context_len or 5}
    mask = None if shape is None else random_mask(*(sizes[name] for name in shape.split()))

    def of_theirs(x, context=None):
        source = x if context is None else context
        return theirs(x, source, source, attn_mask=their_mask(mask), need_weights=False)[0]

    inputs = (x,) if context is None else (x, context)
    both(inputs, lambda *xs: mine(*xs, mask=mask), of_theirs)
    pull = torch.randn(2, 5, WIDTH)
    (mine(*inputs, mask=mask) * pull).sum().backward()
    (of_theirs(*inputs) * pull).sum().backward()
    assert_close(*map(list, zip(*parameter_gradients(mine, theirs))))      # one row: a key's bias has no gradient


@FLOAT64
def test_padding_and_causality_together_are_torchs():
    mine, theirs = twins(True, causal=True)
    x, real = torch.randn(2, 6, WIDTH), torch.arange(6) < torch.tensor([[6], [4]])
    expected, _ = theirs(x, x, x, key_padding_mask=~real, attn_mask=~causal_mask(6))
    assert_close(mine(x, mask=real[:, None, None]), expected)


@FLOAT64
def test_weights_are_those_that_torch_returns():
    mine, theirs = twins(True)
    x, context, mask = torch.randn(2, 5, WIDTH), torch.randn(2, 7, WIDTH), random_mask(5, 7)
    _, expected = theirs(x, context, context, attn_mask=~mask, average_attn_weights=False)
    found = attention_weights(split_heads(mine.q_proj(x), HEADS), split_heads(mine.k_proj(context), HEADS),
                              mask)
    assert_close(found, expected)


def test_dropout_is_torchs_in_eval_and_on_average_in_training():
    mine, theirs = twins(False, dropout=0.3)
    x = torch.randn(1, 6, WIDTH)
    exact = mine.eval()(x)
    assert_close(exact, theirs.eval()(x, x, x)[0])
    many = x.expand(4_000, 6, WIDTH)
    with torch.no_grad():
        moments = [(out.mean(0), out.std(0)) for out in (mine.train()(many), theirs.train()(many, many, many)[0])]
    torch.testing.assert_close(moments[0][0], exact[0], rtol=0, atol=0.1)      # of 4,000 random draws
    torch.testing.assert_close(moments[0][1], moments[1][1], rtol=0.1, atol=0.01)


def test_rope_scores_do_not_change_when_all_positions_move():
    """Only distances count, so a shift changes nothing, unless the values were turned as well."""
    torch.manual_seed(0)
    layer = MultiHeadAttention(WIDTH, HEADS, rope=RoPE(8, 512), causal=True)
    x, at = torch.randn(2, 7, WIDTH), torch.arange(7)
    plain = layer(x)
    assert_close(layer(x, positions=at + 400), plain)
    assert_close(layer(x, positions=torch.stack([at, at + 9])), plain)
    assert (layer(x, positions=at * 2) - plain).abs().max() > 1e-2
