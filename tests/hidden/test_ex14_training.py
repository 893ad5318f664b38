"""Lesson 14 on other shapes, dtypes and corners."""

import os
import tempfile
from pathlib import Path

import torch
from torch import nn

from grader import accepts, devices, points, raises
from grader.course.doubles import Descent


class _Counting(Descent):
    """Gradient descent that counts its steps."""

    steps = 0

    def step(self, closure=None):
        self.steps += 1
        super().step(closure)


def _model(draw, vocab=7):
    return draw.fill(nn.Sequential(nn.Embedding(vocab, 4), nn.LayerNorm(4), nn.Linear(4, vocab)))


def _values(model):
    return [p.detach().clone() for p in model.parameters()]


def test_get_batch_corners(impl, draw):
    """A text of exactly seq_len + 1 tokens, a view of a text, one window, and windows of one token."""
    rng = torch.Generator().manual_seed(draw.seed)
    text = draw.ints(900, 30, 2)[:, 1]                 # every second number of a larger tensor
    return [impl.get_batch(draw.ints(900, 6), 3, 5, rng), impl.get_batch(text, 5, 1, rng),
            impl.get_batch(text, 1, 29, rng), impl.get_batch(text.to(torch.uint8), 2, 3, rng)]


def test_get_batch_goes_on(impl, draw):
    """Every call draws anew from rng, and from no other generator."""
    tokens, rng = draw.ints(1000, 500), torch.Generator().manual_seed(draw.seed)
    first = impl.get_batch(tokens, 4, 3, rng)
    torch.manual_seed(draw.seed)
    return [first, impl.get_batch(tokens, 4, 3, rng), rng.get_state()]


def test_schedule_corners(impl, draw):
    """Whole numbers, a warm-up of one step, a floor as high as the peak, and a total of 0."""
    rate, peak, step = impl.learning_rate, 1 + int(draw.ints(9)), 90_000 + int(draw.ints(10_000))
    return {"whole": [rate(step, 1, 4, peak) for step in range(6)],
            "flat": [rate(step, 2, 6, peak / 2, peak / 2) for step in range(8)],
            "total 0": rate(0, 0, 0, peak, 0.01), "long": rate(step, 2000, 100_000, peak * 1e-4, 3e-5),
            "peak 0": rate(3, 2, 6, 0)}


def test_clip_corners(impl, draw):
    """All gradients 0, of two dtypes, of a parameter frozen since then, and a max_norm that is infinite."""
    zero, plain = nn.Parameter(draw(3, 2)), nn.Parameter(draw(3, 2))
    zero.grad, plain.grad = torch.zeros_like(zero), draw(3, 2).clone()
    half = nn.Parameter(draw(4).bfloat16())
    half.grad = draw(4).bfloat16()
    return {"zeros": impl.clip_grad_norm([zero], 1), "zero gradient": zero.grad,
            "two dtypes": impl.clip_grad_norm([half, plain], 0.1),
            "clipped": [1 * half.grad, 1 * plain.grad],
            "infinite": impl.clip_grad_norm([plain], float("inf")), "kept": 1 * plain.grad,
            **_clipped_tiny(impl, draw), **_clipped_frozen(impl, draw)}


def _clipped_tiny(impl, draw):
    """Of a length near 10⁻⁶, where the 10⁻⁶ below the line shows."""
    tiny = nn.Parameter(draw(3))
    tiny.grad = draw(3, scale=1e-6).clone()
    return {"tiny": impl.clip_grad_norm([tiny], 1e-9), "tiny, clipped": 1e9 * tiny.grad}


def _clipped_frozen(impl, draw):
    """What counts is the gradient that is there, not whether there will be another."""
    frozen, free = nn.Parameter(draw(4)), nn.Parameter(draw(3))
    frozen.grad, free.grad = draw(4).clone(), draw(3).clone()
    frozen.requires_grad_(False)
    return {"with a frozen one": impl.clip_grad_norm([frozen, free], 0.1),
            "frozen and free, clipped": [1 * frozen.grad, 1 * free.grad]}


@devices("cpu")     # on a GPU torch itself casts a factor that lies there
def test_clip_by_a_tiny_factor(impl, draw):
    """The factor stays wide: 10⁻⁸ is 0 in float16, but float16 gradients times 10⁻⁸ need not be."""
    p = nn.Parameter(draw(30, 20).half())
    p.grad = (30_000 * (1 + draw.uniform(30, 20))).half()
    return {"norm": impl.clip_grad_norm([p], 0.01), "gradient": p.grad.float()}


