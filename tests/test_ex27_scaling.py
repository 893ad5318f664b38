"""What lesson 27 asks of Muon, the WSD schedule, μP, a law for the loss, and the critical batch."""

import copy
import math
from functools import partial

import torch
from torch import nn

from grader import dtypes, points, raises

FORBIDDEN = {
    "newton_schulz": {"torch.svd", "torch.Tensor.svd", "torch.linalg.svd", "torch.linalg.matrix_power",
                      "torch.matrix_power", "torch.optim._muon._zeropower_via_newtonschulz"},
    "Muon": {"torch.optim.Muon", "torch.optim._muon.muon"},
    "wsd": {"torch.optim.lr_scheduler.LinearLR", "torch.optim.lr_scheduler.LambdaLR",
            "torch.optim.lr_scheduler.SequentialLR", "transformers.get_wsd_schedule"},
}
BASE = {"vocab_size": 7, "d_model": 4, "layers": 1, "heads": 2, "kv_heads": 1, "head_dim": 2, "d_ff": 6,
        "max_seq_len": 8}
WIDE = {**BASE, "d_model": 12, "heads": 6, "kv_heads": 3, "d_ff": 18}      # three times as wide


def _model(impl, draw, sizes=BASE, **changes):
    return draw.fill(impl.Transformer(impl.ModelConfig(**{**sizes, **changes})))


def _size(draw, low, high):
    """A whole number from low to high that nobody knows before it is drawn."""
    return low + int(draw.ints(high - low + 1))


def _number(draw, low, high):
    """A number between two."""
    return low + (high - low) * float(draw.uniform())


def _parameters(draw, *shapes):
    return [nn.Parameter(draw(*shape).double()) for shape in shapes]


def _steps(draw, optimizer, parameters, steps):
    """The parameters after each of some steps, each with a fresh gradient, in float64."""
    said = []
    for _ in range(steps):
        for p in parameters:
            p.grad = draw(*p.shape).double()
        optimizer.step()
        said.append([p.detach().clone() for p in parameters])
    return said


def _law(impl, draw):
    return impl.ScalingLaw(_number(draw, 1.5, 2.5), _number(draw, 20, 40), _number(draw, 30, 60),
                           _number(draw, 0.28, 0.38), _number(draw, 0.28, 0.38))


def _runs(draw):
    """n and d of nine runs, float64."""
    n, d = torch.tensor([1e5, 4e5, 16e5]), torch.tensor([1e6, 4e6, 16e6])
    stretch = 1 + draw.uniform(2)
    return [x.double().to(draw.device).flatten() for x in torch.meshgrid(n * stretch[0].cpu(), d * stretch[1].cpu(),
                                                                         indexing="ij")]


def _start(law, draw, off=1.05):
    """A start for the fit that is somewhat off a law."""
    return torch.tensor([[math.log(off * law.E), math.log(law.A / off), math.log(off * law.B), law.alpha, law.beta]],
                        dtype=torch.float64, device=draw.device)


def _names(model, parameters):
    """Which of a model's parameters these are."""
    name_of = {id(p): name for name, p in model.named_parameters()}
    return [name_of[id(p)] for p in parameters]


def _groups(model, groups):
    return [{**{key: group[key] for key in ("lr", "weight_decay") if key in group},
             "params": _names(model, group["params"])} for group in groups]


# -- Newton–Schulz

@points(3)
def test_newton_schulz(impl, draw):
    """A step of Newton–Schulz is X ← a X + (b A + c A²) X with A = X Xᵀ, five times.

    X starts as the matrix divided by its norm. a, b, c = COEFFICIENTS, in this order: the first belongs to X, the
    second to A, the third to A A.
    """
    return {"wide": impl.newton_schulz(draw(3, 5).double()), "square": impl.newton_schulz(draw(4, 4).double())}


@points(2)
def test_newton_schulz_divides_by_the_norm(impl, draw):
    """The matrix is first divided by its Frobenius norm, so its length makes no difference.

    The polynomial works for singular values from 0 to a little above 1, and the largest is never above that norm. A
    matrix of length 1,000 explodes without the division. With 0 steps only the division is left.
    """
    x = draw(3, 4).double()
    return {"0 steps": impl.newton_schulz(x, 0), "a long matrix": impl.newton_schulz(1000 * x),
            "a short one": impl.newton_schulz(x / 1000)}


@points(2)
def test_newton_schulz_of_a_tall_matrix(impl, draw):
    """A tall matrix is transposed before, and back after: the result has the matrix's own shape.

    X Xᵀ of 6 × 2 is a 6 × 6 square, that of its transpose 2 × 2: less work for the same singular values.
    """
    x = draw(6, 2).double()
    return {"tall": impl.newton_schulz(x), "its transpose": impl.newton_schulz(x.T),
            "one step": impl.newton_schulz(x, 1)}


