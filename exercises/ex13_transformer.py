"""The whole model: one Transformer that is an encoder, GPT-2, Llama or Qwen3 by its configuration.

ids → embedding (+ positions) → blocks → norm → unembedding → one logit per word of the vocabulary.
"""

import math
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from given.init import STD
from given.sizes import at_least_one

from .ex02_embedding import Embedding, Unembedding
from .ex03_linear import Linear
from .ex04_normalization import LayerNorm, RMSNorm
from .ex06_positions import LearnedPositions, sinusoidal_encoding
from .ex07_rope import RoPE, llama3_frequencies, rope_frequencies, yarn_frequencies
from .ex08_feedforward import ACTIVATIONS, MLP, Dropout, SwiGLU
from .ex09_attention import causal_mask
from .ex11_kv_cache import CachedAttention, KVCache, RollingKVCache
from .ex12_block import CrossBlock, PostNormBlock, PreNormBlock, scaled_residual_init

# The two norms of lesson 04 by the names that a config uses.
NORMS = {"layer": LayerNorm, "rms": RMSNorm}


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
    norm_eps: float = 1e-5
    feed_forward: str = "swiglu"            # "mlp" or "swiglu"
    activation: str = "gelu"
    positions: str = "rope"                 # "learned", "sinusoidal", "rope" or "none"
    rope_base: float = 10_000.0
    rope_scaling: dict | None = None
    qk_norm: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    windows: tuple[int | None, ...] | list[int | None] | None = None
    tie_embeddings: bool = False
    causal: bool = True
    dropout: float = 0.0

    def __post_init__(self):
        check_config(self)      # the rules stand below the model

    def window(self, layer: int) -> int | None:
        """How many tokens this layer sees; None for all of them."""
        return None if self.windows is None else self.windows[layer]


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

    To be written here: torch's Transformer modules and MultiheadAttention are not used.
    """
    raise NotImplementedError


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

    To be written here: torch's Transformer modules and MultiheadAttention are not used.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        raise NotImplementedError

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
        raise NotImplementedError


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
    raise NotImplementedError


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

    To be written here: torch's Transformer modules and MultiheadAttention are not used.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        raise NotImplementedError

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
        raise NotImplementedError

    def decode(
        self,
        target: Int[Tensor, "batch target"],
        memory: Float[Tensor, "batch source d_model"],
        source_mask: Bool[Tensor, "..."] | None = None,
        target_mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch target vocab"]:
        """The logits of the token after each of target, given the encoder's memory."""
        raise NotImplementedError

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
        raise NotImplementedError


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
    raise NotImplementedError


def flops_per_token(config: ModelConfig, seq_len: int) -> int:
    """Floating-point operations per token of one forward pass over seq_len tokens.

    Counted are matrix products, 2 per multiply-add: 2 for every number of a layer's matrices and of
    the unembedding (tied or not), and per layer q kᵀ and weights · v, each 2 · heads · head_dim for
    each of seq_len keys. A mask or a window hides scores but saves none here. Norms, softmax,
    activations, biases and look-ups are left out; training costs about three times as much.

    Raises ValueError where seq_len is below 1.
    """
    raise NotImplementedError


# -- given: what a config may say, and some that are known ----------------------------------

# What rope_scaling must hold, as in Hugging Face's config.json, and what it may hold.
ROPE_KEYS = {
    "default": (set(), set()),
    "linear": ({"factor"}, set()),
    "llama3": ({"factor", "low_freq_factor", "high_freq_factor"}, set()),
    "yarn": ({"factor"}, {"beta_fast", "beta_slow", "attention_factor"}),
}


