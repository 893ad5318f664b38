"""What lesson 18 asks of Router, MoE, the balance, with_experts, count_active and the names in files."""

import torch

from grader import devices, dtypes, points, raises, shapes, shares_memory, tolerance
from grader.course.doubles import Operations

FORBIDDEN = {"MoE": {"torch.nn.functional.grouped_mm", "torch._grouped_mm"}}

SIZES = {"vocab_size": 11, "d_model": 8, "layers": 2, "heads": 2, "d_ff": 12, "max_seq_len": 16}
BIASES = {"qkv_bias": True, "o_bias": True, "mlp_bias": True}
GPT2 = {"norm": "layer", "feed_forward": "mlp", "activation": "gelu_tanh", "positions": "learned",
        "tie_embeddings": True, **BIASES}
ENCODER = {**GPT2, "norm_position": "post", "causal": False}
KINDS = {"Llama": {}, "GPT-2": GPT2, "an encoder": ENCODER}


def _config(impl, kind, **changes):
    return impl.ModelConfig(**{**SIZES, **kind, **changes})


def _model(impl, draw, kind, **changes):
    return draw.fill(impl.Transformer(_config(impl, kind, **changes))).eval()


def _shapes(module):
    return shapes(module.state_dict())


def _sizes(draw):
    """d_model, experts, per_token: other ones on every seed."""
    experts = 5 + int(draw.ints(4))
    return 6 + int(draw.ints(5)), experts, 2 + int(draw.ints(2))


def _router(impl, draw, *sizes, **options):
    """A filled router; where it has a bias, one that changes the choice."""
    router = draw.fill(impl.Router(*sizes, **options))
    if router.bias is not None:
        router.bias.copy_((draw.ints(17, sizes[1]) - 8) / 8)        # half precision has these, too
    return router


# -- the router

@points(2)
def test_router_weights(impl, draw):
    """A softmax router gives the per_token largest probabilities, divided by their sum, and their ids.

    Softmax over all experts, then topk, then divide by the sum of what topk kept. The ids stand in
    the order of topk: the largest first.
    """
    d, experts, k = _sizes(draw)
    weights, ids = _router(impl, draw, d, experts, k)(draw(3, 4, d, scale=2.0))
    return {"weights": weights, "ids": ids, "dtype of ids": str(ids.dtype)}


@points(2)
def test_router_without_normalize(impl, draw):
    """With normalize=False the weights are probabilities over all experts, and need not sum to 1.

    Softmax over the chosen alone gives weights that sum to 1: that is what normalize=True means.
    """
    d, experts, k = _sizes(draw)
    weights, ids = _router(impl, draw, d, experts, k, normalize=False)(draw(5, d, scale=2.0))
    return {"weights": weights, "ids": ids}


@points(2)
def test_router_with_sigmoid(impl, draw):
    """A sigmoid router scores each expert by itself; scale multiplies the weights, normalized or not.

    s = sigmoid(x Wᵀ), no softmax. Then choose, gather, divide by the sum where normalize says so,
    and multiply by scale last.
    """
    d, experts, k = _sizes(draw)
    x, said = draw(2, 5, d, scale=2.0), {}
    for normalize in (True, False):
        router = _router(impl, draw, d, experts, k, score="sigmoid", normalize=normalize, scale=2.5)
        said[f"weights, normalize={normalize}"], said["ids"] = router(x)
    return said


@points(2)
def test_router_bias_chooses(impl, draw):
    """The bias takes part in the choice: ids are those of the largest s + bias.

    Add the bias to the scores, and not to the logits, before topk.
    """
    d, experts, k = _sizes(draw)
    x, said = draw(20, d), {}
    for score in ("softmax", "sigmoid"):
        said[score] = _router(impl, draw, d, experts, k, score=score, bias=True)(x)[1]
    return said


@points(2)
def test_router_bias_does_not_weigh(impl, draw):
    """The bias has no part in the weights: they are the scores at ids, without the bias.

    topk of s + bias gives the ids; gather the weights out of s.
    """
    d, experts, k = _sizes(draw)
    x, said = draw(6, d), {}
    for normalize in (True, False):
        router = _router(impl, draw, d, experts, k, score="sigmoid", normalize=normalize, bias=True)
        said[f"weights, normalize={normalize}"] = router(x)[0]
    return said


