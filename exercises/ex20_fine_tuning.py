"""Fine-tuning: teach it something without touching most of it.

LoRA: y = x Wᵀ + (alpha / rank) · x Aᵀ Bᵀ, where W stays as it is and the thin A and B are trained.
Chats become one text by a template, and only what the assistant says in it is learned from.
"""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from safetensors.torch import save_file
from torch import Tensor, nn

from given.chat_template import Generation, PlainNamespace, raise_exception, strftime_now, to_json
from given.sizes import at_least_one
from given.tensors import tensor_problems

from .ex03_linear import Linear
from .ex05_softmax import cross_entropy
from .ex08_feedforward import Dropout
from .ex13_transformer import ModelConfig, Transformer
from .ex16_pretrained import read_file, read_json

IGNORED = -100  # a target that is not learned from, as in lesson 14

# An adapter folder as PEFT writes it, and the parts of a Llama or Qwen3 by Hugging Face's names.
TENSORS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
HUGGING = {
    "blocks.": "model.layers.", ".attention.": ".self_attn.",
    ".feed_forward.gate": ".mlp.gate_proj", ".feed_forward.up": ".mlp.up_proj",
    ".feed_forward.down": ".mlp.down_proj"}

# Keys of adapter_config.json that change no number once the tensors are there. What is neither
# one of these nor read by load_lora must be null, false or empty: it would ask for another method.
HARMLESS = {"auto_mapping", "base_model_name_or_path", "inference_mode", "peft_version", "revision",
            "task_type", "megatron_core", "qalora_group_size"}

# ChatML, OpenAI's format of 2023, which Qwen has taken over: every turn between two special tokens.
CHATML = """\
{% for message in messages %}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\\n' }}
{%- endif %}"""


class LoRALinear(nn.Module):
    """A linear layer that stays as it is, and beside it a thin one that learns.

    y = base(x) + (alpha / rank) · dropout(x) Aᵀ Bᵀ

    base: the given Linear, whose parameters no longer require a gradient. lora_a: (rank,
    in_features), uniform in ±1/√in_features, drawn with torch's own generator. lora_b:
    (out_features, rank), zeros, so that a new layer gives what base gives. Both lie on base's
    device and are at least float32, since small steps would be lost in half precision. merged:
    whether base's weight holds the product already; at first False.

    Raises ValueError, naming the argument, where rank is below 1, alpha not above 0, or dropout not
    in [0, 1); base is as it was then. Hu et al., 2021 (arXiv 2106.09685).
    """

    def __init__(self, base: Linear, rank: int, alpha: float, dropout: float = 0.0):
        super().__init__()
        raise NotImplementedError

    def forward(
        self, x: Float[Tensor, "*batch in_features"]
    ) -> Float[Tensor, "*batch out_features"]:
        """The sum, or base alone where merged; computed in the dtype of A, returned in base's."""
        raise NotImplementedError

    def change(self) -> Float[Tensor, "out_features in_features"]:
        """(alpha / rank) · B A, which forward adds to base's weight without ever making it."""
        raise NotImplementedError

    @torch.no_grad()
    def merge(self) -> None:
        """Add the change to base's weight, in place; where it is merged, do nothing.

        The sum is made in the dtype of A and rounded once, to that of the weight.
        """
        raise NotImplementedError

    @torch.no_grad()
    def unmerge(self) -> None:
        """Take away again what merge added, up to rounding; where it is not merged, do nothing."""
        raise NotImplementedError


def lora_layers(model: nn.Module) -> dict[str, LoRALinear]:
    """Given: a model's LoRALinears by their names, such as blocks.0.attention.q_proj."""
    return {name: module for name, module in model.named_modules()
            if isinstance(module, LoRALinear)}


def merge_lora(model: nn.Module) -> None:
    """Given: merge all LoRALinears of a model: it computes as fast as before add_lora."""
    for layer in lora_layers(model).values():
        layer.merge()


def unmerge_lora(model: nn.Module) -> None:
    """Given: unmerge all LoRALinears of a model, to train on or to take another adapter."""
    for layer in lora_layers(model).values():
        layer.unmerge()


def matches(name: str, targets: Iterable[str]) -> bool:
    """Given: whether targets hold a name or its end: q_proj is for blocks.0.attention.q_proj."""
    return any(name == target or name.endswith(f".{target}") for target in targets)


