"""What the parts of chapter 16 may be given."""

import torch
from hypothesis import strategies as st
from reference import ex13_transformer

from tests.course.checks.configurations.ex13_transformer import a_config
from tests.course.parity.test_configs import BASES, FIELDS, INSIDE, SCALINGS


def a_json(draw, kind):
    """A config.json: each field missing, null or given; RoPE's in one layout, the other, or both."""
    config = {"model_type": kind, **BASES[kind]}
    for key in draw("fields", st.lists(st.sampled_from(sorted(FIELDS[kind])), max_size=6, unique=True), told=False):
        config[key] = draw(key, tuple(FIELDS[kind][key]), told=False)
    if kind != "gpt2":
        for layout in draw(
            "layouts", ((), ("rope_parameters",), ("rope_scaling",), ("rope_parameters", "rope_scaling")), told=False
        ):
            scaling = draw(layout, tuple(SCALINGS), told=False)
            for key in (
                draw("inside", st.lists(st.sampled_from(sorted(INSIDE)), max_size=2, unique=True), told=False)
                if scaling
                else ()
            ):
                scaling[key] = draw(key, tuple(INSIDE[key]), told=False)
            config[layout] = scaling
    draw.told.append(f"config.json: {config}")
    return config


def configs(impl, draw):
    config = a_json(draw, draw("kind", ("llama", "qwen3", "gpt2"), told=False))
    if config["model_type"] != "gpt2":
        draw.asked(impl.rope_of, config)
        draw.asked(impl.windows_of, config)
    draw.asked(impl.config_from_hf, config)


def windows(impl, draw):
    config = {"num_hidden_layers": draw("layers", (2, 1, 30))}
    for key, values in {
        "use_sliding_window": (True, False, None),
        "sliding_window": (3, None),
        "max_window_layers": (0, 1, 29, None),
        "layer_types": (None, ["full_attention"] * 2, ["full_attention", "sliding_attention"]),
    }.items():
        if draw(f"with {key}", (False, True)):
            config[key] = draw(key, values)
    draw.asked(impl.windows_of, config)


def rope_of(impl, draw):
    draw.asked(impl.rope_of, a_json(draw, draw("kind", ("llama", "qwen3"), told=False)))


NAMES = st.lists(
    st.sampled_from(["a", "b", "h", "0", "attn", "bias", "a.b", "masked_bias", "weight"]), min_size=1, max_size=5
).map(".".join)


def rename(impl, draw):
    state = {
        name: torch.full((2,), n) for n, name in enumerate(draw("names", st.lists(NAMES, max_size=5, unique=True)))
    }
    table = draw("table", st.dictionaries(NAMES, NAMES, max_size=4))
    draw.asked(impl.rename, state, table)


PARTS = {
    "gpt2": [
        "transformer.wte.weight",
        "wte.weight",
        "wpe.weight",
        "h.0.ln_1.weight",
        "h.0.attn.c_attn.weight",
        "h.0.attn.c_attn.bias",
        "h.0.attn.c_proj.weight",
        "h.1.mlp.c_fc.weight",
        "h.1.mlp.c_fc.bias",
        "h.0.mlp.c_proj.weight",
        "ln_f.bias",
        "h.0.attn.bias",
        "transformer.h.0.attn.masked_bias",
        "h.0.attn.bias_extra",
        "lm_head.weight",
        "other.c_proj.weight",
        "h.0.ln_2.bias",
        "transformer.h.1.attn.c_proj.bias",
    ],
    "llama": [
        "model.embed_tokens.weight",
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.10.mlp.gate_proj.weight",
        "model.layers.1.mlp.up_proj.weight",
        "model.layers.1.mlp.down_proj.weight",
        "model.norm.weight",
        "lm_head.weight",
        "model.layers.0.input_layernorm.weight",
        "model.layers.0.post_attention_layernorm.weight",
        "other.mlp.weight",
        "model.layers.0.self_attn.rotary_emb.inv_freq",
        "model.layers.0.self_attn.q_norm.weight",
        "norm.weight",
    ],
}


def converters(impl, draw):
    kind = draw("kind", ("gpt2", "llama"))
    names = draw("names", st.lists(st.sampled_from(PARTS[kind]), unique=True, max_size=8))
    state = {}
    for n, name in enumerate(names):
        flat = name.endswith("bias") or "ln_" in name or "norm" in name
        state[name] = torch.arange(6.0 if flat else 12.0).reshape(*(() if flat else (2,)), 6) + n
    if kind == "gpt2":
        draw.asked(impl.convert_gpt2, state)
    else:
        draw.asked(impl.convert_llama, state)
        draw.asked(impl.convert_qwen3, state)


def build_model(impl, draw):
    config = a_config(ex13_transformer, draw)
    torch.default_generator.manual_seed(0)
    tensors = dict(ex13_transformer.Transformer(config).state_dict())
    own = draw("dtype of the tensors", (torch.float32, torch.bfloat16))
    tensors = {name: x.to(own) for name, x in tensors.items()}
    if config.tie_embeddings and draw("without the head", (False, True)):
        del tensors["unembedding.weight"]
    if draw("in columns", (False, True)):
        tensors = {name: x.mT.contiguous().mT if x.ndim == 2 else x for name, x in tensors.items()}
    model = impl.build_model(config, tensors, draw("dtype", (None, torch.float32, torch.bfloat16, torch.float64)))
    draw.see("model", model, list(tensors.values()))
    draw.see("memory", [[p.is_contiguous(), p.requires_grad, p.is_leaf] for p in model.parameters()])
    draw.see("tied", model.unembedding.weight is model.embedding.weight)
    draw.see("tensors", tensors)
    draw.see("logits", model(torch.zeros(1, 2, dtype=torch.int64)))


