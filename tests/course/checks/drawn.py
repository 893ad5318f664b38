"""What a scenario draws, for the reference and once more for an edited one, and what came of it in each.

A scenario is a question asked twice, as a check is: `def softmax(impl, draw)` draws a valid configuration, calls a part
of impl, and what came out is kept in `draw.seen`. The reference draws; the edited one is given the same again, in
memory of its own.
"""

import contextlib
import copy
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass

import numpy
import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from grader.judge.compare import TOLERANCE, _size

SIZES = (1, 2, 3, 4, 5, 6, 8, 0)
BATCHES = ((), (2,), (1,), (3,), (0,), (2, 3), (1, 2))
FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
WHOLE = (torch.int64, torch.int32)
HALF = (torch.bfloat16, torch.float16)
# Kinds of numbers, the plainest first: that is what a smallest input is made of.
KINDS = ("normal", "zeros", "whole", "large", "small", "cancelling", "spread", "huge")


class NotDrawn(Exception):
    """A signature does not say what an argument may be."""


def numbers(shape: tuple[int, ...], dtype: torch.dtype, kind: str, seed: int) -> Tensor:
    """Numbers of a kind, the same ones for the same seed, none of them infinite in dtype."""
    random = numpy.random.RandomState(seed)
    n = numpy.asarray(random.standard_normal(shape))
    x = torch.from_numpy(n).to(torch.float64)
    if kind == "zeros":
        x = x * 0
    if kind == "whole":
        x = (2 * x).round()
    if kind == "large":
        x = 300 * x
    if kind == "small":
        x = x / 1000
    if kind == "cancelling" and x.ndim:
        x = 100 * x - 100.1 * x.flip(-1)
    if kind == "spread":
        x = x * 10.0 ** torch.from_numpy(numpy.asarray(random.uniform(-4, 3, shape)))
    if kind == "huge":
        x = 1e6 * x
    most = torch.finfo(dtype).max / 4
    return x.clamp(-most, most).to(dtype)


