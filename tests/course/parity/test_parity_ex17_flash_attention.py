"""Chapter 17 against torch's fused attention, against autograd, and its kernel where Triton is installed."""

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from solutions.ex09_attention import causal_mask
from solutions.ex10_grouped_query_attention import GroupedQueryAttention
from solutions.ex11_kv_cache import CachedAttention
from solutions.ex13_transformer import ModelConfig, Transformer, make_caches
from solutions.ex17_flash_attention import (
    FlashAttention,
    flash_attention,
    flash_attention_backward,
    flash_kernel,
    merge,
    split_decode,
)
from tests.course.close import assert_as_near, assert_close

# heads, kv_heads, queries, keys, head_dim, value_dim, causal, block_q, block_k
CASES = [(4, 4, 65, 65, 16, 16, False, 64, 64), (4, 2, 130, 130, 16, 16, True, 64, 64),
         (6, 1, 37, 53, 8, 5, True, 16, 8), (2, 2, 1, 100, 8, 8, True, 16, 16),
         (2, 1, 60, 20, 8, 8, True, 16, 16), (3, 3, 20, 7, 4, 4, False, 8, 3)]
EVERY_CASE = pytest.mark.parametrize("case", CASES, ids=str)


def given(case, dtype=torch.float32, batch=2):
    heads, kv_heads, q_len, k_len, head_dim, value_dim, *options = case
    torch.manual_seed(0)
    sizes = (heads, q_len, head_dim), (kv_heads, k_len, head_dim), (kv_heads, k_len, value_dim)
    return [torch.randn(batch, *size, dtype=dtype) for size in sizes], options


def torchs(q, k, v, causal):
    """F.scaled_dot_product_attention with our alignment; its rows of nothing are zeros as well."""
    mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril(k.shape[-2] - q.shape[-2]) if causal else None
    return F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)