def add_lora(
    model: nn.Module,
    targets: list[str] | tuple[str, ...],
    rank: int,
    alpha: float,
    dropout: float = 0.0,
) -> nn.Module:
    """Put a LoRALinear around each Linear that targets match, in place, and freeze all the rest.

    targets: names of Linears, or ends of names, as in ["q_proj", "v_proj"] (see matches).
    Afterwards no parameter but lora_a and lora_b requires a gradient. Returns the model.

    Raises ValueError, and changes nothing: naming targets and each one of them that matches no
    Linear, or targets where there are none; naming model where it has LoRALinears already; and what
    LoRALinear raises.

    To be written here: peft's get_peft_model and PeftModel are not used.
    """
    raise NotImplementedError


def hugging_name(name: str) -> str:
    """Given: blocks.0.attention.q_proj by Hugging Face's name, model.layers.0.self_attn.q_proj."""
    for ours, theirs in HUGGING.items():
        name = name.replace(ours, theirs)
    return name


def must_be_llama(model: nn.Module) -> None:
    """Given: raises ValueError naming model unless Hugging Face has its Linears one by one.

    GPT-2's file keeps q, k and v in one matrix, so that an adapter for three has no place in it.
    """
    config: ModelConfig | None = model.config if isinstance(model, Transformer) else None
    parts = config and (config.norm, config.feed_forward, config.positions)
    if parts != ("rms", "swiglu", "rope"):
        raise ValueError("model must be a Transformer like a Llama or Qwen3: RMSNorm, SwiGLU, RoPE")


def save_lora(model: nn.Module, path: str | Path) -> None:
    """Write a model's adapter into the folder path, as PEFT does; the folder is made where needed.

    adapter_model.safetensors: per LoRALinear base_model.model.NAME.lora_A.weight and
    base_model.model.NAME.lora_B.weight, with NAME from hugging_name, in their own dtype. Nothing of
    base.
    adapter_config.json: peft_type "LORA", task_type "CAUSAL_LM", r, lora_alpha, lora_dropout, bias
    "none", and target_modules, a list: the last parts of the names, such as q_proj, where these
    match the LoRALinears and no other Linear; else the whole names.

    Raises ValueError naming model, and writes nothing, where it has no LoRALinear, where they
    differ in rank, alpha or dropout, and what must_be_llama raises.

    To be written here: peft's get_peft_model and PeftModel are not used.
    """
    raise NotImplementedError


def config_problems(config: dict) -> list[str]:
    """Given: what load_lora cannot do of an adapter_config.json, a line each."""
    read = {"peft_type", "r", "lora_alpha", "lora_dropout", "bias", "target_modules",
            "init_lora_weights"}
    rank, alpha = config.get("r"), config.get("lora_alpha")
    dropout, targets = config.get("lora_dropout", 0.0), config.get("target_modules")
    rules = [
        ("peft_type", "be 'LORA'", config.get("peft_type") == "LORA"),
        ("r", "be a whole number of at least 1", type(rank) is int and rank >= 1),
        ("lora_alpha", "be a number above 0", type(alpha) in (int, float) and alpha > 0),
        ("lora_dropout", "be in [0, 1)", type(dropout) in (int, float) and 0 <= dropout < 1),
        ("bias", "be 'none'", config.get("bias", "none") == "none"),
        ("target_modules", "be a list of names", bool(targets) and isinstance(targets, list) and
         all(isinstance(target, str) for target in targets)),
        # others, such as "pissa", change the base model too
        ("init_lora_weights", "be true, false or 'gaussian'",
         config.get("init_lora_weights", True) in (True, False, "gaussian")),
        *((key, "be null, false or empty", not config[key])
          for key in sorted(set(config) - read - HARMLESS)),
    ]
    return [f"{key} of {CONFIG} must {rule}, got {config.get(key)!r}"
            for key, rule, holds in rules if not holds]


def load_lora(model: nn.Module, path: str | Path) -> nn.Module:
    """Put the adapter in the folder path, by save_lora or PEFT, around a model's Linears.

    What save_lora wrote, and add_lora with the rank, alpha and dropout of adapter_config.json, on
    the Linears whose hugging_name target_modules match. Tensors of any floating-point dtype are
    taken.
    Returns the model. No other file is opened: adapter_model.bin is a pickle, which can run code.

    Raises ValueError naming the folder, and changes nothing: with all config_problems; or, where
    there are none, with every tensor that is missing, that has no place in the model, that is of
    the wrong shape or of no floating-point dtype, and every one of target_modules that matches no
    Linear; or with the file that is missing or damaged. Naming model where it has LoRALinears, and
    what must_be_llama raises.

    To be written here: torch.load and peft's get_peft_model and PeftModel are not used.
    """
    raise NotImplementedError


