"""What lesson 14 asks of batches, the schedule, clipping, AdamW, a training step and checkpoints."""

import copy
import hashlib
import io
import os
import tempfile
from pathlib import Path

import torch
from torch import nn

from grader import devices, dtypes, points, raises, shares_memory
from grader.course.doubles import Descent

CLIPPING = {"torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad_norm",
            "torch.nn.utils.clip_grads_with_norm_", "torch.nn.utils.get_total_norm"}
FORBIDDEN = {
    "learning_rate": {
        "torch.optim.lr_scheduler.CosineAnnealingLR", "torch.optim.lr_scheduler.LinearLR",
        "torch.optim.lr_scheduler.LambdaLR", "torch.optim.lr_scheduler.SequentialLR"},
    "clip_grad_norm": CLIPPING, "train_step": CLIPPING,
    "AdamW": {
        "torch.optim.AdamW", "torch.optim.Adam", "torch.optim.Adamax", "torch.optim.NAdam",
        "torch.optim.RAdam", "torch.optim.SparseAdam", "torch._fused_adamw_", "torch._fused_adam_"},
}
VOCAB, D_MODEL = 11, 6


def _model(draw, dropout=0.0):
    """A model of one token: embedding, dropout, unembedding."""
    return draw.fill(nn.Sequential(
        nn.Embedding(VOCAB, D_MODEL), nn.Dropout(dropout), nn.Linear(D_MODEL, VOCAB)))


def _batch(draw, rows, seq, kept=None):
    """Inputs and targets; only the first `kept` targets of each row are to be learned from."""
    inputs, targets = draw.ints(VOCAB, rows, seq), draw.ints(VOCAB, rows, seq).clone()
    if kept is not None:
        targets[:, kept:] = -100
    return inputs, targets


def _with_gradients(draw, *shapes, scale=1.0):
    """Parameters that have gradients already."""
    parameters = [nn.Parameter(draw(*shape)) for shape in shapes]
    for p in parameters:
        p.grad = draw(*p.shape, scale=scale).clone()
    return parameters


def _gradients(parameters):
    return [1 * p.grad for p in parameters]


def _values(parameters):
    return [p.detach().clone() for p in parameters]


def _rng(draw):
    return torch.Generator().manual_seed(draw.seed)


def _size(draw, low, high):
    """A whole number from low to high that nobody knows before it is drawn."""
    return low + int(draw.ints(high - low + 1))


def _rates(draw):
    """A warm-up of at least 2 steps, a total, a peak and a floor."""
    warmup = _size(draw, 2, 6)
    return warmup, warmup + _size(draw, 8, 30), 0.001 * _size(draw, 10, 90), 0.0001 * _size(draw, 1, 90)


# -- batches

@points(2)
def test_get_batch(impl, draw):
    """A batch is windows from random places of the text, and their targets are one token further on.

    Each window starts at one of torch.randint(length − seq_len, (batch,), generator=rng). The
    target at a place is the token that follows it, so the targets are the windows moved by 1.
    """
    tokens = draw.ints(1000, 40)
    inputs, targets = impl.get_batch(tokens, 4, 7, _rng(draw))
    return {"inputs": inputs, "targets": targets}


def test_get_batch_is_int64(impl, draw):
    """Batches are int64, from tokens of any integer dtype, and every id is what it was.

    Text is often stored in two bytes per token, as uint16; losses and look-ups want int64. On the way there an id
    must not become a float: float32 has no 2²⁴ + 1.
    """
    said = {}
    for dtype, first in ((torch.int32, 0), (torch.uint16, 0), (torch.int64, 0), (torch.int64, 2**24 + 1)):
        tokens = (first + draw.ints(1000, 40)).to(dtype)
        inputs, targets = impl.get_batch(tokens, 2, 5, _rng(draw))
        said[f"{dtype} from {first}"] = {"inputs": inputs, "targets": targets}
    return said


