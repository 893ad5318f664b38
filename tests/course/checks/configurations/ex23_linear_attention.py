"""What the parts of chapter 23 may be given."""

import torch
from hypothesis import strategies as st
from reference import ex13_transformer

PLAIN = ("normal", "zeros", "whole", "small")
CHUNKS = (64, 1, 2, 3, 5)


def qkv(draw):
    """q, k and v, keys of length 1 at most: longer ones make every state grow past its numbers."""
    q, k = (draw.tensor(name, "*batch seq head_dim", kinds=PLAIN) for name in "qk")
    k = (k.detach() / k.detach().double().norm(dim=-1, keepdim=True).clamp(min=1)).to(k.dtype)
    return q, k.requires_grad_(draw("keys learn", (True, False), told=False)), draw.tensor(
        "v", "*batch seq value_dim", kinds=PLAIN
    )


def gate(draw, name, axes="*batch seq"):
    """Numbers in 0 … 1 for beta; for log_decay in −4 … 0."""
    x = draw.tensor(name, axes, kinds=("normal", "zeros"), grad=False)
    x = x.sigmoid() if name == "beta" else -x.abs()
    return x.detach().requires_grad_(draw(f"{name} learns", (True, False), told=False))


def asked(draw, rule, *gates):
    given = {}
    if draw("from a state", (False, True)):
        given["state"] = draw.tensor("state", "*batch head_dim value_dim", kinds=PLAIN)
    if rule.__name__.startswith("chunk") and draw("with chunk", (True, False)):
        given["chunk"] = draw("chunk", CHUNKS)
    draw.asked(rule, *qkv(draw), *gates, **given)


def linear(impl, draw):
    rules = ("linear_attention", "recurrent_linear_attention", "chunk_linear_attention")
    asked(draw, getattr(impl, draw("rule", rules)))


def decayed(impl, draw):
    asked(draw, impl.decayed_linear_attention, gate(draw, "log_decay"))


def delta(impl, draw):
    asked(draw, getattr(impl, draw("rule", ("delta_rule", "chunk_delta_rule"))), gate(draw, "beta"))


def gated(impl, draw):
    rule = getattr(impl, draw("rule", ("gated_delta_rule", "chunk_gated_delta_rule")))
    asked(draw, rule, gate(draw, "beta"), gate(draw, "log_decay"))


def kimi(impl, draw):
    asked(draw, impl.kimi_delta_rule, gate(draw, "beta"), gate(draw, "log_decay", "*batch seq head_dim"))


def convolution(impl, draw):
    batch, seq, channels = (draw.size(name) for name in ("batch", "seq", "channels"))
    width = draw("width", (4, 1, 2, 3))
    x, weight = draw.tensor("x", (batch, seq, channels)), draw.tensor("weight", (channels, width))
    given = {}
    if draw("with inputs", (False, True)):
        given["inputs"] = draw.tensor("inputs", (batch, width - 1, channels))
    draw.asked(impl.short_convolution, x, weight, **given)


def parts(impl, draw):
    draw.asked(impl.l2_normalize, draw.tensor("x", "*batch features"))
    norm = draw.module(impl.GatedRMSNorm, draw.size("features", (1, 2, 3, 8)))
    dtype = norm.weight.dtype
    draw.asked(norm, draw.tensor("x", "*batch features", dtype), draw.tensor("gate", "*batch features"))


def cache(impl, draw):
    sizes = [draw(name, (1, 2, 3)) for name in ("batch", "heads", "head_dim", "value_dim", "channels")]
    batch, heads, head_dim, value_dim, channels = sizes
    width = draw("conv_width", (4, 1, 2))
    cache = impl.StateCache(*sizes, width, draw("dtype", (None, torch.float32, torch.bfloat16, torch.float64)))
    draw.see("new", cache)
    kept = []
    for _ in range(draw("steps", st.integers(1, 6))):
        how = draw("do", ("update", "update", "copy", "reset", "rewind"))
        if how == "copy":
            kept.append(cache.copy())
        elif how == "reset":
            cache.reset()
        elif how == "rewind":
            cache.rewind(0)
        else:
            state = draw.tensor("state", (batch, heads, head_dim, value_dim), cache.state.dtype, grad=False)
            inputs = draw.tensor("inputs", (batch, width - 1, channels), cache.inputs.dtype, grad=False)
            cache.update(state, inputs, draw("n", (1, 0, 5)))
            draw.see("memory of inputs", cache.inputs, [inputs])
        draw.see("cache", cache)
    draw.see("copies", kept)


