"""What lesson 20 asks besides: other shapes, dtypes and models, corners of files and chats, what must not change."""

import json
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import load_file, save_file

from grader import accepts, dtypes, points, raises, shape
from grader.course.doubles import Descent

SIZES = {"vocab_size": 13, "d_model": 12, "layers": 3, "heads": 3, "d_ff": 10, "max_seq_len": 40}
BIASES = {"qkv_bias": True, "o_bias": True, "mlp_bias": True}
GPT2 = {"norm": "layer", "feed_forward": "mlp", "positions": "learned", "tie_embeddings": True, **BIASES}
ENCODER = {**GPT2, "norm_position": "post", "causal": False}
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate", "up", "down"]


def _model(impl, draw, **changes):
    return draw.fill(impl.Transformer(impl.ModelConfig(**SIZES | changes))).eval()


@contextmanager
def _folder():
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        yield Path(folder) / "deep" / "adapter"


def _write(folder, tensors, **config):
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.cpu().contiguous() for name, tensor in tensors.items()},
              folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": 2, "lora_alpha": 3, "target_modules": ["k_proj"]} | config))
    return folder


def _tensors(draw, rank=2):
    return {f"base_model.model.model.layers.{n}.self_attn.k_proj.lora_{which}.weight": draw(*shape, scale=0.5)
            for n in range(3) for which, shape in (("A", (rank, 12)), ("B", (12, rank)))}


@points(2)
def test_shapes_and_strides(impl, draw):
    """A LoRALinear takes x of any rank, sizes of 1 and 0, and x that is not contiguous."""
    layer = draw.fill(impl.LoRALinear(impl.Linear(6, 5), 2, 0.5))
    return {"rank 4": layer(draw(2, 1, 3, 6)), "not contiguous": layer(draw(3, 2, 6).transpose(0, 1)),
            "no rows": layer(draw(0, 6)),
            "in = out = 1": draw.fill(impl.LoRALinear(impl.Linear(1, 1), 1, 2.0))(draw(3, 1))}


@dtypes("float64")
def test_double_stays_double(impl, draw, dtype):
    """Beside a float64 base, A and B are float64, and so is every product."""
    layer = impl.LoRALinear(draw.fill(impl.Linear(6, 5)).to(dtype), 2, 3.0)
    kinds = sorted({str(p.dtype) for p in layer.parameters()})
    with torch.no_grad():
        layer.lora_b.copy_(draw(5, 2))
        layer.lora_a.copy_(draw(2, 6))
    x, before = draw(4, 6).to(dtype), layer.base.weight.detach().clone()
    y = layer(x)
    layer.merge()
    return {"kinds": kinds, "output": y, "merged": layer.base.weight - before}


@dtypes("bfloat16", "float16")
def test_merge_rounds_once(impl, draw, dtype):
    """A merge adds the product in the dtype of A and rounds the sum; the weight keeps its dtype."""
    layer = draw.fill(impl.LoRALinear(impl.Linear(24, 24), 16, 64.0))
    layer.base.to(dtype)
    layer.lora_a.data.mul_(0.01)
    layer.merge()
    return layer.base.weight.detach()


def test_forward_rounds_once(impl, draw):
    """Base and product are added in the dtype of A: where they nearly cancel, the rest has all its digits."""
    layer = impl.LoRALinear(impl.Linear(4, 4).to(draw.device), 4, 4.0)
    layer.base.to(torch.bfloat16)
    with torch.no_grad():
        layer.base.weight.copy_(torch.eye(4))
        layer.lora_a.copy_(torch.eye(4))
        layer.lora_b.copy_(-torch.diag(1 + (1 + draw.uniform(4)) / 1024))
    return layer((1 + draw.ints(128, 3, 4) / 128).to(torch.bfloat16))


def test_what_is_merged_does_not_learn(impl, draw):
    """While merged, forward is base's alone: no gradient reaches A or B; after unmerge it does again."""
    layer, x = draw.fill(impl.LoRALinear(impl.Linear(6, 4), 2, 3.0, 0.5)), draw(5, 6)
    layer.merge()
    merged = {"needs a gradient": layer(x).requires_grad, "no dropout": layer(x)}
    layer.unmerge()
    layer.eval()(x).sum().backward()
    return merged | {"A": layer.lora_a.grad, "B": layer.lora_b.grad}


