"""Pretrained weights: read the files of other people's models into the model you built.

A checkpoint folder as Hugging Face lays it out holds config.json (the shape of the model),
model.safetensors, whole or in shards (the numbers), and tokenizer.json (the words).
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.overrides import TorchFunctionMode

from given.tensors import tensor_problems

from .ex01_tokens import Tokenizer
from .ex13_transformer import ModelConfig, Transformer

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"

# Hugging Face's names of activations, and lesson 08's.
ACTIVATION = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu",
              "relu": "relu", "silu": "silu"}

# What a config.json may say of these, where it speaks of them: our model has no other way.
MUST_BE = {"hidden_act": "silu", "mlp_bias": False, "scale_attn_weights": True,
           "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False,
           "quantization_config": None, "partial_rotary_factor": 1.0}

# What the numbers of a checkpoint may be; eight bits or integers mean nothing without their scales.
DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)

# Tensors that are no weights and may be left out: causal masks in GPT-2's files, RoPE's
# frequencies in Llama's early ones. Whatever else a file holds must have a place in the model.
BUFFERS = re.compile(r"(transformer\.)?h\.\d+\.attn\.(masked_)?bias"
                     r"|model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")


def read_json(file: Path) -> dict:
    """Given: the object in a JSON file. Raises ValueError naming the file where there is none."""
    try:
        content = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise ValueError(f"path must lead to {file.name}, but there is no {file}") from None
    except ValueError as error:                         # no JSON, or no UTF-8
        raise ValueError(f"{file} is damaged: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file} must hold one JSON object, got a {type(content).__name__}")
    return content


def rope_of(config_json: dict) -> tuple[float, dict | None]:
    """RoPE's base and its scaling, None for none, out of a config.json of either form.

    Files since transformers 5 have rope_parameters, with rope_theta inside. Older ones have
    rope_theta beside rope_scaling, which may be missing or null, and may call its rope_type type.
    Where a file has both, rope_scaling counts and rope_parameters does not. No base is 10,000. A
    rope_type "default" alone is no scaling. original_max_position_embeddings may stand beside them
    instead of inside; with "llama3" and "yarn" the outer one then counts. Keys that are null, in
    the file or inside, count as missing. The scaling is returned without rope_theta, and its kind
    always under rope_type.
    """
    # BEGIN SOLUTION
    scaling = config_json.get("rope_scaling") or config_json.get("rope_parameters") or {}
    scaling = {key: value for key, value in scaling.items() if value is not None}
    base = scaling.pop("rope_theta", config_json.get("rope_theta"))
    kind = scaling.pop("type", "default")
    scaling = {"rope_type": kind} | scaling
    trained = config_json.get("original_max_position_embeddings")
    if trained is not None and scaling["rope_type"] in ("llama3", "yarn"):
        scaling["original_max_position_embeddings"] = trained
    base = 10_000.0 if base is None else base
    return base, None if scaling == {"rope_type": "default"} else scaling
    # END SOLUTION


def windows_of(config_json: dict) -> list[int | None] | None:
    """How many tokens each layer of a Qwen3 sees, None for all; None where all layers see all.

    sliding_window, 4,096 where it is missing, counts only where use_sliding_window is true; without
    it there is no window. layer_types says of each layer whether it has "full_attention" or
    "sliding_attention", and is looked at whether or not there is a window. Without layer_types, or
    where it is null, the layers from max_window_layers on have the window (from 28 on where that is
    missing or null).

    Raises ValueError naming layer_types where one is neither of the two, and sliding_window where
    a layer slides and there is no window.
    """
    # BEGIN SOLUTION
    window = None
    if config_json.get("use_sliding_window"):
        window = config_json.get("sliding_window", 4096)
    types = config_json.get("layer_types")
    if types is None:
        if window is None:
            return None
        start = config_json.get("max_window_layers")
        start = 28 if start is None else start
        types = ["sliding_attention" if n >= start else "full_attention"
                 for n in range(config_json["num_hidden_layers"])]
    if unknown := set(types) - {"full_attention", "sliding_attention"}:
        raise ValueError(f"layer_types must be full_attention or sliding_attention, got {unknown}")
    if "sliding_attention" not in types:
        return None
    if window is None:
        raise ValueError("sliding_window must be a number for layers that slide, got None")
    return [window if kind == "sliding_attention" else None for kind in types]
    # END SOLUTION


def config_from_hf(config_json: dict) -> ModelConfig:
    """The ModelConfig that a config.json of Hugging Face asks for: GPT-2, Llama or Qwen3.

    model_type: "gpt2", "llama" or "qwen3". GPT-2: LayerNorms, an MLP (n_inner, or 4 · n_embd where
    that is null or missing), learned positions, biases everywhere; activation_function by
    ACTIVATION, "gelu_new" where missing; layer_norm_epsilon, 1e-5 where missing. Llama and Qwen3:
    RMSNorms (rms_norm_eps, 1e-6 where missing), a SwiGLU, RoPE (rope_of). attention_bias adds
    biases to all four projections of the attention. num_key_value_heads: as many as heads where
    null or missing; head_dim: where null or missing, hidden_size / heads in Llama, 128 in Qwen3.
    Qwen3 has QK-norm, and windows (windows_of). tie_word_embeddings, where missing, is true for
    GPT-2 alone. The rates of dropout are left out: they are for training, and the model is loaded
    to be used.

    Raises ValueError naming model_type where it is none of the three, a key that is missing
    though the model cannot do without, a key that is null where the above does not speak of null,
    activation_function where it is unknown, any key of MUST_BE with another value, and what
    ModelConfig refuses.

    To be written here: transformers' AutoConfig is not used.
    """
    # BEGIN SOLUTION
    def _value(key: str, missing: object = None) -> object:
        """The value of a key, or what a missing one stands for; null is refused."""
        value = config_json.get(key, missing)
        if value is None:
            raise ValueError(f"{key} must be in config.json, got None")
        return value

    kind = config_json.get("model_type")
    if kind not in ("gpt2", "llama", "qwen3"):
        raise ValueError(f"model_type must be 'gpt2', 'llama' or 'qwen3', got {kind!r}")
    for key, right in MUST_BE.items():
        if config_json.get(key, right) != right:
            raise ValueError(f"{key} must be {right!r}, got {config_json[key]!r}")
    tied = _value("tie_word_embeddings", kind == "gpt2")

    if kind == "gpt2":
        activation = _value("activation_function", "gelu_new")
        if activation not in ACTIVATION:
            raise ValueError(f"activation_function must be one of {list(ACTIVATION)}, "
                             f"got {activation!r}")
        return ModelConfig(
            vocab_size=_value("vocab_size"), d_model=_value("n_embd"), layers=_value("n_layer"),
            heads=_value("n_head"), d_ff=config_json.get("n_inner") or 4 * _value("n_embd"),
            max_seq_len=_value("n_positions"), norm="layer",
            norm_eps=_value("layer_norm_epsilon", 1e-5), feed_forward="mlp",
            activation=ACTIVATION[activation], positions="learned", qkv_bias=True, o_bias=True,
            mlp_bias=True, tie_embeddings=tied)

    qwen3 = kind == "qwen3"
    base, scaling = rope_of(config_json)
    bias = _value("attention_bias", False)
    return ModelConfig(
        vocab_size=_value("vocab_size"), d_model=_value("hidden_size"),
        layers=_value("num_hidden_layers"),
        heads=_value("num_attention_heads"), kv_heads=config_json.get("num_key_value_heads"),
        head_dim=config_json.get("head_dim") or (128 if qwen3 else None),
        d_ff=_value("intermediate_size"), max_seq_len=_value("max_position_embeddings"),
        norm_eps=_value("rms_norm_eps", 1e-6), rope_base=base, rope_scaling=scaling,
        qk_norm=qwen3, qkv_bias=bias, o_bias=bias,
        windows=windows_of(config_json) if qwen3 else None, tie_embeddings=tied)
    # END SOLUTION


def rename(state: Mapping[str, Tensor], table: dict[str, str]) -> dict[str, Tensor]:
    """The same tensors under new names, without the BUFFERS.

    A name is parts with dots between them. Each key of table, one whole part or several in a
    row, becomes its value: with {"h": "blocks", "attn.c_proj": "o_proj"}, the name
    h.0.attn.c_proj.weight becomes blocks.0.o_proj.weight. A part that is in no key stays as it is.
    A name is read once, from left to right: where several keys fit, the longest counts, and a
    value is not looked up again ({"a": "b", "b": "c"} makes a.b to b.c).

    Raises ValueError naming both where two tensors would get one name.
    """
    # BEGIN SOLUTION
    renamed, origin = {}, {}
    for old, tensor in state.items():
        if BUFFERS.fullmatch(old):
            continue
        parts, new = old.split("."), []
        while parts:
            lengths = range(len(parts), 0, -1)              # the longest first; one part at least
            n = next((n for n in lengths if ".".join(parts[:n]) in table), 1)
            key, parts = ".".join(parts[:n]), parts[n:]
            new.append(table.get(key, key))
        name = ".".join(new)
        if name in renamed:
            raise ValueError(f"state has both {origin[name]} and {old} for {name}")
        renamed[name], origin[name] = tensor, old
    return renamed
    # END SOLUTION


def convert_gpt2(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A GPT-2's tensors, by Hugging Face's names, as a Transformer has them.

    The names may begin with "transformer." or not. GPT-2's four matrices per layer are Conv1D's,
    (in, out): they are transposed. c_attn is queries, keys and values in this order, (d_model,
    3 · d_model) with its bias of 3 · d_model: it becomes three. Embeddings and lm_head stay as they
    are. No tensor is copied: views will do. A name that is not GPT-2's is left as it is.

    Raises ValueError where two tensors would get one name, such as wte.weight and
    transformer.wte.weight.
    """
    # BEGIN SOLUTION
    outer = {"wte": "embedding", "wpe": "positions", "h": "blocks", "ln_f": "norm"}
    prefixed = {f"transformer.{theirs}": ours for theirs, ours in outer.items()}
    renamed = rename(state, outer | prefixed | {
        "lm_head": "unembedding",
        "ln_1": "norm1", "attn.c_attn": "attention.c_attn", "attn.c_proj": "attention.o_proj",
        "ln_2": "norm2", "mlp.c_fc": "feed_forward.up", "mlp.c_proj": "feed_forward.down"})
    converted = {}
    for name, tensor in renamed.items():
        if name.endswith(("c_attn.weight", "o_proj.weight", "up.weight", "down.weight")):
            tensor = tensor.transpose(0, -1)
        if ".c_attn." in name:
            for ours, part in zip(("q_proj", "k_proj", "v_proj"), tensor.chunk(3)):
                converted[name.replace("c_attn", ours)] = part
        else:
            converted[name] = tensor
    return converted
    # END SOLUTION


