"""overrides.csv: what a person has decided of a student's chapter, instead of or on top of what its checks gave."""

import csv
import math
from dataclasses import dataclass
from pathlib import Path

from grader.course import chapters

COLUMNS = ("student", "chapter", "points", "extra", "excused", "comment", "reason")
YES, NO = ("yes", "true", "1", "x"), ("", "no", "false", "0")


@dataclass(frozen=True)
class Override:
    """A decision on one chapter of one student. The comment is the student's to read, the reason is not."""

    points: float | None = None     # in place of those that the checks gave
    extra: float = 0.0              # on top of them
    excused: bool = False           # the chapter counts neither way
    comment: str = ""
    reason: str = ""

    def of(self, points: float, of_points: float) -> tuple[float, float]:
        """(points, the most that there are) with this decision."""
        if self.excused:
            return 0.0, 0.0
        return round((points if self.points is None else self.points) + self.extra, 4), of_points

    def __str__(self):
        points = "" if self.points is None else f"{self.points:g} points"
        return ", ".join(filter(None, ["excused" * self.excused, points, f"{self.extra:+g} points" * bool(self.extra)]))


def read(path: Path) -> dict[str, dict[str, Override]]:
    """The decisions of a CSV file by student and a chapter's stem; a ValueError names the line that means nothing."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        table = csv.DictReader(file)
        if strange := sorted(set(table.fieldnames or ()) - set(COLUMNS)):
            raise ValueError(f"{path}: the column {strange[0]!r} has no meaning; known are {', '.join(COLUMNS)}")
        rows = list(enumerate(table, 2))
    found: dict[str, dict[str, Override]] = {}
    for number, row in rows:
        said = {name: (row.get(name) or "").strip() for name in COLUMNS}
        try:
            student, stem, override = _row(said)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
        if stem in found.setdefault(student, {}):
            raise ValueError(f"{path}, line {number}: {student} has a line for {said['chapter']} already")
        found[student][stem] = override
    return found


def _row(said: dict[str, str]) -> tuple[str, str, Override]:
    if not said["student"]:
        raise ValueError("student is empty")
    if said["excused"].lower() not in YES + NO:
        raise ValueError(f"excused must be yes or no, got {said['excused']!r}")
    override = Override(_number(said, "points") if said["points"] else None, _number(said, "extra"),
                        said["excused"].lower() in YES, said["comment"], said["reason"])
    if str(override) and not override.reason:
        raise ValueError("a decision on points has a reason")
    if not str(override) and not override.comment:
        raise ValueError("it decides nothing: points, extra, excused and comment are all empty")
    return said["student"], chapters.find(said["chapter"]).stem, override


def _number(said: dict[str, str], name: str) -> float:
    try:
        value = float(said[name] or 0)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or (name == "points" and value < 0):
        raise ValueError(f"{name} must be a number{' from 0 up' * (name == 'points')}, got {said[name]!r}")
    return value
