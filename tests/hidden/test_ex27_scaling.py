"""Lesson 27 on other shapes, dtypes, models and budgets."""

import math
from functools import partial

import torch
from torch import nn

from grader import points, raises

BASE = {"vocab_size": 5, "d_model": 6, "layers": 2, "heads": 3, "kv_heads": 3, "head_dim": 2, "d_ff": 4,
        "max_seq_len": 6}
WIDE = {**BASE, "d_model": 12, "heads": 6, "kv_heads": 6, "d_ff": 8}


def _model(impl, draw, sizes=BASE, **changes):
    return draw.fill(impl.Transformer(impl.ModelConfig(**{**sizes, **changes})))


def _number(draw, low, high):
    return low + (high - low) * float(draw.uniform())


def _names(model, parameters):
    name_of = {id(p): name for name, p in model.named_parameters()}
    return [name_of[id(p)] for p in parameters]


def test_newton_schulz_of_thin_matrices(impl, draw):
    """A row, a column, a single number and a matrix of rank 1."""
    return [impl.newton_schulz(x) for x in (draw(1, 5).double(), draw(5, 1).double(), draw(1, 1).double(),
                                            draw(4, 1).double() @ draw(1, 3).double())]


def test_newton_schulz_of_other_memory(impl, draw):
    """A transposed view and an expanded one, and an empty batch."""
    x = draw(5, 3).double()
    return [impl.newton_schulz(x.T), impl.newton_schulz(x[:1].expand(4, 3)), impl.newton_schulz(x.expand(0, 5, 3))]


def test_newton_schulz_takes_the_smaller_square(impl, draw):
    """No product on the way is larger than the matrix, tall or wide, also in a batch."""
    def keep(x):
        largest.append(x.numel())
        return x
    said = []
    for x in (draw(20, 2), draw(2, 20), draw(1, 20, 2)):
        largest = []
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            out = impl.newton_schulz(x.requires_grad_())
        said.append([out.detach(), max(largest) < 400])
    return said


def test_newton_schulz_refuses(impl, draw):
    """A negative number of steps."""
    steps = -1 - int(draw.ints(9))
    return raises(ValueError, lambda: impl.newton_schulz(draw(2, 2), steps), "steps")


def test_newton_schulz_is_differentiable(impl, draw):
    """Gradients flow back through it, and the matrix stays as it was."""
    x = draw(3, 4).double()
    held = x.clone().requires_grad_()
    impl.newton_schulz(held, 2)[0].sum().backward()
    return {"gradient": held.grad, "unchanged": torch.equal(held.detach(), x)}


def test_muon_of_one_step_with_steps_0(impl, draw):
    """With no Newton–Schulz step the update is the gradient, divided by its norm; a momentum of 0 is none."""
    p = nn.Parameter(draw(2, 3).double())
    p.grad = draw(2, 3).double()
    impl.Muon([p], lr=0.5, weight_decay=0.0, momentum=0.0, steps=0).step()
    return p.detach()


def test_muon_of_half_precision(impl, draw):
    """Parameters in bfloat16 stay in it."""
    p = nn.Parameter((torch.eye(4, device=draw.device, dtype=draw.float) + 0.1 * draw(4, 4)).bfloat16())
    p.grad = p.detach().clone()
    impl.Muon([p], lr=0.5, weight_decay=0.0, steps=1).step()
    return p.detach()


def test_muon_defaults(impl, draw):
    """What is left out has its default."""
    group, = impl.Muon([nn.Parameter(draw(2, 2))]).param_groups
    return {name: group[name] for name in ("lr", "momentum", "weight_decay", "nesterov", "steps", "shape")}


def test_muon_state_survives(impl, draw):
    """A state_dict that is loaded again goes on as if nothing had been."""
    p = nn.Parameter(draw(3, 2).double())
    first = impl.Muon([p], lr=0.1)
    p.grad = draw(3, 2).double()
    first.step()
    second = impl.Muon([p], lr=0.7)
    second.load_state_dict(first.state_dict())
    p.grad = draw(3, 2).double()
    second.step()
    return {"parameter": p.detach(), "lr": second.param_groups[0]["lr"]}


def test_muon_of_an_iterator(impl, draw):
    """params may be an iterator, which can be walked through once."""
    p = nn.Parameter(draw(3, 2).double())
    optimizer = impl.Muon(iter([p]), lr=0.1)
    p.grad = draw(3, 2).double()
    optimizer.step()
    return p.detach()