def test_newton_schulz_steps(impl, draw):
    """steps says how often the polynomial is applied; a number below 0 is a ValueError that names steps.

    A loop over range(steps). 1 is a check of the formula alone; must_not_be_negative, which is given, refuses.
    """
    x, low = draw(3, 4).double(), -_size(draw, 1, 9)
    return {**{str(steps): impl.newton_schulz(x, steps) for steps in (1, 2, 3)},
            "below 0": raises(ValueError, lambda: impl.newton_schulz(x, low), "steps")}


def test_newton_schulz_lifts_singular_values(impl, draw):
    """Every singular value goes through a s + b s³ + c s⁵, and the singular vectors stay.

    Here the matrix is diagonal, so that its singular values are seen: small ones are lifted above 0.5 in five steps.
    """
    values = (0.05 + draw.uniform(5)).double()
    return torch.diagonal(impl.newton_schulz(values.diag()))


def test_newton_schulz_of_zeros(impl, draw):
    """A matrix of zeros stays zeros: its norm counts as 10⁻⁷ at least, so nothing is divided by 0.

    Such a gradient comes from a layer that had no part in the loss. `.clamp(min=1e-7)` on the norm is enough.
    """
    tiny = draw(3, 4).double() * 1e-9
    return {"zeros": impl.newton_schulz(torch.zeros_like(tiny)), "numbers of 1e-9": impl.newton_schulz(tiny, 1)}


def test_newton_schulz_of_a_batch(impl, draw):
    """Matrices of a batch go each by itself: the norm is taken over the last two axes.

    x.norm() is the norm of all of them together, and x.T turns all axes round; x.mT the last two.
    """
    x = draw(2, 3, 4, 2).double()
    return {"a batch": impl.newton_schulz(x), "one long, one short": impl.newton_schulz(
        torch.stack([x[0, 0], 100 * x[0, 1]]))}


@dtypes("float32", "bfloat16")
def test_newton_schulz_keeps_its_dtype(impl, draw, dtype):
    """The products are computed in the dtype of the matrix, and so is what comes out; the given matrix stays.

    In bfloat16 they take half of the time on a GPU, and its rounding is less than what the polynomial leaves.
    """
    x = (torch.eye(4, device=draw.device, dtype=draw.float) + 0.1 * draw(4, 4)).to(dtype)
    before = x.clone()
    return {"result": impl.newton_schulz(x, 1), "the matrix": torch.equal(x, before)}


@dtypes("float16")
def test_newton_schulz_of_large_numbers(impl, draw, dtype):
    """The norm is computed in at least float32: squares of 1,000 are past float16's largest number.

    `widen`, which is given, is for that. What the matrix is divided by goes back to its dtype.
    """
    x = (1000 * torch.eye(4, device=draw.device, dtype=draw.float) + 100 * draw(4, 4)).to(dtype)
    return impl.newton_schulz(x, 1)


# -- Muon

def test_shape_factor_of_the_original(impl, draw):
    """"original": √(rows / columns) where a matrix is taller than wide, and 1 where it is not.

    The weight of a layer is (outputs, inputs), so rows are its outputs.
    """
    sizes = _size(draw, 2, 9), _size(draw, 10, 99)
    return {f"{rows} × {columns}": impl.shape_factor(rows, columns)
            for rows, columns in (sizes, sizes[::-1], (sizes[0], sizes[0]))}


def test_shape_factor_that_matches_adamw(impl, draw):
    """"match_rms_adamw": 0.2 · √max(rows, columns), which gives a step's numbers the size of AdamW's.

    The longer side counts, whichever it is.
    """
    sizes = _size(draw, 2, 9), _size(draw, 10, 99)
    return {f"{rows} × {columns}": impl.shape_factor(rows, columns, "match_rms_adamw")
            for rows, columns in (sizes, sizes[::-1], (sizes[0], sizes[0]))}


def test_shape_factor_refuses_other_names(impl, draw):
    """A shape that is neither "original" nor "match_rms_adamw" is a ValueError that names shape.

    SHAPES has the known ones. Muon should refuse it when it is made, before the first step.
    """
    name = f"adam{_size(draw, 0, 99)}"
    return [raises(ValueError, lambda: impl.shape_factor(2, 3, name), "shape"),
            raises(ValueError, lambda: impl.Muon(_parameters(draw, (2, 3)), shape=name), "shape")]