def render_chat(
    messages: list[dict], template: str, add_generation_prompt: bool = False, **variables: Any
) -> str:
    """A chat as one text, by a template in jinja2, as transformers' apply_chat_template has it.

    messages: dicts with a role, such as "user", and mostly a content. template: what
    tokenizer_config.json has as chat_template, such as CHATML. add_generation_prompt: whether the
    template shall begin the assistant's next turn. variables: further names for it, such as
    bos_token; tools and documents are None where they are not given.

    A template comes from whoever made the model, and is a program. So it runs in jinja2's
    ImmutableSandboxedEnvironment, which keeps it from Python's insides and from changing a list,
    and all that it is handed is plain: a copy by way of JSON, no object with methods of its own.
    With trim_blocks and lstrip_blocks (a line that holds only a tag leaves no trace), the
    extensions loopcontrols and Generation, the filter tojson (to_json), and the functions
    raise_exception, strftime_now and namespace (PlainNamespace).

    Raises ValueError: naming messages where there are none or one has no role; naming variables
    where they or the messages are no JSON; naming template where it is no jinja2, and whatever goes
    wrong while it runs, with what was said.

    To be written here: transformers' AutoTokenizer, PreTrainedTokenizerFast and
    render_jinja_template are not used.
    """
    raise NotImplementedError


def assistant_mask(ids: list[int], header: list[int], end: int) -> list[bool]:
    """Which tokens of a chat the assistant said: behind a header, up to its end token and with it.

    header: the ids that open the assistant's turn, such as those of "<|im_start|>assistant\\n";
    they are not its words. end: the id that ends a turn; to stop is a thing to learn, too. A turn
    without an end goes on to the last id. A header inside of a turn is part of it.

    Raises ValueError naming header where it is empty, or stands nowhere in ids: nothing would be
    learned, in silence. (So it may be when a tokenizer joins the header's last character with what
    follows.)
    """
    raise NotImplementedError


def encode_chat(
    tokenizer: Any,
    messages: list[dict],
    template: str,
    header: str,
    end: str,
    **variables: Any,
) -> tuple[list[int], list[bool]]:
    """A chat to learn from: the ids of its text, and which of them the assistant said.

    tokenizer: anything with encode(text) -> ids. header and end: the texts between which a template
    writes what the assistant says. Nothing is added to the text of render_chat: a token that begins
    all texts, such as Llama's, is written by the template.

    Raises ValueError naming end where it is not one token, and what render_chat and assistant_mask
    raise.

    To be written here: transformers' AutoTokenizer, PreTrainedTokenizerFast and
    render_jinja_template are not used.
    """
    raise NotImplementedError


class Packed(NamedTuple):
    """Examples side by side in rows of one length: what the model takes, and what is learned.

    positions and mask go into the Transformer with ids, ids and learn into sft_loss.
    """

    ids: Int[Tensor, "rows seq"]
    learn: Bool[Tensor, "rows seq"]
    positions: Int[Tensor, "rows seq"]
    mask: Bool[Tensor, "rows 1 seq seq"]


def pack(
    examples: list[tuple[list[int], list[bool]]],
    seq_len: int,
    pad: int = 0,
    device: torch.device | str | None = None,
) -> Packed:
    """Examples, pairs of ids and learn, side by side in rows of seq_len, so that none sees another.

    In the order given, each goes into the first row that has room for all of it, behind what is
    there, or else begins a new row. What is left of a row is one more example: pad, of which
    nothing is learned. positions restart at 0 with every example. mask: True where a token may
    look, that is at those of its own example (the model's causal mask is ANDed with it). learn is
    False for the first token of every example, whatever was given: nothing before it is its own.

    ids and positions are int64. So what the model says of every token is what it says of each
    example alone.

    Raises ValueError: naming seq_len where it is below 1; naming examples where there are none, and
    where one is empty, longer than seq_len (cut, it would lose its end), or has a learn of another
    length.
    """
    raise NotImplementedError


def sft_loss(
    logits: Float[Tensor, "batch seq vocab"],
    ids: Int[Tensor, "batch seq"],
    learn: Bool[Tensor, "batch seq"],
) -> Float[Tensor, ""]:
    """The mean of −log p(token) over the tokens to learn, of all rows together, in nats.

    logits at place t are about the token at t + 1: a row's first token has no prediction and does
    not count, whatever learn says. As lesson 05's cross_entropy: in at least float32, in the dtype
    of logits.

    Raises ValueError naming learn where no token is left to learn from.
    """
    raise NotImplementedError