def test_router_state(impl, draw):
    """A router has one parameter, weight, and the bias is a buffer, if there is one.

    An optimizer must not train the bias, and a checkpoint must hold it: a persistent buffer of
    zeros. register_buffer with None leaves no trace in the state dict.
    """
    said, sizes = {}, _sizes(draw)
    for bias in (True, False):
        router = impl.Router(*sizes, bias=bias)
        said[f"bias={bias}"] = _shapes(router)
        said[f"parameters, bias={bias}"] = [name for name, _ in router.named_parameters()]
    return said | {"zeros": impl.Router(*sizes, bias=True).bias.tolist()}


@tolerance(0.06)
def test_router_start(impl, draw):
    """A router's weight starts as normal numbers with σ = 0.02.

    So all experts start nearly alike. (The answer is the spread of 20,000 numbers, times 100.)
    """
    return 100 * impl.Router(100, 200, 1).weight.detach().std()


@points(2)
@dtypes("bfloat16", "float16", "float32", "float64")
def test_router_precision(impl, draw, dtype):
    """A router computes in at least float32, products too, and gives its weights in it.

    Two experts whose logits differ by less than half precision can hold would be confused. Widen x
    and weight before the product. float64 stays what it is: the given widen(x), where .float() would take digits away.
    """
    router = _router(impl, draw, 16, 6, 2, bias=True, score="sigmoid").to(dtype)
    weights, ids = router(draw(40, 16, scale=2.0).to(dtype))
    return {"weights": weights, "ids": ids, "logits": router.logits(draw(3, 16).to(dtype))}


@points(2)
def test_router_gradients(impl, draw):
    """Gradients reach the router's weight, and x, through the weights of the chosen experts.

    The choice itself has none: ids are whole numbers. What is gathered from the scores keeps the
    way back; .detach(), .data or no_grad cut it.
    """
    d, experts, k = _sizes(draw)
    said = {}
    for name, options in (("normalized", {}), ("not", {"normalize": False}), ("sigmoid", {"score": "sigmoid"})):
        router, x = _router(impl, draw, d, experts, k, **options), draw(60, d).requires_grad_()
        (router(x)[0] * draw(60, k)).sum().backward()
        # as one row: what cancels (an expert that nobody chose) is 0 but for rounding
        said |= {f"weight, {name}": router.weight.grad.flatten(), f"x, {name}": x.grad.flatten()}
    return said


def test_router_refuses(impl, draw):
    """Bad sizes, scores and scales raise a ValueError that names the argument.

    per_token is at least 1 and at most experts; score is "softmax" or "sigmoid"; scale is above 0.
    """
    def refused(name, *sizes, **options):
        return raises(ValueError, lambda: impl.Router(*sizes, **options), names=name)

    (d, n, k), below = _sizes(draw), -1 - int(draw.ints(9))
    said = {}
    for low in (0, below):
        said |= {f"d_model {low}": refused("d_model", low, 4, 2), f"experts {low}": refused("experts", 6, low, 1),
                 f"per_token {low}": refused("per_token", 6, 4, low),
                 f"scale {low / 2}": refused("scale", d, n, k, scale=low / 2)}
    return {**said,
            f"per_token {n + 1} of {n}": refused("per_token", d, n, n + 1),
            "score": refused("score", d, n, k, score="relu"),
            f"x of {d - 1} for {d}": raises(ValueError, lambda: impl.Router(d, n, k)(draw(3, d - 1)), names="x")}


@points(2)
def test_router_groups(impl, draw):
    """Groups are left out before the choice, by score plus bias, and the weights stay those of the scores.

    A group is as good as its two best experts, by score plus bias; hide_groups is given. It goes between
    adding the bias and topk.
    """
    router = draw.fill(impl.Router(7, 12, 3, score="sigmoid", bias=True, scale=2.5, groups=4, kept_groups=2))
    router.bias.copy_(draw(12, scale=0.5))
    weights, ids = router(draw(2, 15, 7))

    def refused(name, **options):
        return raises(ValueError, lambda: impl.Router(7, 12, 3, **options), names=name)

    return {"weights": weights, "ids": ids, "groups of one": refused("groups", groups=12, kept_groups=3),
            "5 groups": refused("groups", groups=5), "too many kept": refused("kept_groups", groups=4, kept_groups=5),
            "too few experts": refused("kept_groups", groups=6, kept_groups=1)}


