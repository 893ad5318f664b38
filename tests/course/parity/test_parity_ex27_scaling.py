"""Chapter 27 against torch's Muon, transformers' WSD, Chinchilla's published points, and what its formulas promise."""

import copy
import csv
import math

import pytest
import torch
from torch import nn

from grader.course import chapters
from solutions.ex05_softmax import cross_entropy
from solutions.ex13_transformer import ModelConfig, Transformer
from solutions.ex14_training import AdamW, load_checkpoint, save_checkpoint, train_step
from solutions.ex27_scaling import (
    COEFFICIENTS,
    Muon,
    ScalingLaw,
    critical_batch,
    fit_scaling_law,
    law_error,
    muon_and_adamw,
    mup_groups,
    newton_schulz,
    optimal,
    start_grid,
    tokens_for,
    training_flops,
    with_mup,
    wsd,
)
from tests.course.close import assert_close

pytestmark = pytest.mark.usefixtures("one_thread")     # on tensors this small a second thread only waits
SHAPES = [(8, 16), (16, 8), (8, 8), (1, 5), (30, 2)]
# Besiroglu et al., 2024 (arXiv 2404.10102): estimates and standard errors from 240 points of Hoffmann et al.'s figure
REPLICATION = {"E": (1.8172, 0.03), "A": (482.01, 124.58), "B": (2085.43, 1293.23), "alpha": (0.3478, 0.02),
               "beta": (0.3658, 0.02)}


def torchs_newton_schulz(matrix, steps=5):
    return torch.optim._muon._zeropower_via_newtonschulz(matrix, COEFFICIENTS, steps, 1e-7)


