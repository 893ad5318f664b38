"""What lesson 20 asks of fine-tuning: LoRA, adapters in PEFT's files, chats as text, packing, the loss."""

import json
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import load_file, save_file

from grader import accepts, dtypes, points, raises, shape, tolerance

LIBRARY = {"peft.get_peft_model", "peft.PeftModel"}
TEMPLATES = {"transformers.AutoTokenizer", "transformers.PreTrainedTokenizerFast",
             "transformers.utils.chat_template_utils.render_jinja_template"}
FORBIDDEN = {"add_lora": LIBRARY, "save_lora": LIBRARY,
             "load_lora": LIBRARY | {"torch.load", "torch.serialization.load"},
             "render_chat": TEMPLATES, "encode_chat": TEMPLATES}

SIZES = {"vocab_size": 11, "d_model": 8, "layers": 2, "heads": 2, "kv_heads": 1, "d_ff": 12, "max_seq_len": 32}
# What adapter_config.json must say so that PEFT reads it, and what else PEFT writes there.
SAID = ("peft_type", "task_type", "r", "lora_alpha", "lora_dropout", "bias")


def _chat(draw):
    """A system's words, a user's with a tag in them, an assistant's that begin with a space, a user's."""
    return [{"role": "system", "content": draw.text(9)}, {"role": "user", "content": f"{draw.text(5)} <you>"},
            {"role": "assistant", "content": f" {draw.text(7)}"}, {"role": "user", "content": draw.text(3)}]


def _size(draw, low, high):
    """A size from the seed, low … high."""
    return low + int(draw.ints(high - low + 1))


def _layer(impl, draw, *sizes, rank=3, alpha=5.0, bias=False, dropout=0.0):
    return draw.fill(impl.LoRALinear(impl.Linear(*sizes, bias=bias), rank, alpha, dropout)).eval()


def _model(impl, draw, **changes):
    return draw.fill(impl.Transformer(impl.ModelConfig(**SIZES | changes))).eval()


def _adapted(impl, draw, targets=("q_proj", "down"), rank=2, alpha=3.0, dropout=0.0):
    model = impl.add_lora(_model(impl, draw), list(targets), rank, alpha, dropout).eval()
    with torch.no_grad():       # the factors alone: base has the weights of _model
        for layer in impl.lora_layers(model).values():
            for factor in (layer.lora_a, layer.lora_b):
                factor.copy_(draw(*factor.shape, scale=0.5))
    return model


def _trains(module):
    return sorted(name for name, parameter in module.named_parameters() if parameter.requires_grad)


@contextmanager
def _folder():
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        yield Path(folder) / "adapter"


def _write(folder, tensors, dtype=torch.float32, **changes):
    """An adapter folder as PEFT writes one, for q_proj of both layers where nothing is changed."""
    folder.mkdir(exist_ok=True)
    save_file({name: tensor.cpu().to(dtype) for name, tensor in tensors.items()}, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 2, "lora_alpha": 3, "lora_dropout": 0.0,
              "bias": "none",
              "target_modules": ["q_proj"], "use_dora": False, "rank_pattern": {}, "revision": None, **changes}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def _tensors(draw, part="self_attn.q_proj", sizes=(8, 8), rank=2):
    return {f"base_model.model.model.layers.{n}.{part}.lora_{which}.weight": draw(*shape, scale=0.5)
            for n in (0, 1) for which, shape in (("A", (rank, sizes[1])), ("B", (sizes[0], rank)))}


def _said(call, *names):
    """Whether `call` raises ValueError, and which of `names` its message has."""
    try:
        call()
    except NotImplementedError:
        raise
    except ValueError as error:
        return {f"names {name}": name in str(error) for name in names}
    return "no ValueError"


class _Letters:
    """A tokenizer of one id per letter, but for its special tokens, which are one id each."""

    special = ("<|im_start|>", "<|im_end|>", "<s>")

    def encode(self, text):
        ids = []
        while text:
            token = next((token for token in self.special if text.startswith(token)), text[0])
            ids.append(self.special.index(token) if token in self.special else ord(token))
            text = text[len(token):]
        return ids


# -- one layer

