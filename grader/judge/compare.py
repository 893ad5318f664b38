"""Is this answer right; if not, where does it differ, in words.

The tolerances of the whole course stand here, in one table. They were measured against a
float64 run of the reference: `tests/course/checks/test_tolerances.py` holds the rounding error of
every check of every chapter to a quarter of them.
"""

import math

import torch

from grader.sandbox.wire import Branch, Leaf

# Allowed error of an element, as a fraction of its size or of its row's, whichever is larger.
TOLERANCE = {
    "cpu": {torch.float64: 1e-9, torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2,
            torch.complex128: 1e-9, torch.complex64: 2e-5},
    # The same numbers in another order of summation, on thousands of threads.
    "cuda": {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2,
             torch.complex128: 1e-9, torch.complex64: 1e-4},
}
SMALL, ALIKE = 1e-2, 30     # errors of rounding are below SMALL, and of one cause within a factor ALIKE
FLOOR = 1e-3                # of the tensor's typical size: what a row of zeros counts as
GLANCE = 64                 # numbers of a tensor that a glance takes in, or up to twice as many

KINDS = {"none": "None", "bool": "a bool", "int": "an int", "float": "a float", "str": "a string",
         "bytes": "bytes", "tensor": "a tensor", "list": "a list", "tuple": "a tuple",
         "dict": "a dict"}


DETACHED = "your result is detached: no gradient can flow back through it"
UNDUE = "your result requires a gradient where none is due"


def differences(mine, right, device: str, rtol: float | None = None) -> dict[str, list[str]]:
    """Where an answer differs from the right one: {path: what to say about it}, empty if equal.

    That a gradient is required where none is due comes first; the numbers are compared all the same.
    """
    found: dict[str, list[str]] = {}

    def walk(mine, right, path):
        if isinstance(right, Leaf) and isinstance(mine, Leaf):
            said = _leaf(mine, right, device, rtol)
        elif type(mine) is not type(right) or mine.kind != right.kind:
            said = [f"you gave {_name(mine)}, expected {_name(right)}{_forgot(mine)}"]
        elif mine.items.keys() != right.items.keys():
            said = _labels(mine, right)
        else:
            for label in right.items:
                walk(mine.items[label], right.items[label], _join(path, label))
            return
        if said:
            found[path] = said

    walk(mine, right, "")
    return found


def alike(mine, other, device: str, rtol: float | None = None) -> bool:
    """Whether two answers do not differ. Most that are asked about do, and a few of their numbers show it."""
    if isinstance(mine, Leaf) and isinstance(other, Leaf) and mine.kind == other.kind == "tensor":
        (a, _), (b, size) = _glance(mine), _glance(other)
        if a.shape != b.shape or ((a - b).abs() > _allowed(other.value, device, rtol) * size).any():
            return False
    return not differences(mine, other, device, rtol)