def layer(impl, draw):
    d_model, heads, head_dim = draw("d_model", (4, 1, 6)), draw("heads", (1, 2)), draw("head_dim", (2, 1, 4))
    given = {}
    if draw("other values", (False, True)):
        given = {"value_heads": heads * draw("groups", (1, 2)), "value_dim": draw("value_dim", (3, 1))}
    for name, values in {"conv_width": (1, 2, 4), "norm_eps": (0.1, 1e-6), "chunk": (1, 3)}.items():
        if draw(f"with {name}", (False, True)):
            given[name] = draw(name, values)
    dtype = draw.dtype()
    module = draw.module(impl.GatedDeltaNet, d_model, heads, head_dim, dtype=dtype, **given)
    batch = draw("batch", (1, 2))
    draw.asked(module.gates, draw.tensor("x", (batch, 3, d_model), dtype, kinds=PLAIN))
    cache = module.make_cache(batch)
    with torch.no_grad():
        for _ in range(draw("calls", st.integers(1, 4))):
            x = draw.tensor("x", (batch, draw("seq", (1, 1, 2, 3, 5, 0)), d_model), dtype, kinds=PLAIN, grad=False)
            mask = draw.mask("mask", (batch, 1, 1, cache.length + x.shape[1]))
            draw.see("answer", module(x, mask=mask, cache=cache), [x])
            draw.see("given", [x, mask])
            draw.see("cache", cache)
    x = draw.tensor("x", (batch, draw("seq", (1, 2, 4)), d_model), dtype, kinds=PLAIN)
    draw.asked(module, x, draw.mask("mask", (batch, 1, 1, x.shape[1])))


def model(impl, draw):
    kv_heads = draw("kv_heads", (1, 2))
    config = ex13_transformer.ModelConfig(
        vocab_size=7, d_model=6, layers=draw("layers", (1, 2, 4, 5)), heads=2, kv_heads=kv_heads,
        head_dim=draw("head_dim", (2, 4)), d_ff=5, max_seq_len=16, norm_eps=draw("norm_eps", (1e-5, 0.1)),
        windows=None, positions=draw("positions", ("rope", "none")))
    model = draw.module(ex13_transformer.Transformer, config)
    if draw("one part trains", (False, True)):
        model.blocks[-1].attention.train(not model.training)
    given = {"every": draw("every", (4, 1, 2, 9))} if draw("with every", (False, True)) else {}
    if draw("with sizes", (False, True)):
        given |= {"heads": 1, "value_dim": 3}
    torch.default_generator.manual_seed(0)
    draw.see("the same model", impl.with_linear_layers(model, **given) is model)
    draw.see("model", model)
    batch, seq = draw("batch", (1, 2)), 6
    caches = ex13_transformer.make_caches(config, batch, seq, next(model.parameters()).dtype)
    before = list(caches)
    if draw("fit first", (False, True)):
        draw.see("the same list", impl.fit_caches(model, caches, batch) is caches)
        draw.see("kept", [a is b for a, b in zip(before, caches)])
    ids = draw.ints("ids", (batch, seq), 7, dtypes=(torch.int64,))
    with torch.no_grad():
        for part in ids.split(draw("pieces", ([6], [3, 1, 1, 1], [1, 5])), dim=1):
            draw.see("logits", model(part, caches=caches))
        draw.see("caches", [cache for cache in caches if isinstance(cache, impl.StateCache)])
    draw.asked(model, ids)