@points(2)
def test_layer_starts_as_base(impl, draw):
    """A new LoRALinear gives what its base gives: B is zero, and A is not.

    With both zero no gradient would ever reach either; with neither zero the model would be another
    one before it has learnt anything.
    """
    base = draw.fill(impl.Linear(20, 15, bias=True))
    layer, x = impl.LoRALinear(base, 4, 16.0), draw(2, 3, 20)
    return {"output": layer(x), "A": shape(layer.lora_a), "B": layer.lora_b.detach(),
            "A is not zero": bool(layer.lora_a.any())}


@tolerance(0.06)
def test_layer_start_of_a(impl, draw):
    """A starts uniform in ±1/√in_features, whatever the rank is.

    What A gives then is about as large as one number of x, for layers of any width: not so with a σ of 0.01, 0.02 or 1.
    uniform_(−bound, bound). (The answers are the spread and the largest of some thousand numbers, in bounds: 0.58 and
    1. They are random, hence 6 %.)
    """
    said = {}
    for rank, in_features in ((40, 1000), (10, 4000 + _size(draw, 0, 99))):
        a = impl.LoRALinear(impl.Linear(in_features, 3), rank, 16.0).lora_a.detach() * in_features**0.5
        said[f"rank {rank}, in_features {in_features}"] = {"spread": float(a.std()), "largest": float(a.abs().max())}
    return said


@points(2)
def test_layer(impl, draw):
    """y = base(x) + (alpha / rank) · x Aᵀ Bᵀ, for x of any rank, with base's bias or without one.

    A is (rank, in), B is (out, rank): x goes through A first. alpha is divided by the rank.
    """
    return {"plain": _layer(impl, draw, 6, 4)(draw(2, 3, 6)), "bias": _layer(impl, draw, 6, 4, bias=True)(draw(6)),
            "rank 1": _layer(impl, draw, 5, 7, rank=1, alpha=2)(draw(3, 1, 5)),
            "rank above both": _layer(impl, draw, 3, 2, rank=8, alpha=4)(draw(2, 3))}


def test_layer_trains_its_factors_alone(impl, draw):
    """base's weight and bias get no gradient; A and B do, and x does through both ways.

    requires_grad_(False) freezes all parameters of a module.
    """
    layer = _layer(impl, draw, 6, 4, bias=True)
    x = draw(2, 3, 6).requires_grad_()
    (layer(x) * draw(2, 3, 4)).sum().backward()
    return {"trains": _trains(layer), "A": layer.lora_a.grad, "B": layer.lora_b.grad, "x": x.grad,
            "base": layer.base.weight.grad is None, "names": sorted(name for name, _ in layer.named_parameters())}


def test_layer_dropout(impl, draw):
    """Dropout falls on what goes into A, while training, each row its own, and base sees x whole.

    With all ones for x and base, what base adds is the same for every row, whatever is dropped. Lesson 08's Dropout,
    given all of x, draws for every number.
    """
    layer = impl.LoRALinear(draw.fill(impl.Linear(40, 3)), 2, 2.0, 0.5).to(draw.device)
    x = torch.ones(64, 40, device=draw.device, dtype=draw.float)
    with torch.no_grad():
        layer = layer.to(draw.float)
        before = layer(x)
        layer.lora_a.fill_(1.0)
        layer.lora_b.fill_(1.0)
        added = layer(x) - before
        kinds = len({round(number, 3) for number in added[:, 0].tolist()})
        return {"base alone": before, "anything is dropped": bool((added < 79).any()),
                "kinds of rows, 6 for more than 5": min(kinds, 6),
                "each is a count of what is left, twice": bool((added / 2 - (added / 2).round()).abs().max() < 1e-3),
                "in eval mode": layer.eval()(x) - before}


