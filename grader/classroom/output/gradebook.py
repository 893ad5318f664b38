"""What a run's verdicts are worth: every table, page and export takes its points from here."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from grader.classroom.output.grading import Grading
from grader.classroom.output.overrides import Override
from grader.classroom.run.cells import Cell
from grader.classroom.term.terms import Handout
from grader.course.chapters import Chapter
from grader.front.results import Asked, Result


@dataclass(frozen=True)
class Score:
    """Points, and the most that there are."""

    points: float
    of_points: float

    @property
    def percent(self) -> int:
        """Out of a hundred, rounded down, so that only all points are 100."""
        return int(100 * self.points / self.of_points + 1e-9) if self.of_points else 0

    def __str__(self):
        return f"{self.points:g} of {self.of_points:g}"


@dataclass(frozen=True)
class Total(Score):
    """A student's points over all chapters, and what is left of them after being late."""

    days: float
    grade: float


class Gradebook:
    """The cells of a run, and what they are worth by these rules."""

    def __init__(self, cells: Sequence[Cell], checks: dict[str, Sequence[Asked]], grading: Grading):
        """checks: all that are asked, by a chapter's stem."""
        self.cells, self.grading = cells, grading
        self._checks = checks
        self._factors = {stem: grading.factors(stem, asked) for stem, asked in checks.items()}
        self.chapters: list[Chapter] = sorted({cell.chapter for cell in cells})
        self.students: dict[str, list[Cell]] = {}
        for cell in cells:
            self.students.setdefault(cell.student, []).append(cell)

    def result(self, chapter: Chapter, result: Result) -> Score:
        """One verdict's points."""
        factor = self._factors[chapter.stem][result.hidden]
        return Score(round(factor * result.points, 4), round(factor * result.of_points, 4))

    def most(self, chapter: Chapter) -> float:
        """The points that a chapter is worth."""
        factors = self._factors[chapter.stem]
        return round(sum(check.of_points * factors[check.hidden] for check in self._checks[chapter.stem]), 4)

    def cell(self, cell: Cell) -> Score:
        """A cell's points: what is left of them after its chapter was late."""
        score = self.decided(cell)
        left = self.grading.left(cell.student, cell.chapter, score.points, score.of_points)
        return Score(left if not cell.missing else score.points, score.of_points)

    def decided(self, cell: Cell) -> Score:
        """The points that its checks give, with what a person has decided of it."""
        return Score(*self.override(cell).of(self.asked(cell), self.most(cell.chapter)))

    def asked(self, cell: Cell) -> float:
        """The points that its checks give."""
        factors = self._factors[cell.chapter.stem]
        return round(sum(result.points * factors[result.hidden] for result in cell.verdicts), 4)

    def override(self, cell: Cell) -> Override:
        return self.grading.override(cell.student, cell.chapter)

    def sum(self, cells: Iterable[Cell]) -> Score:
        scores = [self.cell(cell) for cell in cells]
        return Score(round(sum(score.points for score in scores), 4),
                     round(sum(score.of_points for score in scores), 4))

    def of(self, student: str, handout: Handout) -> Score:
        """What a student has of a hand-out, as far as it is due."""
        return self.sum(cell for cell in self.students.get(student, ()) if cell.chapter in handout.chapters)

    def dropped(self, student: str) -> list[Handout]:
        """The hand-outs that do not count: a student's lowest ones, of two alike the one worth more, and never all."""
        term = self.grading.term
        if not term or not term.drop:
            return []
        scores = {handout.name: self.of(student, handout) for handout in term.handouts}
        due = [handout for handout in term.handouts if scores[handout.name].of_points]
        due.sort(key=lambda handout: (scores[handout.name].points / scores[handout.name].of_points,
                                      -scores[handout.name].of_points))
        return due[:min(term.drop, len(due) - 1)]

    def total(self, student: str) -> Total:
        dropped = {chapter for handout in self.dropped(student) for chapter in handout.chapters}
        score = self.sum(cell for cell in self.students[student] if cell.chapter not in dropped)
        grade = self.grading.after_late(student, score.points, score.of_points)
        return Total(score.points, score.of_points, self.grading.days.get(student, 0.0), round(grade, 4))
