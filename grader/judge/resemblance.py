"""What a wrong answer still has in common with the right one, in a line: facts, and no cause.

"Right but for its sign", "NaN in just the rows that are all 0", "the first three rows are right": whoever reads that
often sees the cause at once. All is bounded by the size of the right answer: mine is looked at where it is as large.
"""

import itertools
import math
from collections.abc import Iterator

import torch

from grader.judge import compare
from grader.sandbox.wire import Leaf

MOST_LEAVES = 8             # of an answer's wrong tensors that are looked at
MOST_NUMBERS = 1 << 18      # of one tensor
MOST_PRODUCTS = 1 << 24     # numbers that are subtracted to find which slice is which
SIMPLE = 64                 # a factor is named up to this whole number, its root, and one over these


def seen(mine, right, wrong: dict[str, list[str]], device: str, rtol: float | None = None) -> str:
    """What strikes the eye in a wrong answer, or "". wrong: its wrong parts, by path."""
    mine_at, right_at = compare.leaves(mine), compare.leaves(right)
    known = {path: leaf for path, leaf in right_at.items() if path in mine_at}
    if said := _kinds(known, wrong):
        return said
    pairs = {path: (mine_at[path], known[path]) for path in list(wrong)[:MOST_LEAVES] if path in known}
    found = {path: _tensors(one.value, other.value, device, rtol) for path, (one, other) in pairs.items()
             if one.kind == other.kind == "tensor" and other.value.dim()}
    if not found:
        return _numbers(mine_at, known, wrong, device, rtol)
    same = set(found.values())
    if len(same) == 1 and len(found) == len(wrong):
        return same.pop()
    path, said = next(((path, said) for path, said in found.items() if said), ("", ""))
    return f"{path}: {said}" if path and said else said


# -- parts of one answer ---------------------------------------------------------------------------

def _kinds(right: dict[str, Leaf], wrong: dict) -> str:
    """Whether all wrong tensors are of one dtype, or have one number of axes, and the right ones another.

    That is of interest among tensors that are one question asked several times.
    """
    tensors = {path: leaf.value for path, leaf in right.items()
               if leaf.kind == "tensor" and leaf.value.is_floating_point()}
    if not wrong.keys() <= tensors.keys():
        return ""
    for kind, alike, words in (
            (lambda tensor: str(tensor.dtype).removeprefix("torch."), lambda tensor: tensor.shape,
             "what is of dtype {} is right, what is of {} is wrong"),
            (torch.Tensor.dim, lambda tensor: (tensor.dtype, tensor.shape[-1:]),
             "with {} axes it is right, with {} it is wrong")):
        bad = {kind(tensor) for path, tensor in tensors.items() if path in wrong}
        good = {kind(tensor) for path, tensor in tensors.items() if path not in wrong}
        if bad and good and not bad & good and len({alike(tensor) for tensor in tensors.values()}) == 1:
            return words.format(_either(good), _either(bad))
    return ""


def _either(things: set) -> str:
    return " or ".join(map(str, sorted(things)))


def _numbers(mine: dict[str, Leaf], right: dict[str, Leaf], wrong: dict, device: str, rtol: float | None) -> str:
    """The same for numbers that are no tensors, or tensors of one number: taken together."""
    def number(leaf: Leaf) -> float | None:
        if leaf.kind == "tensor" and not leaf.value.dim() and not leaf.value.is_complex():
            return float(leaf.value)
        return float(leaf.value) if leaf.kind in ("int", "float") and abs(leaf.value) < 1e300 else None
    paths = [path for path, leaf in right.items() if number(leaf) is not None and number(mine[path]) is not None]
    if not wrong or not wrong.keys() <= set(paths):
        return ""
    a, b = (torch.tensor([number(leaves[path]) for path in paths[:1000]], dtype=torch.float64)
            for leaves in (mine, right))
    same = _Same(device, rtol or compare.TOLERANCE[device][torch.float32])
    if len(paths) > 1 and (said := next(_factors(a, b, same), "")):
        return said
    ratio = float(a[0] / b[0]) if len(paths) == 1 and b[0] else 0
    return next((f"it is {words} what is expected" for factor, words in (
        (-1, "minus"), (2, "twice"), (0.5, "half of"), (math.log(2), "ln 2 times"), (1 / math.log(2), "1 / ln 2 times"))
        if abs(ratio / factor - 1) < same.rtol), "")


# -- one tensor ------------------------------------------------------------------------------------

