"""What lesson 16 asks besides: other forms of files, corners, gradients, what must not change."""

import json
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import save_file

from grader import points, raises

SIZES = {"vocab_size": 13, "hidden_size": 12, "num_hidden_layers": 3, "num_attention_heads": 2,
         "intermediate_size": 10, "max_position_embeddings": 20}
LLAMA = {"model_type": "llama", **SIZES}
QWEN3 = {"model_type": "qwen3", **SIZES, "head_dim": 8, "num_attention_heads": 4, "num_key_value_heads": 2}


def _layer(n, q, kv):
    name = f"model.layers.{n}."
    return {name + "input_layernorm.weight": (12,), name + "post_attention_layernorm.weight": (12,),
            name + "self_attn.q_proj.weight": (q, 12), name + "self_attn.k_proj.weight": (kv, 12),
            name + "self_attn.v_proj.weight": (kv, 12), name + "self_attn.o_proj.weight": (12, q),
            name + "mlp.gate_proj.weight": (10, 12), name + "mlp.up_proj.weight": (10, 12),
            name + "mlp.down_proj.weight": (12, 10)}


def _state(draw, q=12, kv=12, **more):
    shapes = {"model.embed_tokens.weight": (13, 12), "model.norm.weight": (12,)} | more
    for n in range(3):
        shapes |= _layer(n, q, kv)
    return {name: draw(*shape, scale=0.4) if len(shape) > 1 else 0.5 + draw.uniform(*shape)
            for name, shape in shapes.items()}


@contextmanager
def _folder(config, **files):
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        folder = Path(folder)
        (folder / "config.json").write_text(json.dumps(config))
        for name, tensors in files.items():
            save_file({key: tensor.cpu() for key, tensor in tensors.items()}, folder / f"{name}.safetensors")
        yield folder


@points(2)
def test_load_llama_with_little_said(impl, draw):
    """A config.json that leaves out all that has a default loads with Llama's defaults."""
    state = _state(draw, **{"lm_head.weight": (13, 12)})
    with _folder(LLAMA, model=state) as folder:
        return impl.load_pretrained(folder, device=draw.device)(draw.ints(13, 2, 20)).flatten(1)


@points(2)
def test_load_shards_with_windows_and_scaling(impl, draw):
    """A sharded Qwen3 with sliding windows, scaled RoPE and biases computes as one file would."""
    config = QWEN3 | {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1,
                      "rope_theta": 1000, "rope_scaling": {"type": "linear", "factor": 2.0},
                      "attention_bias": True, "tie_word_embeddings": True}
    state = _state(draw, q=32, kv=16)
    for n in range(3):
        layer = f"model.layers.{n}.self_attn."
        state |= {layer + "q_norm.weight": 0.5 + draw.uniform(8), layer + "k_norm.weight": 0.5 + draw.uniform(8),
                  layer + "q_proj.bias": draw(32), layer + "k_proj.bias": draw(16),
                  layer + "v_proj.bias": draw(16), layer + "o_proj.bias": draw(12)}
    names = sorted(state)
    parts = {f"part{i}": {name: state[name] for name in names[i::3]} for i in range(3)}
    with _folder(config, **parts) as folder:
        index = {name: f"{part}.safetensors" for part, tensors in parts.items() for name in tensors}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
        return impl.load_pretrained(str(folder), device=draw.device)(draw.ints(13, 2, 9))


def test_one_file_comes_before_an_index(impl, draw):
    """Where a folder holds both a whole file and an index, the whole file is read."""
    with _folder({}, model={"a": draw(3)}) as folder:
        (folder / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": {"b": "lost.safetensors"}}))
        return {name: tensor.clone() for name, tensor in impl.read_tensors(folder).items()}


def test_shards_outside_the_folder(impl, draw):
    """An index may not lead out of its folder, and a damaged one is a ValueError."""
    found = {}
    with _folder({}, model={"a": draw(3)}) as folder:
        inner = folder / "inner"
        inner.mkdir()
        for case, content in {"outside": {"weight_map": {"a": "../model.safetensors"}},
                              "no map": {"metadata": {}}, "a list": {"weight_map": ["a"]},
                              "no file": {"weight_map": {"a": 3}}}.items():
            (inner / "model.safetensors.index.json").write_text(json.dumps(content))
            found[case] = raises(ValueError, lambda: impl.read_tensors(inner))
    return found


def test_damaged_shard_is_named(impl, draw):
    """Of several shards, the damaged one is named."""
    with _folder({}, one={"a": draw(3)}, two={"b": draw(3)}) as folder:
        (folder / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}))
        two = folder / "two.safetensors"
        two.write_bytes(two.read_bytes()[:-2])
        return raises(ValueError, lambda: impl.read_tensors(folder), names="two.safetensors")


def test_two_tensors_of_one_name(impl, draw):
    """Two tensors that would get one name are refused, not one of them dropped."""
    twice = {"wte.weight": draw(3, 2), "transformer.wte.weight": draw(3, 2)}
    return {"rename": raises(ValueError, lambda: impl.rename({"a.x": draw(2), "b.x": draw(2)}, {"b": "a"}),
                             names="b.x"),
            "gpt2": raises(ValueError, lambda: impl.convert_gpt2(twice))}


