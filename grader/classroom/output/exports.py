"""What comes out of a run for other programs: grades.csv, Gradescope's results.json, JUnit."""

import csv
import hashlib
import io
import json
import re
import xml.etree.ElementTree as xml
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from grader.classroom.output.gradebook import Gradebook, Score
from grader.classroom.run.cells import Cell
from grader.classroom.term import view
from grader.front.report import title
from grader.front.results import Result, write_whole
from grader.judge.verdict import Word

MAXIMUM = "(maximum)"       # the first row of grades.csv; no student can be called that
EXCUSED = "EX"              # in place of points, as Canvas has it

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write(out: Path, book: Gradebook) -> None:
    """Write grades.csv, results/NAME.json and junit.xml."""
    write_whole(out / "grades.csv", grades(book))
    (out / "results").mkdir(exist_ok=True)
    for student, file in file_names(book.students).items():
        write_whole(out / "results" / f"{file}.json", json.dumps(gradescope(book, student), indent=1) + "\n")
    write_whole(out / "junit.xml", junit(book))


def file_names(students) -> dict[str, str]:
    """What each student's files are called: as they are, with a mark where a file system might not keep it apart."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for student in students:
        safe = re.sub(r"[^\w.@; -]", "_", student).encode()[:150].decode("utf-8", "ignore").strip(". ")
        if safe != student or safe.casefold() in taken:
            safe += f"-{hashlib.sha256(student.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
        while safe.casefold() in taken:     # somebody may be called as this one's file was to be
            safe += "_"
        taken.add(safe.casefold())
        names[student] = safe
    return names


def grades(book: Gradebook) -> str:
    """A CSV with a row for each student: points by chapter, their sum, and what was missing."""
    by_chapter = bool(book.grading.term or book.grading.chapter_days)
    late = ["of", "late", "dropped"] if by_chapter else ["days late", "after late"] if book.grading.formula else []
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["student", *(chapter.stem for chapter in book.chapters), "total", *late, "missing"])
    worth = [book.most(chapter) for chapter in book.chapters]
    most = f"{sum(worth):g}"
    table.writerow([MAXIMUM, *(f"{points:g}" for points in worth), most,
                    *([most, "", ""] if by_chapter else ["", most] if late else []), ""])
    for student in sorted(book.students, key=str.casefold):
        own = {cell.chapter: cell for cell in book.students[student]}
        total = book.total(student)
        table.writerow([
            plain(student),
            *(_worth(book, own[chapter]) if chapter in own else "" for chapter in book.chapters),
            _number(total.points), *(_late(book, student) if by_chapter else
                                     [_number(total.days), _number(total.grade)] if late else []),
            " ".join(chapter.number for chapter in book.chapters if chapter in own and own[chapter].missing)])
    return text.getvalue()


def _late(book: Gradebook, student: str) -> list[str]:
    """The most that a student can have by now, "03:2" for each chapter that was late, and what does not count."""
    days = {cell.chapter.number: book.grading.late(student, cell.chapter)[0] for cell in book.students[student]
            if not cell.missing}
    return [_number(book.total(student).of_points),
            " ".join(f"{number}:{'?' if by is None else _number(by)}" for number, by in days.items() if by != 0),
            ", ".join(handout.name for handout in book.dropped(student))]


def _worth(book: Gradebook, cell: Cell) -> str:
    return EXCUSED if book.override(cell).excused else _number(book.cell(cell).points)


def plain(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def _number(value: float) -> str:
    return f"{value:.4f}".rstrip("0").rstrip(".")


# -- Gradescope ------------------------------------------------------------------------------------

def gradescope(book: Gradebook, student: str) -> dict:
    """A student's results as Gradescope reads them. Of hidden checks the rule alone, once grades are published."""
    cells, total = book.students[student], book.total(student)
    said = f"{total.days:g} days late: {book.grading.formula}" if total.grade != total.points else ""
    if dropped := book.dropped(student):
        said = f"Does not count: {', '.join(handout.name for handout in dropped)}."
    walls = "" if all(cell.walls for cell in cells) else "Graded without a jail."
    return {"score": total.grade, "output": "\n".join(filter(None, [said, walls])), "stdout_visibility": "hidden",
            "tests": [test for cell in cells for test in [*_tests(book, cell), *_decided(book, cell),
                                                          *_taken_off(book, cell)]]}


def _decided(book: Gradebook, cell: Cell) -> list[dict]:
    """What a person has decided, as one more test: with it the scores sum to the total again."""
    override = book.override(cell)
    if not str(override) and not override.comment:
        return []
    score, asked = book.decided(cell), Score(book.asked(cell), book.most(cell.chapter))
    change = Score(round(score.points - asked.points, 4), round(score.of_points - asked.of_points, 4))
    said = "\n".join(filter(None, [str(override), override.comment]))
    return [_test(f"{title(cell.chapter)}: decided by a person", change, "passed", said)]


