"""Mixture of experts: many feed-forwards in a layer, and a router that gives each token a few.

y = Σ g_k · E_k(x) over the chosen experts k, plus the shared experts, which every token visits.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from einops import einsum, rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from given.init import STD
from given.sizes import at_least_one, widen
from given.tensors import tensor_problems

from .ex03_linear import Linear
from .ex05_softmax import logsumexp, softmax
from .ex08_feedforward import SwiGLU, sigmoid
from .ex12_block import scaled_residual_init
from .ex13_transformer import ModelConfig, Transformer, count_parameters
from .ex16_pretrained import (
    Weightless,
    config_from_hf,
    convert_llama,
    convert_qwen3,
    read_json,
    read_tensors,
    rename,
)


def _need(right: bool, name: str, rule: str, value: object) -> None:
    """Given: a ValueError that names an argument, unless it is right."""
    if not right:
        raise ValueError(f"{name} must {rule}, got {value!r}")


def _real(mask: Tensor | None, rows: Tensor) -> Tensor:
    """Given: which tokens of rows, (*batch, n), are no padding: mask as (*batch), all if None.

    Raises ValueError naming mask where it does not broadcast to batch.
    """
    if mask is None:
        return torch.ones(rows.shape[:-1], dtype=torch.bool, device=rows.device)
    try:
        return mask.expand(rows.shape[:-1])
    except RuntimeError:
        raise ValueError(f"mask must broadcast to {tuple(rows.shape[:-1])}, "
                         f"got {tuple(mask.shape)}") from None


def hide_groups(
    scores: Float[Tensor, "*batch experts"], groups: int, kept: int
) -> Float[Tensor, "*batch experts"]:
    """Given: scores with −∞ outside the `kept` best of `groups` equal groups of neighbours.

    A group is as good as its two best experts together. With a group on each machine, a token
    travels to `kept` machines at most. DeepSeek-AI, 2024 (arXiv 2412.19437), section 2.1.2.
    """
    if groups == 1:
        return scores
    grouped = rearrange(scores, "... (groups size) -> ... groups size", groups=groups)
    best = grouped.topk(2).values.sum(-1).topk(kept).indices
    keep = torch.zeros_like(grouped[..., 0], dtype=torch.bool).scatter(-1, best, True)
    return grouped.masked_fill(~keep[..., None], -torch.inf).flatten(-2)


class Router(nn.Module):
    """Which experts a token visits, and with which weights.

    s = softmax(x Wᵀ) or sigmoid(x Wᵀ), over all experts
    ids: the per_token experts with the largest s + bias, the largest first
    weights: s at ids; with normalize divided by their sum; times scale

    weight: W, (experts, d_model), normal with σ = 0.02. bias: where asked for, a buffer of zeros,
    (experts,), which no gradient reaches; it takes part in the choice and not in the weights, and
    stays in float32 when the module is cast. (In bfloat16 small updates would round to none.)
    groups, kept_groups: before the choice, hide_groups(s + bias, groups, kept_groups).

    Everything is computed in at least float32, in half precision too. A token whose chosen scores
    are all 0 (a sigmoid can underflow) gets weights of 0, not NaN.

    Raises ValueError naming the argument where d_model, experts or per_token is below 1, per_token
    above experts, score neither "softmax" nor "sigmoid", scale not above 0, or where the groups
    kept do not hold per_token experts. Shazeer et al., 2017 (arXiv 1701.06538); the bias: Wang et
    al., 2024 (arXiv 2408.15664).
    """

    def __init__(
        self,
        d_model: int,
        experts: int,
        per_token: int,
        score: str = "softmax",
        normalize: bool = True,
        scale: float = 1.0,
        bias: bool = False,
        groups: int = 1,
        kept_groups: int = 1,
    ):
        super().__init__()
        raise NotImplementedError

    @staticmethod
    def _check_groups(experts: int, per_token: int, groups: int, kept_groups: int) -> None:
        """Given: the groups are equal, of two experts at least; those kept hold enough of them."""
        _need(groups >= 1 and experts % groups == 0 and (groups == 1 or experts >= 2 * groups), "groups",
              f"divide experts = {experts} into groups of at least 2", groups)
        _need(1 <= kept_groups <= groups and per_token <= experts // groups * kept_groups, "kept_groups",
              f"be in 1 … {groups} and hold {per_token} experts", kept_groups)

    def _apply(self, fn: Callable, recurse: bool = True):
        """Given: .to(device) moves the bias; .half() and other casts leave it in float32."""
        bias = self.bias
        super()._apply(fn, recurse)
        if bias is not None:
            self.bias = bias.to(self.bias.device)
        return self

    def logits(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch experts"]:
        """x Wᵀ, in at least float32. Raises ValueError naming x unless it has d_model features."""
        raise NotImplementedError

    def forward(
        self, x: Float[Tensor, "*batch d_model"]
    ) -> tuple[Float[Tensor, "*batch per_token"], Int[Tensor, "*batch per_token"]]:
        """(weights, ids): weights in at least float32, ids in int64."""
        raise NotImplementedError


class MoE(nn.Module):
    """A layer of experts in place of one feed-forward: y = Σ g_k · E_k(x) + shared(x).

    router: a Router(d_model, experts, per_token, **routing). experts: a ModuleList of SwiGLUs of
    width d_ff. shared: None, or one SwiGLU of width shared · d_ff, which is what `shared` experts
    side by side are; every token visits it, and no weight scales it. (DeepSeek-AI, 2024, arXiv
    2401.06066.)

    Dropless: every token gets every expert that it chose. The choices are sorted by expert, each
    expert computes all of its tokens in one go, and the results are put back in the tokens' order.
    No loop runs over tokens, and no expert computes a token that did not choose it. The weighted
    sum over k is taken in at least float32; y has the dtype of x.

    Raises ValueError naming the argument where shared is below 0, and what Router and SwiGLU
    refuse.

    To be written here: torch's grouped_mm is not used.
    """

    def __init__(
        self, d_model: int, d_ff: int, experts: int, per_token: int, shared: int = 0, **routing
    ):
        super().__init__()
        raise NotImplementedError

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Raises ValueError naming x where it does not end in d_model features."""
        raise NotImplementedError


