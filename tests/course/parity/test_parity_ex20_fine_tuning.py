"""Chapter 20 against peft and transformers: adapters that one wrote and the other reads, chats as one text."""

import copy
import json
import random
import string
import warnings
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from solutions.ex13_transformer import ENCODER, GPT2, POCKET, ModelConfig, Transformer
from solutions.ex15_generation import generate
from solutions.ex16_pretrained import load_pretrained, load_tokenizer
from solutions.ex20_fine_tuning import (
    CHATML,
    add_lora,
    encode_chat,
    load_lora,
    lora_layers,
    merge_lora,
    pack,
    render_chat,
    save_lora,
    sft_loss,
    unmerge_lora,
)
from tests.course.close import assert_as_near, assert_close

ROOT = Path(__file__).resolve().parents[3]
NEEDED = "needs peft: pip install -r requirements-dev.txt"
# All in float64 but the tables of RoPE: so what is compared is compared as float32.
pytestmark = pytest.mark.usefixtures("one_thread", "float64_norms")

COMMON = {"vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4,
          "num_key_value_heads": 2, "intermediate_size": 40, "max_position_embeddings": 64,
          "bos_token_id": None, "eos_token_id": None}
MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**COMMON)),
    "llama-biases": lambda: LlamaForCausalLM(LlamaConfig(**COMMON, attention_bias=True)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**COMMON, head_dim=16, tie_word_embeddings=True)),
}
EVERY_MODEL = pytest.mark.parametrize("name", MODELS)
ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate", "up", "down")
TARGETS = {"queries and values": ("q_proj", "v_proj"), "all": ALL,
           "two whole names": ("blocks.0.attention.o_proj", "blocks.2.feed_forward.down")}


@pytest.fixture
def peft():
    return pytest.importorskip("peft", reason=NEEDED)


def ids(rows: int = 2, length: int = 17) -> torch.Tensor:
    return torch.randint(61, (rows, length), generator=torch.Generator().manual_seed(1))


def both(name: str, folder: Path):
    """A random model of transformers, and the same by this course."""
    torch.manual_seed(0)
    theirs = MODELS[name]().eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    theirs.save_pretrained(folder)
    return theirs, load_pretrained(folder)


def trained(model):
    """An adapter that has learnt something: no factor is zero."""
    torch.manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.copy_(0.3 * torch.randn_like(parameter))
    return model


def assert_same(mine, theirs):
    with torch.no_grad():
        assert_close(mine(ids()).float(), theirs(ids()).logits)


@EVERY_MODEL
@pytest.mark.parametrize("targets", TARGETS)
def test_peft_loads_what_we_save(peft, name, targets, tmp_path):
    theirs, mine = both(name, tmp_path / "base")
    plain = mine(ids())
    trained(add_lora(mine, TARGETS[targets], rank=4, alpha=6, dropout=0.1)).eval()
    save_lora(mine, tmp_path / "adapter")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)     # peft warns where a tensor is missing or left over
        loaded = peft.PeftModel.from_pretrained(theirs, tmp_path / "adapter").eval()
    assert (mine(ids()) - plain).abs().max() > 0.1
    assert_same(mine, loaded)
    merge_lora(mine)
    assert_same(mine, loaded.merge_and_unload())


@EVERY_MODEL
@pytest.mark.parametrize("targets", [["q_proj", "v_proj"], "all-linear", ["model.layers.1.mlp.up_proj",
                                                                          "mlp.down_proj"]])
def test_we_load_what_peft_saves(peft, name, targets, tmp_path):
    theirs, mine = both(name, tmp_path / "base")
    config = peft.LoraConfig(r=3, lora_alpha=5, lora_dropout=0.2, target_modules=targets, task_type="CAUSAL_LM")
    theirs = trained(peft.get_peft_model(theirs, config)).eval()
    theirs.save_pretrained(tmp_path / "adapter")
    load_lora(mine, tmp_path / "adapter").eval()
    assert_same(mine, theirs)
    assert {layer.dropout.p for layer in lora_layers(mine).values()} == {0.2}
    save_lora(mine, tmp_path / "again")         # and back once more
    base = LlamaForCausalLM if "llama" in name else Qwen3ForCausalLM
    theirs = base.from_pretrained(tmp_path / "base")
    assert_same(mine, peft.PeftModel.from_pretrained(theirs, tmp_path / "again").eval())


