"""Edits of the reference: known mistakes and equally right alternatives, read from a chapter's TOML file."""

import ast
import bisect
import difflib
import itertools
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from grader.course.chapters import Chapter, CourseError
from grader.course.packages import lacking


@dataclass(frozen=True)
class Edit:
    """An edited reference, the sentence that says what the edit means, and where it can show."""

    source: str                 # "" where only what it answers is known
    words: str
    parts: frozenset[str]       # the chapter's functions and classes that it may change
    by_size: bool = False       # a mistake of precision: known by the size of its error, not by its digits
    own: frozenset[str] = frozenset()       # of its parts, those whose text it changes
    leans: frozenset[str] = frozenset()     # what these use, and is not changed

    def write(self, chapter: Chapter, folder: Path) -> Path:
        """Put it into a folder as a submission."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{chapter.stem}.py").write_text(self.source, "utf-8")
        return folder


def edits(chapter: Chapter, kind: str) -> list[Edit]:
    """The chapter's "mistake" or "alternative" edits, from its TOML file.

    An entry replaces the text `find` of the solution by `replace`, or several texts by `edits`, [[find, replace], …].
    """
    if not chapter.mistakes.exists() or not chapter.solution.exists():
        return []
    source, found = chapter.solution.read_text("utf-8"), []
    parts = _Parts(source)
    for number, entry in enumerate(tomllib.loads(chapter.mistakes.read_text("utf-8")).get(kind, [])):
        if lacking(entry.get("needs")):     # the checks that see it are not asked here
            continue
        edited, own = source, frozenset()
        for find, replace in entry.get("edits") or [(entry["find"], entry["replace"])]:
            if source.count(find) != 1 or edited.count(find) != 1:
                raise CourseError(f"{chapter.mistakes.name}, {kind} {number + 1}: `find` occurs "
                                  f"{source.count(find)} times in the solution, not once: {find!r}")
            edited = edited.replace(find, replace)
            own |= parts.at(source.index(find), len(find))
        changed = parts.using(own)
        found.append(Edit(edited, entry["says" if kind == "mistake" else "why"], changed,
                          entry.get("by_size", False), own, parts.used_by(own) - changed))
    return found


def joined(chapter: Chapter, one: Edit, other: Edit) -> str:
    """The solution with both edits, or "" where they change the same lines, or lie in different parts."""
    source = chapter.solution.read_text("utf-8")
    changes = sorted(_changes(source, one.source) + _changes(source, other.source))
    if not one.own & other.own or any(end > start for (_, end, _), (start, _, _) in itertools.pairwise(changes)):
        return ""
    lines = source.splitlines(keepends=True)
    for start, end, instead in reversed(changes):
        lines[start:end] = instead
    return "".join(lines)


@lru_cache(128)
def _changes(source: str, edited: str) -> list[tuple[int, int, list[str]]]:
    """Which lines an edit changes: from, to, and the lines instead."""
    before, after = (text.splitlines(keepends=True) for text in (source, edited))
    return [(start, end, after[first:last]) for kind, start, end, first, last
            in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes() if kind != "equal"]


class _Parts:
    """What a chapter defines (functions, classes, constants), and which of these use which."""

    def __init__(self, source: str):
        self.starts = [0, *itertools.accumulate(map(len, source.splitlines(keepends=True)))]
        self.lines: dict[str, tuple[int, int]] = {}
        self.uses: dict[str, set[str]] = {}
        for node in ast.parse(source).body:
            names = [name for name in ast.walk(node) if isinstance(name, ast.Name)]
            defined = [node.name] if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else \
                [name.id for name in names if isinstance(name.ctx, ast.Store)]
            for name in defined:
                self.lines[name] = node.lineno, node.end_lineno
                self.uses[name] = {name.id for name in names}

    def at(self, at: int, length: int) -> frozenset[str]:
        """The parts that the text there belongs to; all of them where it is an import, say."""
        first = bisect.bisect_right(self.starts, at)
        last = bisect.bisect_right(self.starts, at + length - 1)
        found = {name for name, (start, end) in self.lines.items() if start <= last and first <= end}
        return frozenset(found or self.lines)

    def using(self, parts: frozenset[str]) -> frozenset[str]:
        """These parts, and all that use them."""
        found = set(parts)
        while more := {name for name, uses in self.uses.items() if uses & found} - found:
            found |= more
        return frozenset(found)

    def used_by(self, parts: frozenset[str]) -> frozenset[str]:
        """These parts, and all that they use."""
        found = set(parts)
        while more := self.uses.keys() & set().union(*(self.uses[name] for name in found)) - found:
            found |= more
        return frozenset(found)