def test_a_step_of_training(impl, draw):
    """After a step of an optimizer over all parameters, A and B have moved and nothing else has."""
    model, ids = _model(impl, draw, tie_embeddings=True), draw.ints(13, 2, 7)
    impl.add_lora(model, ALL, 2, 4)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = Descent([p for p in model.parameters() if p.requires_grad], lr=0.5)
    said = {}
    for step in (1, 2):         # B moves first: while it is zero, A has no gradient
        optimizer.zero_grad()
        impl.sft_loss(model(ids), ids, ids > 3).backward()
        optimizer.step()
        said[f"step {step}"] = sorted({name.rpartition(".")[2] for name, p in model.named_parameters()
                                       if not torch.equal(p, before[name])})
    return said | {"has no gradient": sorted({name.rpartition(".")[2] for name, p in model.named_parameters()
                                              if p.grad is None})}


def test_draws_are_torchs_own(impl, draw):
    """A comes from torch's own generator: a seed gives the same layer again, another seed another."""
    def _a(seed):
        torch.manual_seed(seed)
        return impl.LoRALinear(base, 2, 2.0).lora_a.detach()

    base = draw.fill(impl.Linear(6, 4))
    return {"same seed": bool((_a(3) == _a(3)).all()), "another": bool((_a(3) == _a(4)).all()),
            "rows differ": bool((_a(3)[0] == _a(3)[1]).any())}


def test_device_of_base(impl, draw):
    """A and B are made where base is, on the meta device too."""
    with torch.device("meta"):
        base = impl.Linear(6, 4)
    layer, here = impl.LoRALinear(base, 2, 2.0), impl.LoRALinear(draw.fill(impl.Linear(6, 4)), 2, 2.0)
    return {"meta": sorted({p.device.type for p in layer.parameters()}), "shape": shape(layer.lora_a),
            "here": all(p.device.type == torch.device(draw.device).type for p in here.parameters())}


@points(2)
def test_other_models(impl, draw):
    """add_lora works on GPT-2, on an encoder, and on one layer by its whole name; and merging keeps the logits."""
    said, ids = {}, draw.ints(13, 2, 6)
    for case, changes, targets in (("GPT-2", GPT2, ["q_proj", "up"]),
                                   ("encoder", ENCODER, ["attention.o_proj", "down"]),
                                   ("Qwen3", {"qk_norm": True, "head_dim": 6, "kv_heads": 1},
                                    ["v_proj", "blocks.2.feed_forward.gate"])):
        model = draw.fill(impl.add_lora(_model(impl, draw, **changes), targets, 2, 3)).eval()
        before = model(ids).detach()
        impl.merge_lora(model)
        said[case] = {"wrapped": sorted(impl.lora_layers(model)), "logits": before, "merged": model(ids).detach()}
    return said


def test_targets_end_at_a_dot(impl, draw):
    """A target is a whole name or whole last parts of one; two that match the same layer wrap it once."""
    model = _model(impl, draw)
    impl.add_lora(model, ("attention.q_proj", "q_proj", "blocks.0.attention.q_proj"), 1, 1)
    return {"wrapped": sorted(impl.lora_layers(model)), "once": len(list(model.modules())), "half a part": raises(
        ValueError, lambda: impl.add_lora(_model(impl, draw), ["q_proj", "_proj"], 1, 1), names="targets"),
        "a bad dropout": raises(ValueError, lambda: impl.add_lora(_model(impl, draw), ["up"], 1, 1, 1.5),
                                names="dropout")}


def test_gradients_were_off_elsewhere(impl, draw):
    """What was frozen before stays frozen, and base's bias is frozen with its weight."""
    model = _model(impl, draw, qkv_bias=True)
    model.embedding.weight.requires_grad_(False)
    impl.add_lora(model, ["q_proj", "o_proj"], 2, 2)
    return sorted(name for name, parameter in model.named_parameters() if parameter.requires_grad)


@points(2)
def test_files_of_other_dtypes(impl, draw):
    """Tensors in half precision are loaded into wide factors; those without floating point are refused."""
    tensors, said = _tensors(draw), {}
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        model = _model(impl, draw)
        with _folder() as folder:
            impl.load_lora(model, _write(folder, {name: tensor.to(dtype) for name, tensor in tensors.items()}))
        said[str(dtype)] = [layer.lora_a.detach() for layer in impl.lora_layers(model).values()]
    model, name = _model(impl, draw), next(iter(tensors))
    with _folder() as folder:
        _write(folder, tensors | {name: tensors[name].to(torch.int8)})
        said["int8"] = raises(ValueError, lambda: impl.load_lora(model, folder))
    return said | {"wrapped": len(impl.lora_layers(model))}


