"""One chapter's file, a student's or a known mistake's, in a worker that may die at any time."""

import ast
import bisect
import itertools
import signal
import time
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

from grader import chapters
from grader.chapters import SOLUTIONS, Chapter
from grader.checks import Check
from grader.frames import FrameError
from grader.process import Ended, Nursery, TimedOut, Worker


class CourseError(Exception):
    """The course itself is broken: a reference fails, or a mistake cannot be applied."""


@dataclass
class Reply:
    """What came back for one check. `word` is "answer", or a verdict where there is none."""

    word: str
    facts: list[str]
    header: dict
    body: bytes = b""
    output: str = ""            # what the submission printed meanwhile
    seconds: float = 0.0


@dataclass(frozen=True)
class Setting:
    """How checks are asked: the same for every submission of a run."""

    device: str
    seed: int
    timeout: float

    def question(self, check: Check) -> dict:
        """What a worker needs to ask one check."""
        return {"function": check.function, "hidden": check.hidden, "dtype": check.dtype,
                "seed": self.seed}


class Place:
    """Where submissions run: a worker that is started when needed, anew when it has ended."""

    def __init__(self, nursery: Nursery):
        self._nursery = nursery
        self.worker: Worker | None = None

    def open(self) -> Worker:
        if self.worker is None:
            self.worker = self._nursery.start("worker")
        return self.worker

    def close(self) -> str:
        """End the worker; returns what it printed last."""
        if self.worker is None:
            return ""
        self.worker.end()
        said, self.worker = self.worker.output(), None
        return said


class Submission:
    """A chapter's file in a folder.

    folder None: the exercises, with the student's own earlier chapters where begun. Any other
    folder: earlier chapters are the reference's, so that a slip is not paid for twice.
    """

    def __init__(self, place: Place, setting: Setting, chapter: Chapter, folder: Path | None):
        self.place, self._setting, self.chapter = place, setting, chapter
        self.folder = Path(folder or chapters.EXERCISES).resolve()
        self.file = self.folder / f"{chapter.stem}.py"
        self.folders = {other.stem: str(self._source(other, own=folder is None))
                        for other in chapters.chapters()}
        self._loaded_in: Worker | None = None
        self._broken: Reply | None = None
        self._last_words = ""
        self._replies: dict[Check, Reply] = {}

    def _source(self, other: Chapter, own: bool) -> Path:
        """This chapter and later ones come from the submission, never from the reference."""
        if other >= self.chapter or not other.solution.exists():
            return self.folder
        return chapters.source_folder(other, self.folder) if own else SOLUTIONS

    def ask(self, check: Check) -> Reply:
        """Ask one check, once, in a worker that has loaded the file; what it finds never raises."""
        if check not in self._replies:
            start = time.monotonic()
            reply = self._ask(check)
            output, self._last_words = self._last_words, ""
            if self.place.worker:
                output += self.place.worker.output()
            self._replies[check] = replace(reply, output=output, seconds=time.monotonic() - start)
        return self._replies[check]

    def _ask(self, check: Check) -> Reply:
        try:
            self.load()
            return self._broken or self._read(*self._tell("ask", **self._setting.question(check)))
        except (TimedOut, Ended, FrameError) as error:
            return self._lost(error)

    def _tell(self, do: str, **arguments) -> tuple[dict, bytes]:
        return self.place.open().ask(do, self._setting.timeout, room=str(self.folder), **arguments)

    def load(self) -> None:
        """Have the worker import the file, if it has not; remember why, where that fails."""
        if self._broken or self._loaded_in is self.place.open():
            return
        scan = scan_request(self.chapter, self.folders, self.folder, self._setting.device)
        try:
            found = self._tell("scan", **scan)
            if not found[0].keys() - {"id"}:
                found = self._tell("load")
            if found[0].keys() - {"id"}:
                self._broken = self._read(*found)
            self._loaded_in = self.place.worker
        except (TimedOut, Ended, FrameError) as error:
            self._broken = self._lost(error)
            self._broken.facts[0] += f", while {self.file.name} was imported"

    def _read(self, header: dict, body: bytes) -> Reply:
        """What a reply says. It comes from a student's process, so its form is looked at closely."""
        match header:
            case {"answer": dict(), "changed": list(changed)} if _all(changed, int):
                return Reply("answer", [], header, body)
            case {"raised": str(kind), "message": str(message), "frames": list(frames),
                  "named": list(named)} if _all(named, str) and all(map(_is_frame, frames)):
                return Reply("error", [f"{kind[:99]}: {message[:2000]}" if message else kind[:99]], header)
            case {"todo": str(stem)} if stem == self.chapter.stem:
                return Reply("todo", ["this part is not written yet"], header)
            case {"todo": str(stem)}:
                return Reply("waiting", [f"this needs a part of {stem[:99]}.py that is not written yet"],
                             header)
            case {"forbidden": list(uses)} if all(map(_is_use, uses)):
                return Reply("forbidden", [f"line {line} uses {name[:99]}, which is yours to write here"
                                           for line, name in uses], header)
        return self._lost(FrameError("it has none of the known forms"))

    def _lost(self, error: Exception) -> Reply:
        """The worker is gone, or no longer to be believed: what that means, in words."""
        self._last_words = self.place.close()
        if isinstance(error, TimedOut):
            return Reply("timeout", [f"no answer within {self._setting.timeout:g} seconds"], {})
        if isinstance(error, FrameError):
            return Reply("crashed", [f"the process sent something that is no answer: {error}"], {})
        if error.status >= 0:
            return Reply("crashed", [f"the process ended itself (exit code {error.status}) "
                                     "and gave no answer"], {})
        names = {s.value: s.name for s in signal.Signals}
        said = {"SIGSEGV": ": it touched memory that is not its own",
                "SIGKILL": ", most likely for the memory it took"}
        name = names.get(-error.status, str(-error.status))
        return Reply("crashed", [f"the process was ended by {name}{said.get(name, '')}"], {})

    @property
    def pid(self) -> int | None:
        """The worker's process, while there is one."""
        return self.place.worker and self.place.worker.pid

    def close(self) -> None:
        self.place.close()


