"""What lesson 23 asks of linear attention, the delta rule, chunks of both, GatedDeltaNet, and a model with it."""

import sys

import torch

from grader import accepts, devices, dtypes, points, raises, shapes
from grader.course.doubles import Operations

FORBIDDEN = {"short_convolution": {"torch.nn.Conv1d", "torch.nn.functional.conv1d", "torch.conv1d"},
             "l2_normalize": {"torch.nn.functional.normalize"}}

SIZES = {"vocab_size": 11, "d_model": 8, "layers": 5, "heads": 4, "kv_heads": 2, "head_dim": 6, "d_ff": 12,
         "max_seq_len": 32, "norm_eps": 0.1}
LINEAR = ("linear_attention", "recurrent_linear_attention", "chunk_linear_attention")


def _size(draw, low, high):
    """A size from the seed, low … high."""
    return low + int(draw.ints(high - low + 1))


def _qkv(draw, seq, head_dim=4, value_dim=3, batch=(2, 2)):
    """q, k and v; keys of length 1, so that nothing grows."""
    k = draw(*batch, seq, head_dim)
    return draw(*batch, seq, head_dim), k / k.norm(dim=-1, keepdim=True), draw(*batch, seq, value_dim)


def _short(draw, seq):
    """q, k and v of 2 · 2 rows as they are drawn, keys not much longer than 1: numbers that half precision has, too."""
    return draw(2, 2, seq, 4), draw(2, 2, seq, 4, scale=0.5), draw(2, 2, seq, 3)


def _gates(draw, seq, batch=(2, 2)):
    """beta in 0 … 1 and log_decay in −1 … 0."""
    return draw.uniform(*batch, seq), -draw.uniform(*batch, seq)


def _said(answer):
    """out, a row for each head of each text (a token may have next to nothing to say, but for rounding), and state."""
    out, state = answer
    return {"shape of out": list(out.shape), "out": out.flatten(-2), "state": state.flatten(-2),
            "shape of state": list(state.shape)}


def _gradients(draw, rule, *inputs):
    """The gradients of a weighted sum of out and state; each as one row, for some are next to 0."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    answer = rule(*leaves)
    sum((x * draw(*x.shape)).sum() for x in answer).backward()
    return [None if x.grad is None else x.grad.flatten() for x in leaves]


def _in_pieces(rule, cuts, state, *inputs):
    """rule on the first tokens, then on the next from the state that came back, and so on."""
    out, start = [], 0
    for size in cuts:
        part, state = rule(*(x[:, :, start : start + size] for x in inputs), state=state)
        out.append(part)
        start += size
    return _said((torch.cat(out, dim=2), state))


def _layer(impl, draw, *sizes, **options):
    """A filled layer. With a small norm_eps the norm would make much of what is nearly 0, and of its rounding."""
    return draw.fill(impl.GatedDeltaNet(*sizes, **{"norm_eps": 0.1} | options))


def _texts(y):
    """What a layer says or keeps of each text as one row: a token may have next to nothing to say, but for rounding."""
    return {"shape": list(y.shape), "y": y.flatten(1)}


def _decode(layer, cache, x, cuts, mask=None):
    """x through layer in pieces of the sizes `cuts`, put together again."""
    out, start = [], 0
    with torch.no_grad():
        for size in cuts:
            end = start + size
            out.append(layer(x[:, start:end], mask=None if mask is None else mask[..., :end], cache=cache))
            start = end
    return torch.cat(out, dim=1)


def _model(impl, draw, every=4, sizes=None, **changes):
    """A hybrid, filled."""
    config = sys.modules[impl.Transformer.__module__].ModelConfig(**SIZES | changes)
    return draw.fill(impl.with_linear_layers(impl.Transformer(config), every, **(sizes or {}))).eval()


def _caches(impl, model, draw, batch, capacity):
    """Lesson 13's own make_caches."""
    return sys.modules[impl.Transformer.__module__].make_caches(
        model.config, batch, capacity, dtype=draw.float, device=draw.device)


# -- linear attention, three ways

@points(2)
def test_linear_attention(impl, draw):
    """Each query sums the values of all tokens up to its own, weighed by q · k: no softmax, no scale.

    (q kᵀ), with zeros above the diagonal, times v. tril keeps the diagonal: a token reads itself, too.
    """
    return _said(impl.linear_attention(*_qkv(draw, 6)))


@points(2)
def test_linear_attention_from_a_state(impl, draw):
    """A state that is handed in is read by every query, and is in the new state, too.

    out = … + q S, and the new state is S + kᵀ v: a row for each feature of k, a column for each of v.
    """
    return _said(impl.linear_attention(*_qkv(draw, 5), draw(2, 2, 4, 3)))


@points(2)
def test_recurrent_linear_attention(impl, draw):
    """Token by token: write kᵀ v into the state, and then read it with q.

    Write first: a token reads itself, too. The state that comes back is that after the last token.
    """
    return {"from nothing": _said(impl.recurrent_linear_attention(*_qkv(draw, 6))),
            "from a state": _said(impl.recurrent_linear_attention(*_qkv(draw, 4), draw(2, 2, 4, 3)))}


@points(2)
def test_chunk_linear_attention(impl, draw):
    """In chunks of any size: within a chunk all at once, and what came before it by the state.

    Every chunk reads the state as it was before the chunk, and adds its own kᵀ v to it afterwards. The last chunk may
    be shorter.
    """
    inputs = _qkv(draw, 11)
    return {f"chunk {chunk}": _said(impl.chunk_linear_attention(*inputs, chunk=chunk)) for chunk in (4, 11, 1, 30)}