def check_config(config: ModelConfig) -> None:
    """Given: fill in the fields that were left out; a ValueError where the config makes no sense."""
    need, settle = partial(_need, config), partial(object.__setattr__, config)  # it is frozen by now
    at_least_one(**{field: getattr(config, field) for field in
                    ("vocab_size", "d_model", "layers", "heads", "d_ff", "max_seq_len")})
    if config.kv_heads is None:
        settle("kv_heads", config.heads)
    if config.head_dim is None:
        need(config.d_model % config.heads == 0, "heads",
             f"divide d_model = {config.d_model} where no head_dim is given")
        settle("head_dim", config.d_model // config.heads)
    if config.windows is not None:
        settle("windows", tuple(config.windows))
    if config.rope_scaling is not None:
        settle("rope_scaling", {k: v for k, v in config.rope_scaling.items() if v is not None})

    need(config.kv_heads >= 1 and config.heads % config.kv_heads == 0, "kv_heads",
         f"divide heads = {config.heads}")
    at_least_one(head_dim=config.head_dim)
    for field, known in (("norm", NORMS), ("norm_position", ("pre", "post")),
                         ("feed_forward", ("mlp", "swiglu")), ("activation", ACTIVATIONS),
                         ("positions", ("learned", "sinusoidal", "rope", "none"))):
        need(getattr(config, field) in known, field, f"be one of {list(known)}")
    need(config.norm_eps >= 0, "norm_eps", "be at least 0")
    need(0 <= config.dropout < 1, "dropout", "be in [0, 1)")
    need(config.feed_forward == "mlp" or not config.mlp_bias, "mlp_bias",
         "be False with feed_forward 'swiglu', which has none")
    need(config.positions != "sinusoidal" or config.d_model % 2 == 0, "d_model",
         "be even with sinusoidal positions")
    _check_rope(config)
    if config.windows is not None:
        need(len(config.windows) == config.layers, "windows", f"hold one per layer ({config.layers})")
        need(all(w is None or w >= 1 for w in config.windows), "windows",
             "hold None or numbers of at least 1")
        need(config.causal or not any(config.windows), "windows", "be None where causal is False")
    if config.norm_position == "post":        # PostNormBlock is the layer of 2017, as it was
        with_post = "with norm_position 'post'"
        need(config.norm == "layer", "norm", f"be 'layer' {with_post}")
        need(config.feed_forward == "mlp", "feed_forward", f"be 'mlp' {with_post}")
        need(config.positions != "rope", "positions", f"be added to the embeddings {with_post}")
        need(config.kv_heads == config.heads, "kv_heads", f"equal heads = {config.heads} {with_post}")
        need(config.head_dim * config.heads == config.d_model, "head_dim",
             f"be d_model / heads {with_post}")
        need(config.windows is None, "windows", f"be None {with_post}")
        need(not config.qk_norm, "qk_norm", f"be False {with_post}")
        for field in ("qkv_bias", "o_bias", "mlp_bias"):
            need(getattr(config, field), field, f"be True {with_post}")


def _check_rope(config: ModelConfig) -> None:
    need = partial(_need, config)
    need(config.positions != "rope" or config.head_dim % 2 == 0, "head_dim",
         "be even with positions 'rope'")
    need(config.rope_base > 0, "rope_base", "be above 0")
    if config.rope_scaling is None:
        return
    need(config.positions == "rope", "rope_scaling", "be None without positions 'rope'")
    kind, given = config.rope_scaling.get("rope_type"), set(config.rope_scaling)
    need(kind in list(ROPE_KEYS), "rope_scaling", f"have a rope_type out of {list(ROPE_KEYS)}")
    must, may = ROPE_KEYS[kind]
    may = must | may | {"rope_type", "rope_theta", "original_max_position_embeddings"}
    need(must <= given <= may, "rope_scaling",
         f"hold {sorted(must)} and nothing but {sorted(may)}")
    need(all(isinstance(config.rope_scaling[key], (int, float)) for key in given - {"rope_type"}),
         "rope_scaling", "hold numbers")
    theta = config.rope_scaling.get("rope_theta", config.rope_base)
    need(theta == config.rope_base, "rope_scaling", f"agree with rope_base = {config.rope_base}")
    need(config.rope_scaling.get("factor", 1) >= 1, "rope_scaling", "have a factor of at least 1")


def _need(config: ModelConfig, right: bool, field: str, rule: str) -> None:
    if not right:
        raise ValueError(f"{field} must {rule}, got {getattr(config, field)!r}")


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
