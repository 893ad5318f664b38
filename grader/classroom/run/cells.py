"""A cell: one submission × one chapter, a JSON file of its own in a run's folder."""

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from grader.classroom.intake.collect import Handed
from grader.classroom.output.grading import Grading
from grader.course import chapters
from grader.course.chapters import Chapter
from grader.front import provenance, results
from grader.judge.engine import Grader
from grader.sandbox.setting import Setting, test_files


def files(chapter: Chapter, setting: Setting) -> dict[Path, bool]:
    """The files of checks that are asked of a chapter, and whether each is hidden."""
    return {Path(file["path"]): file["hidden"] for file in test_files(chapter, setting, hidden=True)}


def not_asked(setting: Setting) -> list[str]:
    """Files in an instructor's folder whose names belong to no chapter."""
    found = Path(setting.hidden_from).glob("*.py") if setting.hidden_from else []
    return sorted(path.name for path in found if not (path.name.startswith("test_ex") and chapters.tested(path)))


def hashes(chapter: Chapter, folder: Path, setting: Setting) -> dict[str, str]:
    """What a cell depends on besides its seed: a cell with the same hashes need not be asked again.

    A student's other files count as far as the chapter can import them: helpers do, and other
    chapters do not, since earlier ones are the reference's while this one is graded.
    """
    stems = {other.stem for other in chapters.chapters()} - {chapter.stem}
    own = [path for path in sorted(folder.glob("*.py")) if path.stem not in stems]
    needed = [other.solution for other in [*chapters.needs(chapter), chapter]]
    return {"submission": provenance.digest(*own),
            "checks": provenance.digest(*files(chapter, setting)),
            "reference": provenance.digest(*needed, chapter.mistakes),
            "grader": _grader()}


@cache
def _grader() -> str:
    """A hash of the engine, of the code that is given, and of what both run on."""
    made = provenance.made_with()
    engine = provenance.digest(*chapters.engine_files("course", "sandbox", "judge"))     # and no colours
    return f"{engine} torch {made['torch']} python {made['python']}"


def answer(grader: Grader, chapter: str, folder: str) -> list[dict]:
    """Ask all checks of a chapter, hidden ones too, of the files in a folder: its verdicts."""
    return [results.of_verdict(verdict) for verdict in grader.grade(Chapter(chapter), Path(folder), hidden=True)]


def plan(grader: Grader, stems: list[str]) -> dict[str, dict]:
    """What a run asks, and behind which walls: {"checks": by chapter, "layers": of the jail}.

    Raises CourseError where the reference cannot answer a check, or a package that one needs is not installed.
    """
    found = {}
    for stem in stems:
        checks = grader.all_checks(Chapter(stem), hidden=True)
        grader.key.prepare(checks)
        found[stem] = [results.of_check(check) for check in checks]
    return {"checks": found, "layers": grader.layers}


def blank(student: Handed, chapter: Chapter, setting: Setting) -> dict:
    """A cell as far as it is known before anything is asked."""
    note = student.missing(chapter)
    return {"student": student.name, "chapter": chapter.stem, "state": "graded" if note is None else "missing",
            "note": note or "", "hashes": hashes(chapter, student.folder, setting), "seed": setting.seed,
            "device": setting.device, "timeout": setting.timeout, "walls": setting.walls, "seconds": 0.0,
            "points": 0.0, "of_points": 0.0, "verdicts": []}


def crashed(checks: list[dict], why: str) -> list[dict]:
    """Verdicts where none could be had."""
    return [{**check, "verdict": "crashed", "points": 0.0, "mistake": "", "lines": [], "whole": True, "output": "",
             "facts": [why], "seconds": 0.0} for check in checks]


def count(cell: dict, checks: list[dict], grading: Grading) -> dict:
    """The cell with its points, as grading.toml has them."""
    factors = grading.factors(cell["chapter"], checks)

    def total(of: Iterable[dict], what: str) -> float:
        return round(sum(one[what] * factors[one["hidden"]] for one in of), 4)
    return {**cell, "points": total(cell["verdicts"], "points"), "of_points": total(checks, "of_points")}


def same(cell: dict, other: dict) -> bool:
    """Whether two cells were asked the same of the same."""
    return all(cell.get(key) == other.get(key)
               for key in ("hashes", "seed", "device", "timeout", "walls", "state", "note"))


def path(out: Path, student: str, chapter: str) -> Path:
    """Where a cell lies."""
    return out / "cells" / student / f"{chapter}.json"


def write(out: Path, cell: dict) -> None:
    """Write a cell, whole or not at all."""
    file = path(out, cell["student"], cell["chapter"])
    file.parent.mkdir(parents=True, exist_ok=True)
    results.write_whole(file, json.dumps(cell, indent=1) + "\n")


def read(out: Path, student: str, chapter: str) -> dict | None:
    """A cell of a run, or None where there is none that can be read."""
    try:
        return json.loads(path(out, student, chapter).read_text("utf-8"))
    except (OSError, ValueError):
        return None