@points(2)
@dtypes("float32", "bfloat16", "float16")
def test_layer_in_half_precision(impl, draw, dtype):
    """A and B are at least float32 beside a base in half precision; what comes out is in base's dtype.

    Cast x to A's dtype, add in that dtype, and round once. A step of 10⁻⁴ is lost on a bfloat16 of 1.
    """
    layer = impl.LoRALinear(draw.fill(impl.Linear(16, 8)).to(dtype), 2, 1 / 32)
    wide = {str(p.dtype) for name, p in layer.named_parameters() if "lora" in name}
    steps, x = torch.cat([draw.ints(8, 8) + 8, draw.ints(8, 8)]), draw.ints(4, 3, 8) + 1
    with torch.no_grad():       # half precision has 4,096 and none of the numbers beside it, which are all that counts:
        layer.lora_a.copy_(torch.stack([4096 + steps, 4096 - steps]))       # these cancel in x Aᵀ, and B's in x Aᵀ Bᵀ
        layer.lora_b.copy_(4096 + draw.ints(16, 8, 2))
    return {"factors are wide": wide == {str(torch.promote_types(dtype, torch.float32))},
            "output": layer(torch.cat([x, -x], -1).to(dtype)), "change": layer.change()}


def test_layer_refused(impl, draw):
    """A rank below 1, an alpha that is not above 0 and a dropout outside [0, 1) are refused by name.

    And before base has been frozen.
    """
    base, below = impl.Linear(3, 2), -_size(draw, 1, 9)
    return {f"rank 0 and {below}": [raises(ValueError, lambda: impl.LoRALinear(base, rank, 1.0), names="rank")
                                    for rank in (0, below)],
            f"alpha 0, -0.5 and {below}": [raises(ValueError, lambda: impl.LoRALinear(base, 1, alpha), names="alpha")
                                           for alpha in (0, -0.5, below)],
            "NaN": raises(ValueError, lambda: impl.LoRALinear(base, 1, float("nan")), names="alpha"),
            "dropout": [raises(ValueError, lambda: impl.LoRALinear(base, 1, 1, p), names="dropout")
                        for p in (1.0, -0.1)],
            "base still trains": _trains(base), "small": accepts(lambda: impl.LoRALinear(base, 1, 0.01, 0))}


@points(2)
def test_merge(impl, draw):
    """merge puts change(), (alpha / rank) · B A, into base's weight; the output stays; nothing is added twice.

    In place, and without a gradient. Remember that it is merged: forward then gives base alone, and a
    second merge does nothing. A weight in half precision is added to in the dtype of A, and the sum rounded, once.
    """
    layer, x = _layer(impl, draw, 6, 4), draw(2, 6)
    before, start = layer(x).detach(), layer.base.weight
    layer.merge()
    merged = {"weight": layer.base.weight.detach().clone(), "output": layer(x).detach(), "flag": layer.merged}
    layer.merge()
    half = _layer(impl, draw, 24, 24, rank=16)
    half.base.to(torch.bfloat16)
    with torch.no_grad():
        once = (half.base.weight + half.change()).to(torch.bfloat16)
    half.merge()
    return {"change": layer.change(), "before": before, "merged": merged, "twice": layer(x).detach(),
            "bfloat16, rounded once": torch.equal(half.base.weight, once),
            "the same parameter": layer.base.weight is start, "needs no gradient": not layer.base.weight.requires_grad}


def test_unmerge(impl, draw):
    """unmerge takes away what merge added; without a merge before, or a second time, it does nothing.

    Subtract the same product.
    """
    layer, x = _layer(impl, draw, 6, 4), draw(2, 6)
    layer.unmerge()
    untouched = layer.base.weight.detach().clone()
    layer.merge()
    layer.unmerge()
    once = layer.base.weight.detach().clone()
    layer.unmerge()
    return {"without a merge": untouched, "back": once, "twice": layer.base.weight.detach(), "output": layer(x),
            "flag": layer.merged}


# -- a model

@points(2)
def test_add_lora(impl, draw):
    """add_lora wraps the Linears that targets match, freezes all else, and returns the model.

    "q_proj" stands for the end of a name; a whole name is one layer alone. Embeddings and norms are
    frozen too.
    """
    said = {}
    for case, targets in {"ends": ["q_proj", "down"], "one whole name": ["blocks.1.attention.v_proj"]}.items():
        model = _model(impl, draw)
        same = impl.add_lora(model, targets, 2, 3.0) is model
        said[case] = {"same model": same, "wrapped": sorted(impl.lora_layers(model)), "trains": _trains(model),
                      "logits": draw.fill(model)(draw.ints(11, 2, 5)).flatten()}
    return said


