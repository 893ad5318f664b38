"""What comes out of a run for other programs: grades.csv, Gradescope's results.json, JUnit."""

import csv
import io
import json
import re
import xml.etree.ElementTree as xml
from pathlib import Path

from grader.classroom.output.grading import Grading
from grader.course.chapters import Chapter
from grader.front.report import title
from grader.front.results import write_whole

MAXIMUM = "(maximum)"       # the first row of grades.csv; no student can be called that

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write(out: Path, cells: list[dict], grading: Grading) -> None:
    """Write grades.csv, results/NAME.json and junit.xml."""
    students: dict[str, list[dict]] = {}
    for cell in cells:
        students.setdefault(cell["student"], []).append(cell)
    write_whole(out / "grades.csv", grades(students, grading))
    (out / "results").mkdir(exist_ok=True)
    for student, own in students.items():
        write_whole(out / "results" / f"{student}.json", json.dumps(gradescope(student, own, grading), indent=1) + "\n")
    write_whole(out / "junit.xml", junit(cells))


def totals(student: str, cells: list[dict], grading: Grading) -> dict[str, float]:
    """A student's points over all chapters, the most there are, and what is left after being late."""
    points, of_points = (round(sum(cell[what] for cell in cells), 4) for what in ("points", "of_points"))
    return {"points": points, "of_points": of_points, "days": grading.days.get(student, 0.0),
            "grade": round(grading.after_late(student, points, of_points), 4)}


def grades(students: dict[str, list[dict]], grading: Grading) -> str:
    """A CSV with a row for each student: points by chapter, their sum, and what was missing."""
    stems = sorted({cell["chapter"] for own in students.values() for cell in own})
    late = ["days late", "after late"] if grading.formula else []
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["student", *stems, "total", *late, "missing"])
    worth = {cell["chapter"]: cell["of_points"] for own in students.values() for cell in own}
    most = f"{sum(worth.values()):g}"
    table.writerow([MAXIMUM, *(f"{worth[stem]:g}" for stem in stems), most, *(["", most] if late else []), ""])
    for student in sorted(students, key=str.casefold):
        own = {cell["chapter"]: cell for cell in students[student]}
        total = totals(student, students[student], grading)
        table.writerow([
            plain(student), *(_number(own[stem]["points"]) if stem in own else "" for stem in stems),
            _number(total["points"]), *([_number(total["days"]), _number(total["grade"])] if late else []),
            " ".join(stem[2:4] for stem in stems if stem in own and own[stem]["state"] == "missing")])
    return text.getvalue()