def test_arguments_stay_as_they_were(impl, draw):
    """Neither a config nor a state dict that is handed over is changed."""
    inner = {"rope_theta": 100.0, "rope_type": "default"}
    config_json = LLAMA | {"rope_parameters": inner, "tie_word_embeddings": True}
    config = impl.config_from_hf(config_json)
    state = _state(draw, **{"lm_head.weight": (13, 12)})
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    tensors = impl.convert_llama(state)
    names = sorted(tensors)
    model = impl.build_model(config, tensors, device=draw.device)
    return {"logits": model(draw.ints(13, 1, 4)),
            "config": str(sorted(inner)), "tensors": sorted(tensors) == names, "state": sorted(state)}


@points(2)
def test_gradients_reach_what_was_loaded(impl, draw):
    """A loaded model trains: gradients reach its weights, and a tied one gets both shares."""
    config = impl.config_from_hf(LLAMA | {"tie_word_embeddings": True})
    state = {name: tensor / 4 for name, tensor in impl.convert_llama(_state(draw)).items()}
    model = impl.build_model(config, state, device=draw.device)
    (model(draw.ints(13, 2, 6)) * draw(2, 6, 13)).sum().backward()
    return {name: p.grad for name, p in model.named_parameters(remove_duplicate=False)
            if "blocks.1" in name or "embedding" in name}


def test_weights_of_another_dtype(impl, draw):
    """float64 stays float64; a dtype that is no floating-point type, or a complex one, is refused."""
    config = impl.config_from_hf(LLAMA | {"tie_word_embeddings": True})
    tensors = {name: tensor.double() for name, tensor in impl.convert_llama(_state(draw)).items()}
    kept = impl.build_model(config, tensors, device=draw.device)
    cast = impl.build_model(config, tensors, dtype=torch.float16, device=draw.device)
    odd = tensors | {"norm.weight": tensors["norm.weight"] * 1j}
    return {"a weight": cast.norm.weight, "kept": sorted({str(p.dtype) for p in kept.parameters()}),
            "cast": sorted({str(p.dtype) for p in cast.parameters()}),
            "device": all(x.device.type == torch.device(draw.device).type
                          for x in (*cast.parameters(), *cast.buffers())),
            "complex": raises(ValueError, lambda: impl.build_model(config, odd), names="norm.weight"),
            "to complex": raises(ValueError, lambda: impl.build_model(config, tensors, dtype=torch.complex64),
                                 names="dtype")}


def test_the_device_that_is_asked_for(impl, draw):
    """Weights and tables lie on the device that is asked for: here meta, which has shapes alone."""
    config = impl.config_from_hf(LLAMA | {"tie_word_embeddings": True})
    model = impl.build_model(config, impl.convert_llama(_state(draw)), device="meta")
    return {"weights": sorted({p.device.type for p in model.parameters()}),
            "tables": sorted({b.device.type for b in model.buffers()})}


def test_misshapen_corners(impl, draw):
    """A scalar, a transposed or an empty tensor in a weight's place is listed, and nothing else raised."""
    config = replace(impl.config_from_hf(LLAMA), layers=1)
    found = {}
    for case, tensor in {"scalar": draw(), "transposed": draw(10, 12), "empty": draw(0, 12)}.items():
        state = {name: t for name, t in _state(draw, **{"lm_head.weight": (13, 12)}).items()
                 if "layers.1" not in name and "layers.2" not in name}
        tensors = impl.convert_llama(state | {"model.layers.0.mlp.down_proj.weight": tensor})
        found[case] = raises(ValueError, lambda: impl.build_model(config, tensors),
                             names="blocks.0.feed_forward.down.weight")
    return found


def test_rope_in_a_way_that_is_unknown(impl, draw):
    """A RoPE that ModelConfig does not know is refused, in files of either form."""
    odd = {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}
    return {"new": raises(ValueError, lambda: impl.config_from_hf(LLAMA | {"rope_parameters": odd}),
                          names="rope_scaling"),
            "old": raises(ValueError, lambda: impl.config_from_hf(
                LLAMA | {"rope_scaling": {"type": "dynamic", "factor": 2.0}}), names="rope_scaling"),
            "quantized": raises(ValueError, lambda: impl.config_from_hf(
                LLAMA | {"quantization_config": {"bits": 4}}), names="quantization_config")}


def test_nulls_and_zeros(impl, draw):
    """In a config.json null is as good as a missing key where that is said, and 0 is a number like any other."""
    theta, factor, window = (2 + int(n) for n in draw.ints(900, 3))
    inside = {"rope_type": "linear", "rope_theta": theta, "factor": factor}
    base, scaling = impl.rope_of({"rope_theta": None, "rope_parameters": inside})
    return {"base": float(base), "scaling": sorted((scaling or {}).items()),
            "base 0": raises(ValueError, lambda: impl.config_from_hf(LLAMA | {"rope_theta": 0})),
            "all layers slide": str(impl.windows_of({"num_hidden_layers": 3, "use_sliding_window": True,
                                                     "sliding_window": window, "max_window_layers": 0})),
            "null": raises(ValueError, lambda: impl.config_from_hf(LLAMA | {"hidden_act": None}), names="hidden_act")}


def test_shards_that_were_swapped(impl, draw):
    """A tensor that lies in another shard than the index says is named, though both shards are read."""
    names = [f"tensor{int(n)}{letter}" for n, letter in zip(draw.ints(900, 2), "ab")]
    with _folder({}, one={names[0]: draw(3)}, two={names[1]: draw(3)}) as folder:
        index = dict(zip(names, ("two.safetensors", "one.safetensors")))
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
        return {name: raises(ValueError, lambda name=name: impl.read_tensors(folder), names=name) for name in names}