def convert_llama(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A Llama's tensors, by Hugging Face's names, as a Transformer has them: new names, no more.

    Queries and keys stay in their order: Hugging Face's files have it as RoPE's layout "half"
    needs it. (Meta's own files do not; interleaved_to_half of lesson 07 is for those.) No tensor
    is copied. A name that is not Llama's is left as it is.
    """
    # BEGIN SOLUTION
    names = {
        "model.embed_tokens": "embedding", "model.layers": "blocks", "model.norm": "norm",
        "lm_head": "unembedding", "input_layernorm": "norm1", "self_attn": "attention",
        "post_attention_layernorm": "norm2", "mlp.gate_proj": "feed_forward.gate",
        "mlp.up_proj": "feed_forward.up", "mlp.down_proj": "feed_forward.down"}
    return rename(state, names)
    # END SOLUTION


def convert_qwen3(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A Qwen3's tensors, by Hugging Face's names, as a Transformer has them.

    Llama's names, and two norms per layer more: self_attn.q_norm and self_attn.k_norm.
    """
    # BEGIN SOLUTION
    return convert_llama(state)         # q_norm and k_norm are called so by us, too
    # END SOLUTION


def read_file(file: Path) -> dict[str, Tensor]:
    """The tensors of one safetensors file, by name, mapped into memory.

    Mapped: nothing is read yet. The system reads a page of the file when its numbers are first
    looked at, and may drop it again.

    Raises ValueError naming the file where it is damaged: cut short, or its header broken. (A
    number that changed between header and end is not noticed: the format has no checksum.)

    To be written here: torch.load and transformers' AutoModel are not used.
    """
    # BEGIN SOLUTION
    try:
        with safe_open(file, framework="pt") as opened:
            return {name: opened.get_tensor(name) for name in opened.keys()}
    except SafetensorError as error:
        raise ValueError(f"{file} is damaged or no safetensors file: {error}") from error
    # END SOLUTION


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint folder, by the names in its files, mapped into memory.

    Of model.safetensors where there is one. Else of the shards that model.safetensors.index.json
    names: its weight_map says for each tensor in which file of the folder it lies.

    Raises ValueError naming the folder where there is neither file (a pickle such as
    pytorch_model.bin can run any code when it is opened, and is not), naming each shard that is
    missing or lies outside the folder, naming each tensor that is not in the shard the index says,
    or in a shard and not in the index, and naming a damaged file.

    To be written here: torch.load and transformers' AutoModel are not used.
    """
    # BEGIN SOLUTION
    folder = Path(path)
    if (folder / SINGLE).is_file():
        return read_file(folder / SINGLE)
    if not (folder / INDEX).is_file():
        raise ValueError(f"path must hold {SINGLE} or {INDEX}, got {folder}")
    weight_map = read_json(folder / INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(f, str) for f in weight_map.values()):
        raise ValueError(f"{folder / INDEX} is damaged: its weight_map must give a file per tensor")
    shards = sorted(set(weight_map.values()))
    if lost := [shard for shard in shards
                if Path(shard).name != shard or not (folder / shard).is_file()]:
        raise ValueError(f"{folder} lacks these shards of {INDEX}: {', '.join(lost)}")

    tensors, found = {}, set()
    for shard in shards:
        part = read_file(folder / shard)
        found |= {(name, shard) for name in part}
        tensors |= part
    if wrong := sorted({name for name, _ in found ^ set(weight_map.items())}):
        raise ValueError(f"{folder / INDEX} and the shards disagree about {', '.join(wrong)}")
    return tensors
    # END SOLUTION


class Weightless(TorchFunctionMode):
    """Given: a model made inside `with Weightless():` has weights of right shapes, without numbers.

    Numbers that a checkpoint will replace need no memory and no random draw. torch.empty
    gives a tensor on the meta device, which has a shape and no storage, and changing one in place
    does nothing. Tables that are computed, such as RoPE's, are real: no file holds them. (Inside
    `with torch.device("meta"):` they would have no numbers either.)
    """

    def __torch_function__(self, function: Callable, types: tuple, args: tuple = (),
                           kwargs: dict | None = None):
        kwargs = kwargs or {}
        if function is torch.empty:
            return function(*args, **kwargs | {"device": "meta"})
        name = getattr(function, "__name__", "")
        if name.endswith("_") and not name.endswith("__"):          # such as normal_
            tensor = next(iter((*args, *kwargs.values())), None)
            if isinstance(tensor, Tensor) and tensor.is_meta:
                return tensor
        return function(*args, **kwargs)


def build_model(
    config: ModelConfig,
    tensors: Mapping[str, Tensor],
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Transformer:
    """A Transformer(config) that holds these tensors, given by its own names, in eval mode.

    The model is made Weightless. Then every tensor is copied once, contiguous, to device, in dtype,
    or in its own where that is left out. So no more than one copy of the weights is in memory,
    besides what tensors has there. RoPE's tables are in no file: they stay as the model computes
    them, in float32, whatever dtype is.

    Where the config ties them, embedding and unembedding are one Parameter; "unembedding.weight"
    may then be missing, and where it is not must hold the same numbers as "embedding.weight".

    Raises one ValueError that names every tensor that is missing, every one that the model has no
    place for, every one of the wrong shape, with both shapes as in (12, 8), every one whose dtype
    is not in DTYPES, and tied ones that differ. Raises ValueError naming dtype where it is not in
    DTYPES, and where it is left out though the tensors are of several dtypes, which cannot be
    multiplied.

    To be written here: transformers' AutoModel is not used.
    """
    # BEGIN SOLUTION
    if dtype not in (None, *DTYPES):
        raise ValueError(f"dtype must be one of {DTYPES}, got {dtype}")
    with Weightless():
        model = Transformer(config)
    wanted, tensors = model.state_dict(), dict(tensors)
    problems = []
    if config.tie_embeddings:
        head, embedding = tensors.pop("unembedding.weight", None), tensors.get("embedding.weight")
        del wanted["unembedding.weight"]
        if None not in (head, embedding) and not _same(head, embedding):
            problems.append("tied but different: embedding.weight and unembedding.weight")
    problems += tensor_problems(tensors, {name: tensor.shape for name, tensor in wanted.items()})
    problems += [f"no floating-point numbers: {name} of {tensor.dtype}"
                 for name, tensor in tensors.items() if tensor.dtype not in DTYPES]
    if problems:
        raise ValueError("tensors do not fit the config:\n  " + "\n  ".join(problems))
    if dtype is None and len(found := {tensor.dtype for tensor in tensors.values()}) > 1:
        raise ValueError("dtype must be given where tensors are of several: "
                         f"{sorted(map(str, found))}")

    weights = {
        name: torch.empty(tensor.shape, dtype=dtype or tensor.dtype, device=device).copy_(tensor)
        for name, tensor in tensors.items()}
    model.load_state_dict(weights, strict=False, assign=True)   # a tied head is not among them
    if config.tie_embeddings:
        model.unembedding.tie(model.embedding)
    return model.to(device).eval()
    # END SOLUTION


def _same(one: Tensor, other: Tensor) -> bool:
    """Given: whether two tensors have one shape and equal numbers, whatever their dtypes."""
    return one.shape == other.shape and bool((one == other).all())


def load_pretrained(
    path: str | Path,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Transformer:
    """The model in a checkpoint folder of GPT-2, Llama or Qwen3, ready to use, in eval mode.

    dtype: what its weights are cast to; left out, they stay as the file has them, often bfloat16.

    Raises ValueError, naming the folder, where something is missing, damaged, unknown or does not
    fit, and naming it: the file, the key, or all that is wrong with the tensors at once.

    To be written here: torch.load and transformers' AutoModel and AutoConfig are not used.
    """
    # BEGIN SOLUTION
    folder = Path(path)
    config_json = read_json(folder / "config.json")
    try:
        config = config_from_hf(config_json)
        converters = {"gpt2": convert_gpt2, "llama": convert_llama, "qwen3": convert_qwen3}
        tensors = converters[config_json["model_type"]](read_tensors(folder))
        return build_model(config, tensors, dtype, device)
    except (TypeError, ValueError) as error:            # a TypeError: text where a number should be
        raise ValueError(f"{folder}: {error}") from error
    # END SOLUTION


def byte_letters() -> dict[int, str]:
    """Given: the printable character by which a tokenizer.json writes each byte.

    JSON holds text, and not every byte is text. GPT-2 wrote printable bytes as themselves and
    the other 68, in order, as the characters from 256 on: the space is Ġ.
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return ({byte: chr(byte) for byte in printable} |
            {byte: chr(256 + i) for i, byte in enumerate(others)})


def is_byte_bpe(saved: dict) -> bool:
    """Given: whether a tokenizer.json asks for what lesson 01 built, and for nothing else.

    That is byte-level BPE by rank with GPT-2's split. Llama 3 and Qwen3 split by other patterns,
    Llama 2 does not work on bytes, others normalize the text first.
    """
    model, split = saved.get("model") or {}, saved.get("pre_tokenizer") or {}
    added = saved.get("added_tokens") or []
    more = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback",
            "ignore_merges")
    return (model.get("type") == "BPE" and not any(model.get(key) for key in more)
            and not saved.get("normalizer")
            and split.get("type") == "ByteLevel" and split.get("use_regex", True)
            and not split.get("add_prefix_space", True)
            and (saved.get("decoder") or {}).get("type") == "ByteLevel"
            and not any(token.get(key) for token in added
                        for key in ("single_word", "lstrip", "rstrip"))
            # those that are not normalized are looked for first, so a longer one may come too late
            and len({bool(token.get("normalized")) for token in added}) < 2)


