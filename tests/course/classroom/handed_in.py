"""What is handed in to test the grader: the files of broken/ and hostile/, and what must come of each.

Each is appended to a chapter's solution. Its first lines say what is expected:

    # verdict: wrong or crashed     the words that are right; "any" where only others must not suffer
    # checks: test_flops            the check that gets it; "all" of them or "none"
    # words: you gave 0             what the student must read
    # chapter: 05                   03 where nothing is said
    # wall: reads the solutions     what only a jail stops; such a file is never run without one

What lies in hostile/entries/ puts a whole entry into a class's folder, a folder or an archive, by
`build(top, name, right)`: right is chapter 03's solution, and what it returns is what the student is called if not
`name`. There "verdict" is that of a check at least, "missing", or "refused", and "words" stand in it, or are said on
the screen of what was left out.

What a hostile file leaves behind bears the name MARK, wherever it is left.
"""

import contextlib
import ctypes
import importlib.util
import os
import shutil
import signal
import sysconfig
import tempfile
from pathlib import Path

from grader.course import chapters
from grader.course.chapters import ROOT
from grader.front import report
from grader.front.results import Result

FOLDERS = {"broken": ROOT / "tests/course/grader/broken", "hostile": ROOT / "tests/course/classroom/hostile"}
MARK = "hostile-was-here"
KEY = 0x40571E              # of what System V keeps, which has numbers for names
PARTS = ("backward", "flops", "perplexity", "strides", "split", "merge", "pairwise", "layer", "rms")


class HandedIn:
    """One file of broken/ or hostile/."""

    def __init__(self, file: Path):
        self.file, self.content = file, file.read_bytes()
        lines = [line for line in self.content.decode("utf-8", "replace").splitlines()[:5] if line.startswith("# ")]
        head = dict(map(str.strip, line[2:].split(":", 1)) for line in lines)
        self.words, self.checks, self.wall = head["words"], head["checks"], head.get("wall", "")
        self.expected = head["verdict"].split(" or ")
        self.chapter = chapters.find(head.get("chapter", "03"))

    def __str__(self):
        return f"{self.file.parent.name}-{self.file.stem}"

    def write(self, folder: Path) -> None:
        """Hand it in: the chapter's solution with this file behind it."""
        folder.mkdir(exist_ok=True)
        (folder / self.chapter.exercise.name).write_bytes(self.chapter.solution.read_bytes() + b"\n\n" + self.content)

    def holds(self, verdicts: list, setting, folder: Path) -> None:
        """Assert that the verdicts are as the head says, and that each can be shown to anybody."""
        said = [(verdict.check.function, verdict.word, report.failure(verdict, setting, folder))
                for verdict in verdicts]
        for _, _, text in said:
            assert len(text.splitlines()) <= report.LINES
            assert all(c.isprintable() or c == "\n" for c in text) and "root:" not in text
        self.expects(said)

    def expects(self, said: list[tuple[str, str, str]]) -> None:
        """Assert that these are right: (a check's function, its verdict, what a student reads)."""
        hit = self.checks == "none"
        for name, word, text in said:
            if self.checks in ("all", name):
                hit = True
                assert word in self.expected or self.expected == ["any"], text
                assert self.words in " ".join(text.split()), text
            elif self.expected != ["any"] and part(name) != part(self.checks):
                assert word == "passed", text
        assert hit, f"no check is named {self.checks}"


class Entry:
    """One file of hostile/entries/."""

    def __init__(self, file: Path):
        self.file = file
        lines = [line for line in file.read_text("utf-8").splitlines()[:2] if line.startswith("# ")]
        head = dict(map(str.strip, line[2:].split(":", 1)) for line in lines)
        self.verdict, self.words = head["verdict"], head["words"]

    def __str__(self):
        return self.file.stem

    def build(self, top: Path, name: str) -> str:
        """Put it into the folder of a class; returns what the student is called."""
        spec = importlib.util.spec_from_file_location(f"hostile_{self.file.stem}", self.file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.build(top, name, chapters.find("03").solution) or name


def entries() -> list[Entry]:
    """All of hostile/entries/."""
    return [Entry(file) for file in sorted((FOLDERS["hostile"] / "entries").glob("*.py"))]


def part(check: str) -> str:
    """Which of a chapter's parts a check asks about."""
    return check if check == "none" else next((part for part in PARTS if part in check), "the rest")


def text_of(result: Result) -> str:
    """What a student reads of a verdict."""
    return " ".join([result.verdict, "rule", result.rule, *result.facts, result.mistake,
                     *(line.text for line in result.lines), result.output])


def every(folder: str) -> list[HandedIn]:
    """All files of broken/ or hostile/."""
    found = [HandedIn(file) for file in sorted(FOLDERS[folder].glob("*.py"))]
    assert found, f"nothing is handed in from {FOLDERS[folder]}"
    return found


def left_behind() -> list[str]:
    """Every file, process and piece of memory that a hostile file has left on this machine."""
    places = {Path(place) for place in (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm", Path.home(), Path.cwd(),
                                        sysconfig.get_path("purelib"), ROOT.parent)}
    places |= {ROOT, *(path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")),
               *(ROOT / "tests" / name for name in ("hidden", "mistakes", "course")), ROOT / "grader" / "__pycache__"}
    found = [str(path) for place in places if place.is_dir() for path in place.glob(f"{MARK}*")]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "comm").read_text().strip() == MARK[:15] and "\nState:\tZ" not in (
                    process / "status").read_text():
                found.append(f"process {process.name}")
        except OSError:
            continue        # it has ended by now
    for kind in ("shm", "sem", "msg"):
        table = Path(f"/proc/sysvipc/{kind}")
        if table.exists():
            found += [f"{kind} {line.split()[1]}" for line in table.read_text().splitlines()[1:]
                      if int(line.split()[0]) == KEY]
    keys = Path("/proc/keys")
    if keys.exists() and any(MARK in line and " expd " not in line for line in keys.read_text().splitlines()):
        found.append("key")
    return found


def clean() -> None:
    """Remove what was left behind; a key of the kernel's ends by itself, after a minute."""
    for what in left_behind():
        kind, _, number = what.partition(" ")
        if kind == "process":
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(number), signal.SIGKILL)
        elif kind in ("shm", "sem", "msg"):
            call = {"shm": ("shmctl", 0), "sem": ("semctl", 0, 0), "msg": ("msgctl", 0)}[kind]
            getattr(ctypes.CDLL(None), call[0])(int(number), *call[1:], None)
        elif what.startswith("/"):
            shutil.rmtree(what, ignore_errors=True) if Path(what).is_dir() else os.unlink(what)
