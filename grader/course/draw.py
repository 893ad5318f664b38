"""Deterministic inputs: the same seed draws the same numbers on every platform.

Based on numpy's RandomState, whose stream is frozen for good.
"""

import hashlib
import math

import numpy
import torch
from torch import Tensor, nn

_LETTERS = "eeeeettttaaaooiinnsshhrrdlucmfwypvbgkjqxz"
_RARE = ["\n", "\n\n", "  ", "\t", "\r\n", "2026", "3.14", "1,024", "don't", "we'll", "...", "!?",
         "é", "ü", "ß", "Ελλ", "жизнь", "שלום", "हिन्दी", "東京", "你好", "한국어", "🙂", "👩‍🚀", "🇯🇵",
         "\u200b", "\u00a0", "e\u0301", "<", ">", "def f(x):", "https://a.b/c?d=1"]


def seed_of(*parts) -> int:
    """A 32-bit seed from any parts with a stable text, such as a run's seed and a name."""
    text = "\0".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")


class Draw:
    """Draws the inputs of one check.

    With `exact` the numbers are rounded to that dtype and given as float64: what a check
    answers then is what it would answer in that dtype without rounding on the way.
    """

    def __init__(self, seed: int, device: str = "cpu", exact: torch.dtype | None = None):
        self.seed, self.device, self.exact = seed, torch.device(device), exact
        self._random = numpy.random.RandomState(seed)
        self._given: list[tuple[Tensor, Tensor]] = []

    @property
    def float(self) -> torch.dtype:
        """The dtype of the numbers that are drawn, for tensors that a check makes itself."""
        return torch.float64 if self.exact else torch.float32

    def __call__(self, *shape: int, scale: float = 1.0) -> Tensor:
        """Normal numbers with standard deviation `scale`."""
        return self._give(self._normal(self._random, shape, scale))

    def uniform(self, *shape: int) -> Tensor:
        """Uniform numbers in [0, 1)."""
        numbers = numpy.minimum(self._random.random_sample(shape), 1 - 2**-24)  # as float32 below 1
        return self._give(torch.from_numpy(numpy.asarray(numbers, numpy.float32)))

    def ints(self, high: int, *shape: int) -> Tensor:
        """int64 numbers in [0, high)."""
        numbers = numpy.asarray(self._random.randint(0, high, shape, dtype=numpy.int64))
        return self._give(torch.from_numpy(numbers))

    def text(self, n: int) -> str:
        """n characters: words and spaces, with digits, accents, other scripts and emoji."""
        out = ""
        while len(out) < n:
            if self._random.randint(6) == 0:
                out += _RARE[self._random.randint(len(_RARE))]
            else:
                letters = self._random.randint(0, len(_LETTERS), self._random.randint(1, 8))
                out += " " + "".join(_LETTERS[i] for i in letters)
        return out[:n]

    def fill(self, module: nn.Module) -> nn.Module:
        """Set every parameter from a seed of its own name, and move the module to the device.

        Matrices get std 1/√fan_in (std 1 saturates softmax and hides mistakes), vectors
        named `weight` lie near 1 and all other vectors near 0.1.
        """
        random = numpy.random.RandomState()
        with torch.no_grad():
            for name, parameter in sorted(module.named_parameters(remove_duplicate=False)):
                random.seed(seed_of(self.seed, name))       # to make a new one takes far longer
                if parameter.dim() > 1:
                    values = self._normal(random, parameter.shape, 1 / math.sqrt(parameter.shape[-1]))
                else:
                    near = 1.0 if name.rpartition(".")[2] == "weight" else 0.1
                    values = near * (1 + self._normal(random, parameter.shape, 0.25))
                parameter.copy_(values)
        return module.to(self.device, torch.float64 if self.exact else None)

    def changed(self) -> list[int]:
        """Which of the tensors drawn so far no longer hold what was drawn (0 is the first)."""
        return [i for i, (tensor, copy) in enumerate(self._given)
                if tensor.shape != copy.shape or not torch.equal(tensor.detach(), copy)]

    def storages(self) -> set[int]:
        """Where the drawn tensors lie in memory, to see whether an answer shares it."""
        return {tensor.untyped_storage().data_ptr() for tensor, _ in self._given}

    def _normal(self, random, shape, scale: float) -> Tensor:
        numbers = torch.from_numpy(numpy.asarray(random.standard_normal(shape) * scale, numpy.float32))
        return numbers.to(self.exact) if self.exact else numbers

    def _give(self, tensor: Tensor) -> Tensor:
        if self.exact and tensor.is_floating_point():
            tensor = tensor.to(self.exact).to(torch.float64)
        tensor = tensor.to(self.device)
        self._given.append((tensor, tensor.clone()))
        return tensor
