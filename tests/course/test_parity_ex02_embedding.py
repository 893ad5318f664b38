"""Chapter 02 against torch's own embedding and the tied GPT-2 of transformers."""

import pytest
import torch
from solutions import ex02_embedding as ours
from torch import nn
from torch.nn import functional as F

SHAPES = [(), (1,), (7,), (2, 5), (2, 1, 3), (2, 0)]


@pytest.mark.parametrize("ids_dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_lookup_and_gradient(shape, dtype, ids_dtype):
    torch.manual_seed(0)
    mine, theirs = ours.Embedding(11, 6, dtype=dtype), nn.Embedding(11, 6, dtype=dtype)
    theirs.load_state_dict(mine.state_dict())
    ids = torch.randint(11, shape).to(ids_dtype)
    grad_out = torch.randn(*shape, 6).to(dtype)
    rows, expected = mine(ids), theirs(ids)
    assert rows.shape == expected.shape and rows.dtype == dtype and torch.equal(rows, expected)
    expected.backward(grad_out)
    grad = ours.embedding_backward(ids, grad_out, 11)
    torch.testing.assert_close(grad, theirs.weight.grad)
    rows.backward(grad_out)
    torch.testing.assert_close(mine.weight.grad, theirs.weight.grad)


def test_scalar_id_gives_a_copy():
    """weight[id] of a scalar id is a view: writing to it would change the table."""
    table = ours.Embedding(5, 3)
    with torch.no_grad():
        vector = table(torch.tensor(2))
        vector.zero_()
    assert table.weight[2].abs().sum() > 0


def test_backward_against_autograd_in_float64():
    ids = torch.tensor([[0, 3, 3], [3, 1, 0]])
    weight = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    grad_out = torch.randn(2, 3, 4, dtype=torch.float64)
    expected, = torch.autograd.grad(F.embedding(ids, weight), weight, grad_out)
    torch.testing.assert_close(ours.embedding_backward(ids, grad_out, 5), expected)


def test_backward_sums_many_half_precision_gradients():
    grad_out = (1 + torch.rand(5000, 8)).bfloat16()
    exact = grad_out.double().sum(0)
    ours_sum = ours.embedding_backward(torch.zeros(5000, dtype=torch.int64), grad_out, 1)[0]
    torch.testing.assert_close(ours_sum.double(), exact, rtol=2**-8, atol=0)


@pytest.mark.parametrize("bias", [False, True])
def test_unembedding_is_a_linear(bias):
    mine, theirs = ours.Unembedding(6, 11, bias=bias), nn.Linear(6, 11, bias=bias)
    theirs.load_state_dict(mine.state_dict())
    x = torch.randn(2, 3, 6)
    torch.testing.assert_close(mine(x), theirs(x))


def test_tied_as_gpt2_is():
    """transformers' GPT-2 has one table too, and the gradient of both uses in it."""
    from transformers import GPT2Config, GPT2LMHeadModel
    torch.manual_seed(0)
    gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=8, n_layer=0, n_head=2, n_positions=16)).eval()
    embedding, unembedding = ours.Embedding(50, 8), ours.Unembedding(8, 50)
    embedding.load_state_dict({"weight": gpt2.transformer.wte.weight.detach()})
    unembedding.tie(embedding)
    ids = torch.randint(50, (2, 7))
    hidden = embedding(ids) + gpt2.transformer.wpe.weight[:7].detach()
    logits = unembedding(gpt2.transformer.ln_f(hidden))
    expected = gpt2(ids).logits
    torch.testing.assert_close(logits, expected)
    seed = torch.randn_like(logits)
    logits.backward(seed)
    expected.backward(seed)
    torch.testing.assert_close(embedding.weight.grad, gpt2.transformer.wte.weight.grad)


def test_initial_spread_is_gpt2s():
    """Both start with 0.02; ours is cut at 3σ, which takes 1.3 % off."""
    from transformers import GPT2Config, GPT2LMHeadModel
    torch.manual_seed(0)
    gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=2000, n_embd=64, n_layer=0, n_head=2))
    assert gpt2.transformer.wte.weight.std().item() == pytest.approx(0.02, rel=0.01)
    assert ours.Embedding(2000, 64).weight.std().item() == pytest.approx(0.02 * 0.9867, rel=0.01)


def test_what_tying_saves_in_gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel
    with torch.device("meta"):
        tied = GPT2LMHeadModel(GPT2Config())
        embedding, unembedding = ours.Embedding(50_257, 768), ours.Unembedding(768, 50_257)
    unembedding.tie(embedding)
    assert sum(p.numel() for p in tied.parameters()) == 124_439_808
    assert tied.lm_head.weight is tied.transformer.wte.weight
    assert unembedding.weight.numel() == 38_597_376
    assert sum(p.numel() for p in nn.ModuleList([embedding, unembedding]).parameters()) == 38_597_376


@pytest.mark.parametrize("name, config, vocab, d_model, tied", [
    ("GPT2Config", {}, 50_257, 768, True),
    ("LlamaConfig", {}, 32_000, 4096, False),
    ("Qwen3Config", {}, 151_936, 4096, False),
    ("DeepseekV3Config", {}, 129_280, 7168, False),
])
def test_table_of_real_models(name, config, vocab, d_model, tied):
    """Sizes that the lesson states and that transformers' defaults can confirm."""
    import transformers
    made = getattr(transformers, name)(**config)
    assert (made.vocab_size, made.hidden_size, made.tie_word_embeddings) == (vocab, d_model, tied)