@points(2)
def test_chunks_from_a_state(impl, draw):
    """chunk_linear_attention goes on from the state that it is given.

    The first chunk reads it as every later chunk reads that of the chunks before.
    """
    return _said(impl.chunk_linear_attention(*_qkv(draw, 7), draw(2, 2, 4, 3), chunk=3))


def test_roads_in_pieces(impl, draw):
    """Any way goes on where any other stopped: two pieces give what one gives.

    Only the state goes from piece to piece. (Two single tokens in a row are among them.)
    """
    inputs, state = _qkv(draw, 9), draw(2, 2, 4, 3)
    return {name: _in_pieces(getattr(impl, name), (4, 1, 1, 3), state, *inputs) for name in LINEAR}


@dtypes("bfloat16", "float16", "float32", "float64")
def test_roads_precision(impl, draw, dtype):
    """out has the dtype of q; sums and state are in at least float32, and float64 stays float64.

    begin gives everything in one wide dtype. Cast out at the end and the state never: in half precision, small
    additions to a large state are rounded away.
    """
    inputs, state = [x.to(dtype) for x in _short(draw, 5)], draw(2, 2, 4, 3).to(dtype).to(draw.float)
    return {name: _said(getattr(impl, name)(*inputs, state)) for name in LINEAR}


@devices("cpu")
@points(2)
def test_chunks_make_no_square(impl, draw):
    """In chunks no tensor of seq × seq numbers is ever made, and no loop runs over tokens.

    A chunk takes chunk × chunk numbers. A full square, cut up afterwards, has cost what it cost.
    """
    q, k, v = _qkv(draw, 96, batch=(1, 1))
    with torch.no_grad(), Operations() as square:
        impl.chunk_linear_attention(q, k, v, chunk=8)
    counts = []
    for seq in (12, 48):
        with torch.no_grad(), Operations() as operations:
            impl.chunk_linear_attention(q[:, :, :seq], k[:, :, :seq], v[:, :, :seq], chunk=64)
        counts.append(operations.count)
    return {"no square": square.largest <= 96 * 96 // 4, "as many operations": counts[1] <= counts[0] + 4,
            "state": impl.chunk_linear_attention(q, k, v, chunk=8)[1].flatten()}


def test_roads_gradients(impl, draw):
    """Gradients reach q, k, v and the state that was handed in, through out and through the new state.

    The state is part of the graph: no .detach(), no in-place writing into what was given.
    """
    inputs = *_qkv(draw, 6), draw(2, 2, 4, 3)
    return {name: _gradients(draw, getattr(impl, name), *inputs) for name in LINEAR}


def test_chunk_refused(impl, draw):
    """A chunk below 1 raises a ValueError that names chunk, in every rule that has one.

    at_least_one(chunk=chunk), before anything else.
    """
    inputs, gates, low = _qkv(draw, 3), _gates(draw, 3), -1 - int(draw.ints(9))
    rules = {"chunk_linear_attention": (), "chunk_delta_rule": gates[:1], "chunk_gated_delta_rule": gates}
    return {f"{name}, {chunk}": raises(ValueError, lambda: getattr(impl, name)(*inputs, *given, chunk=chunk),
                                       names="chunk")
            for name, given in rules.items() for chunk in (0, low)}


@points(2)
def test_decayed_linear_attention(impl, draw):
    """The state fades by e^log_decay before a token writes: its own kᵀ v does not fade with it.

    S ← e^log_decay S + kᵀ v, one number for each token and head. Then read.
    """
    (q, k, v), (_, log_decay) = _qkv(draw, 6), _gates(draw, 6)
    return {"from nothing": _said(impl.decayed_linear_attention(q, k, v, log_decay)),
            "from a state": _said(impl.decayed_linear_attention(q, k, v, log_decay, draw(2, 2, 4, 3)))}


# -- the delta rule

@points(2)
def test_delta_rule(impl, draw):
    """A token writes β times the error: v less what the state says of k before.

    error = v − k S; S ← S + kᵀ (β · error); out = q S, read after the writing.
    """
    (q, k, v), (beta, _) = _qkv(draw, 6), _gates(draw, 6)
    return _said(impl.delta_rule(q, k, v, beta))


@points(2)
def test_delta_rule_overwrites(impl, draw):
    """With β = 1, a key written again says the new value, and the old one is gone.

    Keys of length 1. What linear attention would say is the sum of both. (The third token has the first one's key.)
    """
    _, k, v = _qkv(draw, 2)
    k, new = k[..., [0, 1, 0], :], draw(2, 2, 3, 3)
    ones = torch.ones_like(k[..., 0])
    return {"out": _said(impl.delta_rule(k, k, new, ones)),
            "a state that knew the key": _said(impl.delta_rule(k, k, new, ones, k[..., :1, :].mT @ v[..., :1, :]))}


def test_delta_rule_from_a_state(impl, draw):
    """The delta rule goes on from a state, and hands its own on: in pieces as in one.

    The error is that of the whole state, the one handed in included.
    """
    (q, k, v), (beta, _), state = _qkv(draw, 8), _gates(draw, 8), draw(2, 2, 4, 3)
    return {"at once": _said(impl.delta_rule(q, k, v, beta, state)),
            "in pieces": _in_pieces(impl.delta_rule, (3, 1, 1, 3), state, q, k, v, beta)}


@points(3)
def test_chunk_delta_rule(impl, draw):
    """A whole chunk at once: (I + A) u = β (v − k S), and u is what its tokens write.

    A_ij = β_i (k_i · k_j), below the diagonal alone: a token corrects what earlier ones wrote, and not itself.
    """
    (q, k, v), (beta, _) = _qkv(draw, 6), _gates(draw, 6)
    return _said(impl.chunk_delta_rule(q, k, v, beta, chunk=8))