def test_add_lora_starts_as_the_model(impl, draw):
    """A model with fresh adapters gives the logits that it gave without.

    The weights must be the model's own, not new ones, and each layer's own settings its own.
    """
    model, ids = _model(impl, draw, qk_norm=True, tie_embeddings=True), draw.ints(11, 2, 5)
    before = model(ids).detach()
    impl.add_lora(model, ("q_proj", "k_proj", "v_proj", "o_proj", "gate", "up", "down"), 2, 4, 0.1)
    layers = impl.lora_layers(model).values()
    return {"before": before, "after": model.eval()(ids), "rank, alpha, dropout": sorted(
        {f"{layer.rank} {float(layer.alpha)} {layer.dropout.p}" for layer in layers}), "layers": len(layers)}


def test_add_lora_refused(impl, draw):
    """A target that matches no Linear is named, and then nothing is changed; nor is it for a bad rank.

    Look at all arguments, make all layers, and only then put them in. A norm is no Linear, and proj no last part of
    q_proj: matches, which is given, looks for whole parts.
    """
    below = -_size(draw, 1, 9)
    cases = {"unknown": (["q_proj", "query", "norm1"], 2, ("targets", "query", "norm1")),
             "no targets": ([], 2, ("targets",)), "part of a word": (["proj"], 2, ("targets",)),
             "rank 0": (["q_proj"], 0, ("rank",)), f"rank {below}": (["q_proj"], below, ("rank",))}
    said = {}
    for case, (targets, rank, names) in cases.items():
        model = _model(impl, draw)
        said[case] = {"refused": _said(lambda: impl.add_lora(model, targets, rank, 2), *names),
                      "wrapped": len(impl.lora_layers(model)), "trains": len(_trains(model))}
    impl.add_lora(model := _model(impl, draw), ["q_proj"], 2, 2)
    return said | {"twice": raises(ValueError, lambda: impl.add_lora(model, ["k_proj"], 2, 2), names="model"),
                   "wrapped": len(impl.lora_layers(model))}


# -- adapters as files

@points(2)
def test_save_lora(impl, draw):
    """save_lora writes both factors of every LoRALinear by PEFT's names, and nothing of the model.

    base_model.model., then hugging_name's, then .lora_A.weight or .lora_B.weight.
    """
    model = _adapted(impl, draw)
    with _folder() as folder:
        impl.save_lora(model, folder)
        return {"tensors": load_file(folder / "adapter_model.safetensors"), "files": sorted(
            file.name for file in folder.iterdir() if file.suffix in (".json", ".safetensors"))}


@points(2)
def test_save_lora_config(impl, draw):
    """adapter_config.json has rank, alpha, dropout, and the targets by their shortest names that are right.

    Only one of two q_proj wrapped: then "q_proj" would say too much, and whole names are due.
    """
    said, rank = {}, _size(draw, 3, 9)
    for case, targets in {"ends": ["q_proj", "gate"], "one": ["blocks.1.attention.q_proj"]}.items():
        with _folder() as folder:
            impl.save_lora(_adapted(impl, draw, targets, rank=rank, alpha=rank * 1.5, dropout=0.1), folder)
            config = json.loads((folder / "adapter_config.json").read_text())
        said[case] = {key: str(config.get(key)) for key in SAID} | {"targets": sorted(config["target_modules"])}
    return said


def test_save_lora_refused(impl, draw):
    """Without a LoRALinear, with layers that differ, or for a GPT-2, nothing is written.

    must_be_llama is given; where the set of (rank, alpha, dropout) is not one, the message names model.
    """
    mixed = _adapted(impl, draw)
    mixed.blocks[0].attention.k_proj = impl.LoRALinear(mixed.blocks[0].attention.k_proj, 1, 3.0)
    gpt2 = _model(impl, draw, norm="layer", feed_forward="mlp", positions="learned", kv_heads=2)
    impl.add_lora(gpt2, ["q_proj"], 2, 2)
    cases = {"none": _model(impl, draw), "mixed": mixed, "a GPT-2": gpt2}
    with _folder() as folder:
        said = {case: raises(ValueError, lambda: impl.save_lora(model, folder), names="model")
                for case, model in cases.items()}
        return said | {"written": folder.exists() and any(folder.iterdir())}


