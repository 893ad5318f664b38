"""Which checks an edit of the reference can change: those of which the reference runs an edited statement.

Until it comes to such a statement, an edited reference does what the reference does. A check that never brings it
there has the same answer from both, and need not be asked. What importing the file runs (constants, decorators,
defaults, the bodies of classes), every check runs.

With SEEDS above 1, as every week, every check is asked all the same, and one that proves this wrong fails.
"""

import ast
import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType

from grader.course import chapters, checks
from grader.course.chapters import SOLUTIONS, Chapter
from grader.course.checks import Check
from grader.judge.answer_key import AnswerKey
from grader.sandbox.reply import Reply
from grader.sandbox.setting import Setting, scan_request
from grader.sandbox.submission import Submission
from grader.sandbox.worker import LoadedChapter

SEEDS = range(int(os.environ.get("SEEDS", 1)))
ASK_ALL = len(SEEDS) > 1
IS_GENERATOR = 0x20


@cache
def lines_of_checks(chapter: Chapter) -> dict[Check, set[int]]:
    """The lines of the chapter's solution that each check runs; those that cannot be asked here are left out."""
    found, folders = {}, {other.stem: str(SOLUTIONS) for other in chapters.chapters()}
    every = set(range(len(chapter.solution.read_text("utf-8").splitlines()) + 1))
    with lines_run(chapter.solution) as imported:
        loaded = LoadedChapter(**scan_request(chapter, folders, SOLUTIONS, Setting()))
        loaded.load_here()
    for hidden in (False, True):
        for check in checks.collect(chapter.tests(hidden), chapter.stem, hidden):
            if not check.lacking and "cpu" in check.devices:
                with lines_run(chapter.solution) as lines:
                    loaded.ask(**Setting().question(check))
                # A check that traces lines itself hides them here.
                found[check] = every if "settrace" in check.names else lines | imported
    return found


def changed_by(edited: str, chapter: Chapter, lines: dict[Check, set[int]]) -> set[Check]:
    """The checks, of which `lines` says what they run, that this edit of the chapter's solution can change.

    All, where none is seen to run a line of it: Triton's interpreter runs a copy of a kernel.
    """
    changed = changed_lines(chapter.solution.read_text("utf-8"), edited)
    return {check for check in lines if lines[check] & changed} or set(lines)


class Edited(Submission):
    """An edited reference, asked only what the edit can change: to all else it gives the reference's answer."""

    def __init__(self, original: Submission, setting: Setting, changed: set[Check], right: dict[Check, Reply]):
        super().__init__(original.slot, setting, original.chapter, original.folder, hidden=True)
        self._changed, self._right = changed, right

    def ask(self, check: Check) -> Reply:
        return super().ask(check) if check in self._changed else self._right[check]


def right_reply(key: AnswerKey, check: Check) -> Reply:
    """What the reference answers, as if a submission had."""
    header, body = key.right_answer(check)
    return Reply("answer", [], {part: header[part] for part in ("answer", "changed")}, body)


@contextlib.contextmanager
def lines_run(path: Path) -> Iterator[set[int]]:
    """The numbers of a file's lines that run meanwhile, in this thread and those that it starts."""
    lines, name, before = set(), str(path), sys.gettrace()

    def call(frame, event, _):
        return line(frame, event, _) if frame.f_code.co_filename == name else None

    def line(frame, event, _):
        lines.add(frame.f_lineno)
        return line

    sys.settrace(call)
    threading.settrace(call)
    try:
        yield lines
    finally:
        sys.settrace(before)
        threading.settrace(before)


def changed_lines(before: str, after: str) -> set[int]:
    """The lines of a source of which a run comes to one before anything can go otherwise in the edited source."""
    (tree, codes), (edited, new) = _read(before), _read.__wrapped__(after)
    lines = {line for code in codes.values() for *_, line in code.co_lines()}
    found = set()
    for statement in _changed(tree, edited):
        found |= _span(statement) if _span(statement) & lines else lines     # nothing shows when a bare text is reached
    for name in codes.keys() & new.keys():
        if _means_otherwise(codes[name], new[name]):
            found |= {line for *_, line in codes[name].co_lines()}
    return found


@cache
def _read(source: str) -> tuple[ast.Module, dict[str, CodeType]]:
    """A file's statements, and its code by qualified names."""
    tree = ast.parse(source)
    return tree, dict(_codes(compile(tree, "", "exec")))


def _changed(one: ast.AST, other: ast.AST) -> Iterator[ast.AST]:
    """The innermost statements of `one` that differ; where some are put in or taken out, the first one there."""
    blocks = [name for name, field in ast.iter_fields(one)
              if isinstance(field, list) and name in ("body", "orelse", "finalbody")]
    if not _same(one, other, but=blocks):
        yield one
        return
    for mine, theirs in ((getattr(one, name), getattr(other, name)) for name in blocks):
        first = _alike(mine, theirs)
        last = _alike(mine[first:][::-1], theirs[first:][::-1])
        if len(mine) == len(theirs):
            for pair in list(zip(mine, theirs))[first:len(mine) - last]:
                yield from _changed(*pair)
        else:
            yield [one, *mine][min(first + 1, len(mine))]


def _alike(mine: list[ast.AST], theirs: list[ast.AST]) -> int:
    """How many statements are the same from the start."""
    return next((number for number, pair in enumerate(zip(mine, theirs)) if not _same(*pair)),
                min(len(mine), len(theirs)))


def _same(one, other, but: list[str] = ()) -> bool:
    """Whether two trees say the same, wherever they stand; what has a name in `but` is left out at the top."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, ast.AST):
        return all(_same(getattr(one, name, None), getattr(other, name, None))
                   for name in one._fields if name not in but)
    return one == other


def _span(node: ast.AST) -> set[int]:
    """The lines of a statement, with its decorators; of a whole file, none."""
    first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])
    return set(range(first, node.end_lineno + 1))


def _codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    """A file's code and all within, each by its qualified name."""
    yield code.co_qualname, code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


def _means_otherwise(one: CodeType, other: CodeType) -> bool:
    """Whether an edit reaches the whole function: a name has become local, or no longer is; or a `yield` has come."""
    mine, theirs = ({*code.co_varnames, *code.co_cellvars, *code.co_freevars} for code in (one, other))
    return bool((one.co_flags ^ other.co_flags) & IS_GENERATOR
                or (theirs - mine).intersection(one.co_names) or (mine - theirs).intersection(other.co_names))
