"""Linear attention: a state instead of a cache.

Without the softmax, attention is a sum of outer products kᵀ v. The sum is a matrix of one size, the
state, however long the text is: each token writes into it, and each query reads it. Everywhere q, k
and v are rows, and the state S has a row for each feature of k and a column for each of v.
"""

import copy
import math
from collections.abc import Iterator
from functools import reduce

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from given.init import STD
from given.sizes import at_least_one, mask_must_fit, widen

from .ex00_shapes import merge_heads, split_heads
from .ex03_linear import Linear
from .ex04_normalization import RMSNorm
from .ex08_feedforward import sigmoid, silu
from .ex10_grouped_query_attention import repeat_kv
from .ex11_kv_cache import KVCache
from .ex12_block import scaled_residual_init
from .ex13_transformer import Transformer

# What the rules below take and give: a number of batch axes, mostly batch and heads, then these.
Keys = Float[Tensor, "*batch seq head_dim"]         # queries, too
Values = Float[Tensor, "*batch seq value_dim"]
Gate = Float[Tensor, "*batch seq"]                  # a number for each token
State = Float[Tensor, "*batch head_dim value_dim"]


def begin(
    state: Tensor | None, q: Tensor, k: Tensor, v: Tensor, *gates: Tensor
) -> tuple[Tensor, ...]:
    """Given: (state, q, k, v, *gates), all in one dtype, that of the widest, at least float32.

    A gate, (*batch, seq) or (*batch, seq, features), comes back with features, 1 where it had none.
    A state that is None comes back as zeros, (*batch, head_dim, value_dim).
    """
    gates = [gate[..., None] if gate.ndim < k.ndim else gate for gate in gates]
    if state is None:
        state = k.new_zeros(*k.shape[:-2], k.shape[-1], v.shape[-1])
    tensors = (state, q, k, v, *gates)
    dtype = reduce(torch.promote_types, (x.dtype for x in tensors), torch.float32)
    return tuple(x.to(dtype) for x in tensors)


