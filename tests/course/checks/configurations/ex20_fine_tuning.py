"""What the parts of chapter 20 may be given."""

import torch
from hypothesis import strategies as st
from reference import ex13_transformer
from reference.ex03_linear import Linear

from tests.course.checks.configurations.ex13_transformer import a_config

ALPHAS = (1, 2.0, 16, 0.5)


def layer(impl, draw):
    base = draw.module(Linear, draw.size("in_features"), draw.size("out_features"), draw("bias", (False, True)))
    dropout = (draw("dropout", (0.0, 0.5)),) if draw("says dropout", (False, True)) else ()
    torch.default_generator.manual_seed(0)
    layer = impl.LoRALinear(base, draw("rank", (1, 2, 3)), draw("alpha", ALPHAS), *dropout)
    draw.see("new layer", layer)
    x = draw.tensor("x", "*batch in_features", base.weight.dtype)
    draw.asked(layer, x)
    with torch.no_grad():
        for name in ("lora_a", "lora_b"):
            p = getattr(layer, name)
            p.copy_(draw.tensor(name, tuple(p.shape), torch.float32, ("normal", "small", "large"), grad=False))
    layer.train(draw("training", (True, False)))
    draw.asked(layer, x)
    draw.asked(layer.change)
    for step in draw("steps", st.lists(st.sampled_from(["merge", "unmerge"]), max_size=4)):
        place = layer.base.weight.data_ptr()
        draw.see("returns", getattr(layer, step)())
        draw.see("in place", place == layer.base.weight.data_ptr())
        draw.asked(layer, x)
        draw.see("layer", layer)


def llama(draw):
    config = ex13_transformer.ModelConfig(
        vocab_size=7,
        d_model=4,
        layers=draw("layers", (1, 2)),
        heads=2,
        kv_heads=1,
        d_ff=3,
        max_seq_len=8,
        qkv_bias=draw("biases", (False, True)),
    )
    return draw.module(ex13_transformer.Transformer, config, dtype=draw("dtype", (torch.float32, torch.bfloat16)))


TARGETS = st.lists(
    st.sampled_from(["q_proj", "attention.v_proj", "down", "blocks.0.attention.q_proj", "gate", "o_proj", "proj"]),
    min_size=1,
    max_size=3,
)


def add_lora(impl, draw):
    model = (
        llama(draw)
        if draw("llama", (True, False))
        else draw.module(ex13_transformer.Transformer, a_config(ex13_transformer, draw))
    )
    given = {"dropout": draw("dropout", (0.0, 0.5))} if draw("with dropout", (False, True)) else {}
    torch.default_generator.manual_seed(0)
    draw.see(
        "the same",
        impl.add_lora(model, draw("targets", TARGETS), draw("rank", (1, 2)), draw("alpha", ALPHAS), **given) is model,
    )
    draw.see("model", model)
    draw.asked(model, draw.ints("ids", (1, 3), model.config.vocab_size))


def folder(impl, draw):
    import json
    import tempfile
    from pathlib import Path

    from safetensors.torch import load_file, save_file

    model, other = llama(draw), llama(draw)
    other.blocks = other.blocks[: len(model.blocks)]
    impl.add_lora(
        model, draw("targets", TARGETS), draw("rank", (1, 2)), draw("alpha", ALPHAS), draw("dropout", (0.0, 0.25))
    )
    draw.fill(model)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / draw("name", ("a", "b/c"))
        for _ in range(draw("saved", (1, 2))):
            draw.see("saved", impl.save_lora(model, str(path) if draw("a string", (False, True)) else path))
        draw.see("files", sorted(x.name for x in path.iterdir()))
        config = json.loads((path / impl.CONFIG).read_text())
        tensors = load_file(path / impl.TENSORS)
        said = {key: value for key, value in config.items() if key not in ("fan_in_fan_out", "inference_mode")}
        draw.see("config", said)  # but for keys of PEFT's that the docstring does not name
        draw.see("tensors", tensors)
        if draw("another dtype", (False, True)):
            dtype = draw("dtype of the file", (torch.bfloat16, torch.float64))
            save_file({name: x.to(dtype) for name, x in tensors.items()}, path / impl.TENSORS)
        if draw("without dropout", (False, True)):
            del config["lora_dropout"]
        (path / impl.CONFIG).write_text(json.dumps(config))
        torch.default_generator.manual_seed(2)
        draw.see("the same", impl.load_lora(other, path) is other)
    draw.see("loaded", other)


TEXTS = st.text(st.sampled_from('ab \n{%é<"'), max_size=6)
TEMPLATES = (
    "{% for m in messages %}{{ m['role'] }}: {{ m.content }}\n{% endfor %}",
    "  {% if tools is none %}\nno tools\n  {% endif %}\n{{ documents }} {{ messages | tojson }}",
    "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m.role }}{% endfor %}{{ bos_token }}",
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "{{ add_generation_prompt }}",
    "{% generation %}{{ messages[0].content }}{% endgeneration %}{{ number }}",
)


def render_chat(impl, draw):
    messages = [
        {"role": draw("role", ("user", "assistant", "system")), "content": draw("content", TEXTS)}
        for _ in range(draw("messages", (1, 2, 3)))
    ]
    given = {}
    for name, values in {
        "bos_token": ("<s>",),
        "tools": ([{"name": "f"}], None),
        "add_generation_prompt": (True, False),
        "number": (1.5, (1, 2)),
    }.items():
        if draw(f"with {name}", (False, True)):
            given[name] = draw(name, values)
    draw.asked(impl.render_chat, messages, draw("template", (impl.CHATML, *TEMPLATES)), **given)


def assistant_mask(impl, draw):
    draw.asked(
        impl.assistant_mask,
        draw("ids", st.lists(st.integers(0, 3), max_size=12)),
        draw("header", st.lists(st.integers(0, 3), min_size=1, max_size=3)),
        draw("end", (0, 1, 2, 9)),
    )


class Words:
    """A token is a special one or a letter."""

    def encode(self, text):
        import re

        return [
            256 if t == "<|im_end|>" else 257 if t == "<|im_start|>" else ord(t)
            for t in re.findall(r"<\|im_\w+\|>|.|\n", text)
        ]


def encode_chat(impl, draw):
    messages = [
        {"role": draw("role", ("assistant", "user")), "content": draw("content", TEXTS)}
        for _ in range(draw("messages", (1, 2, 3)))
    ]
    given = {"add_generation_prompt": True} if draw("prompted", (False, True)) else {}
    draw.asked(impl.encode_chat, Words(), messages, impl.CHATML, "<|im_start|>assistant\n", "<|im_end|>", **given)


def pack(impl, draw):
    lengths = draw("lengths", st.lists(st.integers(1, 5), min_size=1, max_size=6))
    examples = [
        (list(range(10 * n, 10 * n + length)), draw("learn", st.lists(st.booleans(), min_size=length, max_size=length)))
        for n, length in enumerate(lengths)
    ]
    draw.asked(impl.pack, examples, draw("seq_len", (5, 6, 8, 3)), *draw("pad", ((), (7,))))


def sft_loss(impl, draw):
    logits = draw.tensor("logits", "batch seq vocab")
    ids = draw.ints("ids", "batch seq", draw.size("vocab"), dtypes=(torch.int64, torch.int32))
    draw.asked(impl.sft_loss, logits, ids, draw.bools("learn", tuple(ids.shape)))
