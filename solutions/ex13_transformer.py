"""The whole model: one Transformer that is an encoder, GPT-2, Llama or Qwen3 by its configuration.

ids → embedding (+ positions) → blocks → norm → unembedding → one logit per word of the vocabulary.
"""

import math
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from .ex00_shapes import merge_heads
from .ex02_embedding import STD, Embedding, Unembedding
from .ex03_linear import Linear
from .ex04_normalization import LayerNorm, RMSNorm
from .ex06_positions import LearnedPositions, sinusoidal_encoding
from .ex07_rope import RoPE, llama3_frequencies, rope_frequencies, yarn_frequencies
from .ex08_feedforward import ACTIVATIONS, MLP, Dropout, SwiGLU, gelu, silu
from .ex09_attention import causal_mask
from .ex10_grouped_query_attention import sliding_window_mask
from .ex11_kv_cache import CachedAttention, KVCache, RollingKVCache
from .ex12_block import CrossBlock, PostNormBlock, PreNormBlock, scaled_residual_init

# The two norms of lesson 04 by the names that a config uses.
NORMS = {"layer": LayerNorm, "rms": RMSNorm}

# What rope_scaling must hold, as in Hugging Face's config.json, and what it may hold.
ROPE_KEYS = {
    "default": (set(), set()),
    "linear": ({"factor"}, set()),
    "llama3": ({"factor", "low_freq_factor", "high_freq_factor"}, set()),
    "yarn": ({"factor"}, {"beta_fast", "beta_slow", "attention_factor"}),
}


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Everything that tells one Transformer from another. The defaults are Llama's.

    kv_heads: heads of keys and values, as many as heads where left out. head_dim: d_model / heads
    where left out. activation: of an "mlp"; a "swiglu" has SiLU. rope_scaling: as in Hugging Face's
    config.json, such as {"rope_type": "linear", "factor": 2.0}; a None in it counts as left out.
    windows: per layer, how many tokens it sees, None for all of them.

    Raises ValueError naming the field where a value, or two of them together, make no sense.
    """

    vocab_size: int
    d_model: int
    layers: int
    heads: int
    kv_heads: int | None = None
    head_dim: int | None = None
    d_ff: int
    max_seq_len: int
    norm: str = "rms"                       # "layer" or "rms"
    norm_position: str = "pre"              # "pre" or "post"
    norm_eps: float | int = 1e-5
    feed_forward: str = "swiglu"            # "mlp" or "swiglu"
    activation: str = "gelu"
    positions: str = "rope"                 # "learned", "sinusoidal", "rope" or "none"
    rope_base: float | int = 10_000.0
    rope_scaling: dict | None = None
    qk_norm: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    windows: tuple[int | None, ...] | list[int | None] | None = None
    tie_embeddings: bool = False
    causal: bool = True
    dropout: float | int = 0.0

    def __post_init__(self):
        need, settle = self._need, partial(object.__setattr__, self)    # fields are frozen by now
        for field in ("vocab_size", "d_model", "layers", "heads", "d_ff", "max_seq_len"):
            need(getattr(self, field) >= 1, field, "be at least 1")
        if self.kv_heads is None:
            settle("kv_heads", self.heads)
        if self.head_dim is None:
            need(self.d_model % self.heads == 0, "heads",
                 f"divide d_model = {self.d_model} where no head_dim is given")
            settle("head_dim", self.d_model // self.heads)
        if self.windows is not None:
            settle("windows", tuple(self.windows))
        if self.rope_scaling is not None:
            settle("rope_scaling", {k: v for k, v in self.rope_scaling.items() if v is not None})

        need(self.kv_heads >= 1 and self.heads % self.kv_heads == 0, "kv_heads",
             f"divide heads = {self.heads}")
        need(self.head_dim >= 1, "head_dim", "be at least 1")
        for field, known in (("norm", NORMS), ("norm_position", ("pre", "post")),
                             ("feed_forward", ("mlp", "swiglu")), ("activation", ACTIVATIONS),
                             ("positions", ("learned", "sinusoidal", "rope", "none"))):
            need(getattr(self, field) in known, field, f"be one of {list(known)}")
        need(self.norm_eps >= 0, "norm_eps", "be at least 0")
        need(0 <= self.dropout < 1, "dropout", "be in [0, 1)")
        need(self.feed_forward == "mlp" or not self.mlp_bias, "mlp_bias",
             "be False with feed_forward 'swiglu', which has none")
        need(self.positions != "sinusoidal" or self.d_model % 2 == 0, "d_model",
             "be even with sinusoidal positions")
        self._check_rope()
        if self.windows is not None:
            need(len(self.windows) == self.layers, "windows", f"hold one per layer ({self.layers})")
            need(all(w is None or w >= 1 for w in self.windows), "windows",
                 "hold None or numbers of at least 1")
            need(self.causal or not any(self.windows), "windows", "be None where causal is False")
        if self.norm_position == "post":        # PostNormBlock is the layer of 2017, as it was
            with_post = "with norm_position 'post'"
            need(self.norm == "layer", "norm", f"be 'layer' {with_post}")
            need(self.feed_forward == "mlp", "feed_forward", f"be 'mlp' {with_post}")
            need(self.positions != "rope", "positions", f"be added to the embeddings {with_post}")
            need(self.kv_heads == self.heads, "kv_heads", f"equal heads = {self.heads} {with_post}")
            need(self.head_dim * self.heads == self.d_model, "head_dim",
                 f"be d_model / heads {with_post}")
            need(self.windows is None, "windows", f"be None {with_post}")
            need(not self.qk_norm, "qk_norm", f"be False {with_post}")
            for field in ("qkv_bias", "o_bias", "mlp_bias"):
                need(getattr(self, field), field, f"be True {with_post}")

    def _need(self, right: bool, field: str, rule: str) -> None:
        if not right:
            raise ValueError(f"{field} must {rule}, got {getattr(self, field)!r}")

    def _check_rope(self) -> None:
        need = self._need
        need(self.positions != "rope" or self.head_dim % 2 == 0, "head_dim",
             "be even with positions 'rope'")
        need(self.rope_base > 0, "rope_base", "be above 0")
        if self.rope_scaling is None:
            return
        need(self.positions == "rope", "rope_scaling", "be None without positions 'rope'")
        kind, given = self.rope_scaling.get("rope_type"), set(self.rope_scaling)
        need(kind in list(ROPE_KEYS), "rope_scaling", f"have a rope_type out of {list(ROPE_KEYS)}")
        must, may = ROPE_KEYS[kind]
        may = must | may | {"rope_type", "rope_theta", "original_max_position_embeddings"}
        need(must <= given <= may, "rope_scaling",
             f"hold {sorted(must)} and nothing but {sorted(may)}")
        need(all(isinstance(self.rope_scaling[key], (int, float)) for key in given - {"rope_type"}),
             "rope_scaling", "hold numbers")
        theta = self.rope_scaling.get("rope_theta", self.rope_base)
        need(theta == self.rope_base, "rope_scaling", f"agree with rope_base = {self.rope_base}")
        need(self.rope_scaling.get("factor", 1) >= 1, "rope_scaling", "have a factor of at least 1")

    def window(self, layer: int) -> int | None:
        """How many tokens this layer sees; None for all of them."""
        return None if self.windows is None else self.windows[layer]


# BERT base (Devlin et al., 2018, arXiv 1810.04805), without its segments and their norm.
ENCODER = ModelConfig(
    vocab_size=30_522, d_model=768, layers=12, heads=12, d_ff=3072, max_seq_len=512, norm="layer",
    norm_position="post", norm_eps=1e-12, feed_forward="mlp", activation="gelu",
    positions="learned", qkv_bias=True, o_bias=True, mlp_bias=True, tie_embeddings=True,
    causal=False, dropout=0.1)

# The base model of "Attention Is All You Need" (Vaswani et al., 2017, arXiv 1706.03762).
BASE_2017 = ModelConfig(
    vocab_size=37_000, d_model=512, layers=6, heads=8, d_ff=2048, max_seq_len=1024, norm="layer",
    norm_position="post", feed_forward="mlp", activation="relu", positions="sinusoidal",
    qkv_bias=True, o_bias=True, mlp_bias=True, tie_embeddings=True, dropout=0.1)

# Radford et al., 2019.
GPT2 = ModelConfig(
    vocab_size=50_257, d_model=768, layers=12, heads=12, d_ff=3072, max_seq_len=1024, norm="layer",
    feed_forward="mlp", activation="gelu_tanh", positions="learned", qkv_bias=True, o_bias=True,
    mlp_bias=True, tie_embeddings=True)

# Grattafiori et al., 2024 (arXiv 2407.21783), and the config.json of Llama 3.2 1B.
LLAMA_3_2_1B = ModelConfig(
    vocab_size=128_256, d_model=2048, layers=16, heads=32, kv_heads=8, head_dim=64, d_ff=8192,
    max_seq_len=131_072, rope_base=500_000.0, tie_embeddings=True,
    rope_scaling={"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
                  "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})

# Qwen Team, 2025 (arXiv 2505.09388): 16 heads of 128 are twice as wide as the model.
QWEN3_0_6B = ModelConfig(
    vocab_size=151_936, d_model=1024, layers=28, heads=16, kv_heads=8, head_dim=128, d_ff=3072,
    max_seq_len=40_960, norm_eps=1e-6, rope_base=1_000_000.0, qk_norm=True, tie_embeddings=True)

# A Llama of 4.6 million parameters, small enough to train on a laptop.
POCKET = ModelConfig(
    vocab_size=4096, d_model=256, layers=6, heads=8, kv_heads=4, d_ff=512, max_seq_len=512,
    tie_embeddings=True)


class SinusoidalPositions(nn.Module):
    """Given: lesson 06's sines and cosines, called as LearnedPositions is. Nothing is trained.

    Raises ValueError where a position is outside [0, max_seq_len).
    """

    def __init__(self, max_seq_len: int, d_model: int):
        super().__init__()
        table = sinusoidal_encoding(max_seq_len, d_model)
        self.register_buffer("table", table, persistent=False)

    def forward(self, positions: Int[Tensor, "*batch seq"]) -> Float[Tensor, "*batch seq d_model"]:
        low, high = positions.aminmax() if positions.numel() else (0, 0)
        if low < 0 or high >= len(self.table):
            raise ValueError(f"positions must be in [0, {len(self.table)}), "
                             f"got {int(low)} … {int(high)}")
        return self.table[positions]


def make_rope(config: ModelConfig) -> RoPE | None:
    """Given: the RoPE that a config asks for, its scaling included; None with other positions."""
    if config.positions != "rope":
        return None
    scaling = config.rope_scaling or {"rope_type": "default"}
    frequencies, attention_scale = rope_frequencies(config.head_dim, config.rope_base), 1.0
    trained = scaling.get("original_max_position_embeddings", config.max_seq_len)
    match scaling["rope_type"]:
        case "linear":
            frequencies = frequencies / scaling["factor"]
        case "llama3":
            frequencies = llama3_frequencies(frequencies, scaling["factor"],
                                             scaling["low_freq_factor"],
                                             scaling["high_freq_factor"], trained)
        case "yarn":
            frequencies, attention_scale = yarn_frequencies(
                config.head_dim, scaling["factor"], trained, config.rope_base,
                scaling.get("beta_fast", 32), scaling.get("beta_slow", 1))
            attention_scale = scaling.get("attention_factor", attention_scale)
    return RoPE(config.head_dim, config.max_seq_len, config.rope_base, frequencies=frequencies,
                attention_scale=attention_scale)


def make_block(config: ModelConfig, layer: int, rope: RoPE | None) -> PreNormBlock | PostNormBlock:
    """One layer, new and with weights of its own; only rope, which has none, may be shared.

    norm_position "post": a PostNormBlock. "pre": a PreNormBlock of two norms, a CachedAttention
    with this layer's window, and an MLP or a SwiGLU. The block has config.dropout on what its
    sublayers add; an MLP inside a PreNormBlock has none.
    """
    # BEGIN SOLUTION
    if config.norm_position == "post":
        return PostNormBlock(config.d_model, config.heads, config.d_ff, config.activation,
                             config.dropout, config.norm_eps)
    norm1, norm2 = (NORMS[config.norm](config.d_model, config.norm_eps) for _ in range(2))
    attention = CachedAttention(
        config.d_model, config.heads, config.kv_heads, config.head_dim, qk_norm=config.qk_norm,
        norm_eps=config.norm_eps, qkv_bias=config.qkv_bias, o_bias=config.o_bias, rope=rope,
        window=config.window(layer), causal=config.causal)
    if config.feed_forward == "mlp":
        feed_forward = MLP(config.d_model, config.d_ff, config.activation, bias=config.mlp_bias)
    else:
        feed_forward = SwiGLU(config.d_model, config.d_ff)
    return PreNormBlock(norm1, attention, norm2, feed_forward, config.dropout)
    # END SOLUTION


class Transformer(nn.Module):
    """Token ids to logits: embedding, positions, blocks, norm, unembedding.

    config; embedding; positions (learned or sinusoidal, else None); blocks; norm (None after
    post-norm blocks, which end in one); unembedding, which shares the embedding's weight where the
    config ties them. Learned positions are added to the embeddings. Sinusoidal ones too, and then
    the embeddings are multiplied by √d_model first (Vaswani et al., 2017, section 3.4). Dropout
    falls on the sum. One RoPE serves all layers.

    At the start, as in GPT-2 (Radford et al., 2019): every Linear's weight is normal with
    σ = 0.02, biases are 0, norms 1; in pre-norm blocks the weights that end a residual branch are
    divided by √(2 · layers).
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        # BEGIN SOLUTION
        self.config = config
        self.embedding = Embedding(config.vocab_size, config.d_model)
        self.positions, self.scale = None, 1.0
        if config.positions == "learned":
            self.positions = LearnedPositions(config.max_seq_len, config.d_model)
        if config.positions == "sinusoidal":
            self.positions = SinusoidalPositions(config.max_seq_len, config.d_model)
            self.scale = math.sqrt(config.d_model)
        self.dropout = Dropout(config.dropout)
        rope = make_rope(config)
        self.blocks = nn.ModuleList(make_block(config, n, rope) for n in range(config.layers))
        self.norm = None
        if config.norm_position == "pre":
            self.norm = NORMS[config.norm](config.d_model, config.norm_eps)
        self.unembedding = Unembedding(config.d_model, config.vocab_size)
        if config.tie_embeddings:
            self.unembedding.tie(self.embedding)

        for module in self.modules():
            if isinstance(module, Linear):
                nn.init.normal_(module.weight, std=STD)
        if config.norm_position == "pre":
            scaled_residual_init(self, config.layers)
        # END SOLUTION

    def forward(
        self,
        ids: Int[Tensor, "batch seq"],
        mask: Bool[Tensor, "..."] | None = None,
        positions: Int[Tensor, "batch seq"] | Int[Tensor, " seq"] | None = None,
        caches: list[KVCache | RollingKVCache] | None = None,
    ) -> Float[Tensor, "batch seq vocab"]:
        """The logits of the token after each of ids.

        mask: True = may look, broadcastable to (batch, heads, q, k), ANDed with the causal one;
        with caches its k counts all tokens so far. positions: where each token stands; left out,
        they go on where the caches end, or start at 0. caches: one per layer, from make_caches.

        Raises ValueError naming ids where one is outside the vocabulary, positions where one is
        past max_seq_len, and caches where they are not one per layer or are given to post-norm
        blocks, which take none. (The parts raise the first two.) Caches stay as they were.
        """
        # BEGIN SOLUTION
        post = self.config.norm_position == "post"
        if caches is not None and (post or len(caches) != len(self.blocks)):
            raise ValueError(f"caches must be {0 if post else len(self.blocks)}, got {len(caches)}")
        if positions is None:
            start = caches[0].length if caches else 0
            positions = torch.arange(start, start + ids.shape[1], device=ids.device)

        x = self.embedding(ids)
        if self.positions is not None:
            x = x * self.scale + self.positions(positions).to(x.dtype)
        x = self.dropout(x)
        if post:
            if self.config.causal:
                causal = causal_mask(ids.shape[1], device=ids.device)
                mask = causal if mask is None else mask & causal
            for block in self.blocks:
                x = block(x, mask)
        else:
            for block, cache in zip(self.blocks, caches or [None] * len(self.blocks)):
                x = block(x, mask, positions, cache)
            x = self.norm(x)
        return self.unembedding(x)
        # END SOLUTION