@pytest.fixture
def torch_computes_in_float64(monkeypatch):
    """torch's Muon casts to bfloat16: here to a copy in float64 instead, so that the formulas can be compared."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda x: x.double().clone())


# -- Muon

@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("steps", [1, 5, 10])
def test_newton_schulz_is_torchs(torch_computes_in_float64, shape, steps):
    x = torch.randn(shape, dtype=torch.float64)
    assert_close(newton_schulz(x, steps), torchs_newton_schulz(x, steps))


@pytest.mark.parametrize("shape", SHAPES[:3])
def test_newton_schulz_in_bfloat16_errs_as_torchs(shape):
    x = torch.randn(20, *shape, dtype=torch.bfloat16)
    theirs = torch.stack([torchs_newton_schulz(each) for each in x])
    exact = newton_schulz(x.double())
    mine, torchs = ((rounded - exact).norm() for rounded in (newton_schulz(x), theirs))
    assert mine <= 3 * torchs       # torch's addmm rounds a product and a sum once: twice in a step, ours seven times


def test_newton_schulz_is_near_the_polar_factor():
    """Each singular value that is not tiny ends between 0.65 and 1.25, and U and V stay."""
    x = torch.randn(200, 12, 20, dtype=torch.float64)
    u, s, v = torch.linalg.svd(x, full_matrices=False)
    lifted = u.mT @ newton_schulz(x) @ v.mT
    values = lifted.diagonal(dim1=-2, dim2=-1)
    assert (lifted - torch.diag_embed(values)).abs().max() < 1e-9
    large = s / x.norm(dim=(-2, -1))[:, None] > 0.02
    assert large.float().mean() > 0.95 and values[large].min() > 0.65 and values[large].max() < 1.25


@pytest.mark.parametrize("mode", ["original", "match_rms_adamw"])
@pytest.mark.parametrize("options", [{}, {"nesterov": False}, {"momentum": 0.0}, {"weight_decay": 0.0}])
def test_muon_is_torchs_over_50_steps(torch_computes_in_float64, mode, options):
    """With a schedule, and a parameter that has a gradient in every third step only."""
    mine, theirs = ([nn.Parameter(torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(n)))
                     for n, shape in enumerate(SHAPES)] for _ in range(2))
    ours, torchs = Muon(mine, 0.02, shape=mode, **options), torch.optim.Muon(theirs, 0.02, adjust_lr_fn=mode, **options)
    for step in range(50):
        for number, (p, q) in enumerate(zip(mine, theirs)):
            gradient = torch.randn_like(p) * 10 ** torch.randint(-4, 2, ()).item()
            p.grad, q.grad = (None, None) if number == 1 and step % 3 else (gradient, gradient.clone())
        for optimizer in (ours, torchs):
            optimizer.param_groups[0]["lr"] = 0.02 / (1 + step)
            optimizer.step()
    assert_close(list(mine), list(theirs))


@pytest.mark.parametrize("mode", ["original", "match_rms_adamw"])
def test_muon_in_bfloat16_errs_as_torchs(mode):
    """Against Newton–Schulz in float64, both in bfloat16 as torch has it."""
    start = [torch.randn(shape) for shape in SHAPES[:3]]
    runs = []
    for kind, options in ((Muon, {"shape": mode, "dtype": torch.bfloat16}), (torch.optim.Muon, {"adjust_lr_fn": mode}),
                          (Muon, {"shape": mode, "dtype": torch.float64})):
        torch.manual_seed(1)
        parameters = [nn.Parameter(x.clone()) for x in start]
        optimizer = kind(parameters, 0.02, **options)
        for _ in range(20):
            for p in parameters:
                p.grad = torch.randn_like(p)
            optimizer.step()
        runs.append(torch.cat([p.detach().flatten() for p in parameters]))
    mine, theirs, exact = runs
    assert (mine - exact).norm() <= 3 * (theirs - exact).norm()


def test_muons_defaults_are_torchs():
    p = [nn.Parameter(torch.zeros(2, 2))]
    mine, theirs = Muon(p).defaults, torch.optim.Muon(p).defaults
    for name in ("lr", "weight_decay", "momentum", "nesterov"):
        assert mine[name] == theirs[name]
    assert mine["steps"] == theirs["ns_steps"] and COEFFICIENTS == theirs["ns_coefficients"]


def test_a_run_of_both_optimizers_is_resumed_bit_for_bit(tmp_path):
    torch.manual_seed(0)
    config = ModelConfig(vocab_size=17, d_model=16, layers=1, heads=2, d_ff=24, max_seq_len=8, tie_embeddings=True)
    model = Transformer(config)
    ids = torch.randint(17, (6, 4, 9))
    batches = [[(x[:, :-1], x[:, 1:])] for x in ids]

    def run(model, both, some):
        return [train_step(model, both, batch)[0] for batch in some]
    other, both = copy.deepcopy(model), muon_and_adamw(model, 0.02, 0.003)
    run(model, both, batches[:3])
    save_checkpoint(tmp_path / "half", model, both, 3, torch.Generator())
    whole = run(model, both, batches[3:])
    again = muon_and_adamw(other, 0.02, 0.003)
    assert load_checkpoint(tmp_path / "half", other, again, torch.Generator()) == 3
    assert run(other, again, batches[3:]) == whole


# -- WSD

@pytest.mark.parametrize("fall, theirs", [("linear", "linear"), ("sqrt", "1-sqrt")])
@pytest.mark.parametrize("floor", [0.0, 0.1])
def test_wsd_is_transformers(fall, theirs, floor):
    """Theirs begins at a rate of 0, so its warm-up is a step behind, where floor is 0; the rest is step for step."""
    from transformers import get_wsd_schedule
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.3)
    schedule = get_wsd_schedule(optimizer, num_warmup_steps=5, num_decay_steps=7, num_training_steps=30,
                                decay_type=theirs, min_lr_ratio=floor)
    rates = []
    for _ in range(34):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    mine = [wsd(step, 5, 7, 30, 0.3, 0.3 * floor, fall) for step in range(34)]
    assert mine[5:] == pytest.approx(rates[5:])
    if not floor:
        assert mine[:5] == pytest.approx(rates[1:6])


# -- μP

def small(width: int) -> ModelConfig:
    heads = width // 8
    return ModelConfig(vocab_size=64, d_model=width, layers=2, heads=heads, kv_heads=heads, head_dim=8, d_ff=2 * width,
                       max_seq_len=16)


def changes(width: int, mup: bool, seed: int, steps: int = 4) -> dict[str, float]:
    """How far a few steps of AdamW move the stream after the last block, and the logits: root mean squares."""
    torch.manual_seed(seed)
    base = small(32) if mup else small(width)
    model = with_mup(Transformer(small(width)), base, output=4)
    adam = AdamW(mup_groups(model, base, 0.01), betas=(0.9, 0.95))
    ids = torch.randint(64, (8, 17), generator=torch.Generator().manual_seed(seed))
    seen = {}
    model.blocks[-1].register_forward_hook(lambda module, args, out: seen.update(stream=out.detach()))

    def look():
        logits = model(ids[:, :-1])
        return {**seen, "logits": logits.detach()}, logits
    before, _ = look()
    for _ in range(steps):
        _, logits = look()
        adam.zero_grad()
        cross_entropy(logits, ids[:, 1:]).backward()
        adam.step()
    after, _ = look()
    return {name: (after[name] - before[name]).square().mean().sqrt().item() for name in before}


def test_in_mup_a_step_changes_what_it_changes_at_every_width():
    """The coordinate check of Yang et al., 2022, section D.1: slopes of log change in log width, 32 to 128."""
    widths, slopes = (32, 64, 128), {}
    for mup in (False, True):
        moved = [[changes(width, mup, seed) for seed in range(2)] for width in widths]
        for name in ("stream", "logits"):
            y = torch.tensor([sum(one[name] for one in some) / len(some) for some in moved]).log2()
            x = torch.tensor([math.log2(width) for width in widths])
            slopes[mup, name] = (((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum()).item()
    print(slopes)
    assert abs(slopes[True, "stream"]) < 0.2 and abs(slopes[True, "logits"]) < 0.2
    assert slopes[False, "stream"] > 0.4 and slopes[False, "logits"] > 0.4


# -- the law

def chinchilla() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """n, d and loss of 240 runs: without the five highest losses, as the replication has them."""
    rows = list(csv.DictReader((chapters.ROOT / "assets" / "evidence" / "27_chinchilla.csv").open()))
    n, flops, loss = (torch.tensor([float(row[name]) for row in rows], dtype=torch.float64)
                      for name in ("n", "flops", "loss"))
    kept = loss < loss.sort().values[-5]
    return n[kept], (flops / (6 * n))[kept], loss[kept]


def test_chinchillas_points_give_the_replications_law():
    n, d, loss = chinchilla()
    assert len(n) == 240
    law = fit_scaling_law(n, d, loss)
    for name, (estimate, error) in REPLICATION.items():
        assert abs(getattr(law, name) - estimate) < 1 * error, (name, law)
    assert abs(law.beta / (law.alpha + law.beta) - 0.5126) < 0.02
    hoffmann = ScalingLaw(1.6934, 406.4, 410.7, 0.3392, 0.2849)
    own, theirs = (law_error(torch.tensor([math.log(x.E), math.log(x.A), math.log(x.B), x.alpha, x.beta],
                                          dtype=torch.float64), n, d, loss) for x in (law, hoffmann))
    assert own < theirs


def test_other_starts_lead_to_the_same_law():
    """From 6 of the grid's starts, drawn at random, the best ends where the five best of all end."""
    n, d, loss = chinchilla()
    some = start_grid()[torch.randperm(4500)[:6]]
    one, other = fit_scaling_law(n, d, loss), fit_scaling_law(n, d, loss, starts=some, tries=6)
    assert torch.allclose(torch.tensor(one), torch.tensor(other), rtol=1e-3)


def test_optimal_is_the_lowest_loss_of_its_flops():
    law = ScalingLaw(1.8, 480.0, 2100.0, 0.35, 0.37)
    for flops in (1e18, 1e21, 5.76e23):
        n, d = optimal(flops, law)
        assert training_flops(n, d) == pytest.approx(flops)
        around = n * torch.logspace(-1, 1, 2001, dtype=torch.float64)
        best = around[law.loss(around, flops / (6 * around)).argmin()]
        assert best.item() == pytest.approx(n, rel=0.003)
        assert tokens_for(law.loss(n, d), n, law) == pytest.approx(d)


# -- the critical batch

def test_the_noise_scale_of_known_noise():
    """Gradients drawn around a known one: from 4,000 norms of each size, tr Σ / |G|² to a few percent."""
    true, spread = torch.randn(50) / 5, torch.rand(50) + 0.5
    norms = {size: (true + spread * torch.randn(4000, 50) / math.sqrt(size)).norm(dim=1) for size in (4, 64)}
    wanted = spread.square().sum() / true.square().sum()
    assert critical_batch(norms[4], norms[64], 4, 64) == pytest.approx(wanted.item(), rel=0.05)