def test_what_transformers_loads_by_itself(peft, tmp_path):
    """transformers' own load_adapter, which needs peft installed, takes the folder too."""
    theirs, mine = both("llama", tmp_path / "base")
    save_lora(trained(add_lora(mine, ALL, rank=2, alpha=4)), tmp_path / "adapter")
    theirs.load_adapter(str(tmp_path / "adapter"))
    assert_same(mine, theirs)


@EVERY_MODEL
def test_gradients_are_peft_s(peft, name, tmp_path):
    theirs, mine = both(name, tmp_path / "base")
    save_lora(trained(add_lora(mine, ALL, rank=4, alpha=6)), tmp_path / "adapter")
    theirs = peft.PeftModel.from_pretrained(theirs, tmp_path / "adapter", is_trainable=True)
    learn = ids() % 3 > 0
    sft_loss(mine(ids()), ids(), learn).backward()
    labels = ids().masked_fill(~learn, -100)
    theirs(ids(), labels=labels).loss.backward()
    expected = {n.removeprefix("base_model.model.").replace(".default.weight", ""): p.grad
                for n, p in theirs.named_parameters() if p.requires_grad}
    assert len(expected) == 2 * 7 * 3
    for ours, layer in lora_layers(mine).items():
        block, part = ours.split(".")[1], ours.rpartition(".")[2]
        for which in "ab":
            [gradient] = [g for n, g in expected.items() if f"layers.{block}." in n and f"lora_{which.upper()}" in n
                          and n.split(".lora_")[0].endswith(part if "_proj" in part else f"{part}_proj")]
            assert_close(getattr(layer, f"lora_{which}").grad.float(), gradient)
    assert {n for n, p in mine.named_parameters() if p.grad is not None} == {
        n for n, p in mine.named_parameters() if "lora_" in n}


def test_a_new_layer_starts_as_peft_s(peft, tmp_path):
    """A within ±1/√in, spread evenly; B zero."""
    theirs, mine = both("llama", tmp_path / "base")
    theirs = peft.get_peft_model(theirs, peft.LoraConfig(r=64, target_modules=["down_proj"]))
    add_lora(mine, ["down"], rank=64, alpha=8)
    a = torch.cat([p.flatten() for n, p in theirs.named_parameters() if "lora_A" in n])
    ours = torch.cat([layer.lora_a.flatten() for layer in lora_layers(mine).values()])
    torch.testing.assert_close(ours.std(), a.std(), rtol=0.05, atol=0)
    torch.testing.assert_close(ours.abs().max(), a.abs().max(), rtol=0.01, atol=0)
    assert not any(layer.lora_b.any() for layer in lora_layers(mine).values())


def test_bfloat16_keeps_its_adapter_wide_as_peft_does(peft, tmp_path):
    theirs, _ = both("qwen3", tmp_path / "base")
    theirs = theirs.to(torch.bfloat16)
    mine = load_pretrained(tmp_path / "base", dtype=torch.bfloat16)
    save_lora(trained(add_lora(mine, ALL, rank=4, alpha=6)).eval(), tmp_path / "adapter")
    loaded = peft.PeftModel.from_pretrained(theirs, tmp_path / "adapter").eval()
    assert {p.dtype for n, p in loaded.named_parameters() if "lora_" in n} == {torch.float32}
    assert {p.dtype for n, p in mine.named_parameters() if "lora_" in n} == {torch.float32}
    with torch.no_grad():
        exact = load_lora(load_pretrained(tmp_path / "base"), tmp_path / "adapter").eval()(ids())
        assert_as_near(mine(ids()), loaded(ids()).logits, exact)


@pytest.mark.parametrize("changes", [{"use_dora": True}, {"use_rslora": True}, {"rank_pattern": {"q_proj": 1}},
                                     {"layers_to_transform": [0]}, {"bias": "lora_only"},
                                     {"modules_to_save": ["lm_head"]},
                                     {"init_lora_weights": "pissa"}, {"target_modules": r".*\.q_proj"}],
                         ids=lambda changes: next(iter(changes)))
