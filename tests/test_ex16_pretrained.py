"""What lesson 16 asks of reading checkpoints: configs, names, files, weights, tokenizers."""

import json
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import save_file

from grader import accepts, dtypes, points, raises, shares_memory

PICKLES = {"torch.load", "torch.serialization.load"}
MODELS = {"transformers.AutoModel", "transformers.AutoModelForCausalLM"}
FORBIDDEN = {"config_from_hf": {"transformers.AutoConfig"}, "build_model": MODELS,
             **dict.fromkeys(("read_file", "read_tensors"), PICKLES | MODELS),
             "load_pretrained": PICKLES | MODELS | {"transformers.AutoConfig"},
             "load_tokenizer": {"transformers.AutoTokenizer"}}

# Three small models as Hugging Face describes them: config.json, and the shapes of the tensors.
GPT2 = {"model_type": "gpt2", "vocab_size": 11, "n_embd": 8, "n_layer": 2, "n_head": 2,
        "n_positions": 16, "n_inner": 12, "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-3, "tie_word_embeddings": True}
LLAMA = {"model_type": "llama", "vocab_size": 11, "hidden_size": 8, "num_hidden_layers": 2,
         "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 12, "head_dim": 4,
         "max_position_embeddings": 16, "rms_norm_eps": 1e-3, "hidden_act": "silu",
         "rope_parameters": {"rope_theta": 100.0, "rope_type": "default"},
         "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False}
QWEN3 = {**LLAMA, "model_type": "qwen3", "head_dim": 6, "tie_word_embeddings": True,
         "use_sliding_window": False, "sliding_window": None, "max_window_layers": 1,
         "layer_types": ["full_attention", "full_attention"]}


def _gpt2_shapes(prefix="transformer."):
    shapes = {"wte.weight": (11, 8), "wpe.weight": (16, 8)}
    for n in range(2):
        for name, size in (("attn.c_attn", (8, 24)), ("attn.c_proj", (8, 8)),
                           ("mlp.c_fc", (8, 12)), ("mlp.c_proj", (12, 8))):
            shapes[f"h.{n}.{name}.weight"], shapes[f"h.{n}.{name}.bias"] = size, size[1:]
        for name in ("ln_1", "ln_2"):
            shapes[f"h.{n}.{name}.weight"] = shapes[f"h.{n}.{name}.bias"] = (8,)
    shapes["ln_f.weight"] = shapes["ln_f.bias"] = (8,)
    return {prefix + name: shape for name, shape in shapes.items()}


def _llama_shapes(config=LLAMA):
    head, q = config["head_dim"], 2 * config["head_dim"]
    shapes = {"model.embed_tokens.weight": (11, 8), "model.norm.weight": (8,)}
    for n in range(2):
        layer = f"model.layers.{n}."
        shapes |= {
            layer + "input_layernorm.weight": (8,), layer + "post_attention_layernorm.weight": (8,),
            layer + "self_attn.q_proj.weight": (q, 8), layer + "self_attn.k_proj.weight": (head, 8),
            layer + "self_attn.v_proj.weight": (head, 8), layer + "self_attn.o_proj.weight": (8, q),
            layer + "mlp.gate_proj.weight": (12, 8), layer + "mlp.up_proj.weight": (12, 8),
            layer + "mlp.down_proj.weight": (8, 12)}
        if config["model_type"] == "qwen3":
            shapes |= {f"{layer}self_attn.{x}_norm.weight": (head,) for x in "qk"}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (11, 8)
    return shapes


def _state(draw, shapes):
    return {name: draw(*shape, scale=0.4) if len(shape) > 1 else 0.5 + draw.uniform(*shape)
            for name, shape in shapes.items()}


@contextmanager
def _folder(config=None, index=None, **files):
    """A checkpoint folder: config.json, an index, and a safetensors file per keyword argument."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        folder = Path(folder) / "checkpoint"
        folder.mkdir()
        if config is not None:
            (folder / "config.json").write_text(json.dumps(config))
        if index is not None:
            (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
        for name, tensors in files.items():
            save_file({key: tensor.cpu() for key, tensor in tensors.items()},
                      folder / f"{name}.safetensors", metadata={"format": "pt"})
        yield folder


def _fields(config):
    """A ModelConfig's fields in words, where 2 and 2.0 are one number."""
    def words(value):
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return repr(float(value))
        if isinstance(value, dict):
            return str(sorted((key, words(each)) for key, each in value.items()))
        return str(list(value) if isinstance(value, (list, tuple)) else value)
    return {name: words(value) for name, value in asdict(config).items()}


def _numbers(draw, *keys):
    """Drawn values for these keys of a config.json."""
    return {key: int(n) + 2 for key, n in zip(keys, draw.ints(90, len(keys)))}


def _gpt2(draw):
    drawn = _numbers(draw, "vocab_size", "n_positions", "n_inner", "n_layer", "heads")
    heads = drawn.pop("heads")
    return {**GPT2, **drawn, "n_head": heads, "n_embd": 2 * heads, "layer_norm_epsilon": float(draw.uniform())}


def _llama(draw, kind=LLAMA):
    drawn = _numbers(draw, "vocab_size", "max_position_embeddings", "intermediate_size", "hidden_size", "kv_heads")
    kv_heads = drawn.pop("kv_heads")
    return {**kind, **drawn, "num_key_value_heads": kv_heads, "num_attention_heads": 2 * kv_heads,
            "rms_norm_eps": float(draw.uniform()),
            "rope_parameters": {"rope_theta": 1 + float(draw.uniform()), "rope_type": "default"}}


def _rope(answer):
    base, scaling = answer
    return f"base {float(base)}, scaling {sorted((scaling or {}).items())}"


def _said(call, *names):
    """Whether `call` raises ValueError, and which of `names` its message has."""
    try:
        call()
    except ValueError as error:
        return {f"names {name}": name in str(error) for name in names}
    return "no ValueError"


def _ours(impl, draw, kind=LLAMA):
    """A ModelConfig, and tensors for it by this course's names."""
    config = impl.config_from_hf(kind)
    with torch.device(draw.device):
        shapes = {name: tuple(tensor.shape) for name, tensor in
                  impl.Transformer(config).state_dict().items()}
    if kind["tie_word_embeddings"]:
        del shapes["unembedding.weight"]
    return config, _state(draw, shapes)


# -- config.json

@points(2)
def test_rope_of(impl, draw):
    """rope_of reads the base and the scaling from rope_parameters, as files have it today.

    rope_theta lies inside, beside rope_type: take it out. "default" with nothing else is None.
    """
    theta, factor = (float(n) for n in 2 + draw.ints(900, 2))
    scaled = {"rope_type": "linear", "rope_theta": theta, "factor": factor}
    return {"default": _rope(impl.rope_of({"rope_parameters": {"rope_type": "default", "rope_theta": theta}})),
            "linear": _rope(impl.rope_of({"rope_parameters": scaled})),
            "its argument stays": str(scaled)}


@points(2)
def test_rope_of_older_files(impl, draw):
    """rope_of reads rope_theta and rope_scaling side by side, as files had it before.

    rope_scaling may be missing, or null, which json reads as None; its rope_type was once called
    type. Llama 3.2's file is such a one.
    """
    theta, factor = (float(n) for n in 2 + draw.ints(900, 2))
    llama3 = {"factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 8, "rope_type": "llama3"}
    return {"no scaling": _rope(impl.rope_of({"rope_theta": theta})),
            "null": _rope(impl.rope_of({"rope_theta": theta, "rope_scaling": None})),
            "llama3": _rope(impl.rope_of({"rope_theta": theta, "rope_scaling": llama3})),
            "type": _rope(impl.rope_of({"rope_scaling": {"type": "linear", "factor": factor}})),
            "both": _rope(impl.rope_of({"rope_scaling": llama3 | {"type": "llama3"}})),
            "nothing": _rope(impl.rope_of({}))}


@points(2)
def test_rope_of_mixed_files(impl, draw):
    """Where a file says a thing twice, rope_of takes the one that its docstring names.

    rope_scaling before rope_parameters; original_max_position_embeddings of the file before the one
    inside, for llama3 and yarn alone; a null is as good as nothing.
    """
    theta, factor, length = (int(n) for n in 2 + draw.ints(900, 3))
    linear, default = {"rope_type": "linear", "factor": factor}, {"rope_type": "default", "rope_theta": theta}
    yarn = {"rope_type": "yarn", "factor": factor, "rope_theta": theta}
    trained = {"original_max_position_embeddings": length}
    return {"both": _rope(impl.rope_of({"rope_parameters": default, "rope_scaling": linear})),
            "one is null": _rope(impl.rope_of({"rope_parameters": yarn, "rope_scaling": None})),
            "trained beside": _rope(impl.rope_of({"rope_parameters": yarn, **trained})),
            "trained twice": _rope(impl.rope_of({"rope_parameters": {
                **yarn, "original_max_position_embeddings": length + 5}, **trained})),
            "trained, but linear": _rope(impl.rope_of({"rope_parameters": linear, **trained})),
            "nulls": _rope(impl.rope_of({"rope_theta": None, "rope_scaling": {
                "rope_type": None, "type": "linear", "factor": 2.0, "rope_theta": None}}))}


def test_windows_of(impl, draw):
    """windows_of gives a window to the layers that slide, and only where use_sliding_window is true.

    layer_types decides where it is there. Without it, the layers from max_window_layers on slide,
    28 where the file does not say or says null. layer_types is looked at even where no window is used.
    """
    base = {"num_hidden_layers": 4, **_numbers(draw, "sliding_window"), "max_window_layers": 1 + int(draw.ints(3))}
    types = ["sliding_attention", "full_attention"] * 2
    return {"not used": str(impl.windows_of({**base, "use_sliding_window": False})),
            "not spoken of": str(impl.windows_of(base)),
            "from a layer on": str(impl.windows_of({**base, "use_sliding_window": True})),
            "max_window_layers is null": str(impl.windows_of({
                **base, "num_hidden_layers": 30, "use_sliding_window": True, "max_window_layers": None})),
            "little said": str(impl.windows_of({"num_hidden_layers": 30, "use_sliding_window": True})),
            "null": str(impl.windows_of({**base, "use_sliding_window": True, "sliding_window": None})),
            "by type": str(impl.windows_of({**base, "use_sliding_window": True, "layer_types": types})),
            "unknown type": raises(ValueError, lambda: impl.windows_of(
                {**base, "layer_types": ["chunked_attention"] * 4}), names="layer_types"),
            "no window": raises(ValueError, lambda: impl.windows_of(
                {**base, "layer_types": types}), names="sliding_window")}


@points(2)
def test_config_of_gpt2(impl, draw):
    """config_from_hf makes a GPT-2's ModelConfig of n_embd, n_layer, n_head, n_positions and so on.

    LayerNorm, an MLP, learned positions, biases in every layer, no RoPE. gelu_new is our gelu_tanh.
    """
    return _fields(impl.config_from_hf(_gpt2(draw)))


def test_config_of_gpt2_on_the_hub(impl, draw):
    """What GPT-2's config.json does not say: the head is tied, the MLP is four times as wide.

    tie_word_embeddings is missing there, and n_inner too: a missing key has GPT-2's default.
    """
    left_out = ("tie_word_embeddings", "n_inner", "activation_function", "layer_norm_epsilon")
    full = _gpt2(draw)
    config = {key: value for key, value in full.items() if key not in left_out}
    return {"missing": _fields(impl.config_from_hf(config)),
            "n_inner is null": _fields(impl.config_from_hf(full | {"n_inner": None}))}


@points(2)
def test_config_of_llama(impl, draw):
    """config_from_hf makes a Llama's ModelConfig, its RoPE included; attention_bias is for all four.

    Every number has a key of its own: num_key_value_heads, head_dim, rms_norm_eps, and rope_of's.
    """
    scaling = {"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0}
    llama = _llama(draw)
    return {"Llama": _fields(impl.config_from_hf(llama)),
            "other": _fields(impl.config_from_hf(llama | {
                "head_dim": 6, "attention_bias": True, "rope_parameters": scaling}))}


@points(2)
def test_config_of_qwen3(impl, draw):
    """config_from_hf makes a Qwen3's ModelConfig: Llama's, with QK-norm, head_dim and windows.

    head_dim is 128 where the file has none, whatever hidden_size / heads is.
    """
    windows = {"use_sliding_window": True, "sliding_window": 3,
               "layer_types": ["full_attention", "sliding_attention"]}
    qwen3 = _llama(draw, QWEN3)
    without = {key: value for key, value in qwen3.items() if key != "head_dim"}
    return {"Qwen3": _fields(impl.config_from_hf(qwen3)), "no head_dim": _fields(impl.config_from_hf(without)),
            "windows": _fields(impl.config_from_hf(qwen3 | windows))}


def test_config_refused(impl, draw):
    """What the model cannot be is a ValueError that names the key: an unknown model_type, and more.

    Ask for model_type first. A key that must be there and is not is named, too, one that is null
    though a missing one would have a default, and each key of MUST_BE whose value is another one.
    """
    lost = {key: value for key, value in LLAMA.items() if key != "intermediate_size"}
    return {"model_type": raises(ValueError, lambda: impl.config_from_hf({**LLAMA, "model_type": "mamba"}),
                                 names="model_type"),
            "no model_type": raises(ValueError, lambda: impl.config_from_hf({}), names="model_type"),
            "a key is missing": raises(ValueError, lambda: impl.config_from_hf(lost),
                                       names="intermediate_size"),
            "activation": raises(ValueError, lambda: impl.config_from_hf(
                {**GPT2, "activation_function": "swish"}), names="activation_function"),
            "null": raises(ValueError, lambda: impl.config_from_hf({**LLAMA, "rms_norm_eps": None}),
                           names="rms_norm_eps"),
            "mlp_bias": raises(ValueError, lambda: impl.config_from_hf({**LLAMA, "mlp_bias": True}),
                               names="mlp_bias"),
            "scale": raises(ValueError, lambda: impl.config_from_hf({**GPT2, "scale_attn_weights": False}),
                            names="scale_attn_weights")}


# -- names

@points(2)
def test_rename(impl, draw):
    """rename replaces whole parts of a name, one or several in a row, and leaves the rest alone.

    Split the name at its dots: then h is a part of "h.0" and none of "path.h0".
    """
    state = {name: draw(2) for name in ("h.0.mlp.c_fc.weight", "path.h.1.mlp", "other.0", "x.h")}
    return impl.rename(state, {"h": "blocks", "mlp.c_fc": "up"})


def test_rename_reads_a_name_once(impl, draw):
    """rename reads each name once: the longest key counts, and what it became is not looked up again.

    Go through the parts from left to right. One replacement after another over the whole name would
    send a to b and then on to c, and would miss the second of two equal parts in a row.
    """
    state = {name: draw(2) for name in ("a.b.weight", "attn.q.weight", "x.attn.weight", "h.h.weight")}
    return impl.rename(state, {"a": "b", "b": "c", "attn": "attention", "attn.q": "q_proj", "h": "blocks"})


def test_convert_copies_nothing(impl, draw):
    """The converters copy no number: what they give lies where the given tensors lie.

    A transposed matrix and a third of one are views. A copy would need the memory a second time. The
    answers are how many tensors are copies.
    """
    said = {}
    for kind, convert, shapes in (("gpt2", impl.convert_gpt2, _gpt2_shapes()),
                                  ("llama", impl.convert_llama, _llama_shapes()),
                                  ("qwen3", impl.convert_qwen3, _llama_shapes(QWEN3))):
        state = _state(draw, shapes)
        given = {tensor.untyped_storage().data_ptr() for tensor in state.values()}
        converted = convert(state)
        said[kind] = sum(tensor.untyped_storage().data_ptr() not in given for tensor in converted.values())
        said[f"{kind}, one of them"] = converted.get("norm.weight", torch.zeros(0)).clone()
    return said


@points(2)
def test_rename_leaves_buffers_out(impl, draw):
    """rename leaves out what BUFFERS matches, the mask attn.bias of GPT-2, and nothing else.

    The bias of c_attn is a weight, though its name ends in attn.bias as well: ask for a full match.
    """
    a, b, c = draw.ints(99, 3).tolist()
    names = (f"h.{a}.attn.bias", f"h.{b}.attn.masked_bias", f"transformer.h.{c}.attn.bias", f"h.{a}.attn.c_attn.bias",
             f"model.layers.{b}.self_attn.rotary_emb.inv_freq", f"model.layers.{c}.self_attn.q_proj.bias",
             f"h.{a}.attn.bias_of_mine", f"my.h.{b}.attn.bias")
    return sorted(impl.rename({name: draw(2) for name in names}, {}))


@points(3)
def test_convert_gpt2(impl, draw):
    """convert_gpt2 gives every tensor our name, transposes Conv1D's matrices and cuts c_attn in three.

    Conv1D stores (in, out), our Linear (out, in). c_attn's columns are all of q, all of k, all of v.
    Embeddings, norms and biases are not transposed.
    """
    return impl.convert_gpt2(_state(draw, _gpt2_shapes()))


def test_convert_gpt2_as_on_the_hub(impl, draw):
    """convert_gpt2 also takes names without "transformer.", with buffers, with a head of its own.

    removeprefix leaves a name alone that does not begin so. lm_head is our unembedding.
    """
    state = _state(draw, _gpt2_shapes(prefix="")) | {"h.0.attn.bias": draw(1, 1, 16, 16)}
    return impl.convert_gpt2(state | {"lm_head.weight": draw(11, 8)})


@points(3)
def test_convert_llama(impl, draw):
    """convert_llama gives every tensor our name, and leaves its numbers and their order alone.

    Hugging Face permuted queries and keys already when it converted Meta's files.
    """
    return impl.convert_llama(_state(draw, _llama_shapes()))


def test_convert_qwen3(impl, draw):
    """convert_qwen3 is convert_llama, with q_norm and k_norm in each attention.

    We call the two norms as Hugging Face does.
    """
    return impl.convert_qwen3(_state(draw, _llama_shapes(QWEN3)))


def test_convert_keeps_the_unknown(impl, draw):
    """A tensor that a converter does not know keeps its name, so that loading can complain of it.

    If it were dropped here, nobody would ever hear of it.
    """
    state = {f"model.layers.{int(draw.ints(99))}.self_attn.rotary.weight": draw(2), "score.weight": draw(3, 2)}
    return {"llama": sorted(impl.convert_llama(state)), "gpt2": sorted(impl.convert_gpt2(state))}


# -- files

@points(2)
def test_read_one_file(impl, draw):
    """read_tensors reads model.safetensors: every tensor by its name, as it was written.

    safe_open has keys() and get_tensor(name). Nothing is cast.
    """
    state = {"a.weight": draw(3, 4), "b": draw(5), "c": draw(2, 2).to(torch.bfloat16)}
    with _folder(model=state) as folder:
        return {name: tensor.clone() for name, tensor in impl.read_tensors(folder).items()}


@points(2)
def test_read_shards(impl, draw):
    """read_tensors reads all shards that the index names, from a path given as text, too.

    weight_map is {tensor: file}: each file is opened once.
    """
    one, two = {"a": draw(3, 4), "b": draw(5)}, {"c": draw(2, 2)}
    index = {"a": "one.safetensors", "b": "one.safetensors", "c": "two.safetensors"}
    with _folder(index=index, one=one, two=two) as folder:
        return {name: tensor.clone() for name, tensor in impl.read_tensors(str(folder)).items()}


def test_read_shards_that_disagree(impl, draw):
    """A missing shard is named, and so is a tensor for which index and shards do not agree.

    Compare the pairs (tensor, file) that you found with those in the index, both ways.
    """
    one, two, third = {"first": draw(3)}, {"second": draw(2)}, f"third{int(draw.ints(999))}"
    right = {"first": "one.safetensors", "second": "two.safetensors"}
    found = {}
    for case, index, name in (
            ("shard lost", {**right, "third": "three.safetensors"}, "three.safetensors"),
            ("only in the index", {**right, third: "two.safetensors"}, third),
            ("only in a shard", {"first": "one.safetensors", "x": "two.safetensors"}, "second"),
            ("in another shard", {**right, "second": "one.safetensors"}, "second")):
        with _folder(index=index, one=one, two=two) as folder:
            found[case] = _said(lambda: impl.read_tensors(folder), name)
    return found


def test_read_damaged_files(impl, draw):
    """A file that was cut short is a ValueError that names it, and so is a folder without one.

    safe_open raises a SafetensorError: catch that, and say which file it was. A pickle is not read.
    """
    with _folder(model={"a": draw(30)}) as folder:
        file = folder / "model.safetensors"
        whole = file.read_bytes()
        found = {}
        for cut in (0, 20, len(whole) - 1):
            file.write_bytes(whole[:cut])
            found[f"cut at {cut}"] = _said(lambda: impl.read_tensors(folder), "model.safetensors")
        file.rename(folder / "pytorch_model.bin")
        found["no safetensors"] = _said(lambda: impl.read_tensors(folder), folder.name)
        return found


# -- the model

@points(3)
def test_build_model(impl, draw):
    """build_model gives a model that computes with the tensors it was given: GPT-2, Llama, Qwen3.

    Copy each into its place. (A tensor on the meta device has no numbers: nothing may stay there.)
    """
    ids = draw.ints(11, 2, 5)
    found = {}
    for kind in (GPT2, LLAMA, QWEN3):
        model = impl.build_model(*_ours(impl, draw, kind), device=draw.device)
        found[kind["model_type"]] = model(ids)
    return found


@points(2)
def test_build_model_ties(impl, draw):
    """Where the config ties them, embedding and unembedding are one Parameter, not two equal ones.

    After the weights are in place, tie again: a new Parameter in the embedding is not in the other.
    A head in the file is no problem if it holds the same numbers, whatever its dtype, and one if it does not.
    Take the head out of a dict of your own: the caller's stays whole.
    """
    config, tensors = _ours(impl, draw, QWEN3)
    head = tensors["embedding.weight"].clone()
    found = {}
    for case, extra in {"no head": {}, "a head": {"unembedding.weight": head}}.items():
        model = impl.build_model(config, tensors | extra, device=draw.device)
        found[case] = {"one Parameter": model.unembedding.weight is model.embedding.weight,
                       "numbers": sum(p.numel() for p in model.parameters()), "logits": model(draw.ints(11, 1, 3))}
    halves = tensors | {"embedding.weight": head.bfloat16()}
    for case, other in (("another head", head + 1), ("another, of another dtype", head.half() + 1)):
        with_head = tensors | {"unembedding.weight": other}
        found[case] = raises(ValueError, lambda: impl.build_model(config, with_head, torch.float32),
                             names="unembedding.weight")
        found[f"{case}: what the caller still has"] = sorted(with_head)
    same = halves | {"unembedding.weight": head.bfloat16().float()}
    found["equal, of another dtype"] = accepts(lambda: impl.build_model(config, same, torch.float32))
    return found


@points(3)
def test_build_model_lists_all_that_is_wrong(impl, draw):
    """One ValueError names every tensor that is missing, unknown or of the wrong shape.

    Collect all problems in a list before you raise. For a wrong shape say both shapes. Whole numbers
    are no weights either: without their scales they mean nothing.
    """
    config, tensors = _ours(impl, draw)
    lost = f"blocks.1.attention.{'qkvo'[int(draw.ints(4))]}_proj.weight"
    unknown = f"blocks.{2 + int(draw.ints(90))}.norm1.weight"
    del tensors["norm.weight"], tensors[lost]
    tensors |= {unknown: draw(8), "score.weight": draw(3, 8),
                "blocks.0.feed_forward.up.weight": draw(12, 9), "embedding.weight": draw(10, 8)}
    alone = dict(_ours(impl, draw)[1], extra=draw(2))
    whole = dict(_ours(impl, draw)[1], **{"norm.weight": draw.ints(3, 8).to(torch.int8)})
    return {"many": _said(lambda: impl.build_model(config, tensors), "norm.weight", "score.weight",
                          lost, unknown,
                          "blocks.0.feed_forward.up.weight", "12, 9", "12, 8", "embedding.weight"),
            "one too many": _said(lambda: impl.build_model(config, alone), "extra"),
            "whole numbers": _said(lambda: impl.build_model(config, whole), "norm.weight"),
            "whole numbers, cast": _said(lambda: impl.build_model(config, whole, dtype=torch.float32),
                                         "norm.weight")}


def test_build_model_of_several_dtypes(impl, draw):
    """Tensors of several dtypes need a dtype; left out, it is a ValueError that names it.

    A matrix in float16 cannot be multiplied with a stream in bfloat16: such a model would load, and
    fail at its first token.
    """
    config, tensors = _ours(impl, draw)
    tensors["norm.weight"] = tensors["norm.weight"].to(torch.bfloat16)
    cast = impl.build_model(config, tensors, dtype=torch.float32, device=draw.device)
    return {"left out": raises(ValueError, lambda: impl.build_model(config, tensors), names="dtype"),
            "given": sorted({str(p.dtype) for p in cast.parameters()}), "norm": cast.norm.weight}


@points(2)
@dtypes("bfloat16", "float16", "float32")
def test_build_model_dtype(impl, draw, dtype):
    """Weights are cast to dtype where it is given, else they stay as they are; RoPE's tables never.

    tensor.dtype is what to use where dtype is None.
    """
    config, tensors = _ours(impl, draw)
    stays = impl.build_model(config, {name: t.to(dtype) for name, t in tensors.items()}, device=draw.device)
    cast = impl.build_model(config, tensors, dtype=torch.bfloat16, device=draw.device)
    return {"stays": stays.norm.weight, "all stay": all(p.dtype == dtype for p in stays.parameters()),
            "cast": cast.norm.weight, "all cast": all(p.dtype == torch.bfloat16 for p in cast.parameters()),
            "tables": all(b.dtype == torch.float32 for b in cast.buffers())}


def test_build_model_copies(impl, draw):
    """The weights are contiguous copies that can be trained, in a model in eval mode.

    A view would keep the whole file mapped, and a transposed one is slow to compute with.
    """
    config, tensors = _ours(impl, draw)
    name = "blocks.0.attention.q_proj.weight"
    tensors[name] = tensors[name].T.contiguous().T
    model = impl.build_model(config, tensors, device=draw.device)
    weight = model.blocks[0].attention.q_proj.weight
    again = impl.build_model(config, tensors, dtype=draw.float, device=draw.device)
    return {"shares memory": shares_memory(weight, tensors[name]), "weight": weight.detach().clone(),
            "shares memory, in the dtype that it has": [n for n, p in again.named_parameters()
                                                        if shares_memory(p, tensors[n])],
            "contiguous": weight.is_contiguous(),
            "can be trained": all(p.requires_grad for p in model.parameters()),
            "training": model.training,
            "dtype": raises(ValueError, lambda: impl.build_model(config, tensors, dtype=torch.int8), names="dtype")}


@points(3)
def test_load_pretrained(impl, draw):
    """load_pretrained reads config.json and the tensors of a folder, converts and builds.

    The model_type says which converter it takes.
    """
    ids = draw.ints(11, 2, 5)
    shapes = {"gpt2": (GPT2, _gpt2_shapes()), "llama": (LLAMA, _llama_shapes()),
              "qwen3": (QWEN3, _llama_shapes(QWEN3))}
    found = {}
    for kind, (config, names) in shapes.items():
        with _folder(config, model=_state(draw, names)) as folder:
            found[kind] = impl.load_pretrained(folder, device=draw.device)(ids)
    return found


def test_load_pretrained_refuses(impl, draw):
    """load_pretrained says what is wrong with a folder: its config, its tensors, which folder it is.

    All in ValueErrors: a text where a number should be is a TypeError until you catch it. read_json,
    which is given, raises them for a config.json that is missing or cut.
    """
    state = _state(draw, _llama_shapes())
    found = {}
    with _folder(LLAMA, model={**state, "extra.weight": draw(2)}) as folder:
        found["extra"] = _said(lambda: impl.load_pretrained(folder), "extra.weight", folder.name)
        (folder / "config.json").write_text(json.dumps({**LLAMA, "model_type": "mamba"}))
        found["unknown"] = _said(lambda: impl.load_pretrained(folder), "model_type", folder.name)
        for value in ("8", [8]):
            (folder / "config.json").write_text(json.dumps({**LLAMA, "hidden_size": value}))
            found[f"hidden_size {value!r}"] = _said(lambda: impl.load_pretrained(folder), folder.name)
        (folder / "config.json").write_text("{")
        found["config cut"] = _said(lambda: impl.load_pretrained(folder), "config.json")
        (folder / "config.json").unlink()
        found["no config"] = _said(lambda: impl.load_pretrained(folder), "config.json")
    return found


# -- the tokenizer

def _tokenizer_json(impl, merges=("Ġ t", "h e", "Ġt he", "Ã ©"), **changes):
    """A small tokenizer.json: the bytes, some merges, and one special token at the end."""
    tokens = [*impl.byte_letters().values(), *(pair.replace(" ", "") for pair in merges)]
    saved = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
        "added_tokens": [{"id": len(tokens), "content": "<|end|>", "single_word": False,
                          "lstrip": False, "rstrip": False, "normalized": False, "special": True}],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                          "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "ignore_merges": False, "vocab": {token: id for id, token in enumerate(tokens)},
                  "merges": [pair.split(" ") for pair in merges]}}
    return saved | changes


@contextmanager
def _tokenizer_folder(saved):
    with TemporaryDirectory() as folder:
        (Path(folder) / "tokenizer.json").write_text(json.dumps(saved), "utf-8")
        yield Path(folder)


TEXT = "Then the café, in the 1990s,<|end|>the end   the"


@points(2)
def test_load_tokenizer(impl, draw):
    """load_tokenizer reads bytes, merges and special tokens into lesson 01's Tokenizer.

    Every token but the added ones is spelled in byte_letters: turn the table around. Ġ is a space.
    """
    with _tokenizer_folder(_tokenizer_json(impl)) as folder:
        tokenizer = impl.load_tokenizer(folder)
    ids = tokenizer.encode(TEXT + draw.text(20))
    return {"ids": ids, "text": tokenizer.decode(ids), "merges": str(tokenizer.merges),
            "kind": type(tokenizer).__name__}


def test_load_tokenizer_of_older_files(impl, draw):
    """In older files a merge is one text with a space, and special tokens are in the vocabulary too.

    A pair that is a text is cut at its space: a spelled token has none of its own. A special token
    is plain text in the vocabulary too: do not unspell it. added_tokens may be missing or null.
    """
    saved = _tokenizer_json(impl)
    saved["model"]["merges"] = [" ".join(pair) for pair in saved["model"]["merges"]]
    saved["model"]["vocab"]["<|end|>"] = saved["added_tokens"][0]["id"]
    with _tokenizer_folder(saved) as folder:
        tokenizer = impl.load_tokenizer(folder)
    said = {"ids": tokenizer.encode(TEXT + draw.text(20)), "merges": str(tokenizer.merges)}
    content = "<fin｜>"                  # its sign ｜ is no letter of byte_letters
    saved["model"]["vocab"][content] = saved["model"]["vocab"].pop("<|end|>")
    saved["added_tokens"][0]["content"] = content
    with _tokenizer_folder(saved) as folder:
        said["special beyond ASCII"] = impl.load_tokenizer(folder).encode(f"the{content}")
    with _tokenizer_folder(_tokenizer_json(impl, added_tokens=None)) as folder:
        said["no added tokens"] = impl.load_tokenizer(folder).encode(TEXT)
    return said


@points(2)
def test_load_tokenizer_of_another_kind(impl, draw):
    """A tokenizer.json that splits or normalizes in another way is read by the tokenizers library.

    Lesson 01's Tokenizer would read it without complaint and give other ids. is_byte_bpe tells.
    """
    spaces = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    found = {}
    for kind, change in {"a space is added": {"pre_tokenizer": spaces},
                         "no split at all": {"pre_tokenizer": spaces | {
                             "add_prefix_space": False, "use_regex": False}},
                         "lower case": {"normalizer": {"type": "Lowercase"}}}.items():
        with _tokenizer_folder(_tokenizer_json(impl, **change)) as folder:
            tokenizer = impl.load_tokenizer(folder)
        found[kind] = {"ids": tokenizer.encode("the The THE" + draw.text(20)), "kind": type(tokenizer).__name__}
    return found


def test_load_tokenizer_refuses(impl, draw):
    """A tokenizer.json that is missing, damaged or not whole is a ValueError that names it.

    Whatever goes wrong while you read it, KeyErrors too, becomes one ValueError.
    """
    cases = {"no merges": {"type": "BPE", "vocab": {}}, "bytes lost": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
             "no model": None}
    found = {}
    for case, model in cases.items():
        with _tokenizer_folder(_tokenizer_json(impl, model=model)) as folder:
            found[case] = _said(lambda: impl.load_tokenizer(folder), "tokenizer.json")
    with TemporaryDirectory() as folder:
        found["missing"] = _said(lambda: impl.load_tokenizer(folder), "tokenizer.json")
    return found