@points(2)
def test_chunk_delta_rule_in_chunks(impl, draw):
    """From chunk to chunk goes the state: it is in the errors of the next chunk, and in what is read.

    u is found from v − k S, with the state as it is before the chunk.
    """
    (q, k, v), (beta, _), state = _qkv(draw, 11), _gates(draw, 11), draw(2, 2, 4, 3)
    return {f"chunk {chunk}": _said(impl.chunk_delta_rule(q, k, v, beta, state, chunk)) for chunk in (4, 1, 11)}


@devices("cpu")
@points(2)
def test_no_loop_over_tokens(impl, draw):
    """Four times the tokens in a chunk take as many operations: no loop runs over tokens.

    torch.linalg.solve_triangular solves for all tokens of all heads at once. With unitriangular=True it takes the
    diagonal for ones, whatever stands there.
    """
    inputs, (beta, log_decay) = _qkv(draw, 48), _gates(draw, 48)
    said = {}
    for name, given in {"chunk_delta_rule": (beta,), "chunk_gated_delta_rule": (beta, log_decay)}.items():
        counts = []
        for seq in (12, 48):
            with torch.no_grad(), Operations() as operations:
                getattr(impl, name)(*(x[:, :, :seq] for x in (*inputs, *given)), chunk=64)
            counts.append(operations.count)
        said[name] = counts[1] <= counts[0] + 4
        said[f"state, {name}"] = getattr(impl, name)(*inputs, *given, chunk=64)[1].flatten()
    return said


@points(2)
def test_gated_delta_rule(impl, draw):
    """First the state fades, then the delta rule corrects the faded state.

    What the token writes itself does not fade, and its error is that of the state after fading.
    """
    (q, k, v), (beta, log_decay) = _qkv(draw, 6), _gates(draw, 6)
    return _said(impl.gated_delta_rule(q, k, v, beta, log_decay, draw(2, 2, 4, 3)))


def test_rules_in_pieces(impl, draw):
    """In pieces as in one, the gates cut with the tokens.

    A state handed in fades, too, by the decay of the first token that comes.
    """
    inputs, state = (*_qkv(draw, 8), *_gates(draw, 8)), draw(2, 2, 4, 3)
    return {name: _in_pieces(getattr(impl, name), (3, 1, 1, 3), state, *inputs)
            for name in ("gated_delta_rule", "chunk_gated_delta_rule")}


@points(3)
def test_chunk_gated_delta_rule(impl, draw):
    """In a chunk, what token j wrote has faded by e^(c_i − c_j) when token i reads or corrects it.

    c is the running sum of log_decay: decays multiply, so their logarithms add up. The factor stands in A, and beside
    q · k.
    """
    (q, k, v), (beta, log_decay) = _qkv(draw, 6), _gates(draw, 6)
    return _said(impl.chunk_gated_delta_rule(q, k, v, beta, log_decay, chunk=8))


@points(2)
def test_chunk_gated_delta_rule_in_chunks(impl, draw):
    """The state at a chunk's start has faded by e^(c_i) when token i reads it, and by e^(c_n) at the end.

    c starts anew in each chunk. What token j wrote is in the new state with e^(c_n − c_j).
    """
    inputs, state = (*_qkv(draw, 11), *_gates(draw, 11)), draw(2, 2, 4, 3)
    return {f"chunk {chunk}": _said(impl.chunk_gated_delta_rule(*inputs, state, chunk)) for chunk in (4, 1, 11)}


@points(2)
def test_strong_decay(impl, draw):
    """Decays of e^−20 a token are fine: no e^(c_i − c_j) above the diagonal, where it would be inf.

    inf · 0 is NaN, in the backward pass, too. Take the differences that are above 0 out before exp, and not after.
    """
    (q, k, v), (beta, _) = _qkv(draw, 24), _gates(draw, 24)
    # every other token or so fades nearly all; in eighths, which add up without rounding
    inputs = q, k, v, beta, -draw.ints(9, 2, 2, 24) / 8 - 20.0 * draw.ints(2, 2, 2, 24)
    return {"values": _said(impl.chunk_gated_delta_rule(*inputs)),
            "gradients": _gradients(draw, impl.chunk_gated_delta_rule, *inputs)}


@points(2)
def test_kimi_delta_rule(impl, draw):
    """A decay for each channel of the keys: row d of the state fades by e^(log_decay_d).

    The state has a row for each feature of k and a column for each of v.
    """
    (q, k, v), (beta, _), log_decay = _qkv(draw, 6), _gates(draw, 6), -draw.uniform(2, 2, 6, 4)
    return {"from nothing": _said(impl.kimi_delta_rule(q, k, v, beta, log_decay)),
            "from a state": _said(impl.kimi_delta_rule(q, k, v, beta, log_decay, draw(2, 2, 4, 3)))}


@dtypes("bfloat16", "float16", "float32", "float64")
def test_rules_precision(impl, draw, dtype):
    """out has the dtype of q; errors, sums and state are in at least float32.

    begin widens all that it is given; a state that is cast back, or a gate that is not widened, loses what is small
    beside what is large. An error is a difference of nearly equal numbers, once the state knows the key. Cast out, at
    the end.
    """
    (q, k, v), (beta, log_decay) = _short(draw, 5), _gates(draw, 5)
    q, k, v, beta, log_decay = (x.to(dtype) for x in (q, k, v, beta, log_decay))
    state = draw(2, 2, 4, 3).to(dtype).to(draw.float)
    channels = -draw.uniform(2, 2, 5, 4).to(dtype)
    return {"delta_rule": _said(impl.delta_rule(q, k, v, beta, state)),
            "chunk_delta_rule": _said(impl.chunk_delta_rule(q, k, v, beta, state)),
            "gated_delta_rule": _said(impl.gated_delta_rule(q, k, v, beta, log_decay, state)),
            "chunk_gated_delta_rule": _said(impl.chunk_gated_delta_rule(q, k, v, beta, log_decay, state)),
            "kimi_delta_rule": _said(impl.kimi_delta_rule(q, k, v, beta, channels, state)),
            "decayed_linear_attention": _said(impl.decayed_linear_attention(q, k, v, log_decay, state))}


