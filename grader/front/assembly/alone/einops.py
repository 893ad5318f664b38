"""einops' four functions on torch's tensors, with the same patterns; what is wrong in one, torch says."""

import math
import re
from types import SimpleNamespace

import torch
from torch import Tensor


def _axes(side: str, dots: int) -> list[list[str]]:
    """Half a pattern as lists of axes: "... (heads d)" is [["_0"], ["_1"], ["heads", "d"]] where the dots are two."""
    side = side.replace("...", " ".join(f"_{i}" for i in range(dots)))
    return [word.strip("()").split() for word in re.findall(r"\([^)]*\)|\S+", side)]


def _rearranged(x: Tensor, pattern: str, reduction: str | None, sizes: dict[str, int]) -> Tensor:
    """Split the axes, reduce those that are left out, order them, repeat along new ones, and join."""
    left, right = pattern.split("->")
    dots = x.ndim - len(_axes(left.replace("...", ""), 0))
    before, after = _axes(left, dots), _axes(right, dots)
    known, shape = dict(sizes), []
    for axes, size in zip(before, x.shape):
        for axis in axes:
            if axis not in known:       # what the others of its group leave over
                known[axis] = size // math.prod(known[other] for other in axes if other in known)
        shape += [known[axis] for axis in axes]
    x = x.reshape(shape)
    named, wanted = [axis for axes in before for axis in axes], [axis for axes in after for axis in axes]
    for i in reversed(range(len(named))):
        if named[i] not in wanted or named[i] == "1":
            x = getattr(x, {None: "sum", "max": "amax", "min": "amin"}.get(reduction, reduction))(i)
            del named[i]
    x = x.permute([named.index(axis) for axis in wanted if axis in named])
    for i, axis in enumerate(wanted):
        if axis not in named:
            x = x.unsqueeze(i).repeat_interleave(1 if axis == "1" else known[axis], i)
    known["1"] = 1
    return x.reshape([math.prod(known[axis] for axis in axes) for axes in after])


def rearrange(x: Tensor, pattern: str, **sizes: int) -> Tensor:
    """The same numbers with their axes in another order, split or joined: "... seq (heads d) -> ... heads seq d"."""
    return _rearranged(x, pattern, None, sizes)


def repeat(x: Tensor, pattern: str, **sizes: int) -> Tensor:
    """As rearrange, and copied along the axes that are new on the right."""
    return _rearranged(x, pattern, None, sizes)


def reduce(x: Tensor, pattern: str, reduction: str, **sizes: int) -> Tensor:
    """As rearrange, and "sum", "mean", "max" or "min" along the axes that are gone on the right."""
    return _rearranged(x, pattern, reduction, sizes)


def einsum(*tensors_and_pattern) -> Tensor:
    """torch.einsum with words for axes: einsum(x, w, "... d_in, d_out d_in -> ... d_out")."""
    *tensors, pattern = tensors_and_pattern
    words = sorted(set(re.findall(r"[A-Za-z_]\w*", pattern)))
    letters = {word: chr(ord("a") + i) if i < 26 else chr(ord("A") + i - 26) for i, word in enumerate(words)}
    said = re.sub(r"[A-Za-z_]\w*", lambda word: letters[word[0]], pattern)
    return torch.einsum(said.replace(" ", ""), *tensors)


einops = SimpleNamespace(rearrange=rearrange, repeat=repeat, reduce=reduce, einsum=einsum)
