"""Lesson 23 on other shapes, dtypes and corners."""

import sys

import torch

from grader import accepts, devices, dtypes, points, raises, shares_memory
from grader.course.modes import default_dtype

SIZES = {"vocab_size": 13, "d_model": 12, "layers": 3, "heads": 3, "kv_heads": 3, "d_ff": 10, "max_seq_len": 20,
         "norm_eps": 0.1}
RULES = {"linear_attention": 0, "recurrent_linear_attention": 0, "chunk_linear_attention": 0, "delta_rule": 1,
         "chunk_delta_rule": 1, "decayed_linear_attention": 2, "gated_delta_rule": 3, "chunk_gated_delta_rule": 3,
         "kimi_delta_rule": 4}


def inputs_of(draw, name, seq, head_dim=3, value_dim=5, batch=(2, 1)):
    """What the rule of this name takes: q, k, v, and beta, log_decay or both."""
    k = draw(*batch, seq, head_dim)
    beta, log_decay = draw.uniform(*batch, seq), -draw.uniform(*batch, seq)
    gates = ((), (beta,), (log_decay,), (beta, log_decay), (beta, -draw.uniform(*batch, seq, head_dim)))[RULES[name]]
    return draw(*batch, seq, head_dim), k / k.norm(dim=-1, keepdim=True), draw(*batch, seq, value_dim), *gates


def rows(answer):
    """Each tensor as one row, and its shape: of little numbers beside large ones nothing but rounding may be left."""
    return [[list(x.shape), x.flatten()] for x in answer]


def model_of(impl, draw, every=2, sizes=None, **changes):
    config = sys.modules[impl.Transformer.__module__].ModelConfig(**SIZES | changes)
    return draw.fill(impl.with_linear_layers(impl.Transformer(config), every, **(sizes or {}))).eval()


def caches_of(impl, model, draw, batch, capacity):
    return sys.modules[impl.Transformer.__module__].make_caches(
        model.config, batch, capacity, dtype=draw.float, device=draw.device)


@points(2)
def test_any_batch(impl, draw):
    """No batch axes, one, three, or a batch of none: every rule takes them as they come."""
    said = {}
    for name in RULES:
        rule = getattr(impl, name)
        said[name] = {str(batch): rows(rule(*inputs_of(draw, name, 4, batch=batch)))
                      for batch in ((), (3,), (2, 1, 2), (0, 2))}
    return said


@points(2)
def test_no_token_and_one(impl, draw):
    """No token gives no output and leaves the state; one token is a text, too."""
    said, state = {}, draw(2, 1, 3, 5)
    for name in RULES:
        rule = getattr(impl, name)
        said[name] = [rows(rule(*inputs_of(draw, name, seq), **given))
                      for seq in (0, 1) for given in ({}, {"state": state})]
    return said


@points(2)
def test_sizes(impl, draw):
    """Features of 1 and more features than tokens; as many features in v as in k."""
    return {name: [rows(getattr(impl, name)(*inputs_of(draw, name, 5, *sizes)))
                   for sizes in ((1, 4), (6, 1), (7, 7), (5, 5))]
            for name in RULES}


def test_arguments_are_left_alone(impl, draw):
    """What is handed in is not written into, the state neither, and no answer shares its memory."""
    said = {}
    for name in RULES:
        inputs, state = inputs_of(draw, name, 4), draw(2, 1, 3, 5)
        out, new = getattr(impl, name)(*inputs, state=state)
        shared = any(shares_memory(x, y) for x in (out, new) for y in (*inputs, state))
        said[name] = [*rows((out.clone(), new.clone())), shared]
        out.fill_(7.0), new.fill_(7.0)
        said[f"{name}, again"] = rows(getattr(impl, name)(*inputs, state=state))
    x, weight, before = draw(2, 4, 3), draw(3, 3), draw(2, 2, 3)
    y, kept = impl.short_convolution(x, weight, before)
    said["convolution"] = [y, kept, shares_memory(y, x), shares_memory(kept, x)]
    return said | {"changed": draw.changed()}


def test_turned_inputs(impl, draw):
    """Views whose memory lies in another order mean the same: (batch, seq, heads, …), turned."""
    said = {}
    for name in RULES:
        turned = [x.transpose(0, 1).contiguous().transpose(0, 1) if x.ndim > 2 else x
                  for x in inputs_of(draw, name, 5, batch=(2, 3))]
        said[name] = rows(getattr(impl, name)(*(x.transpose(1, 2).contiguous().transpose(1, 2) for x in turned)))
    said["convolution"] = impl.short_convolution(draw(6, 2, 3).transpose(0, 1), draw(4, 3).T)
    return said