@points(2)
def test_rules_gradients(impl, draw):
    """Gradients reach everything that goes in, the gates and the first state too.

    Nothing is detached, nothing given is written into. (The old value is read to be corrected: that is a path, too.)
    """
    (q, k, v), (beta, log_decay), state = _qkv(draw, 6), _gates(draw, 6), draw(2, 2, 4, 3)
    return {"delta_rule": _gradients(draw, impl.delta_rule, q, k, v, beta, state),
            "chunk_delta_rule": _gradients(draw, impl.chunk_delta_rule, q, k, v, beta, state),
            "gated_delta_rule": _gradients(draw, impl.gated_delta_rule, q, k, v, beta, log_decay, state),
            "chunk_gated_delta_rule": _gradients(draw, impl.chunk_gated_delta_rule, q, k, v, beta, log_decay, state),
            "decayed_linear_attention": _gradients(draw, impl.decayed_linear_attention, q, k, v, log_decay, state)}


# -- what the layer is made of

@points(2)
def test_short_convolution(impl, draw):
    """Each channel mixes a token with the width − 1 before it: the last weight is the token's own.

    Zeros stand before the first token. Put them in front; then each column of weight multiplies x, moved by one more.
    """
    y, inputs = impl.short_convolution(draw(2, 6, 5), draw(5, 3))
    return {"y": y, "inputs": inputs}


@points(2)
def test_short_convolution_in_pieces(impl, draw):
    """The last width − 1 tokens come back, and go in front of the next piece.

    Of all so far: where a piece is shorter than width − 1, some of them are older than the piece.
    """
    x, weight, inputs, said = draw(2, 9, 3), draw(3, 4), None, {}
    for number, part in enumerate(x.split((4, 1, 1, 3), dim=1), 1):
        y, inputs = impl.short_convolution(part, weight, inputs)
        said[f"piece {number}"] = {"y": y, "inputs": inputs}
    return said


@dtypes("bfloat16", "float16", "float32", "float64")
def test_short_convolution_precision(impl, draw, dtype):
    """y and inputs have the dtype of x; the sum is taken in at least float32.

    Four products, rounded one by one and added in half precision, are four errors where there need be one.
    """
    y, inputs = impl.short_convolution(draw(2, 7, 3).to(dtype), draw(3, 4).to(dtype), draw(2, 3, 3).to(dtype))
    said = {"y": y, "inputs": inputs}
    if dtype.itemsize == 2:     # the same token again and again, by 1 1/128 and by −1: what is left of it is 1/128
        nearly = torch.tensor([1 + 1 / 128, -1.0], device=draw.device).expand(3, 2).to(dtype)
        said["a difference"] = impl.short_convolution(draw(2, 1, 3).to(dtype).expand(2, 5, 3), nearly)[0][:, 1:]
    return said


def test_short_convolution_refuses(impl, draw):
    """inputs that are not width − 1 tokens raise a ValueError that names inputs.

    With too few, every output would be off by a token, in silence.
    """
    x, weight = draw(2, 4, 3), draw(3, 4)
    return {f"{n} tokens": raises(ValueError, lambda: impl.short_convolution(x, weight, draw(2, n, 3)), names="inputs")
            for n in (2, 4, 0)} | {"3 tokens": accepts(lambda: impl.short_convolution(x, weight, draw(2, 3, 3)))}


@dtypes("bfloat16", "float16", "float32", "float64")
def test_l2_normalize(impl, draw, dtype):
    """x / √(Σ x² + 1e-6) over the last axis, computed in at least float32, in the dtype of x.

    The eps stands under the root, and a vector of zeros stays one. (300² is past float16's largest number.)
    """
    said = {scale: impl.l2_normalize(draw(3, 2, 7, scale=scale).to(dtype)) for scale in (1.0, 0.001, 300.0)}
    return said | {"zeros": impl.l2_normalize(torch.zeros(2, 3, device=draw.device, dtype=dtype))}


@points(2)
def test_gated_norm(impl, draw):
    """GatedRMSNorm is RMSNorm(x) · silu(gate): first the norm, then the gate.

    The other order would take out of the gate what it says about the size.
    """
    norm = draw.fill(impl.GatedRMSNorm(6, 1e-3))
    return {"y": norm(draw(2, 3, 6), draw(2, 3, 6, scale=2.0)), "state": shapes(norm.state_dict())}


@dtypes("bfloat16", "float16")
def test_gated_norm_in_half_precision(impl, draw, dtype):
    """silu and its product are computed in at least float32, and y has the dtype of x.

    The given widen does it: silu(widen(gate)). Cast the product, once. (Near −16 silu is so small that float16 has few
    digits left for it; a large weight brings them back. In "wide", weight and gate are of a wider dtype than x.)
    """
    norm, large, wide = (draw.fill(impl.GatedRMSNorm(6)) for _ in range(3))
    with torch.no_grad():
        large.weight.fill_(4000)
    x, gate = (draw.ints(9, 4, 6) - 4) / 4, -15 - draw.ints(5, 4, 6) / 4        # exact in every dtype
    return {"half": norm.to(dtype)(draw(4, 6).to(dtype), draw(4, 6, scale=3.0).to(dtype)),
            "near -16": large.to(dtype)(x.to(dtype), gate.to(dtype)),
            "wide": wide(x.to(dtype), gate.to(draw.float) / 8)}