class Routing(NamedTuple):
    """Given: what one router did in one forward pass."""

    logits: Tensor      # (*batch, experts)
    weights: Tensor     # (*batch, per_token)
    ids: Tensor         # (*batch, per_token)


@contextmanager
def recorded(model: nn.Module) -> Iterator[list[Routing]]:
    """Given: inside `with recorded(model) as routings:` every router's work is put into the list.

    One Routing for each layer with experts and each forward pass, in the order of calls. Its logits
    carry gradients, so that a loss made of them trains the routers.
    """
    routings: list[Routing] = []

    def _keep(router: Router, args: tuple, kwargs: dict, result: tuple) -> None:
        routings.append(Routing(router.logits(*args, **kwargs), *result))

    hooks = [part.register_forward_hook(_keep, with_kwargs=True)
             for part in model.modules() if isinstance(part, Router)]
    try:
        yield routings
    finally:
        for hook in hooks:
            hook.remove()


def expert_load(
    ids: Int[Tensor, "*batch per_token"], experts: int, mask: Bool[Tensor, "..."] | None = None
) -> Int[Tensor, " experts"]:
    """How often each expert was chosen, as int64, experts that nobody chose included.

    mask: True where a token is real and False where it is padding, which does not count.
    Raises ValueError naming mask where it does not broadcast to batch.
    """
    raise NotImplementedError


def load_balancing_loss(
    logits: Float[Tensor, "*batch experts"], per_token: int, mask: Bool[Tensor, "..."] | None = None
) -> Float[Tensor, ""]:
    """Σ f_i · P_i · experts: small where a softmax router spreads the tokens evenly.

    f_i: the number of choices (per_token for each token, those of the largest logits) that fell on
    expert i, divided by the number of tokens. P_i: the mean over tokens of softmax(logits)_i.
    Counts have no gradient: it flows through P alone. If all are chosen alike, the loss is
    per_token. In at least float32. mask: False where a token is padding, which does not count.

    Raises ValueError naming per_token where it is not in 1 … experts, and mask where it does not
    broadcast to batch or leaves no token. Fedus et al., 2021 (Switch, arXiv 2101.03961), equations
    4 to 6; f summed over all choices and not divided by per_token, as transformers has it.
    """
    raise NotImplementedError


