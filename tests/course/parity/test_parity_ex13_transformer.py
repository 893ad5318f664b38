"""Chapter 13 against transformers' GPT-2, Llama and Qwen3, and against torch.nn.Transformer.

Logits and gradients on the same weights: theirs are made, ours are copied from them by name.
"""

import re
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from solutions.ex05_softmax import cross_entropy
from solutions.ex13_transformer import (
    BASE_2017,
    ENCODER,
    GPT2,
    LLAMA_3_2_1B,
    POCKET,
    QWEN3_0_6B,
    EncoderDecoder,
    ModelConfig,
    Transformer,
    count_parameters,
    flops_per_token,
    make_caches,
)
from tests.course.close import assert_close

# All in float64 but the tables of RoPE: so what is compared is compared as float32.
pytestmark = pytest.mark.usefixtures("float64_norms")
SIZES = {"vocab_size": 61, "d_model": 24, "layers": 3, "d_ff": 40, "max_seq_len": 32}
GPT2_LIKE = {"norm": "layer", "feed_forward": "mlp", "activation": "gelu_tanh",
             "positions": "learned", "qkv_bias": True, "o_bias": True, "mlp_bias": True}
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}

GPT2S = {
    "tied": ModelConfig(**SIZES, **GPT2_LIKE, heads=4, tie_embeddings=True),
    "untied": ModelConfig(**SIZES, **GPT2_LIKE, heads=2, norm_eps=1e-3),
    "exact gelu": ModelConfig(**SIZES, **{**GPT2_LIKE, "activation": "gelu"}, heads=4),
    "one layer": ModelConfig(**{**SIZES, "layers": 1}, **GPT2_LIKE, heads=1, tie_embeddings=True),
}
LLAMAS = {
    "plain": ModelConfig(**SIZES, heads=4),
    "grouped, tied": ModelConfig(**SIZES, heads=6, kv_heads=2, tie_embeddings=True, norm_eps=1e-3),
    "one key-value head": ModelConfig(**SIZES, heads=4, kv_heads=1, rope_base=500_000.0),
    "wide heads": ModelConfig(**SIZES, heads=4, kv_heads=2, head_dim=10),
    "biases": ModelConfig(**SIZES, heads=4, kv_heads=2, qkv_bias=True, o_bias=True),
    "linear": ModelConfig(**SIZES, heads=2, rope_scaling={"rope_type": "linear", "factor": 4.0}),
    "llama3": ModelConfig(**SIZES, heads=2, rope_scaling=LLAMA3),
    "yarn": ModelConfig(**SIZES, heads=2, rope_scaling=YARN),
    "yarn with its own factors": ModelConfig(**SIZES, heads=2, rope_scaling={
        **YARN, "beta_fast": 16, "beta_slow": 2, "attention_factor": 1.3}),
}
QWENS = {
    "QK-norm": ModelConfig(**SIZES, heads=4, kv_heads=2, head_dim=12, qk_norm=True, norm_eps=1e-6,
                           tie_embeddings=True),
    "biases, untied": ModelConfig(**SIZES, heads=4, qk_norm=True, qkv_bias=True, o_bias=True),
    "a window everywhere": ModelConfig(**SIZES, heads=2, qk_norm=True, windows=(4, 4, 4)),
    "a window on some layers": ModelConfig(**SIZES, heads=2, qk_norm=True, windows=(None, 5, None)),
    "grouped, a window on some": ModelConfig(**SIZES, heads=4, kv_heads=2, qk_norm=True,
                                             windows=(None, 5, 5)),
}
CONFIGS = {f"{family}, {name}": (family, config)
           for family, configs in (("gpt2", GPT2S), ("llama", LLAMAS), ("qwen3", QWENS))
           for name, config in configs.items()}
EVERY_MODEL = pytest.mark.parametrize("family, config", CONFIGS.values(), ids=CONFIGS)