# -- the cache

@dtypes("float32", "bfloat16", "float64")
def test_state_cache(impl, draw, dtype):
    """A StateCache begins with zeros: a state in at least float32, and width − 1 inputs in dtype.

    Its length is 0. Whatever dtype is asked for, the state is not in half precision.
    """
    cache = impl.StateCache(2, 3, 4, 5, 7, 4, dtype, draw.device)
    return {"state": cache.state, "inputs": cache.inputs, "length": cache.length,
            "width 1": impl.StateCache(1, 1, 2, 2, 3, 1, dtype, draw.device).inputs}


@points(2)
def test_state_cache_update(impl, draw):
    """update keeps state and inputs in place of the old ones, and counts n more tokens.

    The old tensors stay as they were, and what is kept does not hang on the tensor that inputs were cut from.
    """
    cache, said = impl.StateCache(2, 1, 3, 2, 4, 3, draw.float, draw.device), {}
    for n in (5, 1, 1):
        before, state, long = cache.state, draw(2, 1, 3, 2), draw(2, 6, 4)
        cache.update(state, long[:, 4:], n)
        said[f"after {cache.length}"] = {
            "state": cache.state, "inputs": cache.inputs, "old state": before,
            "inputs keep no more alive": cache.inputs.untyped_storage().nbytes() == cache.inputs.nbytes}
    return said


def test_state_cache_refuses(impl, draw):
    """What does not fit raises a ValueError that names it, and the cache stays as it was.

    state and inputs have the shape and dtype of the old ones and record no gradients; n is at least 0. Look at all of
    them before anything is kept.
    """
    cache = impl.StateCache(2, 1, 3, 2, 4, 3, draw.float, draw.device)
    state, inputs = draw(2, 1, 3, 2), draw(2, 2, 4)
    cache.update(state, inputs, 3)
    other = {"state of one row": (draw(1, 1, 3, 2), inputs, 1, "state"),
             "state in half": (state.half(), inputs, 1, "state"),
             "inputs of three": (draw(2, 1, 3, 2), draw(2, 3, 4), 1, "inputs"),
             "inputs in half": (draw(2, 1, 3, 2), inputs.half(), 1, "inputs"),
             "n below 0": (draw(2, 1, 3, 2), inputs, -1, "n"),
             "state with gradients": (draw(2, 1, 3, 2).requires_grad_(), inputs, 1, "state"),
             "inputs with gradients": (draw(2, 1, 3, 2), draw(2, 2, 4).requires_grad_(), 1, "inputs")}
    said = {what: raises(ValueError, lambda: cache.update(*given), names=name)
            for what, (*given, name) in other.items()}
    free = impl.StateCache(2, 1, 3, 2, 4, 3, draw.float, draw.device)
    with torch.no_grad():               # nothing is recorded: what could record gradients is kept
        free.update(draw(2, 1, 3, 2).requires_grad_(), inputs, 2)
    return said | {"length": cache.length, "state": cache.state, "inputs": cache.inputs, "gradients off": free.length}


def test_state_cache_cannot_rewind(impl, draw):
    """rewind raises a ValueError that names n, unless n is 0: a sum does not tell its last term.

    And nothing has changed. Whoever wants to go back keeps a copy.
    """
    cache, n = impl.StateCache(1, 1, 2, 2, 3, 2, draw.float, draw.device), _size(draw, 1, 9)
    cache.update(draw(1, 1, 2, 2), draw(1, 1, 3), n)
    said = {f"rewind({back})": raises(ValueError, lambda: cache.rewind(back), names="n") for back in (1, n, n + 1, -1)}
    return said | {"rewind(0)": accepts(lambda: cache.rewind(0)), "length": cache.length, "state": cache.state}


@points(2)
def test_state_cache_copy(impl, draw):
    """A copy stays as the cache was, whatever comes to the cache later, and the other way round.

    That is the way back that rewind cannot offer.
    """
    cache = impl.StateCache(1, 2, 3, 2, 3, 2, draw.float, draw.device)
    cache.update(draw(1, 2, 3, 2), draw(1, 1, 3), 4)
    kept = cache.copy()
    cache.update(draw(1, 2, 3, 2), draw(1, 1, 3), 2)
    said = {"kept": [kept.state, kept.inputs, kept.length]}
    kept.reset()
    kept.update(draw(1, 2, 3, 2), draw(1, 1, 3), 1)
    return said | {"cache": [cache.state, cache.inputs, cache.length], "class": isinstance(kept, impl.StateCache),
                   "kept later": [kept.state, kept.inputs, kept.length]}


def test_state_cache_reset(impl, draw):
    """After reset a cache is as good as new: zeros, and a length of 0.

    Unlike keys that lie behind length, an old state would be read.
    """
    cache = impl.StateCache(2, 1, 3, 2, 4, 3, draw.float, draw.device)
    cache.update(draw(2, 1, 3, 2), draw(2, 2, 4), 3)
    cache.reset()
    return [cache.state, cache.inputs, cache.length]


def test_state_cache_sizes(impl, draw):
    """A size below 1 raises a ValueError that names it.

    at_least_one(batch=batch, …). Sizes of 1 are taken.
    """
    names, said = ["batch", "heads", "head_dim", "value_dim", "channels", "conv_width"], {}
    for i in draw.uniform(6).argsort().tolist():
        sizes = (draw.ints(3, 6) + 1).tolist()
        sizes[i] = -int(draw.ints(3))
        said[f"{sizes}"] = raises(ValueError, lambda: impl.StateCache(*sizes), names=names[i])
    return said | {"ones": accepts(lambda: impl.StateCache(1, 1, 1, 1, 1, 1))}


# -- the layer

