"""What the parts of chapter 18 may be given."""

import torch
from hypothesis import strategies as st
from reference import ex13_transformer

from tests.course.checks.configurations.ex13_transformer import a_config


def routing_of(draw, experts):
    given = {}
    for name, values in {
        "score": ("softmax", "sigmoid"),
        "normalize": (True, False),
        "scale": (1.0, 2.5, 0.1),
        "bias": (True, False),
    }.items():
        if draw(f"with {name}", (False, True)):
            given[name] = draw(name, values)
    if draw("with groups", (False, True)):
        given["groups"] = draw("groups", (1, 2, 3))
        given["kept_groups"] = draw("kept_groups", (1, 2, 3))
    return given


def spread_bias(draw, router):
    if router.bias is not None:
        router.bias.copy_(
            draw.tensor("bias", tuple(router.bias.shape), torch.float32, ("normal", "zeros", "large"), grad=False)
        )


def nearly_nothing(router, x):
    """Whether a token's chosen scores are next to 0 together: what division by their sum makes of that is left open."""
    normalize, router.normalize = router.normalize, False
    with torch.no_grad():
        total = router(x)[0].sum(-1) / router.scale
    router.normalize = normalize
    return normalize and bool(((total > 0) & (total < 1e-12)).any())


def router(impl, draw):
    experts, d_model = draw("experts", (1, 2, 3, 4, 6, 8)), draw.size("d_model")
    router = draw.module(impl.Router, d_model, experts, draw("per_token", (1, 2, 3, 4)), **routing_of(draw, experts))
    spread_bias(draw, router)
    x = draw.tensor("x", "*batch d_model")
    draw.asked(router.logits, x)
    if not nearly_nothing(router, x):
        draw.asked(router, x)
    ids = draw.ints("ids", "*batch per_token", experts, dtypes=(torch.int64,))
    given = {"rate": draw("rate", (0.001, 1.0, 0.0))} if draw("with rate", (False, True)) else {}
    if router.bias is not None:
        draw.asked(impl.update_bias, router, ids, mask=draw.mask("mask", tuple(ids.shape[:-1])), **given)
    draw.see("router", router)


def moe(impl, draw):
    experts, d_model, dtype = draw("experts", (1, 2, 3, 4, 6)), draw.size("d_model"), draw.dtype()
    moe = draw.module(
        impl.MoE,
        d_model,
        draw.size("d_ff"),
        experts,
        draw("per_token", (1, 2, 3)),
        *((draw("shared", (1, 2, 0)),) if draw("with shared", (False, True)) else ()),
        dtype=dtype,
        **routing_of(draw, experts),
    )
    spread_bias(draw, moe.router)
    tokens = []
    for expert in moe.experts:
        expert.register_forward_pre_hook(lambda _, x: tokens.append(x[0].detach().clone()))
    x = draw.tensor("x", "*batch d_model", dtype)
    if nearly_nothing(moe.router, x):
        return
    draw.asked(moe, x)
    draw.see("what experts computed", tokens)


def loads(impl, draw):
    experts = draw("experts", (1, 2, 3, 5))
    ids = draw.ints("ids", "*batch per_token", experts, dtypes=(torch.int64, torch.int32))
    mask = draw.mask("mask", tuple(ids.shape[:-1]))
    draw.asked(impl.expert_load, ids, experts, mask)
    draw.asked(impl.expert_load, ids, experts)
    ids = ids.long()
    draw.asked(impl.capacity_mask, ids, experts, draw("capacity", (1, 2, 3, 9)), mask)
    draw.asked(impl.capacity_mask, ids, experts, draw("capacity", (1, 2, 3, 9)))


def losses(impl, draw):
    logits = draw.tensor("logits", "*batch experts")
    mask = draw.mask("mask", tuple(logits.shape[:-1]))
    draw.asked(impl.load_balancing_loss, logits, draw("per_token", (1, 2, 3)), mask)
    draw.asked(impl.router_z_loss, logits, mask)
    draw.asked(impl.router_z_loss, logits)


def arguments_of(draw, config):
    experts = draw("experts", (1, 2, 3))
    given = {}
    if draw("with d_ff", (False, True)):
        given = {"d_ff": draw("d_ff", (1, 3)), "shared": draw("shared", (0, 1, 2))}
    if draw("with layers", (False, True)):
        given["layers"] = draw("layers", st.lists(st.integers(0, config.layers - 1), max_size=3))
    return experts, draw("per_token", (1, 2)), given


def with_experts(impl, draw):
    config = a_config(ex13_transformer, draw)
    experts, per_token, given = arguments_of(draw, config)
    draw.asked(impl.count_active, config, experts, per_token, **given)
    model = draw.module(ex13_transformer.Transformer, config)
    if draw("one part trains", (False, True)):
        model.blocks[-1].feed_forward.train(not model.training)
    old = list(model.blocks)
    if "layers" in given and draw("an iterator", (False, True)):
        given["layers"] = iter(given["layers"])
    if draw("not normalized", (False, True)):
        given["normalize"] = False
    torch.default_generator.manual_seed(0)
    draw.see("the same model", impl.with_experts(model, experts, per_token, **given) is model)
    draw.see("model", model)
    draw.see("the same blocks", [a is b for a, b in zip(old, model.blocks)])
    memory = [p.untyped_storage().data_ptr() for p in model.parameters()]
    draw.see("memory of their own", len(memory) - len(set(memory)))
    draw.asked(model, draw.ints("ids", (2, 3), config.vocab_size))


QWEN = [
    "model.layers.0.mlp.gate.weight",
    "model.layers.1.mlp.experts.12.gate_proj.weight",
    "model.layers.1.mlp.experts.0.up_proj.weight",
    "model.layers.0.mlp.experts.1.down_proj.weight",
    "model.layers.0.mlp.gate_proj.weight",
    "model.embed_tokens.weight",
    "model.layers.0.self_attn.q_norm.weight",
    "other.w1",
    "model.norm.weight",
]
MIXTRAL = [
    "model.layers.0.block_sparse_moe.gate.weight",
    "model.layers.0.block_sparse_moe.experts.3.w1.weight",
    "model.layers.0.block_sparse_moe.experts.3.w2.weight",
    "model.layers.0.block_sparse_moe.experts.3.w3.weight",
    "model.embed_tokens.weight",
    "other.gate",
    "model.layers.0.self_attn.q_proj.weight",
]


def converters(impl, draw):
    for convert, names in ((impl.convert_qwen3_moe, QWEN), (impl.convert_mixtral, MIXTRAL)):
        names = draw("names", st.lists(st.sampled_from(names), unique=True))
        draw.asked(convert, {name: torch.arange(3.0) + n for n, name in enumerate(names)})