@points(2)
def test_gates_at_their_ends(impl, draw):
    """β of 0 writes nothing, β of 1 all of it; a log_decay of 0 fades nothing, one of −200 leaves nothing."""
    said = {}
    for name in ("gated_delta_rule", "chunk_gated_delta_rule"):
        q, k, v, beta, log_decay = inputs_of(draw, name, 6)
        for b in (0.0, 1.0):
            for g in (0.0, -200.0):
                said[f"{name}, {b}, {g}"] = rows(getattr(impl, name)(
                    q, k, v, torch.full_like(beta, b), torch.full_like(log_decay, g), draw(2, 1, 3, 5)))
    return said


@points(2)
def test_many_chunks(impl, draw):
    """Fifty tokens in chunks of 7 and of 16: long enough for an error of a chunk's edge to add up."""
    said = {}
    for name in ("chunk_linear_attention", "chunk_delta_rule", "chunk_gated_delta_rule"):
        inputs = inputs_of(draw, name, 50, head_dim=8)
        # as one row: a token may have next to nothing to say, and its rounding on top of it
        said[name] = [[x.flatten() for x in getattr(impl, name)(*inputs, chunk=chunk)] for chunk in (7, 16)]
    return said


def test_default_chunk(impl, draw):
    """Left out, a chunk has 64 tokens, and 70 are two chunks."""
    return {name: [x.flatten() for x in getattr(impl, name)(*inputs_of(draw, name, 70, 2, 2, batch=(1, 1)))]
            for name in ("chunk_linear_attention", "chunk_delta_rule", "chunk_gated_delta_rule")}


@dtypes("bfloat16", "float16")
@points(2)
def test_mixed_precision(impl, draw, dtype):
    """q in half precision and the rest in float32: out is as q is, the state as the widest, at least float32."""
    said, state = {}, draw(2, 1, 3, 5).to(dtype)
    for name, gates in RULES.items():
        shapes = [(3,), (3,), (5,), *[()] * (gates > 0), *[()] * (gates == 3), *[(3,)] * (gates == 4)]
        narrow = [draw(2, 1, 4, *shape, scale=0.3).to(dtype) for shape in shapes]
        narrow[3:] = [gate.abs() if n == 0 and gates != 2 else -gate.abs() for n, gate in enumerate(narrow[3:])]
        (q, *others), wide = narrow, [x.to(draw.float) for x in narrow]
        rule = getattr(impl, name)
        said[name] = [*rows(rule(q, *wide[1:])), *rows(rule(wide[0], *others)), *rows(rule(*narrow, state=state))]
    return said


@points(2)
def test_a_large_state_and_small_additions(impl, draw):
    """In half precision, what is added to a state of 1,000 is there: 0.1 a token, for 30 tokens."""
    said, ones = {}, torch.ones(1, 1, 30, 1, device=draw.device, dtype=torch.bfloat16)
    large = torch.full_like(ones[:, :, :1], 1000.0)
    for name in ("linear_attention", "recurrent_linear_attention", "chunk_linear_attention"):
        out, state = getattr(impl, name)(ones, ones, 0.1 * ones, large)
        said[name] = [state, out.float().amax(-2)]
    never = torch.zeros_like(ones[..., 0])
    said["decayed"] = impl.decayed_linear_attention(ones, ones, 0.1 * ones, never, large)[1]
    return said


def test_kimi_gradients(impl, draw):
    """Gradients reach every channel's decay."""
    leaves = [x.detach().requires_grad_() for x in (*inputs_of(draw, "kimi_delta_rule", 5), draw(2, 1, 3, 5))]
    out, state = impl.kimi_delta_rule(*leaves)
    ((out * draw(2, 1, 5, 5)).sum() + (state * draw(2, 1, 3, 5)).sum()).backward()
    return [leaf.grad.flatten() for leaf in leaves]


def test_convolution_corners(impl, draw):
    """A width of 1, a text shorter than the width, none at all, one channel, no row; gradients."""
    x, weight = draw(2, 3, 4).requires_grad_(), draw(4, 5).requires_grad_()
    y, inputs = impl.short_convolution(x, weight)
    ((y * draw(2, 3, 4)).sum() + (inputs * draw(2, 4, 4)).sum()).backward()
    wide = impl.short_convolution(draw(1, 3, 4).half(), draw(4, 3).half(), draw(1, 2, 4))
    return {"wider inputs": [str(part.dtype) for part in wide],
            "shorter": [y, inputs, x.grad, weight.grad.flatten()],
            "width 1": impl.short_convolution(draw(2, 3, 4), draw(4, 1)),
            "nothing": impl.short_convolution(draw(2, 0, 4), draw(4, 3), draw(2, 2, 4)),
            "one channel": impl.short_convolution(draw(1, 4, 1), draw(1, 2)),
            "no row": impl.short_convolution(draw(0, 4, 2), draw(2, 2))}


