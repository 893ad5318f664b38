"""The students' files: whether one is begun, and how a fresh one is put in place."""

import ast
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from grader.course import chapters
from grader.course.chapters import Chapter, stub

SHOWN = 4           # names in a row; the others are counted


def same_code(one: str, other: str) -> bool:
    """Whether two sources differ in comments and spacing at most."""
    if one == other:
        return True
    try:
        return ast.dump(ast.parse(one)) == ast.dump(ast.parse(other))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def started(chapter: Chapter, folder: Path | None = None) -> bool:
    """Whether a student's file differs in code from the stub it was handed out as."""
    path = (folder or chapters.EXERCISES) / f"{chapter.stem}.py"
    if not path.exists():
        return False
    return not same_code(path.read_bytes().decode("utf-8", "replace"), stub(chapter))


def source_folder(chapter: Chapter, folder: Path) -> Path:
    """Where a chapter is loaded from: the student's folder once begun, the reference until then."""
    return folder if started(chapter, folder) or not chapter.solution.exists() else chapters.SOLUTIONS


def untouched(chapter: Chapter) -> bool:
    """Whether a file holds no work: each function is a stub still, or one that was given.

    True also of a stub handed out before the solution changed, which `started` cannot know.
    """
    def written(source: str) -> set[str]:
        return {ast.dump(node) for node in ast.walk(ast.parse(source))
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not is_stub(node)}
    try:
        mine = written(chapter.exercise.read_text("utf-8"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return mine <= written(stub(chapter))


def is_stub(function) -> bool:
    """Whether a function's syntax tree ends in `raise NotImplementedError`."""
    last = function.body[-1]
    return (isinstance(last, ast.Raise) and isinstance(last.exc, ast.Name)
            and last.exc.id == "NotImplementedError")


@cache
def parts(chapter: Chapter) -> frozenset[str]:
    """The functions and classes that a student writes; given ones are none of them."""
    return frozenset(node.name for node in ast.parse(stub(chapter)).body
                     if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and any(map(is_stub, _functions(node))))


def _functions(definition: ast.stmt) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(definition) if isinstance(node, ast.FunctionDef)]


def unwritten(chapter: Chapter, folder: Path | None = None, methods: bool = False) -> frozenset[str]:
    """The parts all of whose bodies are still the stub's: in a file that is begun, and holds them.

    methods: of a class that is half written, those of its methods too, as "Linear.forward".
    """
    path = (folder or chapters.EXERCISES) / f"{chapter.stem}.py"
    try:
        mine = ast.parse(path.read_text("utf-8"))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    handed_out = {node.name: node for node in ast.parse(stub(chapter)).body if hasattr(node, "name")}
    found, written = set(), _bound_elsewhere(mine)
    for node in mine.body:
        name = getattr(node, "name", None)
        if name not in parts(chapter):
            continue
        before = handed_out[name]
        if _bodies(node) == _bodies(before):
            found.add(name)
            continue
        written.add(name)
        if methods and isinstance(node, ast.ClassDef) and isinstance(before, ast.ClassDef):
            stubbed = {method.name: _bodies(method) for method in before.body
                       if isinstance(method, ast.FunctionDef) and is_stub(method)}
            found |= {f"{name}.{method.name}" for method in node.body
                      if isinstance(method, ast.FunctionDef) and stubbed.get(method.name) == _bodies(method)}
    return frozenset(found - written)


def lent(chosen: Iterable[Chapter], methods: bool = False) -> str:
    """What the reference stands in for in those of these files that are begun, in a line; "" where that is nothing."""
    said = []
    for chapter in chosen:
        if chapter.solution.exists() and started(chapter) and (missing := unwritten(chapter, methods=methods)):
            names = [part.name for part in ast.parse(stub(chapter)).body if hasattr(part, "name")]
            order = sorted(missing, key=lambda name: (names.index(name.partition(".")[0]), name))
            said.append(f"{chapter.stem} ({_some(order)})")
    return f"Not written yet, so the reference stands in: {_some(said)}." if said else ""


def _some(names: list[str]) -> str:
    """The first few: "softmax, logsumexp and 3 more"."""
    names = names if len(names) <= SHOWN else [*names[:SHOWN - 1], f"{len(names) - SHOWN + 1} more"]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def leaning_on(chapter: Chapter, missing: frozenset[str]) -> frozenset[str]:
    """These parts, and what was given and uses them, or uses what does."""
    found = set(missing)
    uses = {name: {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
            for node in ast.parse(stub(chapter)).body for name in _binds(node) if name not in parts(chapter)}
    while more := {name for name, used in uses.items() if used & found} - found:
        found |= more
    return frozenset(found)


def _binds(node: ast.stmt) -> set[str]:
    """The names that a statement of a module gives a meaning."""
    if hasattr(node, "name"):
        return {node.name}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {name.asname or name.name for name in node.names}
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)}


def _bound_elsewhere(tree: ast.Module) -> set[str]:
    """The names that a module gives a meaning, or a new method, by other means than `def` and `class`."""
    rest = [node for node in tree.body if not hasattr(node, "name")]
    return set().union(*map(_binds, rest)) | {
        target.value.id for node in rest if isinstance(node, ast.Assign) for target in node.targets
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)}


def _bodies(definition: ast.stmt) -> list[tuple[str, list[str]]]:
    """Each function of a part, by its name, with its statements; docstrings are none."""
    return sorted((function.name, [ast.dump(node) for node in function.body
                                   if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))])
                  for function in _functions(definition))


def write_stubs() -> tuple[list[Chapter], list[Chapter]]:
    """Write every stub from its solution, never over a started file. Returns (written, kept)."""
    written, kept = [], []
    for chapter in chapters.chapters():
        if chapter.exercise.exists() and not untouched(chapter):
            kept.append(chapter)
        elif not chapter.exercise.exists() or chapter.exercise.read_text("utf-8") != stub(chapter):
            reset(chapter)
            written.append(chapter)
    return written, kept


def reset(chapter: Chapter) -> Path | None:
    """Put a fresh stub in place; the old file is kept beside it, and its new path returned."""
    fresh, path, kept = stub(chapter), chapter.exercise, None
    if path.exists() and path.read_text("utf-8", "replace") != fresh:     # git may write \r\n on Windows
        kept = set_aside(path)
    path.parent.mkdir(exist_ok=True)
    path.write_text(fresh, "utf-8", newline="\n")
    return kept


def set_aside(path: Path) -> Path:
    """Rename a file so that another may take its place; its new path."""
    stamp, count = time.strftime("%Y%m%d-%H%M%S"), 1
    kept = path.with_name(f"{path.stem}.{stamp}{path.suffix}.bak")
    while kept.exists():
        count += 1
        kept = path.with_name(f"{path.stem}.{stamp}-{count}{path.suffix}.bak")
    return path.rename(kept)
