"""Training: batches, a schedule, clipping, AdamW, accumulation, checkpoints that can be trusted.

One step: average the loss over the kept targets, clip the gradient to a norm, let AdamW move.
"""

import hashlib
import io
import math
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor, nn

from given.sizes import at_least_one, widen

from .ex05_softmax import cross_entropy

IGNORED = -100  # a target that is not learned from


def get_batch(
    tokens: Integer[Tensor, " length"], batch: int, seq_len: int, rng: torch.Generator
) -> tuple[Int[Tensor, "{batch} {seq_len}"], Int[Tensor, "{batch} {seq_len}"]]:
    """Windows of a text from random places, and for each token the one that follows it.

    The starts are torch.randint(length − seq_len, (batch,), generator=rng): every place at which
    seq_len + 1 tokens fit, equally likely. Both answers are int64, on the device of tokens, each
    in memory of its own. tokens may be of any integer dtype, such as uint16, and a text of many
    gigabytes: only what is returned is read and made int64, never the whole text.

    Raises ValueError, naming the argument, where batch or seq_len is below 1, or tokens are not
    more than seq_len.
    """
    # BEGIN SOLUTION
    at_least_one(batch=batch, seq_len=seq_len)
    if len(tokens) <= seq_len:
        raise ValueError(f"tokens must be more than seq_len = {seq_len}, got {len(tokens)}")
    last = len(tokens) - seq_len
    starts = torch.randint(last, (batch,), generator=rng, device=rng.device).tolist()
    inputs = torch.stack([tokens[start:start + seq_len].long() for start in starts])
    targets = torch.stack([tokens[start + 1:start + 1 + seq_len].long() for start in starts])
    return inputs, targets
    # END SOLUTION


def learning_rate(
    step: int, warmup: int, total: int, peak: float, floor: float = 0.0
) -> float:
    """The learning rate of a step, the first being step 0: a linear rise, then half a cosine.

    step < warmup: peak · (step + 1) / warmup. From there to total: floor + (peak − floor) ·
    ½ (1 + cos π t), where t = (step − warmup) / (total − warmup). From total on: floor.

    Raises ValueError, naming the argument, where step or warmup is below 0, total is below warmup,
    or floor is not in 0 … peak. Loshchilov and Hutter, 2016 (arXiv 1608.03983).

    To be written here: torch's CosineAnnealingLR, LinearLR, LambdaLR and SequentialLR are not used.
    """
    # BEGIN SOLUTION
    if step < 0:
        raise ValueError(f"step must be at least 0, got {step}")
    if warmup < 0:
        raise ValueError(f"warmup must be at least 0, got {warmup}")
    if total < warmup:
        raise ValueError(f"total must be at least warmup = {warmup}, got {total}")
    if not 0 <= floor <= peak:
        raise ValueError(f"floor must be in 0 … peak = {peak}, got {floor}")
    if step < warmup:
        return peak * (step + 1) / warmup
    if step >= total:
        return floor
    done = (step - warmup) / (total - warmup)
    return floor + (peak - floor) * 0.5 * (1 + math.cos(math.pi * done))
    # END SOLUTION


def clip_grad_norm(parameters: Iterable[Tensor], max_norm: float) -> Float[Tensor, ""]:
    """Scale all gradients by one factor so that together they are no longer than max_norm.

    norm = √(Σ g²) over every number of every gradient; where it is above max_norm, each gradient
    is multiplied in place by max_norm / (norm + 10⁻⁶). Parameters without a gradient are passed
    over. Returns the norm before clipping, in at least float32; 0 where there is no gradient.
    The parameters of one model may lie on several devices.

    Raises ValueError naming max_norm where it is not above 0. Pascanu et al., 2012 (arXiv
    1211.5063).

    To be written here: torch's clip_grad_norm, clip_grads_with_norm and get_total_norm are not
    used.
    """
    # BEGIN SOLUTION
    if not max_norm > 0:
        raise ValueError(f"max_norm must be above 0, got {max_norm}")
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return torch.zeros(())
    norms = [widen(g).norm() for g in gradients]
    norm = torch.stack([n.to(norms[0].device) for n in norms]).norm()
    scale = (max_norm / (norm + 1e-6)).clamp(max=1)
    for gradient in gradients:
        gradient.mul_(scale.to(gradient.device))
    return norm
    # END SOLUTION