class _Same:
    """Whether two tensors agree as an answer has to."""

    def __init__(self, device: str, rtol: float | None):
        self._table, self._given = compare.TOLERANCE[device], rtol
        self.rtol = rtol or 0.0

    def of(self, dtype: torch.dtype) -> "_Same":
        self.rtol = self._given or self._table.get(dtype, 0.0)
        return self

    def __call__(self, a: torch.Tensor, b: torch.Tensor) -> bool:
        return a.shape == b.shape and not compare.wrong(a, b, self.rtol).any()


def _tensors(a: torch.Tensor, b: torch.Tensor, device: str, rtol: float | None) -> str:
    if a.numel() != b.numel() or not 1 < b.numel() <= MOST_NUMBERS or a.is_complex() or b.is_complex():
        return ""
    same = _Same(device, rtol).of(b.dtype)
    if a.dtype != b.dtype:
        looser = max(same.rtol, _Same(device, rtol).of(a.dtype).rtol)
        same.rtol = looser
        return "but for the dtype the numbers are right" if same(a.double(), b.double()) else ""
    ways = (_axes,) if a.shape != b.shape else \
        (_not_numbers, _opposite, _factors, _axes, _orders, _shifts, _regions)
    return next((said for way in ways for said in way(a, b, same)), "")


def _not_numbers(a, b, same: _Same) -> Iterator[str]:
    """NaN where none is due."""
    if not a.is_floating_point():
        return
    nan = torch.isnan(a) & ~torch.isnan(b)
    if not nan.any():
        return
    rest = same(torch.where(nan, b, a), b)
    rows = nan.all(-1)
    if rest and not nan.all() and torch.equal(nan, rows.unsqueeze(-1).expand_as(nan)):
        due = b[rows]
        for value, words in ((0.0, "all 0"), (-math.inf, "all −∞")):
            alike = (b == value).all(-1)
            if (due == value).all() and torch.equal(rows, alike):
                yield (f"NaN stands in just the rows in which {words} is expected, as where a whole row is masked; "
                       "every other number is right")
        yield "whole rows are NaN, and every number of the other rows is right"
    if rest and not nan.all():
        yield "every number that is not NaN is right"


def _opposite(a, b, same: _Same) -> Iterator[str]:
    if a.dtype == torch.bool and torch.equal(a, ~b):
        yield "True and False have changed places"


def _factors(a, b, same: _Same) -> Iterator[str]:
    """Right up to one factor or one number added, for all or for each row."""
    if a.dtype == torch.bool or not torch.isfinite(a).all() or not torch.isfinite(b).all():
        return
    x, y = a.double(), b.double()
    if y.min() == y.max():
        return
    factor = float((x * y).sum() / (y * y).sum())
    if factor and same(x / factor, y) and same(x, y * factor):
        yield "every number is right but for its sign" if abs(factor + 1) <= same.rtol else \
            f"every number is {_factor(factor, b, same.rtol)}"
    added = float((x - y).mean())
    if same(x - added, y) and abs(added) > 0:
        yield f"every number is {abs(added):.4g} too {'large' if added > 0 else 'small'}"
    if y.dim() < 2 or y.shape[-1] < 3 or (y == y[..., :1]).all(-1).any():
        return
    factors = (x * y).sum(-1, keepdim=True) / (y * y).sum(-1, keepdim=True)
    if (factors != 0).all() and same(x / factors, y):
        yield "each row is right up to a factor of its own"
    if same(x - (x - y).mean(-1, keepdim=True), y):
        yield "each row is right up to a number that is added to all of it"


def _factor(factor: float, b: torch.Tensor, rtol: float) -> str:
    """A factor as 2, 1/8, or √8 where it is one of these."""
    most, size, sign = min(SIMPLE, 0.01 / max(rtol, 1e-9)), abs(factor), "−" * (factor < 0)
    for power, root in ((1, ""), (2, "√")):
        for value, form in ((size**power, "{} times"), (size**-power, "1/{} of")):
            n = round(value)
            if 2 <= n <= most and abs(value / n - 1) <= 2 * power * rtol:
                axes = [axis for axis, length in enumerate(b.shape) if length == n > 2 and b.dim() > 1]
                where = f" ({n} is the length of axis {axes[0]})" if axes else ""
                return sign + form.format(f"{root}{n}") + " what is expected" + where
    return f"{factor:.4g} times what is expected"