def test_little_said(impl, draw):
    """A config with nothing but what must be there loads, and what PEFT writes besides does no harm."""
    ids, said = draw.ints(13, 1, 5), {}
    for case, config in {"little": {}, "much": {
            "auto_mapping": None, "base_model_name_or_path": "somewhere", "inference_mode": True,
            "peft_version": "0.21.2",
            "revision": "main", "task_type": "CAUSAL_LM", "megatron_core": "megatron.core", "qalora_group_size": 16,
            "init_lora_weights": "gaussian", "loftq_config": {}, "layers_to_transform": None,
            "use_dora": False}}.items():
        model = _model(impl, draw)
        with _folder() as folder:
            impl.load_lora(model, str(_write(folder, _tensors(draw), **config)))
        said[case] = model.eval()(ids)
    return said


def test_more_refusals(impl, draw):
    """A file with one target's tensors left out, or of another rank than its config says, is refused."""
    said, tensors = {}, _tensors(draw)
    for case, changed, config in (("a target without tensors", tensors, {"target_modules": ["k_proj", "v_proj"]}),
                                  ("another rank", _tensors(draw, 3), {}),
                                  ("turned", {n: t.T for n, t in tensors.items()}, {}),
                                  ("alpha 0", tensors, {"lora_alpha": 0}), ("r is true", tensors, {"r": True}),
                                  ("pissa", tensors, {"init_lora_weights": "pissa"}),
                                  ("no names", tensors, {"target_modules": []})):
        with _folder() as folder:
            _write(folder, changed, **config)
            said[case] = raises(ValueError, lambda: impl.load_lora(_model(impl, draw), folder))
    with _folder() as folder:
        _write(folder, tensors)
        gpt2, twice = _model(impl, draw, **GPT2), impl.add_lora(_model(impl, draw), ["up"], 1, 1)
        return said | {"a GPT-2": raises(ValueError, lambda: impl.load_lora(gpt2, folder), names="model"),
                       "twice": raises(ValueError, lambda: impl.load_lora(twice, folder), names="model")}


def test_saving_again(impl, draw):
    """Saved over an older adapter the new one counts, and a merged model saves the same factors."""
    model, said = draw.fill(impl.add_lora(_model(impl, draw), ALL, 2, 3)), {}
    with _folder() as folder:
        impl.save_lora(impl.add_lora(_model(impl, draw), ["up"], 5, 1), folder)
        impl.save_lora(model, folder)
        said["targets"] = sorted(json.loads((folder / "adapter_config.json").read_text())["target_modules"])
        plain = load_file(folder / "adapter_model.safetensors")
        impl.merge_lora(model)
        impl.save_lora(model, str(folder))
        merged = load_file(folder / "adapter_model.safetensors")
    said["names"] = sorted(plain)
    return said | {"the same": all(torch.equal(tensor, merged[name]) for name, tensor in plain.items())}


def test_factors_that_are_views(impl, draw):
    """Factors that do not lie contiguous in memory are saved as they read, in their own dtype."""
    model = impl.add_lora(_model(impl, draw), ["up"], 2, 3).to(torch.bfloat16)
    for layer in impl.lora_layers(model).values():
        layer.lora_a = torch.nn.Parameter(draw(12, 2).to(torch.bfloat16).T)
    with _folder() as folder:
        impl.save_lora(model, folder)
        return {name: tensor for name, tensor in load_file(folder / "adapter_model.safetensors").items()
                if "_A" in name}


def test_render_does_not_keep_state(impl, draw):
    """Two templates one after the other do not see each other's names, and arguments stay as they were."""
    content = f"{{{{ 7 * 7 }}}}{draw.text(9)}"
    messages, tools = [{"role": "user", "content": content, "more": {"x": [1]}}], [{"a": 1}]
    first = impl.render_chat(messages, "{% set x = 5 %}{{ x }}{{ messages[0].content }}{{ secret }}", secret="s",
                             tools=tools)
    return {"first": first,
            "second": impl.render_chat(messages, "{{ x }}|{{ secret }}|{{ tools }}|{{ messages[0].more.x }}"),
            "messages": str(messages), "tools": str(tools)}


