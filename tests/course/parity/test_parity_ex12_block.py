"""Chapter 12 against the blocks of torch and transformers, weights copied, outputs and gradients."""

import pytest
import torch
from torch import nn
from transformers import GPT2Config, LlamaConfig
from transformers.models.gpt2.modeling_gpt2 import GPT2Block
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

from solutions.ex04_normalization import LayerNorm, RMSNorm
from solutions.ex07_rope import RoPE
from solutions.ex08_feedforward import MLP, SwiGLU
from solutions.ex09_attention import MultiHeadAttention
from solutions.ex10_grouped_query_attention import GroupedQueryAttention
from solutions.ex12_block import CrossBlock, PostNormBlock, PreNormBlock, scaled_residual_init
from tests.course.close import assert_close

BATCH, SEQ, WIDTH, HEADS, HIDDEN = 2, 6, 24, 4, 40


def randn(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def shaken(module: nn.Module) -> nn.Module:
    """In float64, every parameter away from its initial value: ones and zeros would hide much."""
    module = module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return module


def parts_of_attention(mine, its) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """torch.nn.MultiheadAttention keeps the three projections as one matrix."""
    return [*zip((mine.q_proj.weight, mine.k_proj.weight, mine.v_proj.weight), its.in_proj_weight.chunk(3)),
            *zip((mine.q_proj.bias, mine.k_proj.bias, mine.v_proj.bias), its.in_proj_bias.chunk(3)),
            *parts_of(mine.o_proj, its.out_proj)]


def parts_of(mine, its, transposed: bool = False) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """A weight and, where there is one, a bias; GPT-2's Conv1D has its weight transposed."""
    pairs = [(mine.weight, its.weight.mT if transposed else its.weight)]
    if getattr(mine, "bias", None) is not None:
        pairs.append((mine.bias, its.bias))
    return pairs


def copied(pairs) -> None:
    with torch.no_grad():
        for mine, its in pairs:
            mine.copy_(its)


def assert_same_both_ways(my_call, its_call, inputs, my_parameters, its_parameters, dtype=torch.float64):
    """Outputs agree, and so do the gradients of every input and every parameter."""
    mine = [x.clone().requires_grad_() for x in inputs]
    theirs = [x.clone().requires_grad_() for x in inputs]
    my_y, its_y = my_call(*mine), its_call(*theirs)
    assert_close(my_y.to(dtype), its_y)
    pull = torch.randn_like(its_y)
    my_grads = torch.autograd.grad(my_y, [*mine, *my_parameters], pull)
    its_grads = torch.autograd.grad(its_y, [*theirs, *its_parameters], pull)
    assert all(grad.abs().max() > 1e-6 for grad in its_grads[:len(inputs)])
    for ours, other in zip(my_grads, its_grads, strict=True):
        assert_close(ours.to(dtype), other)


def masks():
    causal = torch.ones(SEQ, SEQ, dtype=torch.bool).tril()
    padded = torch.ones(BATCH, SEQ, dtype=torch.bool)
    padded[1, -2:] = False
    return {"none": (None, {}), "causal": (causal, {"src_mask": ~causal}),
            "padding": (padded[:, None, None], {"src_key_padding_mask": ~padded})}


@pytest.mark.parametrize("mask", ["none", "causal", "padding"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
def test_a_block_is_torchs_encoder_layer(norm_first, activation, mask):
    torch.manual_seed(0)
    its = shaken(nn.TransformerEncoderLayer(WIDTH, HEADS, HIDDEN, 0.3, activation, layer_norm_eps=1e-3,
                                            batch_first=True, norm_first=norm_first))
    if norm_first:
        mine = PreNormBlock(LayerNorm(WIDTH, 1e-3), MultiHeadAttention(WIDTH, HEADS, bias=True, dropout=0.3),
                            LayerNorm(WIDTH, 1e-3), MLP(WIDTH, HIDDEN, activation, dropout=0.3), dropout=0.3)
    else:
        mine = PostNormBlock(WIDTH, HEADS, HIDDEN, activation, dropout=0.3, norm_eps=1e-3)
    mine = mine.double()
    its.eval(), mine.eval()
    its_in, its_bias = its.self_attn.in_proj_weight, its.self_attn.in_proj_bias
    copied([*parts_of_attention(mine.attention, its.self_attn), *parts_of(mine.norm1, its.norm1),
            *parts_of(mine.norm2, its.norm2), *parts_of(mine.feed_forward.up, its.linear1),
            *parts_of(mine.feed_forward.down, its.linear2)])
    my_mask, its_mask = masks()[mask]
    wholes = [(mine.norm1, its.norm1), (mine.norm2, its.norm2), (mine.attention.o_proj, its.self_attn.out_proj),
              (mine.feed_forward.up, its.linear1), (mine.feed_forward.down, its.linear2)]
    assert_same_both_ways(
        lambda x: mine(x, mask=my_mask), lambda x: its(x, **its_mask), [randn(BATCH, SEQ, WIDTH)],
        [p for module, _ in wholes for p in module.parameters()],
        [p for _, module in wholes for p in module.parameters()])
    x = randn(BATCH, SEQ, WIDTH)
    pull = randn(BATCH, SEQ, WIDTH)
    three = [mine.attention.q_proj, mine.attention.k_proj, mine.attention.v_proj]
    ours = torch.autograd.grad(mine(x, mask=my_mask), [m.weight for m in three] + [m.bias for m in three], pull)
    other = torch.autograd.grad(its(x, **its_mask), [its_in, its_bias], pull)
    assert_close(torch.cat(ours[:3]), other[0])
    assert_close(torch.cat(ours[3:]), other[1])


@pytest.mark.parametrize("context_length", [SEQ, 9])
@pytest.mark.parametrize("masked", [False, True])
def test_cross_block_is_torchs_decoder_layer(masked, context_length):
    torch.manual_seed(0)
    its = shaken(nn.TransformerDecoderLayer(WIDTH, HEADS, HIDDEN, 0.3, "relu", layer_norm_eps=1e-3,
                                            batch_first=True)).eval()
    mine = CrossBlock(WIDTH, HEADS, HIDDEN, "relu", dropout=0.3, norm_eps=1e-3).double().eval()
    copied([*parts_of_attention(mine.attention, its.self_attn),
            *parts_of_attention(mine.cross_attention, its.multihead_attn),
            *parts_of(mine.norm1, its.norm1), *parts_of(mine.norm2, its.norm2),
            *parts_of(mine.norm3, its.norm3), *parts_of(mine.feed_forward.up, its.linear1),
            *parts_of(mine.feed_forward.down, its.linear2)])
    causal = torch.ones(SEQ, SEQ, dtype=torch.bool).tril()
    real = torch.ones(BATCH, context_length, dtype=torch.bool)
    real[0, :3] = False
    mine_with = {"mask": causal, "context_mask": real[:, None, None]} if masked else {}
    its_with = {"tgt_mask": ~causal, "memory_key_padding_mask": ~real} if masked else {}
    wholes = [(mine.norm1, its.norm1), (mine.norm2, its.norm2), (mine.norm3, its.norm3),
              (mine.attention.o_proj, its.self_attn.out_proj),
              (mine.cross_attention.o_proj, its.multihead_attn.out_proj),
              (mine.feed_forward.up, its.linear1), (mine.feed_forward.down, its.linear2)]
    assert_same_both_ways(
        lambda x, context: mine(x, context, **mine_with), lambda x, context: its(x, context, **its_with),
        [randn(BATCH, SEQ, WIDTH), randn(BATCH, context_length, WIDTH)],
        [p for module, _ in wholes for p in module.parameters()],
        [p for _, module in wholes for p in module.parameters()])


def test_pre_norm_block_is_gpt2s():
    torch.manual_seed(0)
    config = GPT2Config(n_embd=WIDTH, n_head=HEADS, n_layer=1, n_positions=32, attn_implementation="eager",
                        attn_pdrop=0, embd_pdrop=0, resid_pdrop=0)
    its = shaken(GPT2Block(config, layer_idx=0))
    mine = PreNormBlock(LayerNorm(WIDTH), MultiHeadAttention(WIDTH, HEADS, bias=True, causal=True),
                        LayerNorm(WIDTH), MLP(WIDTH, 4 * WIDTH, "gelu_tanh")).double()
    three = [mine.attention.q_proj, mine.attention.k_proj, mine.attention.v_proj]
    copied([*zip([m.weight for m in three], its.attn.c_attn.weight.mT.chunk(3)),
            *zip([m.bias for m in three], its.attn.c_attn.bias.chunk(3)),
            *parts_of(mine.attention.o_proj, its.attn.c_proj, True),
            *parts_of(mine.norm1, its.ln_1), *parts_of(mine.norm2, its.ln_2),
            *parts_of(mine.feed_forward.up, its.mlp.c_fc, True),
            *parts_of(mine.feed_forward.down, its.mlp.c_proj, True)])
    hidden = torch.full((SEQ, SEQ), float("-inf"), dtype=torch.float64).triu(1)[None, None]

    def its_call(x):
        y = its(x, attention_mask=hidden)
        return y[0] if isinstance(y, tuple) else y

    pairs = [(mine.norm1.weight, its.ln_1.weight), (mine.norm2.bias, its.ln_2.bias),
             (mine.attention.o_proj.bias, its.attn.c_proj.bias),
             (mine.feed_forward.down.bias, its.mlp.c_proj.bias)]
    assert_same_both_ways(mine, its_call, [randn(BATCH, SEQ, WIDTH)], *zip(*pairs))


@pytest.mark.usefixtures("float64_norms")
def test_pre_norm_block_is_llamas():
    torch.manual_seed(0)
    config = LlamaConfig(hidden_size=WIDTH, intermediate_size=HIDDEN, num_attention_heads=HEADS,
                         num_key_value_heads=2, head_dim=8, num_hidden_layers=1, rms_norm_eps=1e-3,
                         max_position_embeddings=64, attn_implementation="eager")
    its = shaken(LlamaDecoderLayer(config, layer_idx=0))
    attention = GroupedQueryAttention(WIDTH, HEADS, 2, head_dim=8, rope=RoPE(8, 64))
    mine = PreNormBlock(RMSNorm(WIDTH, 1e-3), attention, RMSNorm(WIDTH, 1e-3), SwiGLU(WIDTH, HIDDEN)).double()
    pairs = [*parts_of(mine.norm1, its.input_layernorm), *parts_of(mine.norm2, its.post_attention_layernorm),
             *((getattr(attention, name).weight, getattr(its.self_attn, name).weight)
               for name in ("q_proj", "k_proj", "v_proj", "o_proj")),
             *parts_of(mine.feed_forward.gate, its.mlp.gate_proj),
             *parts_of(mine.feed_forward.up, its.mlp.up_proj),
             *parts_of(mine.feed_forward.down, its.mlp.down_proj)]
    copied(pairs)
    assert len(pairs) == len(list(mine.parameters())) == len(list(its.parameters()))
    positions = torch.randint(50, (BATCH, SEQ))
    hidden = torch.full((SEQ, SEQ), float("-inf")).triu(1)[None, None]

    def its_call(x):
        tables = LlamaRotaryEmbedding(config)(x, positions)
        y = its(x, attention_mask=hidden, position_embeddings=tables)
        return y[0] if isinstance(y, tuple) else y

    assert_same_both_ways(lambda x: mine(x, positions=positions), its_call, [randn(BATCH, SEQ, WIDTH)],
                          *zip(*pairs), dtype=torch.float32)        # the tables of RoPE are float32


@pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
def test_dropout_on_the_branches_has_torchs_statistics(norm_first):
    """Only the residual dropout left on, over many draws: torch's mean and spread of the output."""
    torch.manual_seed(0)
    its = nn.TransformerEncoderLayer(8, 2, 16, 0.0, "relu", batch_first=True, norm_first=norm_first)
    shaken(its)
    its.dropout1.p = its.dropout2.p = 0.3
    if norm_first:
        mine = PreNormBlock(LayerNorm(8), MultiHeadAttention(8, 2, bias=True), LayerNorm(8),
                            MLP(8, 16, "relu"), dropout=0.3).double()
    else:
        mine = PostNormBlock(8, 2, 16, "relu").double()
        mine.dropout.p = 0.3
    copied([*parts_of_attention(mine.attention, its.self_attn), *parts_of(mine.norm1, its.norm1),
            *parts_of(mine.norm2, its.norm2), *parts_of(mine.feed_forward.up, its.linear1),
            *parts_of(mine.feed_forward.down, its.linear2)])
    x = randn(1, 3, 8).expand(40_000, 3, 8)
    with torch.no_grad():
        ours, theirs = mine(x), its(x)
    error = theirs.std(0) / 200                              # of a mean over 40,000 draws
    assert ((ours.mean(0) - theirs.mean(0)).abs() < 6 * error).all()
    torch.testing.assert_close(ours.std(0), theirs.std(0), rtol=0.03, atol=0)


def test_scaled_init_is_gpt2s():
    """transformers draws the weights that end a branch with σ = 0.02 / √(2 · layers)."""
    torch.manual_seed(0)
    layers = 8
    blocks = nn.ModuleList(PreNormBlock(LayerNorm(256), MultiHeadAttention(256, 4, bias=True), LayerNorm(256),
                                        MLP(256, 1024, "gelu_tanh")) for _ in range(layers))
    with torch.no_grad():
        for parameter in blocks.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
    scaled_residual_init(blocks, layers)
    for name, parameter in blocks.named_parameters():
        if parameter.dim() == 2:
            ends = name.endswith(("o_proj.weight", "down.weight"))
            assert parameter.std().item() == pytest.approx(0.02 / 4 if ends else 0.02, rel=0.02), name
