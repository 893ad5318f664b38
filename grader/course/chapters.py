"""The layout is the manifest: chapters in order, their files and prerequisites.

A students' edition lacks solutions: the stub that a solution would give lies in stubs/, what it
answers in key/ (see `grader.judge.record`).
"""

import ast
import difflib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS = ROOT / "solutions"
STUBS = ROOT / "stubs"
KEY = ROOT / "key"
TESTS = ROOT / "tests"
HIDDEN = TESTS / "hidden"
# Another folder than exercises/ may be worked in, as the course's own tests do with fresh stubs.
EXERCISES = Path(os.environ.get("COURSE_EXERCISES", ROOT / "exercises")).resolve()

# The course's parts, each by the number that it begins with.
PARTS = {"00": "The pieces", "09": "Attention", "13": "Whole models", "17": "Modern practice", "22": "At scale"}
BLOCK = re.compile(r"^([ \t]*)# BEGIN SOLUTION\n.*?^[ \t]*# END SOLUTION\n", re.M | re.S)


class CourseError(Exception):
    """The course itself is broken: a reference fails, a mistake cannot be applied, a package is missing."""


@dataclass(frozen=True, order=True)
class Chapter:
    """One chapter, known by the stem of its files, such as "ex07_rope"."""

    stem: str

    @property
    def number(self) -> str:
        return self.stem[2:4]

    @property
    def name(self) -> str:
        return self.stem[5:]

    @property
    def exercise(self) -> Path:
        return EXERCISES / f"{self.stem}.py"

    @property
    def solution(self) -> Path:
        return SOLUTIONS / f"{self.stem}.py"

    @property
    def record(self) -> Path:
        """What the reference answers, in an edition that has no solution of this chapter."""
        return KEY / f"{self.stem}.key"

    @property
    def mistakes(self) -> Path:
        return TESTS / "mistakes" / f"{self.stem}.toml"

    @property
    def notebook(self) -> Path:
        return ROOT / "notebooks" / f"{self.stem[2:]}.ipynb"

    def tests(self, hidden: bool = False) -> Path:
        return (HIDDEN if hidden else TESTS) / f"test_{self.stem}.py"

    @property
    def title(self) -> str:
        """The first line of the chapter's docstring."""
        return (ast.get_docstring(ast.parse(stub(self))) or "").partition("\n")[0]


def engine_files(*rooms: str) -> list[Path]:
    """The code that is given, and the grader's files in these rooms; without any named, all that every edition has."""
    top = ROOT / "grader"
    return sorted([*(ROOT / "given").glob("*.py"), *(
        path for path in top.rglob("*.py") if (room := path.relative_to(top).parts[0]) in rooms or not (
            rooms or room in ("classroom", "author")))])


def chapters() -> list[Chapter]:
    """Every chapter that has checks, in order."""
    return sorted(Chapter(path.stem.removeprefix("test_")) for path in TESTS.glob("test_ex*.py"))


def tested(path: Path) -> Chapter | None:
    """The chapter that a file of checks asks about: test_ex03_linear.py, or one's own test_ex03_linear_more.py."""
    stem = path.stem.removeprefix("test_")
    return next((chapter for chapter in chapters() if f"{stem}_".startswith(f"{chapter.stem}_")), None)


def find(name: str) -> Chapter:
    """The chapter meant by "7", "07", "rope", "07_rope" or "ex07_rope"; ValueError where none is."""
    wanted = name.removesuffix(".py").lower()
    for chapter in chapters():
        if wanted in (chapter.stem, chapter.stem[2:], chapter.name, chapter.number) or (
                wanted.isdecimal() and int(wanted) == int(chapter.number)):
            return chapter
    near = close(wanted, {word: chapter for chapter in chapters() for word in (chapter.stem, chapter.name)})
    known = ", ".join(chapter.stem[2:] for chapter in chapters())
    raise ValueError(f"there is no chapter {name!r}; " + (
        f"did you mean {near.stem[2:]}?" if near else f"the chapters are {known}"))