def test_get_batch_every_place(impl, draw):
    """Every place at which seq_len + 1 tokens fit may be drawn, the first and the last too.

    torch.randint(high, …) draws 0 … high − 1. Of 10 tokens, 7 + 1 fit at places 0, 1 and 2.
    """
    seq_len, first = _size(draw, 3, 9), _size(draw, 0, 900)
    inputs, _ = impl.get_batch(torch.arange(first, first + seq_len + 3, device=draw.device), 100, seq_len, _rng(draw))
    return sorted(set(inputs[:, 0].tolist()))


def test_get_batch_own_memory(impl, draw):
    """Inputs and targets share no memory, so that blotting out a target leaves inputs and text alone.

    Two slices of one tensor of windows are two views of the same numbers. Index the tokens twice.
    """
    said, tokens = {}, draw.ints(1000, 40)
    for batch in (4, 1):
        inputs, targets = impl.get_batch(tokens, batch, 7, _rng(draw))
        said[f"{batch} windows share memory"] = shares_memory(inputs, targets)
        targets.fill_(-100)
        said[f"inputs of {batch}, with every target −100"] = inputs
    return said


def test_get_batch_of_a_long_text(impl, draw):
    """Of the text, only what is returned is read and made int64: a text may be larger than memory.

    tokens.long() copies the whole text, eight bytes for each token. Cut the windows out first, then
    make them int64. Here the text has 2⁴⁵ tokens (all the same one, which is stored once).
    """
    tokens = draw.ints(1000, 1).to(torch.uint16).expand(2**45)
    inputs, targets = impl.get_batch(tokens, 2, 5, _rng(draw))
    return {"inputs": inputs, "targets": targets}


# -- the schedule

@points(2)
def test_warm_up(impl, draw):
    """While warming up, the learning rate of step s is peak · (s + 1) / warmup.

    The first step is step 0, and it should move something already; step warmup − 1 has the peak.
    """
    warmup, total, peak, floor = _rates(draw)
    return {f"step {step} of {warmup}": impl.learning_rate(step, warmup, total, peak, floor)
            for step in range(warmup + 1)}