def _glance(leaf: Leaf) -> tuple[torch.Tensor, torch.Tensor]:
    """Some numbers of a tensor, and how large each counts as. Kept with the leaf, which is looked at many times."""
    if not hasattr(leaf, "glance"):
        wide = leaf.value.to(torch.complex128 if leaf.value.is_complex() else torch.float64)
        step = max(1, wide.numel() // GLANCE)
        leaf.glance = wide.flatten()[::step], _size(wide).flatten()[::step]
    return leaf.glance


def leaves(answer, path: str = "") -> dict[str, Leaf]:
    """Every leaf of an answer by its path."""
    if isinstance(answer, Leaf):
        return {path: answer}
    return {where: leaf for label, item in answer.items.items()
            for where, leaf in leaves(item, _join(path, label)).items()}


def parts(answer, path: str = "", found: dict | None = None) -> dict[str, Leaf | Branch]:
    """Every leaf and branch of an answer by its path; the first, where two have the same one."""
    found = {} if found is None else found
    found.setdefault(path, answer)
    if isinstance(answer, Branch):
        for label, item in answer.items.items():
            parts(item, _join(path, label), found)
    return found


def error(mine: Leaf, right: Leaf) -> float:
    """The largest error of a tensor, in the unit that TOLERANCE counts in."""
    a, b = mine.value.to(torch.float64), right.value.to(torch.float64)
    ok = torch.isfinite(a) & torch.isfinite(b)
    return float(torch.where(ok, (a - b).abs() / _size(b), 0).max()) if b.numel() else 0.0


def rounded_alike(mine, other, right) -> bool:
    """Whether two answers miss the right one by errors of rounding of about the same size.

    What is computed in too few digits differs from the right answer by noise, which depends on how
    it was written; only the size of the noise tells the cause.
    """
    leaf = [x for x in (mine, other, right) if isinstance(x, Leaf) and x.kind == "tensor"]
    if len(leaf) < 3 or not right.value.is_floating_point():
        return False
    if any(x.value.shape != right.value.shape or x.value.dtype != right.value.dtype
           or not torch.equal(torch.isfinite(x.value), torch.isfinite(right.value)) for x in leaf):
        return False
    errors = error(mine, right), error(other, right)
    return 0 < min(errors) and max(errors) < min(SMALL, ALIKE * min(errors))


def _join(path: str, label: str) -> str:
    return label if not path else path + label if label.startswith("[") else f"{path}, {label}"


def _name(x) -> str:
    for leaf in leaves(x).values():
        if leaf.kind == "other":
            return str(leaf.value)
    if x.kind == "tensor":
        return f"a tensor of shape {tuple(x.value.shape)}"
    if isinstance(x, Branch):
        return f"{KINDS[x.kind]} of {len(x.items)}"
    return KINDS[x.kind] if x.kind in ("none",) else f"{KINDS[x.kind]} ({_show(x)})"


def _forgot(mine) -> str:
    return "; is a return missing?" if mine.kind == "none" else ""


def _show(leaf: Leaf) -> str:
    text = repr(leaf.value) if leaf.kind != "float" else f"{leaf.value:.6g}"
    return text if len(text) <= 60 else text[:57] + "…"


def _exactly(mine: Leaf, right: Leaf) -> str:
    """Both values of a kind that must be equal; where both are cut, from where they differ."""
    shown = _show(mine), _show(right)
    if shown[0] == shown[1]:
        texts = str(mine.value), str(right.value)
        at = next((i for i, (a, b) in enumerate(zip(*texts)) if a != b), min(map(len, texts)))
        cut = [f"…{text[at:at + 20]!r}" for text in texts]
        return f"you gave {cut[0]}, expected {cut[1]} from character {at} on"
    return f"you gave {shown[0]}, expected {shown[1]}"


def _labels(mine: Branch, right: Branch) -> list[str]:
    if mine.kind != "dict":
        return [f"you gave {_name(mine)}, expected {_name(right)}"]
    missing = [label for label in right.items if label not in mine.items]
    extra = [label for label in mine.items if label not in right.items]
    return ([f"missing: {', '.join(missing[:4])}"] * bool(missing)
            + [f"not expected: {', '.join(extra[:4])}"] * bool(extra))


def _leaf(mine: Leaf, right: Leaf, device: str, rtol: float | None) -> list[str]:
    if right.kind == "float" and mine.kind in ("int", "float"):     # from float32 most of the time
        return _number(mine.value, right.value, rtol or TOLERANCE[device][torch.float32])
    if mine.kind != right.kind:
        return [f"you gave {_name(mine)}, expected {_name(right)}{_forgot(mine)}"]
    if right.kind != "tensor":
        return [] if mine.value == right.value else [_exactly(mine, right)]
    a, b = mine.value, right.value
    if a.shape != b.shape:
        return [f"your shape is {tuple(a.shape)}, expected {tuple(b.shape)}"]
    if a.dtype != b.dtype:
        return [f"your dtype is {_dtype(a)}, expected {_dtype(b)}"]
    if mine.device != right.device:
        return [f"your result is on {mine.device}, expected on {right.device}"]
    if right.requires_grad and not mine.requires_grad:
        return [DETACHED]
    said = _values(a, b, _allowed(b, device, rtol))
    return [UNDUE, *said] if mine.requires_grad and not right.requires_grad else said


def _allowed(right: torch.Tensor, device: str, rtol: float | None) -> float:
    return rtol or TOLERANCE[device].get(right.dtype, 0.0)


def _dtype(tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _number(mine: float | int, right: float, rtol: float) -> list[str]:
    same = mine == right or (mine != mine and right != right)
    try:
        if same or math.isfinite(right) and abs(mine - right) <= rtol * abs(right):
            return []
        float(mine)
    except OverflowError:       # an int that is larger than any float
        return [f"you gave a number of {len(str(mine))} digits, expected {right:.6g}"]
    return [_against(mine, right)]


def _against(mine, right) -> str:
    """Both values, with as many digits as it takes to tell them apart."""
    if not isinstance(mine, float) and not isinstance(right, float):
        return f"you gave {mine}, expected {right}"
    for digits in range(6, 18):
        shown = [f"{value:.{digits}g}" for value in (mine, right)]
        if shown[0] != shown[1]:
            break
    return f"you gave {shown[0]}, expected {shown[1]}"


def _size(b: torch.Tensor) -> torch.Tensor:
    """How large each element counts as: itself or its row, or for a row of zeros the floor."""
    known = torch.where(torch.isfinite(b), b, 0).abs()
    if not b.numel():
        return known
    row = known.pow(2).mean(-1, keepdim=True).sqrt() if b.dim() else known
    floor = FLOOR * known.pow(2).mean().sqrt()
    return torch.where(row > 0, torch.maximum(known, row), floor).clamp_min(1e-30)


def wrong(a: torch.Tensor, b: torch.Tensor, rtol: float) -> torch.Tensor:
    """Which numbers of a tensor differ from the right ones by more than is allowed."""
    if not a.is_floating_point() and not a.is_complex():
        return a != b
    wide = torch.complex128 if a.is_complex() else torch.float64
    x, y = a.to(wide), b.to(wide)
    apart = (x - y).abs()
    if torch.isfinite(apart).all():
        return apart > rtol * _size(y)
    far = torch.where(torch.isfinite(y), apart > rtol * _size(y), x.nan_to_num(0) != y.nan_to_num(0))
    return far | (torch.isnan(x) != torch.isnan(y)) | (torch.isinf(x) != torch.isinf(y))


def _values(a: torch.Tensor, b: torch.Tensor, rtol: float) -> list[str]:
    if not a.is_floating_point() and not a.is_complex():
        return _where(a, b, a != b) if (a != b).any() else []
    wide = torch.complex128 if a.is_complex() else torch.float64
    x, y = a.to(wide), b.to(wide)
    for name, test in (("NaN", torch.isnan), ("infinite", torch.isinf)):
        mine, right = test(x), test(y)
        if (mine != right).any():
            first = _index((mine != right).nonzero()[0])
            said = f"{int(mine.sum())} of {mine.numel()} of your numbers are {name}, " \
                   f"expected {int(right.sum())}; the first difference is at {first}"
            return [said, f"there {_against(a[first].item(), b[first].item())}"]
    differ = wrong(a, b, rtol)
    if not differ.any():
        return []
    worst = torch.where(torch.isfinite(y), (x - y).abs() / _size(y), 0).max()
    return [*_where(a, b, differ), f"the largest error is {float(worst):.2g} of its row's size; "
                                  f"{rtol:.0e} is allowed for {_dtype(b)}"]


def _index(position) -> tuple[int, ...]:
    return tuple(int(i) for i in position)


def _where(a, b, wrong) -> list[str]:
    """How many elements differ, and the first of them."""
    if not a.dim():
        return [_against(a.item(), b.item())]
    first = _index(wrong.nonzero()[0])
    at = f"[{', '.join(map(str, first))}]"
    return [f"{int(wrong.sum())} of {wrong.numel()} numbers differ; the first is {at}: "
            f"{_against(a[first].item(), b[first].item())}"]
