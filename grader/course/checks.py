"""What a check is: its marks, its docstring, and how checks are found in a test file.

A check is a function `test_*(impl, draw)` that builds something with `impl`, runs it
on inputs from `draw`, and returns what came out. It asserts nothing: the grader asks
it of the student's module and of the reference, and compares the two answers.

This module imports no torch, so that a front end starts at once.
"""

import importlib.util
import inspect
import re
from dataclasses import dataclass
from pathlib import Path

from grader.course import packages
from grader.course.chapters import shown


@dataclass(frozen=True)
class Check:
    """One question: a check function at one dtype."""

    chapter: str                  # "ex03_linear"
    function: str                 # "test_forward"
    dtype: str | None             # "bfloat16", or None where the check has no dtype
    file: str                     # where it stands, "tests/test_ex03_linear.py"
    hidden: bool
    points: float                 # its share, where a check is asked in several dtypes
    devices: tuple[str, ...]
    rtol: float | None            # in place of the table's, for answers that are random
    doc: str
    line: int
    names: frozenset[str]         # every name that its code speaks of, of the chapter's parts too
    needs: str | None = None      # a package that not everybody has, without which it is not asked

    @property
    def name(self) -> str:
        return f"{self.function}[{self.dtype}]" if self.dtype else self.function

    @property
    def rule(self) -> str:
        return self.doc.partition("\n")[0]

    @property
    def hint(self) -> str:
        return self.doc.partition("\n")[2].strip()

    @property
    def lacking(self) -> str:
        """What has to be installed before it can be asked, or ""."""
        return packages.lacking(self.needs)


def _mark(**values):
    def decorate(function):
        function.marks = {**getattr(function, "marks", {}), **values}
        return function
    return decorate


def points(n: float):
    """Let a check count n points (1 without this mark), shared evenly over its dtypes."""
    if not n > 0:
        raise ValueError(f"points must be above 0, got {n}")
    return _mark(points=n)


def dtypes(*names: str):
    """Ask a check once per dtype; it takes a third argument, `dtype`."""
    if not names:
        raise ValueError("dtypes needs at least one name, such as 'float32'")
    return _mark(dtypes=names)


def devices(*names: str):
    """Ask a check only on these devices ('cpu', 'cuda')."""
    return _mark(devices=names)


def needs(package: str):
    """Ask a check only where this package is installed; elsewhere its verdict is "waiting"."""
    return _mark(needs=package)


def tolerance(rtol: float):
    """Compare numbers within rtol of each other: for statistics of random numbers.

    Say in the docstring where rtol comes from. Everything else uses compare's table.
    """
    return _mark(rtol=rtol)


def raises(exception, call, names: str = "") -> str:
    """Run `call` and return, as words, what it raised; refusing bad input is an answer.

    `names` is the argument that the message must name. A stub's NotImplementedError
    passes through.
    """
    try:
        call()
    except NotImplementedError:
        raise
    except exception as error:
        if names and not re.search(rf"\b{re.escape(names)}\b", str(error)):
            return f"{exception.__name__} that does not name {names!r}"
        return f"{exception.__name__} that names {names!r}" if names else exception.__name__
    except Exception as error:
        return type(error).__name__
    return "no error"


def accepts(call) -> str:
    """Run `call` and return "accepted", or the type of what it raised; taking good input is an answer.

    A stub's NotImplementedError passes through.
    """
    try:
        call()
    except NotImplementedError:
        raise
    except Exception as error:
        return type(error).__name__
    return "accepted"


def shares_memory(a, b) -> bool:
    """Whether two tensors lie in the same storage, so that writing to one changes the other."""
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def shape(tensor) -> str:
    """A tensor's shape as words, "(2, 3)", to answer with: compared whole, and read as it stands."""
    return str(tuple(tensor.shape))


def shapes(tensors) -> dict[str, str]:
    """The shape of each tensor by its name; tensors: a module's named_parameters() or its state dict."""
    return {name: shape(tensor) for name, tensor in dict(tensors).items()}


def load(path: Path):
    """Import a test file on its own, outside any package."""
    spec = importlib.util.spec_from_file_location(f"_checks_{path.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def collect(path: Path, chapter: str, hidden: bool) -> list[Check]:
    """The checks of one test file, in the order in which they stand there."""
    found = []
    for name, function in vars(load(path)).items():
        if name.startswith("test_") and inspect.isfunction(function):
            found += expand(function, chapter, shown(path), hidden)
    return sorted(found, key=lambda check: check.line)


def expand(function, chapter: str, file: str, hidden: bool) -> list[Check]:
    """One Check per dtype of a check function."""
    marks = getattr(function, "marks", {})
    doc = inspect.getdoc(function) or ""
    if not doc:
        raise ValueError(f"{chapter}: {function.__name__} has no docstring, so no rule to show")
    dtypes = marks.get("dtypes", (None,))
    return [
        Check(chapter, function.__name__, dtype, file, hidden, marks.get("points", 1) / len(dtypes),
              tuple(marks.get("devices", ("cpu", "cuda"))), marks.get("rtol"), doc,
              function.__code__.co_firstlineno, names(function), marks.get("needs"))
        for dtype in dtypes
    ]


def names(function) -> frozenset[str]:
    """The names and texts in a function's code, and in the helpers and constants that it uses."""
    found, seen, left = set(), set(), [function]
    while left:
        thing = left.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, str):
            found.add(thing)
        elif isinstance(thing, (tuple, list, set, frozenset)):
            left += thing
        elif isinstance(thing, dict):
            left += [*thing.keys(), *thing.values()]
        elif inspect.iscode(thing):
            left += [*thing.co_names, *thing.co_consts]
            left += [function.__globals__.get(name) for name in thing.co_names]
        elif inspect.isfunction(thing) and thing.__module__ == function.__module__:
            left += [thing.__code__, thing.__defaults__ or ()]
            left += [cell.cell_contents for cell in thing.__closure__ or ()]
    return frozenset(name for name in found if name.isidentifier())