@points(3)
def test_muon(impl, draw):
    """Muon moves p by −lr · shape_factor · newton_schulz of the momentum, in Nesterov's form.

    m ← momentum · m + (1 − momentum) · g; then u = (1 − momentum) · g + momentum · m, with the new m.
    """
    parameters = _parameters(draw, (3, 4), (4, 2))
    optimizer = impl.Muon(parameters, lr=0.1, momentum=0.8, weight_decay=0.0)
    return _steps(draw, optimizer, parameters, 3)


@points(2)
def test_muon_without_nesterov(impl, draw):
    """With nesterov=False the momentum itself is made orthogonal.

    The new momentum, after the gradient has gone into it.
    """
    parameters = _parameters(draw, (3, 4))
    return _steps(draw, impl.Muon(parameters, lr=0.1, momentum=0.8, weight_decay=0.0, nesterov=False), parameters, 3)


@points(2)
def test_muon_decay(impl, draw):
    """Weight decay shrinks p by lr · weight_decay · p, beside the step: the shape factor has no part in it.

    Added to the gradient it would go through Newton–Schulz, and its size would be lost. Here one gradient is zero.
    """
    idle, busy = _parameters(draw, (8, 2), (8, 2))
    idle.grad, busy.grad = torch.zeros_like(idle), draw(8, 2).double()
    optimizer = impl.Muon([idle, busy], lr=0.1, weight_decay=0.5)
    for _ in range(2):
        optimizer.step()
    return {"with a zero gradient": idle.detach(), "with a gradient": busy.detach()}


def test_muon_shapes(impl, draw):
    """A step is multiplied by shape_factor of the parameter's own shape, as the option shape says.

    p.shape is (rows, columns); the name is in group["shape"].
    """
    said = {}
    for shape in ("original", "match_rms_adamw"):
        parameters = _parameters(draw, (9, 2), (2, 9))
        said[shape] = _steps(draw, impl.Muon(parameters, lr=0.1, weight_decay=0.0, shape=shape), parameters, 1)
    return said


@points(2)
def test_muon_groups(impl, draw):
    """Each parameter group has its own options, and they are read anew at each step.

    A schedule works by writing group["lr"] before the step.
    """
    first, second = _parameters(draw, (2, 3), (3, 2))
    optimizer = impl.Muon([{"params": [first], "momentum": 0.5, "steps": 2}, {"params": [second], "lr": 0.3}],
                          lr=0.1, weight_decay=0.2)
    said = _steps(draw, optimizer, [first, second], 2)
    optimizer.param_groups[0]["lr"] = 0.01
    return said + _steps(draw, optimizer, [first, second], 1)


def test_muon_passes_over_parameters_without_a_gradient(impl, draw):
    """A parameter without a gradient is not moved and not decayed, and its momentum starts with its first gradient.

    p.grad is None for a parameter that had no part in the loss.
    """
    first, late = _parameters(draw, (2, 3), (2, 3))
    optimizer = impl.Muon([first, late], lr=0.1)
    _steps(draw, optimizer, [first], 2)
    before = late.detach().clone()
    return {"before": before, "after": _steps(draw, optimizer, [first, late], 2)}


def test_muon_leaves_gradients_alone(impl, draw):
    """A step changes the parameters and its own state; gradients stay as they are.

    g.lerp_(m, …) writes into the gradient; g.lerp(m, …) makes a new tensor.
    """
    p, = _parameters(draw, (3, 4))
    optimizer, gradient = impl.Muon([p], lr=0.1), draw(3, 4).double()
    p.grad = gradient.clone()
    optimizer.step()
    optimizer.step()
    return {"unchanged": torch.equal(p.grad, gradient), "parameter": p.detach(),
            "state": {name: 1 * value for name, value in optimizer.state[p].items()}}