def scores_of(q, k, causal):
    scores = q @ k.repeat_interleave(q.shape[-3] // k.shape[-3], -3).mT / q.shape[-1] ** 0.5
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(k.shape[-2] - q.shape[-2])
        scores = scores.masked_fill(~seen, -torch.inf)
    return scores


@EVERY_CASE
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_forward_is_torchs(case, dtype):
    """lse is that of torch.logsumexp over all scores."""
    (q, k, v), (causal, *blocks) = given(case, dtype)
    out, lse = flash_attention(q, k, v, causal, *blocks)
    assert_close(out, torchs(q, k, v, causal))
    assert_close(lse, scores_of(q, k, causal).logsumexp(-1))


@EVERY_CASE
def test_gradients_are_torchs(case):
    """In float32, against float64's. As one row: a query that sees one key has no gradient."""
    inputs, (causal, *blocks) = given(case)
    answers, pull = [], torch.randn(2, case[0], case[2], case[5])
    for attention, dtype in ((lambda *x: FlashAttention.apply(*x, causal, *blocks), torch.float32),
                             (lambda *x: torchs(*x, causal), torch.float64)):
        leaves = [x.to(dtype, copy=True).requires_grad_() for x in inputs]
        answers.append(torch.autograd.grad(attention(*leaves), leaves, pull.to(dtype)))
    for mine, theirs in zip(*answers):
        assert_close([mine], [theirs])


@EVERY_CASE
def test_gradients_by_differences(case):
    """torch.autograd.gradcheck, in float64, which knows nothing of attention."""
    heads, kv_heads, *_, causal, block_q, block_k = case
    (q, k, v), _ = given((heads, kv_heads, 5, 4, 3, 2, causal, 2, 3), torch.float64, batch=1)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    assert torch.autograd.gradcheck(lambda *x: FlashAttention.apply(*x, causal, 2, 3), leaves)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_rounds_once(dtype):
    """out is as close to the exact one as one rounding allows, gradients are as close as torch's."""
    (q, k, v), (causal, *blocks) = given(CASES[1], dtype)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    out = FlashAttention.apply(*leaves, causal, *blocks)
    exact_leaves = [x.detach().double().requires_grad_() for x in leaves]
    exact = torchs(*exact_leaves, causal)
    pull = torch.randn(out.shape).to(dtype)
    assert_close(out, exact)
    with sdpa_kernel(SDPBackend.MATH):      # the fused one needs AVX-512 here, and says so where it is switched off
        theirs = torch.autograd.grad(torchs(*leaves, causal), leaves, pull)
    right = torch.autograd.grad(exact, exact_leaves, pull.double())
    for three in zip(torch.autograd.grad(out, leaves, pull), theirs, right):
        assert_as_near(*three)


def test_backward_equals_autograd_through_the_tiles():
    (q, k, v), options = given(CASES[2], torch.float64)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    out, lse = flash_attention(*leaves, *options)
    pull = torch.randn_like(out)
    own = flash_attention_backward(q.detach(), k.detach(), v.detach(), out.detach(), lse.detach(), pull, *options)
    for mine, theirs in zip(own, torch.autograd.grad(out, leaves, pull)):
        assert_close(mine, theirs)


@pytest.mark.parametrize("splits", [1, 2, 5, 16, 40])
def test_pieces_are_the_whole(splits):
    (q, k, v), _ = given((8, 2, 1, 33, 16, 16, False, 64, 64), torch.float64)
    for mine, theirs in zip(split_decode(q, k, v, splits), flash_attention(q, k, v)):
        assert_close(mine, theirs)
    assert_close(split_decode(q, k, v, splits)[0], torchs(q, k, v, False))


def test_merge_is_associative_and_has_a_neutral_part():
    (q, k, v), _ = given((2, 2, 3, 12, 4, 4, False, 64, 64), torch.float64)
    a, b, c = (flash_attention(q, k[..., at:at + 4, :], v[..., at:at + 4, :]) for at in (0, 4, 8))
    for one, other in zip(merge(*merge(*a, *b), *c), merge(*a, *merge(*b, *c))):
        assert_close(one, other)
    nothing = torch.zeros_like(a[0]), torch.full_like(a[1], -torch.inf)
    assert all(map(torch.equal, merge(*a, *nothing), a)) and all(map(torch.equal, merge(*nothing, *a), a))


def with_flash(layer: CachedAttention) -> None:
    """Let a layer without a window attend by FlashAttention."""
    def attend(q, k, v, mask=None):
        assert mask is None
        return layer.o_proj(FlashAttention.apply(q, k, v, True, 8, 16).transpose(1, 2).flatten(2))
    layer.attend = attend


def test_chapter_13s_model_gives_the_same():
    """Logits, gradients, and token by token with caches."""
    torch.manual_seed(0)
    config = ModelConfig(vocab_size=50, d_model=24, layers=3, heads=6, kv_heads=2, d_ff=48, max_seq_len=64)
    model, ids = Transformer(config).double(), torch.randint(50, (2, 41))

    def run():
        model.zero_grad()
        logits = model(ids)
        F.cross_entropy(logits.flatten(0, 1), ids.roll(-1, 1).flatten()).backward()
        caches = make_caches(config, 2, 41, dtype=torch.float64)
        with torch.no_grad():
            steps = [model(piece, caches=caches) for piece in ids.split([20, 1, 20], dim=1)]
        return [logits, torch.cat(steps, 1), *(p.grad.clone() for p in model.parameters())]

    plain = run()
    for block in model.blocks:
        with_flash(block.attention)
    for mine, theirs in zip(run(), plain):
        assert_close(mine, theirs)


def test_module_of_chapter_10_gives_the_same():
    torch.manual_seed(0)
    layer, x = GroupedQueryAttention(24, 6, 2), torch.randn(2, 33, 24)
    q, k, v = layer.project(x)
    out = layer.o_proj(flash_attention(q, k, v, True, 8, 8)[0].transpose(1, 2).flatten(2))
    assert_close(out, layer(x, mask=causal_mask(33)))


@EVERY_CASE
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_kernel_is_the_loop(case, dtype):
    """Interpreted on a CPU, compiled on a GPU: the numbers of flash_attention in float64."""
    pytest.importorskip("triton", reason="the kernel needs Triton: pip install -r requirements-triton.txt")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    (q, k, v), (causal, *_) = given(case, dtype, batch=1)
    found = flash_kernel(*(x.to(device) for x in (q, k, v)), causal, 32, 16)
    assert found[0].dtype == dtype and found[1].dtype == torch.float32
    exact, lse = flash_attention(q.double(), k.double(), v.double(), causal)
    assert_close(found[1], lse.to(device))
    if dtype == torch.float32:
        assert_close(found[0], exact.to(device))
    else:                   # Triton's interpreter cuts bfloat16 off where others round, which doubles the error
        assert (found[0].cpu() - exact).norm() <= torch.finfo(dtype).eps * exact.norm()


def test_without_triton_the_kernel_says_what_it_needs(monkeypatch):
    from solutions import ex17_flash_attention
    monkeypatch.setattr(ex17_flash_attention, "triton", None)
    with pytest.raises(ImportError, match=r"pip install -r requirements-triton\.txt"):
        flash_kernel(*given(CASES[0])[0])


@pytest.mark.parametrize("block", [8, 24, 0])
def test_kernel_refuses_blocks_that_no_gpu_takes(block):
    pytest.importorskip("triton", reason="the kernel needs Triton: pip install -r requirements-triton.txt")
    for name in ("block_q", "block_k"):
        with pytest.raises(ValueError, match=name):
            flash_kernel(*given(CASES[0])[0], **{name: block})
