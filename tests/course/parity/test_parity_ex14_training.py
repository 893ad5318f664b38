"""Chapter 14 against torch's AdamW and clip_grad_norm_, and against runs that were not cut in two."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from solutions.ex04_normalization import LayerNorm
from solutions.ex08_feedforward import MLP, Dropout
from solutions.ex14_training import (
    AdamW,
    bits_per_byte,
    clip_grad_norm,
    evaluate,
    get_batch,
    learning_rate,
    load_checkpoint,
    parameter_groups,
    save_checkpoint,
    train_step,
)
from tests.course.close import assert_as_near, assert_close

VOCAB, D_MODEL = 17, 12
FLOAT64 = pytest.mark.usefixtures("float64")


def small_model(dropout: float = 0.0) -> nn.Module:
    """Tokens in, logits out; matrices, norms and biases, as a Transformer has them."""
    return nn.Sequential(nn.Embedding(VOCAB, D_MODEL), LayerNorm(D_MODEL),
                         MLP(D_MODEL, 20, "gelu", dropout=dropout), Dropout(dropout),
                         nn.Linear(D_MODEL, VOCAB))


def twins() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    one, other = small_model(), small_model()
    other.load_state_dict(one.state_dict())
    return one, other


def numbers(said) -> torch.Tensor:
    return torch.tensor(said, dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("options", [{}, {"betas": (0.0, 0.95), "eps": 1e-3}, {"weight_decay": 0.3}])
def test_adamw_is_torchs_over_200_steps(dtype, options):
    """Two groups, a schedule, and a parameter that has a gradient in every third step only."""
    mine, theirs = (model.to(dtype) for model in twins())
    exact = copy.deepcopy(theirs).double()
    optimizers = [kind(parameter_groups(model, 0.1), lr=0.01, **options)
                  for kind, model in ((AdamW, mine), (torch.optim.AdamW, theirs), (torch.optim.AdamW, exact))]
    for step in range(200):
        for p, q, r in zip(mine.parameters(), theirs.parameters(), exact.parameters()):
            p.grad = torch.randn_like(p) * 10 ** torch.randint(-4, 2, ()).item()
            q.grad, r.grad = p.grad.clone(), p.grad.double()
        if step % 3:
            mine[4].bias.grad = theirs[4].bias.grad = exact[4].bias.grad = None
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, 20, 180, 0.01, 0.001)
            optimizer.step()
    if dtype == torch.bfloat16:
        assert_as_near(*map(nn.utils.parameters_to_vector, (m.parameters() for m in (mine, theirs, exact))))
    else:
        for p, q in zip(mine.parameters(), theirs.parameters()):
            assert_close(p, q)


@pytest.mark.parametrize("max_norm", [0.1, 3.0, 1e6, math.inf])
@pytest.mark.parametrize("scale", [0.0, 1e-8, 1.0, 1e6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_clipping_is_torchs(max_norm, scale, dtype):
    torch.manual_seed(0)
    mine, theirs = (model.to(dtype) for model in twins())
    for p, q in zip(mine.parameters(), theirs.parameters()):
        p.grad = scale * torch.randn_like(p)
        q.grad = p.grad.clone()
    mine[4].bias.grad = theirs[4].bias.grad = None
    norm = clip_grad_norm(mine.parameters(), max_norm)
    assert_close(norm, nn.utils.clip_grad_norm_(theirs.parameters(), max_norm))
    for p, q in zip(mine[:4].parameters(), theirs[:4].parameters()):
        assert_close(p.grad, q.grad)
    assert_close(mine[4].weight.grad, theirs[4].weight.grad)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_clipping_of_what_is_no_number_is_torchs(bad):
    mine, theirs = twins()
    for p, q in zip(mine.parameters(), theirs.parameters()):
        p.grad = torch.randn_like(p)
        p.grad.view(-1)[0] = bad
        q.grad = p.grad.clone()
    norm = clip_grad_norm(mine.parameters(), 1.0)
    assert_close(norm, nn.utils.clip_grad_norm_(theirs.parameters(), 1.0))
    for p, q in zip(mine.parameters(), theirs.parameters()):
        assert_close(p.grad, q.grad)


def test_the_schedule_is_torchs_between_its_corners():
    """From the end of the warm-up on it is CosineAnnealingLR."""
    p = nn.Parameter(torch.zeros(1))
    p.grad = torch.zeros(1)
    optimizer = torch.optim.SGD([p], lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50, 0.001)
    for step in range(10, 60):
        assert learning_rate(step, 10, 60, 0.01, 0.001) == pytest.approx(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()


def test_the_schedule_at_its_corners():
    def rate(step):
        return learning_rate(step, 10, 60, 0.01, 0.001)
    assert rate(0) == pytest.approx(0.001)
    assert rate(9) == 0.01 and rate(10) == pytest.approx(0.01)
    assert 0.001 < rate(59) < 0.00105
    assert rate(60) == rate(61) == rate(10**9) == 0.001
    assert learning_rate(0, 0, 10, 1) == 1.0
    assert [learning_rate(step, 3, 3, 3, 1) for step in range(5)] == [1.0, 2.0, 3.0, 1.0, 1.0]
    rates = [rate(step) for step in range(80)]
    assert rates[:10] == sorted(rates[:10]) and rates[10:] == sorted(rates[10:], reverse=True)
    assert max(rates) == pytest.approx(0.01)


@pytest.mark.parametrize("kept", [(30, 30, 30), (30, 1, 7), (0, 13, 0)])
def test_accumulation_is_one_large_batch(kept):
    one, other = (model.double() for model in twins())
    rng = torch.Generator().manual_seed(1)
    inputs, targets = (torch.randint(VOCAB, (9, 10), generator=rng) for _ in "xy")
    for batch, n in zip(targets.split(3), kept):
        batch.view(-1)[n:] = -100
    optimizers = [torch.optim.SGD(model.parameters(), 0.1) for model in (one, other)]
    many = train_step(one, optimizers[0], [*zip(inputs.split(3), targets.split(3))], 1e9)
    single = train_step(other, optimizers[1], [(inputs, targets)], 1e9)
    expected = F.cross_entropy(twins()[0].double()(inputs).flatten(0, 1), targets.flatten()).item()
    assert_close(numbers(many), numbers(single))
    assert_close(numbers(single[:1]), numbers([expected]))
    for p, q in zip(one.parameters(), other.parameters()):
        assert_close(p, q)
        assert_close(p.grad, q.grad)


def test_a_step_with_torchs_loss():
    """The loss may be torch's kernel; the step is the same."""
    def kernel(logits, targets):
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    one, other = (model.double() for model in twins())
    batches = [(torch.randint(VOCAB, (3, 5)), torch.randint(VOCAB, (3, 5))) for _ in range(2)]
    batches[1][1][:, 2:] = -100
    said = [train_step(model, torch.optim.SGD(model.parameters(), 0.1), batches, 1e9, **loss)
            for model, loss in ((one, {}), (other, {"loss": kernel}))]
    assert_close(numbers(said[0]), numbers(said[1]))
    for p, q in zip(one.parameters(), other.parameters()):
        assert_close(p, q)