@points(2)
def test_adamw_corners(impl, draw):
    """AdamW with β₁ = 0, without decay, on a number, on a view with exchanged axes, and whole options."""
    number, turned = nn.Parameter(draw()), nn.Parameter(draw(3, 4).mT)
    optimizer = impl.AdamW([number, turned], lr=1, betas=(0, 0.5), weight_decay=0, eps=1)
    said = []
    for _ in range(3):
        for p in (number, turned):
            p.grad = draw(*p.shape).clone()
        said += [optimizer.step(), number.detach().clone(), turned.detach().clone()]
    return said


def test_adamw_state(impl, draw):
    """The state of a parameter is step, m and v; it survives state_dict and load_state_dict."""
    start, gradients = draw(5), draw(3, 5)
    p, q = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    one, other = impl.AdamW([p], lr=0.1), impl.AdamW([q], lr=7.0)
    for gradient in gradients[:2]:
        p.grad = gradient.clone()
        one.step()
    with torch.no_grad():
        q.copy_(p)
    other.load_state_dict(one.state_dict())
    state = {name: 1 * value for name, value in one.state[p].items()}
    q.grad = gradients[2].clone()
    other.step()
    return {"state": state, "after loading": q.detach()}


@points(2)
def test_train_step_of_a_part(impl, draw):
    """Only what the optimizer holds is clipped and moved; one step for all the batches together."""
    model = _model(draw)
    optimizer = _Counting([{"params": [model[2].weight]}, {"params": [model[1].bias]}])
    batches = [(draw.ints(7, 2, 3), draw.ints(7, 2, 3)) for _ in range(3)]
    said = [impl.train_step(model, optimizer, batches, 0.1) for _ in range(3)]
    return {"losses and norms": said, "weights": _values(model), "steps": optimizer.steps}


def test_train_step_of_a_learned_loss(impl, draw):
    """Old gradients are dropped of all that the optimizer holds, such as a number that only the loss knows."""
    model, temperature = _model(draw), nn.Parameter(1 + draw.uniform(1))
    optimizer, said = Descent([*model.parameters(), temperature]), []

    def loss(logits, targets):
        return nn.functional.cross_entropy((logits * temperature).flatten(0, -2), targets.flatten())

    for _ in range(3):
        batch = draw.ints(7, 2, 3), draw.ints(7, 2, 3)
        said += [*impl.train_step(model, optimizer, [batch], 100.0, loss), 1 * temperature.detach()]
    return said


def test_train_step_refuses_early(impl, draw):
    """A step that is refused leaves weights and gradients as they were."""
    model = _model(draw)
    optimizer = _Counting(model.parameters())
    batch = draw.ints(7, 2, 3), draw.ints(7, 2, 3)
    impl.train_step(model, optimizer, [batch])
    for p in model.parameters():
        p.grad = draw(*p.shape).clone()
    nothing = batch[0], torch.full_like(batch[1], -100)
    refused = [raises(ValueError, lambda: impl.train_step(model, optimizer, [batch], -1.0), names="max_norm"),
               raises(ValueError, lambda: impl.train_step(model, optimizer, [batch], 0), names="max_norm"),
               raises(ValueError, lambda: impl.train_step(model, optimizer, []), names="batches"),
               raises(ValueError, lambda: impl.train_step(model, optimizer, [nothing]), names="batches")]
    return {"refused": refused, "weights": _values(model), "steps": optimizer.steps,
            "gradients": [1 * p.grad for p in model.parameters()]}


def test_evaluate_corners(impl, draw):
    """Texts shorter than a window, that fill their windows, of int32, and of one target."""
    model, tokens = _model(draw), draw.ints(7, 31, 2)[:, 0]
    model.eval()
    return {"short": impl.evaluate(model, tokens[:4], 50), "filled": impl.evaluate(model, tokens, 10, 1),
            "int32": impl.evaluate(model, tokens.int(), 7, 100),
            "uint16": impl.evaluate(model, tokens.to(torch.uint16), 7), "pair": impl.evaluate(model, tokens[:2], 1),
            "still in eval mode": not model.training, "gradients": model[2].weight.grad is None}