def test_hidden_matrices_of_layers(impl, draw):
    """Every layer's matrices, in the model's order, as the model's own parameters."""
    model = _model(impl, draw, qk_norm=True, o_bias=True)
    found = impl.hidden_matrices(model)
    parameters = dict(model.named_parameters())
    return [list(found), all(parameters[name] is p for name, p in found.items())]


def test_adamw_beside_muon(impl, draw):
    """AdamW has betas of (0.9, 0.95), and every parameter is in one group, in the model's order."""
    model = _model(impl, draw, positions="learned")
    groups = impl.muon_and_adamw(model, 0.02, 0.003, nesterov=False).param_groups
    return [[_names(model, group["params"]), group["weight_decay"], group.get("betas"), group.get("nesterov")]
            for group in groups]


def test_wsd_of_one_step(impl, draw):
    """Schedules of nothing but warm-up, of one step, and of a peak that is the floor."""
    peak = _number(draw, 0.1, 1)
    return [[impl.wsd(step, 3, 0, 3, peak) for step in range(5)], [impl.wsd(step, 0, 1, 1, peak) for step in range(3)],
            [impl.wsd(step, 1, 2, 5, peak, peak, fall="sqrt") for step in range(7)], impl.wsd(0, 0, 0, 0, peak, 0.05)]


def test_wsd_by_the_root_to_a_floor(impl, draw):
    """1 − √t of what lies between floor and peak."""
    peak = _number(draw, 0.5, 1)
    return [impl.wsd(step, 0, 7, 10, peak, 0.1, fall="sqrt") for step in range(12)]


def test_ratios_that_are_no_whole_number(impl, draw):
    """A model of one and a half times the width, and one that is narrower than base."""
    base = impl.ModelConfig(**{**BASE, "d_model": 4, "heads": 2, "kv_heads": 2})
    wide = impl.ModelConfig(**{**BASE, "d_ff": 6})
    model = _model(impl, draw, {**BASE, "d_ff": 6})
    groups = impl.mup_groups(model, base, 0.1 + float(draw.uniform()), 0.2)
    return [impl.width_ratio(wide, base), impl.width_ratio(base, wide),
            [[group["lr"], group["weight_decay"]] for group in groups]]


@points(2)
def test_mup_of_deep_models(impl, draw):
    """Biases, QK-norms and learned positions stay, matrices of all layers are scaled, tied logits too."""
    model = _model(impl, draw, WIDE, qk_norm=True, qkv_bias=True, tie_embeddings=True, positions="learned")
    impl.with_mup(model, impl.ModelConfig(**BASE), 2, 3)
    return {"logits": model(draw.ints(5, 2, 4)), "tied": model.unembedding.weight is model.embedding.weight,
            **{name: p.detach() for name, p in model.named_parameters()}}


def test_scaled_unembedding_refuses_as_its_parent(impl, draw):
    """Another number of features is refused as Unembedding refuses it; it is one."""
    new = impl.ScaledUnembedding(draw.fill(impl.Unembedding(3, 5)), 2)
    return [raises(ValueError, lambda: new(draw(2, 4)), "x"), isinstance(new, impl.Unembedding), new.scale,
            new(draw(1, 2, 3))]


def _runs(draw):
    n, d = torch.tensor([2e4, 7e4, 3e5]), torch.tensor([2e5, 3e6, 2e7])
    return [x.double().to(draw.device).flatten() for x in torch.meshgrid(n, d, indexing="ij")]


def test_law_error_on_both_sides(impl, draw):
    """Losses above and below the law count alike, and its gradient flows."""
    (n, d), parameters = _runs(draw), torch.tensor([0.5, 3.0, 3.5, 0.3, 0.3], dtype=torch.float64, device=draw.device)
    parameters.requires_grad_()
    loss = 2 + draw.uniform(9).double()
    error = impl.law_error(parameters, n, d, loss, 0.1)
    error.backward()
    return {"error": error.detach(), "gradient": parameters.grad}


@points(2)
def test_fit_takes_the_best_of_its_starts(impl, draw):
    """Tries begin with the start that fits best, and what fits best in the end counts."""
    (n, d), beta = _runs(draw), _number(draw, 0.3, 0.35)
    d = 1000 * d            # so far from n that a mix-up is no small error
    law = impl.ScalingLaw(_number(draw, 1, 2), 25.0, 45.0 * 1000**beta, 0.31, beta)
    loss, [log_e, *rest] = law.loss(n, d), [math.log(law.E), math.log(20), math.log(law.B), 0.3, beta]
    # the first can change its E alone; the last has the largest error of all, and leads to the law
    stuck, near, far = [math.log(loss.median()), -9, 15, 2, 2], [log_e, *rest], [log_e + 1, *rest]
    starts = torch.tensor([stuck, near, far], dtype=torch.float64, device=draw.device)
    return {f"{names} begin, {tries} tries": impl.fit_scaling_law(n, d, loss, starts[names], tries).loss(n, d).half()
            for names, tries in (([0, 1], 1), ([0, 2], 1), ([0, 2], 2))}