@points(3)
def test_load_lora(impl, draw):
    """load_lora wraps the Linears that target_modules match by Hugging Face's names, and fills them in.

    gate_proj is our gate, mlp.up_proj our feed_forward.up. r and lora_alpha are those of the file. Its dtype is not:
    A and B stay at least float32, and are filled in place.
    """
    said, ids = {}, draw.ints(11, 2, 5)
    for case, part, sizes, targets in (("q_proj", "self_attn.q_proj", (8, 8), ["q_proj"]),
                                       ("up_proj", "mlp.up_proj", (12, 8), ["mlp.up_proj"]),
                                       ("one", "mlp.gate_proj", (12, 8), ["model.layers.1.mlp.gate_proj"])):
        tensors = _tensors(draw, part, sizes)
        if case == "one":
            tensors = {name: tensor for name, tensor in tensors.items() if ".1." in name}
        model = _model(impl, draw)
        with _folder() as folder:
            same = impl.load_lora(model, _write(folder, tensors, target_modules=targets, lora_dropout=0.25)) is model
        layers = impl.lora_layers(model)
        said[case] = {"same model": same, "wrapped": sorted(layers), "trains": _trains(model),
                      "logits": model.eval()(ids),
                      "dropout": sorted({layer.dropout.p for layer in layers.values()})}
    model, tensors = _model(impl, draw), {name: x.to(torch.bfloat16) for name, x in _tensors(draw).items()}
    with _folder() as folder:
        impl.load_lora(model, _write(folder, tensors, torch.bfloat16))
    return said | {"from bfloat16": [p.detach() for layer in impl.lora_layers(model).values()
                                     for p in (layer.lora_a, layer.lora_b)]}


@points(2)
def test_load_lora_gives_back_what_was_saved(impl, draw):
    """An adapter that was saved and loaded gives the same logits on a fresh copy of the model.

    The same A in the same place as before: names lead there, not the order.
    """
    ids = draw.ints(11, 2, 6)
    model = _adapted(impl, draw, ["k_proj", "v_proj", "gate", "up"], rank=3, alpha=2)
    with _folder() as folder:
        impl.save_lora(model, folder)
        again = impl.load_lora(_model(impl, draw), folder).eval()
    return {"saved": model(ids), "loaded": again(ids)}


@points(2)
def test_load_lora_names_all_that_is_wrong(impl, draw):
    """One message names every tensor that is missing, misshapen or foreign, and every unknown target.

    Collect the problems in a list, and raise once. The model is as it was.
    """
    tensors = _tensors(draw)
    lost, bent, *_ = tensors
    del tensors[lost]
    tensors[bent] = draw(8, 3)
    foreign = f"layers.{_size(draw, 2, 50)}"
    tensors[f"base_model.model.model.{foreign}.self_attn.q_proj.lora_A.weight"] = draw(2, 8)
    model = _model(impl, draw)
    with _folder() as folder:
        _write(folder, tensors, target_modules=["q_proj", "c_attn", "norm1"])
        said = _said(lambda: impl.load_lora(model, folder), lost, bent, "(8, 3)", "(8, 2)", foreign, "c_attn",
                     "norm1", folder.name)
    return {"said": said, "wrapped": len(impl.lora_layers(model)), "all trains": len(_trains(model))}


def test_load_lora_refuses_other_methods(impl, draw):
    """An adapter that asks for more than LoRA is refused, with each key that says so.

    config_problems lists them. DoRA, rsLoRA or ranks of their own would give other numbers in silence.
    """
    model, tensors, said, new = _model(impl, draw), _tensors(draw), {}, f"something_new_{_size(draw, 1, 99)}"
    for key, value in {"use_dora": True, "use_rslora": True, "rank_pattern": {"q_proj": 4}, "peft_type": "IA3",
                       "bias": "all",
                       "target_modules": ".*q_proj", "r": 0, new: 1}.items():
        with _folder() as folder:
            _write(folder, tensors, **{key: value})
            said[key] = _said(lambda: impl.load_lora(model, folder), key, folder.name)
    with _folder() as folder:
        _write(folder, tensors, use_dora=True, lora_alpha="many")
        said["two"] = _said(lambda: impl.load_lora(model, folder), "use_dora", "lora_alpha")
    return said | {"wrapped": len(impl.lora_layers(model))}