def test_router_scores_that_vanish(impl, draw):
    """A token whose scores are all 0 gets weights of 0, a huge one finite ones, and no NaN comes of either.

    0 / 0 is NaN. Add something tiny to the sum, such as 1e-20.
    """
    said, (_, experts, k) = {}, _sizes(draw)
    for name, size in (("small", -400.0), ("large", 400.0)):
        router = impl.Router(1, experts, k, score="sigmoid").to(draw.device)
        with torch.no_grad():
            router.weight.fill_(size)
        said[name] = router(torch.ones(2, 1, device=draw.device))[0]
    return said


# -- the layer

@points(3)
def test_moe(impl, draw):
    """An MoE gives each token the weighted sum of what its own experts make of it.

    Whatever order the choices are computed in, each result must get back to its token and meet its
    own weight. Sorting gives a permutation; sorting that permutation gives the way back.
    """
    d, experts, k = _sizes(draw)
    return draw.fill(impl.MoE(d, 7, experts, k))(draw(2, 9, d))


@points(2)
def test_moe_of_any_rank(impl, draw):
    """Any number of batch axes is fine, from a lone token to none at all.

    Take all axes but the last as one row of tokens, and give the result the shape of x.
    """
    d, experts, k = _sizes(draw)
    moe, x = draw.fill(impl.MoE(d, 7, experts, k)), draw(2, 3, 4, d)
    return {"one token": moe(x[0, 0, 0]), "rank 2": moe(x[0, 0]), "rank 4": moe(x), "no token": moe(x[:, :0]).detach()}


def test_moe_state(impl, draw):
    """An MoE holds router, experts.N and, only where there are any, shared.

    nn.ModuleList numbers the experts, SwiGLUs of width d_ff. shared is one SwiGLU of width
    shared · d_ff.
    """
    d, experts, k = _sizes(draw)
    return {f"shared={shared}": _shapes(impl.MoE(d, 5, experts, k, shared=shared)) for shared in (0, 2)}


@points(2)
def test_moe_options(impl, draw):
    """What the MoE is told about routing reaches its router.

    Hand **routing on to Router.
    """
    moe = draw.fill(impl.MoE(6, 5, 4, 2, score="sigmoid", normalize=False, scale=3.0, bias=True))
    moe.router.bias.copy_(draw(4))
    return moe(draw(8, 6))


@points(2)
def test_moe_shared(impl, draw):
    """Every token visits the shared experts, and what they say is added as it is.

    No router weight, no scale and no division touches it.
    """
    moe = draw.fill(impl.MoE(6, 5, 4, 2, shared=2, scale=2.5))
    return moe(draw(3, 4, 6))


@points(2)
def test_moe_uneven_loads(impl, draw):
    """Dropless: all tokens may choose one expert, and an expert may stay without any.

    The bias sends every token to experts 1 and 3 of 6. Count with minlength, or experts at the end
    that nobody chose are missing.
    """
    moe = draw.fill(impl.MoE(6, 5, 6, 2, bias=True))
    moe.router.bias[torch.tensor([1, 3], device=draw.device)] = 10.0
    return moe(draw(12, 6))


@points(2)
@dtypes("bfloat16", "float16", "float32", "float64")
def test_moe_dtype(impl, draw, dtype):
    """y has the dtype of x, though the weights are wider, and is summed in at least float32.

    Leave the weights wide, widen what the experts said, and cast the sum, once. Here one expert says the opposite of
    the other, so what is left is the difference of two weights near 0.5: rounded before, they are the same.
    (Too many roundings lie behind other y in half precision to ask for their digits.)
    """
    n = 5 + int(draw.ints(9))
    y = draw.fill(impl.MoE(8, 6, 5, 2, shared=1)).to(dtype)(draw(n, 8).to(dtype))
    moe, x = draw.fill(impl.MoE(64, 6, 2, 2)), draw(n, 64).to(dtype)
    with torch.no_grad():
        for mine, other in zip(moe.experts[1].parameters(), moe.experts[0].parameters()):
            mine.copy_(other)
        moe.experts[1].down.weight.neg_()
        moe.router.weight.div_(20)
        moe.to(dtype)
        said, left = moe.experts[0](x).to(torch.float64), moe(x).to(torch.float64)
    return {"y": [str(y.dtype), list(y.shape), bool(y.isfinite().all())],
            "of the first expert is left": ((said * left).sum(-1) / said.square().sum(-1)).to(dtype)}