def theirs(family: str, config: ModelConfig) -> nn.Module:
    """transformers' model of this config, with every parameter random: biases and norms too."""
    torch.manual_seed(0)
    ids = {"bos_token_id": None, "eos_token_id": None}
    if family == "gpt2":
        model = GPT2LMHeadModel(GPT2Config(
            vocab_size=config.vocab_size, n_embd=config.d_model, n_layer=config.layers,
            n_head=config.heads, n_inner=config.d_ff, n_positions=config.max_seq_len,
            activation_function={"gelu_tanh": "gelu_new", "gelu": "gelu"}[config.activation],
            layer_norm_epsilon=config.norm_eps, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
            tie_word_embeddings=config.tie_embeddings, **ids))
    else:
        scaling = config.rope_scaling or {"rope_type": "default"}
        arguments = {
            "vocab_size": config.vocab_size, "hidden_size": config.d_model,
            "num_hidden_layers": config.layers, "num_attention_heads": config.heads,
            "num_key_value_heads": config.kv_heads, "head_dim": config.head_dim,
            "intermediate_size": config.d_ff, "max_position_embeddings": config.max_seq_len,
            "rms_norm_eps": config.norm_eps, "attention_bias": config.qkv_bias,
            "rope_parameters": {**scaling, "rope_theta": config.rope_base},
            "tie_word_embeddings": config.tie_embeddings, "pad_token_id": None, **ids}
        if family == "llama":
            model = LlamaForCausalLM(LlamaConfig(**arguments))
        else:
            windows = config.windows or (None,) * config.layers
            kinds = ["sliding_attention" if window else "full_attention" for window in windows]
            model = Qwen3ForCausalLM(Qwen3Config(
                **arguments, use_sliding_window=any(windows), layer_types=kinds,
                sliding_window=max((window for window in windows if window), default=None)))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.2)
            else:
                parameter.normal_(mean=float("norm" in name or "ln_" in name) * name.endswith("weight"),
                                  std=0.3)
    return model


NAMES = [(r"^transformer\.h\.(\d+)", r"blocks.\1"), (r"^model\.layers\.(\d+)", r"blocks.\1"),
         (r"^transformer\.wte|^model\.embed_tokens", "embedding"), (r"^transformer\.wpe", "positions"),
         (r"^transformer\.ln_f|^model\.norm", "norm"), ("^lm_head", "unembedding"),
         (r"ln_1|input_layernorm", "norm1"), (r"ln_2|post_attention_layernorm", "norm2"),
         ("self_attn", "attention"), (r"attn\.c_proj", "attention.o_proj"),
         (r"mlp\.(gate|up|down)_proj", r"feed_forward.\1"), (r"mlp\.c_fc", "feed_forward.up"),
         (r"mlp\.c_proj", "feed_forward.down")]


def in_our_names(tensors: dict) -> dict:
    """Their parameters, or the gradients of these, under our names and in our shapes."""
    out = {}
    for name, tensor in tensors.items():
        conv1d = re.search(r"c_\w+\.weight", name)
        for there, here in NAMES:
            name = re.sub(there, here, name)
        tensor = tensor.T if conv1d else tensor
        if "attn.c_attn" in name:
            for part, third in zip("qkv", tensor.chunk(3)):
                out[name.replace("attn.c_attn", f"attention.{part}_proj")] = third
        else:
            out[name] = tensor
    return out


def twins(family: str, config: ModelConfig) -> tuple[Transformer, nn.Module]:
    other = theirs(family, config)
    model = Transformer(config)
    model.load_state_dict(in_our_names(other.state_dict()))
    return model, other


def close_gradients(mine: dict, right: dict) -> None:
    """As one row: a key's bias has no gradient without RoPE, and what is found there is rounding of the others."""
    assert mine.keys() == right.keys()
    assert all(mine[name].shape == right[name].shape for name in right)
    assert_close([mine[name].float() for name in right], [*right.values()])


