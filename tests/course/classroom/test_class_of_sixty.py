"""Sixty honest students, and among them all that was ever tried on the grader: each of the sixty keeps every point.

What must come of each stranger stands in its head (see handed_in.py).
"""

import csv
import json
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as xml

import pytest

from grader.classroom.intake.reading import shown
from grader.classroom.run import cells
from grader.classroom.run.cells import Cell
from grader.course import chapters
from grader.course.chapters import ROOT
from grader.judge import mistakes
from grader.judge.engine import Grader
from grader.sandbox import jail
from grader.sandbox.setting import Setting
from tests.course.classroom.handed_in import clean, entries, every, left_behind, text_of

pytestmark = pytest.mark.skipif(bool(jail.missing()), reason=jail.missing() or "the jail is here")
LINEAR = chapters.find("linear")
SEED = 20_261_123
# Others wait for their time, or take much of the memory: test_class has them. The checks of a class are loaded before a
# file comes, where patches_the_checks does not find them.
QUICK = re.compile("answer|forged|frame_that|hides|prints|speaks|name_|patches_(?!the_checks)")
MOST_LATE = 2               # of them, on a busy machine


class Class:
    """What was handed in, what is expected of it, and what came out."""

    def __init__(self, top):
        self.top, self.handed, self.out = top, top / "in", top / "out"
        self.handed.mkdir()
        known = mistakes.edits(LINEAR, "mistake")[:3]
        right = [LINEAR.solution.read_text("utf-8")] + [edit.source for edit in mistakes.edits(LINEAR, "alternative")]
        kinds = right + [edit.source for edit in known] + [chapters.stub(LINEAR)]
        with Grader(Setting(seed=SEED)) as grader:
            words = [self._alone(grader, number, source) for number, source in enumerate(kinds)]
        assert [set(found.values()) == {"passed"} for found in words] == [True] * len(right) + [False] * 4
        self.honest = {}
        for number in range(60):
            name, kind = f"honest{number:02}", number % len(kinds) if number % 2 else 0
            self._write(self.handed / name, kinds[kind])
            self.honest[name] = words[kind]
        self.files = {f"file-{number:03}": file for number, file in enumerate(
            file for file in every("hostile")
            if file.chapter == LINEAR and QUICK.match(file.file.stem) and "timeout" not in file.expected)}
        for name, file in self.files.items():
            file.write(self.handed / name)
        self.entries = {entry.build(self.handed, f"entry-{number:03}"): entry
                        for number, entry in enumerate(entries())}
        start = time.monotonic()
        self.said = self._grade(self.out, "--jobs", "2")
        self.took = time.monotonic() - start
        self.manifest = json.loads((self.out / "manifest.json").read_text("utf-8"))

    def _grade(self, out, *how: str) -> str:
        """Grade what was handed in; returns what was said."""
        done = subprocess.run([sys.executable, "-m", "grader", "grade", self.handed, "--out", out, *how,
                               "--chapters", LINEAR.number, "--seed", str(SEED)],
                              cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 1, done.stdout + done.stderr      # something was refused
        return done.stdout + done.stderr

    def once_more(self, name: str) -> Cell:
        """A cell, when nobody else is asked."""
        out = self.top / "again" / f"run{len(list(self.top.glob('again/*')))}"
        self._grade(out, "--jobs", "1", f"--students={name}")
        return cells.read(out, name, LINEAR)

    def _alone(self, grader: Grader, number: int, source: str) -> dict[str, str]:
        """What each check says of one source when nobody else is there."""
        folder = self.top / "alone" / str(number)
        self._write(folder, source)
        return {verdict.check.name: verdict.word for verdict in grader.grade(LINEAR, folder, hidden=True)}

    @staticmethod
    def _write(folder, source: str) -> None:
        folder.mkdir(parents=True)
        (folder / LINEAR.exercise.name).write_text(source, "utf-8")

    def cell(self, name: str):
        return cells.read(self.out, name, LINEAR)

    def grades(self) -> dict[str, dict]:
        with (self.out / "grades.csv").open(newline="", encoding="utf-8") as file:
            return {row["student"]: row for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    clean()
    yield Class(tmp_path_factory.mktemp("sixty"))
    clean()


def test_forty_and_more_are_there(run):
    assert len(run.honest) == 60 and len(run.files) >= 40 and len(run.entries) >= 40
    assert len(run.entries) == len(entries()), "two are called alike"


def test_each_of_the_sixty_keeps_every_point(run):
    grades = run.grades()
    points = {result.check: result.of_points for result in run.cell("honest00").verdicts}
    for name, expected in run.honest.items():
        cell = run.cell(name)
        assert {result.check: result.verdict for result in cell.verdicts} == expected, name
        assert not cell.note and cell.seed == SEED
        earned = sum(points[check] for check, word in expected.items() if word == "passed")
        assert sum(result.points for result in cell.verdicts) == earned
        share = float(grades[name][LINEAR.stem]) / float(grades["(maximum)"][LINEAR.stem])
        assert (share == 1) == (earned == sum(points.values())) and (share == 0) == (earned == 0), name
        assert (run.out / "feedback" / f"{name}.html").exists() and (run.out / "results" / f"{name}.json").exists()


def test_what_they_hand_in_gets_what_its_head_says(run):
    refused = run.manifest["refused"]
    for name, entry in run.entries.items():
        left_out = [line for line in run.said.splitlines() if line.startswith((
            f"left out: {name}:", f"refused: {name}", f"missing: {name} ", f"look at the name {name}:"))]
        said = " ".join(left_out)
        cell = run.cell(name)
        if entry.verdict == "refused":
            assert cell is None and any(shown(name) in key for key in refused), (entry, refused)
        elif entry.verdict == "missing":
            assert cell.missing and not cell.verdicts, entry
            said += cell.note
        else:
            found = {result.verdict for result in cell.verdicts}
            assert entry.verdict in found and (entry.verdict == "forbidden" or len(found) == 1), (str(entry), found)
            said += " ".join(" ".join(result.facts) for result in cell.verdicts)
        assert entry.words in said, (str(entry), said[:500])


def test_hostile_files_get_the_verdicts_that_their_heads_say(run):
    late = []
    for name, file in run.files.items():
        visible = [result for result in run.cell(name).verdicts if not result.hidden]
        if any(result.verdict == "timeout" for result in visible):
            late.append(str(file))
            continue
        file.expects([(result.function, result.verdict, text_of(result)) for result in visible])
    assert len(late) <= MOST_LATE, late


def test_no_cell_takes_more_than_twice_an_honest_one_s_time_and_its_checks_timeouts(run):
    """What a check may take is its own; reading and judging what came of it takes no longer than of an honest file."""
    as_right = [name for name, entry in run.entries.items() if str(entry).startswith("name_") and run.cell(name)]
    honest = max(run.cell(name).seconds for name in [*run.honest, *as_right])
    late = [name for name in [*run.files, *run.entries] if (cell := run.cell(name)) and _takes_long(cell, honest)]
    if late:        # a machine may have been busy just then: these once more, beside honest ones with a mistake to name
        wrong = {str(words): name for name, words in run.honest.items() if "wrong" in words.values()}
        honest = max(run.once_more(name).seconds for name in wrong.values())
        late = [(str(run.files.get(name) or run.entries.get(name)), cell.seconds, honest) for name in late
                if _takes_long(cell := run.once_more(name), honest)]
    assert not late, late


def _takes_long(cell: Cell, honest: float) -> bool:
    """Whether it took more than two honest cells and its own checks, in seconds."""
    asked = [result.seconds for result in cell.verdicts if not result.whole]
    asked += [max([result.seconds for result in cell.verdicts if result.whole], default=0)]
    return cell.seconds > 2 * honest + sum(asked)


def test_no_name_and_no_word_of_theirs_does_anything_anywhere(run):
    assert all(c.isprintable() or c == "\n" for c in run.said)
    grades = (run.out / "grades.csv").read_text("utf-8")
    assert not re.search(r"(?m)^[=+@-]", grades) and "'-2+3" in grades
    xml.parse(run.out / "junit.xml")
    for file in (run.out / "results").iterdir():
        assert json.loads(file.read_text("utf-8"))["tests"] is not None
    pages = [run.out / "class.html", *(run.out / "feedback").iterdir()]
    assert len(pages) == 1 + len(run.manifest["students"])
    for page in pages:
        text = page.read_text("utf-8")
        assert all(c.isprintable() or c == "\n" for c in text), page
        assert not re.search(r"<(script|img|iframe|object|link)|<[^>]*(\son\w+=|javascript:)", text), page
    assert "hides" not in run.said and "vars(torch)" in (run.out / "class.html").read_text("utf-8")


def test_nothing_is_left_behind(run):
    assert not left_behind()
    assert not (run.out / "scratch").exists()
    assert (chapters.SOLUTIONS / LINEAR.solution.name).read_text("utf-8") == LINEAR.solution.read_text("utf-8")