def test_muon_with_a_closure(impl, draw):
    """A closure is called first, with gradients on, and its loss is returned; without one, None is.

    step runs under no_grad, so open torch.enable_grad() for the call.
    """
    p, = _parameters(draw, (3, 4))
    optimizer = impl.Muon([p], lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = p.square().sum()
        loss.backward()
        return loss
    with torch.no_grad():
        loss = optimizer.step(closure)
    return {"loss": loss.detach(), "parameter": p.detach(), "without": optimizer.step()}


def test_muon_computes_in_its_dtype(impl, draw):
    """With the option dtype Newton–Schulz is computed in it; parameter and momentum keep their own.

    torch.bfloat16 is what is used on a GPU.
    """
    p = nn.Parameter(torch.zeros(4, 4, device=draw.device, dtype=draw.float))
    optimizer = impl.Muon([p], lr=4.0, weight_decay=0.0, steps=1, dtype=torch.bfloat16)
    p.grad = torch.eye(4, device=draw.device, dtype=draw.float) + 0.1 * draw(4, 4)
    optimizer.step()
    moved = p.detach() / -4
    return {"in bfloat16": torch.equal(moved.bfloat16().to(moved.dtype), moved), "moved": moved.bfloat16(),
            "dtypes": [p.dtype == draw.float, optimizer.state[p]["m"].dtype == draw.float]}


def test_muon_refuses(impl, draw):
    """A negative lr or weight_decay, a momentum outside [0, 1), and what is no matrix: each a ValueError that names it.

    A norm's weight has one axis, a bank of experts three: Newton–Schulz is for matrices.
    """
    p, vector, bank = _parameters(draw, (2, 3), (4,), (2, 3, 4))
    low = -_number(draw, 0.01, 1)
    return [raises(ValueError, lambda: impl.Muon([p], lr=low), "lr"),
            raises(ValueError, lambda: impl.Muon([p], weight_decay=low), "weight_decay"),
            raises(ValueError, lambda: impl.Muon([p], steps=-1), "steps"),
            raises(ValueError, lambda: impl.Muon([p], momentum=1.0), "momentum"),
            raises(ValueError, lambda: impl.Muon([p], momentum=low), "momentum"),
            raises(ValueError, lambda: impl.Muon([p, vector]), "params"),
            raises(ValueError, lambda: impl.Muon([bank]), "params")]


@points(2)
def test_hidden_matrices(impl, draw):
    """hidden_matrices are what has two axes inside model.blocks, under the names that it has in the model.

    The embedding and the unembedding have two axes, too, but lie outside the blocks; norms and biases have one.
    """
    said = {}
    for kind in ({}, {"norm": "layer", "feed_forward": "mlp", "mlp_bias": True, "positions": "learned"}):
        model = _model(impl, draw, **kind)
        found = impl.hidden_matrices(model)
        said[str(kind)] = [list(found), _names(model, found.values())]
    return said


@points(2)
def test_muon_and_adamw(impl, draw):
    """Muon gets the hidden matrices, AdamW all else, and of that only what has two axes decays.

    Each parameter is in exactly one group.
    """
    model, rates = _model(impl, draw, qkv_bias=True), (_number(draw, 0.01, 0.1), _number(draw, 0.001, 0.01))
    both = impl.muon_and_adamw(model, *rates, weight_decay=0.3, shape="match_rms_adamw", momentum=0.7)
    return {"groups": _groups(model, both.param_groups),
            "options": [{key: group.get(key) for key in ("shape", "momentum", "betas")} for group in both.param_groups]}


def test_muon_and_adamw_with_tied_matrices(impl, draw):
    """A tied embedding is one parameter, AdamW's, and stands in one group once.

    named_parameters gives a shared parameter once, by its first name: embedding.weight.
    """
    model = _model(impl, draw, tie_embeddings=True)
    return _groups(model, impl.muon_and_adamw(model, 0.02, 0.003).param_groups)


# -- WSD

@points(2)
def test_wsd(impl, draw):
    """WSD rises to peak, stays there, and falls along a straight line to floor in the last decay steps.

    The first step is step 0 and has peak / warmup. Step total − decay is the last one at peak, step total the first
    at floor.
    """
    warmup, decay = _size(draw, 2, 5), _size(draw, 3, 6)
    total, peak = warmup + decay + _size(draw, 3, 9), _number(draw, 0.1, 0.9)
    return {f"step {step}": impl.wsd(step, warmup, decay, total, peak, 0.01) for step in range(total + 2)}


def test_wsd_by_the_root(impl, draw):
    """With fall "sqrt" the rate falls as 1 − √t, quickly at first, and floor is 0 where it is left out.

    t = (step − (total − decay)) / decay goes from 0 to 1 in the last decay steps.
    """
    decay, peak = _size(draw, 4, 9), _number(draw, 0.1, 0.9)
    return {f"step {step}": impl.wsd(step, 2, decay, 4 + decay, peak, fall="sqrt") for step in range(3, 6 + decay)}


def test_wsd_does_not_know_its_end(impl, draw):
    """Before the decay nothing depends on total: a run can go on, and decay later.

    The decay is counted back from total; the stable part ends where it starts.
    """
    decay, peak = _size(draw, 3, 6), _number(draw, 0.1, 0.9)
    return {f"step {step} of {total}": impl.wsd(step, 3, decay, total, peak)
            for total in (30, 40) for step in (0, 2, 3, 30 - decay, 31 - decay, 29, 30)}


def test_wsd_without_parts(impl, draw):
    """Without warm-up the first step has peak, without decay every step up to total; nothing is divided by 0.

    Ask for the parts in order: warm-up, at total or past it, stable, and only then divide by decay.
    """
    peak, total = _number(draw, 0.1, 0.9), _size(draw, 5, 9)
    return {"no warm-up": impl.wsd(0, 0, 2, total, peak), "no decay": impl.wsd(total - 1, 2, 0, total, peak),
            "no decay, at the end": impl.wsd(total, 2, 0, total, peak, 0.01),
            "nothing stable": [impl.wsd(step, 2, 3, 5, peak) for step in range(6)]}


def test_wsd_refuses(impl, draw):
    """A negative number, too few steps, a floor above peak, an unknown fall: each a ValueError that names it.

    Look at all of it before anything is computed. total has to have room for warmup + decay.
    """
    low, peak = -_size(draw, 1, 9), _number(draw, 0.1, 0.9)
    return [raises(ValueError, lambda: impl.wsd(low, 2, 2, 9, peak), "step"),
            raises(ValueError, lambda: impl.wsd(0, low, 2, 9, peak), "warmup"),
            raises(ValueError, lambda: impl.wsd(0, 2, low, 9, peak), "decay"),
            raises(ValueError, lambda: impl.wsd(0, 5, 5, 9, peak), "total"),
            raises(ValueError, lambda: impl.wsd(0, 2, 2, 9, peak, 2 * peak), "floor"),
            raises(ValueError, lambda: impl.wsd(0, 2, 2, 9, peak, -peak), "floor"),
            raises(ValueError, lambda: impl.wsd(0, 2, 2, 9, peak, fall=f"line {low}"), "fall")]


# -- μP

def test_width_ratio(impl, draw):
    """width_ratio is d_model / base.d_model, where d_ff, heads and kv_heads grow by the same factor.

    The ratio is a float, and may be below 1. Compare products, mine · base.d_model and base · d_model, not quotients.
    """
    m = _size(draw, 2, 5)
    config = impl.ModelConfig(**{**BASE, "d_model": 4 * m, "heads": 2 * m, "kv_heads": m, "d_ff": 6 * m})
    base, wide = impl.ModelConfig(**BASE), impl.ModelConfig(**WIDE)
    return [impl.width_ratio(config, base), impl.width_ratio(base, config), impl.width_ratio(config, wide)]


def test_width_ratio_refuses(impl, draw):
    """A part that does not grow along, or a vocabulary, depth or head of another size: a ValueError that names it.

    A head of another size would need scores divided by head_dim and not by its root.
    """
    base, more = impl.ModelConfig(**BASE), _size(draw, 1, 5)
    changes = ({"d_ff": 18 + more}, {"heads": 3}, {"kv_heads": 1}, {"vocab_size": 7 + more}, {"layers": 1 + more},
               {"head_dim": 2 + 2 * more})
    return {str(change): raises(ValueError, lambda: impl.width_ratio(impl.ModelConfig(**{**WIDE, **change}), base),
                                next(iter(change)))
            for change in changes}


@points(2)
def test_with_mup_scales_the_weights(impl, draw):
    """with_mup multiplies the hidden matrices by init / √m and leaves all other parameters as they were.

    The variance of a weight is then 1 / m of what it was, as 1 / fan_in asks.
    """
    model = _model(impl, draw, WIDE, tie_embeddings=bool(draw.ints(2)))
    same = impl.with_mup(model, impl.ModelConfig(**BASE), init=_number(draw, 0.5, 2))
    return {"the same model": same is model, **{name: p.detach() for name, p in model.state_dict().items()}}


@points(2)
def test_with_mup_scales_the_logits(impl, draw):
    """The logits are multiplied by output / m, and the names in the state_dict stay.

    By m, not by its root: each of the m times as many features moves the logits the same way once it has learned.
    """
    model, ids = _model(impl, draw, WIDE), draw.ints(7, 2, 3)
    impl.with_mup(model, impl.ModelConfig(**BASE), output=_number(draw, 0.5, 2))
    return {"logits": model(ids), "names": list(model.state_dict())}


def test_with_mup_at_the_width_of_base(impl, draw):
    """At the width of base, with init and output of 1, the model says what it said before.

    m is 1 there, and so is everything that is multiplied by it.
    """
    model, ids = _model(impl, draw), draw.ints(7, 2, 3)
    before = model(ids).detach()
    return {"before": before, "after": impl.with_mup(model, impl.ModelConfig(**BASE))(ids)}


def test_scaled_unembedding(impl, draw):
    """ScaledUnembedding multiplies the whole output, bias included, and its weight is the unembedding's own.

    A copy would no longer be tied to the embedding. scale is an attribute, no parameter. Nothing is drawn.
    """
    old = draw.fill(impl.Unembedding(3, 5, bias=True))
    new, x = impl.ScaledUnembedding(old, _number(draw, 0.1, 0.9)), draw(2, 3)
    torch.manual_seed(draw.seed)
    before = torch.get_rng_state()
    impl.ScaledUnembedding(old, 2)
    return {"output": new(x), "one weight": new.weight is old.weight, "one bias": new.bias is old.bias,
            "names": list(new.state_dict()), "random numbers drawn": not torch.equal(before, torch.get_rng_state())}


def test_with_mup_refuses(impl, draw):
    """init and output above 0, and no model twice: a ValueError that names it, and the model stays as it was.

    isinstance(model.unembedding, ScaledUnembedding) tells a model that is in μP. First look, then change.
    """
    model, base, low = _model(impl, draw, WIDE), impl.ModelConfig(**BASE), -_number(draw, 0, 1)
    said = [raises(ValueError, lambda: impl.with_mup(model, base, init=low), "init"),
            raises(ValueError, lambda: impl.with_mup(model, base, output=low), "output"),
            raises(ValueError, lambda: impl.with_mup(model, impl.ModelConfig(**{**BASE, "d_ff": 7})), "d_ff")]
    weights = {name: p.detach().clone() for name, p in model.state_dict().items()}
    impl.with_mup(model, base)
    return [said, weights, raises(ValueError, lambda: impl.with_mup(model, base), "model")]


@points(2)
def test_mup_groups(impl, draw):
    """Hidden matrices get lr / m and weight_decay · m; other matrices and vectors keep lr, and vectors do not decay.

    Adam's step has the same size whatever the gradient's: over m times as many inputs such steps add up to m times as
    much, unless the rate is m times smaller.
    """
    model = _model(impl, draw, WIDE, qkv_bias=True)
    return _groups(model, impl.mup_groups(model, impl.ModelConfig(**BASE), _number(draw, 0.01, 0.1), 0.3))


def test_mup_groups_at_the_width_of_base(impl, draw):
    """At the width of base all rates are lr, and a tied matrix stands in one group once; weight_decay 0 if left out.

    m is 1 there. named_parameters gives a tied matrix once.
    """
    model, base = _model(impl, draw, tie_embeddings=True), impl.ModelConfig(**BASE)
    return [_groups(model, impl.mup_groups(model, base, _number(draw, 0.01, 0.1))),
            raises(ValueError, lambda: impl.mup_groups(model, base, -_number(draw, 0.01, 0.1)), "lr"),
            raises(ValueError, lambda: impl.mup_groups(model, base, 0.1, -_number(draw, 0.01, 0.1)), "weight_decay")]


# -- the law

def test_law(impl, draw):
    """ScalingLaw.loss is E + A / n^α + B / d^β, for numbers and for tensors.

    Python's operators do both. The exponents belong to n and to d alone, not to A and B.
    """
    law, (n, d) = _law(impl, draw), _runs(draw)
    return {"tensors": law.loss(n, d), "numbers": law.loss(10**_size(draw, 6, 9), 10**_size(draw, 7, 10))}


@points(2)
def test_law_error(impl, draw):
    """law_error adds up Huber of log L − log loss over the runs; parameters hold log E, log A, log B, α, β.

    Up to delta the error is squared and halved, from there on it is a straight line.
    """
    law, (n, d) = _law(impl, draw), _runs(draw)
    loss = law.loss(n, d) * (1 + 0.002 * draw(9).double())
    start = _start(law, draw, 1.001)
    return {"a start": impl.law_error(start[0], n, d, loss), "a wide delta": impl.law_error(start, n, d, loss, 0.5),
            "a narrow one": impl.law_error(start[0], n, d, loss, 1e-5)}


def test_law_error_at_many_starts(impl, draw):
    """Many parameters at once give one error each: the starts stand on the axes before the last.

    parameters[..., None, :].unbind(-1) gives five tensors (*starts, 1), which spread over the runs.
    """
    n, d = _runs(draw)
    return impl.law_error(draw(2, 3, 5).double(), n, d, 2 + draw.uniform(9).double())


def test_law_error_does_not_overflow(impl, draw):
    """Whatever the parameters, the error is finite: logsumexp of the terms' logs, not the log of their sum.

    exp(800) is past float64's largest number.
    """
    n, d = _runs(draw)
    far = torch.tensor([0.0, 800.0, 900.0, 0.1, 0.1], dtype=torch.float64, device=draw.device)
    return impl.law_error(far + 0.1 * draw(5).double(), n, d, 2 + draw.uniform(9).double())


@points(3)
def test_fit_finds_the_law(impl, draw):
    """Of losses that follow a law exactly, fit_scaling_law finds that law.

    law_error is minimized, starting from the given start, which is 5 % off. E, A and B are the exponentials of what was
    fitted.
    """
    law, (n, d) = _law(impl, draw), _runs(draw)
    found = impl.fit_scaling_law(n, d, law.loss(n, d), starts=_start(law, draw))
    return torch.tensor([*found]).half()


@points(2)
def test_fit_is_not_led_astray(impl, draw):
    """A run that went wrong hardly moves the fit: its error counts in a straight line, not squared.

    Here one of nine losses is twice what it should be.
    """
    law, (n, d) = _law(impl, draw), _runs(draw)
    loss = law.loss(n, d)
    loss[int(draw.ints(9))] *= 2
    found = impl.fit_scaling_law(n, d, loss, starts=_start(law, draw, 1.01))
    return found.loss(n, d).half()


def test_fit_refuses(impl, draw):
    """Runs that no law can be fitted to are a ValueError that names what is wrong with them.

    Numbers that are not above 0; fewer than 5 runs; fewer than 3 sizes, or numbers of tokens; tokens that follow from
    the size, so that nothing tells which of the two helped.
    """
    (n, d), loss = _runs(draw), 2 + draw.uniform(9).double()
    law, one, four = _law(impl, draw), torch.ones_like(loss), [0, 4, 8, 1]
    fit = partial(impl.fit_scaling_law, starts=_start(law, draw))
    return {"a loss of 0": raises(ValueError, lambda: fit(n, d, loss * (n > n[0])), "loss"),
            "a size of 0": raises(ValueError, lambda: fit(n * (n > n[0]), d, loss), "n"),
            "4 runs": raises(ValueError, lambda: fit(n[four], d[four], loss[four]), "n"),
            "one size": raises(ValueError, lambda: fit(one * n[0], d, loss), "n"),
            "two sizes": raises(ValueError, lambda: fit(n.clamp(max=n[4].item()), d, loss), "n"),
            "one number of tokens": raises(ValueError, lambda: fit(n, one * d[0], loss), "d"),
            "tokens that follow": raises(ValueError, lambda: fit(n, 20 * n, law.loss(n, 20 * n)), "d"),
            "no tries": raises(ValueError, lambda: fit(n, d, loss, tries=0), "tries")}


def test_fit_of_losses_that_rise(impl, draw):
    """Losses that rise with n and d follow no such law: a ValueError that names loss, and no negative exponents.

    Look at α and β of what was fitted: both have to be above 0.
    """
    n, d = _runs(draw)
    start = torch.tensor([[0.0, -2.3, -2.3, -0.1, -0.1]], dtype=torch.float64, device=draw.device)
    return raises(ValueError, lambda: impl.fit_scaling_law(n, d, 1 + 0.1 * n**0.1 + 0.1 * d**0.1, starts=start), "loss")


# -- a budget

def test_training_flops(impl, draw):
    """Training costs 6 n d: 2 n d forward, twice that backward. What is not above 0 is a ValueError that names it.

    A multiplication and an addition for each parameter and token, three times. The result of whole numbers is whole.
    """
    n, d = _size(draw, 10, 10**6), _size(draw, 10, 10**6)
    return [impl.training_flops(n, d), impl.training_flops(n + 0.5, d),
            raises(ValueError, lambda: impl.training_flops(-n, d), "n"),
            raises(ValueError, lambda: impl.training_flops(n, 0), "d")]


@points(2)
def test_optimal(impl, draw):
    """optimal gives the n and d of the lowest loss among all with 6 n d = flops.

    n = G (flops / 6)^(β / (α + β)) with G = (α A / (β B))^(1 / (α + β)): parameters grow with the exponent of the
    tokens' term, β, over both.
    """
    law, flops = _law(impl, draw), 10.0 ** _size(draw, 15, 20)
    return {"a law": impl.optimal(flops, law), "100 times as much": impl.optimal(100 * flops, law),
            "α = β": impl.optimal(flops, law._replace(beta=law.alpha))}


def test_tokens_for(impl, draw):
    """tokens_for gives the d at which the law says that loss for n: E and A / n^α are taken off first.

    Solve L = E + A / n^α + B / d^β for d.
    """
    law, n = _law(impl, draw), 10 ** _size(draw, 5, 8)
    loss = law.loss(n, 10.0 ** _size(draw, 6, 9))
    return impl.tokens_for(loss, n, law)


def test_budgets_that_do_not_exist(impl, draw):
    """Flops or n that are not above 0, and a loss that n parameters never reach: each a ValueError that names it.

    Even after infinitely many tokens a model of n parameters has a loss of E + A / n^α.
    """
    law, n = _law(impl, draw), 10 ** _size(draw, 5, 8)
    never = law.E + law.A / n**law.alpha
    return [raises(ValueError, lambda: impl.optimal(-1.0 * n, law), "flops"),
            raises(ValueError, lambda: impl.tokens_for(3.0, -n, law), "n"),
            raises(ValueError, lambda: impl.tokens_for(never * 0.99, n, law), "loss"),
            raises(ValueError, lambda: impl.tokens_for(3.0, 1, law._replace(E=2.0, A=1.0)), "loss"),    # 2 + 1, exactly
            raises(ValueError, lambda: impl.tokens_for(law.E, n, law), "loss")]


# -- the critical batch

@points(2)
def test_critical_batch(impl, draw):
    """The noise scale is tr Σ / |G|², each solved from the mean squared norms at two sizes of a batch.

    A gradient of B examples has the expected square |G|² + tr Σ / B.
    """
    small, big = _size(draw, 2, 9), _size(draw, 20, 90)
    gradient, noise = _number(draw, 1, 2), _number(draw, 5, 50)
    jitter = 1 + 0.02 * draw(2, 6)
    small_norms, big_norms = ((gradient + noise / size) ** 0.5 * jitter[i] for i, size in enumerate((small, big)))
    return {"several": impl.critical_batch(small_norms, big_norms, small, big),
            "one of each": impl.critical_batch(small_norms[:1], big_norms[:1], small, big),
            "unequally many": impl.critical_batch(small_norms, big_norms[:2], small, big),
            "short gradients": impl.critical_batch(small_norms / 50, big_norms / 50, small, big)}


def test_critical_batch_averages_squares(impl, draw):
    """Norms are squared, and then averaged; the ratio is taken once, at the end.

    The square of a mean norm is smaller than the mean square, and a mean of ratios is thrown off by one near 0 below.
    """
    spread = torch.tensor([0.2, 1.8], device=draw.device) + 0.1 * draw.uniform(2)
    return impl.critical_batch(4 * spread, 2 * spread, 2, 64)


@dtypes("bfloat16", "float64")
def test_critical_batch_of_half_precision(impl, draw, dtype):
    """Squares and means are computed in at least float32, of norms in any dtype.

    In bfloat16 a square has three digits left, and what is solved for is a small difference of two of them.
    """
    norms = (100 + draw.ints(28, 4)).to(draw.float)
    return impl.critical_batch((norms * 1.03).to(dtype), norms.to(dtype), 1.5, 64)


def test_critical_batch_refuses(impl, draw):
    """Sizes that do not differ, and norms that leave no gradient or no noise: each a ValueError that names it.

    Two equal sizes are one equation. Measured norms jitter: what is left for |G|² or tr Σ may come out below 0.
    """
    norms, size = 1 + draw.uniform(3), _size(draw, 2, 9)
    return [raises(ValueError, lambda: impl.critical_batch(2 * norms, norms, size, size), "big"),
            raises(ValueError, lambda: impl.critical_batch(2 * norms, norms, -size, size), "small"),
            raises(ValueError, lambda: impl.critical_batch(norms, 2 * norms, size, 4 * size), "big_norms"),
            raises(ValueError, lambda: impl.critical_batch(norms, norms, size, 4 * size), "big_norms"),
            raises(ValueError, lambda: impl.critical_batch(norms / 50, norms / 49, size, 4 * size), "big_norms"),
            raises(ValueError, lambda: impl.critical_batch(norms / 5, norms / 50, size, 4 * size), "big_norms"),
            raises(ValueError, lambda: impl.critical_batch(2 + 0 * norms, 1 + 0 * norms, size, 4 * size), "big_norms"),
            raises(ValueError, lambda: impl.critical_batch(10 * norms, norms, size, 4 * size), "big_norms")]


def test_batch_costs(impl, draw):
    """A batch costs 1 + critical / batch times the fewest steps, and 1 + batch / critical times the fewest tokens.

    In this order. At the critical batch both are 2.
    """
    batch, critical = _size(draw, 2, 99), _size(draw, 100, 999)
    return [impl.batch_costs(batch, critical), impl.batch_costs(critical, critical), impl.batch_costs(7.5, batch),
            raises(ValueError, lambda: impl.batch_costs(-batch, critical), "batch"),
            raises(ValueError, lambda: impl.batch_costs(batch, -critical), "critical")]


def test_together_steps_all(impl, draw):
    """A training step of muon_and_adamw moves every parameter of a model, each once.

    Here each parameter's gradient is given.
    """
    model = _model(impl, draw).double()
    before = copy.deepcopy(model.state_dict())
    both = impl.muon_and_adamw(model, 0.02, 0.01)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    for group in both.param_groups:
        group["lr"] *= 0.5
    both.step()
    return {name: p.detach() - before[name] for name, p in model.state_dict().items()
            if name in ("embedding.weight", "norm.weight", "unembedding.weight") or "q_proj" in name}
