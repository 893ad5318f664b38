"""Chapter 02 against torch's own embedding and the tied GPT-2 of transformers."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from solutions import ex02_embedding as ours
from tests.course.close import assert_close

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
    assert_close(grad, theirs.weight.grad)
    rows.backward(grad_out)
    assert_close(mine.weight.grad, theirs.weight.grad)


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
    assert_close(ours.embedding_backward(ids, grad_out, 5), expected)


def test_backward_sums_many_half_precision_gradients():
    grad_out = (1 + torch.rand(5000, 8)).bfloat16()
    exact = grad_out.double().sum(0)
    ours_sum = ours.embedding_backward(torch.zeros(5000, dtype=torch.int64), grad_out, 1)[0]
    assert_close(ours_sum, exact)


@pytest.mark.parametrize("bias", [False, True])
def test_unembedding_is_a_linear(bias):
    mine, theirs = ours.Unembedding(6, 11, bias=bias), nn.Linear(6, 11, bias=bias)
    theirs.load_state_dict(mine.state_dict())
    x = torch.randn(2, 3, 6)
    assert_close(mine(x), theirs(x))


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
    assert_close(logits, expected)
    seed = torch.randn_like(logits)
    logits.backward(seed)
    expected.backward(seed)
    assert_close(embedding.weight.grad, gpt2.transformer.wte.weight.grad)


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


REAL = {  # family, vocab, d_model, d_ff, layers, heads, kv_heads, head_dim, tied, the table, all
    "gpt2": ("GPT2LMHead", 50_257, 768, None, 12, 12, None, None, True, 38_597_376, 124_439_808),
    "llama-3.2-1b": ("Llama", 128_256, 2048, 8192, 16, 32, 8, 64, True, 262_668_288, 1_235_814_400),
    "llama-3-8b": ("Llama", 128_256, 4096, 14_336, 32, 32, 8, 128, False, 525_336_576, 8_030_261_248),
    "qwen3-0.6b": ("Qwen3", 151_936, 1024, 3072, 28, 16, 8, 128, True, 155_582_464, 596_049_920),
    "qwen3-8b": ("Qwen3", 151_936, 4096, 12_288, 36, 32, 8, 128, False, 622_329_856, 8_190_735_360),
    "gemma-3-1b": ("Gemma3", 262_144, 1152, 6912, 26, 4, 1, 256, True, 301_989_888, 999_885_952),
}


@pytest.mark.parametrize("name", REAL)
def test_table_of_real_models(name):
    """The lesson's table, from models of those sizes built without memory."""
    import transformers
    family, vocab, d_model, d_ff, layers, heads, kv_heads, head_dim, tied, table, total = REAL[name]
    if family == "GPT2LMHead":
        model_class, config = transformers.GPT2LMHeadModel, transformers.GPT2Config()
        assert (config.vocab_size, config.n_embd, config.n_layer) == (vocab, d_model, layers)
    else:
        model_class = getattr(transformers, f"{family}ForCausalLM")
        config_class = transformers.Gemma3TextConfig if family == "Gemma3" else model_class.config_class
        config = config_class(
            vocab_size=vocab, hidden_size=d_model, intermediate_size=d_ff, num_hidden_layers=layers,
            num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=head_dim,
            tie_word_embeddings=tied)
    with torch.device("meta"):
        model = model_class(config)
    weights = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    assert (weights[0] is weights[1]) == tied
    assert weights[0].numel() == table == vocab * d_model
    assert sum(p.numel() for p in model.parameters()) == total


def test_gemma_scales_what_it_looks_up():
    """Gemma 3 multiplies the rows by √d_model, as Vaswani et al. do; ours leaves it to the model."""
    import transformers
    sizes = dict(vocab_size=11, hidden_size=16, intermediate_size=8, num_hidden_layers=1,
                 num_attention_heads=2, num_key_value_heads=1, head_dim=8, pad_token_id=0)
    theirs = transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**sizes)).get_input_embeddings()
    mine = ours.Embedding(11, 16)
    mine.load_state_dict({"weight": theirs.weight.detach()})
    ids = torch.tensor([3, 0, 7])
    assert_close(theirs(ids), mine(ids) * 16**0.5)