def test_fit_of_float32(impl, draw):
    """Runs and starts in float32 are made float64."""
    law, (n, d) = impl.ScalingLaw(1.5, 25.0, 45.0, _number(draw, 0.3, 0.35), 0.31), _runs(draw)
    start = torch.tensor([[0.3, 3.0, 3.5, 0.3, 0.3]], device=draw.device)
    return impl.fit_scaling_law(n.float(), d.float(), law.loss(n, d).float(), start).loss(n, d).half()


def test_fit_without_starts(impl, draw):
    """It begins at the grid's; five runs are enough."""
    law, (n, d) = impl.ScalingLaw(1.5, 25.0, 45.0, _number(draw, 0.3, 0.35), 0.31), _runs(draw)
    five = [0, 1, 5, 6, 8]
    return impl.fit_scaling_law(n[five], d[five], law.loss(n, d)[five], tries=1).loss(n[five], d[five]).half()


def test_fit_with_another_delta(impl, draw):
    """A wide delta squares every error."""
    law, (n, d) = impl.ScalingLaw(1.5, 25.0, 45.0, 0.33, 0.31), _runs(draw)
    loss = law.loss(n, d) * (1 + 0.01 * draw.uniform(9).double())
    start = torch.tensor([[math.log(1.5), math.log(25), math.log(45), 0.33, 0.31]], dtype=torch.float64,
                         device=draw.device)
    return impl.fit_scaling_law(n, d, loss, starts=start, delta=1.0).loss(n, d).half()


def test_fit_refuses_more(impl, draw):
    """NaN, infinity, two sizes, tokens that follow from the size by a power, losses that rise with one of the two."""
    (n, d), loss = _runs(draw), 2 + draw.uniform(9).double()
    nan = loss.clone()
    nan[0] = float("nan")
    start, up, other = torch.tensor([[0.5, 3.0, 3.5, 0.3, 0.3], [0.0, -2.3, 3.0, -0.1, 0.3],
                                     [0.0, 3.0, -2.3, 0.3, -0.1]], dtype=torch.float64, device=draw.device).split(1)
    fit = partial(impl.fit_scaling_law, starts=start)
    return [raises(ValueError, lambda: fit(n, d, 1 + 0.1 * n**0.1 + 20 / d**0.3, starts=up), "loss"),
            raises(ValueError, lambda: fit(n, d, 1 + 0.1 * d**0.1 + 20 / n**0.3, starts=other), "loss"),
            raises(ValueError, lambda: fit(n, d, nan), "loss"), raises(ValueError, lambda: fit(n / 0, d, loss), "n"),
            raises(ValueError, lambda: fit(n, -d, loss), "d"),
            raises(ValueError, lambda: fit(n, d, loss, delta=0.0), "delta"),
            raises(ValueError, lambda: fit(n.clamp(max=7e4), d, loss), "n"),
            raises(ValueError, lambda: fit(n * 0 + n[0], d, loss), "n"),
            raises(ValueError, lambda: fit(n, n**0.5, loss), "d"),
            raises(ValueError, lambda: fit(n, d, loss, tries=-1), "tries")]


def test_budgets_of_real_models(impl, draw):
    """70 billion parameters and 1.4 trillion tokens, whole numbers and floats."""
    law = impl.ScalingLaw(1.7, 400.0, 400.0, _number(draw, 0.3, 0.36), _number(draw, 0.26, 0.3))
    flops = impl.training_flops(70 * 10**9, 14 * 10**11)
    return [flops, impl.optimal(flops, law), impl.tokens_for(2, 7 * 10**10, law), impl.optimal(6, law)]


def test_critical_batch_of_sizes_that_are_not_whole(impl, draw):
    """Sizes need not be whole, nor norms equally many."""
    return impl.critical_batch(3 + 0.1 * draw.uniform(4), 2 + 0.1 * draw.uniform(2), 1.5, 64.25)


def test_batch_costs_of_extremes(impl, draw):
    """Huge and tiny batches, NaN and infinity."""
    critical = _number(draw, 10, 99)
    return [impl.batch_costs(1e9, critical), impl.batch_costs(1e-6, critical),
            raises(ValueError, lambda: impl.batch_costs(float("nan"), critical), "batch"),
            raises(ValueError, lambda: impl.batch_costs(critical, math.inf), "critical")]