def test_load_lora_reads_safetensors_alone(impl, draw):
    """A folder without adapter_model.safetensors, or with half of it, is refused; no pickle is opened.

    read_file and read_json of lesson 16 raise for what is damaged. The model is as it was.
    """
    model, said = _model(impl, draw), {}
    with _folder() as folder:
        _write(folder, _tensors(draw))
        file = folder / "adapter_model.safetensors"
        whole = file.read_bytes()
        left = _size(draw, 9, len(whole) - 1)
        file.write_bytes(whole[:left])
        said[f"cut at {left}"] = _said(lambda: impl.load_lora(model, folder), file.name)
        file.rename(folder / "adapter_model.bin")
        said["a pickle"] = _said(lambda: impl.load_lora(model, folder), file.name)
        (folder / "adapter_config.json").write_text("{")
        said["config cut"] = _said(lambda: impl.load_lora(model, folder), "adapter_config.json")
    said["nothing"] = raises(ValueError, lambda: impl.load_lora(model, folder))
    return said | {"wrapped": len(impl.lora_layers(model))}


# -- chats

@points(2)
def test_render_chat(impl, draw):
    """render_chat runs a template over the messages; add_generation_prompt begins the next turn.

    Hand the template messages and add_generation_prompt by these names. Nothing is escaped: < stays <.
    """
    chat = _chat(draw)
    return {"as it is": impl.render_chat(chat, impl.CHATML),
            "to be continued": impl.render_chat(chat, impl.CHATML, True),
            "one": impl.render_chat(chat[1:2], impl.CHATML, add_generation_prompt=False)}


@points(2)
def test_render_chat_white_space(impl, draw):
    """Lines that hold only a tag leave nothing behind: no line break, no spaces before it.

    That is trim_blocks and lstrip_blocks of the environment, as transformers sets them.
    """
    template = ("{% for m in messages %}\n    {% if m.role == 'user' %}\n"
                "  U: {{ m.content }}\n    {% endif %}\n{% endfor %}\nend\n")
    return {"text": impl.render_chat(_chat(draw), template)}


def test_render_chat_variables(impl, draw):
    """Further variables reach the template; tools and documents are None where they are not given.

    bos_token is one such: the template writes it, nobody else.
    """
    template = "{{ bos_token }}{{ tools is none }} {{ documents is none }} {{ tools | tojson if tools }} {{ nothing }}"
    tools, chat = [{"name": f"é<{draw.text(9)}>", "n": [1, None, True, 0.5]}], _chat(draw)
    return {"given": impl.render_chat(chat, template, bos_token="<s>", tools=tools),
            "not given": impl.render_chat(chat, template, bos_token="<s>")}


def test_render_chat_tools(impl, draw):
    """Templates find what transformers gives them: tojson, raise_exception, strftime_now, break, generation.

    The given to_json writes JSON as it is; jinja2's own filter writes < as \\u003c, for web pages.
    """
    template = ("{% for m in messages %}{% if loop.index0 == 2 %}{% break %}{% endif %}{{ m | tojson }}{% endfor %}"
                "{% generation %}{{ messages[2].content }}{% endgeneration %}{{ strftime_now('%%') }}"
                "{% set ns = namespace(n=1) %}{% set ns.n = ns.n + 1 %}{{ ns.n }}")
    chat = _chat(draw)
    return {"text": impl.render_chat(chat, template), "refused": _said(
        lambda: impl.render_chat(chat, "{{ raise_exception('Roles must alternate') }}"), "template",
        "Roles must alternate")}


class _Loud(str):
    """A text that can do more than others."""

    def shout(self):
        return self.upper()