@points(2)
def test_moe_gradients(impl, draw):
    """Gradients reach x, the router, the shared expert, and every expert that was chosen.

    An expert learns from its own visitors alone; the router learns from what its experts said.
    """
    moe, x = draw.fill(impl.MoE(6, 5, 3, 2, shared=1)), draw(2, 10, 6).requires_grad_()
    (moe(x) * draw(2, 10, 6)).sum().backward()
    return {"x": x.grad} | {name: parameter.grad for name, parameter in moe.named_parameters()}


@points(3)
@devices("cpu")
def test_moe_without_a_loop(impl, draw):
    """Four times the tokens take as many operations: nothing loops over tokens.

    A loop over experts is fine. Sort the choices by expert, so that the tokens of one lie side by
    side, and give each expert all of its tokens at once.
    """
    moe, x, operations = draw.fill(impl.MoE(8, 6, 3, 2)), draw(160, 8), []
    with torch.no_grad():
        for tokens in (40, 160):
            with Operations() as operation:
                moe(x[:tokens])
            operations.append(operation.count)
    return {"as many operations": operations[1] <= operations[0] + 8, "y": moe(x[:3]).detach()}


@points(3)
@devices("cpu")
def test_moe_same_work(impl, draw):
    """A token costs per_token experts and the router, however many experts there are.

    An expert that computes all tokens, to be multiplied by 0 afterwards, gives the right numbers at
    the price of a model experts / per_token times as large. (Counted are the products of matrices.)
    """
    x, said = draw(30, 16), {}
    for experts in (3, 12 + int(draw.ints(9))):
        moe = draw.fill(impl.MoE(16, 24, experts, 2))
        with torch.no_grad(), Operations() as operations:
            moe(x)
        chosen = 30 * (16 * experts + 2 * 3 * 16 * 24)
        said[f"{experts} experts"] = operations.multiply_adds <= 1.1 * chosen
    return said


# -- balance

@points(2)
def test_expert_load(impl, draw):
    """expert_load counts all choices of all tokens, an expert at a time, and padding not at all.

    bincount with minlength=experts; mask says which tokens are real.
    """
    ids, mask = draw.ints(6, 3, 5, 2), draw.ints(2, 3, 5).bool()
    return {"all": impl.expert_load(ids, 9), "masked": impl.expert_load(ids, 9, mask),
            "one row's mask": impl.expert_load(ids, 9, mask[0]),
            "nobody": impl.expert_load(ids, 9, torch.zeros_like(mask)),
            "mask that does not fit": raises(ValueError, lambda: impl.expert_load(ids, 9, mask[:, :4]), names="mask")}


@points(2)
def test_load_balancing_loss(impl, draw):
    """The loss is experts · Σ f_i P_i: the share of choices times the mean probability.

    f counts all per_token choices of a token and is divided by the number of tokens; P is the mean
    of softmax(logits) over tokens.
    """
    logits = draw(3, 20, 6, scale=2.0)
    return {f"per_token={k}": impl.load_balancing_loss(logits, k) for k in (1, 2, 6)} | {
        "even": impl.load_balancing_loss(10 * torch.eye(4, device=draw.device, dtype=draw.float), 1)}


@points(2)
def test_load_balancing_loss_gradient(impl, draw):
    """The gradient of the loss flows through P: an expert that many chose becomes less likely.

    Counts are whole numbers and have none, so a loss made of counts alone trains nothing.
    """
    logits = draw(20, 6).requires_grad_()
    impl.load_balancing_loss(logits, 2).backward()
    return logits.grad.flatten()                    # as one row: some tokens' are near 0


@points(2)
def test_losses_without_padding(impl, draw):
    """Padding counts in neither loss, whatever its logits are.

    Leave the rows out; a product with 0 keeps a NaN. Then divide by the number of real tokens.
    """
    logits, mask = draw(3, 5, 6), torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1], [0, 0, 0, 0, 1]],
                                               dtype=torch.bool, device=draw.device)
    logits = logits.masked_fill(~mask[..., None], torch.nan)
    none = torch.zeros_like(mask)
    return {"balance": impl.load_balancing_loss(logits, 2, mask), "z": impl.router_z_loss(logits, mask),
            "no token, balance": raises(ValueError, lambda: impl.load_balancing_loss(logits, 2, none), names="mask"),
            "no token, z": raises(ValueError, lambda: impl.router_z_loss(logits, none), names="mask")}


