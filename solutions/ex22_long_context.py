"""Long context: what a long text costs, and three answers.

Keep less for each position (latent attention), keep fewer positions (windows and sinks), read fewer
of those that are kept (sparse attention).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import torch
from einops import einsum, rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from given.init import STD
from given.sizes import at_least_one, cache_must_fit, mask_must_fit, widen

from .ex00_shapes import merge_heads, split_heads
from .ex03_linear import Linear
from .ex04_normalization import RMSNorm
from .ex05_softmax import softmax
from .ex07_rope import RoPE, interleaved_to_half
from .ex09_attention import causal_mask
from .ex10_grouped_query_attention import grouped_attention, repeat_kv, sliding_window_mask
from .ex11_kv_cache import CachedAttention, KVCache, RollingKVCache
from .ex12_block import scaled_residual_init
from .ex13_transformer import ModelConfig, Transformer, make_rope
from .ex16_pretrained import rename


def _need(right: object, name: str, rule: str, value: object) -> None:
    """Given: a ValueError that names an argument, unless it is right."""
    if not right:
        raise ValueError(f"{name} must {rule}, got {value!r}")


# -- what a text costs ---------------------------------------------------------------------

def cache_bytes(
    config: ModelConfig,
    seq_len: int,
    batch: int = 1,
    bytes_per_value: float = 2,
    latent: int | None = None,
) -> float:
    """How many bytes a model's caches take once a text of seq_len tokens is in them.

    Per layer and row: positions · numbers · bytes_per_value. positions: seq_len, or the layer's
    window where that is less. numbers: 2 · kv_heads · head_dim (keys and values: as many as heads
    in multi-head, one in multi-query attention); or `latent`, for a model with latent attention:
    kv_rank + rope_dim, whatever the number of heads.

    Raises ValueError naming seq_len, batch or latent where it is below 1, and bytes_per_value where
    it is not above 0.
    """
    # BEGIN SOLUTION
    at_least_one(seq_len=seq_len, batch=batch)
    _need(bytes_per_value > 0, "bytes_per_value", "be above 0", bytes_per_value)
    if latent is not None:
        at_least_one(latent=latent)
    numbers = 2 * config.kv_heads * config.head_dim if latent is None else latent
    windows = (config.window(layer) for layer in range(config.layers))
    positions = sum(min(seq_len, window or seq_len) for window in windows)
    return batch * positions * numbers * bytes_per_value
    # END SOLUTION


def layer_pattern(
    layers: int, pattern: Iterable[int | bool | None]
) -> tuple[int | bool | None, ...]:
    """What each of `layers` layers has, if a pattern goes on and on: ModelConfig.windows, mostly.

    (1024, 1024, 1024, 1024, 1024, None): five layers with a window, then one that sees all, as in
    Gemma 3. (128, None): gpt-oss. (True, True, True, False): which layers have RoPE in SmolLM3
    (see with_rope). The last round may be cut short.

    Raises ValueError naming layers where it is below 1, and pattern where it is empty or holds a
    number below 1 (True and False are kept as they are).
    """
    # BEGIN SOLUTION
    at_least_one(layers=layers)
    pattern = tuple(pattern)
    _need(len(pattern) > 0 and all(isinstance(p, bool) or p is None or p >= 1 for p in pattern),
          "pattern", "hold None, or numbers of at least 1", pattern)
    return tuple(pattern[layer % len(pattern)] for layer in range(layers))
    # END SOLUTION


# -- keep less for each position: latent attention ------------------------------------------

def _visible(attention: nn.Module, mask: Tensor | None, q: Tensor, k_len: int) -> Tensor | None:
    """Given: an attention's mask for queries q, (batch, heads, q, …), the last of k_len keys.

    Its own, causal or a window, ANDed with the one given, whose last columns count where it has
    more. Raises ValueError naming mask where that does not fit (batch, heads, q, k).
    """
    if mask is not None:
        mask = mask[..., -k_len:] if k_len else mask
        mask_must_fit(mask, (*q.shape[:-1], k_len))
    if not attention.causal:
        return mask
    own = (causal_mask(q.shape[-2], k_len, q.device) if attention.window is None
           else sliding_window_mask(q.shape[-2], k_len, attention.window, q.device))
    return own if mask is None else own & mask


class LatentCache:
    """What latent attention keeps of each position: a latent, and one turned key for all heads.

    latents: (batch, capacity, kv_rank). turned: (batch, capacity, rope_dim). Allocated once.
    length: how many positions are filled, always the first ones; capacity is an attribute, too.
    Used as lesson 11's KVCache.
    Without a dtype it is torch's default, float32.

    Raises ValueError naming a size that is below 1. DeepSeek-AI, 2024 (arXiv 2405.04434), section
    2.1.
    """

    def __init__(
        self,
        batch: int,
        capacity: int,
        kv_rank: int,
        rope_dim: int,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ):
        # BEGIN SOLUTION
        at_least_one(batch=batch, capacity=capacity, kv_rank=kv_rank, rope_dim=rope_dim)
        self.latents = torch.zeros(batch, capacity, kv_rank, dtype=dtype, device=device)
        self.turned = torch.zeros(batch, capacity, rope_dim, dtype=dtype, device=device)
        self.capacity, self.length = capacity, 0
        # END SOLUTION

    def update(
        self, latents: Float[Tensor, "_ q _"], turned: Float[Tensor, "_ _ _"]
    ) -> tuple[Float[Tensor, "batch k kv_rank"], Float[Tensor, "batch k rope_dim"]]:
        """Write q new positions behind the old ones, and return all length + q, old and new.

        What comes back are views of the storage.

        Raises ValueError, and leaves the cache as it was, where latents or turned does not fit
        (see `_must_fit_rows`), or else names capacity where there is no room for q more.
        """
        # BEGIN SOLUTION
        _must_fit_rows(self.latents, latents, "latents", latents.shape[1])
        _must_fit_rows(self.turned, turned, "turned", latents.shape[1])
        end = self.length + latents.shape[1]
        if end > self.capacity:
            raise ValueError(f"capacity is {self.capacity}, got position {end - 1}")
        self.latents[:, self.length:end] = latents
        self.turned[:, self.length:end] = turned
        self.length = end
        return self.latents[:, :end], self.turned[:, :end]
        # END SOLUTION

    def rewind(self, n: int) -> None:
        """Given: drop the last n positions; the next update writes over them.

        Raises ValueError naming n where it is below 0 or above length.
        """
        _need(0 <= n <= self.length, "n", f"be in 0 … {self.length}, the cache's length", n)
        self.length -= n

    def reset(self) -> None:
        """Given: forget every position. The storage stays."""
        self.length = 0


def _must_fit_rows(storage: Tensor, x: Tensor, name: str, rows: int) -> None:
    """Given: a ValueError that names x if it cannot be written into storage, (batch, length, size).

    As lesson 11's cache_must_fit: of the storage's batch, size and dtype, and without gradients.
    """
    wanted = (len(storage), rows, storage.shape[2])
    _need(x.shape == wanted, name, f"have the shape {wanted}", tuple(x.shape))
    _need(x.dtype == storage.dtype, name, f"be {storage.dtype} as the cache is", x.dtype)
    _need(not (torch.is_grad_enabled() and x.requires_grad), name,
          "not require grad (call the model under torch.no_grad())", True)


def _kept(cache: LatentCache | KVCache, latents: Tensor, turned: Tensor) -> tuple[Tensor, Tensor]:
    """Given: the latents and turned keys of all positions so far, the new ones written behind.

    A KVCache keeps two rows of equal size for each position. One of a single head, such as
    make_caches makes for a model of with_latent_attention, keeps the two halves of both together.
    """
    if isinstance(cache, LatentCache):
        return cache.update(latents, turned)
    _need(isinstance(cache, KVCache), "cache", "be a LatentCache or a KVCache", type(cache))
    rows = torch.cat([latents, turned], dim=-1)
    room = 2 * cache.keys.shape[-1] - rows.shape[-1]
    _need(room >= 0 and cache.keys.shape[1] == 1, "cache",
          f"have one head and room for {rows.shape[-1]} numbers", tuple(cache.keys.shape))
    halves = F.pad(rows, (0, room))[:, None].chunk(2, dim=-1)
    rows = torch.cat(cache.update(*halves), dim=-1)[:, 0]
    return rows[..., :latents.shape[-1]], rows[..., latents.shape[-1]:rows.shape[-1] - room]


class MultiHeadLatentAttention(nn.Module):
    """Attention whose keys and values are all made from one short latent for each token.

        c = kv_norm(x W↓ᵀ)          the latent: kv_rank numbers of each token
        k = [c W_Kᵀ, turned key]    of each head: nope_dim + rope_dim numbers
        v = c W_Vᵀ                  of each head: value_dim numbers
        q = [plain, turned]         of each head: nope_dim + rope_dim numbers

    RoPE turns (rotates) rope_dim features of every query head, and one key of rope_dim features,
    which all heads share. The rest of queries and keys knows no position ("nope"). Scores are divided by
    √(nope_dim + rope_dim). Only c and the turned key are cached.

    q_down, q_norm, q_up: d_model to q_rank, an RMSNorm, and up to all heads' q; with q_rank=None
    one Linear, q_proj. kv_down: to kv_rank + rope_dim, the latent first, then the key to be turned.
    kv_norm: RMSNorm(kv_rank). kv_up: up to [c W_Kᵀ, c W_Vᵀ] of each head, head after head:
    with nope_dim 2 and value_dim 4, its weight's rows 0 and 1 are W_K of head 0, rows 2 to 5 W_V of
    head 0, rows 6 and 7 W_K of head 1. o_proj: heads · value_dim to d_model. No biases.
    rope: a RoPE for rope_dim, or None. score_scale: multiplies the queries (DeepSeek-V3 with YaRN:
    the square of its attention scale), at each call; an attribute. norm_eps: of both norms.
    causal, and window, which is None (all is seen), are attributes: the given _visible reads them.
    absorb: an attribute that may be changed at any time: which road forward takes, `expanded` or
    `absorbed`. Both give the same numbers.

    Raises ValueError naming a size that is below 1, or rope where it is for another size.
    DeepSeek-AI, 2024 (DeepSeek-V2, arXiv 2405.04434), section 2.1.

    To be written here: torch's scaled_dot_product_attention and MultiheadAttention are not used.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        kv_rank: int,
        nope_dim: int,
        rope_dim: int,
        value_dim: int,
        q_rank: int | None = None,
        rope: RoPE | None = None,
        norm_eps: float = 1e-6,
        score_scale: float = 1.0,
        absorb: bool = False,
        causal: bool = True,
    ):
        super().__init__()
        # BEGIN SOLUTION
        at_least_one(d_model=d_model, heads=heads, kv_rank=kv_rank, nope_dim=nope_dim,
                     rope_dim=rope_dim, value_dim=value_dim)
        if rope is not None:
            _need(rope.head_dim == rope_dim, "rope", f"be for rope_dim = {rope_dim}", rope.head_dim)
        self.heads, self.kv_rank, self.rope = heads, kv_rank, rope
        self.nope_dim, self.rope_dim, self.value_dim = nope_dim, rope_dim, value_dim
        self.score_scale, self.absorb, self.causal, self.window = score_scale, absorb, causal, None
        if q_rank is None:
            self.q_proj = Linear(d_model, heads * (nope_dim + rope_dim))
        else:
            at_least_one(q_rank=q_rank)
            self.q_down = Linear(d_model, q_rank)
            self.q_norm = RMSNorm(q_rank, norm_eps)
            self.q_up = Linear(q_rank, heads * (nope_dim + rope_dim))
        self.q_rank = q_rank
        self.kv_down = Linear(d_model, kv_rank + rope_dim)
        self.kv_norm = RMSNorm(kv_rank, norm_eps)
        self.kv_up = Linear(kv_rank, heads * (nope_dim + value_dim))
        self.o_proj = Linear(heads * value_dim, d_model)
        # END SOLUTION

    def queries(
        self,
        x: Float[Tensor, "batch seq d_model"],
        positions: Int[Tensor, "batch seq"] | Int[Tensor, " seq"] | None = None,
    ) -> tuple[
        Float[Tensor, "batch heads seq nope_dim"], Float[Tensor, "batch heads seq rope_dim"]
    ]:
        """x to (q_nope, q_rope): each head's plain part, and the part that RoPE has turned.

        positions: where the tokens stand, for all rows or for each; 0 … seq − 1 where left out. Those
        of each row need an axis for the heads, before RoPE takes them.
        """
        # BEGIN SOLUTION
        q = self.q_proj(x) if self.q_rank is None else self.q_up(self.q_norm(self.q_down(x)))
        q = split_heads(q * self.score_scale, self.heads)
        q_nope, q_rope = q.split([self.nope_dim, self.rope_dim], dim=-1)
        if self.rope is not None:
            if positions is not None:
                positions = positions.unsqueeze(-2)         # the same for every head
            q_rope = self.rope(q_rope, positions)
        return q_nope, q_rope
        # END SOLUTION

    def compress(
        self,
        x: Float[Tensor, "batch seq d_model"],
        positions: Int[Tensor, "batch seq"] | Int[Tensor, " seq"] | None = None,
    ) -> tuple[Float[Tensor, "batch seq kv_rank"], Float[Tensor, "batch seq rope_dim"]]:
        """x to (latents, turned): all that a cache has to keep of each token.

        The latent is normed and never turned; the one turned key is turned and never normed.
        """
        # BEGIN SOLUTION
        latents, turned = self.kv_down(x).split([self.kv_rank, self.rope_dim], dim=-1)
        if self.rope is not None:
            turned = self.rope(turned, positions)
        return self.kv_norm(latents), turned
        # END SOLUTION

    def expanded(
        self,
        q_nope: Float[Tensor, "batch heads q nope_dim"],
        q_rope: Float[Tensor, "batch heads q rope_dim"],
        latents: Float[Tensor, "batch k kv_rank"],
        turned: Float[Tensor, "batch k rope_dim"],
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch heads q value_dim"]:
        """The road of training: make the keys and values of all heads, then attend as ever.

        k = [c W_Kᵀ, turned], v = c W_Vᵀ. mask: True = may look, broadcastable to (batch, heads, q,
        k).
        """
        # BEGIN SOLUTION
        up = split_heads(self.kv_up(latents), self.heads)
        k_nope, v = up.split([self.nope_dim, self.value_dim], dim=-1)
        k_rope = turned[:, None].expand(-1, self.heads, -1, -1)     # one for all heads
        q, k = torch.cat([q_nope, q_rope], dim=-1), torch.cat([k_nope, k_rope], dim=-1)
        return grouped_attention(q, k, v, mask)
        # END SOLUTION

    def absorbed(
        self,
        q_nope: Float[Tensor, "batch heads q nope_dim"],
        q_rope: Float[Tensor, "batch heads q rope_dim"],
        latents: Float[Tensor, "batch k kv_rank"],
        turned: Float[Tensor, "batch k rope_dim"],
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch heads q value_dim"]:
        """The road of decoding: no key and no value of any head is ever made.

        q (c W_Kᵀ)ᵀ = (q W_K) cᵀ: each query is brought to the latents' size by q W_K, once, and then
        multiplied with the latents. Σ w (c W_Vᵀ) = (Σ w c) W_Vᵀ: latents are mixed, and the mix is
        brought to a value's size, once.

        Scores, softmax and the mix are computed in at least float32, the products with W_K and W_V
        in the dtype of q. A query that may look nowhere gives zeros.
        """
        # BEGIN SOLUTION
        up = rearrange(self.kv_up.weight, "(heads size) rank -> heads size rank", heads=self.heads)
        w_k, w_v = up.split([self.nope_dim, self.value_dim], dim=1)
        asked = einsum(q_nope, w_k, "b heads q size, heads size rank -> b heads q rank")
        c = widen(latents)
        scores = (einsum(widen(asked), c, "b heads q rank, b k rank -> b heads q k")
                  + einsum(widen(q_rope), widen(turned), "b heads q d, b k d -> b heads q k"))
        scores = scores / (self.nope_dim + self.rope_dim) ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        mix = einsum(softmax(scores), c, "b heads q k, b k rank -> b heads q rank").to(q_nope.dtype)
        return einsum(mix, w_v, "b heads q rank, heads size rank -> b heads q size")
        # END SOLUTION

    def forward(
        self,
        x: Float[Tensor, "batch seq d_model"],
        mask: Bool[Tensor, "..."] | None = None,
        positions: Int[Tensor, "batch seq"] | Int[Tensor, " seq"] | None = None,
        cache: LatentCache | KVCache | None = None,
    ) -> Float[Tensor, "batch seq d_model"]:
        """x: the new tokens. Their latents and turned keys join the cache, if there is one.

        mask, positions and cache as in lesson 11's CachedAttention: left-padded rows, prompts and
        chunks of any size give what one forward pass over everything gives. cache: a LatentCache;
        or a KVCache of make_caches, for a model of with_latent_attention.

        Raises ValueError and leaves the cache as it was: naming mask where it does not fit, causal
        where the layer is not causal and has a cache, and what the cache refuses.
        """
        # BEGIN SOLUTION
        start = 0 if cache is None else cache.length
        _need(cache is None or self.causal, "causal", "be True with a cache", self.causal)
        if mask is not None:
            mask_must_fit(mask, (len(x), self.heads, x.shape[1], start + x.shape[1]))
        if positions is None:
            positions = torch.arange(start, start + x.shape[1], device=x.device)
        q_nope, q_rope = self.queries(x, positions)
        latents, turned = self.compress(x, positions)
        if cache is not None:
            latents, turned = _kept(cache, latents, turned)
        mask = _visible(self, mask, q_nope, latents.shape[1])
        road = self.absorbed if self.absorb else self.expanded
        return self.o_proj(merge_heads(road(q_nope, q_rope, latents, turned, mask)))
        # END SOLUTION


def convert_deepseek(
    state: Mapping[str, Tensor], heads: int, rope_dim: int
) -> dict[str, Tensor]:
    """DeepSeek-V2's and V3's attention, by Hugging Face's names, as our latent attention has it.

    q_a_proj, q_a_layernorm, q_b_proj: q_down, q_norm, q_up. kv_a_proj_with_mqa, kv_a_layernorm,
    kv_b_proj: kv_down, kv_norm, kv_up. Names may have any prefix; others are left as they are.
    DeepSeek turns neighbours, 2i and 2i + 1, and this RoPE features i and i + rope_dim/2: so the
    rows of the turned features, of weights and biases, are reordered by lesson 07's
    interleaved_to_half. These are the last rope_dim rows of every head of q_up or q_proj, and the
    last rope_dim of kv_down.

    Raises ValueError naming heads where it is below 1 or does not divide the rows of q_up or q_proj,
    or rope_dim where it is odd, below 2, or above a head's rows.
    """
    # BEGIN SOLUTION
    state = rename(state, {
        "q_a_proj": "q_down", "q_a_layernorm": "q_norm", "q_b_proj": "q_up",
        "kv_a_proj_with_mqa": "kv_down", "kv_a_layernorm": "kv_norm", "kv_b_proj": "kv_up"})
    parts = {"q_up": heads, "q_proj": heads, "kv_down": 1}
    for name, tensor in state.items():
        part = (name.split(".")[:-1] or [""])[-1]
        if part in parts:
            state[name] = _last_to_half(tensor, parts[part], rope_dim)
    return state
    # END SOLUTION


# BEGIN SOLUTION
def _last_to_half(weight: Tensor, heads: int, rope_dim: int) -> Tensor:
    """interleaved_to_half for the last rope_dim rows of every head alone."""
    _need(heads >= 1 and len(weight) % heads == 0, "heads", f"divide {len(weight)} rows", heads)
    size = len(weight) // heads
    _need(0 < rope_dim <= size and rope_dim % 2 == 0, "rope_dim", f"be even, ≤ {size}", rope_dim)
    rows = rearrange(weight, "(heads size) ... -> heads size ...", heads=heads)
    turned = interleaved_to_half(rows[:, size - rope_dim:].flatten(0, 1), heads)
    turned = rearrange(turned, "(heads size) ... -> heads size ...", heads=heads)
    return torch.cat([rows[:, :size - rope_dim], turned], dim=1).flatten(0, 1)
# END SOLUTION


def with_attention(model: Transformer, make: Callable[[nn.Module], nn.Module]) -> Transformer:
    """Given: every block's attention becomes make(attention), in its dtype, device and mode.

    Nothing is changed where make raises. Raises ValueError naming model where its blocks are
    post-norm, whose attention takes no cache. Returns the same model.
    """
    _need(model.config.norm_position == "pre", "model", "have pre-norm blocks", "post")
    new = []
    for block in model.blocks:
        old, like = block.attention, next(block.attention.parameters())
        new.append(make(old).to(like.device, like.dtype).train(old.training))
    for block, attention in zip(model.blocks, new):
        block.attention = attention
    return model


def with_latent_attention(
    model: Transformer,
    kv_rank: int,
    nope_dim: int,
    rope_dim: int,
    value_dim: int,
    q_rank: int | None = None,
    **options,
) -> Transformer:
    """Given: put new latent attention into every layer of a model. Returns the same model.

    The weights start as lesson 13's: normal with σ = 0.02, o_proj's divided by √(2 · layers).
    RoPE is the config's, for rope_dim. options: as MultiHeadLatentAttention takes them.

    model.config then says kv_heads = 1, and a head_dim of (kv_rank + rope_dim) / 2, rounded up to
    an even number: a KVCache keeps two such rows for each position, and _kept lays a latent and its
    turned key into them. So make_caches and generate go on working, and count the right memory.
    count_parameters and flops_per_token do not know latent attention.

    Raises ValueError naming model where it has post-norm blocks, windows, or is not causal, and
    what MultiHeadLatentAttention refuses; the model is then as it was.
    """
    config = model.config
    _need(config.causal and config.windows is None, "model", "be causal and without windows",
          (config.causal, config.windows))
    at_least_one(rope_dim=rope_dim)
    rope = make_rope(replace(config, head_dim=rope_dim))

    def _make(old: nn.Module) -> nn.Module:
        new = MultiHeadLatentAttention(config.d_model, config.heads, kv_rank, nope_dim, rope_dim,
                                       value_dim, q_rank, rope, **options)
        for part in new.modules():
            if isinstance(part, Linear):
                nn.init.normal_(part.weight, std=STD)
        scaled_residual_init(new, config.layers)
        return new

    with_attention(model, _make)
    model.config = replace(config, kv_heads=1, head_dim=2 * ((kv_rank + rope_dim + 3) // 4))
    return model


# -- keep fewer positions: windows and sinks ------------------------------------------------

def attention_with_sinks(
    q: Float[Tensor, "*batch heads q head_dim"],
    k: Float[Tensor, "*batch kv_heads k head_dim"],
    v: Float[Tensor, "*batch kv_heads k value_dim"],
    sinks: Float[Tensor, " heads"],
    mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "*batch heads q value_dim"]:
    """Attention with one more place for its weight to go: a learned score of each head.

    weight of key j = e^(s_j) / (e^(sink) + Σ e^(s_i)), with s = q kᵀ / √head_dim. The sink has no
    value: what goes there is lost, so the weights of the keys sum to less than 1. A sink of −∞
    changes nothing; a query that may look nowhere gives zeros.

    heads / kv_heads query heads in a row share k and v. mask: True = may look, broadcastable to
    (batch, heads, q, k). Computed in at least float32, whatever the dtype of the sinks; returned in
    the dtype of q.

    Raises ValueError naming kv_heads where it does not divide heads, and mask where it does not
    fit. OpenAI, 2025 (gpt-oss, arXiv 2508.10925).

    To be written here: torch's scaled_dot_product_attention and MultiheadAttention are not used.
    """
    # BEGIN SOLUTION
    heads, kv_heads = q.shape[-3], k.shape[-3]
    _need(heads % kv_heads == 0, "kv_heads", f"divide heads = {heads}", kv_heads)
    k, v = (widen(repeat_kv(x, heads // kv_heads)) for x in (k, v))
    scores = widen(q) @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        mask_must_fit(mask, scores.shape)
        scores = scores.masked_fill(~mask, -torch.inf)
    column = sinks[:, None, None].expand(*scores.shape[:-1], 1).to(scores.dtype)
    weights = softmax(torch.cat([scores, column], dim=-1))[..., :-1]
    return (weights @ v).to(q.dtype)
    # END SOLUTION


class SinkAttention(CachedAttention):
    """gpt-oss's attention: lesson 11's, with a learned sink for each head.

    The same arguments, cache and masks. sinks: one more parameter, (heads,), zeros at the start.
    """

    def __init__(self, d_model: int, heads: int, kv_heads: int, *sizes, **options):
        super().__init__(d_model, heads, kv_heads, *sizes, **options)
        # BEGIN SOLUTION
        self.sinks = nn.Parameter(torch.zeros(heads))
        # END SOLUTION

    def attend(
        self,
        q: Float[Tensor, "batch heads q head_dim"],
        k: Float[Tensor, "batch kv_heads k head_dim"],
        v: Float[Tensor, "batch kv_heads k head_dim"],
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch q d_model"]:
        """The parent's attend, with sinks: the given _visible makes the mask that it makes."""
        # BEGIN SOLUTION
        out = attention_with_sinks(q, k, v, self.sinks, _visible(self, mask, q, k.shape[2]))
        return self.o_proj(merge_heads(out))
        # END SOLUTION


# BEGIN SOLUTION
def _slots(positions: Tensor, sinks: int, window: int) -> Tensor:
    """Where a SinkCache keeps these positions of the text."""
    return torch.where(positions < sinks, positions, sinks + (positions - sinks) % window)
# END SOLUTION


class SinkCache(RollingKVCache):
    """The first `sinks` positions of a text and its last `window` ones; all between is dropped.

    keys and values: (batch, kv_heads, sinks + window, head_dim) each. The first `sinks` slots keep
    positions 0 … sinks − 1 for good; the rest is a ring, in which position p lies in slot sinks +
    (p − sinks) mod window. sinks, window and length are attributes. length: how many positions
    were ever seen. RollingKVCache's own __init__, which makes another storage, is not called.

    Keys are kept as they are *before* RoPE. A model that has learned distances up to n can then be
    shown the cache as a text of its own, whose tokens stand at 0, 1, 2 …, however far the real text
    has come; keys that are turned already would have to be turned back first.

    It stands where a RollingKVCache stands, and is one by its class, so that a Transformer takes it.

    Raises ValueError naming sinks where it is below 0, or another size below 1. Xiao et al., 2023
    (StreamingLLM, arXiv 2309.17453), section 3.2.
    """

    def __init__(
        self,
        batch: int,
        kv_heads: int,
        sinks: int,
        window: int,
        head_dim: int,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ):
        # BEGIN SOLUTION
        at_least_one(batch=batch, kv_heads=kv_heads, window=window, head_dim=head_dim)
        _need(sinks >= 0, "sinks", "be at least 0", sinks)
        shape = (batch, kv_heads, sinks + window, head_dim)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        self.sinks, self.window, self.length = sinks, window, 0
        # END SOLUTION

    def update(
        self, k: Float[Tensor, "_ _ q _"], v: Float[Tensor, "_ _ _ _"]
    ) -> tuple[
        Float[Tensor, "batch kv_heads k head_dim"], Float[Tensor, "batch kv_heads k head_dim"]
    ]:
        """Take in q new positions, and return what their queries may see, oldest first.

        These are the sinks, the last window − 1 positions before the new ones that are no sinks,
        and all q new ones, also where q is above window (fewer while the cache is young). What comes
        back is no view of the storage.

        Raises ValueError, and leaves the cache as it was, where k or v does not fit (see
        `cache_must_fit`).
        """
        # BEGIN SOLUTION
        cache_must_fit(self.keys, k, v)
        start, end = self.length, self.length + k.shape[2]
        first = torch.arange(min(self.sinks, start), device=k.device)
        recent = torch.arange(max(self.sinks, start - self.window + 1), max(self.sinks, start),
                              device=k.device)
        new = torch.arange(start, end, device=k.device)
        new = new[(new < self.sinks) | (new >= end - self.window)]
        seen, kept = (_slots(positions, self.sinks, self.window)
                      for positions in (torch.cat([first, recent]), new))
        answer = []
        for storage, x in ((self.keys, k), (self.values, v)):
            answer.append(torch.cat([storage[:, :, seen], x], dim=2))
            storage[:, :, kept] = x[:, :, new - start]
        self.length = end
        return tuple(answer)
        # END SOLUTION

    def reset(self) -> None:
        """Forget every position. The storage stays."""
        # BEGIN SOLUTION
        self.length = 0
        # END SOLUTION


def streaming_attention(
    q: Float[Tensor, "batch heads q head_dim"],
    k: Float[Tensor, "batch kv_heads k head_dim"],
    v: Float[Tensor, "batch kv_heads k head_dim"],
    rope: RoPE,
    sinks: int,
    window: int,
) -> Float[Tensor, "batch heads q head_dim"]:
    """Each query sees the first `sinks` keys and the last `window` ones, of those up to its own.

    No query sees a key that comes after it, be it a sink or not. q and k are not turned yet; the
    queries stand at the last q of the k positions. Places are counted in the cache: a key's place is
    its index in k. A query has two places. For the window's keys it stands at its own index i, so
    that they are 0 … window − 1 away, as in the text. For the sinks it stands at min(i, sinks +
    window − 1), the last place of a full cache, and sink j at place j. window counts the token itself.

    So a chunk gives what its tokens give one by one, when all between is dropped before each.
    Scores are divided by √head_dim. heads / kv_heads query heads in a row share k and v. Computed in
    at least float32 after RoPE, returned in the dtype of q.

    Raises what rope raises where k is longer than its tables.

    To be written here: torch's scaled_dot_product_attention and MultiheadAttention are not used.
    """
    # BEGIN SOLUTION
    q_len, k_len, groups = q.shape[2], k.shape[2], q.shape[1] // k.shape[1]
    places = torch.arange(k_len, device=q.device)
    mine = places[k_len - q_len:]
    keys = widen(repeat_kv(rope(k, places), groups))
    near = widen(rope(q, mine)) @ keys.mT
    far = widen(rope(q, mine.clamp(max=sinks + window - 1))) @ keys.mT
    is_sink = places < sinks
    scores = torch.where(is_sink, far, near) / q.shape[-1] ** 0.5
    mask = causal_mask(q_len, k_len, q.device) & is_sink
    mask = mask | sliding_window_mask(q_len, k_len, window, q.device)
    weights = softmax(scores.masked_fill(~mask, -torch.inf))
    return (weights @ widen(repeat_kv(v, groups))).to(q.dtype)
    # END SOLUTION


class StreamingAttention(CachedAttention):
    """Given: attention over sinks and a window, for a text of any length (StreamingLLM).

    The parameters of its parent. sinks, window: what streaming_attention sees. rope: needed; its
    tables must hold sinks + window positions, and nothing else of the text's length matters.

    Raises ValueError naming sinks where it is below 0, rope where there is none, window where it is
    below 1 or the tables are too short for both, and what the parent refuses.
    """

    def __init__(self, d_model: int, heads: int, kv_heads: int, *sizes, sinks: int, window: int,
                 rope: RoPE | None, **options):
        super().__init__(d_model, heads, kv_heads, *sizes, rope=rope, window=window, **options)
        _need(sinks >= 0, "sinks", "be at least 0", sinks)
        _need(rope is not None, "rope", "be a RoPE", rope)
        _need(sinks + window <= rope.max_seq_len, "window",
              f"leave room for sinks in {rope.max_seq_len} positions", window)
        self.sinks = sinks
        self.rope, self.turn = None, rope       # so that project leaves q and k as they are

    def forward(
        self,
        x: Float[Tensor, "batch seq d_model"],
        mask: Bool[Tensor, "..."] | None = None,
        positions: Int[Tensor, "batch seq"] | Int[Tensor, " seq"] | None = None,
        cache: SinkCache | KVCache | None = None,
    ) -> Float[Tensor, "batch seq d_model"]:
        """x: the new tokens, of any number. Token by token, in chunks or at once: the same numbers.

        x is taken in pieces, so that the keys seen by one piece, sinks + window − 1 and its own,
        fit into RoPE's tables. cache: a SinkCache of these sinks and this window, or a KVCache,
        whose keys are then not turned either and of which only what is seen is read; None: one for
        this call. positions are not looked at: places are counted in the cache.
        Rows must be of one length (a padded row would have padding for sinks).

        For inference alone: a cache takes nothing that records gradients. Raises ValueError naming
        mask where one is given, cache where it is of other sinks or another window or rolls without
        sinks, and what the cache refuses.
        """
        _need(mask is None, "mask", "be None: rows are of one length", mask)
        if cache is None:
            cache = SinkCache(len(x), self.kv_heads, self.sinks, self.window, self.head_dim,
                              x.dtype, x.device)
        if isinstance(cache, SinkCache):
            sizes = cache.sinks, cache.window
            _need(sizes == (self.sinks, self.window), "cache",
                  f"be of {self.sinks} sinks and a window of {self.window}", sizes)
        else:
            _need(not isinstance(cache, RollingKVCache), "cache", "keep sinks", type(cache))
        out = []
        for piece in x.split(self.turn.max_seq_len - self.sinks - self.window + 1, dim=1):
            q, k, v = self.project(piece)
            seen = self.window - 1 + piece.shape[1]
            k, v = (torch.cat([x[:, :, :self.sinks], x[:, :, self.sinks:][:, :, -seen:]], dim=2)
                    for x in cache.update(k, v))
            out.append(streaming_attention(q, k, v, self.turn, self.sinks, self.window))
        return self.o_proj(merge_heads(torch.cat(out, dim=2)))


def with_streaming(model: Transformer, sinks: int, window: int) -> Transformer:
    """Given: let a model go on for ever, seeing the first `sinks` tokens and the last `window`.

    Each attention becomes a StreamingAttention of the same weights (not copied). Returns the same
    model. model.config then says windows of None and a max_seq_len of 2⁶², so that generate goes on
    past the trained length; its caches keep all, make_sink_caches' keep sinks + window positions.

    Raises ValueError naming model where it has post-norm blocks, no RoPE, or windows of its own,
    and what StreamingAttention refuses; the model is then as it was.
    """
    config = model.config
    _need(config.positions == "rope" and config.causal and config.windows is None, "model",
          "be causal, have RoPE and no windows", (config.causal, config.positions, config.windows))

    def _make(old: CachedAttention) -> CachedAttention:
        new = StreamingAttention(config.d_model, old.heads, old.kv_heads, old.head_dim, sinks=sinks,
                                 window=window, rope=old.rope)
        for name in ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm"):
            setattr(new, name, getattr(old, name))
        return new

    with_attention(model, _make)
    model.config = replace(config, max_seq_len=2**62)
    return model


def make_sink_caches(
    model: Transformer,
    batch: int,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> list[SinkCache]:
    """Given: an empty SinkCache for each layer of a model of with_streaming."""
    return [SinkCache(batch, part.kv_heads, part.sinks, part.window, part.head_dim, dtype, device)
            for part in (block.attention for block in model.blocks)]


def with_rope(model: Transformer, turned: Iterable[bool]) -> Transformer:
    """Given: take RoPE out of the layers where `turned` is False. Returns the same model.

    A causal layer without positions still knows what came before; it can look at any distance
    alike ("NoPE", Kazemnejad et al., 2023, arXiv 2305.19466; every fourth layer of SmolLM3).

    Raises ValueError naming turned where it is not one per layer, or True where a layer has no
    RoPE; the model is then as it was.
    """
    turned = tuple(turned)
    attentions = [block.attention for block in model.blocks]
    _need(len(turned) == len(attentions), "turned", f"hold {len(attentions)} values", turned)
    _need(all(part.rope is not None for part, turn in zip(attentions, turned) if turn), "turned",
          "be False where a layer has no RoPE", turned)
    for part, turn in zip(attentions, turned):
        part.rope = part.rope if turn else None
    return model


# -- read fewer of those that are kept: sparse attention ------------------------------------

def index_scores(
    q: Float[Tensor, "*batch index_heads q index_dim"],
    k: Float[Tensor, "*batch k index_dim"],
    weights: Float[Tensor, "*batch q index_heads"],
) -> Float[Tensor, "*batch q k"]:
    """How much each query wants to read each key, said cheaply: DeepSeek-V3.2's indexer.

    I[t, s] = Σ over heads j of weights[t, j] · ReLU(q[j, t] · k[s])

    A few small heads, and one key for all of them. No softmax: only the order of a query's scores
    matters. Computed in at least float32, and returned so. DeepSeek-AI, 2025 (arXiv 2512.02556), section 2.1.
    """
    # BEGIN SOLUTION
    products = einsum(widen(q), widen(k), "... heads q d, ... k d -> ... heads q k")
    return einsum(products.relu(), widen(weights), "... heads q k, ... q heads -> ... q k")
    # END SOLUTION


def _taken(x: Tensor, ids: Tensor) -> Tensor:
    """Given: for each query, the keys (or values) that stand at its ids.

    x: (batch, kv_heads, k, size). ids: (batch, q, n). Returns (batch, kv_heads, q, n, size).
    """
    return torch.take_along_dim(x.unsqueeze(-3), ids[..., None, :, :, None], dim=-2)


def sparse_attention(
    q: Float[Tensor, "*batch heads q head_dim"],
    k: Float[Tensor, "*batch kv_heads k head_dim"],
    v: Float[Tensor, "*batch kv_heads k value_dim"],
    index_scores: Float[Tensor, "*batch q k"],
    top_k: int,
    mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "*batch heads q value_dim"]:
    """Attention in which each query reads the top_k keys of largest index score, and no others.

    All heads of a query read the same keys. Keys that the mask hides are never among them, so a
    query that sees fewer than top_k reads all it sees; with top_k at the number of keys or above it
    is full attention. Among equal scores, any may be chosen; a score of −∞ is never chosen.

    mask: True = may look, the same for all heads: broadcastable to (batch, 1, q, k). heads /
    kv_heads query heads in a row share k and v. Only the chosen keys are multiplied: with q
    queries, q · top_k products a head, however many keys there are. Computed in at least float32,
    returned in the dtype of q. A query that may look nowhere gives zeros.

    Raises ValueError naming top_k where it is below 1, kv_heads where it does not divide heads, and
    mask where it does not fit. DeepSeek-AI, 2025 (arXiv 2512.02556), section 2.1.

    To be written here: torch's scaled_dot_product_attention and MultiheadAttention are not used.
    """
    # BEGIN SOLUTION
    at_least_one(top_k=top_k)
    heads, kv_heads = q.shape[-3], k.shape[-3]
    _need(heads % kv_heads == 0, "kv_heads", f"divide heads = {heads}", kv_heads)
    wanted = index_scores
    if mask is not None:
        mask_must_fit(mask, (*wanted.shape[:-2], 1, *wanted.shape[-2:]))
        mask = mask[..., 0, :, :] if mask.ndim > 2 else mask        # all heads read alike
        wanted = wanted.masked_fill(~mask, -torch.inf)
    wanted, ids = wanted.topk(min(top_k, wanted.shape[-1]), dim=-1)         # (batch, q, n)
    k, v = _taken(k, ids), _taken(v, ids)
    grouped = rearrange(widen(q), "... (h g) q d -> ... h g q d", h=kv_heads)
    scores = einsum(grouped, widen(k), "... h g q d, ... h q n d -> ... h g q n")
    hidden = (wanted == -torch.inf)[..., None, None, :, :]
    weights = softmax((scores / q.shape[-1] ** 0.5).masked_fill(hidden, -torch.inf))
    out = einsum(weights, widen(v), "... h g q n, ... h q n d -> ... h g q d")
    return out.flatten(-4, -3).to(q.dtype)
    # END SOLUTION