def files(impl, draw):
    """A folder as Hugging Face lays it out: whole or in shards."""
    import json
    import tempfile
    from pathlib import Path

    from safetensors.torch import save_file

    tensors = {
        name: torch.arange(4.0) + n for n, name in enumerate(draw("names", st.lists(NAMES, max_size=4, unique=True)))
    }
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        shards = draw("shards", (0, 1, 2, 3))
        for n in range(shards):
            save_file(
                {name: x for i, (name, x) in enumerate(tensors.items()) if i % shards == n},
                folder / f"s{n}.safetensors",
            )
        if shards:
            index = {name: f"s{i % shards}.safetensors" for i, name in enumerate(tensors)}
            (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
        if not shards or draw("both", (False, True)):
            save_file({"whole": torch.ones(2)} | tensors, folder / "model.safetensors")
            draw.see("file", impl.read_file(folder / "model.safetensors"))
        draw.see("tensors", impl.read_tensors(str(folder) if draw("a string", (False, True)) else folder))


def load_pretrained(impl, draw):
    import json
    import tempfile
    from pathlib import Path

    from safetensors.torch import save_file

    kind = draw("kind", ("llama", "qwen3", "gpt2"))
    config_json = a_json(draw, kind)
    config = impl.config_from_hf(config_json)
    torch.default_generator.manual_seed(0)
    state = ex13_transformer.Transformer(config).state_dict()
    theirs = {
        "embedding": "model.embed_tokens",
        "blocks": "model.layers",
        "norm": "model.norm",
        "unembedding": "lm_head",
    }
    inner = {
        "norm1": "input_layernorm",
        "attention": "self_attn",
        "norm2": "post_attention_layernorm",
        "feed_forward.gate": "mlp.gate_proj",
        "feed_forward.up": "mlp.up_proj",
        "feed_forward.down": "mlp.down_proj",
    }
    tensors = {}
    for name, x in state.items() if kind != "gpt2" else ():
        first, _, rest = name.partition(".")
        for ours, their in inner.items():
            rest = rest.replace(ours, their)
        tensors[f"{theirs[first]}.{rest}"] = x.clone()
    if kind == "gpt2":
        d, outer = (
            config.d_model,
            {"wte.weight": (13, 16), "wpe.weight": (64, 16), "ln_f.weight": (16,), "ln_f.bias": (16,)},
        )
        if not config.tie_embeddings:
            outer["lm_head.weight"] = (13, 16)
        for n in range(2):
            for part, shape in {
                "ln_1.weight": (d,),
                "ln_1.bias": (d,),
                "ln_2.weight": (d,),
                "ln_2.bias": (d,),
                "attn.c_attn.weight": (d, 3 * d),
                "attn.c_attn.bias": (3 * d,),
                "attn.c_proj.weight": (d, d),
                "attn.c_proj.bias": (d,),
                "mlp.c_fc.weight": (d, config.d_ff),
                "mlp.c_fc.bias": (config.d_ff,),
                "mlp.c_proj.weight": (config.d_ff, d),
                "mlp.c_proj.bias": (d,),
            }.items():
                outer[f"h.{n}.{part}"] = shape
        tensors = {name: torch.randn(shape) for name, shape in outer.items()}
    with tempfile.TemporaryDirectory() as folder:
        save_file({name: x.to(torch.bfloat16) for name, x in tensors.items()}, Path(folder) / "model.safetensors")
        (Path(folder) / "config.json").write_text(json.dumps(config_json))
        model = impl.load_pretrained(folder, draw("dtype", (None, torch.float32)))
    draw.see("model", model)
    draw.see("logits", model(torch.zeros(1, 2, dtype=torch.int64)))


def load_tokenizer(impl, draw):
    import json
    import tempfile
    from pathlib import Path

    letters = impl.byte_letters()
    vocab = {letters[b]: b for b in range(256)}
    merges = draw("merges", st.lists(st.sampled_from(["a b", "ab c", "Ġ a", "a a"]), max_size=3, unique=True))
    for n, merge in enumerate(merges):
        vocab[merge.replace(" ", "")] = 256 + n
    added = [
        {"content": text, "id": 300 + n}
        for n, text in enumerate(
            draw("special", st.lists(st.sampled_from(["<e>", "é", "a b"]), max_size=2, unique=True))
        )
    ]
    if draw("listed in the vocabulary too", (False, True)):
        vocab |= {token["content"]: token["id"] for token in added}
    saved = {
        "model": {
            "type": "BPE",
            "vocab": vocab,
            "merges": [m.split(" ") for m in merges] if draw("pairs", (False, True)) else merges,
        },
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
        "decoder": {"type": "ByteLevel"},
        "added_tokens": added or draw("none added", ([], None)),
    }
    if draw("no added_tokens", (False, True)) and not added:
        del saved["added_tokens"]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tokenizer.json").write_text(json.dumps(saved), "utf-8")
        tokenizer = impl.load_tokenizer(folder)
    text = draw("text", st.text(st.sampled_from("ab cé<e>"), max_size=12))
    draw.see("tokenizer", [type(tokenizer).__name__, tokenizer.vocab, tokenizer.merges, tokenizer.special_tokens])
    draw.see("ids", tokenizer.encode(text))
    draw.see("text", tokenizer.decode(tokenizer.encode(text)))