def test_methods_that_are_not_lora_alone_are_refused(peft, changes, tmp_path):
    """Each of them gives other numbers: a silent load would be wrong."""
    theirs, mine = both("llama", tmp_path / "base")
    config = peft.LoraConfig(**{"r": 2, "target_modules": ["q_proj"], "task_type": "CAUSAL_LM"} | changes)
    peft.get_peft_model(theirs.float(), config).save_pretrained(tmp_path / "adapter")      # PiSSA takes no float64
    before = {name: tensor.clone() for name, tensor in mine.state_dict().items()}
    with pytest.raises(ValueError, match=next(iter(changes))):
        load_lora(mine, tmp_path / "adapter")
    assert all(torch.equal(tensor, before[name]) for name, tensor in mine.state_dict().items())


def test_the_pocket_model_takes_an_adapter_anywhere(peft, tmp_path):
    folder = ROOT / "assets" / "pocket"
    mine = load_pretrained(folder, dtype=torch.float64)
    theirs = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float64)
    torch.manual_seed(0)
    trained(add_lora(mine, ALL, rank=4, alpha=8))
    with torch.no_grad():
        for layer in lora_layers(mine).values():
            layer.lora_b.mul_(0.1)
    save_lora(mine, tmp_path)
    loaded = peft.PeftModel.from_pretrained(theirs, tmp_path).eval()
    assert_same(mine, loaded)
    prompt = ids(1, 9)
    cached, plain = (generate(mine, prompt.tolist(), 12, temperature=0, use_cache=use) for use in (True, False))
    assert cached == plain


@pytest.mark.parametrize("kind", ["GPT-2", "an encoder", "a Llama"])
def test_any_transformer_learns_by_its_adapter_alone(kind):
    base = {"GPT-2": GPT2, "an encoder": ENCODER, "a Llama": POCKET}[kind]
    small = {"vocab_size": 61, "d_model": 16, "layers": 2, "heads": 2, "d_ff": 24, "max_seq_len": 32, "kv_heads": 2,
             "head_dim": 8, "dropout": 0.0}
    torch.manual_seed(0)
    model = Transformer(ModelConfig(**{field: getattr(base, field) for field in base.__dataclass_fields__} | small))
    for parameter in (model.embedding.weight, model.unembedding.weight):
        torch.nn.init.normal_(parameter)        # frozen as small as a fresh one is, it could not say much
    frozen = copy.deepcopy(model.state_dict())
    targets = ["q_proj", "v_proj", "o_proj", "up", "down"]
    add_lora(model, targets, rank=4, alpha=8)
    layers = lora_layers(model)
    assert len(layers) == 2 * len(targets)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.03)
    losses = []
    for _ in range(100):
        loss = sft_loss(model(ids(2, 9)), ids(2, 9), torch.ones(2, 9, dtype=torch.bool))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    after = {name.replace(".base.", "."): tensor for name, tensor in model.state_dict().items()}
    assert all(torch.equal(after[name], tensor) for name, tensor in frozen.items())
    logits = model(ids(2, 9))
    merge_lora(model)
    assert_close(model(ids(2, 9)), logits)
    unmerge_lora(model)
    assert_close(model(ids(2, 9)), logits)


# -- chats

LLAMA3 = """\
{% set loop_messages = messages %}{% for message in loop_messages %}
{%- set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'
                + message['content'] | trim + '<|eot_id|>' %}
{%- if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}
{{- content }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""

# In the format of Qwen3's: tools, thinking that is dropped from earlier turns, replies of tools in one turn.
QWEN3 = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string
          and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>' + message.role + '\\n' }}
        {%- if loop.index0 > ns.last_query_index and (loop.last or reasoning_content) %}
            {{- '<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls or [] %}
            {%- if (loop.first and content) or not loop.first %}{{- '\\n' }}{%- endif %}
            {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '<tool_call>\\n{"name": "' + tool_call.name + '", "arguments": ' }}
            {{- tool_call.arguments if tool_call.arguments is string else tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}"""

