"""What the parts of chapter 13 may be given."""

import torch
from hypothesis import strategies as st


def a_config(impl, draw, *kinds):
    """A small config of any kind; None in a field counts as left out."""
    post = draw("norm_position", kinds or ("pre", "post")) == "post"
    layers, heads = draw("layers", (1, 2, 3)), draw("heads", (2, 1, 4))
    given = {
        "vocab_size": draw("vocab_size", (7, 1, 12)),
        "layers": layers,
        "heads": heads,
        "d_ff": draw("d_ff", (3, 1, 8)),
        "max_seq_len": draw("max_seq_len", (16, 24)),
        "tie_embeddings": draw("tied", (False, True)),
        "dropout": draw("dropout", (0.0, 0.0, 0.3)),
        "norm_eps": draw("norm_eps", (1e-5, 0.1)),
        "activation": draw("activation", ("gelu", "relu", "silu")),
        "causal": draw("causal", (True, True, False)),
    }
    if post:
        given |= {
            "norm_position": "post",
            "norm": "layer",
            "feed_forward": "mlp",
            "qkv_bias": True,
            "o_bias": True,
            "mlp_bias": True,
            "positions": draw("positions", ("sinusoidal", "learned", "none")),
            "d_model": heads * 2 * draw("half of head_dim", (1, 2)),
        }
    else:
        mlp, head_dim = draw("mlp", (False, True)), draw("head_dim", (None, 2, 4))
        given |= {
            "norm": draw("norm", ("rms", "layer")),
            "feed_forward": "mlp" if mlp else "swiglu",
            "head_dim": head_dim,
            "mlp_bias": mlp and draw("mlp_bias", (False, True)),
            "qkv_bias": draw("qkv_bias", (False, True)),
            "o_bias": draw("o_bias", (False, True)),
            "qk_norm": draw("qk_norm", (False, True)),
            "positions": draw("positions", ("rope", "learned", "sinusoidal", "none")),
            "d_model": draw("d_model", (2, 6, 10)) if head_dim else heads * draw("d_model / heads", (2, 4)),
            "kv_heads": draw("kv_heads", (None, 1, heads)),
        }
        if given["causal"] and draw("with windows", (False, True)):
            given["windows"] = draw(
                "windows", st.lists(st.sampled_from([None, 1, 2, 3, 5]), min_size=layers, max_size=layers)
            )
        if given["positions"] == "rope" and draw("scaled", (False, False, True)):
            given["rope_scaling"] = draw(
                "rope_scaling",
                (
                    {"rope_type": "linear", "factor": 2.0},
                    {"rope_type": "yarn", "factor": 4.0},
                    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
                ),
            )
    return impl.ModelConfig(**given)


def ids_of(draw, config, label="ids", rows=None, seq=None):
    rows = rows or draw("rows", (1, 2, 3), told=False)
    return draw.ints(label, (rows, draw("seq", (1, 2, 3, 5, 0)) if seq is None else seq), config.vocab_size)


def forward(impl, draw):
    config = a_config(impl, draw)
    model = draw.module(impl.Transformer, config)
    ids = ids_of(draw, config)
    asked = {"mask": draw.mask("mask", (len(ids), config.heads, ids.shape[1], ids.shape[1]))}
    if draw("with positions", (False, True)):
        shape = (ids.shape[1],) if draw("for all rows", (True, False)) else tuple(ids.shape)
        asked["positions"] = draw.ints("positions", shape, config.max_seq_len)
    draw.asked(model, ids, **asked)


def decode(impl, draw):
    config, dtype = a_config(impl, draw, "pre"), draw.dtype()
    model = draw.module(impl.Transformer, config, dtype=dtype)
    rows = draw("rows", (1, 2))
    caches = impl.make_caches(config, rows, draw("capacity", (16, 13)), dtype)
    draw.see("new caches", caches)
    with torch.no_grad():
        for step in range(draw("calls", st.integers(1, 5))):
            seq = draw("seq", (1, 1, 2, 3))
            ids, start = ids_of(draw, config, rows=rows, seq=seq), caches[0].length
            asked = {"mask": draw.mask("mask", (rows, config.heads, seq, start + seq))}
            if draw("with positions", (False, False, True)):
                asked["positions"] = draw.ints("positions", (rows, seq), config.max_seq_len)
            torch.default_generator.manual_seed(step)
            draw.see("logits", model(ids, caches=caches, **asked))
            draw.see("caches", caches)


def make_caches(impl, draw):
    config = a_config(impl, draw, "pre")
    draw.asked(
        impl.make_caches,
        config,
        draw("rows", (1, 2)),
        draw("capacity", (1, 2, 9)),
        draw("dtype", (None, torch.bfloat16)),
    )


def make_block(impl, draw):
    config = a_config(impl, draw)
    torch.default_generator.manual_seed(0)
    draw.see("block", impl.make_block(config, draw("layer", st.integers(0, config.layers - 1)), impl.make_rope(config)))


def encoder_decoder(impl, draw):
    config = a_config(impl, draw, "post")
    model = draw.module(impl.EncoderDecoder, config)
    source, target = ids_of(draw, config, "source"), ids_of(draw, config, "target")
    target = target[:1].expand(len(source), -1).contiguous()
    seen = draw.mask("source_mask", (len(source), 1, 1, source.shape[1]))
    mask = draw.mask("target_mask", (len(source), config.heads, target.shape[1], target.shape[1]))
    draw.asked(model, source, target, seen, mask)
    draw.see(
        "one matrix",
        [
            model.unembedding.weight is model.source_embedding.weight,
            model.target_embedding.weight is model.source_embedding.weight,
        ],
    )


def counts(impl, draw):
    config = a_config(impl, draw)
    draw.asked(impl.count_parameters, config)
    draw.asked(impl.flops_per_token, config, draw("seq_len", (1, 2, 100)))


def window(impl, draw):
    config = a_config(impl, draw, "pre")
    draw.see("config", config)
    draw.see("windows", [config.window(n) for n in range(config.layers)])