@points(2)
def test_cosine(impl, draw):
    """After the warm-up the learning rate falls from peak to floor along half a cosine.

    t = (step − warmup) / (total − warmup) goes from 0 to 1, and with it ½ (1 + cos πt) from 1 to
    0. That times what lies between floor and peak, on top of floor.
    """
    warmup, total, peak, floor = _rates(draw)
    return {f"step {step}, warmup {warmup}, total {total}": impl.learning_rate(step, warmup, total, peak, floor)
            for step in (warmup, warmup + 1, (warmup + total) // 2, total - 3, total - 1)}


def test_after_the_end(impl, draw):
    """From step total on, the learning rate is floor, and floor is 0 where it is not given.

    Half a cosine that is followed further goes up again.
    """
    (warmup, total, peak, floor), rate = _rates(draw), impl.learning_rate
    return {f"step {total} of {total}": rate(total, warmup, total, peak, floor),
            f"step {2 * total} of {total}": rate(2 * total, warmup, total, peak, floor),
            "without a floor": rate(total + 5, warmup, total, peak), "no warm-up, step 0": rate(0, 0, total, peak)}


def test_warm_up_to_the_end(impl, draw):
    """Where total equals warmup there is no cosine: the rise to peak, and from step total on floor.

    (step − warmup) / (total − warmup) would divide by 0 there. Ask first whether step is at total or past it, with
    step >= total: then floor.
    """
    (warmup, _, peak, floor), rate = _rates(draw), impl.learning_rate
    return {f"step {step}, warmup and total {warmup}": rate(step, warmup, warmup, peak, floor)
            for step in (warmup - 1, warmup, warmup + 3)}


# -- clipping

@points(2)
def test_clip_long(impl, draw):
    """Gradients that are together longer than max_norm are scaled by one factor to that length.

    One norm over every number of every gradient, one factor max_norm / (norm + 10⁻⁶) for all: the
    direction of the step stays. Returned is the norm before clipping. Here parameters is an iterator, as
    model.parameters() is: it can be walked through once.
    """
    parameters = _with_gradients(draw, (4, 5), (5,), (2, 3), scale=3.0)
    norm = impl.clip_grad_norm(iter(parameters), 1.5)
    return {"norm": norm, "gradients": _gradients(parameters)}


def test_clip_in_place(impl, draw):
    """Gradients are scaled in place: p.grad is afterwards the same tensor in the same memory.

    Others may hold that tensor too, such as a flat buffer of all gradients. Use gradient.mul_(…).
    """
    p, = _with_gradients(draw, (4, 5), scale=3.0)
    held = p.grad
    memory = held.detach()
    impl.clip_grad_norm([p], 1.5)
    return {"the same tensor": p.grad is held, "the same memory": shares_memory(p.grad, memory),
            "gradient": 1 * memory}


def test_clip_short(impl, draw):
    """Gradients that are together no longer than max_norm stay exactly as they are.

    Clipping only ever shortens. The factor is at most 1.
    """
    parameters = _with_gradients(draw, (4, 5), (5,), scale=0.1)
    before = _gradients(parameters)
    norm = impl.clip_grad_norm(parameters, 100)
    return {"norm": norm, "gradients": _gradients(parameters),
            "unchanged": all(map(torch.equal, before, _gradients(parameters)))}


def test_clip_without_gradients(impl, draw):
    """Parameters that have no gradient are passed over.

    p.grad is None for a parameter that had no part in the loss.
    """
    first, second = _with_gradients(draw, (4, 5), (5,))
    second.grad = None
    return {"norm": impl.clip_grad_norm([second, first], 0.5), "gradient": 1 * first.grad}


def test_clip_nothing(impl, draw):
    """Where no parameter has a gradient, the norm is 0, a tensor as always.

    There is nothing then to stack or to concatenate, no first gradient to ask for its device, and the sum over nothing
    is Python's 0, of which torch takes no root. Look for that first, and return torch.zeros(()).
    """
    p, shape = nn.Parameter(draw(5)), (_size(draw, 1, 5), _size(draw, 1, 5))
    norms = {"one without": impl.clip_grad_norm([p], 0.5), "no parameter": impl.clip_grad_norm(iter([]), 0.5)}
    other, = _with_gradients(draw, shape)
    return {**{name: float(norm) for name, norm in norms.items()}, "with one": impl.clip_grad_norm([p, other], 0.5)}


@dtypes("float16", "bfloat16", "float64")
def test_clip_in_at_least_float32(impl, draw, dtype):
    """The norm is computed and returned in at least float32: float64 stays float64.

    300 squared is past float16's largest number, and bfloat16 has three digits. The given
    widen(g) is at least float32: take its norm.
    """
    parameters = [nn.Parameter(draw(8, 8).to(dtype)) for _ in range(2)]
    for p in parameters:
        p.grad = draw(8, 8, scale=300.0).to(dtype)
    norm = impl.clip_grad_norm(parameters, 2.0)
    return {"norm": norm, "gradients": _gradients(parameters)}


# -- AdamW

def _steps(impl, draw, optimizer, parameters, steps, scale=1.0):
    """The parameters after each of some steps, each with a fresh gradient."""
    said = []
    for _ in range(steps):
        for p in parameters:
            p.grad = draw(*p.shape, scale=scale).clone()
        optimizer.step()
        said.append(_values(parameters))
    return said


@points(3)
def test_adamw(impl, draw):
    """AdamW moves by m̂ / (√v̂ + eps), two running means that are corrected for their start at 0.

    m and v begin as zeros, so after t steps they hold only 1 − βᵗ of what they should: divide each
    by that, with its own β.
    """
    parameters = [nn.Parameter(draw(3, 4)), nn.Parameter(draw(5))]
    optimizer = impl.AdamW(parameters, lr=0.1, betas=(0.8, 0.95), weight_decay=0)
    return _steps(impl, draw, optimizer, parameters, 4)


@points(2)
def test_adamw_decay(impl, draw):
    """Weight decay shrinks p by lr · weight_decay · p, whatever the gradients were.

    It goes straight to p. A decay that is added to the gradient passes through √v̂, and then
    weights with large gradients hardly decay at all. Here one parameter's gradient is 0.
    """
    idle, busy = nn.Parameter(draw(4)), nn.Parameter(draw(4))
    idle.grad, busy.grad = torch.zeros_like(idle), draw(4, scale=10.0).clone()
    optimizer = impl.AdamW([idle, busy], lr=0.1, weight_decay=0.5)
    for _ in range(3):
        optimizer.step()
    return {"with a zero gradient": idle.detach(), "with a large gradient": busy.detach()}


def test_adamw_small_gradients(impl, draw):
    """eps is added to the root, after it is taken: √v̂ + eps.

    For gradients near 10⁻⁵ it makes a difference: √(v̂ + 10⁻⁸) is never below 10⁻⁴.
    """
    parameters = [nn.Parameter(draw(6))]
    return _steps(impl, draw, impl.AdamW(parameters, lr=0.1), parameters, 2, scale=1e-5)


@points(2)
def test_adamw_groups(impl, draw):
    """Each parameter group has its own options, and they are read anew at each step.

    A schedule works by writing group["lr"] before the step. Read lr, betas, eps and weight_decay
    from the group inside step.
    """
    first, second = nn.Parameter(draw(3, 4)), nn.Parameter(draw(5))
    optimizer = impl.AdamW([{"params": [first], "weight_decay": 0.5, "betas": (0.5, 0.6)},
                            {"params": [second], "lr": 0.3, "eps": 0.5}], lr=0.1, weight_decay=0.0)
    said = _steps(impl, draw, optimizer, [first, second], 2)
    optimizer.param_groups[0]["lr"] = 0.01
    return said + _steps(impl, draw, optimizer, [first, second], 1)


def test_adamw_late_starter(impl, draw):
    """A parameter without a gradient is not moved and not decayed, and counts its own steps.

    Its first gradient may come late. Its m and v are then at their first step, whatever the
    others' are.
    """
    early, late = nn.Parameter(draw(4)), nn.Parameter(draw(4))
    optimizer = impl.AdamW([late, early], lr=0.1, weight_decay=0.5)
    said = _steps(impl, draw, optimizer, [early], 3)
    before = _values([late])
    return {"early": said, "late": before, "then": _steps(impl, draw, optimizer, [early, late], 2)}


def test_adamw_closure(impl, draw):
    """step(closure) calls closure first, with gradients switched on, and returns its loss.

    step itself runs under no_grad; torch.enable_grad() switches back inside of it.
    """
    p, target = nn.Parameter(draw(4)), draw(4)
    optimizer = impl.AdamW([p], lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = (p - target).square().sum()
        loss.backward()
        return loss

    said = {"loss": optimizer.step(closure).detach(), "p": p.detach().clone()}
    return {**said, "without a closure": optimizer.step(), "then": p.detach()}


@devices("cpu")
def test_adamw_sparse(impl, draw):
    """A sparse gradient raises a ValueError before any parameter, or what is kept of it, has changed.

    nn.Embedding(…, sparse=True) makes one. Look at all gradients first: if step finds out halfway,
    some parameters have moved and others have not.
    """
    dense, sparse = nn.Parameter(draw(3)), nn.Parameter(draw(4, 2))
    optimizer = impl.AdamW([dense, sparse], lr=0.1, weight_decay=0.5)
    _steps(impl, draw, optimizer, [dense, sparse], 1)
    dense.grad, sparse.grad = draw(3).clone(), draw(4, 2).to_sparse()
    error = raises(ValueError, optimizer.step)
    return {"error": error, "parameters": _values([dense, sparse]),
            "kept": [[1 * value for value in optimizer.state[p].values()] for p in (dense, sparse)]}


@points(2)
def test_parameter_groups(impl, draw):
    """Matrices decay; vectors, which are biases and the weights of norms, do not.

    Two groups, matrices first. A parameter's ndim tells them apart: 2 or more, or fewer.
    """
    kinds = {0: lambda: nn.LayerNorm(4), 1: lambda: nn.Linear(4, 4), 2: lambda: nn.Conv1d(4, 4, 1), 3: nn.PReLU}
    between = [kinds[kind]() for kind in (0, 2, *draw.ints(4, 5).tolist())]
    model = nn.Sequential(nn.Embedding(7, 4), *between, nn.Linear(4, 7))
    model[-1].weight = model[0].weight                 # tied: it must come once
    model.scale = nn.Parameter(draw())                 # a single number: no matrix either
    names = {id(p): name for name, p in model.named_parameters()}
    return [{"params": [names[id(p)] for p in group["params"]],
             "weight_decay": float(group["weight_decay"])}
            for group in impl.parameter_groups(model, 0.01 * _size(draw, 1, 50))]


# -- a training step

@points(2)
def test_train_step(impl, draw):
    """One step goes forward, backward, clips, moves, and returns the loss and the norm.

    Both are plain numbers: the mean loss in nats, and the norm of the gradient before clipping.
    """
    model = _model(draw)
    loss, norm = impl.train_step(model, Descent(model.parameters()), [_batch(draw, 3, 5)], 100.0)
    return {"loss": loss, "norm": norm, "weights": _values(model.parameters())}


@points(3)
def test_train_step_accumulates(impl, draw):
    """Several batches give the step that one large batch would have given.

    backward adds to the gradients, so each batch's mean loss has to be multiplied by its share of
    all kept targets before. Here the batches keep 15 targets, 4 and none; the share is not 1/3.
    """
    model = _model(draw)
    batches = [_batch(draw, 3, 5), _batch(draw, 2, 5, kept=2), _batch(draw, 2, 5, kept=0)]
    loss, norm = impl.train_step(model, Descent(model.parameters()), batches, 100.0)
    return {"loss": loss, "norm": norm, "weights": _values(model.parameters())}


class _Listening(nn.Module):
    """Writes down when its model goes forward and when the gradient comes back."""

    def __init__(self, model):
        super().__init__()
        self.model, self.events = model, []

    def forward(self, ids):
        self.events.append("forward")
        logits = self.model(ids)
        logits.register_hook(lambda grad: self.events.append("backward"))
        return logits


def test_train_step_one_batch_at_a_time(impl, draw):
    """Each batch goes backward before the next one goes forward, so memory holds one batch at a time.

    What backward needs is kept from forward until backward. Adding up the losses and going backward
    once at the end keeps it for all batches: then one large batch would have done as well.
    """
    model = _Listening(_model(draw))
    batches = [_batch(draw, 2, 3) for _ in range(_size(draw, 2, 6))]
    loss, _ = impl.train_step(model, Descent(model.parameters()), batches)
    return {"events": model.events, "loss": loss}


def test_train_step_loss(impl, draw):
    """loss is called as loss(logits, targets), in place of lesson 05's; its gradient is the step's.

    A model that computes with torch's kernels may want torch's loss too. Here the loss given is
    half of torch's, so the step must come out half as long.
    """
    model = _model(draw)

    def half(logits, targets):
        return 0.5 * nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    batches = [_batch(draw, 3, 5, kept=3), _batch(draw, 2, 5)]
    loss, norm = impl.train_step(model, Descent(model.parameters()), batches, 100.0, loss=half)
    return {"loss": loss, "norm": norm, "weights": _values(model.parameters())}


def test_train_step_drops_old_gradients(impl, draw):
    """Gradients that are there before the step have no part in it, whoever left them there.

    backward adds to what is there. optimizer.zero_grad() clears it: before the first backward, not after the step.
    """
    model, batch = _model(draw), _batch(draw, 3, 5)
    optimizer = Descent(model.parameters())
    model[2].bias.grad = draw(VOCAB, scale=9.0).clone()
    impl.train_step(model, optimizer, [batch], 100.0)
    loss, norm = impl.train_step(model, optimizer, [batch], 100.0)
    return {"loss": loss, "norm": norm, "weights": _values(model.parameters())}


def test_train_step_clips(impl, draw):
    """The gradient is clipped before the optimizer moves, and the norm before clipping is returned.

    max_norm is 0.01 here, so the step is 0.01 · lr long: all groups of parameters together, by one factor.
    """
    model = _model(draw)
    before = _values(model.parameters())
    optimizer = Descent([{"params": list(part.parameters())} for part in (model[0], model[2])])
    _, norm = impl.train_step(model, optimizer, [_batch(draw, 3, 5)], 0.01)
    moved = [a - b for a, b in zip(before, _values(model.parameters()))]
    return {"norm": norm, "length of the step": torch.cat([m.flatten() for m in moved]).norm()}


def test_train_step_of_a_head(impl, draw):
    """What is clipped, and measured, is what the optimizer holds: the model may have more parameters.

    A head may be trained over a frozen body. Take the parameters from optimizer.param_groups, those of all groups
    together, and not from the model.
    """
    model = _model(draw)
    optimizer = Descent([{"params": [model[2].weight]}, {"params": [model[2].bias]}])
    said = [impl.train_step(model, optimizer, [_batch(draw, 3, 5)], 0.05) for _ in range(2)]
    return {"losses and norms": said, "weights": _values(model.parameters())}


# -- evaluation

@points(2)
def test_evaluate(impl, draw):
    """evaluate is the mean loss over all targets of the text, those of a last short window too.

    23 tokens have 22 targets: windows of 5 give 5, 5, 5, 5 and 2. A mean of windows' means would
    count the last two as much as five.
    """
    return impl.evaluate(_model(draw), draw.ints(VOCAB, 23), 5, batch=3)


def _modes(draw, training):
    """A model with much dropout, itself in this mode, and its modules each in a mode of its own."""
    model = draw.fill(nn.Sequential(nn.Embedding(VOCAB, D_MODEL), *(nn.Dropout(0.5) for _ in range(5)),
                                    nn.Linear(D_MODEL, VOCAB)))
    for module, frozen in zip(model, [0, 1, *draw.ints(2, 5).tolist()]):
        module.training = not frozen
    model.training = training
    return model


def test_evaluate_mode(impl, draw):
    """evaluate drops nothing, and every module is afterwards in the mode in which it was.

    model.eval() before; whichever modules were training train again after, and no others: model.train() would wake
    those that somebody has frozen.
    """
    said, tokens = {}, draw.ints(VOCAB, 23)
    for training in (True, False):
        model = _modes(draw, training)
        losses = [impl.evaluate(model, tokens, 5) for _ in range(2)]
        said[f"the model training: {training}"] = {
            "the same loss twice": losses[0] == losses[1], "loss": losses[0],
            "modes": [module.training for module in model.modules()]}
    return said


def test_evaluate_that_fails(impl, draw):
    """The modes are put back even if the model raises an error half way.

    Whoever catches it goes on training. Put the modes back in the finally of a try.
    """
    model, tokens = _modes(draw, True), draw.ints(VOCAB, 23)
    tokens = torch.cat([tokens, torch.full_like(tokens[:5], VOCAB)])        # ids past the vocabulary
    said = raises(IndexError, lambda: impl.evaluate(model, tokens, 5, batch=1))
    return {"error": said, "modes": [module.training for module in model.modules()]}


def test_bits_per_byte(impl, draw):
    """bits_per_byte is loss · tokens / (ln 2 · n_bytes).

    The loss of all tokens in nats; a bit is ln 2 nats; and then for each byte.
    """
    tokens, n_bytes = _size(draw, 200, 400), _size(draw, 500, 2000)
    return {f"2 nats, {tokens} tokens, {n_bytes} bytes": impl.bits_per_byte(2, tokens, n_bytes),
            "one byte per token": impl.bits_per_byte(0.5, tokens, tokens)}


# -- checkpoints

def _run(impl, draw):
    """A model with dropout, its optimizer in two groups, and the generator of its batches."""
    model = _model(draw, dropout=0.3)
    return model, impl.AdamW(impl.parameter_groups(model, 0.1), lr=0.05), _rng(draw)


def _train(impl, run, tokens, steps):
    model, optimizer, rng = run
    for _ in range(steps):
        impl.train_step(model, optimizer, [impl.get_batch(tokens, 2, 5, rng)])


def _everything(run):
    """Copies of the weights and of all that the optimizer remembers."""
    model, optimizer, rng = run
    return copy.deepcopy([model.state_dict(), optimizer.state_dict(), rng.get_state()])


def _same(one, other):
    """Whether two nests of tensors and numbers are equal, bit for bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other


@points(3)
def test_checkpoint_resumes(impl, draw):
    """A run that is saved and loaded goes on bit for bit as the unbroken one.

    What it needs: the weights, the optimizer's state (m, v and the count of steps), the state of
    rng, which draws batches, and torch's own, which draws dropout.
    """
    tokens, name = draw.ints(VOCAB, 60), f"checkpoint {_size(draw, 0, 999)}"
    run, other = _run(impl, draw), _run(impl, draw)
    with tempfile.TemporaryDirectory() as folder:
        _train(impl, run, tokens, 2)
        impl.save_checkpoint(Path(folder, name), *run[:2], 2, run[2])
        _train(impl, run, tokens, 2)
        torch.rand(1)
        step = impl.load_checkpoint(Path(folder, name), *other)
        files = sorted(os.listdir(folder))
    resumed = _everything(other)
    _train(impl, other, tokens, 2)
    parts = ("weights", "optimizer", "batches")
    after = map(_same, _everything(run), _everything(other))
    return {"step": step, "files": files, "m and v are there": len(resumed[1]["state"]),
            **{f"{part} are those of the unbroken run": same for part, same in zip(parts, after)}}


@points(2)
def test_checkpoint_damaged(impl, draw):
    """A file that was cut short, or of which a byte differs, raises a ValueError and changes nothing.

    Compare the SHA-256 of all behind the first 32 bytes with those 32, before anything is read
    out of it. torch.load itself does not notice a changed weight.
    """
    run, other = _run(impl, draw), _run(impl, draw)
    _train(impl, run, draw.ints(VOCAB, 60), 1)
    before, said, step = _everything(other), {}, _size(draw, 1, 999)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "checkpoint")
        impl.save_checkpoint(path, *run[:2], step, run[2])
        whole = path.read_bytes()
        weight = whole.find(run[0][0].weight.detach().cpu().numpy().tobytes())
        for what, place in {"hash": 5, "weight": weight, "end": len(whole) - 1}.items():
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1:])
            said[f"{what} flipped"] = raises(
                ValueError, lambda: impl.load_checkpoint(path, *other), names="path")
        for length in (0, 20, 32, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:length])
            said[f"cut at {length if length < 33 else length / len(whole):.2g}"] = raises(
                ValueError, lambda: impl.load_checkpoint(path, *other), names="path")
        said["nothing changed"] = _same(before, _everything(other))
        path.write_bytes(whole)
        return {**said, "whole again, step": impl.load_checkpoint(path, *other)}


@points(2)
def test_checkpoint_full_disk(impl, draw):
    """Where the new checkpoint does not reach the disk, the error is raised and the old one stays.

    Write beside it, under another name; os.fsync; then os.replace. Here os.fsync finds the disk
    full. In another folder it would not do: that may be another disk, to which nothing can be renamed.
    """
    run, other, first = _run(impl, draw), _run(impl, draw), _size(draw, 1, 999)
    tokens, fsync, files = draw.ints(VOCAB, 60), os.fsync, []

    def full(_):
        files.append(len(os.listdir(folder)))
        raise OSError(28, "No space left on device")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "checkpoint")
        impl.save_checkpoint(path, *run[:2], first, run[2])
        saved = _everything(run)
        _train(impl, run, tokens, 1)
        try:
            os.fsync = full
            error = raises(OSError, lambda: impl.save_checkpoint(path, *run[:2], 2, run[2]))
        finally:
            os.fsync = fsync
        step = impl.load_checkpoint(path, *other)
    return {"saving": error, "files beside it meanwhile": files, "step": step,
            "the old one": _same(saved, _everything(other))}


def test_checkpoint_of_another_model(impl, draw):
    """A checkpoint of a model of other sizes or dtypes, or of other parameter groups, raises a ValueError naming path.

    Nothing changes then. load_state_dict copies what fits before it complains, and puts float64
    into float32 without a word. Compare the layouts first; _layout, which is given, tells them.
    """
    run, said, step = _run(impl, draw), {}, _size(draw, 1, 999)
    narrow = draw.fill(nn.Sequential(nn.Embedding(VOCAB, D_MODEL), nn.Dropout(0.3), nn.Linear(D_MODEL, 4)))
    alike = _model(draw, dropout=0.3)
    others = {"narrower": (narrow, impl.AdamW(impl.parameter_groups(narrow, 0.1))),
              "one group": (alike, impl.AdamW(alike.parameters()))}
    wide = _model(draw).double()
    others["float64"] = wide, impl.AdamW(impl.parameter_groups(wide, 0.1))
    _train(impl, run, draw.ints(VOCAB, 60), 1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "checkpoint")
        impl.save_checkpoint(path, *run[:2], step, run[2])
        for name, other in others.items():
            with torch.no_grad():
                other[0][2].bias.zero_()
            before, rng = _everything((*other, _rng(draw))), _rng(draw)
            said[name] = raises(ValueError, lambda: impl.load_checkpoint(path, *other, rng), names="path")
            said[f"{name}: nothing changed"] = _same(before, _everything((*other, rng)))
        return {**said, "its own model, step": impl.load_checkpoint(path, *run)}


class _Program:
    """An object that calls a function when it is unpickled."""

    def __reduce__(self):
        return print, ("a checkpoint ran a program",)


def test_checkpoint_runs_no_code(impl, draw):
    """A checkpoint can run no code, even if its SHA-256 is right.

    What torch.save writes is a pickle, and a pickle can call any function. With
    torch.load(…, weights_only=True) it can only hold tensors, numbers, texts and nests of them.
    """
    run = _run(impl, draw)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "checkpoint")
        impl.save_checkpoint(path, *run[:2], _size(draw, 1, 999), run[2])
        step = impl.load_checkpoint(path, *run)
        saved, buffer = torch.load(io.BytesIO(path.read_bytes()[32:]), weights_only=True), io.BytesIO()
        torch.save({**saved, "extra": _Program()}, buffer)
        content = buffer.getvalue()
        path.write_bytes(hashlib.sha256(content).digest() + content)
        return {"step": step, "with a program inside": raises(Exception, lambda: impl.load_checkpoint(path, *run))}


# -- bad input

def test_bad_input(impl, draw):
    """What makes no sense raises a ValueError that names the argument, before anything is changed.

    Look at the arguments first, and say in the message what was given.
    """
    tokens, model = draw.ints(VOCAB, 20), _model(draw)
    p, = _with_gradients(draw, (4,))
    rng, optimizer, said = _rng(draw), Descent(model.parameters()), {}
    below, small = -_size(draw, 1, 9), -0.1 * _size(draw, 1, 9)
    model[2].bias.grad = draw(VOCAB).clone()

    def refuses(name, call, value, **others):
        given = ", ".join(f"{key} = {item:g}" for key, item in {name: value, **others}.items())
        said[given] = raises(ValueError, lambda: call(value), names=name)

    for value in (0, below):
        refuses("batch", lambda value: impl.get_batch(tokens, value, 5, rng), value)
        refuses("seq_len", lambda value: impl.get_batch(tokens, 2, value, rng), value)
    refuses("tokens", lambda n: impl.get_batch(tokens[:n], 2, n, rng), _size(draw, 1, 20))
    for value in (-1, below - 1):
        refuses("step", lambda value: impl.learning_rate(value, 5, 25, 0.1), value)
        refuses("warmup", lambda value: impl.learning_rate(0, value, 25, 0.1), value)
    for value in (19, _size(draw, 0, 18)):
        refuses("total", lambda value: impl.learning_rate(0, 20, value, 0.1), value, warmup=20)
    refuses("floor", lambda value: impl.learning_rate(0, 5, 25, 0.1, value), 0.1 - small, peak=0.1)
    for value in (0, small):
        refuses("max_norm", lambda value: impl.clip_grad_norm([p], value), value)
    for name in ("lr", "eps", "weight_decay"):
        refuses(name, lambda value: impl.AdamW([p], **{name: value}), small)
    for value in (1.0, _size(draw, 11, 20) / 10, small):
        refuses("betas", lambda value: impl.AdamW([p], betas=(0.9, value)), value)
    refuses("n_bytes", lambda value: impl.bits_per_byte(2.0, 10, value), 0)
    refuses("tokens", lambda value: impl.evaluate(model, tokens[:value], 5), 1)
    refuses("batches", lambda kept: impl.train_step(model, optimizer, [_batch(draw, 2, 5, kept=kept)]), 0)
    return {**said, "the gradient, still": 1 * model[2].bias.grad}