class LibraryTokenizer:
    """Given: any other tokenizer.json, read by the tokenizers library, used as lesson 01's is.

    Neither adds a token that is not in the text, such as Llama's <|begin_of_text|>: put it there.

    Raises ValueError naming the file where the library cannot read it.
    """

    def __init__(self, file: Path):
        import tokenizers  # only where it is needed
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises nothing more special
            raise ValueError(f"{file} is no tokenizer that can be read: {error}") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def encode(self, text: str) -> list[int]:
        """The ids of a text; special tokens in it are one id each."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids. Raises ValueError where one of ids is not in the vocabulary."""
        ids = list(ids)
        if unknown := [id for id in ids if id < 0 or self._tokenizer.id_to_token(id) is None]:
            raise ValueError(f"ids must be in the vocabulary, got {unknown}")
        return self._tokenizer.decode(ids, skip_special_tokens=False)


def load_tokenizer(path: str | Path) -> Tokenizer | LibraryTokenizer:
    """The tokenizer in a checkpoint folder's tokenizer.json.

    Lesson 01's Tokenizer where is_byte_bpe says that it gives the right ids (GPT-2 is such a
    one); a LibraryTokenizer for every other. For the first kind: the vocabulary maps tokens,
    spelled by byte_letters, to ids. Merges are pairs of spelled tokens, or in older files one
    string with a space between them. added_tokens are the special tokens: each has a content, which
    is plain text and not spelled, and an id; some files list them in the vocabulary as well, others
    have none (missing or null).

    Raises ValueError naming the file where it is missing, damaged or cannot be read rightly.

    To be written here: transformers' AutoTokenizer is not used.
    """
    # BEGIN SOLUTION
    file = Path(path) / "tokenizer.json"
    saved = read_json(file)
    if not is_byte_bpe(saved):
        return LibraryTokenizer(file)
    byte = {letter: bytes([byte]) for byte, letter in byte_letters().items()}

    def _unspell(token: str) -> bytes:
        return b"".join(byte[letter] for letter in token)

    try:
        special = {token["content"]: token["id"] for token in saved.get("added_tokens") or []}
        vocab = {id: _unspell(token) for token, id in saved["model"]["vocab"].items()
                 if token not in special}
        vocab |= {id: token.encode() for token, id in special.items()}
        pairs = (pair.split(" ") if isinstance(pair, str) else pair
                 for pair in saved["model"]["merges"])
        merges = [(_unspell(left), _unspell(right)) for left, right in pairs]
        return Tokenizer(vocab, merges, list(special))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{file} cannot be read rightly: {error}") from error
    # END SOLUTION


def download(repo_id: str) -> Path:
    """Given: the folder that holds a repository of the Hugging Face Hub, fetched where needed.

    repo_id: such as "openai-community/gpt2". Only safetensors and JSON files of the top folder are
    fetched, no pickles and no code; what is already there is not fetched again. Needs a network.
    """
    from huggingface_hub import snapshot_download
    return Path(snapshot_download(repo_id, allow_patterns=["*.safetensors", "*.json"],
                                  ignore_patterns=["*/*"]))