@FLOAT64
def test_a_step_is_torchs():
    """train_step against the same five lines written with torch's own parts, 20 times."""
    mine, theirs = twins()
    tokens, rng = torch.randint(VOCAB, (200,)), torch.Generator().manual_seed(0)
    optimizer = AdamW(parameter_groups(mine, 0.1), 0.01)
    reference = torch.optim.AdamW(parameter_groups(theirs, 0.1), 0.01)
    for _ in range(20):
        inputs, targets = get_batch(tokens, 4, 9, rng)
        said = train_step(mine, optimizer, [(inputs, targets)], 0.5)
        reference.zero_grad()
        loss = F.cross_entropy(theirs(inputs).flatten(0, 1), targets.flatten())
        loss.backward()
        norm = nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
        reference.step()
        assert_close(numbers(said), torch.stack([loss, norm]))
    for p, q in zip(mine.parameters(), theirs.parameters()):
        assert_close(p, q)


@FLOAT64
@pytest.mark.parametrize("length", [2, 9, 10, 11, 12, 57])
@pytest.mark.parametrize("batch", [1, 4])
def test_evaluation_is_torchs_on_every_window(length, batch):
    model, tokens = small_model(0.5), torch.randint(VOCAB, (length,))
    mine = evaluate(model, tokens, 10, batch)
    assert all(module.training for module in model.modules())
    model.eval()
    losses = [F.cross_entropy(model(tokens[i:i + 10][None, :length - 1 - i])[0], tokens[i + 1:i + 11],
                              reduction="sum").item() for i in range(0, length - 1, 10)]
    assert_close(numbers([mine]), numbers([sum(losses) / (length - 1)]))
    assert bits_per_byte(math.log(2), 300, 100) == pytest.approx(3)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.int32, torch.int64])
def test_batches_are_pieces_of_the_text(dtype):
    tokens = torch.arange(200).to(dtype)
    inputs, targets = get_batch(tokens, 64, 5, torch.Generator().manual_seed(0))
    assert inputs.dtype == targets.dtype == torch.int64 and inputs.shape == targets.shape == (64, 5)
    assert torch.equal(inputs + 1, targets)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])


def test_decay_touches_matrices_only():
    model = small_model()
    groups = parameter_groups(model, 0.1)
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]
    assert {p.ndim for p in groups[0]["params"]} == {2} and {p.ndim for p in groups[1]["params"]} == {1}
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))


def make_run(seed: int):
    """A model with dropout, AdamW in two groups, and the generator of its batches."""
    torch.manual_seed(seed)
    model = small_model(0.2)
    return model, AdamW(parameter_groups(model, 0.1), 0.01), torch.Generator().manual_seed(seed)


def go_on(model, optimizer, rng, tokens, steps) -> list:
    said = []
    for step in steps:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, 3, 20, 0.01)
        batches = [get_batch(tokens, 3, 8, rng) for _ in range(2)]
        said.append(train_step(model, optimizer, batches))
    return said


def test_a_resumed_run_is_the_unbroken_one_bit_for_bit(tmp_path):
    tokens, path = torch.randint(VOCAB, (300,)), tmp_path / "checkpoint"
    run = make_run(0)
    go_on(*run, tokens, range(7))
    save_checkpoint(path, *run[:2], 7, run[2])
    unbroken = go_on(*run, tokens, range(7, 20))
    other = make_run(1)
    go_on(*other, tokens, range(3))
    start = load_checkpoint(path, *other)
    assert start == 7
    assert go_on(*other, tokens, range(start, 20)) == unbroken
    for p, q in zip(run[0].parameters(), other[0].parameters()):
        assert torch.equal(p, q)
        for name, value in run[1].state[p].items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(other[1].state[q][name]))
    assert [path] == list(tmp_path.iterdir())
