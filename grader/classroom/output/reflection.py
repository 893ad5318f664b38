"""Lines that reach a name by another way than by writing it: a person should look at them.

What a chapter forbids is found by its name and by who calls it. Whoever hides a use has to write one of these, in the
chapter's file or in one that lies beside it.
"""

import ast
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

from grader.course import chapters, stubs
from grader.course.chapters import Chapter, stub

MOST = 5                    # lines of one file that are shown
LONGEST = 100_000           # bytes of a file that is looked through: three times the longest chapter's

_CALLS = {"eval", "exec", "vars", "globals", "locals", "__import__", "compile", "__builtins__", "__loader__"}
_BY_NAME = {"getattr", "setattr", "delattr"}
_INSIDE = re.compile(r"__(dict|globals|builtins|subclasses|code|closure|getattribute)__")
_OF_SYS = {"modules", "_getframe", "settrace", "setprofile"}
_GETTERS = {"attrgetter", "methodcaller"}
_IMPORTS = {"ctypes", "gc", "inspect", "importlib", "marshal", "pickle", "builtins", "code", "types"}


def lines(folder: Path, chapter: Chapter) -> list[tuple[str, int, str]]:
    """The (file, number, text) of such lines in what a student handed in of a chapter; those of the stub are not meant.

    The number is 0 for a file that cannot be looked through.
    """
    if not (folder / f"{chapter.stem}.py").is_file():
        return []
    others = {other.stem for other in chapters.chapters()} - {chapter.stem}
    given = {line.strip() for line in stub(chapter).splitlines()}
    found = []
    for file in sorted(folder.glob("*.py")):
        if file.stem in others:
            continue
        try:
            if file.stat().st_size > LONGEST:
                raise MemoryError
            text = stubs.text_of(file.read_bytes())
            with warnings.catch_warnings(action="ignore"):
                tree = ast.parse(text)
            written = text.split("\n")
            numbers = sorted(set(_hiding(tree)))
        except (MemoryError, RecursionError):
            found.append((file.name, 0, "too long, or nested too deep, to be looked through"))
            continue
        except (SyntaxError, ValueError):       # nor can it be run
            continue
        own = [(file.name, number, written[number - 1].strip()) for number in numbers]
        found += [line for line in own if line[2] not in given][:MOST]
    return found


def _hiding(tree: ast.Module) -> Iterator[int]:
    """The lines of a syntax tree in which a name may be reached by another way; Python has made names plain in it."""
    written_out, sys_names = set(), {"sys"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            sys_names |= {name.asname for name in node.names if name.name == "sys" and name.asname}
        match node:
            case ast.Call(func=ast.Name(id=function), args=[_, ast.Constant(value=str(name)), *_]):
                if function in _BY_NAME and not _INSIDE.search(name):
                    written_out.add(id(node.func))
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) if name in _CALLS or _INSIDE.fullmatch(name) or (
                    name in _BY_NAME and id(node) not in written_out):
                yield node.lineno
            case ast.Attribute(attr=name) if _INSIDE.fullmatch(name) or name in _GETTERS:
                yield node.lineno
            case ast.Attribute(value=ast.Name(id=base), attr=name) if base in sys_names and name in _OF_SYS:
                yield node.lineno
            case ast.Constant(value=str(text)) if _INSIDE.fullmatch(text):
                yield node.lineno
            case ast.Import(names=names) if any(name.name.partition(".")[0] in _IMPORTS for name in names):
                yield node.lineno
            case ast.ImportFrom(module=str(module), names=names) if module.partition(".")[0] in _IMPORTS or any(
                    name.name in (_OF_SYS if module == "sys" else _GETTERS) for name in names):
                yield node.lineno