def test_layer_state(impl, draw):
    """A GatedDeltaNet has seven projections without biases, a convolution for q, k and v, and its gates.

    beta_proj, decay_proj, A_log and dt_bias are for value_heads heads, and so are v_proj, gate_proj and o_proj.
    """
    heads, head_dim, groups, value_dim = (_size(draw, 2, 4) for _ in range(4))
    return {"all given": shapes(impl.GatedDeltaNet(7, heads, head_dim, groups * heads, value_dim, 3).state_dict()),
            "left out": shapes(impl.GatedDeltaNet(7, heads, head_dim).state_dict())}


@devices("cpu")
def test_layer_start(impl, draw):
    """e^A_log starts within 1 … 16, softplus(dt_bias) within 0.001 … 0.1, conv within ±1/√conv_width.

    The first is uniform; the second is uniform in its logarithm, and x = log(e^y − 1) is where softplus(x) = y.
    (The answers are coarse: where the numbers lie, and their middle.)
    """
    torch.manual_seed(draw.seed)
    layer = impl.GatedDeltaNet(2, 2000, 1, conv_width=9)
    a, dt = layer.A_log.detach().exp(), torch.nn.functional.softplus(layer.dt_bias.detach())
    conv = layer.conv.detach()

    def coarse(x, low, high):
        parts = (x - low) / (high - low)
        return [bool((parts > -1e-3).all() and (parts < 1.001).all()),
                bool(parts.min() < 0.03 and parts.max() > 0.97), round(float(parts.mean()), 1),
                round(float(parts.std()), 1)]

    return {"A": coarse(a, 1, 16), "dt": coarse(dt.log(), -6.9077553, -2.3025851), "conv": coarse(conv, -1 / 3, 1 / 3)}


@points(2)
def test_gates(impl, draw):
    """beta is a sigmoid; log_decay is −e^A_log · softplus(decay_proj(x) + dt_bias), always below 0.

    Both are (batch, value_heads, seq): heads before tokens, as q and k have them.
    """
    layer = _layer(impl, draw, 5, 2, 3, 4)
    beta, log_decay = layer.gates(draw(2, 6, 5, scale=2.0))
    return {"beta": beta, "log_decay": log_decay}


@dtypes("bfloat16", "float16")
def test_gates_in_half_precision(impl, draw, dtype):
    """The gates are computed in at least float32, from projections in the dtype of x.

    Decays near 1 are what a long memory is made of: bfloat16 has none between 0.996 and 1. (Projections and
    parameters are exact here.)
    """
    layer = _layer(impl, draw, 4, 1, 2, 3)
    with torch.no_grad():
        for linear in (layer.beta_proj, layer.decay_proj):
            linear.weight.copy_((draw.ints(5, 3, 4) - 2) / 4)
        for vector in (layer.A_log, layer.dt_bias):
            vector.copy_((draw.ints(9, 3) - 4) / 4)
    beta, log_decay = layer.to(dtype).gates((draw.ints(3, 2, 5, 4) - 1).to(dtype))
    return {"beta": beta, "log_decay": log_decay}


@points(3)
def test_layer(impl, draw):
    """A layer with as many heads of values as of keys.

    Project, convolve, silu; heads; q and k of length 1; q by √head_dim; the rule; the gated norm; o_proj. (norm_eps is
    large here: else the norm would hide the scale of q.)
    """
    return _texts(_layer(impl, draw, 8, 2, 4)(draw(2, 7, 8)))


@points(3)
def test_layer_groups(impl, draw):
    """value_heads / heads heads of values in a row share a key, and value_dim may be another size.

    repeat_kv makes a, a, b, b of the heads a, b of q and k.
    """
    heads = _size(draw, 2, 3)
    return _texts(_layer(impl, draw, 8, heads, 4, 2 * heads, 3)(draw(2, 7, 8)))


def test_layer_reads_no_positions(impl, draw):
    """positions are taken and not used: the order of tokens is in the state.

    The block hands them on by name to whatever stands in attention's place.
    """
    layer, x = _layer(impl, draw, 6, 1, 4), draw(2, 5, 6)
    return _texts(layer(x, positions=torch.arange(7, 12, device=draw.device)))


@points(2)
def test_layer_gradients(impl, draw):
    """Gradients reach x and every parameter, the decay's and the convolution's too.

    That is how a layer learns what to forget.
    """
    layer, x = _layer(impl, draw, 6, 2, 3, 4), draw(2, 7, 6).requires_grad_()
    (layer(x) * draw(2, 7, 6)).sum().backward()
    return {"x": x.grad.flatten()} | {name: None if p.grad is None else p.grad.flatten()
                                      for name, p in layer.named_parameters()}


@points(3)
def test_layer_with_a_cache(impl, draw):
    """A prompt and then token by token gives what one forward pass gives at every place.

    The state and the convolution's inputs go on where the cache has them, and come back to it.
    """
    layer, x = _layer(impl, draw, 8, 2, 4, 4, 3), draw(2, 9, 8)
    cache = layer.make_cache(2)
    return {"out": _decode(layer, cache, x, (4, 1, 1, 1, 2)), "state": _texts(cache.state), "inputs": cache.inputs,
            "length": cache.length}


@points(3)
def test_layer_left_padding(impl, draw):
    """Rows that are padded on the left give what each gives alone, in their own tokens.

    Padding is hidden by a mask of (batch, 1, 1, keys), keys of all tokens so far; the last columns are the new tokens.
    """
    layer, x = _layer(impl, draw, 8, 2, 4), draw(3, 8, 8)
    padding = torch.tensor([[0], [3], [6]], device=draw.device)
    mask = (torch.arange(8, device=draw.device) >= padding)[:, None, None]
    cache = layer.make_cache(3)
    out = _decode(layer, cache, x, (5, 1, 1, 1), mask)
    return {"rows": [row[int(pad):] for row, pad in zip(out, padding)], "state": _texts(cache.state),
            "without a cache": [row[int(pad):] for row, pad in zip(layer(x, mask=mask), padding)]}