@points(2)
def test_render_chat_sandbox(impl, draw):
    """A template reaches neither Python's insides nor the messages: it is refused, and they stay.

    ImmutableSandboxedEnvironment does both. Whatever a template raises becomes a ValueError that names it. And what it
    gets is a copy by way of JSON: a text whose class has a method of its own comes as a text.
    """
    messages, said = _chat(draw), {}
    before = [dict(message) for message in messages]
    messages[1]["content"] = _Loud(messages[1]["content"])
    for case, template in {"insides": "{{ ''.__class__.__mro__ }}", "globals": "{{ raise_exception.__globals__.os }}",
                           "append": "{{ messages.append(1) }}", "update": "{{ messages[0].update(role='x') }}",
                           "no jinja2": "{% for %}", "type error": "{{ messages + 1 }}",
                           "a method": "{{ messages[1].content.shout() }}"}.items():
        said[case] = raises(ValueError, lambda: impl.render_chat(messages, template), names="template")
    return said | {"messages": str(messages == before), "written": impl.render_chat(messages, impl.CHATML)}


def test_render_chat_refused(impl, draw):
    """No messages, one without a role, and what is no JSON are refused by name.

    A template would write nothing for a role that is missing, in silence.
    """
    chat = _chat(draw)
    return {"none": raises(ValueError, lambda: impl.render_chat([], impl.CHATML), names="messages"),
            "no role": raises(ValueError, lambda: impl.render_chat([{"content": "Hi"}], "{{ messages[0].role }}"),
                              names="messages"),
            "an object": raises(ValueError, lambda: impl.render_chat(chat, "{{ x }}", x=object()), names="variables"),
            "JSON": impl.render_chat(chat, "{{ x }}", x=[_size(draw, 1, 999), {"a": None}])}


@points(2)
def test_assistant_mask(impl, draw):
    """assistant_mask is True for the assistant's words and the end of its turn, not for its header.

    The end token is learnt too, else the model would never stop. What the user says is not. A header inside of
    a turn is part of it.
    """
    header, end = [7, 8], 9
    asked, said, more = (draw.ints(7, _size(draw, 1, 5)).tolist() for _ in range(3))
    text = [7, 1, *asked, 9, 7, 8, *said, 9, 2, 7, 1, 4, 9, 7, 8, *more, 9]
    no_end = text[:len(asked) + 5 + len(said)]
    return {"two turns": impl.assistant_mask(text, header, end), "no end": impl.assistant_mask(no_end, header, end),
            "an empty turn": impl.assistant_mask([7, 8, 9, *asked], header, end),
            "a header inside": impl.assistant_mask([7, 8, *said, 7, 8, *more, 9, 4], header, end),
            "header of one": impl.assistant_mask([1, 7, 7, *said, 9, 7, 9], [7], end)}


def test_assistant_mask_refused(impl, draw):
    """A header that is empty or stands nowhere is refused: nothing would be learnt, in silence.

    The message names header.
    """
    ids = draw.ints(5, 20).tolist()
    return {"nowhere": raises(ValueError, lambda: impl.assistant_mask(ids, [7, 8], 9), names="header"),
            "empty": raises(ValueError, lambda: impl.assistant_mask(ids, [], 9), names="header"),
            "half": raises(ValueError, lambda: impl.assistant_mask([1, 7], [7, 8], 9), names="header"),
            "there": impl.assistant_mask([*ids, 7, 8, *ids[:_size(draw, 1, 9)]], [7, 8], 9)}


@points(2)
def test_encode_chat(impl, draw):
    """encode_chat gives the ids of the rendered text, as they are, and which of them to learn.

    The template writes the token that begins all texts; add nothing before or after.
    """
    begin, header, end = "{{ bos_token }}", "<|im_start|>assistant\n", "<|im_end|>"
    chat = _chat(draw)
    ids, learn = impl.encode_chat(_Letters(), chat, begin + impl.CHATML, header, end, bos_token="<s>")
    return {"ids": ids, "learn": learn, "end": raises(
        ValueError, lambda: impl.encode_chat(_Letters(), chat, impl.CHATML, header, "the end"), names="end")}


# -- packing and the loss