def _all(values: list, kind: type) -> bool:
    return len(values) < 10_000 and all(type(value) is kind for value in values)


def _is_frame(frame) -> bool:
    return type(frame) is dict and all(type(frame.get(key)) is kind for key, kind in (
        ("file", str), ("function", str), ("line", int)))


def _is_use(use) -> bool:
    return type(use) is list and [type(part) for part in use] == [int, str]


def scan_request(chapter: Chapter, folders: dict, fallback: Path, device: str) -> dict:
    """What a worker needs to load a chapter: where each file lies, and the checks' files."""
    return {"chapter": chapter.stem, "folders": folders, "fallback": str(fallback),
            "tests": test_files(chapter, hidden=True), "device": device}


def test_files(chapter: Chapter, hidden: bool) -> dict[str, str]:
    """The chapter's test files that are here."""
    files = {"visible": chapter.tests()}
    if hidden:
        files["hidden"] = chapter.tests(hidden=True)
    return {name: str(path) for name, path in files.items() if path.exists()}


@dataclass(frozen=True)
class Edit:
    """An edited reference, the sentence that says what the edit means, and where it can show."""

    source: str
    words: str
    parts: frozenset[str]       # the chapter's functions and classes that it may change

    def write(self, chapter: Chapter, folder: Path) -> Path:
        """Put it into a folder as a submission."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{chapter.stem}.py").write_text(self.source, "utf-8")
        return folder


def edits(chapter: Chapter, kind: str) -> list[Edit]:
    """The chapter's "mistake" or "alternative" edits, from its TOML file."""
    if not chapter.mistakes.exists() or not chapter.solution.exists():
        return []
    source, found = chapter.solution.read_text("utf-8"), []
    parts = _Parts(source)
    for number, entry in enumerate(tomllib.loads(chapter.mistakes.read_text("utf-8")).get(kind, [])):
        if source.count(entry["find"]) != 1:
            raise CourseError(f"{chapter.mistakes.name}, {kind} {number + 1}: `find` occurs "
                              f"{source.count(entry['find'])} times in the solution, not once")
        found.append(Edit(source.replace(entry["find"], entry["replace"]),
                          entry["says" if kind == "mistake" else "why"],
                          parts.changed_by(source.index(entry["find"]), len(entry["find"]))))
    return found


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

    def changed_by(self, at: int, length: int) -> frozenset[str]:
        """The parts that an edit of the text there may change: its own, and all that use it."""
        first = bisect.bisect_right(self.starts, at)
        last = bisect.bisect_right(self.starts, at + length - 1)
        changed = {name for name, (start, end) in self.lines.items() if start <= last and first <= end}
        if not changed:         # an import, say: it may change anything
            return frozenset(self.lines)
        while more := {name for name, uses in self.uses.items() if uses & changed} - changed:
            changed |= more
        return frozenset(changed)
