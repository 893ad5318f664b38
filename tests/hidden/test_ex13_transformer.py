"""Lesson 13 on other shapes, dtypes and corners."""

import torch

from grader import dtypes, points, raises

SIZES = {"vocab_size": 13, "d_model": 12, "layers": 3, "heads": 3, "d_ff": 10, "max_seq_len": 9}
BIASES = {"qkv_bias": True, "o_bias": True, "mlp_bias": True}
POST = {"norm": "layer", "norm_position": "post", "feed_forward": "mlp", **BIASES}


def _config(impl, **changes):
    return impl.ModelConfig(**{**SIZES, **changes})


def _model(impl, draw, **changes):
    return draw.fill(impl.Transformer(_config(impl, **changes))).eval()


@points(2)
@dtypes("bfloat16", "float16")
def test_half_precision(impl, draw, dtype):
    """A model cast to half precision answers in it, finite numbers all, with caches and without.

    (So many roundings lie behind a logit that its digits cannot be asked for.)
    """
    said = {}
    for positions in ("rope", "learned"):
        model = _model(impl, draw, positions=positions, layers=1).to(dtype)
        caches = impl.make_caches(model.config, 1, 9, dtype=dtype, device=draw.device)
        ids = draw.ints(13, 1, 4)
        with torch.no_grad():
            for name, x in (("plain", model(ids)), ("cached", model(ids, caches=caches))):
                said[f"{positions}, {name}"] = [x.dtype == dtype, list(x.shape), bool(x.isfinite().all())]
    return said


@points(2)
def test_unusual_combinations(impl, draw):
    """Any mixture of norm, feed-forward, positions and biases is a model."""
    ids, said = draw.ints(13, 2, 5), {}
    mixtures = {"LayerNorm and SwiGLU": {"norm": "layer", "positions": "none", "o_bias": True},
                "RMSNorm and ReLU": {"feed_forward": "mlp", "activation": "relu", "windows": [2, 4, 1]},
                "one KV head": {"kv_heads": 1, "head_dim": 2, "qkv_bias": True, "layers": 1},
                "pre-norm, sinusoidal": {"positions": "sinusoidal", "tie_embeddings": True},
                "QK-norm": {"qk_norm": True}}
    for name, mixture in mixtures.items():
        said[name] = _model(impl, draw, **mixture)(ids)
    return said


def test_positions_in_a_wider_type(impl, draw):
    """Positions that are kept in float32 are added in the dtype of the stream, and None is None.

    A loaded model in bfloat16 has such tables: no file holds them.
    """
    said, ids = {}, draw.ints(13, 1, 4)
    for positions in ("sinusoidal", "learned"):
        model = _model(impl, draw, positions=positions).to(torch.bfloat16)
        model.positions.float()
        said[positions] = str(model(ids).dtype)
    post = impl.Transformer(_config(impl, **POST, positions="none"))
    return said | {"positions": post.positions is None, "norm": post.norm is None}