def test_l2_corners(impl, draw):
    """One vector, a batch of none, one feature; the gradient at zero is finite."""
    zero = torch.zeros(3, device=draw.device, requires_grad=True)
    (impl.l2_normalize(zero) * draw(3)).sum().backward()
    return [impl.l2_normalize(draw(4)), impl.l2_normalize(draw(0, 4)), impl.l2_normalize(draw(2, 1)), zero.grad]


@dtypes("bfloat16", "float16", "float64")
def test_layer_in_other_dtypes(impl, draw, dtype):
    """A layer in half precision answers in it, with a state in float32; in float64 all is float64."""
    layer = draw.fill(impl.GatedDeltaNet(8, 2, 4, 4, 3, norm_eps=0.1)).to(dtype)
    cache = layer.make_cache(2)
    with torch.no_grad():
        y = layer(draw(2, 5, 8).to(dtype), cache=cache)
    said = [str(y.dtype), list(y.shape), bool(y.isfinite().all()), str(cache.state.dtype), str(cache.inputs.dtype)]
    return said + ([y, cache.state] if dtype == torch.float64 else [])


def test_default_dtype(impl, draw):
    """Under another default dtype, caches and layers are made in it, and the state is no narrower than float32."""
    said = []
    for dtype in (torch.float64, torch.bfloat16):
        with default_dtype(dtype):
            cache, layer = impl.StateCache(1, 1, 2, 3, 4, 2), impl.GatedDeltaNet(4, 1, 2)
        said += [str(x.dtype) for x in (cache.state, cache.inputs, *layer.parameters())]
    return said


@points(2)
def test_layer_in_any_pieces(impl, draw):
    """Widths of 1, 2 and 5, chunks of 3, and two calls by none: in pieces as in one."""
    said, x = {}, draw(2, 10, 6).abs()          # of one sign, and several keys: little cancels
    for width in (1, 2, 5):
        layer = draw.fill(impl.GatedDeltaNet(6, 2, 4, 4, 4, width, 0.1, chunk=3))
        cache = layer.make_cache(2)
        with torch.no_grad():
            out = [layer(part, cache=cache) for part in x.split((1, 1, 0, 5, 3, 0), dim=1)]
        said[f"width {width}"] = [torch.cat(out, dim=1).flatten(1), cache.state.flatten(1), cache.inputs, cache.length]
    return said


@points(2)
def test_second_calls(impl, draw):
    """Nothing is kept from call to call but in the cache: training, eval, no_grad, and another batch in between."""
    layer, x = draw.fill(impl.GatedDeltaNet(6, 2, 3, norm_eps=0.1)), draw(2, 5, 6)
    first = layer(x)
    layer(draw(1, 9, 6))
    with torch.no_grad():
        second = layer(x)
        cache = layer.make_cache(2)
        third = layer.eval()(x, cache=cache)
        cache.reset()
        fourth = layer(x, cache=cache)
    return {"first": first, "no_grad": second, "eval, a cache": third, "after reset": fourth, "again": layer(x),
            "changed": draw.changed()}


@points(2)
def test_masks(impl, draw):
    """Masks of every shape that fits: (keys), (1, keys), (batch, 1, 1, keys), one column for all, all True."""
    layer, x = draw.fill(impl.GatedDeltaNet(6, 2, 3, norm_eps=0.1)), draw(2, 5, 6)
    real = torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 1, 1]], dtype=torch.bool, device=draw.device)
    return {"keys": layer(x, real[0])[:, 2:], "1, keys": layer(x, real[:1])[:, 2:],
            "all": layer(x, torch.ones_like(real)[:, None, None]), "a column": layer(x, real[:1, -1:]),
            "rows": [y[int(5 - row.sum()):] for y, row in zip(layer(x, real[:, None, None]), real)],
            "(batch, keys)": raises(ValueError, lambda: layer(x, real), names="mask"),
            "5 axes": raises(ValueError, lambda: layer(x, real[None, :, None, None]), names="mask"),
            "heads": raises(ValueError, lambda: layer(x, real[:, None, None].expand(2, 2, 1, 5)), names="mask")}


def test_padding_may_hold_anything(impl, draw):
    """A NaN in the padding stays there: real tokens, the state and gradients are finite."""
    layer, x = draw.fill(impl.GatedDeltaNet(6, 2, 3, norm_eps=0.1)), draw(1, 5, 6)
    real = torch.tensor([0, 0, 1, 1, 1], dtype=torch.bool, device=draw.device)
    hidden = x.masked_fill(~real[:, None], torch.nan).requires_grad_()
    y = layer(hidden, real)[:, 2:]
    (y * draw(1, 3, 6)).sum().backward()
    return {"y": y, "x": hidden.grad[:, 2:].flatten(), "conv": layer.conv.grad.flatten(), "A_log": layer.A_log.grad}