@points(2)
def test_z_loss(impl, draw):
    """router_z_loss is the mean of logsumexp(logits)², with its gradient.

    Square each token's logsumexp first, then take the mean.
    """
    logits = draw(4, 5, 6, scale=3.0).requires_grad_()
    loss = impl.router_z_loss(logits)
    loss.backward()
    return {"loss": loss, "gradient": logits.grad.flatten()}


@dtypes("bfloat16", "float16", "float32")
def test_losses_are_wide(impl, draw, dtype):
    """Both losses of half-precision logits are computed and returned in float32.

    The given widen(x), before softmax and logsumexp.
    """
    logits = 0.75 * ((torch.arange(8, device=draw.device) + draw.ints(8, 50, 1)) % 8).to(dtype)    # no two alike
    return {"balance": impl.load_balancing_loss(logits, 2), "z": impl.router_z_loss(logits)}


@points(2)
def test_update_bias(impl, draw):
    """update_bias moves every bias by ± rate: down where the load is above the mean, up below it.

    The sign alone counts, and a load that is exactly the mean moves nothing. Change router.bias in
    place.
    """
    router = _router(impl, draw, 6, 5, 2, bias=True)
    before, bias = router.bias.clone(), router.bias
    impl.update_bias(router, draw.ints(4, 30, 2))
    loads = [[0, 1], [2, 3], [0, 4], [4, 1]]                # 2 2 1 1 2, and with one more 3 2 1 2 2
    for rate, ids in ((0.1, loads), (0.03, [*loads, [0, 3]])):
        impl.update_bias(router, torch.tensor(ids, device=draw.device), rate)
    return {"moved by": router.bias - before, "in place": shares_memory(router.bias, bias)}


def test_update_bias_refuses(impl, draw):
    """A router without a bias cannot be balanced by one: ValueError, naming router.

    Ask whether router.bias is None before anything else.
    """
    d, experts, k = _sizes(draw)
    router, other = impl.Router(d, experts, k), impl.Router(d, experts, k, bias=True).to(draw.device)
    impl.update_bias(other, draw.ints(experts, 3, k))
    return {"without": raises(ValueError, lambda: impl.update_bias(router, draw.ints(experts, 3, k)), names="router"),
            "with": other.bias}


@points(2)
def test_capacity(impl, draw):
    """With a capacity each expert takes that many choices, first choices before second ones.

    All tokens' first choices, in the tokens' order, then all second choices. cumsum over a one-hot
    of the choices in this order says how many asked before.
    """
    ids = draw(4, 6, 5).topk(3).indices
    return {f"capacity={n}": impl.capacity_mask(ids, 5, n) for n in (1, 4, 72)} | {
        "one row": impl.capacity_mask(ids[0], 5, 2), "a token": impl.capacity_mask(ids[0, 0], 5, 1),
        "0": raises(ValueError, lambda: impl.capacity_mask(ids, 5, 0), names="capacity")}


def test_capacity_and_padding(impl, draw):
    """Padding takes no room, and its own choices get False.

    Set its rows of the one-hot to 0 before cumsum.
    """
    ids, mask = draw(3, 6, 4).topk(2).indices, draw.ints(2, 3, 6).bool()
    return {"masked": impl.capacity_mask(ids, 4, 3, mask), "one row's mask": impl.capacity_mask(ids, 4, 3, mask[0]),
            "does not fit": raises(ValueError, lambda: impl.capacity_mask(ids, 4, 3, mask[:2]), names="mask")}


@points(2)
def test_update_bias_and_padding(impl, draw):
    """Padding does not count in the load, and a mask that does not fit leaves the bias as it was.

    Hand mask on to expert_load, before the bias is touched.
    """
    router = impl.Router(6, 4, 2, bias=True).to(draw.device)
    mask = torch.tensor([[0, 0, 0, 0, 1], [1, 1, 1, 1, 1], [0, 0, 0, 1, 1]], dtype=torch.bool, device=draw.device)
    ids = draw.ints(3, 3, 5, 2).masked_fill(~mask[..., None], 3)        # padding alone asks for expert 3
    impl.update_bias(router, ids, 0.5, mask)
    said = {"bias": router.bias.clone()}
    said["mask"] = raises(ValueError, lambda: impl.update_bias(router, ids, 0.5, mask[:2]), names="mask")
    return said | {"after": router.bias}