@points(2)
def test_padding_leaves_the_state(impl, draw):
    """Padding writes nothing and fades nothing, wherever it stands: the state is that of the tokens alone.

    β = 0 writes nothing, log_decay = 0 fades nothing. A mask may be of one row, for all.
    """
    layer, x, said = _layer(impl, draw, 8, 2, 4), draw(2, 6, 8), {}
    for name, real in {"behind": [1, 1, 1, 0, 0, 0], "between": [1, 1, 0, 0, 0, 1], "all": [0] * 6}.items():
        cache = layer.make_cache(2)
        _decode(layer, cache, x, (6,), torch.tensor(real, dtype=torch.bool, device=draw.device)[None, None, None])
        said[name] = [_texts(cache.state), cache.length]
    return said


def test_layer_refuses(impl, draw):
    """A mask that hides a token from some queries only is refused, and so is a cache of another kind or size.

    By a ValueError that names mask or cache; the cache is as it was. mask_must_fit(mask, (batch, 1, 1, keys)) does the
    first: a state cannot be one thing for one query and another for the next.
    """
    layer, x = _layer(impl, draw, 8, 2, 4), draw(2, 3, 8)
    cache, other, layers = layer.make_cache(2), layer.make_cache(1), impl.GatedDeltaNet(8, 2, 3).make_cache(2)
    channels = impl.GatedDeltaNet(8, 1, 4, value_heads=2).make_cache(2)         # its state has the same shape
    width = impl.GatedDeltaNet(8, 2, 4, conv_width=3).make_cache(2)
    causal, long = (torch.ones(*shape, dtype=torch.bool, device=draw.device) for shape in ((3, 3), (2, 1, 1, 4)))
    keys = sys.modules[impl.Transformer.__module__].KVCache(2, 2, 8, 4, draw.float, draw.device)
    with torch.no_grad():
        said = {"causal": raises(ValueError, lambda: layer(x, causal.tril(), cache=cache), names="mask"),
                "too long": raises(ValueError, lambda: layer(x, long, cache=cache), names="mask"),
                "KVCache": raises(ValueError, lambda: layer(x, cache=keys), names="cache"),
                "another batch": raises(ValueError, lambda: layer(x, cache=other), names="cache"),
                "another layer's": raises(ValueError, lambda: layer(x, cache=layers), names="cache"),
                "other channels": raises(ValueError, lambda: layer(x, cache=channels), names="cache"),
                "another width": raises(ValueError, lambda: layer(x, cache=width), names="cache")}
    return said | {"gradients": raises(ValueError, lambda: layer(x, cache=cache), names="state"),
                   "length": cache.length, "state": cache.state}


def test_layer_sizes(impl, draw):
    """A size below 1 raises a ValueError that names it, and so do value_heads that heads does not divide.

    Left out, value_heads are heads and value_dim is head_dim.
    """
    names, said = ["d_model", "heads", "head_dim", "value_heads", "value_dim", "conv_width"], {}
    for i in range(6):
        sizes = [5, 2, 3, 4, 2, 3]
        sizes[i] = -int(draw.ints(3))
        said[f"{sizes}"] = raises(ValueError, lambda: impl.GatedDeltaNet(*sizes), names=names[i])
    heads = _size(draw, 2, 5)
    return said | {"chunk": raises(ValueError, lambda: impl.GatedDeltaNet(5, 1, 2, chunk=0), names="chunk"),
                   "not divided": raises(ValueError, lambda: impl.GatedDeltaNet(5, heads, 3, heads + 1),
                                         names="value_heads"),
                   "fewer": raises(ValueError, lambda: impl.GatedDeltaNet(5, 2, 3, 1), names="value_heads")}


# -- the model

@points(2)
def test_with_linear_layers(impl, draw):
    """Every `every`-th layer keeps its attention, and the others get a GatedDeltaNet: 3:1 for every = 4.

    Layers are counted from 1 for this: of layers 0 … 4, layer 3 keeps its attention. The model that comes back is the
    one that went in.
    """
    module, said = sys.modules[impl.Transformer.__module__], {}
    for every, layers in ((4, 5), (2, 3), (1, 2), (6, 2)):
        model = impl.Transformer(module.ModelConfig(**SIZES | {"layers": layers}))
        same = impl.with_linear_layers(model, every) is model
        said[f"every {every}"] = [same, [isinstance(b.attention, impl.GatedDeltaNet) for b in model.blocks]]
    return said


def test_new_layers_are_as_the_old_ones(impl, draw):
    """The new layers have the dtype and the mode of the old ones, each of the one whose place it takes.

    Ask a parameter of the old attention for its dtype and device, and the attention itself whether it is training.
    """
    module = sys.modules[impl.Transformer.__module__]
    model = impl.Transformer(module.ModelConfig(**SIZES)).to(torch.bfloat16).eval()
    model.blocks[_size(draw, 0, 2)].attention.train()
    impl.with_linear_layers(model)
    return {"dtypes": sorted({str(parameter.dtype) for parameter in model.parameters()}),
            "training": [part.training for block in model.blocks for part in (block.attention, block.attention.o_proj)]}


def test_sizes_of_linear_layers(impl, draw):
    """Left out, heads are the config's kv_heads, value_heads its heads, head_dim and norm_eps its own.

    What is given goes to GatedDeltaNet as it is.
    """
    said = {}
    for name, sizes in {"left out": {}, "given": {"heads": 1, "head_dim": 3, "value_dim": 5, "conv_width": 2}}.items():
        layer = _model(impl, draw, sizes=sizes, norm_eps=0.2, layers=1).blocks[0].attention
        said[name] = {"shapes": shapes(layer.state_dict()), "y": layer(draw(1, 4, 8))}
    return said


