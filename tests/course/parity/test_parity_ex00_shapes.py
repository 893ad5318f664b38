"""Chapter 00 against torch, numpy and transformers."""

import itertools
import math

import numpy
import pytest
import torch
from torch import nn

from solutions import ex00_shapes as ex
from tests.course.close import assert_close


@pytest.mark.parametrize("rank", range(5))
def test_strides_are_those_of_torch_and_numpy(rank):
    for shape in itertools.product((1, 2, 3, 5), repeat=rank):
        assert ex.row_major_strides(shape) == torch.empty(shape).stride()
        bytes_apart = numpy.empty(shape, dtype=numpy.float64).strides
        assert ex.row_major_strides(shape) == tuple(step // 8 for step in bytes_apart)


def test_strides_find_every_number():
    x = torch.randn(2, 3, 4, 5)
    line, strides = x.flatten(), ex.row_major_strides(x.shape)
    for index in itertools.product(*map(range, x.shape)):
        assert line[sum(i * step for i, step in zip(index, strides))] == x[index]


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
@pytest.mark.parametrize("heads", [1, 3, 4, 12])
def test_heads_are_those_of_transformers(batch, heads):
    """GPT-2's and Llama's attention cut features so: view(..., -1, head_dim).transpose(1, 2)."""
    x = torch.randn(*batch, 5, 12)
    theirs = x.view(*batch, 5, -1, 12 // heads).transpose(-3, -2)
    ours = ex.split_heads(x, heads)
    assert torch.equal(ours, theirs)
    assert ours.data_ptr() == x.data_ptr()
    assert torch.equal(ex.merge_heads(ours), x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_pairwise_dot_is_a_matrix_product(dtype):
    q, k = torch.randn(2, 3, 5, 8).to(dtype), torch.randn(2, 3, 7, 8).to(dtype)
    found = ex.pairwise_dot(q, k)
    assert_close(found, q.double() @ k.double().mT)
    assert_close(found, torch.einsum("bhqd,bhkd->bhqk", q.double(), k.double()))


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_they_make_multi_head_attention(heads):
    """Split, dot, softmax, average, merge: torch.nn.MultiheadAttention, its weights copied."""
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(16, heads, batch_first=True)
    x = torch.randn(2, 5, 16)
    qkv = nn.functional.linear(x, theirs.in_proj_weight, theirs.in_proj_bias)
    q, k, v = (ex.split_heads(part, heads) for part in qkv.chunk(3, dim=-1))
    weights = (ex.pairwise_dot(q, k) / math.sqrt(16 / heads)).softmax(-1)
    ours = theirs.out_proj(ex.merge_heads(weights @ v))
    assert_close(ours, theirs(x, x, x)[0])


def test_they_make_gpt2s_attention():
    """The same inside transformers' GPT-2, whose one fused weight holds q, k and v side by side."""
    from transformers import GPT2Config
    from transformers.models.gpt2.modeling_gpt2 import GPT2Attention

    torch.manual_seed(0)
    config = GPT2Config(n_embd=24, n_head=3, n_layer=1, n_positions=8, attn_implementation="eager",
                        attn_pdrop=0.0, resid_pdrop=0.0)
    theirs = GPT2Attention(config, layer_idx=0).eval()
    x = torch.randn(2, 5, 24)
    q, k, v = (ex.split_heads(part, 3) for part in theirs.c_attn(x).chunk(3, dim=-1))
    scores = ex.pairwise_dot(q, k) / math.sqrt(8)
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(future, -torch.inf).softmax(-1)
    ours = theirs.c_proj(ex.merge_heads(weights @ v))
    mask = torch.zeros(1, 1, 5, 5).masked_fill(future, -torch.inf)
    assert_close(ours, theirs(x, attention_mask=mask)[0])
