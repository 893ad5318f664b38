"""Stand-ins for parts of torch that a check needs and a student does not see.

Torch's own import its compiler at their first use, which takes longer than torch itself and 100 MB, in every worker.
"""

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


class Descent(torch.optim.Optimizer):
    """Plain gradient descent: w ← w − lr · gradient, in which each gradient shows as it is."""

    def __init__(self, parameters, lr: float = 0.5):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.sub_(p.grad, alpha=group["lr"])


class Elsewhere(TorchFunctionMode):
    """Inside of this, the meta device is played by the CPU, with numbers and without torch's meta kernels.

    A tensor lies there if it was made or sent there, or was computed from one that does; it then says so. As on any
    other device, a tensor of the CPU that meets one from there raises, unless it is a single number or an index.
    """

    device = torch.device("meta")

    def __init__(self):
        super().__init__()
        self._there: dict[int, Tensor] = {}     # kept, so that no other tensor takes its id

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function == Tensor.device.__get__:
            return self.device if id(args[0]) in self._there else args[0].device
        given = [x for arg in (*args, *kwargs.values()) for x in (arg if isinstance(arg, (list, tuple)) else [arg])
                 if isinstance(x, Tensor)]
        lies_there = any(id(x) in self._there for x in given)
        sent = None                             # to a device that is named in this call
        if function in (Tensor.to, Tensor.cpu):
            places = [torch.device(x) for x in (*args[1:], *kwargs.values()) if isinstance(x, (str, torch.device))]
            places += [self.device if id(x) in self._there else x.device for x in given[1:]] \
                + [torch.device("cpu")] * (function is Tensor.cpu)
            sent = places[0] if places else None
            args = tuple("cpu" if isinstance(x, (str, torch.device)) else x for x in args)
        elif kwargs.get("device") is not None:
            sent = torch.device(kwargs["device"])
        elif lies_there and function not in (Tensor.copy_, Tensor.__getitem__):
            if left := [x for x in given if id(x) not in self._there and x.dim()]:
                raise RuntimeError(f"expected all tensors on one device, found {self.device} and {left[0].device}")
        if sent is not None and "device" in kwargs:
            kwargs["device"] = "cpu"
        made = function(*args, **kwargs)
        if sent is not None and any(made is x for x in given):      # sent nowhere, as far as the CPU is concerned
            made = made.clone()
        if sent == self.device or (sent is None and lies_there):
            self._there |= {id(x): x for x in (made if isinstance(made, (list, tuple)) else [made])
                            if isinstance(x, Tensor)}
        return made


class Operations(TorchDispatchMode):
    """What torch does inside of this: how many operations, the numbers in the largest storage that one of them
    returns, and the multiply-adds of all matrix products."""

    def __init__(self):
        super().__init__()
        self.count = self.largest = self.multiply_adds = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False        # torch would import its compiler to skip it

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        self.count += 1
        if isinstance(made, Tensor):
            self.largest = max(self.largest, made.untyped_storage().nbytes() // made.element_size())
            if (name := function.__name__.partition(".")[0]) in ("mm", "bmm", "addmm", "baddbmm"):
                self.multiply_adds += made.numel() * args[name in ("addmm", "baddbmm")].shape[-1]
        return made
