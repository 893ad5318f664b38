"""What a check asks in several modes: in training and in eval, with gradients and without, in another default dtype."""

from contextlib import contextmanager

import torch
from torch import Tensor, nn

from grader.course.draw import Draw


def again(draw: Draw, module: nn.Module, x: Tensor) -> dict:
    """What a module gives in training, and in eval after its weights have changed, and the gradients of both.

    Whatever it keeps from an earlier call, or does in one mode alone, shows.
    """
    found, parameters = {}, dict(sorted(module.named_parameters()))
    if x.is_floating_point():
        parameters["x"] = x.requires_grad_()
    for training in (True, False):
        module.train(training)
        word = "in training" if training else "in eval, with other weights"
        with torch.no_grad():
            found[f"{word}, without gradients"] = module(x)
        y = module(x)
        if y.requires_grad:
            (y * draw(*y.shape)).sum().backward()
        found[word] = {"y": y, "gradients": {name: p.grad for name, p in parameters.items()}}
        with torch.no_grad():
            for p in parameters.values():
                p.grad = None
                p.copy_(draw(*p.shape))
    return found


@contextmanager
def default_dtype(dtype: torch.dtype):
    """While it lasts, tensors are of another dtype where none is said."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
