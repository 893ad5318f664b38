"""Lesson 18 on other shapes, dtypes and corners."""

import sys

import torch

from grader import devices, dtypes, points, raises, shares_memory

SIZES = {"vocab_size": 13, "d_model": 12, "layers": 3, "heads": 3, "d_ff": 10, "max_seq_len": 9}


def _config(impl, **changes):
    return impl.ModelConfig(**{**SIZES, **changes})


def _model(impl, draw, **changes):
    return draw.fill(impl.Transformer(_config(impl, **changes))).eval()


def test_sizes_of_one(impl, draw):
    """One expert, one choice, one feature and one hidden number are a layer; normalized it is that expert."""
    moe, x = draw.fill(impl.MoE(1, 1, 1, 1)), draw(3, 1)
    return {"y": moe(x), "weights": moe.router(x)[0], "active": impl.count_active(_config(impl), 1, 1, 1),
            "no expert": raises(ValueError, lambda: impl.MoE(4, 4, 0, 1), names="experts"),
            "no width": raises(ValueError, lambda: impl.MoE(4, 0, 2, 1), names="d_ff"),
            "shared -1": raises(ValueError, lambda: impl.MoE(4, 4, 2, 1, shared=-1), names="shared")}


@points(2)
def test_all_experts(impl, draw):
    """per_token may be all experts: then nothing is left out, and the order of ids still holds."""
    moe, x = draw.fill(impl.MoE(6, 5, 4, 4, normalize=False)), draw(2, 7, 6)
    return {"y": moe(x), "ids": moe.router(x)[1]}


@dtypes("bfloat16", "float16")
def test_bias_is_not_cast(impl, draw, dtype):
    """The bias stays in float32 when the module is cast, and small updates are not rounded away."""
    moe = draw.fill(impl.MoE(6, 5, 4, 2, bias=True)).to(dtype)
    moe.router.bias += 1
    for _ in range(3):
        impl.update_bias(moe.router, draw.ints(4, 3, 2))
    return {"bias": moe.router.bias, "weight": str(moe.router.weight.dtype)}


@points(2)
def test_turned_inputs(impl, draw):
    """Views whose memory lies in another order mean the same: x, ids, masks and logits."""
    moe, x = draw.fill(impl.MoE(6, 5, 4, 2, shared=1)), draw(5, 3, 6).transpose(0, 1)
    mask, logits = draw.ints(2, 5, 3).bool().T, draw(4, 5, 3).permute(2, 1, 0)
    ids = logits.topk(2).indices.transpose(0, 1).contiguous().transpose(0, 1)
    return {"y": moe(x), "load": impl.expert_load(ids, 4, mask), "capacity": impl.capacity_mask(ids, 4, 2, mask),
            "balance": impl.load_balancing_loss(logits, 2, mask), "z": impl.router_z_loss(logits, mask)}


def test_inputs_are_left_alone(impl, draw):
    """Logits, ids and masks are read and not written, and convert copies no tensor."""
    logits, ids, mask = draw(3, 4, 5), draw.ints(5, 3, 4, 2), draw.ints(2, 3, 4).bool()
    impl.load_balancing_loss(logits, 2, mask)
    impl.router_z_loss(logits, mask)
    impl.capacity_mask(ids, 5, 2, mask)
    w, v = draw(3, 3), draw(2, 3)
    one = impl.convert_mixtral({"model.layers.0.block_sparse_moe.experts.0.w1.weight": w})
    other = impl.convert_qwen3_moe({"model.layers.0.mlp.experts.0.up_proj.weight": v, "other.thing": w})
    return {"z": impl.router_z_loss(logits), "changed": draw.changed(), "shared": shares_memory(*one.values(), w),
            "names": [*one, *other], "shared, Qwen3": shares_memory(next(iter(other.values())), v)}



def test_losses_of_any_rank(impl, draw):
    """One token or several layers at once, with a mask of (batch, seq) for all layers."""
    logits, mask = draw(3, 2, 5, 4), draw.ints(2, 2, 5).bool() | torch.eye(2, 5, dtype=bool, device=draw.device)
    said = {"layers": impl.load_balancing_loss(logits, 2, mask), "layers, z": impl.router_z_loss(logits, mask),
            "one": impl.load_balancing_loss(logits[0, 0, 0], 1), "one, z": impl.router_z_loss(logits[0, 0, 0])}
    for k in (0, 5):
        said[f"per_token {k}"] = raises(ValueError, lambda: impl.load_balancing_loss(logits, k), names="per_token")
    short = mask[:, :4]
    return said | {
        "mask": raises(ValueError, lambda: impl.load_balancing_loss(logits, 2, short), names="mask"),
        "mask, z": raises(ValueError, lambda: impl.router_z_loss(logits, short), names="mask")}