def test_scaled_rope(impl, draw):
    """rope_scaling and rope_base reach the attention of every layer."""
    ids, said = draw.ints(13, 1, 8), {}
    scalings = {"linear": {"rope_type": "linear", "factor": 3.0},
                "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4}}
    for name, scaling in scalings.items():
        said[name] = _model(impl, draw, rope_base=100.0, rope_scaling=scaling)(ids)
    return said


def test_one_token_and_a_full_context(impl, draw):
    """A single token works, max_seq_len tokens do, and one more is refused."""
    said = {}
    for positions in ("rope", "learned", "sinusoidal"):
        model = _model(impl, draw, positions=positions)
        said |= {f"{positions}, {n}": model(draw.ints(13, 1, n)) for n in (1, 9)}
        said[f"{positions}, 10"] = raises(ValueError, lambda: model(draw.ints(13, 1, 10)),
                                          names="positions")
    return said


def test_bad_ids(impl, draw):
    """An id outside the vocabulary is refused, and the caches are as they were."""
    model = _model(impl, draw)
    caches = impl.make_caches(model.config, 1, 9, dtype=draw.float, device=draw.device)
    ids = draw.ints(13, 1, 3)
    with torch.no_grad():
        return {"13": raises(ValueError, lambda: model(ids + 13, caches=caches), names="ids"),
                "length": [cache.length for cache in caches]}


def test_full_caches(impl, draw):
    """Caches count past max_seq_len for nobody: the position is refused before anything is kept."""
    model = _model(impl, draw)
    caches = impl.make_caches(model.config, 1, 20, dtype=draw.float, device=draw.device)
    with torch.no_grad():
        model(draw.ints(13, 1, 9), caches=caches)
        return {"one more": raises(ValueError, lambda: model(draw.ints(13, 1, 1), caches=caches),
                                   names="positions"),
                "length": [cache.length for cache in caches]}


@points(2)
def test_padded_decoding(impl, draw):
    """Left-padded rows through caches, in pieces, with windows on some layers."""
    model = _model(impl, draw, windows=(3, None, 2))
    ids, places = draw.ints(13, 2, 8), torch.arange(8, device=draw.device)
    padding = torch.tensor([[0], [3]], device=draw.device)
    positions, real = (places - padding).clamp(min=0), places >= padding
    caches = impl.make_caches(model.config, 2, 8, dtype=draw.float, device=draw.device)
    said, start = [], 0
    with torch.no_grad():
        for end in (5, 6, 8):
            logits = model(ids[:, start:end], mask=real[:, None, None, :end],
                           positions=positions[:, start:end], caches=caches)
            said.append(logits[real[:, start:end]])
            start = end
    return said


def test_a_mask_of_all_four_axes(impl, draw):
    """A mask of (batch, heads, q, k) is taken as it is, and is not written to."""
    said = {}
    for name, changes in (("pre", {}), ("post", {**POST, "positions": "learned"})):
        mask = draw.ints(2, 2, 3, 5, 5).bool() | torch.eye(5, dtype=torch.bool, device=draw.device)
        before = mask.clone()
        said[name] = _model(impl, draw, **changes)(draw.ints(13, 2, 5), mask=mask)
        said[f"{name}, mask is left alone"] = bool((mask == before).all())
    return said


@points(2)
def test_encoder_decoder_gradients(impl, draw):
    """Gradients reach every parameter of encoder and decoder, through the memory too.

    Each is compared as one row: the rows of one matrix differ in size, and rounding does not.
    """
    config = _config(impl, **POST, positions="sinusoidal", layers=1, tie_embeddings=False)
    model = draw.fill(impl.EncoderDecoder(config))
    source, target, pull = draw.ints(13, 8, 8), draw.ints(13, 8, 7), draw(8, 7, 13)
    (model(source, target) * pull).sum().backward()
    return {f"grad of {name}": p.grad.flatten() for name, p in model.named_parameters()
            if not name.endswith("k_proj.bias")}     # softmax cancels it: 0, but for rounding


def test_a_decoder_looks_back_whatever_the_config_says(impl, draw):
    """An EncoderDecoder's decoder is causal with causal=False too, with and without a target_mask."""
    config = _config(impl, **POST, positions="sinusoidal", layers=1, causal=False)
    model = draw.fill(impl.EncoderDecoder(config)).eval()
    source, target = draw.ints(13, 2, 5), draw.ints(13, 2, 4)
    mask = torch.ones(1, 1, 1, 4, dtype=torch.bool, device=draw.device)
    return {"without": model(source, target), "with": model(source, target, target_mask=mask)}


def test_counts_of_odd_shapes(impl, draw):
    """Counts hold for any mixture, and are whole numbers."""
    said = {}
    for n, changes in enumerate((
            {"kv_heads": 1, "head_dim": 10, "qkv_bias": True, "o_bias": True}, {"norm": "layer", "o_bias": True},
            {"feed_forward": "mlp", "mlp_bias": True, "qk_norm": True, "windows": (1, None, 2)},
            {**POST, "positions": "sinusoidal"}, {**POST, "positions": "none"})):
        config = _config(impl, **changes, vocab_size=int(draw.ints(30)) + 1, max_seq_len=int(draw.ints(30)) + 1)
        said |= {f"parameters {n}": impl.count_parameters(config),
                 f"FLOPs {n}": [impl.flops_per_token(config, seq_len) for seq_len in (1, 9)]}
    return said


def test_sizes_of_one(impl, draw):
    """A model of one word, one feature, one layer and one head is a model; a cache for no row is none."""
    sizes = {"vocab_size": 1, "d_model": 1, "layers": 1, "heads": 1, "d_ff": 1, "max_seq_len": 1}
    ids = draw.ints(1, 1, 1)
    model = _model(impl, draw, **sizes, positions="learned")
    config = _config(impl)
    return {"logits": model(ids), "parameters": impl.count_parameters(model.config),
            "caches": [cache.keys for cache in impl.make_caches(config, 1, 1, device=draw.device)],
            "no rows": raises(ValueError, lambda: impl.make_caches(config, 0, 4), names="batch"),
            "no room": raises(ValueError, lambda: impl.make_caches(config, 4, 0), names="capacity")}


def test_turned_batches(impl, draw):
    """Ids and masks whose memory lies in another order (transposed views) mean the same."""
    ids, mask = draw.ints(13, 6, 3).T, draw.ints(2, 6, 3).bool().T[:, None, None]
    said = {}
    for name, changes in (("pre", {}), ("post", {**POST, "positions": "learned"})):
        said[name] = _model(impl, draw, **changes)(ids, mask=mask)
    config = _config(impl, **POST, positions="sinusoidal")
    pair = draw.fill(impl.EncoderDecoder(config)).eval()
    return said | {"2017": pair(ids, ids[:, :4], source_mask=mask)}
