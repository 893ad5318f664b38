"""Canvas' gradebook, filled in: the file that it exports is the one that it imports."""

import csv
import io
import itertools
import re
from dataclasses import dataclass
from pathlib import Path

from grader.classroom.output.exports import EXCUSED
from grader.classroom.output.gradebook import Gradebook, Score
from grader.course import chapters
from grader.front.results import write_whole

WHO = ("Student", "ID", "SIS User ID", "SIS Login ID")
_ASSIGNMENT = re.compile(r"(.*) \(\d+\)")
TOTAL = "total"


@dataclass
class Template:
    """A gradebook as Canvas exports it."""

    path: Path
    rows: list[list[str]]
    possible: list[str] | None      # the row "Points Possible"
    columns: dict[int, str]         # which column takes which chapter's points, or TOTAL

    @classmethod
    def read(cls, path: Path) -> "Template":
        """Read an export; a ValueError where it is none, or no column can be told to be a chapter's."""
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.reader(file))
        if not rows or rows[0][:2] != ["Student", "ID"]:
            raise ValueError(f"{path} is no gradebook of Canvas: its first columns are not Student and ID")
        possible = next((row for row in rows[1:] if row and row[0].strip() == "Points Possible"), None)
        names = {i: found for i, name in enumerate(rows[0]) if (found := _assignment(name))}
        columns = {i: stem for i, name in names.items() if (stem := _chapter(name))}
        if not columns and len(names) == 1:
            columns = dict.fromkeys(names, TOTAL)
        if not columns:
            raise ValueError(f"{path}: no column is named for a chapter, such as 'Linear 03 (123)', nor is there a "
                             f"single one for the total; there are {', '.join(map(repr, names.values())) or 'none'}")
        if len(set(columns.values())) < len(columns):
            raise ValueError(f"{path}: two columns are named for one chapter: "
                             f"{', '.join(repr(names[i]) for i in columns)}")
        return cls(path, rows, possible, columns)

    def fill(self, out: Path, book: Gradebook) -> list[str]:
        """Write it with the points filled in; returns what is to be said of it, in lines."""
        said = []
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
            for column, what in self.columns.items():
                if what in excused:
                    row[column] = EXCUSED
                elif what in scores:
                    row[column] = self._scaled(column, scores[what], scaled)
        said += [f"{line}, and points are scaled to that" for line in sorted(scaled)]
        if rest := len(rows) - len(matched):
            said.append(f"{rest} rows have no submission here and are left as they were")
        if others := [name for i, name in enumerate(self.rows[0]) if _assignment(name) and i not in self.columns]:
            said.append(f"named for no chapter, and left as they were: {', '.join(map(repr, others))}")
        if any(book.grading.days.get(student) for student in book.students) and TOTAL not in self.columns.values():
            said.append("late days come off the total alone, in grades.csv: the chapters' columns hold full points")
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(self.rows)
        write_whole(out, text.getvalue())
        return said

    def _fits(self, student: str, rows: list[list[str]]) -> tuple[int, list[int]]:
        """(how well, the rows that a submission's name speaks of): 0 by login or ID, 1 by part of it, 2, 3 by name."""
        header, name = self.rows[0], student.casefold()
        ways = itertools.product((WHO[1:], WHO[:1]), ({name}, set(name.split("_"))))
        for rank, (keys, parts) in enumerate(ways):
            wanted = parts if keys != WHO[:1] else {"".join(re.findall(r"\w", part)) for part in parts}
            fits = []
            for number, row in enumerate(rows):
                own = {row[i].strip().casefold() for i, name in enumerate(header[:len(row)]) if name in keys} - {""}
                if keys == WHO[:1]:     # "Lovelace, Ada" is "Ada Lovelace", "lovelaceada" and "adalovelace" too
                    own = {"".join(re.findall(r"\w", "".join(order)))
                           for name in own for order in (name.split(","), name.split(",")[::-1])}
                if own & wanted:
                    fits.append(number)
            if fits:
                return rank, fits
        return 0, []

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


def _assignment(header: str) -> str:
    """The assignment that a column "Linear 03 (11)" is for; "" where it is for none."""
    found = _ASSIGNMENT.fullmatch(header.strip())
    return found[1] if found else ""


def _chapter(name: str) -> str:
    """The chapter that an assignment's name speaks of: "ex03_linear", "03 linear", "Linear", "Chapter 3"; or ""."""
    words = " ".join(re.findall(r"[a-z0-9]+", name.lower()))
    for found in chapters.chapters():
        spoken = found.name.replace("_", " ")
        if words in (spoken, f"{found.number} {spoken}", f"ex{found.number} {spoken}", f"{spoken} {found.number}") \
                or re.fullmatch(rf"(chapter|lesson|exercise|ex) ?0?{int(found.number)}( {spoken})?", words):
            return found.stem
    return ""