def gradients(model: nn.Module) -> dict:
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@EVERY_MODEL
def test_logits_and_gradients(family, config):
    model, other = twins(family, config)
    ids = torch.randint(config.vocab_size, (2, 21))
    logits, right = model(ids), other(ids).logits
    assert_close(logits.float(), right)
    targets = torch.randint(config.vocab_size, (2, 21))
    cross_entropy(logits, targets).backward()
    nn.functional.cross_entropy(right.flatten(0, 1), targets.flatten()).backward()
    close_gradients(gradients(model), in_our_names(gradients(other)))


@EVERY_MODEL
@torch.no_grad()
def test_left_padded_batches(family, config):
    model, other = twins(family, config)
    ids = torch.randint(config.vocab_size, (3, 14))
    padding = torch.tensor([0, 5, 13])
    real = torch.arange(14) >= padding[:, None]
    positions = (torch.arange(14) - padding[:, None]).clamp(min=0)
    logits = model(ids, mask=real[:, None, None], positions=positions)
    right = other(ids, attention_mask=real.long(), position_ids=positions).logits
    assert_close(logits[real].float(), right[real])


@EVERY_MODEL
@torch.no_grad()
def test_cached_decoding(family, config):
    """Prefill, a chunk and single tokens, against their whole forward pass."""
    model, other = twins(family, config)
    ids = torch.randint(config.vocab_size, (2, 20))
    caches = make_caches(config, 2, 20)
    parts = [model(part, caches=caches) for part in ids.split((9, 6, 1, 1, 1, 1, 1), dim=1)]
    assert_close(torch.cat(parts, 1).float(), other(ids).logits)


# -- 2017

BASE = replace(BASE_2017, vocab_size=61, d_model=24, layers=2, heads=4, kv_heads=4, head_dim=6,
               d_ff=40, max_seq_len=32, dropout=0.0)


def torch_names(tensors: dict) -> dict:
    """Parameters or gradients of torch's encoder or decoder layers, under our names."""
    out = {}
    for name, tensor in tensors.items():
        name = name.replace(".layers.", ".")
        for there, here in (("self_attn", "attention"), ("multihead_attn", "cross_attention"),
                            ("out_proj", "o_proj"), ("linear1", "feed_forward.up"),
                            ("linear2", "feed_forward.down")):
            name = name.replace(there, here)
        if "in_proj_" in name:
            for part, third in zip("qkv", tensor.chunk(3)):
                out[name.replace("in_proj_", f"{part}_proj.")] = third
        else:
            out[name] = tensor
    return out


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("padded", [True, False], ids=["padded", "whole"])
def test_encoder_decoder_is_torchs_transformer(activation, tied, padded):
    torch.manual_seed(0)
    config = replace(BASE, activation=activation, tie_embeddings=tied)
    model = EncoderDecoder(config)
    other = nn.Transformer(24, 4, 2, 2, 40, dropout=0.0, activation=activation, batch_first=True)
    other.encoder.norm = other.decoder.norm = None
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(torch.randn_like(parameter) / 10)
    missing, extra = model.load_state_dict(torch_names(other.state_dict()), strict=False)
    assert not extra and {name.split(".")[0] for name in missing} == {
        "source_embedding", "target_embedding", "unembedding"}

    source, target = torch.randint(61, (3, 9)), torch.randint(61, (3, 7))
    real = torch.arange(9) < torch.tensor([9, 6, 1])[:, None] if padded else torch.ones(3, 9).bool()
    written = torch.arange(7) < torch.tensor([7, 3, 5])[:, None] if padded else torch.ones(3, 7).bool()
    logits = model(source, target, real[:, None, None], written[:, None, None])

    def embed(weight, ids):
        angles = torch.arange(ids.shape[1])[:, None] / 10_000 ** (torch.arange(0, 24, 2) / 24)
        table = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
        return weight[ids] * 24**0.5 + table

    weights = [model.source_embedding.weight, model.target_embedding.weight, model.unembedding.weight]
    assert len({weight.data_ptr() for weight in weights}) == (1 if tied else 3)
    out = other(embed(weights[0], source), embed(weights[1], target),
                tgt_mask=~torch.ones(7, 7).tril().bool(), src_key_padding_mask=~real,
                memory_key_padding_mask=~real, tgt_key_padding_mask=~written)
    right = out @ weights[2].T
    assert_close(logits[written].float(), right[written])

    cross_entropy(logits[written], target[written]).backward()
    mine = {name: grad.clone() for name, grad in gradients(model).items()}
    model.zero_grad()
    nn.functional.cross_entropy(right[written], target[written]).backward()
    expected = {**torch_names(gradients(other)),
                **{name: grad for name, grad in gradients(model).items() if grad is not None}}
    close_gradients(mine, expected)