def router_z_loss(
    logits: Float[Tensor, "*batch experts"], mask: Bool[Tensor, "..."] | None = None
) -> Float[Tensor, ""]:
    """The mean over tokens of logsumexp(logits)²: it keeps a router's logits small.

    In at least float32. mask: False where a token is padding, which does not count.
    Raises ValueError naming mask where it does not broadcast to batch or leaves no token.
    Zoph et al., 2022 (ST-MoE, arXiv 2202.08906), equation 5.
    """
    raise NotImplementedError


def update_bias(
    router: Router,
    ids: Int[Tensor, "*batch per_token"],
    rate: float = 0.001,
    mask: Bool[Tensor, "..."] | None = None,
) -> None:
    """Balance without a loss: bias_i ← bias_i + rate · sign(mean load − load_i), in place.

    The load of an expert is how often ids holds it; the mean is over experts. Who is overloaded
    falls by rate, who is idle rises by rate, whoever has exactly the mean stays. Called once after
    every training step. mask: False where a token is padding, which does not count.

    Raises ValueError naming router where it has no bias, and mask where it does not broadcast to
    batch; the bias is then as it was. Wang et al., 2024 (arXiv 2408.15664).
    """
    raise NotImplementedError


def capacity_mask(
    ids: Int[Tensor, "*batch per_token"],
    experts: int,
    capacity: int,
    mask: Bool[Tensor, "..."] | None = None,
) -> Bool[Tensor, "*batch per_token"]:
    """Which choices find room, if each expert takes at most `capacity`; the others are dropped.

    Room is given in this order: the first choices of all tokens, then all second choices, and so
    on; within these in the tokens' order (the batch read row by row). Padding (mask False) takes no
    room and gets False.

    Raises ValueError naming capacity where it is below 1, and mask where it does not broadcast to
    batch. Lepikhin et al., 2020 (GShard, arXiv 2006.16668).
    """
    raise NotImplementedError


def _chosen_layers(count: int, layers: Iterable[int] | None) -> list[int]:
    """Given: which of `count` layers get experts, all where layers is None. Each once, checked."""
    chosen = list(range(count)) if layers is None else sorted(set(layers))
    _need(all(0 <= n < count for n in chosen), "layers", f"be in 0 … {count - 1}", chosen)
    return chosen


def with_experts(
    model: Transformer,
    experts: int,
    per_token: int,
    d_ff: int | None = None,
    shared: int = 0,
    layers: Iterable[int] | None = None,
    **routing,
) -> Transformer:
    """Put an MoE into a model's layers, in place of their feed-forwards. Returns the same model.

    d_ff: the width of each expert, whose weights are new and start as lesson 13 starts a SwiGLU:
    normal with σ = 0.02, and in pre-norm models `down` divided by √(2 · config.layers). Left out,
    each expert is a copy of its own of the feed-forward that the layer had: then the model's
    outputs are what they were (if weights are normalized and scale is 1), and training can let the
    experts drift apart ("upcycling", Komatsuzaki et al., 2022, arXiv 2212.05055). Routers are
    always new.
    layers: which layers, by number; None for all. routing: as Router takes it.
    The new parts are in the dtype, on the device and in the mode (training or not) of the old ones.

    Raises ValueError naming layers where one is not in the model or has experts already, shared
    where it is not 0 though d_ff is left out, and what MoE refuses; the model is then as it was.
    """
    raise NotImplementedError


def count_active(
    config: ModelConfig,
    experts: int,
    per_token: int,
    d_ff: int | None = None,
    shared: int = 0,
    layers: Iterable[int] | None = None,
) -> tuple[int, int]:
    """(active, total): the parameters that one token meets, and all of them.

    Of with_experts(Transformer(config), experts, per_token, d_ff, shared, layers), without making
    it. A token meets everything but the experts that it did not choose: the whole embedding counts,
    as count_parameters has it, and so does the router. Its bias is no parameter.

    Raises ValueError as with_experts does: naming experts, per_token, d_ff, shared or layers.
    """
    raise NotImplementedError