def pieces(size: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Given: tensors, (*batch, seq, features), cut along seq: of each the first `size` tokens, then
    of each the next, and so on. The last piece may be shorter. No tokens, no pieces.
    """
    for start in range(0, tensors[0].shape[-2], size):
        yield tuple(x[..., start : start + size, :] for x in tensors)


# -- linear attention, three ways

def linear_attention(
    q: Keys, k: Keys, v: Values, state: State | None = None
) -> tuple[Values, State]:
    """All at once: out = (q kᵀ, causally masked) v + q S, and the new state is S + kᵀ v.

    That is causal attention without softmax and without a scale: a query weighs every token up to
    its own by q · k. S, the state, is what earlier tokens left, zeros where it is None.

    Returns (out, state), out in the dtype of q. Computed in at least float32, and the state stays
    so. No tokens: no output, and the state as it came. It takes seq² numbers, as attention does.
    Katharopoulos et al., 2020 (arXiv 2006.16236).
    """
    raise NotImplementedError


def recurrent_linear_attention(
    q: Keys, k: Keys, v: Values, state: State | None = None
) -> tuple[Values, State]:
    """Token by token: each writes S ← S + kᵀ v, and then reads out = q S.

    Arguments and results as linear_attention's. One more token costs the same after ten tokens and
    after a million.
    """
    raise NotImplementedError


def chunk_linear_attention(
    q: Keys, k: Keys, v: Values, state: State | None = None, chunk: int = 64
) -> tuple[Values, State]:
    """Chunk by chunk: within a chunk all at once, and from chunk to chunk by the state.

    Arguments and results as linear_attention's. The last chunk may be shorter. No loop runs over
    tokens, and no tensor of seq × seq numbers is made: a chunk takes chunk².

    Raises ValueError naming chunk where it is below 1.
    """
    raise NotImplementedError


def decayed_linear_attention(
    q: Keys, k: Keys, v: Values, log_decay: Gate, state: State | None = None
) -> tuple[Values, State]:
    """Token by token with a memory that fades: S ← e^log_decay S + kᵀ v, then out = q S.

    log_decay: one number for each token and head, at most 0; with 0 nothing fades. The rest as in
    linear_attention. This is Mamba-2's recurrence, one line away: its C is q, its B is k, its
    Δ x is v, and its Δ A is log_decay. Dao and Gu, 2024 (arXiv 2405.21060).
    """
    raise NotImplementedError


# -- the delta rule

def delta_rule(
    q: Keys, k: Keys, v: Values, beta: Gate, state: State | None = None
) -> tuple[Values, State]:
    """Token by token: correct what the state says of k, S ← S + β kᵀ (v − k S), then out = q S.

    k S is what the state holds under the key k before the token writes. β, in 0 … 1, is how much
    of the error is mended: with a k of length 1 and β = 1, the state then says v, and whatever it
    said of k before is gone. It is one step of gradient descent on ½ |k S − v|², of size β.

    Arguments and results as linear_attention's, and beta: one number for each token and head.
    Schlag et al., 2021 (arXiv 2102.11174).
    """
    raise NotImplementedError


def chunk_delta_rule(
    q: Keys, k: Keys, v: Values, beta: Gate, state: State | None = None, chunk: int = 64
) -> tuple[Values, State]:
    """The delta rule chunk by chunk: what all tokens of a chunk write, u, is found at once.

    Token i writes k_iᵀ u_i with u_i = β_i (v_i − k_i (S + Σ_{j<i} k_jᵀ u_j)): what it writes
    depends on what the tokens before it wrote. Brought to one side, for a whole chunk,

    (I + A) u = β (v − k S), with A_ij = β_i (k_i · k_j) for j < i and 0 elsewhere; β multiplies rows.

    I + A is triangular, with ones on its diagonal; torch.linalg.solve_triangular finds u. With it,
    a chunk is linear attention with u for v: out = (q kᵀ, masked) u + q S, S ← S + kᵀ u. No loop
    runs over tokens, within a chunk neither.

    Arguments and results as delta_rule's. Raises ValueError naming chunk where it is below 1. Yang
    et al., 2024 (arXiv 2406.06484).
    """
    raise NotImplementedError


def gated_delta_rule(
    q: Keys, k: Keys, v: Values, beta: Gate, log_decay: Gate, state: State | None = None
) -> tuple[Values, State]:
    """Token by token: the state fades, S ← e^log_decay S, and then the delta rule corrects it.

    So the error is that of the faded state, and the token's own kᵀ v does not fade with it.

    Arguments and results as delta_rule's and decayed_linear_attention's. With log_decay = 0 it is
    the delta rule. Yang, Kautz and Hatamizadeh, 2024 (arXiv 2412.06464).
    """
    raise NotImplementedError


def kimi_delta_rule(
    q: Keys, k: Keys, v: Values, beta: Gate, log_decay: Keys, state: State | None = None
) -> tuple[Values, State]:
    """gated_delta_rule with a decay for each channel of the keys: row d of S fades by its own.

    S ← diag(e^log_decay) S, then the delta rule: Kimi Linear's recurrence, one line away. Moonshot
    AI, 2025 (arXiv 2510.26692).
    """
    raise NotImplementedError


def chunk_gated_delta_rule(
    q: Keys, k: Keys, v: Values, beta: Gate, log_decay: Gate, state: State | None = None, chunk: int = 64
) -> tuple[Values, State]:
    """The gated delta rule chunk by chunk: as chunk_delta_rule, with every term faded on its way.

    Decays multiply, so their logarithms add up: with c_i, the sum of a chunk's log_decay up to and
    with token i, what token j wrote has faded by e^(c_i − c_j) when token i reads it, and the
    state at the chunk's start by e^(c_i). So

    A_ij = β_i e^(c_i − c_j) (k_i · k_j), (I + A) u = β (v − e^c k S)
    out = (e^(c_i − c_j) q_i · k_j, masked) u + e^c q S
    S ← e^(c_n) S + Σ_j e^(c_n − c_j) k_jᵀ u_j, where n is the chunk's last token.

    No exponential is taken of a positive number: above the diagonal, e^(c_i − c_j) would overflow.

    Arguments and results as gated_delta_rule's, but log_decay is finite: c_i − c_j of two −∞ is no
    number. Raises ValueError naming chunk where it is below 1.
    """
    raise NotImplementedError


# -- the layer

def short_convolution(
    x: Float[Tensor, "batch seq channels"],
    weight: Float[Tensor, "channels width"],
    inputs: Float[Tensor, "batch before channels"] | None = None,
) -> tuple[Float[Tensor, "batch seq channels"], Float[Tensor, "batch before channels"]]:
    """Each channel by itself mixes a token with the width − 1 before it, and with none after it.

    y_t = Σ_w weight_w · x_(t − width + 1 + w): the last column of weight is for the token itself.
    inputs: the width − 1 tokens before x, (batch, width − 1, channels); zeros where None.

    Returns (y, inputs): y in the dtype of x, its sum taken in at least float32; and the last
    width − 1 tokens of all so far (none for a width of 1), in the dtype of x, to go on from. For no
    tokens, seq 0, y has none, and inputs are as they came.

    Raises ValueError naming inputs where they are not width − 1 tokens.

    To be written here: torch's conv1d and Conv1d are not used.
    """
    raise NotImplementedError


def l2_normalize(x: Float[Tensor, "*batch features"]) -> Float[Tensor, "*batch features"]:
    """x / √(Σ x² + 1e-6), the sum over the last axis: a vector of length 1, or of 0 if x is 0.

    Computed in at least float32 and returned in the dtype of x.

    To be written here: torch's normalize is not used.
    """
    raise NotImplementedError


class GatedRMSNorm(RMSNorm):
    """RMSNorm times a gate: y = RMSNorm(x) · silu(gate). The same arguments and weight as RMSNorm."""

    def forward(
        self, x: Float[Tensor, "*batch d_model"], gate: Float[Tensor, "*batch d_model"]
    ) -> Float[Tensor, "*batch d_model"]:
        """In the dtype of x; silu and its product are computed in at least float32."""
        raise NotImplementedError


class StateCache(KVCache):
    """What a linear layer keeps of all tokens so far: a state, and the convolution's last inputs.

    state: (batch, heads, head_dim, value_dim), zeros, in at least float32 whatever dtype is: it is
    a sum over all tokens, and in half precision new ones would be rounded away. inputs: (batch,
    conv_width − 1, channels), zeros, in dtype. length: how many tokens it has seen.

    It stands where a KVCache stands, and is one by its class, so that a Transformer takes it. It has
    no capacity: its size is the same after one token and after a million.

    Raises ValueError naming a size that is below 1.
    """

    def __init__(
        self,
        batch: int,
        heads: int,
        head_dim: int,
        value_dim: int,
        channels: int,
        conv_width: int,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ):
        raise NotImplementedError

    def update(
        self,
        state: Float[Tensor, "_ _ _ _"],
        inputs: Float[Tensor, "_ _ _"],
        n: int,
    ) -> None:
        """Keep what n more tokens have made of state and inputs, in place of what was kept.

        The old tensors are not written into: whoever has them, such as a copy, has them as they
        were. inputs are copied: a part of a longer tensor would keep all of it in memory.

        Raises ValueError, and leaves the cache as it was, naming n where it is below 0, and naming
        state or inputs where they differ from the old ones in shape or dtype, or would record
        gradients: they require grad while torch.is_grad_enabled().
        """
        raise NotImplementedError

    def rewind(self, n: int) -> None:
        """Refuse to drop tokens, unless n is 0: a sum does not tell what was added to it last.

        Raises ValueError naming n. Whoever may have to go back makes a copy first.
        """
        raise NotImplementedError

    def copy(self) -> "StateCache":
        """A cache that stays as this one is now: what comes to one does not come to the other."""
        raise NotImplementedError

    def reset(self) -> None:
        """Forget every token."""
        raise NotImplementedError


class GatedDeltaNet(nn.Module):
    """A layer in attention's place that keeps a state, as Qwen3-Next has it in three of four layers.

    q_proj, k_proj: Linear, d_model to heads · head_dim; v_proj, gate_proj: to value_heads ·
    value_dim; beta_proj, decay_proj: to value_heads; o_proj: value_heads · value_dim to d_model.
    None has a bias. conv: a parameter, (channels, conv_width), for q, k and v side by side. A_log,
    dt_bias: parameters, (value_heads,). norm: GatedRMSNorm(value_dim, norm_eps). The sizes heads,
    head_dim, value_heads, value_dim and chunk are kept under their names: make_cache reads them.

    value_heads: as many as heads where left out; value_heads / heads of them in a row share a q and
    a k. value_dim: head_dim where left out. chunk: of chunk_gated_delta_rule.

    At the start as in Mamba-2: e^A_log is uniform in 1 … 16, softplus(dt_bias) log-uniform in
    0.001 … 0.1 (dt_bias = log(e^y − 1) of such a y), so that some heads forget half within a token or
    two, and one in seventeen only after a hundred. conv is uniform within ±1/√conv_width.

    Raises ValueError naming a size that is below 1, and value_heads where heads does not divide
    them. Yang, Kautz and Hatamizadeh, 2024 (arXiv 2412.06464).
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        head_dim: int,
        value_heads: int | None = None,
        value_dim: int | None = None,
        conv_width: int = 4,
        norm_eps: float = 1e-6,
        chunk: int = 64,
    ):
        super().__init__()
        raise NotImplementedError

    def gates(
        self, x: Float[Tensor, "batch seq d_model"]
    ) -> tuple[Float[Tensor, "batch value_heads seq"], Float[Tensor, "batch value_heads seq"]]:
        """(beta, log_decay) of each token and head, both in at least float32.

        beta = sigmoid(beta_proj(x)): how much of the error is mended.
        log_decay = −e^A_log · softplus(decay_proj(x) + dt_bias): below 0, and so a decay below 1.
        """
        raise NotImplementedError

    def make_cache(
        self, batch: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> StateCache:
        """Given: an empty StateCache of this layer's sizes; where left out, in the dtype and on the
        device of its weights.
        """
        like = self.o_proj.weight
        return StateCache(batch, self.value_heads, self.head_dim, self.value_dim, *self.conv.shape,
                          like.dtype if dtype is None else dtype,
                          like.device if device is None else device)

    def forward(
        self,
        x: Float[Tensor, "batch seq d_model"],
        mask: Bool[Tensor, "..."] | None = None,
        positions: Int[Tensor, "..."] | None = None,
        cache: KVCache | None = None,
    ) -> Float[Tensor, "batch seq d_model"]:
        """x: only the new tokens, where there is a cache; it holds what the old ones left.

        1. q, k, v: the projections side by side, through short_convolution, then silu.
        2. q, k: in heads, each of length 1 by l2_normalize, in at least float32; q is divided by
           √head_dim.
        3. chunk_gated_delta_rule with gates(x), from the cache's state on.
        4. out is cast to the dtype of x; then norm(out, gate_proj(x)) for each head, the heads side
           by side, o_proj.

        mask: True = a token, False = padding, broadcastable to (batch, 1, 1, keys), where keys are
        all tokens so far, old and new: the last seq of them are x's. Padding is read as zeros, by
        every step, and does not touch the state: it writes nothing, and nothing fades. (To the
        convolution it is a token of zeros: padding belongs on the left.) positions are not used: the
        order is in the state. x may have no tokens. Without a cache nothing is old; without a mask
        nothing is padding.

        Raises ValueError, and leaves the cache as it was, naming mask where it does not fit (one
        that differs between queries or heads cannot: the state is one for all of them); naming
        cache where it is no StateCache of this layer's sizes and this batch; and what its update
        raises.
        """
        raise NotImplementedError

    def _cache_must_fit(self, cache: KVCache, batch: int) -> None:
        """Given: a ValueError that names cache, unless it is a StateCache for this layer and batch."""
        channels, width = self.conv.shape
        state, inputs = (batch, self.value_heads, self.head_dim, self.value_dim), (batch, width - 1, channels)
        if not isinstance(cache, StateCache):
            raise ValueError(f"cache must be a StateCache, got {type(cache).__name__}")
        if cache.state.shape != state:
            raise ValueError(f"cache must have a state of {state}, got {tuple(cache.state.shape)}")
        if cache.inputs.shape != inputs:
            raise ValueError(f"cache must have inputs of {inputs}, got {tuple(cache.inputs.shape)}")


# -- the model

def fit_caches(model: Transformer, caches: list, batch: int) -> list:
    """Put a StateCache into caches, in place, for every layer that is a GatedDeltaNet; return caches.

    Lesson 13's make_caches knows a config and not the model, and makes a KVCache for every layer.
    Those of attention layers stay, whatever they are, and so does a StateCache that a linear layer
    has already. A new one is what the layer's make_cache(batch) gives.

    Raises ValueError naming caches where they are not one per layer, or where one that has to go
    holds tokens already; caches are then as they were.
    """
    raise NotImplementedError


def _fit_given_caches(model: Transformer, args: tuple, kwargs: dict) -> None:
    """Given: a hook before a model's forward: fit_caches for the caches that it is called with."""
    named = dict(zip(("ids", "mask", "positions", "caches"), args)) | kwargs
    if named.get("caches") is not None:
        fit_caches(model, named["caches"], len(named["ids"]))


def with_linear_layers(model: Transformer, every: int = 4, **sizes) -> Transformer:
    """Put a GatedDeltaNet into a model's layers, but for every `every`-th one; return the model.

    With every = 4 layers 3, 7, 11 … (the first is 0) keep their attention, and three of four become
    linear, as in Qwen3-Next; with more than there are layers, all do; with 1, none.

    sizes: as GatedDeltaNet takes them. Left out, heads are the config's kv_heads, value_heads its
    heads, head_dim and norm_eps its own. The new weights start as GatedDeltaNet says, but for the
    Linears, which start as lesson 13's: normal with σ = 0.02, o_proj divided by √(2 ·
    config.layers). They are in the dtype, on the device and in the mode (training or not) of the
    attention that each replaces. From then on the model's forward calls fit_caches on the caches it
    is given, so that make_caches and generate work as before, with left-padded prompts, too.

    Raises ValueError naming every where it is below 1; naming model where it has linear layers
    already; naming norm_position where that is "post" (its blocks take another attention), and
    causal where it is False (a state knows the past alone); and what GatedDeltaNet refuses. The
    model is then as it was.
    """
    raise NotImplementedError