# -- the model

@points(3)
def test_with_experts(impl, draw):
    """with_experts replaces the feed-forward of the layers, and the model runs with its experts.

    Llama, GPT-2 and an encoder alike: block.feed_forward becomes an MoE. The same model is returned.
    """
    ids, said = draw.ints(11, 2, 7), {}
    for name, kind in KINDS.items():
        model = _model(impl, draw, kind)
        same = impl.with_experts(model, 4, 2, d_ff=5, shared=1, score="sigmoid", scale=0.5)
        said[name] = draw.fill(model)(ids).flatten()
        said[f"{name}, the same model"] = same is model
        said[f"{name}, state"] = {n: s for n, s in _shapes(model).items() if "feed_forward" in n}
    return said


@points(2)
def test_with_experts_layers(impl, draw):
    """layers says which layers get experts; the others keep their feed-forward and its weights.

    Real models keep the first layers dense.
    """
    model, layers = _model(impl, draw, {}, layers=6), draw(6).argsort()[:3].tolist()
    kept = [block.feed_forward for block in model.blocks]
    impl.with_experts(model, 3, 1, d_ff=5, layers=layers)
    return [block.feed_forward is old for block, old in zip(model.blocks, kept)]


@points(3)
def test_with_experts_copied(impl, draw):
    """Without d_ff every expert is a copy of the old feed-forward, and the outputs stay as they were.

    Weights that sum to 1 mix equal results. copy.deepcopy makes one expert; each needs its own, or
    they could never drift apart.
    """
    ids, said = draw.ints(11, 2, 7), {}
    for name, kind in KINDS.items():
        model = _model(impl, draw, kind)
        before = model(ids)
        impl.with_experts(model, 3, 2)
        said[name] = model(ids)
        said[f"{name}, unchanged"] = bool((said[name] - before).abs().max() < 1e-4)
        said[f"{name}, parameters"] = sum(p.numel() for p in model.parameters())
    return said


@tolerance(0.06)
def test_with_experts_start(impl, draw):
    """New experts start as lesson 13 starts a SwiGLU: σ = 0.02, and `down` divided by √(2L) in pre-norm.

    SwiGLU's own start is lesson 03's. Draw each Linear's weight anew, then scaled_residual_init
    with the model's number of layers. (The answers are spreads, times 100.)
    """
    said = {}
    for name, kind in KINDS.items():
        model = _model(impl, draw, kind, d_model=64, head_dim=None)
        impl.with_experts(model, 4, 2, d_ff=64, shared=1, layers=[1])
        for part in ("gate", "down"):
            found = [p for n, p in model.named_parameters() if "feed_forward.experts" in n and f"{part}.w" in n]
            said[f"{name}, {part}"] = 100 * torch.cat([p.flatten() for p in found]).std()
            said[f"{name}, shared {part}"] = 100 * getattr(model.blocks[1].feed_forward.shared, part).weight.std()
    return said


@points(2)
def test_with_experts_refuses(impl, draw):
    """with_experts names what does not fit, and then leaves the model as it was.

    Make all layers' experts first, and put them in when none has been refused. Layers that have
    experts already are refused too.
    """
    model = _model(impl, draw, {}, layers=3)
    impl.with_experts(model, 3, 1, d_ff=5, layers=[2])
    before = [id(block.feed_forward) for block in model.blocks]

    def refused(name, *sizes, **options):
        return raises(ValueError, lambda: impl.with_experts(model, *sizes, **options), names=name)

    said = {"has experts": refused("layers", 4, 2, d_ff=5)}
    for n in (1, 2 + int(draw.ints(9))):
        said |= {f"layer {2 + n} of 3": refused("layers", 4, 2, d_ff=5, layers=[0, 2 + n]),
                 f"layer {-n}": refused("layers", 4, 2, layers=[-n]),
                 f"per_token {4 + n} of 4": refused("per_token", 4, 4 + n, layers=[0]),
                 f"d_ff {1 - n}": refused("d_ff", 4, 2, d_ff=1 - n, layers=[0]),
                 f"shared {n}": refused("shared", 4, 2, shared=n, layers=[0]),
                 f"shared {-n}": refused("shared", 4, 2, d_ff=5, shared=-n, layers=[0])}
    return said | {"as it was": before == [id(block.feed_forward) for block in model.blocks]}


