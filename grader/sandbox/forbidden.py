"""What a chapter asks to be written and must not be borrowed: found in the text and at run time.

The text shows what is named, aliases resolved; running shows what no text can, such as a
tensor's method or a function reached through getattr. Both stop accidents: who wants to hide a
use from code that runs in the same process can, and is found by reading what was handed in.
"""

import ast
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

import torch

import given.torch_kernels

MOST = 20       # uses that are kept
KERNELS = given.torch_kernels.__file__      # given for finished models: in a check, nobody but a submission uses it

# Ways around every such list; no chapter needs them.
BACK_DOORS = ("torch.ops", "torch._C", "torch._VF", "torch._refs", "torch._decomp", "torch._prims",
              "torch.Tensor.__base__", "torch.Tensor.__bases__", "torch.Tensor.__mro__", "torch.Tensor.mro")


def uses(nodes: list[ast.AST], forbidden: set[str]) -> list[tuple[int, str]]:
    """The (line, name) of every forbidden name in a source, given as its nodes, whatever it was imported as."""
    names = _Names(nodes, forbidden)
    return sorted({(node.lineno, banned) for node in nodes for name in names.named_by(node)
                   if (banned := names.banned(name))})


class _Names:
    """What the names of a source stand for, and which of them are forbidden."""

    def __init__(self, nodes: list[ast.AST], forbidden: set[str]):
        self._all = forbidden.union(BACK_DOORS)
        self._things = {id(thing): name for name in forbidden if (thing := _resolve(name)) is not None}
        self._alias: dict[str, str] = {}
        for _ in range(2):      # wherever they stand; twice, so that an alias of an alias is resolved
            for node in nodes:
                self._learn(node)

    def _learn(self, node: ast.AST) -> None:
        """Keep what an import or an assignment calls otherwise."""
        if isinstance(node, ast.Import):
            for name in node.names:
                top = name.name.partition(".")[0]
                self._alias[name.asname or top] = name.name if name.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for name in node.names:
                if name.name == "*":
                    self._alias.update({ban.rpartition(".")[2]: ban for ban in self._all
                                        if ban.rpartition(".")[0] == node.module})
                else:
                    self._alias[name.asname or name.name] = f"{node.module}.{name.name}"
        elif isinstance(node, ast.Assign) and (value := self._dotted(node.value)):
            self._alias.update({target.id: value for target in node.targets if isinstance(target, ast.Name)})

    def _dotted(self, node: ast.AST) -> str | None:
        """What an expression stands for, such as "torch.nn.Linear"; None if it is no import's."""
        match node:
            case ast.Name():
                return self._alias.get(node.id)
            case ast.Attribute():
                base, name = self._dotted(node.value), node.attr
            case ast.Call(func=ast.Name(id="getattr"), args=[of, ast.Constant(value=name), *_]):
                base = self._dotted(of)
            case _:
                return None
        return base and f"{base}.{name}"

    def named_by(self, node: ast.AST) -> list[str | None]:
        """The dotted names that a node speaks of."""
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            return [f"{node.module}.{name.name}" for name in node.names]
        if isinstance(node, ast.Import):
            return [name.name for name in node.names]
        return [self._dotted(node)] if isinstance(node, (ast.Attribute, ast.Name, ast.Call)) else []

    def banned(self, name: str | None) -> str | None:
        """The forbidden name that this one is, or is another way to."""
        if name in self._all or (name and name.startswith(tuple(f"{door}." for door in BACK_DOORS))):
            return name
        return self._things.get(id(_resolve(name))) if name else None


class ForbiddenUse(BaseException):
    """Raised in a student's call; no Exception, so that no `except Exception` hides it."""


class Watch:
    """While active, a forbidden function of torch that a submission calls is noted and stopped.

    Each stands replaced by one that looks who calls, a class by its __init__, so the submission has
    to be loaded inside too. (A mode that sees every call of torch, every shape that is read
    included, adds half to a check's time.)

    file: the submission; what lies beside it counts as its helpers. innocent: files that may call
    what they like, such as the checks and the chapters that come before.
    """

    def __init__(self, forbidden: set[str], file: Path, innocent: Iterable[str] = ()):
        self.file, self.seen = Path(file), []
        self.innocent = frozenset(innocent)
        self._places = []       # (module or class, attribute, what stands there, its watched twin)
        for name in forbidden:
            holder, attribute = _resolve(name.rpartition(".")[0]), name.rpartition(".")[2]
            thing = getattr(holder, attribute, None)
            if isinstance(thing, type):
                holder, attribute, thing = thing, "__init__", thing.__init__
            if callable(thing):
                own = vars(holder).get(attribute)       # None: a method of a base class
                self._places.append((holder, attribute, own, self._watched(name, thing)))

    def __enter__(self):
        self.seen = []
        for holder, attribute, _, watched in self._places:
            setattr(holder, attribute, watched)
        return self

    def __exit__(self, *_):
        for holder, attribute, own, _ in self._places:
            if own is None:
                delattr(holder, attribute)
            else:
                setattr(holder, attribute, own)

    def _watched(self, name: str, function):
        def watched(*args, **kwargs):
            if line := self._line_of_caller():
                self.seen = [*self.seen[:MOST], (line, name)]
                raise ForbiddenUse(name)
            return function(*args, **kwargs)
        return watched

    def _line_of_caller(self) -> int | None:
        """The line in the submission, or -1 for code of no file or a thread; None for others' calls."""
        frame, lost = sys._getframe(2), None
        while frame:
            name = frame.f_code.co_filename
            if name in self.innocent:
                return lost
            if name == str(self.file):
                return frame.f_lineno
            if name == KERNELS or Path(name).parent == self.file.parent or (
                    name.startswith("<") and not name.startswith(("<@beartype", "<frozen"))):
                lost = -1       # torch's kernels, a helper beside the submission, or text that was executed
            frame = frame.f_back
        return lost if lost or threading.current_thread() is threading.main_thread() else -1


def _resolve(name: str):
    """What a dotted name within torch, or within the code that is given, stands for; None for any other."""
    first, *rest = name.split(".")
    thing = {"torch": torch, "given": given}.get(first)
    for part in rest:
        thing = getattr(thing, part, None)
    return thing
