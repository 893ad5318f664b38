"""Canvas' gradebook, filled in: the file that it exports is the one that it imports."""

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from grader.classroom.intake.roster import Roster
from grader.classroom.intake.sources import same_names
from grader.classroom.output.columns import TOTAL, columns
from grader.classroom.output.exports import EXCUSED
from grader.classroom.output.gradebook import Gradebook, Score
from grader.front.results import write_whole

WHO = ("ID", "SIS User ID", "SIS Login ID")


@dataclass
class Template:
    """A gradebook as Canvas exports it."""

    path: Path
    rows: list[list[str]]
    possible: list[str] | None      # the row "Points Possible"
    roster: Roster | None = None    # who is called what

    @classmethod
    def read(cls, path: Path, roster: Roster | None = None) -> "Template":
        """Read an export; a ValueError where it is none."""
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.reader(file))
        if not rows or rows[0][:2] != ["Student", "ID"]:
            raise ValueError(f"{path} is no gradebook of Canvas: its first columns are not Student and ID")
        possible = next((row for row in rows[1:] if row and row[0].strip() == "Points Possible"), None)
        return cls(path, rows, possible, roster)

    def fill(self, out: Path, book: Gradebook) -> list[str]:
        """Write it with the points filled in; returns what is to be said of it, in lines."""
        taken, said = columns(self.rows[0], book.grading.canvas, book.chapters)
        rows = [row for row in self.rows[1:] if row and row is not self.possible]
        found: dict[int, dict[str, int]] = {}       # by row: who fits it, and how well
        for student in book.students:
            rank, fits = self._fits(student, rows)
            if len(fits) != 1:
                said.append(f"{student} is {'in no row' if not fits else f'in {len(fits)} rows'} by login, ID or name; "
                            "not filled in")
            else:
                found.setdefault(fits[0], {})[student] = rank
        matched: dict[int, str] = {}
        for number, fit in found.items():
            best = [student for student, rank in fit.items() if rank == min(fit.values())]
            others = [student for student in fit if student not in best]
            if len(best) == 1:
                matched[number] = best[0]
                said += [f"{other} is not filled in: its row is {best[0]}'s" for other in others]
            else:       # which one counts is not for a program to say
                said.append(f"{' and '.join(best + others)} are in one row; neither is filled in")
        scaled = set()
        for number, student in matched.items():
            row, total = rows[number], book.total(student)
            row += [""] * (len(self.rows[0]) - len(row))
            scores = {cell.chapter.stem: book.cell(cell) for cell in book.students[student]}
            scores[TOTAL] = Score(total.grade, total.of_points)
            excused = {cell.chapter.stem for cell in book.students[student] if book.override(cell).excused}
            for column, what in taken.items():
                if what in excused:
                    row[column] = EXCUSED
                elif what in scores:
                    row[column] = self._scaled(column, scores[what], scaled)
        said += [f"{line}, and points are scaled to that" for line in sorted(scaled)]
        if rest := len(rows) - len(matched):
            said.append(f"{rest} rows have no submission here and are left as they were")
        if any(book.grading.days.get(student) for student in book.students) and TOTAL not in taken.values():
            said.append("late days come off the total alone, in grades.csv: the chapters' columns hold full points")
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(self.rows)
        write_whole(out, text.getvalue())
        return said

    def _fits(self, student: str, rows: list[list[str]]) -> tuple[int, list[int]]:
        """(how well, the rows that speak of a student): first by login or ID, last by a part of the name."""
        person = self.roster and self.roster.called(student)
        keys, name = {student.casefold()}, student.casefold()
        keys |= person.keys if person else set()
        names, parts = {name, person.name if person else ""}, set() if person else set(name.split("_"))
        ways = [lambda row: self._own(row) & keys,
                lambda row: {key.partition("@")[0] for key in self._own(row)} & keys,
                lambda row: self._own(row) & parts,
                lambda row: any(same_names(row[0], name) for name in names),
                lambda row: any(same_names(row[0], part) for part in parts)]
        for rank, fits in enumerate(ways):
            if found := [number for number, row in enumerate(rows) if fits(row)]:
                return rank, found
        return 0, []

    def _own(self, row: list[str]) -> set[str]:
        """The IDs and logins of a row."""
        return {cell.strip().casefold() for cell, name in zip(row, self.rows[0]) if name in WHO} - {""}

    def _scaled(self, column: int, score: Score, scaled: set[str]) -> str:
        """Points as Canvas counts them, where it has another maximum than the course."""
        points, most = score.points, score.of_points
        try:
            possible = float(self.possible[column]) if self.possible else most
        except (ValueError, IndexError):
            possible = most
        if most and possible != most:
            scaled.add(f"{self.rows[0][column]!r} has {possible:g} points possible, the course {most:g}")
            points *= possible / most
        return f"{points:.2f}".rstrip("0").rstrip(".")