def test_with_experts_where(impl, draw):
    """New parts have the dtype, the device and the mode of what they replace.

    Look at a parameter of the old feed-forward, and at its `training`.
    """
    said, wide = {}, 3 + int(draw.ints(9))
    for d_ff in (None, wide):
        model = _model(impl, draw, {}).to(torch.bfloat16)
        impl.with_experts(model, 3, 2, d_ff=d_ff)
        said[f"dtypes, d_ff={d_ff}"] = sorted({str(p.dtype) for p in model.parameters()})
        said[f"training, d_ff={d_ff}"] = any(part.training for part in model.modules())
        meta = impl.Transformer(_config(impl, {})).to("meta")
        impl.with_experts(meta, 3, 2, d_ff=d_ff, bias=True)
        said[f"devices, d_ff={d_ff}"] = sorted({t.device.type for t in meta.state_dict().values()})
        said[f"training, kept, d_ff={d_ff}"] = all(part.training for part in meta.modules())
    return said


@points(2)
def test_count_active(impl, draw):
    """count_active is what one token meets, and all that there is: (active, total).

    Everything but the experts that were not chosen: attention, embeddings and router count in full.
    The feed-forward that the experts replaced is gone.
    """
    mixtral = impl.ModelConfig(vocab_size=32_000, d_model=4096, layers=32, heads=32, kv_heads=8, d_ff=14_336,
                               max_seq_len=32_768)
    small, five, gpt2 = _config(impl, {}), _config(impl, {}, layers=5), _config(impl, GPT2)
    _, experts, k = _sizes(draw)
    return {"Mixtral 8x7B": impl.count_active(mixtral, 8, 2, 14_336),
            "shared, two layers": impl.count_active(five, experts, k, 7, shared=2, layers=[1, 4]),
            "upcycled MLP": impl.count_active(gpt2, experts, k),
            "upcycled SwiGLU": impl.count_active(small, experts, 1),
            "per_token": raises(ValueError, lambda: impl.count_active(small, 4, 5, 7), names="per_token"),
            "layers": raises(ValueError, lambda: impl.count_active(small, 4, 2, 7, layers=[2]), names="layers")}


# -- files

QWEN3_MOE = [
    "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight", "model.layers.0.mlp.gate_proj.weight",
    "model.layers.0.mlp.down_proj.weight", "model.layers.1.mlp.gate.weight", "model.layers.1.self_attn.q_norm.weight",
    "model.layers.1.mlp.experts.11.gate_proj.weight", "model.layers.1.mlp.experts.0.up_proj.weight",
    "model.layers.1.mlp.experts.0.down_proj.weight", "model.layers.1.post_attention_layernorm.weight"]
MIXTRAL = [
    "model.embed_tokens.weight", "model.layers.0.self_attn.o_proj.weight",
    "model.layers.0.block_sparse_moe.gate.weight", "model.layers.0.block_sparse_moe.experts.7.w1.weight",
    "model.layers.0.block_sparse_moe.experts.7.w2.weight", "model.layers.0.block_sparse_moe.experts.7.w3.weight"]


@points(2)
def test_convert_qwen3(impl, draw):
    """convert_qwen3_moe: Qwen3's names, mlp.gate is the router, mlp.experts.N are the experts.

    convert_qwen3 does all but the experts; rename the rest. Layers without experts have Qwen3's
    own gate_proj, up_proj and down_proj.
    """
    state = {name: draw(n + 1) for n, name in enumerate(QWEN3_MOE)}
    return impl.convert_qwen3_moe(state)


@points(2)
def test_convert_mixtral(impl, draw):
    """convert_mixtral: w1 is gate, w3 is up and w2 is down; block_sparse_moe.gate is the router.

    The order of the numbers is not the order of use: w2(silu(w1 x) ⊙ w3 x).
    """
    state = {name: draw(n + 1) for n, name in enumerate(MIXTRAL)}
    return impl.convert_mixtral(state)