@points(2)
def test_start_of_linear_layers(impl, draw):
    """The new Linears start as lesson 13's: σ = 0.02, and o_proj divided by √(2 · layers).

    scaled_residual_init(layer, config.layers), once, after the others. (The answers are spreads in units of 0.004.)
    """
    module = sys.modules[impl.Transformer.__module__]
    torch.manual_seed(draw.seed)
    layers = _size(draw, 2, 5)
    config = module.ModelConfig(**SIZES | {"d_model": 128, "head_dim": 32, "layers": layers})
    layer = impl.with_linear_layers(impl.Transformer(config)).blocks[0].attention
    spreads = {name: 1000 * float(p.detach().std()) for name, p in layer.named_parameters() if name.endswith("weight")}
    return {name: round(spread / 4 if "o_proj" not in name else spread * (2 * layers) ** 0.5 / 4)
            for name, spread in spreads.items() if "_proj" in name and "beta" not in name and "decay" not in name}


def test_fit_caches(impl, draw):
    """A cache of every linear layer becomes a StateCache, in the same list; all others stay what they are.

    Lesson 13's make_caches looks at the config alone. A StateCache that is there already stays, with what it holds.
    """
    model = _model(impl, draw)
    caches = _caches(impl, model, draw, 2, 6)
    before = list(caches)
    same = impl.fit_caches(model, caches, 2) is caches
    again = list(impl.fit_caches(model, caches, 2))
    return {"same list": same, "kinds": [isinstance(cache, impl.StateCache) for cache in caches],
            "kept": [a is b for a, b in zip(before, caches)], "kept again": [a is b for a, b in zip(again, caches)],
            "states": [list(cache.state.shape) for cache in caches if isinstance(cache, impl.StateCache)]}


def test_fit_caches_refuses(impl, draw):
    """Caches that are not one per layer, or that hold tokens where a state is due, are refused by name.

    By a ValueError that names caches, and then the list is as it was.
    """
    model = _model(impl, draw)
    caches, short = _caches(impl, model, draw, 1, 6), _caches(impl, model, draw, 1, 6)[:4]
    caches[2].update(draw(1, 2, 3, 6), draw(1, 2, 3, 6))
    before = list(caches)
    return {"with tokens": raises(ValueError, lambda: impl.fit_caches(model, caches, 1), names="caches"),
            "too few": raises(ValueError, lambda: impl.fit_caches(model, short, 1), names="caches"),
            "as they were": [a is b for a, b in zip(before, caches)]}


@points(3)
def test_hybrid_decodes(impl, draw):
    """A hybrid decodes with the caches of lesson 13's make_caches: in pieces as in one.

    with_linear_layers registers the given hook on the model, which fits the caches before each forward pass.
    """
    model = _model(impl, draw, every=2, layers=3)
    ids, caches = draw.ints(11, 2, 9), _caches(impl, model, draw, 2, 9)
    with torch.no_grad():
        parts = [model(part, caches=caches) for part in ids.split((5, 1, 3), dim=1)]
        return {"pieces": torch.cat(parts, dim=1), "at once": model(ids), "lengths": [cache.length for cache in caches]}


@points(2)
def test_hybrid_left_padding(impl, draw):
    """A left-padded batch through the hybrid: each row says what it says alone.

    The same mask serves attention and state: it hides keys from one, and keeps padding out of the other.
    """
    model, ids = _model(impl, draw, every=2, layers=3), draw.ints(11, 2, 7)
    padding, places = torch.tensor([[0], [3]], device=draw.device), torch.arange(7, device=draw.device)
    real, positions = places >= padding, (places - padding).clamp(min=0)
    caches, out = _caches(impl, model, draw, 2, 7), []
    with torch.no_grad():
        for start, end in ((0, 5), (5, 6), (6, 7)):
            out.append(model(ids[:, start:end], real[:, None, None, :end], positions[:, start:end], caches))
    out = torch.cat(out, dim=1)
    return [out[0], out[1, 3:]]


def test_with_linear_layers_refuses(impl, draw):
    """Models that have no use for a state are refused by the name of what stands against it.

    Post-norm blocks take another attention; a model that is not causal reads from both sides; and one that has linear
    layers already has them. The model stays as it was.
    """
    module, said = sys.modules[impl.Transformer.__module__], {}
    post = {"norm": "layer", "norm_position": "post", "feed_forward": "mlp", "positions": "learned", "kv_heads": 4,
            "head_dim": 2, "qkv_bias": True, "o_bias": True, "mlp_bias": True}
    for name, changes, wrong in (("post", post, "norm_position"), ("not causal", {"causal": False}, "causal")):
        model = impl.Transformer(module.ModelConfig(**SIZES | {"layers": 2} | changes))
        said[name] = raises(ValueError, lambda: impl.with_linear_layers(model, 2), names=wrong)
    model = impl.Transformer(module.ModelConfig(**SIZES | {"layers": 3}))
    for every in (0, -1 - int(draw.ints(5))):
        said[f"every {every}"] = raises(ValueError, lambda: impl.with_linear_layers(model, every), names="every")
    said["value_heads"] = raises(ValueError, lambda: impl.with_linear_layers(model, value_heads=3), names="value_heads")
    said["as it was"] = [isinstance(block.attention, impl.GatedDeltaNet) for block in model.blocks]
    impl.with_linear_layers(model, 2)
    return said | {"twice": raises(ValueError, lambda: impl.with_linear_layers(model, 3), names="model")}