def test_no_gradient_through_the_bias(impl, draw):
    """The bias is no parameter: it asks for no gradient, before and after an update."""
    moe = draw.fill(impl.MoE(6, 5, 4, 2, bias=True))
    moe(draw(9, 6)).sum().backward()
    impl.update_bias(moe.router, draw.ints(4, 9, 2))
    return [moe.router.bias, moe.router.bias.requires_grad, "router.bias" in dict(moe.named_parameters())]


@points(2)
def test_cached_decoding(impl, draw):
    """A model with experts decodes token by token through its caches, as it does at once."""
    model = _model(impl, draw, kv_heads=1)
    draw.fill(impl.with_experts(model, 5, 2, d_ff=4, shared=1, normalize=False))
    make_caches = sys.modules[impl.Transformer.__module__].make_caches      # lesson 13's own
    ids, caches = draw.ints(13, 2, 6), make_caches(model.config, 2, 6, dtype=draw.float, device=draw.device)
    with torch.no_grad():
        return [model(part, caches=caches) for part in ids.split((3, 1, 2), dim=1)]



@points(2)
def test_upcycled_weights_are_their_own(impl, draw):
    """Upcycled experts share no memory with each other, and layers none with layers."""
    model = impl.with_experts(_model(impl, draw), 3 + int(draw.ints(9)), 2)
    storages = {p.untyped_storage().data_ptr() for p in model.parameters()}
    return {"storages": len(storages), "parameters": len(list(model.parameters())),
            "routers differ": bool((model.blocks[0].feed_forward.router.weight
                                    != model.blocks[1].feed_forward.router.weight).any())}


def test_layers_as_any_iterable(impl, draw):
    """layers may be a tuple, a range or a generator, in any order; none at all is none."""
    said = {}
    one = int(draw.ints(3))
    for name, layers in (("tuple", (2, 0)), ("range", range(one, 3)), ("generator", (n for n in [one])), ("none", ())):
        model = impl.with_experts(_model(impl, draw), 2, 1, d_ff=3, layers=layers)
        said[name] = [isinstance(block.feed_forward, impl.MoE) for block in model.blocks]
    return said | {"counted": impl.count_active(_config(impl), 4 + int(draw.ints(9)), 1, 3, layers=(n for n in [1])),
                   "none counted": impl.count_active(_config(impl), 4, 1, 3, layers=[])}


def test_counts_that_are_refused(impl, draw):
    """count_active refuses what with_experts refuses, by the same names."""
    def refused(name, *sizes, **options):
        return raises(ValueError, lambda: impl.count_active(_config(impl), *sizes, **options), names=name)

    return {f"past the edge by {n}": {
        "experts": refused("experts", -n, 1, 4), "per_token": refused("per_token", 3, -n, 4),
        "too many per_token": refused("per_token", 3, 4 + n, 4), "d_ff": refused("d_ff", 3, 1, -n),
        "shared": refused("shared", 3, 1, 4, shared=-1 - n),
        "shared without d_ff": [refused("shared", 3, 1, shared=shared) for shared in (1 + n, -1 - n)],
        "layers": [refused("layers", 3, 1, layers=[layer]) for layer in (-1 - n, 3 + n)]}
        for n in (0, 1 + int(draw.ints(9)))}


@points(2)
def test_counts_are_the_models(impl, draw):
    """count_active's total is the size of the model that with_experts makes, of any kind."""
    said, experts = {}, 4 + int(draw.ints(5))
    post = {"norm": "layer", "norm_position": "post", "feed_forward": "mlp", "positions": "learned",
            "qkv_bias": True, "o_bias": True, "mlp_bias": True, "tie_embeddings": True}
    for name, kind in (("SwiGLU", {}), ("post-norm", post), ("MLP", {"feed_forward": "mlp"})):
        for d_ff, shared in ((None, 0), (7, 2)):
            config = _config(impl, **kind)
            model = impl.with_experts(impl.Transformer(config), experts, 3, d_ff, shared, layers=[0, 2])
            said[f"{name}, d_ff={d_ff}"] = [sum(p.numel() for p in model.parameters()),
                                            *impl.count_active(config, experts, 3, d_ff, shared, [0, 2])]
    return said


@devices("cpu")
def test_same_seed_same_model(impl, draw):
    """Two models made with one seed are the same, and a forward pass draws no random number."""
    said = []
    for _ in range(2):
        torch.manual_seed(draw.seed)
        model = impl.with_experts(impl.Transformer(_config(impl)), 3, 2, d_ff=4)
        state = torch.get_rng_state()
        logits = model(torch.arange(6)[None])
        said += [bool(torch.equal(state, torch.get_rng_state())), logits]
    return bool(torch.equal(said[1], said[3])), said[0], said[2]