@points(2)
def test_refusals_change_nothing(impl, draw):
    """After each refusal the cache is what it was, and goes on."""
    layer, x = draw.fill(impl.GatedDeltaNet(6, 2, 3, norm_eps=0.1)), draw(2, 4, 6)
    cache, long = layer.make_cache(2), torch.ones(2, 1, 1, 9, dtype=torch.bool, device=draw.device)
    with torch.no_grad():
        layer(x, cache=cache)
        before = cache.state.clone(), cache.inputs.clone(), cache.length
        said = [raises(ValueError, lambda: layer(x, long, cache=cache), names="mask"),
                raises(ValueError, lambda: layer(x[:1], cache=cache), names="cache"),
                raises(ValueError, lambda: layer(x[..., :5], cache=cache), names="x"),
                raises(ValueError, lambda: cache.rewind(2), names="n")]
        said += [torch.equal(a, b) for a, b in zip(before, (cache.state, cache.inputs))] + [cache.length == before[2]]
        return [*said, layer(x, cache=cache), cache.length]


@points(2)
def test_copies_in_a_model(impl, draw):
    """Tokens that were wrong are taken back by copies made before them, also after the prompt alone."""
    model, ids = model_of(impl, draw, every=9), draw.ints(13, 2, 8)
    caches = caches_of(impl, model, draw, 2, 20)
    with torch.no_grad():
        model(ids[:, :4], caches=caches)
        kept = [cache.copy() for cache in caches]
        model(ids[:, :3], caches=caches)
        again = model(ids[:, 4:], caches=kept)
        return [again, [cache.length for cache in (*caches, *kept)], model(ids)]


@points(2)
def test_models_of_other_kinds(impl, draw):
    """Windows, learned positions, none, tied embeddings, one KV head: in pieces as in one."""
    said, ids = {}, draw.ints(13, 2, 8)
    kinds = {"windows": {"windows": (2, 3, 4)}, "no positions": {"positions": "none"}, "one KV head": {"kv_heads": 1},
             "GPT-2": {"norm": "layer", "feed_forward": "mlp", "positions": "learned", "tie_embeddings": True}}
    for name, changes in kinds.items():
        model = model_of(impl, draw, **changes)
        caches = caches_of(impl, model, draw, 2, 8)
        with torch.no_grad():
            said[name] = [torch.cat([model(part, caches=caches) for part in ids.split((3, 1, 1, 3), dim=1)], dim=1),
                          [cache.length for cache in caches]]
    return said


def test_dtype_mode_and_start(impl, draw):
    """New layers have the dtype and mode of the old ones; two models of one seed are the same."""
    module, said = sys.modules[impl.Transformer.__module__], {}
    config = module.ModelConfig(**SIZES)
    model = impl.Transformer(config).to(torch.bfloat16).eval()
    model.blocks[1].attention.train()
    impl.with_linear_layers(model, 7)
    said["dtypes"] = sorted({str(p.dtype) for p in model.parameters()})
    said["training"] = [block.attention.training for block in model.blocks]
    states = []
    for _ in range(2):
        torch.manual_seed(draw.seed)
        states.append(impl.with_linear_layers(impl.Transformer(config), 2).state_dict())
    said["one seed"] = all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    layer = impl.with_linear_layers(impl.Transformer(config), 2).blocks[0].attention
    return said | {"norm": layer.norm.weight.detach(), "layers differ": bool(
        (states[0]["blocks.0.attention.A_log"] != states[0]["blocks.2.attention.A_log"]).any())}


def test_hook_by_name_and_without_caches(impl, draw):
    """caches may be given by place or by name, or not at all; a model with other caches is refused by its own words."""
    model, ids = model_of(impl, draw), draw.ints(13, 1, 4)
    with torch.no_grad():
        return {"by place": model(ids, None, None, caches_of(impl, model, draw, 1, 4)),
                "by name": model(ids, caches=caches_of(impl, model, draw, 1, 4)), "without": model(ids),
                "too few": raises(ValueError, lambda: model(ids, caches=caches_of(impl, model, draw, 1, 4)[:2]),
                                  names="caches")}


@devices("cpu")
def test_cache_sizes_and_memory(impl, draw):
    """A cache is as large after many tokens as after one."""
    layer = draw.fill(impl.GatedDeltaNet(6, 2, 3, 4, 5, 4))
    cache, said = layer.make_cache(1), []
    with torch.no_grad():
        for seq in (1, 70, 1, 1):
            layer(draw(1, seq, 6), cache=cache)
            said.append([sum(x.untyped_storage().nbytes() for x in (cache.state, cache.inputs)), cache.length])
    return said, accepts(lambda: cache.rewind(0))
