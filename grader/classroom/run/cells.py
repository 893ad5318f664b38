"""A cell: one submission × one chapter, a JSON file of its own in a run's folder."""

import contextlib
import hashlib
import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from grader.classroom.intake.collect import Handed
from grader.course import chapters
from grader.course.chapters import Chapter
from grader.front import provenance, results
from grader.front.results import Asked, Result
from grader.judge.engine import Grader
from grader.judge.verdict import Word
from grader.sandbox.setting import Setting, test_files

HASHES = "cells.sha256"     # of each cell as it was written, as sha256sum has it


@dataclass(frozen=True)
class Cell:
    """What came of one chapter of one student, and all that this depends on. Its points are a gradebook's."""

    student: str
    chapter: Chapter
    state: str                      # "graded" or "missing"
    note: str                       # what was there instead of the file, or why it could not be asked
    hashes: dict[str, str]
    seed: int
    device: str
    timeout: float
    walls: bool
    seconds: float = 0.0
    verdicts: tuple[Result, ...] = ()

    @classmethod
    def blank(cls, student: Handed, chapter: Chapter, setting: Setting) -> "Cell":
        """A cell as far as it is known before anything is asked."""
        note = student.missing(chapter)
        return cls(student.name, chapter, "graded" if note is None else "missing", note or "",
                   hashes(chapter, student.folder, setting), setting.seed, setting.device, setting.timeout,
                   setting.walls)

    @property
    def missing(self) -> bool:
        return self.state == "missing"

    @property
    def whole(self) -> Result | None:
        """The first verdict that speaks of the file as a whole, where there is one."""
        return next((verdict for verdict in self.verdicts if verdict.whole), None)

    def same(self, other: "Cell") -> bool:
        """Whether both were asked the same of the same, on whichever seed."""
        return all(getattr(self, name) == getattr(other, name)
                   for name in ("hashes", "device", "timeout", "walls", "state", "note"))


@dataclass(frozen=True)
class Plan:
    """What a run asks, by a chapter's stem, and behind which walls: the layers of the jail, and whether each holds.

    scope: what limits a job as a whole, in words (see scope).
    """

    checks: dict[str, tuple[Asked, ...]]
    layers: dict[str, bool]
    scope: str = ""


def files(chapter: Chapter, setting: Setting) -> dict[Path, bool]:
    """The files of checks that are asked of a chapter, and whether each is hidden."""
    return {Path(file["path"]): file["hidden"] for file in test_files(chapter, setting, hidden=True)}


def not_asked(setting: Setting) -> list[str]:
    """Files in an instructor's folder whose names belong to no chapter."""
    found = Path(setting.hidden_from).glob("*.py") if setting.hidden_from else []
    return sorted(path.name for path in found if not (path.name.startswith("test_ex") and chapters.tested(path)))


def hashes(chapter: Chapter, folder: Path, setting: Setting) -> dict[str, str]:
    """What a cell depends on besides its seed: a cell with the same hashes need not be asked again.

    A student's other files count as far as the chapter imports them: helpers do, and other
    chapters do not, since earlier ones are the reference's while this one is graded.
    """
    needed = [other.solution for other in [*chapters.needs(chapter), chapter]]
    return {"submission": provenance.digest(*handed_in(chapter, folder)),
            "checks": provenance.digest(*files(chapter, setting)),
            "reference": provenance.digest(*needed, chapter.mistakes),
            "grader": _grader()}


def handed_in(chapter: Chapter, folder: Path) -> list[Path]:
    """The files of a folder that make a chapter: its own, and what it imports of the rest, as far as words tell."""
    stems = {other.stem for other in chapters.chapters()}
    rest = {path.stem: path for path in sorted(folder.glob("*.py")) if path.stem not in stems}
    found = [folder / f"{chapter.stem}.py"]
    for path in found:          # it grows as helpers name others
        text = path.read_bytes().decode("utf-8", "replace") if path.is_file() else ""
        words = set(re.findall(r"\w+", unicodedata.normalize("NFKC", text)))       # as Python reads names
        found += [rest.pop(stem) for stem in list(rest) if stem in words or stem.startswith("__")]
    return found


@cache
def _grader() -> str:
    """A hash of the engine, of the code that is given, and of what both run on."""
    made = provenance.made_with()
    engine = provenance.digest(*chapters.engine_files("course", "sandbox", "judge"))     # and no colours
    return f"{engine} torch {made['torch']} python {made['python']}"


def answer(grader: Grader, chapter: str, folder: str) -> list[Result]:
    """Ask all checks of a chapter, hidden ones too, of the files in a folder."""
    return [Result.of(verdict) for verdict in grader.grade(Chapter(chapter), Path(folder), hidden=True)]


def plan(grader: Grader, stems: list[str]) -> Plan:
    """Have the reference answer all checks of these chapters, and try the walls.

    Raises CourseError where the reference cannot answer a check, or a package that one needs is not installed.
    """
    found = {}
    for stem in stems:
        checks = grader.all_checks(Chapter(stem), hidden=True)
        grader.key.prepare(checks)
        found[stem] = tuple(map(Asked.of, checks))
    return Plan(found, grader.layers)


def crashed(checks: Sequence[Asked], why: str) -> tuple[Result, ...]:
    """Verdicts where none could be had."""
    return tuple(Result(**vars(check), verdict=Word.CRASHED, facts=(why,), whole=True) for check in checks)


def path(out: Path, student: str, chapter: Chapter) -> Path:
    """Where a cell lies."""
    return out / "cells" / student / f"{chapter.stem}.json"


def write(out: Path, cell: Cell) -> None:
    """Write a cell, whole or not at all, and its hash below those of the others."""
    file = path(out, cell.student, cell.chapter)
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(results.to_json(cell), indent=1) + "\n"
    results.write_whole(file, text)
    with (out / HASHES).open("a", encoding="utf-8") as hashes:
        hashes.write(f"{hashlib.sha256(text.encode()).hexdigest()}  {file.relative_to(out)}\n")


def read(out: Path, student: str, chapter: Chapter) -> Cell | None:
    """A cell of a run, or None where there is none that can be read."""
    try:
        return results.from_json(Cell, json.loads(path(out, student, chapter).read_text("utf-8")))
    except (OSError, ValueError):
        return None


def edited(out: Path) -> set[Path]:
    """The cells that are not as they were written."""
    said: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in (out / HASHES).read_text("utf-8").splitlines():
            said[line[66:]] = line[:64]         # the last one counts
    return {file for file in (out / "cells").glob("*/*.json")
            if hashlib.sha256(file.read_bytes()).hexdigest() != said.get(str(file.relative_to(out)))}