def _axes(a, b, same: _Same) -> Iterator[str]:
    """The right numbers with the axes in another order, or in another shape."""
    if not same(*(t.flatten().sort().values for t in (a, b))):
        return
    if b.dim() <= 5:
        for order in itertools.permutations(range(b.dim())):
            moved = [axis for axis in range(b.dim()) if order[axis] != axis]
            if moved and tuple(b.shape[axis] for axis in order) == tuple(a.shape) and same(a, b.permute(order)):
                yield f"axes {' and '.join(map(str, moved))} have changed places: put back, every number is right" \
                    if len(moved) == 2 else f"the axes stand in the order {_listed(order)}: put back, all is right"
    if a.shape != b.shape and same(a.reshape(b.shape), b):
        yield "the numbers are right and in order, but not their shape"


def _orders(a, b, same: _Same) -> Iterator[str]:
    """The right slices along an axis, in another order."""
    for axis in range(b.dim() - 1, -1, -1):
        n = b.shape[axis]
        if not 1 < n <= 4096 or b.numel() * n > MOST_PRODUCTS:
            continue
        x, y = (t.movedim(axis, 0).reshape(n, -1).double().nan_to_num() for t in (a, b))
        found = torch.cdist(x, y, p=1).argmin(-1).tolist() if a.dtype.is_floating_point else \
            (x[:, None] != y[None]).sum(-1).argmin(-1).tolist()
        if sorted(found) != list(range(n)) or found == sorted(found) \
                or not same(a, b.index_select(axis, torch.tensor(found))):
            continue
        steps = {(j - i) % n for i, j in enumerate(found)}
        if found == list(range(n))[::-1]:
            yield f"along axis {axis} the order is reversed" if n > 2 else f"along axis {axis} the two are swapped"
        elif len(steps) == 1:
            yield f"along axis {axis} all is right, but turned by {steps.pop()} places"
        else:
            yield f"along axis {axis} all is right, but in another order: {_listed(found)}"


def _shifts(a, b, same: _Same) -> Iterator[str]:
    """One place too far along an axis, or not far enough; the end is lost."""
    for axis in range(b.dim() - 1, -1, -1):
        n = b.shape[axis]
        if n < 3:
            continue
        early, late = b.narrow(axis, 0, n - 1), b.narrow(axis, 1, n - 1)
        if (early == late).movedim(axis, 0).flatten(1).all(-1).any() if b.dim() > 1 else (early == late).any():
            continue        # two alike side by side: this could be no shift
        if same(a.narrow(axis, 1, n - 1), early):
            yield f"along axis {axis} every number stands one place too late"
        if same(a.narrow(axis, 0, n - 1), late):
            yield f"along axis {axis} every number stands one place too early"


def _regions(a, b, same: _Same) -> Iterator[str]:
    """Right in one region, wrong in the rest of it. A region in which one number stands everywhere tells nothing."""
    wrong = compare.wrong(a, b, same.rtol)
    found = []
    for axis in range(b.dim()):
        n = b.shape[axis]
        bad = wrong.movedim(axis, 0).reshape(n, -1).any(-1)
        count = int(bad.sum())
        right = b.index_select(axis, torch.nonzero(~bad).flatten())
        if not 0 < count < n or wrong.sum() < 2 or (right == right.flatten()[0]).all():
            continue
        dense = float(wrong.sum()) / (count * wrong.numel() / n)
        if bad[n - count:].all():
            found.append((dense, f"along axis {axis} " + (
                "only the first is right" if count == n - 1 else "only the last is wrong" if count == 1 else
                f"the first {n - count} are right, the others are wrong")))
        elif bad[:count].all():
            found.append((dense, f"along axis {axis} " + (
                "only the last is right" if count == n - 1 else "only the first is wrong" if count == 1 else
                f"the first {count} are wrong, the others are right")))
    if b.dim() > 1 and min(b.shape[-2:]) > 1:
        whole = torch.ones(b.shape[-2:], dtype=torch.bool)
        for half, words in ((whole.triu(1), "above"), (whole.tril(-1), "below")):
            right = b[(~half).expand_as(b)]
            if wrong.any() and not (wrong & ~half).any() and not (right == right[0]).all():
                found.append((float(wrong.sum()) / float(half.expand_as(wrong).sum()),
                              f"only numbers {words} the diagonal of the last two axes are wrong"))
    dense, words = max(found, default=(0.0, ""))
    if dense > 0.5:
        yield words


def _listed(numbers) -> str:
    shown = list(map(str, numbers))
    return f"{', '.join(shown[:8])}{', …' * (len(shown) > 8)}"
