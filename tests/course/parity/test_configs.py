"""config.json against `transformers`: the same numbers or a clear ValueError, nothing between.

Fields are present, absent or null, in both layouts (rope_parameters; rope_theta beside rope_scaling) and
in mixtures of them. What `transformers` makes of a config is its model; ours is loaded with that
model's weights. A random walk through the fields, on one seed, so that a failure can be repeated.
"""

import json
import logging
import random
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from solutions.ex13_transformer import make_rope
from solutions.ex16_pretrained import build_model, config_from_hf, convert_gpt2, convert_llama, convert_qwen3
from tests.course.close import assert_close

# All in float64 but the tables of RoPE: so what is compared is compared as float32.
pytestmark = pytest.mark.usefixtures("float64_norms")
LENGTH = 40
BASES = {
    "llama": {"vocab_size": 13, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
              "intermediate_size": 12, "max_position_embeddings": 64},
    "qwen3": {"vocab_size": 13, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
              "num_key_value_heads": 1, "intermediate_size": 12, "max_position_embeddings": 64},
    "gpt2": {"vocab_size": 13, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64},
}
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0}
SCALINGS = [None, {}, {"rope_type": "default"}, {"rope_type": "linear", "factor": 2.0},
            {"type": "linear", "factor": 2.0}, LLAMA3, LLAMA3, YARN, YARN, {"type": "yarn", "factor": 2.0},
            {"rope_type": "dynamic", "factor": 2.0}, {"factor": 2.0}]
# What each field may be, besides absent: a field is present one time in four.
INSIDE = {"rope_theta": [500.0, 20_000, None], "factor": [3, 1.0, 1.5, None],
          "original_max_position_embeddings": [8, 16, 16, None], "attention_factor": [1.3, 0.5, None],
          "beta_fast": [16, None], "beta_slow": [2, None], "low_freq_factor": [2.0, None],
          "high_freq_factor": [8.0, None]}
STRANGE = {"truncate": [False], "mscale": [0.7], "partial_rotary_factor": [0.5, 1.0]}
ROPE = {"rope_theta": [500.0, 10_000, None], "original_max_position_embeddings": [8, 16, 16, None],
        "max_position_embeddings": [48, None], "partial_rotary_factor": [0.5, 1.0, None]}
LLAMA = {"num_key_value_heads": [None, 1, 2], "head_dim": [None, 8, 6], "rms_norm_eps": [0.1, 0.1, None],
         "attention_bias": [True, True, False, None], "tie_word_embeddings": [True, True, False, None],
         "hidden_act": ["silu", "gelu", None], "mlp_bias": [False, True, None]}
QWEN3 = LLAMA | {"use_sliding_window": [True, True, True, False, None], "sliding_window": [3, 5, 5, None],
                 "max_window_layers": [0, 1, 1, None],
                 "layer_types": [None, ["full_attention", "sliding_attention"],
                                 ["full_attention"] * 2, ["chunked_attention"] * 2]}
GPT2 = {"n_inner": [None, 12], "layer_norm_epsilon": [0.1, None],
        "activation_function": ["gelu", "gelu_new", "relu", "swish", None],
        "tie_word_embeddings": [True, False, None], "scale_attn_weights": [True, False, None],
        "scale_attn_by_inverse_layer_idx": [False, True, None],
        "add_cross_attention": [False, True, None], "reorder_and_upcast_attn": [True]}
FIELDS = {"llama": ROPE | LLAMA, "qwen3": ROPE | QWEN3, "gpt2": GPT2}
CONVERTERS = {"gpt2": convert_gpt2, "llama": convert_llama, "qwen3": convert_qwen3}


def drawn(rng: random.Random, fields: dict, often: float = 0.25) -> dict:
    return {key: rng.choice(values) for key, values in fields.items() if rng.random() < often}


def a_config(rng: random.Random, kind: str) -> dict:
    """Each field by chance; RoPE's fields in one layout, the other, or both at once."""
    config = {"model_type": kind, **BASES[kind], **drawn(rng, FIELDS[kind], rng.choice([0.1, 0.25]))}
    if kind != "gpt2":
        for layout in rng.choice([[], ["rope_parameters"], ["rope_scaling"], ["rope_parameters", "rope_scaling"]]):
            scaling = rng.choice(SCALINGS)
            if scaling:
                scaling = scaling | drawn(rng, INSIDE, rng.choice([0, 0.1, 0.25])) | drawn(rng, STRANGE, 0.03)
            config[layout] = scaling
    return config


def transformers_model(config: dict, folder: Path):
    """The model that `transformers` makes of a config.json, with random weights; None where it raises."""
    (folder / "config.json").write_text(json.dumps(config))
    try:
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)).eval()
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
        model(torch.zeros(1, 2, dtype=torch.int64))
        return model
    except Exception:
        return None


def without_nulls(config: dict) -> dict:
    """The config without its nulls, but for the key whose null means something to transformers."""
    return {key: without_nulls(value) if isinstance(value, dict) else value
            for key, value in config.items() if value is not None or key == "num_key_value_heads"}


@torch.no_grad()
def equal(config: dict, folder: Path) -> bool:
    """Whether a config is taken, and then gives transformers' numbers; False where it is refused.

    What transformers refuses for a null may be loaded as if the key were missing.
    """
    logging.getLogger("transformers").setLevel(logging.ERROR)
    try:
        make_rope(settled := config_from_hf(config))
    except ValueError as error:
        assert str(error), config
        return False
    theirs = transformers_model(config, folder) or transformers_model(without_nulls(config), folder)
    assert theirs is not None, f"transformers makes no model of {json.dumps(config)}"
    mine, ids = build_model(settled, CONVERTERS[config["model_type"]](theirs.state_dict())), torch.arange(LENGTH) % 13
    print(json.dumps(config))               # shown where the next line fails
    assert_close(mine(ids[None]).float(), theirs(ids[None]).logits)
    return True


@pytest.mark.parametrize("kind", FIELDS)
def test_the_same_numbers_or_a_value_error(kind, tmp_path):
    rng = random.Random(kind)
    taken = [equal(a_config(rng, kind), tmp_path) for _ in range(100 if kind == "gpt2" else 200)]
    assert taken.count(True) >= 40 and taken.count(False) >= 30


@pytest.mark.parametrize("layout", ["rope_parameters", "rope_scaling"])
def test_each_null_inside_beside_values_outside(layout, tmp_path):
    """A walk by chance seldom meets the pair: a key that is null inside, where another stands outside for it."""
    outside = {"model_type": "llama", **BASES["llama"], "rope_theta": 500.0, "original_max_position_embeddings": 16}
    taken = [equal(outside | {layout: scaling | {key: None}}, tmp_path)
             for scaling in ({"rope_type": "linear", "factor": 2.0}, LLAMA3, YARN) for key in [*INSIDE, "type"]]
    assert taken.count(True) >= 15