def _examples(draw, *sizes):
    return [(draw.ints(11, n).tolist(), [bool(x) for x in draw.ints(2, n).tolist()]) for n in sizes]


@points(2)
def test_pack(impl, draw):
    """pack puts each example into the first row with room, behind what is there, and fills up with pad.

    positions restart at 0 with every example and with the padding; nothing is learnt of an example's
    first token, nor of padding. The examples themselves stay as they are: they may be packed again.
    """
    examples = [(ids, [True] * len(ids)) for ids, _ in _examples(draw, 4, 5, 3, 1, 8, 1)]
    packed = impl.pack(examples, 8, pad=7, device=draw.device)
    return {"ids": packed.ids, "learn": packed.learn, "positions": packed.positions,
            "the examples, afterwards": [[len(ids), *learn] for ids, learn in examples]}


@points(2)
def test_pack_mask(impl, draw):
    """A token may look at its own example alone: the mask is True inside of each, False between two.

    Compare every token's example with every other's. Its shape is (rows, 1, seq, seq), for all heads.
    """
    return impl.pack(_examples(draw, 2, 3, 1, 6, *(_size(draw, 1, 7) for _ in range(3))), 7, device=draw.device).mask


@points(3)
def test_packed_equals_one_by_one(impl, draw):
    """The model gives each token of a packed row the logits that it has in its example alone.

    Both are needed: the mask that keeps examples apart, and positions that restart.
    """
    model = _model(impl, draw, layers=1)
    packed = impl.pack(_examples(draw, 5, 7, 2, 6), 12, device=draw.device)
    logits = model(packed.ids, mask=packed.mask, positions=packed.positions)
    return {"logits": logits, "loss": impl.sft_loss(logits, packed.ids, packed.learn)}


def test_pack_refused(impl, draw):
    """No examples, an empty or too long one, and a learn of another length are refused by name.

    To cut a long example would cut its end token, the one that stops the model.
    """
    fits, below = [([1, 2, 3], [True, False, True])], -_size(draw, 1, 9)
    return {"too long": raises(ValueError, lambda: impl.pack(fits, 2), names="examples"),
            "none": raises(ValueError, lambda: impl.pack([], 4), names="examples"),
            "empty": raises(ValueError, lambda: impl.pack([*fits, ([], [])], 4), names="examples"),
            "lengths": raises(ValueError, lambda: impl.pack([([1, 2], [True])], 4), names="examples"),
            f"seq_len 0 and {below}": [raises(ValueError, lambda: impl.pack(fits, seq_len), names="seq_len")
                                       for seq_len in (0, below)],
            "just fits": accepts(lambda: impl.pack(fits, 3))}


@points(2)
def test_sft_loss(impl, draw):
    """sft_loss is the mean loss over the tokens to learn, each predicted by the logits one place before.

    All rows together: a row that learns more counts more. A row's first token has nothing before it.
    """
    logits, ids = draw(3, 6, 11), draw.ints(11, 3, 6)
    learn = draw.ints(3, 3, 6) > 0
    learn[0, 0], learn[1, 1:] = True, False
    logits.requires_grad_()
    loss = impl.sft_loss(logits, ids, learn)
    loss.backward()
    return {"loss": loss, "gradient": logits.grad}


def test_sft_loss_refused(impl, draw):
    """With nothing to learn there is no mean: learn is named. The first token alone is nothing.

    0 / 0 would be NaN, and one step with NaN is the end of a model.
    """
    logits, ids = draw(2, 3, 11), draw.ints(11, 2, 3)
    first, second, last = torch.eye(3, dtype=torch.bool, device=draw.device)[:, None].expand(3, 2, 3)
    return {"nothing": raises(ValueError, lambda: impl.sft_loss(logits, ids, ids < 0), names="learn"),
            "the first alone": raises(ValueError, lambda: impl.sft_loss(logits, ids, first), names="learn"),
            "one token": raises(ValueError, lambda: impl.sft_loss(logits[:, :1], ids[:, :1], ids[:, :1] > -1),
                                names="learn"),
            "others alone": [impl.sft_loss(logits, ids, learn) for learn in (second, last)]}