def _taken_off(book: Gradebook, cell: Cell) -> list[dict]:
    """What being late took off, as one more test."""
    change = Score(round(book.cell(cell).points - book.decided(cell).points, 4), 0.0)
    return [_test(f"{title(cell.chapter)}: late", change, "passed", view.late(cell, book))] if change.points else []


def _tests(book: Gradebook, cell: Cell) -> list[dict]:
    name = title(cell.chapter)
    if cell.missing:
        said = f"There is no {cell.chapter.stem}.py" + (f": {cell.note}" if cell.note else ".")
        return [_test(name, Score(0.0, book.most(cell.chapter)), "failed", said)]
    if any(result.whole and not result.hidden for result in cell.verdicts):     # one failure, not one for each check
        return [_test(name, Score(book.asked(cell), book.most(cell.chapter)), "failed", explained(cell.whole))]
    tests = []
    for result in cell.verdicts:
        score, status = book.result(cell.chapter, result), "passed" if result.verdict == Word.PASSED else "failed"
        if result.hidden:
            said = "passed" if status == "passed" else "not passed"
            tests.append(_test(f"{name}: hidden: {result.rule}", score, status, said, "after_published"))
        else:
            tests.append(_test(f"{name}: {result.check}", score, status, explained(result)))
    return tests


def _test(name: str, score: Score, status: str, output: str, visibility: str = "visible") -> dict:
    return {"name": name, "score": score.points, "max_score": score.of_points, "status": status, "output": output,
            "output_format": "text", "name_format": "text", "visibility": visibility}


def explained(result: Result) -> str:
    """A visible verdict in a few lines of plain text."""
    if result.verdict == Word.PASSED:
        return result.rule
    lines = [result.verdict if result.whole else f"{result.verdict}: {result.rule}", *result.facts]
    lines += [f"{line.file}:{line.line}: {line.text}" for line in result.lines[-1:]]
    lines += [f"likely: {result.mistake}"] if result.mistake else []
    lines += [f"printed: {result.output[-500:].strip()}"] if result.output.strip() else []
    return "\n".join(lines)


# -- JUnit -----------------------------------------------------------------------------------------

def junit(book: Gradebook) -> str:
    """All verdicts as JUnit's XML, for the instructor: a suite for each cell, a case for each check."""
    top = xml.Element("testsuites")
    for cell in book.cells:
        name, cases = f"{cell.student} {cell.chapter.stem}", list(_cases(book, cell))
        suite = xml.SubElement(top, "testsuite", name=_legal(name), time=f"{cell.seconds:.3f}", tests=str(len(cases)),
                               failures=str(sum(case.ended == "failure" for case in cases)),
                               skipped=str(sum(case.ended == "skipped" for case in cases)))
        for case in cases:
            case.write(suite, f"{cell.student}.{cell.chapter.stem}")
    xml.indent(top)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + xml.tostring(top, "unicode") + "\n"


@dataclass
class _Case:
    """A case of JUnit's."""

    name: str
    properties: dict
    ended: str              # "failure" or "skipped"; "" where it passed
    said: str
    output: str = ""
    seconds: float = 0.0

    def write(self, suite: xml.Element, of: str) -> None:
        case = xml.SubElement(suite, "testcase", name=_legal(self.name), time=f"{self.seconds:.3f}",
                              classname=_legal(of))
        properties = xml.SubElement(case, "properties")
        for key, value in self.properties.items():
            xml.SubElement(properties, "property", name=key, value=_legal(str(value)))
        if self.ended:
            xml.SubElement(case, self.ended, message=_legal(self.said.partition("\n")[0])).text = _legal(self.said)
        if self.output.strip():
            xml.SubElement(case, "system-out").text = _legal(self.output)


def _cases(book: Gradebook, cell: Cell) -> Iterator[_Case]:
    if cell.missing:
        nothing = Score(0.0, book.most(cell.chapter))
        yield _Case("the whole file", {**vars(nothing), "verdict": Word.MISSING}, "failure",
                    cell.note or "nothing was handed in")
    if said := str(book.override(cell)):
        yield _Case("decided by a person", {**vars(book.cell(cell)), "decision": said}, "", "")
    for result in cell.verdicts:
        passed, counted = result.verdict == Word.PASSED, not result.whole or result is cell.whole
        properties = {**vars(book.result(cell.chapter, result)), "verdict": result.verdict, "mistake": result.mistake,
                      "hidden": str(result.hidden).lower()}
        yield _Case(result.check, properties, "" if passed else "failure" if counted else "skipped",
                    "\n".join([result.verdict, *result.facts]), result.output, result.seconds)


def _legal(text: str) -> str:
    """A text without the characters that XML cannot hold."""
    return _NOT_XML.sub("?", text)
