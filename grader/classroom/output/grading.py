"""grading.toml: what a chapter is worth, what its hidden checks count, what being late costs, what was decided."""

import csv
import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from grader.classroom.output import overrides
from grader.classroom.output.columns import TOTAL
from grader.classroom.output.formula import calculate
from grader.classroom.output.overrides import Override
from grader.classroom.term.terms import LATE, Arrival, Term
from grader.course import chapters
from grader.course.chapters import ROOT, Chapter
from grader.front.results import Asked

DEFAULT = ROOT / "grading.toml"


@dataclass
class Grading:
    """How verdicts become points."""

    hidden_share: float | None = None
    weights: dict[str, float] = field(default_factory=dict)     # by a chapter's stem
    formula: str = ""
    days: dict[str, float] = field(default_factory=dict)        # by a student's name, off their total
    chapter_days: dict[str, dict[str, float]] = field(default_factory=dict)     # by name and a chapter's stem
    overrides: dict[str, dict[str, Override]] = field(default_factory=dict)     # by name and a chapter's stem
    canvas: dict[str, str] = field(default_factory=dict)        # titles of columns, by a chapter's stem or "total"
    term: Term | None = None
    arrived: dict[str, dict[str, Arrival]] = field(default_factory=dict)        # by name and a chapter's stem

    def is_due(self, student: str, chapter: Chapter) -> bool:
        """Whether a student's chapter is graded yet; without a term all are."""
        return self.term is None or self.term.is_due(student, chapter)

    def named(self) -> dict[str, set[str]]:
        """Whom these rules speak of, by where."""
        extended = [handout.extensions for handout in self.term.handouts] if self.term else []
        return {"late.days": {*self.days, *self.chapter_days}, "overrides": set(self.overrides),
                "extensions": set().union(*extended)}

    def override(self, student: str, chapter: Chapter) -> Override:
        """What a person has decided; an empty decision where nobody has."""
        return self.overrides.get(student, {}).get(chapter.stem, Override())

    def factors(self, chapter: str, checks: Sequence[Asked]) -> dict[bool, float]:
        """What one point of a visible and of a hidden check counts: {False: ..., True: ...}.

        checks: all of the chapter that are asked.
        """
        own = {kind: sum(check.of_points for check in checks if check.hidden == kind) for kind in (False, True)}
        total = sum(own.values())
        if not total:
            return {False: 0.0, True: 0.0}
        worth = self.weights.get(chapter, total)
        if self.hidden_share is None or not own[False] or not own[True]:
            return dict.fromkeys(own, worth / total)
        return {False: worth * (1 - self.hidden_share) / own[False], True: worth * self.hidden_share / own[True]}

    def after_late(self, student: str, points: float, of_points: float) -> float:
        """A student's total with what being late takes off, from 0 up."""
        return _left(self.formula, points, of_points, self.days.get(student, 0.0))

    def late(self, student: str, chapter: Chapter) -> tuple[float | None, str]:
        """(the days by which a chapter was late, the formula for them); None where nobody says how many."""
        handout = self.term.of(chapter) if self.term else None
        formula = handout.late if handout and handout.late else self.formula
        by_hand, arrival = self.chapter_days.get(student, {}), self.arrived.get(student, {}).get(chapter.stem)
        if chapter.stem in by_hand:
            return by_hand[chapter.stem], formula
        if not handout or not arrival:
            return 0.0, formula
        if arrival.at is None:
            return None if arrival.how == LATE else 0.0, formula
        return float(handout.days(student, arrival.at)), formula

    def left(self, student: str, chapter: Chapter, points: float, of_points: float) -> float:
        """A chapter's points with what being late takes off, from 0 up."""
        days, formula = self.late(student, chapter)
        return round(_left(formula, points, of_points, days or 0.0), 4)


def _left(formula: str, points: float, of_points: float, days: float) -> float:
    if not formula or not days or not of_points:
        return points
    return max(0.0, calculate(formula, points=points, of_points=of_points, days=days))


def read(path: Path | None = None, term: Term | None = None) -> Grading:
    """A grading file, the course's own where none is named; a ValueError says what it cannot mean.

    In a term lateness is known without a table, and only by chapter.
    """
    if path is None and not DEFAULT.exists():
        return Grading(term=term)
    path = path or DEFAULT
    try:
        said = tomllib.loads(path.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from None
    late, known_here = said.get("late", {}), {"hidden_share", "weights", "late", "overrides", "canvas"}
    for where, table, known in (("", said, known_here), ("late.", late, {"formula", "days"})):
        if strange := sorted(table.keys() - known):
            raise ValueError(f"{path}: {where}{strange[0]} has no meaning here; known are {', '.join(sorted(known))}")
    share = said.get("hidden_share")
    if share is not None and not (_is_number(share) and 0 <= share <= 1):
        raise ValueError(f"{path}: hidden_share must be a number from 0 to 1, got {share!r}")
    weights = {}
    for name, weight in said.get("weights", {}).items():
        if not (_is_number(weight) and weight >= 0):
            raise ValueError(f"{path}: the weight of {name} must be a number from 0 up, got {weight!r}")
        weights[chapters.find(name).stem] = float(weight)
    if not term and bool(late.get("formula")) != bool(late.get("days")):
        raise ValueError(f"{path}: late.formula and late.days need each other")
    decided = said.get("overrides", "")
    if type(decided) is not str:
        raise ValueError(f"{path}: overrides must be the name of a CSV file beside it, got {decided!r}")
    grading = Grading(share, weights, late.get("formula", ""),
                      overrides=overrides.read(path.parent / decided) if decided else {},
                      canvas=_canvas(path, said.get("canvas", {})), term=term)
    if grading.formula:
        calculate(grading.formula, points=1.0, of_points=1.0, days=1.0)
    if late.get("days"):
        grading.days, grading.chapter_days = _days(path.parent / late["days"])
    if term and grading.days:
        raise ValueError(f"{path.parent / late['days']}: a term counts days by chapter: add a column chapter")
    return grading


def _canvas(path: Path, said: dict) -> dict[str, str]:
    """The titles of columns in Canvas' gradebook, by a chapter's stem or TOTAL."""
    for name, title in said.items():
        if type(title) is not str:
            raise ValueError(f"{path}: canvas.{name} must be the title of a column, got {title!r}")
    return {name if name == TOTAL else chapters.find(name).stem: title for name, title in said.items()}


def _is_number(value) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _days(path: Path) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """The days by which each student was late, from a CSV file: (with all; with a chapter, where it names one)."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    of_all: dict[str, float] = {}
    of_one: dict[str, dict[str, float]] = {}
    for number, row in enumerate(rows, 2):
        try:
            student, value = row["student"].strip(), float(row["days"])
        except (KeyError, ValueError, AttributeError, TypeError):
            student, value = "", -1.0
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{path}, line {number}: it takes the columns student and days, days a number from 0 up")
        if "chapter" not in row:
            of_all[student] = value
            continue
        try:
            for chapter in chapters.several(row["chapter"] or ""):
                of_one.setdefault(student, {})[chapter.stem] = value
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
    return of_all, of_one