def convert_qwen3_moe(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A Qwen3-MoE's tensors, by Hugging Face's names, as a Transformer with experts has them.

    Qwen3's names; and in layers with experts mlp.gate, the router, and mlp.experts.N with
    gate_proj, up_proj and down_proj. Layers without experts have Qwen3's names alone. No tensor is
    copied. A name that is not Qwen3-MoE's is left as it is.
    """
    raise NotImplementedError


def convert_mixtral(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A Mixtral's tensors, by Hugging Face's names, as a Transformer with experts has them.

    Llama's names; and block_sparse_moe.gate, the router, and block_sparse_moe.experts.N with w1,
    the gate, w3, up, and w2, down. No tensor is copied. A name that is not Mixtral's is left as it
    is.
    """
    raise NotImplementedError


def moe_from_hf(config_json: dict) -> tuple[ModelConfig, dict]:
    """Given: the ModelConfig of Mixtral's or Qwen3-MoE's config.json, and with_experts' arguments.

    Raises ValueError naming model_type where it is neither, a key that is missing, and what
    config_from_hf refuses.
    """
    def _value(key: str, *others: str) -> object:
        found = [config_json[name] for name in (key, *others) if config_json.get(name) is not None]
        _need(bool(found), key, "be in config.json", None)
        return found[0]

    kind = config_json.get("model_type")
    _need(kind in ("mixtral", "qwen3_moe"), "model_type", "be 'mixtral' or 'qwen3_moe'", kind)
    head_dim = config_json.get("head_dim") or _value("hidden_size") // _value("num_attention_heads")
    if kind == "mixtral":   # but for its experts a Qwen3 without QK-norm: Llama's parts, a window
        window = config_json.get("sliding_window")
        known = {"rms_norm_eps": 1e-5, "rope_theta": 1e6}
        dense = {"model_type": "qwen3", "sliding_window": window,
                 "use_sliding_window": window is not None, "max_window_layers": 0}
        config = config_from_hf(known | config_json | dense | {"head_dim": head_dim})
        return replace(config, qk_norm=False), {
            "experts": _value("num_local_experts"), "per_token": _value("num_experts_per_tok"),
            "d_ff": _value("intermediate_size")}
    dense = {"model_type": "qwen3", "head_dim": head_dim, "max_window_layers": 0}
    config = config_from_hf(config_json | dense)
    step = config_json.get("decoder_sparse_step", 1)
    without = config_json.get("mlp_only_layers") or []
    return config, {
        "experts": _value("num_experts", "num_local_experts"),
        "per_token": _value("num_experts_per_tok"), "d_ff": _value("moe_intermediate_size"),
        "normalize": bool(config_json.get("norm_topk_prob", False)),
        "layers": [n for n in range(config.layers) if n not in without and (n + 1) % step == 0]}


def load_moe(
    path: str | Path, dtype: torch.dtype | None = None, device: torch.device | str | None = None
) -> Transformer:
    """Given: the model in a checkpoint folder of Mixtral or Qwen3-MoE, as load_pretrained's are.

    Raises ValueError naming the folder and all tensors that are missing, extra or misshapen.
    """
    folder = Path(path)
    config_json = read_json(folder / "config.json")
    try:
        config, moe = moe_from_hf(config_json)
        convert = convert_mixtral if config_json["model_type"] == "mixtral" else convert_qwen3_moe
        tensors = convert(read_tensors(folder))
        with Weightless():
            model = with_experts(Transformer(config), **moe)
        wanted = {name: tensor.shape for name, tensor in model.state_dict().items()}
        if config.tie_embeddings and "embedding.weight" in tensors:
            tensors.setdefault("unembedding.weight", tensors["embedding.weight"])
        if problems := tensor_problems(tensors, wanted):
            raise ValueError("tensors do not fit the config:\n  " + "\n  ".join(problems))
    except (TypeError, ValueError) as error:            # a TypeError: text where a number should be
        raise ValueError(f"{folder}: {error}") from error
    model.load_state_dict(
        {name: torch.empty(tensor.shape, dtype=dtype or tensor.dtype, device=device).copy_(tensor)
         for name, tensor in tensors.items()}, assign=True)
    if config.tie_embeddings:
        model.unembedding.tie(model.embedding)
    return model.to(device).eval()