def plain(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def _number(value: float) -> str:
    return f"{value:.4f}".rstrip("0").rstrip(".")


# -- Gradescope ------------------------------------------------------------------------------------

def gradescope(student: str, cells: list[dict], grading: Grading) -> dict:
    """A student's results as Gradescope reads them. Of hidden checks the rule alone, once grades are published."""
    tests, total = [], totals(student, cells, grading)
    for cell in cells:
        name = title(Chapter(cell["chapter"]))
        if cell["state"] == "missing":
            said = f"There is no {cell['chapter']}.py" + (f": {cell['note']}" if cell["note"] else ".")
            tests.append(_test(name, 0.0, cell["of_points"], "failed", said))
        elif cell["verdicts"] and cell["verdicts"][0]["whole"]:      # one failure, not one for each check
            tests.append(_test(name, 0.0, cell["of_points"], "failed", explained(cell["verdicts"][0])))
        else:
            factors = grading.factors(cell["chapter"], cell["verdicts"])
            for verdict in cell["verdicts"]:
                factor = factors[verdict["hidden"]]
                score, most = verdict["points"] * factor, verdict["of_points"] * factor
                state = "passed" if verdict["verdict"] == "passed" else "failed"
                if verdict["hidden"]:
                    tests.append(_test(f"{name}: hidden: {verdict['rule']}", score, most, state,
                                       verdict["verdict"], "after_published"))
                else:
                    tests.append(_test(f"{name}: {verdict['check']}", score, most, state, explained(verdict)))
    said = f"{total['days']:g} days late: {grading.formula}" if total["grade"] != total["points"] else ""
    walls = "" if all(cell["walls"] for cell in cells) else "Graded without a jail."
    return {"score": total["grade"], "output": "\n".join(filter(None, [said, walls])), "stdout_visibility": "hidden",
            "tests": tests}


def _test(name: str, score: float, most: float, status: str, output: str, visibility: str = "visible") -> dict:
    return {"name": name, "score": round(score, 4), "max_score": round(most, 4), "status": status, "output": output,
            "output_format": "text", "name_format": "text", "visibility": visibility}


def explained(verdict: dict) -> str:
    """A visible verdict in a few lines of plain text."""
    if verdict["verdict"] == "passed":
        return verdict["rule"]
    lines = [verdict["verdict"] if verdict["whole"] else f"{verdict['verdict']}: {verdict['rule']}", *verdict["facts"]]
    lines += [f"{line['file']}:{line['line']}: {line['text']}" for line in verdict["lines"][-1:]]
    lines += [f"likely: {verdict['mistake']}"] if verdict["mistake"] else []
    lines += [f"printed: {verdict['output'][-500:].strip()}"] if verdict["output"].strip() else []
    return "\n".join(lines)


# -- JUnit -----------------------------------------------------------------------------------------

def junit(cells: list[dict]) -> str:
    """All verdicts as JUnit's XML, for the instructor: a suite for each cell, a case for each check."""
    top = xml.Element("testsuites")
    for cell in cells:
        suite = xml.SubElement(top, "testsuite", name=_legal(f"{cell['student']} {cell['chapter']}"),
                               time=f"{cell['seconds']:.3f}")
        if cell["state"] == "missing":
            _case(suite, cell, "the whole file", {"points": 0, "of_points": cell["of_points"], "verdict": "missing"},
                  "failure", cell["note"] or "nothing was handed in")
        first = next((number for number, verdict in enumerate(cell["verdicts"]) if verdict["whole"]), None)
        for number, verdict in enumerate(cell["verdicts"]):
            said = "\n".join([verdict["verdict"], *verdict["facts"]])
            what = {"points": verdict["points"], "of_points": verdict["of_points"], "verdict": verdict["verdict"],
                    "mistake": verdict["mistake"], "hidden": str(verdict["hidden"]).lower()}
            passed, counted = verdict["verdict"] == "passed", not verdict["whole"] or number == first
            _case(suite, cell, verdict["check"], what, "" if passed else "failure" if counted else "skipped", said,
                  verdict["output"], verdict["seconds"])
        cases = suite.findall("testcase")
        suite.set("tests", str(len(cases)))
        for kind in ("failure", "skipped"):
            suite.set(kind + "s" * (kind == "failure"), str(sum(case.find(kind) is not None for case in cases)))
    xml.indent(top)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + xml.tostring(top, "unicode") + "\n"


def _case(suite, cell: dict, name: str, properties: dict, ended: str, said: str, output: str = "",
          seconds: float = 0.0) -> None:
    case = xml.SubElement(suite, "testcase", name=_legal(name), time=f"{seconds:.3f}",
                          classname=_legal(f"{cell['student']}.{cell['chapter']}"))
    kept = xml.SubElement(case, "properties")
    for key, value in properties.items():
        xml.SubElement(kept, "property", name=key, value=_legal(str(value)))
    if ended:
        xml.SubElement(case, ended, message=_legal(said.partition("\n")[0])).text = _legal(said)
    if output.strip():
        xml.SubElement(case, "system-out").text = _legal(output)


def _legal(text: str) -> str:
    """A text without the characters that XML cannot hold."""
    return _NOT_XML.sub("?", text)