# Llama 2's manner: it refuses roles that do not alternate, leaves loops early, and knows the date.
STRICT = """\
{{ bos_token }}Today {{ strftime_now('%Y-%m') }}
{% for message in messages %}
    {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{ raise_exception('Conversation roles must alternate') }}
    {% endif %}
    {% if message.content == '' %}
        {% continue %}
    {% endif %}
    {% if loop.index0 > 4 %}{% break %}{% endif %}
[{{ [message.role, message.content, message.tool_calls or none] | tojson(indent=2, sort_keys=true) }}]
{% endfor %}
"""
TEMPLATES = {"ChatML": CHATML, "Llama 3": LLAMA3, "Qwen3": QWEN3, "strict": STRICT}
SPICE = ["<|im_end|>", "{{ 7 * 7 }}", "{% if %}", "<think>\nhm\n</think>\n\n", "é", "日本", "🙂", "\n", "\n\n", "  ",
         "'", '"', "&lt;", "<b>",
         "\\n", "<tool_response>", "</tool_response>", "\u2028"]


def words(rng: random.Random) -> str:
    pieces = [rng.choice(SPICE) if rng.random() < 0.4 else "".join(rng.choices(string.ascii_letters + " ", k=6))
              for _ in range(rng.randrange(5))]
    return "".join(pieces)


def chat(rng: random.Random) -> list[dict]:
    messages = []
    if rng.random() < 0.4:
        messages.append({"role": "system", "content": words(rng)})
    for place in range(rng.randrange(1, 7)):
        role = "user" if place % 2 == 0 else "assistant"
        if rng.random() < 0.15:
            role = rng.choice(["tool", "user", "assistant", "system"])
        message = {"role": role, "content": words(rng)}
        if role == "assistant" and rng.random() < 0.3:
            message["reasoning_content"] = words(rng)
        if role == "assistant" and rng.random() < 0.3:
            message["tool_calls"] = [{"function": {"name": "f", "arguments": {"x": words(rng), "n": rng.random(),
                                                                              "none": None}}}]
        messages.append(message)
    return messages


