"""What a chapter asks to be written and must not be borrowed: found in the text and at run time.

The text shows what is named, aliases resolved; running shows what no text can, such as a
tensor's method or a function reached through getattr. Both stop accidents: who wants to hide a
use from code that runs in the same process can, and is found by reading what was handed in.
"""

import ast
import sys
import threading
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
    alias: dict[str, str] = {}
    found = set()
    banned = forbidden.union(BACK_DOORS)
    things = {id(thing): name for name in forbidden if (thing := _resolve(name)) is not None}

    def dotted(node) -> str | None:
        """What a name stands for, such as "torch.nn.Linear"; None if it is no import's."""
        if isinstance(node, ast.Name):
            return alias.get(node.id)
        if isinstance(node, ast.Attribute):
            base = dotted(node.value)
            return base and f"{base}.{node.attr}"
        if (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
                and node.func.id == "getattr" and len(node.args) >= 2
                and isinstance(node.args[1], ast.Constant)):
            base = dotted(node.args[0])
            return base and f"{base}.{node.args[1].value}"
        return None

    def look(line: int, name: str | None) -> None:
        if name in banned or (name and name.startswith(tuple(f"{door}." for door in BACK_DOORS))):
            found.add((line, name))
        elif name and id(_resolve(name)) in things:     # the same thing by another way
            found.add((line, things[id(_resolve(name))]))

    # Aliases first, wherever they stand; twice, so that an alias of an alias is resolved.
    for _ in range(2):
        for node in nodes:
            if isinstance(node, ast.Import):
                for name in node.names:
                    top = name.name.partition(".")[0]
                    alias[name.asname or top] = name.name if name.asname else top
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for name in node.names:
                    if name.name == "*":
                        alias.update({ban.rpartition(".")[2]: ban for ban in banned
                                      if ban.rpartition(".")[0] == node.module})
                    else:
                        alias[name.asname or name.name] = f"{node.module}.{name.name}"
            elif isinstance(node, ast.Assign) and (value := dotted(node.value)):
                alias.update({t.id: value for t in node.targets if isinstance(t, ast.Name)})
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for name in node.names:
                look(node.lineno, f"{node.module}.{name.name}")
        elif isinstance(node, ast.Import):
            for name in node.names:
                look(node.lineno, name.name)
        elif isinstance(node, (ast.Attribute, ast.Name, ast.Call)):
            look(node.lineno, dotted(node))
    return sorted(found)


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

    def __init__(self, forbidden: set[str], file: Path, innocent: list[str] = ()):
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