class Draw:
    """Draws what a scenario asks for. `told`: what was drawn, in words; `seen`: what came out, by names."""

    def __init__(self, source: Callable):
        self._source, self.sizes, self.told, self.seen = source, {}, [], []

    def __call__(self, label: str, among, told: bool = True):
        """A value out of a strategy, or one of a tuple's (the plainest first)."""
        value = copy.deepcopy(self._source(st.sampled_from(among) if isinstance(among, tuple) else among))
        if told:
            self.told.append(f"{label} = {_name(value) if isinstance(value, torch.dtype) else repr(value)}")
        return value

    def size(self, name: str, among: tuple = SIZES, told: bool = True):
        """The size of an axis, or the sizes of several: the same for the same name."""
        if name not in self.sizes:
            self.sizes[name] = self(name, among, told)
        return self.sizes[name]

    def shape(self, axes: str) -> tuple[int, ...]:
        """The sizes of named axes, such as "*batch seq d_model" or "{seq_len} 3"."""
        shape = []
        for axis in axes.replace("#", "").split():
            name = axis.strip("{}")
            if name.startswith("*"):
                shape += self.size(name, BATCHES, told=False)
            elif name.isdecimal():
                shape.append(int(name))
            elif name.isidentifier() and name != "_":
                shape.append(self.size(name, told=False))
            else:
                raise NotDrawn(f"an axis {axis}")
        return tuple(shape)

    def dtype(self) -> torch.dtype:
        """The dtype of one tensor: all alike most of the time."""
        common = self.size("dtype", FLOATS, told=False)
        mixed = self.size("mixed", (False, False, False, True), told=False)
        return self("dtype", FLOATS, told=False) if mixed else common

    def tensor(
        self,
        label: str,
        axes: str | tuple,
        dtype: torch.dtype | None = None,
        kinds: tuple = KINDS,
        grad: bool | None = None,
        holes: bool = False,
    ) -> Tensor:
        """A tensor of floating-point numbers; with `holes` some may be −inf."""
        shape = self.shape(axes) if isinstance(axes, str) else axes
        dtype = dtype or self.dtype()
        kind, seed = self(label, kinds, told=False), self(label, st.integers(0, 2**16), told=False)
        x = numbers(shape, dtype, kind, seed)
        if holes and x.numel() and (how := self(label, ("", "", "some −inf", "a row of −inf"), told=False)):
            random = numpy.random.RandomState(seed + 1)
            hidden = torch.from_numpy(numpy.asarray(random.random_sample(shape) < 0.4))
            if how == "a row of −inf" and x.ndim:
                hidden = hidden | (torch.from_numpy(numpy.asarray(random.random_sample(shape[:-1]) < 0.5)))[..., None]
            x = x.masked_fill(hidden, -torch.inf)
            kind += f", {how}"
        if x.ndim > 1 and self(label, (False, False, True), told=False):
            x = x.mT.contiguous().mT
            kind += ", in columns"
        if grad is None:
            grad = self(label, (True, True, False), told=False)
        self._tell(label, x, kind + ", needs a gradient" * grad)
        return x.requires_grad_(grad)

    def ints(self, label: str, axes: str | tuple, high: int, low: int = 0, dtypes: tuple = WHOLE) -> Tensor:
        """Whole numbers in low … high − 1."""
        shape = self.shape(axes) if isinstance(axes, str) else axes
        dtype, seed = self(label, dtypes, told=False), self(label, st.integers(0, 2**16), told=False)
        x = torch.from_numpy(numpy.asarray(numpy.random.RandomState(seed).randint(low, max(high, low + 1), shape)))
        x = x.to(dtype)
        self._tell(label, x, "")
        return x

    def bools(self, label: str, shape: tuple[int, ...]) -> Tensor:
        """True and False: all True, some, or whole rows of False among them."""
        how, seed = self(label, ("some", "all", "rows"), told=False), self(label, st.integers(0, 2**16), told=False)
        random = numpy.random.RandomState(seed)
        x = torch.from_numpy(numpy.asarray(random.random_sample(shape) < (0.7 if how != "all" else 2)))
        if how == "rows" and len(shape):
            x = x & torch.from_numpy(numpy.asarray(random.random_sample(shape[:-1]) < 0.6))[..., None]
        self._tell(label, x, "")
        return x

    def mask(self, label: str, shape: tuple[int, ...]) -> Tensor | None:
        """None, or a mask that broadcasts to shape: fewer axes, and some of size 1."""
        if self(label, (False, True, True), told=False):
            kept = self(label, tuple(range(len(shape), -1, -1)), told=False)
            ones = self(label, st.lists(st.booleans(), min_size=kept, max_size=kept), told=False)
            return self.bools(label, tuple(1 if one else n for one, n in zip(ones, shape[len(shape) - kept :])))
        return None

    def _tell(self, label: str, x: Tensor, kind: str):
        what = f"{_name(x.dtype)} {tuple(x.shape)}"
        if 0 < x.numel() <= 12:
            what += f" {[float(f'{v:.9g}') if x.is_floating_point() else v for v in x.detach().flatten().tolist()]}"
        self.told.append(f"{label}: {what}{', ' * bool(kind)}{kind}")

    # -- arguments out of a signature

    def arguments(self, function: Callable) -> dict:
        """Arguments for a function by its annotations."""
        found = {}
        for name, parameter in inspect.signature(function).parameters.items():
            if name == "self" or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            elif parameter.default is parameter.empty or self(name, (False, True), told=False):
                found[name] = self.annotated(name, parameter.annotation)
        return found

    def annotated(self, name: str, annotation):
        """A value of an annotated type."""
        options = [annotation]
        if typing.get_origin(annotation) in (types.UnionType, typing.Union):
            options = list(typing.get_args(annotation))
        if "device" in name:
            return None
        if type(None) in options and self(name, (False, True), told=False):
            self.told.append(f"{name} = None")
            return None
        kind = next(option for option in options if option is not type(None))
        if hasattr(kind, "dim_str"):
            return self._of_axes(name, kind)
        if kind is int:
            return self.size(name)
        if kind is float:
            return self(name, (1.0, 0.5, 2.0, 0.0, 1e-3, 0.1, 30.0))
        if kind is bool:
            return self(name, (False, True))
        if kind is torch.dtype:
            return self(name, FLOATS)
        raise NotDrawn(f"{name}: {annotation}")

    def _of_axes(self, name: str, kind) -> Tensor:
        if kind.dim_str == "...":
            raise NotDrawn(f"{name}: {kind}")
        if any(dtype.startswith("float") for dtype in kind.dtypes):
            return self.tensor(name, kind.dim_str)
        if "bool" in kind.dtypes:
            return self.bools(name, self.shape(kind.dim_str))
        return self.ints(name, kind.dim_str, 8, 0, WHOLE if "int64" in kind.dtypes else (torch.uint8,))

    # -- what comes out

    def see(self, label: str, value, near: Iterable[Tensor] = ()):
        """Keep what a value looks like now. `near`: tensors whose memory it may share."""
        self.seen.append((label, look(value, [x.untyped_storage().data_ptr() for x in near if x.numel()])))

    def module(self, make: Callable, *args, dtype: torch.dtype | None = None, **kwargs) -> nn.Module:
        """A new module, looked at as it is made; then cast, filled, and set to train or not."""
        torch.default_generator.manual_seed(0)
        module = make(*args, **kwargs)
        self.told.append(f"{type(module).__name__}({said(args, kwargs)})")
        self.see("new module", module)
        module.to(dtype or self.dtype())
        self.fill(module)
        module.train(self("training", (False, True), told=False))
        if self("frozen", (False, False, True), told=False):
            module.requires_grad_(False)
        self.told[-1] += f", {'training' if module.training else 'eval'}"
        self.see("cast module", module)
        return module

    def fill(self, module: nn.Module):
        """Numbers for the parameters, since new ones may be all zeros."""
        kind = self("weights", ("normal", "whole", "large"), told=False)
        seed = self("weights", st.integers(0, 99), told=False)
        with torch.no_grad():
            for number, parameter in enumerate(module.parameters()):
                parameter.copy_(numbers(tuple(parameter.shape), torch.float32, kind, seed + number))
        self.told.append(f"weights: {kind}")

    def asked(self, call: Callable, *args, **kwargs):
        """Call a part and see it all: results, gradients, arguments, a second call, one without gradients.

        Between the calls what came out is spoiled, as a caller may do.
        """
        module = getattr(call, "__self__", call)
        module = module if isinstance(module, nn.Module) else None
        inputs = list(tensors((args, kwargs)))
        state = [*module.parameters(), *module.buffers()] if module else []
        leaves = [x for x in [*inputs, *(module.parameters() if module else ())] if x.requires_grad]
        near, where = [*inputs, *state], getattr(call, "__name__", type(call).__name__)

        def once(label):
            torch.default_generator.manual_seed(0)
            out = call(*args, **kwargs)
            out = list(out) if isinstance(out, Iterator) else out
            self.see(f"{where}{label}", out, near)
            return out

        first = once("")
        self.see(f"the arguments after {where}", (args, kwargs, module))
        self._backward(where, first, leaves)
        with torch.no_grad():
            second = once(", again, without gradients")
        self.see(f"{where}, again: memory of the first result", second, tensors(first))
        own = {x.untyped_storage().data_ptr() for x in near}
        kept = copy_of(first)
        spoil(first, own, (args, kwargs))
        once(", again, after the first result was changed")
        self.see(f"the arguments after {where} three times", (args, kwargs, module))
        return kept

    def _backward(self, where: str, out, leaves: list[Tensor]):
        results = [x for x in tensors(out) if x.requires_grad]
        for leaf in leaves:
            leaf.grad = None
        if results:
            pulls = [numbers(tuple(x.shape), x.dtype, "normal", n) for n, x in enumerate(results)]
            torch.autograd.backward(results, pulls)
        self.see(f"the gradients of {where}", [leaf.grad for leaf in leaves])
        for leaf in leaves:
            leaf.grad = None


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def said(args: tuple, kwargs: dict) -> str:
    """Arguments in words."""

    def one(x):
        return type(x).__name__ if isinstance(x, (nn.Module, Tensor)) else repr(x)

    return ", ".join([*map(one, args), *(f"{name}={one(value)}" for name, value in kwargs.items())])