@pytest.mark.parametrize("causal", [False, True], ids=["encoder", "decoder"])
def test_a_post_norm_transformer_is_torchs_encoder(causal):
    torch.manual_seed(0)
    config = replace(ENCODER, vocab_size=61, d_model=24, layers=2, heads=4, kv_heads=4, head_dim=6,
                     d_ff=40, max_seq_len=32, dropout=0.0, norm_eps=1e-5, causal=causal)
    model = Transformer(config)
    layer = nn.TransformerEncoderLayer(24, 4, 40, 0.0, "gelu", batch_first=True)
    other = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(torch.randn_like(parameter) / 10)
    state = {"blocks." + name.removeprefix("."): tensor
             for name, tensor in torch_names({f".{name}": tensor for name, tensor in
                                              other.state_dict().items()}).items()}
    state = {re.sub(r"^blocks\.layers\.", "blocks.", name): tensor for name, tensor in state.items()}
    missing, extra = model.load_state_dict(state, strict=False)
    assert not extra and set(missing) == {"embedding.weight", "positions.weight", "unembedding.weight"}
    ids, real = torch.randint(61, (2, 9)), torch.arange(9) < torch.tensor([9, 4])[:, None]
    x = model.embedding.weight[ids] + model.positions.weight[:9]
    hidden = ~torch.ones(9, 9).tril().bool() if causal else None
    right = other(x, mask=hidden, src_key_padding_mask=~real) @ model.embedding.weight.T
    assert_close(model(ids, mask=real[:, None, None])[real].float(), right[real])


# -- counts

REAL = {"GPT2": (GPT2, 124_439_808), "LLAMA_3_2_1B": (LLAMA_3_2_1B, 1_235_814_400),
        "QWEN3_0_6B": (QWEN3_0_6B, 596_049_920), "POCKET": (POCKET, None), "ENCODER": (ENCODER, None),
        "BASE_2017": (BASE_2017, None)}


@pytest.mark.parametrize("config, published", REAL.values(), ids=REAL)
def test_presets_have_their_published_sizes(config, published):
    with torch.device("meta"):
        model = Transformer(config)
    counted = sum(parameter.numel() for parameter in model.parameters())
    assert counted == count_parameters(config)
    assert published in (None, counted)


SMALL = {**{name: config for name, (_, config) in CONFIGS.items()},
         "2017": BASE, "encoder": replace(BASE, positions="learned", causal=False),
         "no positions": ModelConfig(**SIZES, heads=4, positions="none"),
         "an mlp without biases": ModelConfig(**SIZES, heads=4, norm="layer", feed_forward="mlp")}


@pytest.mark.parametrize("config", SMALL.values(), ids=SMALL)
def test_parameters_are_counted(config):
    model = Transformer(config)
    assert sum(parameter.numel() for parameter in model.parameters()) == count_parameters(config)


