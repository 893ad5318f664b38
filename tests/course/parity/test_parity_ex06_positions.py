"""Chapter 06 against T5's buckets, BLOOM's and MPT's ALiBi, and encodings by `transformers`."""

import pytest
import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention, T5Config

from solutions import ex06_positions as ours
from tests.course.close import assert_close

HEADS = [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 25, 32, 40, 63, 64, 71, 112]


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("num_buckets, max_distance", [(32, 128), (32, 20), (8, 30), (6, 1000),
                                                       (33, 128), (64, 64), (128, 800)])
def test_t5_buckets(num_buckets, max_distance, bidirectional):
    distance = torch.arange(-3000, 3001)
    expected = T5Attention._relative_position_bucket(
        distance, bidirectional=bidirectional, num_buckets=num_buckets, max_distance=max_distance)
    found = ours.t5_bucket(distance, num_buckets, max_distance, bidirectional)
    assert torch.equal(found, expected) and found.dtype == torch.int64


@pytest.mark.parametrize("is_decoder", [True, False])
def test_t5_bias(is_decoder):
    """The buckets of our distances, looked up in T5's own table, are T5's own bias."""
    config = T5Config(d_model=16, num_heads=4, d_kv=4, is_decoder=is_decoder)
    attention = T5Attention(config, has_relative_attention_bias=True)
    buckets = ours.t5_bucket(ours.relative_distance(9, 9), bidirectional=not is_decoder)
    table = attention.relative_attention_bias.weight
    assert torch.equal(table[buckets].permute(2, 0, 1)[None], attention.compute_bias(9, 9))


@pytest.mark.parametrize("heads", HEADS)
def test_alibi_slopes_are_blooms(heads):
    theirs = build_alibi_tensor(torch.ones(1, 2, dtype=torch.int64), heads, torch.float32)
    assert_close(ours.alibi_slopes(heads), theirs[:, 0, 1])   # slope · position 1


@pytest.mark.parametrize("heads", HEADS)
def test_alibi_bias_gives_blooms_attention(heads):
    """BLOOM's bias grows along the keys; each row differs from ours by a constant."""
    theirs = build_alibi_tensor(torch.ones(1, 7, dtype=torch.int64), heads, torch.float32)
    hidden = ours.relative_distance(4, 7) > 0
    scores = torch.randn(heads, 4, 7, generator=torch.Generator().manual_seed(0))
    mine = (scores + ours.alibi_bias(heads, 4, 7)).masked_fill(hidden, -torch.inf).softmax(-1)
    its = (scores + theirs).masked_fill(hidden, -torch.inf).softmax(-1)
    assert_close(mine, its)


@pytest.mark.parametrize("heads", HEADS)
def test_alibi_last_row_is_mpts(heads):
    """MPT's bias is that of the newest query."""
    theirs = build_mpt_alibi_tensor(heads, 9)
    assert_close(ours.alibi_bias(heads, 1, 9), theirs)


@pytest.mark.parametrize("seq_len, d_model", [(1, 4), (50, 8), (12, 512)])
def test_sinusoids_are_two_libraries_up_to_order_and_base(seq_len, d_model):
    """M2M-100 puts all sines first and divides by d/2 − 1: another order, another base."""
    theirs = M2M100SinusoidalPositionalEmbedding.get_embedding(seq_len, d_model)
    half = d_model // 2
    found = ours.sinusoidal_encoding(seq_len, d_model, base=10_000 ** (half / (half - 1)))
    assert_close(torch.cat([found[:, 0::2], found[:, 1::2]], 1), theirs)


@pytest.mark.parametrize("base", [10_000, 100.0])
def test_sinusoids_are_the_papers_formula(base):
    position, feature = torch.meshgrid(torch.arange(60), torch.arange(64), indexing="ij")
    angle = position.double() / base ** (2 * (feature // 2) / 64)
    expected = torch.where(feature % 2 == 0, angle.sin(), angle.cos())
    assert_close(ours.sinusoidal_encoding(60, 64, base), expected)


def test_learned_positions_are_torchs_embedding():
    torch.manual_seed(0)
    theirs = torch.nn.Embedding(16, 6)
    mine = ours.LearnedPositions(16, 6)
    mine.load_state_dict(theirs.state_dict())
    positions = torch.tensor([[0, 0, 1, 2], [5, 6, 7, 15]])
    assert torch.equal(mine(positions), theirs(positions))
    grad_out = torch.randn(2, 4, 6)
    mine(positions).backward(grad_out)
    theirs(positions).backward(grad_out)
    assert_close(mine.weight.grad, theirs.weight.grad)
