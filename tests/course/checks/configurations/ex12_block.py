"""What the parts of chapter 12 may be given."""

import torch
from reference.ex03_linear import Linear
from reference.ex04_normalization import LayerNorm, RMSNorm
from reference.ex08_feedforward import MLP, SwiGLU
from reference.ex11_kv_cache import CachedAttention, KVCache


def pre_norm(impl, draw):
    heads, d_model = draw("heads", (1, 2)), 2 * draw("half of d_model", (1, 2, 3))
    norm = draw("norm", ("layer", "rms"))
    make = {"layer": LayerNorm, "rms": RMSNorm}[norm]
    d_model *= heads
    causal = draw("causal", (True, False))

    def block():
        feed = MLP(d_model, 3, "gelu") if draw("mlp", (False, True)) else SwiGLU(d_model, 5)
        options = (draw("dropout", (0.0, 0.3)),) if draw("says dropout", (False, True)) else ()
        return impl.PreNormBlock(
            make(d_model), CachedAttention(d_model, heads, heads, causal=causal), make(d_model), feed, *options
        )

    dtype = draw.dtype()
    module = draw.module(block, dtype=dtype)
    x = draw.tensor("x", (*draw.shape("batch seq"), d_model), dtype)
    asked = {"mask": draw.mask("mask", (x.shape[0], heads, x.shape[1], x.shape[1]))}
    if draw("with positions", (False, True)):
        asked["positions"] = draw.ints("positions", "seq", 9)
    draw.asked(module, x, **asked)
    if causal and x.shape[0]:
        cache = KVCache(x.shape[0], heads, 20, d_model // heads, dtype)
        with torch.no_grad():
            for _ in range(2):
                torch.default_generator.manual_seed(1)
                draw.see("with a cache", module(x.detach(), cache=cache))
                draw.see("the cache", cache)


def post_norm(impl, draw):
    heads = draw("heads", (1, 2, 3))
    d_model = heads * draw("head_dim", (1, 2, 3))
    given = {}
    if draw("with options", (False, True)):
        given = {
            "activation": draw("activation", ("relu", "gelu_tanh", "silu", "gelu")),
            "dropout": draw("dropout", (0.0, 0.3)),
            "norm_eps": draw("norm_eps", (0.1, 1e-5, 0.0)),
        }
    d_ff, dtype = draw.size("d_ff"), draw.dtype()
    x = draw.tensor("x", (*draw.shape("batch seq"), d_model), dtype)
    module = draw.module(impl.PostNormBlock, d_model, heads, d_ff, **given, dtype=dtype)
    mask = draw.mask("mask", (x.shape[0], heads, x.shape[1], x.shape[1]))
    draw.asked(module, x, mask)
    module = draw.module(impl.CrossBlock, d_model, heads, d_ff, **given, dtype=dtype)
    context = draw.tensor("context", (*draw.shape("batch context_seq"), d_model), dtype)
    seen = draw.mask("context_mask", (x.shape[0], heads, x.shape[1], context.shape[1]))
    draw.asked(module, x, context, mask, seen)


def scaled_residual_init(impl, draw):
    model = torch.nn.ModuleDict({name: Linear(3, 2, bias=True) for name in ("o_proj", "down", "up", "o_projector")})
    model["inner"] = torch.nn.ModuleDict({"down": Linear(2, 2), "down2": Linear(2, 2)})
    model["blocks"] = torch.nn.ModuleList([torch.nn.ModuleDict({"o_proj": Linear(2, 2, bias=True)}) for _ in range(2)])
    draw.fill(model)
    draw.see("returns", impl.scaled_residual_init(model, draw("layers", (1, 2, 3, 12))))
    draw.see("model", model)