class AdamW(torch.optim.Optimizer):
    """Adam with weight decay that does not pass through the gradient's statistics.

    At step t, for a parameter p with the gradient g:
    p ← p − lr · weight_decay · p
    m ← β₁ m + (1 − β₁) g          v ← β₂ v + (1 − β₂) g²
    p ← p − lr · m̂ / (√v̂ + eps),   m̂ = m / (1 − β₁ᵗ),   v̂ = v / (1 − β₂ᵗ)

    The state of p is a dict of step (an int), m and v. Options may differ by parameter group.
    Raises ValueError, naming the argument, where lr, eps or weight_decay is below 0, or one of
    betas is not in [0, 1).
    Loshchilov and Hutter, 2017 (arXiv 1711.05101).

    To be written here: torch's Adam, AdamW and their relatives are not used.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ):
        # BEGIN SOLUTION
        for name, value in {"lr": lr, "eps": eps, "weight_decay": weight_decay}.items():
            if not value >= 0:
                raise ValueError(f"{name} must be at least 0, got {value}")
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"betas must be in [0, 1), got {betas}")
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))
        # END SOLUTION

    @torch.no_grad()
    def step(self, closure: Callable | None = None) -> Tensor | float | None:
        """Move every parameter that has a gradient.

        closure: called first, with gradients on, where it is given; its loss is returned.
        Raises ValueError where a gradient is sparse, before any parameter or its state has changed.
        """
        # BEGIN SOLUTION
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if any(p.grad is not None and p.grad.is_sparse
               for group in self.param_groups for p in group["params"]):
            raise ValueError("gradients must be dense, got a sparse one")
        for group in self.param_groups:
            lr, (beta1, beta2) = group["lr"], group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state.update(step=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                state["step"] += 1
                p.mul_(1 - lr * group["weight_decay"])
                state["m"].mul_(beta1).add_(p.grad, alpha=1 - beta1)
                state["v"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                m_scale = 1 - beta1 ** state["step"]
                v_scale = 1 - beta2 ** state["step"]
                root = (state["v"] / v_scale).sqrt_().add_(group["eps"])
                p.addcdiv_(state["m"], root, value=-lr / m_scale)
        return loss
        # END SOLUTION


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict]:
    """Two groups for an optimizer: matrices, which decay, and vectors, which do not.

    Norm weights and biases have one axis; pulling them to zero would switch features off.
    Each group is a dict of params (in the model's order, each once) and weight_decay.

    Raises ValueError naming weight_decay where it is below 0.
    """
    # BEGIN SOLUTION
    if not weight_decay >= 0:
        raise ValueError(f"weight_decay must be at least 0, got {weight_decay}")
    parameters = list(model.parameters())
    return [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    # END SOLUTION


def train_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Sequence[tuple[Tensor, Tensor]],
    max_norm: float = 1.0,
    loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy,
) -> tuple[float, float]:
    """One step of the optimizer on several (inputs, targets), as if they were one large batch.

    loss(logits, targets) is the mean over a batch's kept targets, those that are not IGNORED; the
    default is lesson 05's. Each batch counts by its share of all kept targets, so that the
    accumulated gradient is that of the mean loss over all of them; a batch that keeps none is
    passed over. Each goes backward before the next goes forward: memory holds one batch at a time.
    Old gradients are dropped first. What is clipped is the gradient of the optimizer's parameters,
    all groups together. Returns (that mean loss in nats, the gradient's norm before clipping).

    Raises ValueError, naming the argument, where max_norm is not above 0, or batches are empty or
    hold no kept target; nothing is changed then.

    To be written here: torch's clip_grad_norm, clip_grads_with_norm and get_total_norm are not
    used.
    """
    # BEGIN SOLUTION
    if not max_norm > 0:
        raise ValueError(f"max_norm must be above 0, got {max_norm}")
    kept = [int((targets != IGNORED).sum()) for _, targets in batches]
    if not sum(kept):
        raise ValueError(f"batches must hold a target to learn from, got {len(kept)} without one")
    optimizer.zero_grad()
    total = 0.0
    for (inputs, targets), count in zip(batches, kept):
        if count:
            part = loss(model(inputs), targets) * (count / sum(kept))
            part.backward()
            total += part.item()
    norm = clip_grad_norm([p for g in optimizer.param_groups for p in g["params"]], max_norm)
    optimizer.step()
    return total, norm.item()
    # END SOLUTION


@torch.no_grad()
def evaluate(
    model: nn.Module, tokens: Integer[Tensor, " length"], seq_len: int, batch: int = 8
) -> float:
    """The mean loss, in nats per token, over a whole text, in eval mode.

    The text is cut into windows of seq_len inputs, one after another, and every token but the
    first is a target once; the last window may be shorter. batch windows go through the model at
    a time. Every module's mode is put back.

    Raises ValueError, naming the argument, where seq_len or batch is below 1, or there are fewer
    than 2 tokens.
    """
    # BEGIN SOLUTION
    at_least_one(seq_len=seq_len, batch=batch)
    if len(tokens) < 2:
        raise ValueError(f"tokens must be at least 2, got {len(tokens)}")
    inputs, targets = tokens[:-1].long(), tokens[1:].long()
    whole, size = len(targets) // seq_len * seq_len, batch * seq_len
    cuts = [slice(start, min(start + size, whole)) for start in range(0, whole, size)]
    pieces = [(inputs[cut].reshape(-1, seq_len), targets[cut].reshape(-1, seq_len)) for cut in cuts]
    if whole < len(targets):
        pieces.append((inputs[None, whole:], targets[None, whole:]))
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        total = sum(cross_entropy(model(x), y).item() * y.numel() for x, y in pieces)
    finally:
        for module in training:
            module.training = True
    return total / len(targets)
    # END SOLUTION


def bits_per_byte(loss: float, tokens: int, n_bytes: int) -> float:
    """What a text costs in bits for each of its bytes, by a loss in nats for each of its tokens.

    loss · tokens / (ln 2 · n_bytes). Unlike the loss, it can be compared between tokenizers.
    Raises ValueError, naming the argument, where tokens or n_bytes is below 1.
    """
    # BEGIN SOLUTION
    at_least_one(tokens=tokens, n_bytes=n_bytes)
    return loss * tokens / (math.log(2) * n_bytes)
    # END SOLUTION


def save_checkpoint(
    path: str | Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    step: int,
    rng: torch.Generator,
) -> None:
    """Write all that a run needs to go on: weights, the optimizer's state, step, and random states.

    The random states are that of rng, which draws the batches, and torch's own, which draws
    dropout. The file is the SHA-256 of the rest (32 bytes), then what torch.save writes. It is
    written beside path under another name, forced to the disk by os.fsync, and renamed: whatever
    happens, path is either the old checkpoint or the new one, whole.
    """
    # BEGIN SOLUTION
    buffer = io.BytesIO()
    random = {"batches": rng.get_state(), "cpu": torch.get_rng_state()}
    if torch.cuda.is_initialized():
        random["cuda"] = torch.cuda.get_rng_state_all()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step,
                "random": random}, buffer)
    content = buffer.getvalue()
    path = Path(path)
    unfinished = path.with_name(path.name + ".unfinished")
    with open(unfinished, "wb") as file:
        file.write(hashlib.sha256(content).digest() + content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)
    # END SOLUTION


def _layout(weights: dict, states: dict) -> tuple[dict, list[int]]:
    """Given: shape and dtype of a model's weights each, size of an optimizer's groups each."""
    return ({name: (weight.shape, weight.dtype) for name, weight in weights.items()},
            [len(group["params"]) for group in states["param_groups"]])


def load_checkpoint(
    path: str | Path, model: nn.Module, optimizer: torch.optim.Optimizer, rng: torch.Generator
) -> int:
    """Put a checkpoint's weights and states back into these objects, and return its step.

    Raises ValueError naming path, and changes nothing, where the file was cut short or a byte of it
    differs (its SHA-256 is not the one inside), or where weights have other names, shapes or dtypes
    than this model's, or parameter groups other sizes than this optimizer's (_layout tells both).
    It is read with weights_only=True, so that it can run no code.
    """
    # BEGIN SOLUTION
    data = Path(path).read_bytes()
    digest, content = data[:32], data[32:]
    if hashlib.sha256(content).digest() != digest:
        raise ValueError(f"path {path} is cut short or damaged: its SHA-256 is not the one inside")
    saved = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    own = _layout(model.state_dict(), optimizer.state_dict())
    if _layout(saved["model"], saved["optimizer"]) != own:
        raise ValueError(f"path {path} holds weights of other names, shapes or dtypes than the "
                         "model's, or parameter groups of other sizes than the optimizer's")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    rng.set_state(saved["random"]["batches"])
    torch.set_rng_state(saved["random"]["cpu"])
    cuda = saved["random"].get("cuda")
    if cuda and len(cuda) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(cuda)
    return saved["step"]
    # END SOLUTION