@torch.no_grad()
@pytest.mark.parametrize("config", SMALL.values(), ids=SMALL)
@pytest.mark.parametrize("batch, seq_len", [(1, 1), (2, 17)])
def test_flops_are_counted(config, batch, seq_len):
    model = Transformer(config)
    with FlopCounterMode(display=False) as counter:
        model(torch.randint(config.vocab_size, (batch, seq_len)))
    assert counter.get_total_flops() == batch * seq_len * flops_per_token(config, seq_len)


@pytest.mark.parametrize("config", [GPT2S["tied"], LLAMAS["grouped, tied"]], ids=["gpt2", "llama"])
def test_training_costs_about_three_forward_passes(config):
    model = Transformer(config)
    with FlopCounterMode(display=False) as counter:
        model(torch.randint(config.vocab_size, (2, 17))).sum().backward()
    assert counter.get_total_flops() / (34 * flops_per_token(config, 17)) == pytest.approx(3, rel=0.05)


# -- the configuration, which is given

POST = {**GPT2_LIKE, "heads": 4, "norm_position": "post"}
WRONG = [
    ("layers", {"layers": 0}), ("vocab_size", {"vocab_size": 0}), ("d_ff", {"d_ff": -1}),
    ("heads", {"heads": 5}), ("kv_heads", {"kv_heads": 3}), ("kv_heads", {"kv_heads": 0}),
    ("head_dim", {"head_dim": 0}), ("head_dim", {"head_dim": 5}), ("norm", {"norm": "batch"}),
    ("norm_position", {"norm_position": "both"}), ("feed_forward", {"feed_forward": "moe"}),
    ("activation", {"activation": "swish"}), ("positions", {"positions": "alibi"}),
    ("norm_eps", {"norm_eps": -1e-5}), ("dropout", {"dropout": 1.0}), ("mlp_bias", {"mlp_bias": True}),
    ("d_model", {"d_model": 25, "head_dim": 6, "positions": "sinusoidal"}),
    ("rope_base", {"rope_base": 0}), ("windows", {"windows": (3, 3)}), ("windows", {"windows": (3, 0, 3)}),
    ("windows", {"windows": (3, None, 3), "causal": False}),
    ("rope_scaling", {"rope_scaling": {"factor": 2.0}}),
    ("rope_scaling", {"rope_scaling": {"rope_type": "longrope", "factor": 2.0}}),
    ("rope_scaling", {"rope_scaling": {"rope_type": "linear"}}),
    ("rope_scaling", {"rope_scaling": {"rope_type": "linear", "factor": 0.5}}),
    ("rope_scaling", {"rope_scaling": {**YARN, "mscale": 0.7}}),
    ("rope_scaling", {"rope_scaling": {**YARN, "rope_theta": 500_000.0}}),
    ("rope_scaling", {"rope_scaling": YARN, "positions": "none"}),
    ("norm", {**POST, "norm": "rms"}), ("positions", {**POST, "positions": "rope"}),
    ("feed_forward", {**POST, "feed_forward": "swiglu", "mlp_bias": False}),
    ("kv_heads", {**POST, "kv_heads": 2}), ("head_dim", {**POST, "head_dim": 4}),
    ("windows", {**POST, "windows": (1, 2, 3)}), ("qk_norm", {**POST, "qk_norm": True}),
    ("o_bias", {**POST, "o_bias": False}),
]


@pytest.mark.parametrize("field, changes", WRONG)
def test_a_config_that_makes_no_sense_names_the_field_and_its_value(field, changes):
    with pytest.raises(ValueError, match=rf"^{field} must .*, got ") as caught:
        ModelConfig(**{**SIZES, "heads": 4, **changes})
    assert repr(changes.get(field)) in str(caught.value)


def test_a_config_settles_what_is_left_out():
    config = ModelConfig(**SIZES, heads=4, windows=[None, 3, None])
    assert (config.kv_heads, config.head_dim, config.windows) == (4, 6, (None, 3, None))
    assert [config.window(layer) for layer in range(3)] == [None, 3, None]
    assert replace(config, layers=1, windows=None).window(0) is None
