"""grading.toml: what a chapter is worth, what its hidden checks count, what being late costs, what was decided."""

import ast
import csv
import math
import operator
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from grader.classroom.output import overrides
from grader.classroom.output.columns import TOTAL
from grader.classroom.output.overrides import Override
from grader.course import chapters
from grader.course.chapters import ROOT, Chapter
from grader.front.results import Asked

DEFAULT = ROOT / "grading.toml"

_BINARY = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
           ast.Div: operator.truediv, ast.Mod: operator.mod, ast.Pow: operator.pow}
_CALLS = {"min": min, "max": max}


@dataclass
class Grading:
    """How verdicts become points."""

    hidden_share: float | None = None
    weights: dict[str, float] = field(default_factory=dict)     # by a chapter's stem
    formula: str = ""
    days: dict[str, float] = field(default_factory=dict)        # by a student's name
    overrides: dict[str, dict[str, Override]] = field(default_factory=dict)     # by name and a chapter's stem
    canvas: dict[str, str] = field(default_factory=dict)        # titles of columns, by a chapter's stem or "total"

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
        days = self.days.get(student, 0.0)
        if not self.formula or not days:
            return points
        return max(0.0, calculate(self.formula, points=points, of_points=of_points, days=days))


def read(path: Path | None = None) -> Grading:
    """A grading file, the course's own where none is named; a ValueError says what it cannot mean."""
    if path is None and not DEFAULT.exists():
        return Grading()
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
    if bool(late.get("formula")) != bool(late.get("days")):
        raise ValueError(f"{path}: late.formula and late.days need each other")
    decided = said.get("overrides", "")
    if type(decided) is not str:
        raise ValueError(f"{path}: overrides must be the name of a CSV file beside it, got {decided!r}")
    grading = Grading(share, weights, late.get("formula", ""),
                      overrides=overrides.read(path.parent / decided) if decided else {},
                      canvas=_canvas(path, said.get("canvas", {})))
    if grading.formula:
        calculate(grading.formula, points=1.0, of_points=1.0, days=1.0)
        grading.days = _days(path.parent / late["days"])
    return grading


def _canvas(path: Path, said: dict) -> dict[str, str]:
    """The titles of columns in Canvas' gradebook, by a chapter's stem or TOTAL."""
    for name, title in said.items():
        if type(title) is not str:
            raise ValueError(f"{path}: canvas.{name} must be the title of a column, got {title!r}")
    return {name if name == TOTAL else chapters.find(name).stem: title for name, title in said.items()}


def _is_number(value) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _days(path: Path) -> dict[str, float]:
    """The days by which each student was late, from a CSV file."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    days = {}
    for number, row in enumerate(rows, 2):
        try:
            days[row["student"].strip()] = value = float(row["days"])
        except (KeyError, ValueError, AttributeError, TypeError):
            value = -1.0
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{path}, line {number}: it takes the columns student and days, days a number from 0 up")
    return days


def calculate(formula: str, **values: float) -> float:
    """The value of an arithmetic formula; a ValueError where it is none, or has no finite value.

    >>> calculate("points * 0.9 ** days", points=10, days=1)
    9.0
    """
    def value(node) -> float:
        match node:
            case ast.Constant(value=int() | float() as number) if type(number) is not bool:
                return float(number)
            case ast.Name(id=name) if name in values:
                return float(values[name])
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return _BINARY[type(op)](value(left), value(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -value(operand)
            case ast.Call(func=ast.Name(id=name), args=[_, _, *_] as arguments, keywords=[]) if name in _CALLS:
                return _CALLS[name](map(value, arguments))
        raise ValueError(f"{ast.unparse(node)!r} is not arithmetic on {', '.join(values)}")
    try:
        result = value(ast.parse(formula, mode="eval").body)
    except (SyntaxError, ArithmeticError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"the formula {formula!r} has no value: {error}") from None
    if isinstance(result, complex) or not math.isfinite(result):
        raise ValueError(f"the formula {formula!r} has no finite value for {values}")
    return result