def test_checkpoint_of_other_groups(impl, draw):
    """A checkpoint whose optimizer has other groups is refused; a failed save leaves the old one."""
    model, rng = _model(draw), torch.Generator().manual_seed(3)
    whole, parts = impl.AdamW(model.parameters()), impl.AdamW(impl.parameter_groups(model, 0.1))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.ckpt")
        impl.save_checkpoint(str(path), model, whole, 7, rng)
        with torch.no_grad():
            model[2].bias.zero_()
        said = {"other groups": raises(
            ValueError, lambda: impl.load_checkpoint(path, model, parts, rng), names="path")}
        kept = bool((model[2].bias == 0).all())
        nowhere = Path(folder, "missing", "run.ckpt")
        said["no folder"] = raises(OSError, lambda: impl.save_checkpoint(nowhere, model, whole, 8, rng))
        rng.manual_seed(4)
        return {**said, "weights kept": kept, "step": impl.load_checkpoint(str(path), model, whole, rng),
                "files": sorted(os.listdir(folder)), "rng": rng.initial_seed() >= 0,
                "draw": torch.randint(1000, (3,), generator=rng), "weights": _values(model)}


def test_checkpoint_is_whole_before_it_waits(impl, draw):
    """When os.fsync is called, the whole file has left Python's buffer: nothing of it is written afterwards."""
    model, rng, fsync, sizes = _model(draw), torch.Generator().manual_seed(3), os.fsync, []
    optimizer, step = impl.AdamW(model.parameters()), int(draw.ints(999))

    def seen(file):
        sizes.append(os.fstat(file).st_size)
        return fsync(file)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.ckpt")
        try:
            os.fsync = seen
            impl.save_checkpoint(path, model, optimizer, step, rng)
        finally:
            os.fsync = fsync
        return {"step": impl.load_checkpoint(path, model, optimizer, rng), "whole": path.stat().st_size in sizes}


def test_adamw_float64(impl, draw):
    """In float64 the statistics are float64 too."""
    p = nn.Parameter(draw(4, 3).double())
    optimizer = impl.AdamW([p], lr=0.1, betas=(0.7, 0.8))
    for _ in range(3):
        p.grad = draw(4, 3).double()
        optimizer.step()
    return {"p": p.detach(), "m": optimizer.state[p]["m"], "v": optimizer.state[p]["v"]}


def test_the_edges_of_what_is_allowed(impl, draw):
    """Sizes of 1 and options of 0 are taken; sizes of 0 and options below 0 are refused."""
    model, tokens, p = _model(draw), draw.ints(7, 9), nn.Parameter(draw(1))
    n_bytes = 1 + int(draw.ints(9))
    rng = torch.Generator().manual_seed(draw.seed)
    taken = {
        "one window of one token": lambda: impl.get_batch(tokens, 1, 1, rng),
        "a step of one batch of one token": lambda: impl.train_step(
            model, _Counting(model.parameters()), [(tokens[:1, None], tokens[1:2, None])], 1e-9),
        "windows of one token, one at a time": lambda: impl.evaluate(model, tokens, 1, 1),
        "an optimizer of zeros": lambda: impl.AdamW([p], lr=0, betas=(0, 0), eps=0, weight_decay=0),
        "groups without decay": lambda: impl.parameter_groups(model, 0),
        "one token, one byte": lambda: impl.bits_per_byte(1, 1, 1),
        "no warm-up": lambda: impl.learning_rate(0, 0, 1, 1),
    }
    refused = {
        "seq_len": lambda: impl.evaluate(model, tokens, 0),
        "batch": lambda: impl.evaluate(model, tokens, 5, 0),
        "tokens": lambda: impl.bits_per_byte(2.0, 0, 10),
        "betas": lambda: impl.AdamW([p], betas=(-0.1, 0.9)),
        "weight_decay": lambda: impl.parameter_groups(model, -0.1),
        "floor": lambda: impl.learning_rate(0, 5, 25, 0.1, -0.1),
        "max_norm": lambda: impl.clip_grad_norm([p], float("nan")),
    }
    return {"bits": impl.bits_per_byte(1, 1, n_bytes), **{what: accepts(call) for what, call in taken.items()},
            **{name: raises(ValueError, call, names=name) for name, call in refused.items()}}