def make_caches(
    config: ModelConfig,
    batch: int,
    capacity: int,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> list[KVCache | RollingKVCache]:
    """An empty cache per layer: a KVCache for capacity tokens, or a RollingKVCache for a window.

    Raises ValueError where the model cannot decode token by token, naming norm_position where that
    is "post", and causal where it is False; and what the caches refuse, such as a batch of 0.
    """
    # BEGIN SOLUTION
    if config.norm_position == "post":
        raise ValueError("norm_position must be 'pre' for caches, got 'post'")
    if not config.causal:
        raise ValueError("causal must be True for caches, got False")
    caches = []
    for layer in range(config.layers):
        window = config.window(layer)
        make, size = (KVCache, capacity) if window is None else (RollingKVCache, window)
        caches.append(make(batch, config.kv_heads, size, config.head_dim, dtype, device))
    return caches
    # END SOLUTION


class EncoderDecoder(nn.Module):
    """The Transformer of 2017: an encoder reads the source, a decoder writes the target.

    encoder: PostNormBlocks; decoder: CrossBlocks, whatever config.causal says causal. Both start
    from embeddings times √d_model plus sinusoidal positions, with dropout on the sum, and neither
    ends in a norm of its own, as in the paper. With tie_embeddings one matrix is source_embedding,
    target_embedding and unembedding; else there are three. Linear layers start as lesson 03 has
    them, the three matrices normal with σ = 1/√d_model.

    Raises ValueError naming norm_position where that is not "post", and else naming positions where
    they are not sinusoidal.
    Vaswani et al., 2017 (arXiv 1706.03762).
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        # BEGIN SOLUTION
        for field, value in (("norm_position", "post"), ("positions", "sinusoidal")):
            if getattr(config, field) != value:
                raise ValueError(f"{field} must be {value!r}, got {getattr(config, field)!r}")
        self.config = config
        self.source_embedding = Embedding(config.vocab_size, config.d_model)
        self.target_embedding = Embedding(config.vocab_size, config.d_model)
        self.unembedding = Unembedding(config.d_model, config.vocab_size)
        self.positions = SinusoidalPositions(config.max_seq_len, config.d_model)
        self.dropout = Dropout(config.dropout)
        sizes = (config.d_model, config.heads, config.d_ff, config.activation, config.dropout,
                 config.norm_eps)
        self.encoder = nn.ModuleList(PostNormBlock(*sizes) for _ in range(config.layers))
        self.decoder = nn.ModuleList(CrossBlock(*sizes) for _ in range(config.layers))
        for table in (self.source_embedding, self.target_embedding, self.unembedding):
            nn.init.normal_(table.weight, std=config.d_model**-0.5)
        if config.tie_embeddings:
            self.target_embedding.weight = self.source_embedding.weight
            self.unembedding.tie(self.source_embedding)
        # END SOLUTION

    def _embed(
        self, embedding: Embedding, ids: Int[Tensor, "batch seq"]
    ) -> Float[Tensor, "batch seq d_model"]:
        """Given: embeddings times √d_model, plus positions, then dropout."""
        x = embedding(ids) * math.sqrt(self.config.d_model)
        positions = self.positions(torch.arange(ids.shape[1], device=ids.device))
        return self.dropout(x + positions.to(x.dtype))

    def encode(
        self,
        source: Int[Tensor, "batch source"],
        source_mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch source d_model"]:
        """The encoder's memory of source, which decode looks at."""
        # BEGIN SOLUTION
        x = self._embed(self.source_embedding, source)
        for block in self.encoder:
            x = block(x, source_mask)
        return x
        # END SOLUTION

    def decode(
        self,
        target: Int[Tensor, "batch target"],
        memory: Float[Tensor, "batch source d_model"],
        source_mask: Bool[Tensor, "..."] | None = None,
        target_mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch target vocab"]:
        """The logits of the token after each of target, given the encoder's memory."""
        # BEGIN SOLUTION
        causal = causal_mask(target.shape[1], device=target.device)
        target_mask = causal if target_mask is None else target_mask & causal
        x = self._embed(self.target_embedding, target)
        for block in self.decoder:
            x = block(x, memory, target_mask, source_mask)
        return self.unembedding(x)
        # END SOLUTION

    def forward(
        self,
        source: Int[Tensor, "batch source"],
        target: Int[Tensor, "batch target"],
        source_mask: Bool[Tensor, "..."] | None = None,
        target_mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch target vocab"]:
        """The logits of the token after each of target, which sees its past and all of source.

        source_mask: which source tokens are real, (batch, 1, 1, source), for the encoder and for
        the decoder's look at it. target_mask: broadcastable to (batch, heads, target, target),
        ANDed with the causal one.
        """
        # BEGIN SOLUTION
        return self.decode(target, self.encode(source, source_mask), source_mask, target_mask)
        # END SOLUTION


def _layer_matrices(config: ModelConfig) -> int:
    """Given: the numbers in the weight matrices of one layer, biases and norms left out."""
    q, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    attention = 2 * config.d_model * (q + kv)               # q_proj and o_proj, k_proj and v_proj
    return attention + (2 if config.feed_forward == "mlp" else 3) * config.d_model * config.d_ff


def count_parameters(config: ModelConfig) -> int:
    """How many numbers Transformer(config) trains, without making it; a tied matrix counts once.

    The embedding, the unembedding unless tied, max_seq_len · d_model learned positions; per layer
    the matrices, their biases (one number per output feature), two norms (a LayerNorm has 2 ·
    d_model numbers, an RMSNorm d_model) and, with qk_norm, 2 · head_dim; after pre-norm blocks one
    more norm.
    """
    # BEGIN SOLUTION
    d = config.d_model
    q, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    norm = 2 * d if config.norm == "layer" else d
    layer = (_layer_matrices(config) + 2 * norm
             + config.qkv_bias * (q + 2 * kv) + config.o_bias * d
             + config.mlp_bias * (config.d_ff + d) + config.qk_norm * 2 * config.head_dim)
    return (config.vocab_size * d * (1 if config.tie_embeddings else 2)
            + (config.positions == "learned") * config.max_seq_len * d
            + config.layers * layer + (config.norm_position == "pre") * norm)
    # END SOLUTION


def flops_per_token(config: ModelConfig, seq_len: int) -> int:
    """Floating-point operations per token of one forward pass over seq_len tokens.

    Counted are matrix products, 2 per multiply-add: 2 for every number of a layer's matrices and of
    the unembedding (tied or not), and per layer q kᵀ and weights · v, each 2 · heads · head_dim for
    each of seq_len keys. A mask or a window hides scores but saves none here. Norms, softmax,
    activations, biases and look-ups are left out; training costs about three times as much.

    Raises ValueError where seq_len is below 1.
    """
    # BEGIN SOLUTION
    if seq_len < 1:
        raise ValueError(f"seq_len must be at least 1, got {seq_len}")
    scores_and_mix = 4 * config.heads * config.head_dim * seq_len
    layer = 2 * _layer_matrices(config) + scores_and_mix
    return config.layers * layer + 2 * config.vocab_size * config.d_model
    # END SOLUTION


# Given: the same model on torch's kernels. Each class is one of ours with another forward pass.

class _TorchLinear(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class _TorchUnembedding(Unembedding):
    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class _TorchLayerNorm(LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class _TorchRMSNorm(RMSNorm):
    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class _TorchMLP(MLP):
    def forward(self, x: Tensor) -> Tensor:
        own = self.activation
        if own is silu:
            hidden = F.silu(self.up(x))
        elif getattr(own, "func", own) is gelu:
            hidden = F.gelu(self.up(x), **getattr(own, "keywords", {}))
        else:
            hidden = own(self.up(x))
        return self.down(self.dropout(hidden))


class _TorchSwiGLU(SwiGLU):
    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class _TorchRoPE(RoPE):
    """Layout "half", at positions that _TorchTransformer has looked at, once for all layers."""

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        rows = slice(x.shape[-2]) if positions is None else positions
        cos, sin = self.cos[rows], self.sin[rows]
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1).to(x.dtype)


class _TorchAttention(CachedAttention):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """As CachedAttention's; no score is ever written to memory."""
        q_len, k_len = q.shape[2], k.shape[2]
        windowed = self.window is not None and self.window < k_len
        causal = self.causal and q_len > 1
        # is_causal makes no mask, but takes the queries for the first of the keys
        square = causal and not windowed and mask is None and q_len == k_len
        if mask is not None:
            mask = mask[..., -k_len:]
        if windowed or causal and not square:
            own = sliding_window_mask(q_len, k_len, self.window or k_len, q.device)
            mask = own if mask is None else own & mask
        out = F.scaled_dot_product_attention(q, k, v, mask, is_causal=square, enable_gqa=True)
        return self.o_proj(merge_heads(out))


class _TorchTransformer(Transformer):
    def forward(self, ids: Tensor, mask: Tensor | None = None, positions: Tensor | None = None,
                caches: list | None = None) -> Tensor:
        if self.config.positions == "rope":
            first = caches[0].length if caches else 0
            last = first + ids.shape[1] - 1
            if positions is not None and positions.numel():
                first, last = map(int, positions.aminmax())
            if first < 0 or last >= self.config.max_seq_len:
                raise ValueError(f"positions must be in 0 … {self.config.max_seq_len - 1}, "
                                 f"got {first} … {last}")
        return super().forward(ids, mask, positions, caches)


# What torch has a kernel for: our class, its twin, and the attributes that the twin reads.
_KERNELS = {
    Linear: (_TorchLinear, ("weight", "bias")),
    Unembedding: (_TorchUnembedding, ("weight", "bias")),
    LayerNorm: (_TorchLayerNorm, ("weight", "bias", "eps")),
    RMSNorm: (_TorchRMSNorm, ("weight", "eps")),
    MLP: (_TorchMLP, ("up", "activation", "dropout", "down")),
    SwiGLU: (_TorchSwiGLU, ("gate", "up", "down")),
    CachedAttention: (_TorchAttention, ("window", "causal", "o_proj")),
    Transformer: (_TorchTransformer, ("config",)),
}


def use_torch_kernels(model: nn.Module) -> nn.Module:
    """Given: swap a model's parts, in place, for twins on torch's kernels; returns the model.

    Linear, Unembedding, LayerNorm, RMSNorm, MLP, SwiGLU and CachedAttention become subclasses of
    themselves with another forward pass, which gives the same numbers, up to rounding, in less
    time and memory. Parameters, their names and ties stay as they are. In a Transformer, RoPE
    stops looking at its positions in every layer: the model looks once. Modules of other classes,
    MultiHeadAttention too, and modules without the attributes that a twin reads, are left alone.
    """
    whole = type(model) is Transformer and hasattr(model, "config")
    for module in model.modules():
        twin, attributes = _KERNELS.get(type(module), (None, ()))
        if whole and type(module) is RoPE and getattr(module, "layout", None) == "half":
            twin, attributes = _TorchRoPE, ("cos", "sin")
        if twin and all(hasattr(module, name) for name in attributes):
            module.__class__ = twin
    return model