def tensors(value) -> Iterator[Tensor]:
    """The tensors within a value."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors(item)
    elif isinstance(value, (list, tuple, set)):
        for item in value:
            yield from tensors(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for item in fields(value):
            yield from tensors(getattr(value, item.name))


def copy_of(value):
    """The same without its graph, for what a scenario does next."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(copy_of(item) for item in value)
    return value


def spoil(value, own: set[int], arguments):
    """Change a result in place, unless it is the caller's or the module's own."""
    mine = set(map(id, _containers(arguments)))
    for x in tensors(value):
        if x.untyped_storage().data_ptr() not in own:
            with contextlib.suppress(RuntimeError), torch.no_grad():
                x.detach().fill_(1)
    for x in _containers(value):
        if id(x) not in mine:
            x.clear()


def _containers(value) -> Iterator[list | dict]:
    if isinstance(value, (list, dict)):
        yield value
    if isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _containers(item)


# -- what a value looks like, and whether two look alike


@dataclass
class Look:
    """A tensor as it is now."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    requires_grad: bool
    shares: list[int]  # which of the tensors that it was compared with it shares memory with
    values: Tensor


def look(value, near: list[int]):
    """A value as it is now: a copy in which nothing is shared."""
    if isinstance(value, Tensor):
        values = value.detach().to_dense() if value.is_sparse else value.detach()
        place = value.untyped_storage().data_ptr() if value.numel() and not value.is_sparse else None
        return Look(
            value.dtype,
            tuple(value.shape),
            value.requires_grad,
            [i for i, other in enumerate(near) if other == place],
            torch.zeros(0) if value.is_meta else values.clone(),
        )
    if isinstance(value, nn.Module):
        return {
            "class": type(value).__name__,
            "training": [part.training for part in value.modules()],
            "parts": [f"{name}: {type(part).__name__}" for name, part in value.named_modules()],
            "state": {name: look(x, near) for name, x in value.state_dict(keep_vars=True).items()},
            "buffers": {name: look(x, near) for name, x in value.named_buffers()},
            "options": {
                name: look(x, near)
                for part, module in value.named_modules()
                for name, x in ((f"{part}.{key}", x) for key, x in vars(module).items() if key[0] != "_")
                if isinstance(x, (bool, int, float, str, tuple, type(None)))
            },
        }
    if isinstance(value, dict):
        return {key: look(item, near) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [look(item, near) for item in value]
    if isinstance(value, (bool, int, float, str, bytes, set, type(None), torch.dtype)):
        return value
    if is_dataclass(value):
        return {field.name: look(getattr(value, field.name), near) for field in fields(value)}
    if hasattr(value, "__dict__") and not callable(value):
        return {name: look(item, near) for name, item in vars(value).items() if name[0] != "_"}
    return type(value).__name__


def difference(mine, right, path: str = "") -> str | None:
    """Where one look differs from another, in words; None where they are alike."""
    if isinstance(right, Look) and isinstance(mine, Look):
        return _tensors_differ(mine, right, path)
    if type(mine) is not type(right):
        return f"{path}: {short(mine)}, the reference has {short(right)}"
    if isinstance(right, dict):
        if mine.keys() != right.keys():
            return f"{path}: has {sorted(map(str, mine))[:9]}, the reference has {sorted(map(str, right))[:9]}"
        pairs = [(f"{path}, {key}", mine[key], right[key]) for key in right]
    elif isinstance(right, (list, tuple)):
        if len(mine) != len(right):
            return f"{path}: {short(mine)}, the reference has {short(right)}"
        pairs = [
            (path if isinstance(right, tuple) else f"{path}[{i}]", a, b) for i, (a, b) in enumerate(zip(mine, right))
        ]
    elif isinstance(right, float):
        close = (
            mine == right
            or mine != mine
            and right != right
            or abs(mine - right) <= TOLERANCE["cpu"][torch.float32] * abs(right)
        )
        return None if close else f"{path}: {mine!r}, the reference has {right!r}"
    else:
        return None if mine == right else f"{path}: {short(mine)}, the reference has {short(right)}"
    return next((found for where, a, b in pairs if (found := difference(a, b, where))), None)


def short(value) -> str:
    text = repr(value)
    return text if len(text) < 100 else text[:97] + "…"


def _tensors_differ(mine: Look, right: Look, path: str) -> str | None:
    for what, words in (
        ("dtype", "of dtype"),
        ("shape", "of shape"),
        ("requires_grad", "requires a gradient:"),
        ("shares", "shares memory with"),
    ):
        a, b = getattr(mine, what), getattr(right, what)
        if a != b:
            return f"{path}: {words} {a}, the reference {b}"
    a, b = mine.values, right.values
    if torch.equal(a, b) or not b.numel():
        return None
    if b.is_floating_point():
        same = (a == b) | (a.isnan() & b.isnan())
        if b.dtype not in HALF:  # half precision to the bit
            x, y = a.double(), b.double()
            near = (x - y).abs() <= TOLERANCE["cpu"][b.dtype] * _size(y)
            same = same | near & x.isfinite() & y.isfinite()
        wrong = ~same
    else:
        wrong = a != b
    if not wrong.any():
        return None
    first = tuple(wrong.nonzero()[0].tolist())
    return (
        f"{path}: {int(wrong.sum())} of {wrong.numel()} numbers differ, the first at {list(first)}: "
        f"{a[first].item():.9g}, the reference has {b[first].item():.9g}"
    )