def several(*words: str) -> list[Chapter]:
    """The chapters meant by "0-4,7,rope", or by "0-4", "7", "rope", in order; ValueError where one of them is none."""
    found = set()
    for part in [part for part in ",".join(words).split(",") if part.strip()] or [""]:
        first, dash, last = part.partition("-")
        try:
            ends = find(first.strip()), find(last.strip() if dash else first.strip())
        except ValueError as error:
            raise ValueError(f"{error} (write 3, 03, linear, ex03_linear or a list such as 0,3-5)") from None
        if ends[0] > ends[1]:
            raise ValueError(f"{part} runs backwards: write {last}-{first}")
        found.update(chapter for chapter in chapters() if ends[0] <= chapter <= ends[1])
    return sorted(found)


def shown(path: Path) -> str:
    """A path as a person would type it: relative to the course where it lies inside."""
    try:
        return path.resolve().relative_to(ROOT).as_posix()
    except ValueError:
        return str(path)


def close(word: str, known: dict):
    """What the nearest of these words stands for, or None."""
    return next((known[near] for near in difflib.get_close_matches(word, known, 1)), None)


def near_miss(chapter: Chapter, names: Iterable[str]) -> str:
    """Which of these files, "folder/name", was most likely meant to be the chapter's; "" where none was."""
    stems = {other.stem for other in chapters()} - {chapter.stem}
    words = {name: name.rpartition("/")[2].lower().partition(".")[0] for name in names}
    words = {name: word for name, word in words.items() if word not in stems}
    for pattern in (chapter.stem, rf"ex_?{chapter.number}|{chapter.name}"):
        found = [name for name, word in words.items()
                 if re.search(rf"(?<![a-z0-9])({pattern})(?![a-z0-9])", word.replace(" ", "_").replace("-", "_"))]
        if found:
            return min(found, key=lambda name: (not name.endswith(".py"), name))
    known = {word: name for name, word in words.items()}
    return next((known[word] for word in difflib.get_close_matches(chapter.stem, known, 1, 0.8)), "")


def without_hidden(asked: list[Chapter]) -> list[Chapter]:
    """Those that have no hidden checks; a ValueError where none has, since nothing would be asked."""
    found = {tested(path) for path in HIDDEN.glob("test_ex*.py")}
    bare = [chapter for chapter in asked if chapter not in found]
    if bare == asked:
        raise ValueError(f"--hidden: there are no hidden checks for {', '.join(chapter.number for chapter in bare)} "
                         f"in {shown(HIDDEN)}")
    return bare


@cache
def prerequisites(chapter: Chapter) -> list[Chapter]:
    """The chapters that this one imports (`from .ex04_normalization import RMSNorm`)."""
    return sorted({Chapter(node.module) for node in ast.walk(ast.parse(stub(chapter)))
                   if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module})


@cache
def signatures(chapter: Chapter) -> dict[str, list[str]]:
    """The argument names of every function and method of the chapter: {"Linear.forward": ["x"]}."""
    found = {}

    def walk(body, prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                walk(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.FunctionDef):
                found[prefix + node.name] = [argument.arg for argument in [*node.args.args, *node.args.kwonlyargs]
                                             if argument.arg != "self"]
    walk(ast.parse(stub(chapter)).body, "")
    return found


def needs(chapter: Chapter) -> list[Chapter]:
    """Every chapter that this one builds on, through others too."""
    found = set(prerequisites(chapter))
    return sorted(found.union(*(needs(other) for other in found)))


def make_stub(solution: str) -> str:
    """The student's file: each solution block becomes `raise NotImplementedError`.

    A block at the margin is a helper that only the solution has: nothing is left of it.
    """
    made = BLOCK.sub(lambda block: f"{block[1]}raise NotImplementedError\n" if block[1] else "",
                      solution)
    if "SOLUTION" in made:
        raise ValueError("a # BEGIN SOLUTION or # END SOLUTION stands without its twin")
    return made


def stub(chapter: Chapter) -> str:
    """The student's file as it is handed out: made from the solution, or kept in stubs/ without one."""
    if chapter.solution.exists():
        return make_stub(chapter.solution.read_text("utf-8"))
    return (STUBS / chapter.solution.name).read_text("utf-8")


def parts(chosen: Iterable[Chapter] = ()) -> dict[str, list[Chapter]]:
    """These chapters (all, where none is chosen) under the names of the course's parts, in order."""
    found = {}
    for chapter in chosen or chapters():
        found.setdefault(PARTS[max(first for first in PARTS if first <= chapter.number)], []).append(chapter)
    return found