def test_render_corners(impl, draw):
    """An empty content, other scripts, a role of its own, and a prompt alone are written as they are."""
    content = f"naïve 東京 🙂 \u2028'\"&lt;{draw.text(9)}"
    messages = [{"role": "tool", "content": ""}, {"role": "user", "content": content}]
    return {"text": impl.render_chat(messages, impl.CHATML, True),
            "escape": impl.render_chat(messages, "{{ messages[1].content | tojson }}"),
            "sorted": impl.render_chat(messages, "{{ {'b': 1, 'a': [2]} | tojson(indent=1, sort_keys=true) }}"),
            "trailing": impl.render_chat(messages, "a\n\n"), "comment": impl.render_chat(messages, "  {# x #}\nb"),
            "object": raises(ValueError, lambda: impl.render_chat([{"role": "user", "content": {1, 2}}], impl.CHATML))}


def test_masks_in_a_row(impl, draw):
    """A header that comes twice, overlaps itself, or stands inside of a reply is read from left to right."""
    return {"overlap": impl.assistant_mask([3, 3, 3, 1, 9, 3, 3], [3, 3], 9),
            "inside": impl.assistant_mask([7, 8, 1, 7, 8, 2, 9, 4], [7, 8], 9),
            "end in the header": impl.assistant_mask([9, 7, 1, 9, 7], [9, 7], 9),
            "end ends the header": impl.assistant_mask([7, 9, 1, 2], [7, 9], 9),
            "at the very end": impl.assistant_mask([1, 7, 8], [7, 8], 9)}


@points(2)
def test_pack_fills_the_first_row_with_room(impl, draw):
    """An example goes back to an earlier row where it fits, and examples keep their order in a row."""
    sizes = [6, 5, 2, 3, 4, 1, 7, 1]
    examples = [(draw.ints(11, n).tolist(), [True] * n) for n in sizes]
    packed = impl.pack(examples, 8, device=draw.device)
    return {"ids": packed.ids, "learn": packed.learn, "positions": packed.positions, "mask": packed.mask,
            "dtypes": [str(tensor.dtype) for tensor in packed], "examples stay": all(learn[0] for _, learn in examples)}


def test_pack_of_one(impl, draw):
    """A single example, one of a single token, and a row that is full have the same four tensors."""
    return {"one": list(impl.pack([([int(draw.ints(99))], [True])], 1, device=draw.device)),
            "padded": list(impl.pack([([5, 6], [True, True])], 4, device=draw.device)),
            "full": list(impl.pack([([1, 2], [False, True]), ([3], [True])], 3, device=draw.device))}


@points(2)
@dtypes("float32", "bfloat16", "float16", "float64")
def test_loss_in_every_dtype(impl, draw, dtype):
    """The loss is computed in at least float32 and comes back in the dtype of logits."""
    ids = draw.ints(50, 2, 9)
    return impl.sft_loss(draw(2, 9, 50, scale=4.0).to(dtype), ids, ids > 10)


def test_loss_of_packed_rows(impl, draw):
    """Packed or one to a row, several examples have one loss and one gradient."""
    examples = [(draw.ints(13, n).tolist(), [bool(x) for x in draw.ints(2, n).tolist()][:-1] + [True])
                for n in (6, 3, 8)]
    said = {}
    for case, seq_len in (("packed", 17), ("one to a row", 8)):
        model = _model(impl, draw, layers=1)
        packed = impl.pack(examples, seq_len, device=draw.device)
        loss = impl.sft_loss(model(packed.ids, packed.mask, packed.positions), packed.ids, packed.learn)
        loss.backward()
        said[case] = {"rows": packed.ids.shape[0], "loss": loss, "gradient": model.embedding.weight.grad}
    return said


def test_accepted(impl, draw):
    """What is unusual and right is taken: alpha as an int, targets as a tuple, a list of messages of one."""
    return {"alpha": accepts(lambda: impl.LoRALinear(draw.fill(impl.Linear(2, 3)), 4, 1)),
            "targets": accepts(lambda: impl.add_lora(_model(impl, draw), ("up",), 1, 1, 0)),
            "one message": accepts(lambda: impl.render_chat([{"role": "user"}], "{{ messages[0].role }}"))}
