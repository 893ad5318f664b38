"""The students' files: whether one is begun, and how a fresh one is put in place."""

import ast
import time
from functools import cache
from pathlib import Path

from grader.course import chapters
from grader.course.chapters import Chapter, stub


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
        stamp, count = time.strftime("%Y%m%d-%H%M%S"), 1
        kept = path.with_name(f"{path.stem}.{stamp}.py.bak")
        while kept.exists():
            count += 1
            kept = path.with_name(f"{path.stem}.{stamp}-{count}.py.bak")
        path.rename(kept)
    path.parent.mkdir(exist_ok=True)
    path.write_text(fresh, "utf-8", newline="\n")
    return kept