@pytest.fixture(scope="module")
def tokenizer():
    made = AutoTokenizer.from_pretrained(ROOT / "assets" / "pocket")
    made.add_special_tokens({"bos_token": "<s>", "additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    return made


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_text_of_apply_chat_template(name, tokenizer):
    rng, refused = random.Random(0), 0
    tools = [{"type": "function", "function": {"name": "f", "description": "é <b>", "parameters": {}}}]
    special = {"bos_token": tokenizer.bos_token, "eos_token": tokenizer.eos_token}
    for _ in range(500):
        messages, prompt = chat(rng), rng.random() < 0.5
        more = rng.choice([{}, {"tools": tools}, {"enable_thinking": False}, {"enable_thinking": True}])
        before = copy.deepcopy(messages)
        try:
            expected = tokenizer.apply_chat_template(
                messages, chat_template=TEMPLATES[name], tokenize=False, add_generation_prompt=prompt, **more)
        except Exception as error:
            refused += 1
            with pytest.raises(ValueError) as said:
                render_chat(messages, TEMPLATES[name], prompt, **special, **more)
            assert str(error) in str(said.value)
            continue
        assert render_chat(messages, TEMPLATES[name], prompt, **special, **more) == expected
        assert messages == before
    assert (refused > 50) == (name == "strict") and refused < 450


ATTACKS = ["{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ messages.append(1) }}",
           "{{ messages[0].update(x=1) }}",
           "{{ cycler.__init__.__globals__.os.popen('true').read() }}", "{{ '{0.__class__}'.format(1) }}",
           "{{ (1).__class__ }}", "{% set ns = namespace(__class__=1) %}",
           "{% set ns = namespace() %}{% set ns._x = 1 %}",
           "{{ range(10 ** 9) }}", "{{ lipsum.__globals__ }}", "{% include '/etc/passwd' %}", "{% import 'os' as x %}"]


@pytest.mark.parametrize("template", ATTACKS)
def test_a_template_that_reaches_out_is_refused_or_harmless(template, tokenizer):
    """As by transformers: it raises, or what it writes is as little as theirs."""
    messages = [{"role": "user", "content": "hi"}]
    try:
        expected = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False)
    except Exception:
        with pytest.raises(ValueError, match="template"):
            render_chat(messages, template)
    else:
        assert render_chat(messages, template) == expected == ""


def test_the_mask_is_that_of_generation_tags(tokenizer, tmp_path):
    """transformers marks the characters between two tags; we look for the header's ids and the end's."""
    tagged = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.role == 'assistant' %}{% generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}
{%- else %}{{ message.content + '<|im_end|>' }}{% endif %}
{{- '\\n' }}
{%- endfor %}"""
    tokenizer.save_pretrained(tmp_path)
    mine, rng, seen = load_tokenizer(tmp_path), random.Random(1), 0
    for _ in range(200):
        # a newline or space at the start would be joined with the header's own by the tokenizer
        messages = [message | {"content": "a" + message["content"].replace("<|im_end|>", "")} for message in chat(rng)]
        if not any(message["role"] == "assistant" for message in messages):
            continue
        both = tokenizer.apply_chat_template(messages, chat_template=tagged, return_dict=True,
                                             return_assistant_tokens_mask=True)
        found, said = encode_chat(mine, messages, tagged, "<|im_start|>assistant\n", "<|im_end|>")
        assert found == both["input_ids"]
        assert said == [bool(mark) for mark in both["assistant_masks"]]
        seen += 1
    assert seen > 100


# -- packing and the loss

@pytest.mark.parametrize("kind", ["a Llama", "GPT-2"])
@pytest.mark.parametrize("seed", range(3))
def test_packed_equals_one_by_one(kind, seed):
    base, rng = {"GPT-2": GPT2, "a Llama": POCKET}[kind], random.Random(seed)
    small = {"vocab_size": 61, "d_model": 16, "layers": 2, "heads": 2, "d_ff": 24, "max_seq_len": 32, "kv_heads": 2,
             "head_dim": 8}
    torch.manual_seed(seed)
    model = Transformer(ModelConfig(**{field: getattr(base, field) for field in base.__dataclass_fields__} | small))
    sizes = [rng.randrange(1, 20) for _ in range(12)]
    examples = [([rng.randrange(61) for _ in range(n)], [rng.random() < 0.5 for _ in range(n)]) for n in sizes]
    packed = pack(examples, 24, pad=7)
    assert packed.ids.shape[0] < 12
    with torch.no_grad():
        logits = model(packed.ids, packed.mask, packed.positions)
        rows = [[] for _ in packed.ids]
        starts = [(row, int(t)) for row in range(len(packed.ids)) for t in (packed.positions[row] == 0).nonzero()]
        total, count = 0.0, 0
        for ids_, learn in examples:
            alone = model(torch.tensor([ids_]))[0]
            row, t = next((row, t) for row, t in starts if packed.ids[row, t:t + len(ids_)].tolist() == ids_)
            starts.remove((row, t))
            rows[row].append(ids_)
            assert_close(logits[row, t:t + len(ids_)], alone)
            if any(learn[1:]):
                kept = sum(learn[1:])
                labels = torch.tensor(ids_[1:]).masked_fill(~torch.tensor(learn[1:]), -100)
                total, count = total + F.cross_entropy(alone[:-1], labels).item() * kept, count + kept
        loss = sft_loss(logits, packed.ids, packed.learn)
    assert_close(loss, torch.tensor(total / count, dtype=torch.float64))
    assert count == packed.learn.sum()


def test_the_config_is_what_peft_needs(peft, tmp_path):
    _, mine = both("llama", tmp_path / "base")
    save_lora(add_lora(mine, ["q_proj", "up"], rank=4, alpha=6.5, dropout=0.1), tmp_path / "adapter")
    config = peft.PeftConfig.from_pretrained(tmp_path / "adapter")
    assert (config.r, config.lora_alpha, config.lora_dropout) == (4, 6.5, 0.1)
    assert config.target_modules == {"q_proj", "up_proj"} and config.task_type == "CAUSAL_LM"
    assert json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())["peft_type"] == "LORA"
