"""What a part asks to be written and must not be borrowed: found in the text and at run time.

FORBIDDEN of a chapter's checks says it, {part: {names}}, a part being a function or class that is to be written; a use
voids the checks that speak of that part. The text shows what is named, aliases resolved; running shows what no text
can, such as a tensor's method or a function reached through getattr. Both stop accidents: who wants to hide a
use from code that runs in the same process can, and is found by reading what was handed in.
"""

import ast
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

import torch

import given.torch_kernels

MOST = 20       # uses that are kept, of each part
KERNELS = given.torch_kernels.__file__      # given for finished models: in a check, nobody but a submission uses it

# Ways around every such list; no chapter needs them.
BACK_DOORS = ("torch.ops", "torch._C", "torch._VF", "torch._refs", "torch._decomp", "torch._prims",
              "torch.Tensor.__base__", "torch.Tensor.__bases__", "torch.Tensor.__mro__", "torch.Tensor.mro")


Bans = dict[str, set[str]]                  # what each part must not borrow
Use = tuple[int, str, str]                  # line, name, and whose it is: a part's, or "", the whole file's


class Text:
    """What stands in which function or class of a module, and which of them speak of which."""

    def __init__(self, tree: ast.Module):
        self.nodes = list(ast.walk(tree))
        self.units: dict[str, list[ast.AST]] = {"": []}         # "": outside of all
        self.lines: list[tuple[int, int, str]] = []             # the first and the last of each, and its name
        self._names: dict[str, set[str]] = {}       # that a function, a class or a constant speaks of
        left = list(tree.body)
        while left:
            node = left.pop()
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                inside = list(ast.walk(node))
                self.units.setdefault(node.name, []).extend(inside)
                self.lines.append((node.lineno, node.end_lineno, node.name))
                self._hear(node.name, inside)
                continue
            self.units[""].append(node)
            left += ast.iter_child_nodes(node)
            if isinstance(node, (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
                for target in targets:
                    self._hear(target.id if isinstance(target, ast.Name) else "", ast.walk(node))

    def _hear(self, unit: str, nodes: Iterable[ast.AST]) -> None:
        """Keep the names in a piece of code, and the texts, by which getattr and globals() reach what has that name."""
        for node in nodes:
            if name := getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "value", None):
                if isinstance(name, str):
                    self._names.setdefault(unit, set()).add(name)

    def whose(self, unit: str, banning: set[str]) -> set[str]:
        """The parts, of these, that answer for what stands in a unit: itself, or those that get at it."""
        found, seen, left = set(), set(), [unit]
        while left:
            if (one := left.pop()) in banning:
                found.add(one)
            elif not one:
                return banning
            elif one not in seen:
                seen.add(one)
                left += [user for user, names in self._names.items() if one in names]
        return found


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


def uses(text: Text, bans: Bans) -> list[Use]:
    """Every use of a forbidden name in a source, whatever it was imported as.

    It is the part's in whose lines it stands, where that part bans it. In any other function or class, a helper, it is
    the parts' that get at it by that name; outside of all, every part's that bans it. A back door is the whole file's.
    """
    names = _Names(text.nodes, set().union(*bans.values()))
    found: dict[str, set[Use]] = {}
    for unit, nodes in text.units.items():
        for node in nodes:
            for banned in filter(None, map(names.banned, names.named_by(node))):
                banning = {part for part, ban in bans.items() if banned in ban}
                for part in text.whose(unit, banning) if banning else [""]:
                    found.setdefault(part, set()).add((node.lineno, banned, part))
    return [use for part in sorted(found) for use in sorted(found[part])[:MOST]]


class ForbiddenUse(BaseException):
    """Raised in a student's call; no Exception, so that no `except Exception` hides it."""


class Watch:
    """While active, a forbidden function of torch that a submission calls is noted and stopped.

    Each stands replaced by one that looks who calls, a class by its __init__, so the submission has
    to be loaded inside too. (A mode that sees every call of torch, every shape that is read
    included, adds half to a check's time.)

    file: the submission; what lies beside it counts as its helpers. parts: the functions and classes that are to be
    written in it. innocent: files that may call what they like, such as the checks and the chapters that come before.
    asked(): the names that the check being asked speaks of; None while the file is loaded, when a use is noted
    and not stopped.
    """

    def __init__(self, bans: Bans, file: Path, parts: Iterable[str] = (), innocent: Iterable[str] = (),
                 asked=lambda: None):
        self.file, self.seen = Path(file), []
        self.asked, self._parts, self._bans = asked, {*parts, *bans}, bans
        self.innocent = frozenset(innocent)
        self._lines: list[tuple[int, int, str]] = []
        self._places = []       # (module or class, attribute, what stands there, its watched twin)
        for name in sorted(set().union(*bans.values())):
            holder, attribute = _resolve(name.rpartition(".")[0]), name.rpartition(".")[2]
            thing = getattr(holder, attribute, None)
            if isinstance(thing, type):
                holder, attribute, thing = thing, "__init__", thing.__init__
            if callable(thing):
                own = vars(holder).get(attribute)       # None: a method of a base class
                self._places.append((holder, attribute, own, self._watched(name, thing)))

    def read(self, text: Text) -> None:
        """Learn in which lines of the submission its parts stand."""
        self._lines = [lines for lines in text.lines if lines[2] in self._parts]

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
        banning = {part for part, ban in self._bans.items() if name in ban}

        def watched(*args, **kwargs):
            line, whose = self._caller(banning)
            asked = self.asked()
            if whose := whose if asked is None else whose & asked:
                if len(self.seen) < MOST:
                    self.seen += [(line, name, part) for part in sorted(whose)]
                if asked is not None:
                    raise ForbiddenUse(name)
            return function(*args, **kwargs)
        return watched

    def _caller(self, banning: set[str]) -> tuple[int, set[str]]:
        """(line in the submission, those of these parts that answer for this call): none for others' calls.

        The innermost part that bans it answers. Where a submission calls outside of all parts, as by a helper that no
        text names, all do. The line is -1 for code of no file, of a file beside it, or in a thread.
        """
        frame, line, allowed = sys._getframe(2), 0, False
        while frame and (name := frame.f_code.co_filename) not in self.innocent:
            if name == str(self.file):
                at = frame.f_lineno or -1
                here = {part for first, last, part in self._lines if first <= at <= last}
                if here & banning:
                    return at, here & banning
                line, allowed = line if line > 0 else at, allowed or bool(here)
            elif name == KERNELS or Path(name).parent == self.file.parent or (
                    name.startswith("<") and not name.startswith(("<@beartype", "<frozen"))):
                line = line or -1       # torch's kernels, a helper beside the submission, or text that was executed
            frame = frame.f_back
        if not frame and threading.current_thread() is not threading.main_thread():
            line = line or -1
        return line, banning if line and not allowed else set()


def _resolve(name: str):
    """What a dotted name within torch, or within the code that is given, stands for; None for any other."""
    first, *rest = name.split(".")
    thing = {"torch": torch, "given": given}.get(first)
    for part in rest:
        thing = getattr(thing, part, None)
    return thing
