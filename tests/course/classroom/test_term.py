"""A semester in one folder: what is due when, who is late by how much, and that nothing graded is lost."""

import csv
import dataclasses
import json
import os
import re
import subprocess
from datetime import datetime
from pathlib import Path

import pytest

from grader.__main__ import main
from grader.classroom.intake import collect, gradescope
from grader.classroom.output import grading
from grader.classroom.output.gradebook import Gradebook, Score
from grader.classroom.output.grading import Grading
from grader.classroom.run import cells, grade
from grader.classroom.term import terms
from grader.classroom.term.terms import Handout, Term
from grader.course import chapters
from grader.course.chapters import ROOT
from grader.front.results import Result
from grader.judge.verdict import Word
from tests.course.classroom.test_grade import TEMPLATE, Generous

SHAPES, LINEAR, SOFTMAX = map(chapters.find, ("shapes", "linear", "softmax"))
ROSTER = "name,login,id,email\nAda Lovelace,ada,1,ada@uni\nBob,bob,2,bob@uni\nEve,eve,3,eve@uni\n"
RULES = '[weights]\n0 = 10\n3 = 20\n5 = 40\n[late]\nformula = "points * 0.9 ** days"\n'
TERM = """
zone = "Europe/Berlin"
[[handout]]
name = "week 1"
chapters = "0"
due = 2026-10-05
closes = 2026-10-12
extensions = { eve = 2026-10-09T12:00:00 }
[[handout]]
name = "week 2"
chapters = "3"
due = 2026-10-19T18:00:00
late = "max(points - 5 * days, 0)"
[[handout]]
name = "week 3"
chapters = "5"
due = 2026-11-02T18:00:00+01:00
"""


class Fair(Generous):
    """In place of processes: who has written "wrong" into a chapter's file gets no points for it."""

    asked: list[str] = []       # noqa: RUF012

    def run(self, todo, folders, checks):
        for cell in todo:
            self.asked.append(f"{cell.student} {cell.chapter.number}")
            text = "".join(path.read_text() for path in cells.handed_in(cell.chapter, folders[cell.student]))
            word = Word.WRONG if "wrong" in text else Word.PASSED
            said = "You forgot the root." if word == Word.WRONG else ""
            yield dataclasses.replace(cell, verdicts=tuple(Result(**vars(check), verdict=word, mistake=said)
                                                           for check in checks[cell.chapter.stem]))


class Semester:
    """A class, its files, and the time."""

    def __init__(self, top: Path, monkeypatch):
        self.top, self.out, self._patch = top, top / "out", monkeypatch
        self.write("roster.csv", ROSTER)
        self.write("rules.toml", RULES)
        self.write("term.toml", TERM)
        monkeypatch.setattr(grade, "Jobs", Fair)

    def write(self, name: str, text: str) -> None:
        (self.top / name).parent.mkdir(parents=True, exist_ok=True)
        (self.top / name).write_text(text, "utf-8")

    def gradescope(self, folder: str, *rows: tuple[str, str, dict]) -> None:
        """An export: who handed in, when, and which files."""
        said = ""
        for number, (who, at, files) in enumerate(rows, 1):
            said += f"submission_{number}:\n  :submitters:\n  - :name: x\n    :email: {who}@uni\n  :created_at: {at}\n"
            for stem, text in files.items():
                self.write(f"{folder}/submission_{number}/{stem}.py", text)
        self.write(f"{folder}/submission_metadata.yml", said)

    def at(self, moment: str) -> None:
        self._patch.setattr(terms, "now", lambda: datetime.fromisoformat(moment).timestamp())

    def grade(self, folder: str, *more: str) -> int:
        Fair.asked = []
        return main(["grade", str(self.top / folder), "--out", str(self.out), "--term", str(self.top / "term.toml"),
                     "--roster", str(self.top / "roster.csv"), "--grading", str(self.top / "rules.toml"), "--no-jail",
                     *more])

    def grades(self) -> dict[str, dict[str, str]]:
        with (self.out / "grades.csv").open(encoding="utf-8", newline="") as file:
            return {row["student"]: row for row in csv.DictReader(file)}

    def page(self, name: str) -> str:
        text = re.sub("<style>.*</style>", "", (self.out / name).read_text("utf-8"), flags=re.S)
        return " ".join(re.sub("<[^>]*>", " ", text).split())


@pytest.fixture
def semester(tmp_path, monkeypatch):
    return Semester(tmp_path, monkeypatch)


@pytest.fixture
def week1(semester):
    """Ada was in time, Bob two days late (one and a half), Eve has an extension and handed in nothing yet."""
    semester.gradescope("w1", ("ada", "2026-10-05 21:59:00.123456789 Z", {SHAPES.stem: "x = 1"}),
                        ("bob", "2026-10-07 10:00:00 Z", {SHAPES.stem: "x = 2"}))
    semester.at("2026-10-08T12:00:00+02:00")
    assert semester.grade("w1") == 0
    return semester


# -- a semester --------------------------------------------------------------------------------------

def test_what_is_due_is_graded_and_late_by_the_platform_s_own_time(week1):
    grades = week1.grades()
    assert Fair.asked == ["ada 00", "bob 00"]
    assert grades["ada"] == {"student": "ada", SHAPES.stem: "10", "total": "10", "of": "10", "late": "", "dropped": "",
                             "missing": ""}
    assert (grades["bob"][SHAPES.stem], grades["bob"]["late"], grades["bob"]["of"]) == ("8.1", "00:2", "10")
    assert "eve" not in grades      # hers is not due yet, so it is not missing


def test_the_next_hand_out_goes_into_the_same_folder_and_loses_nothing(week1):
    """Bob is not in the second export, Eve's extension is over, and a new edition's stub came with Ada's next work."""
    week1.write("term.toml", TERM.replace("closes = 2026-10-12", ""))
    week1.gradescope("w2", ("ada", "2026-10-20 16:00:01 Z", {SHAPES.stem: chapters.stub(SHAPES), LINEAR.stem: "y = 1"}),
                     ("eve", "2026-10-19 10:00:00 Z", {LINEAR.stem: "wrong = 1"}))
    week1.at("2026-10-22T12:00:00+02:00")
    assert week1.grade("w2") == 0
    assert Fair.asked == ["ada 03", "eve 03"]
    grades = week1.grades()
    rows = {name: [grades[name][key] for key in (SHAPES.stem, LINEAR.stem, "total", "of", "late", "missing")]
            for name in ("ada", "bob", "eve")}
    assert rows == {"ada": ["10", "10", "20", "30", "03:2", ""],        # a begun day is a day; week 2 has its own rule
                    "bob": ["8.1", "0", "8.1", "30", "00:2", "03"],
                    "eve": ["0", "0", "0", "30", "", "00"]}
    assert week1.grade("w2") == 0 and Fair.asked == [] and week1.grades() == grades


def test_a_page_tells_the_whole_term(week1):
    week1.gradescope("w2", ("ada", "2026-10-20 16:00:01 Z", {LINEAR.stem: "wrong = 1"}),
                     ("bob", "2026-10-19 10:00:00 Z", {LINEAR.stem: "wrong = 2"}))
    week1.at("2026-10-22T12:00:00+02:00")
    week1.grade("w2")
    bob, all_ = week1.page("feedback/bob.html"), week1.page("class.html")
    assert "week 1 (00) Mon 5 Oct 2026, 23:59 8.1 of 10 00: 2 days late, 1.9 points off" in bob
    assert ("2 days late (due Mon 5 Oct 2026, 23:59, handed in Wed 7 Oct 2026, 12:00). Of 10 points points * 0.9 ** "
            "days leaves 8.1.") in bob
    assert "week 3 (05) Mon 2 Nov 2026, 18:00 – to come" in bob and "8.1 of 30 points" in bob
    assert "week 1 (00) Fri 9 Oct 2026, 12:00 (extended for you)" in week1.page("feedback/eve.html")
    assert "week 3 (05) is due Mon 2 Nov 2026, 18:00" in all_
    second, first = all_.index("week 2 (03) due"), all_.index("week 1 (00) due")
    assert second < first       # what was due last comes first
    assert "2 handed in, 1 late, nothing from 1" in all_[second:first]
    assert "Less than 50 % of 03 linear: ada , bob" in all_[second:first]
    assert "2 in 03 You forgot the root. ada , bob" in all_[second:first]
    assert "Late: bob (00 2 days)" in all_[first:] and "Extended: eve until Fri 9 Oct 2026, 12:00" in all_[first:]


def test_what_comes_later_counts_as_late_and_nothing_counts_after_closing(week1, capsys):
    week1.gradescope("again", ("ada", "2026-10-08 10:00:00 Z", {SHAPES.stem: "x = 11"}),
                     ("bob", "2026-10-13 10:00:00 Z", {SHAPES.stem: "x = 22"}),
                     ("eve", "2026-10-12 23:00:00 Z", {SHAPES.stem: "x = 3"}))
    week1.at("2026-10-14T12:00:00+02:00")
    assert week1.grade("again") == 1        # Eve's was left out
    assert Fair.asked == ["ada 00"] and "x = 22" not in (week1.out / f"submissions/bob/{SHAPES.stem}.py").read_text()
    grades = week1.grades()
    assert (grades["ada"]["late"], grades["bob"]["late"], grades["eve"]["missing"]) == ("00:3", "00:2", "00")
    said = " ".join(capsys.readouterr().out.split())
    assert "bob: ex00_shapes.py stays as it was: what came Tue 13 Oct 2026, 12:00 came after week 1 had closed" in said
    assert "came after week 1 had closed" in week1.page("feedback/eve.html")


def test_what_is_not_due_yet_waits_and_was_in_time(semester):
    """Eve's extension is not over; all wait for week 2. What they handed in early is in no later export."""
    semester.gradescope("w1", ("eve", "2026-10-06 10:00:00 Z", {SHAPES.stem: "x = 1", LINEAR.stem: "y = 1"}),
                        ("bob", "2026-10-05 10:00:00 Z", {SHAPES.stem: "x = 1"}))
    semester.at("2026-10-08T12:00:00+02:00")
    assert semester.grade("w1") == 0 and Fair.asked == ["bob 00"]
    semester.gradescope("w2", ("bob", "2026-10-19 10:00:00 Z", {LINEAR.stem: "y = 1"}))
    semester.at("2026-10-20T12:00:00+02:00")
    assert semester.grade("w2") == 0 and Fair.asked == ["eve 00", "bob 03", "eve 03"]
    assert [semester.grades()["eve"][key] for key in ("total", "late", "missing")] == ["30", "", ""]


def test_an_extension_moves_the_closing_too(semester):
    semester.write("term.toml", TERM.replace("2026-10-09T12:00:00", "2026-10-20"))
    semester.gradescope("w1", ("eve", "2026-10-19 10:00:00 Z", {SHAPES.stem: "x = 3"}))
    semester.at("2026-10-21T12:00:00+02:00")
    assert semester.grade("w1", "--chapters", "0") == 0 and semester.grades()["eve"][SHAPES.stem] == "10"


def test_an_extension_given_afterwards_takes_back_what_was_missing(week1):
    week1.write("term.toml", TERM.replace("eve = 2026-10-09T12:00:00", "eve = 2026-10-06, bob = 2026-10-08"))
    week1.grade("w1")
    assert week1.grades()["bob"]["late"] == "" and week1.grades()["eve"]["missing"] == "00"
    week1.write("term.toml", TERM)
    week1.grade("w1")
    assert week1.grades()["bob"]["late"] == "00:2" and "eve" not in week1.grades()


def test_an_older_export_replaces_nothing(week1):
    week1.gradescope("newer", ("bob", "2026-10-08 09:00:00 Z", {SHAPES.stem: "x = 22"}))
    week1.grade("newer")
    assert week1.grades()["bob"]["late"] == "00:3"
    week1.grade("w1")
    assert Fair.asked == [] and week1.grades()["bob"]["late"] == "00:3"
    # The same file in a later export came when it came first.
    week1.at("2026-10-12T12:00:00+02:00")
    week1.gradescope("newest", ("bob", "2026-10-11 09:00:00 Z", {SHAPES.stem: "x = 22"}))
    week1.grade("newest")
    assert Fair.asked == [] and week1.grades()["bob"]["late"] == "00:3"


def test_the_lowest_does_not_count_and_one_always_does(week1):
    week1.write("term.toml", "drop = 1\n" + TERM)
    week1.grade("w1")
    assert [week1.grades()[name]["total"] for name in ("ada", "bob")] == ["10", "8.1"]
    week1.gradescope("w2", ("ada", "2026-10-19 10:00:00 Z", {LINEAR.stem: "wrong"}))
    week1.at("2026-10-22T12:00:00+02:00")
    week1.grade("w2")
    rows = {name: [row[key] for key in ("total", "of", "dropped")] for name, row in week1.grades().items()}
    assert rows["ada"] == ["10", "10", "week 2"] and rows["bob"] == ["8.1", "10", "week 2"]
    said = json.loads((week1.out / "results/ada.json").read_text("utf-8"))
    assert said["score"] == 10 and said["output"].startswith("Does not count: week 2.")
    assert "does not count, as the lowest" in week1.page("feedback/ada.html")


# -- nothing of it is in the way of what there was -------------------------------------------------

def test_decisions_canvas_and_a_regrade_go_on_to_work(week1, tmp_path):
    week1.write("overrides.csv", "student,chapter,points,reason\nbob,0,5,appeal\n")
    week1.write("rules.toml", 'overrides = "overrides.csv"\n' + RULES)
    template = TEMPLATE.replace("Linear 03", "Shapes 00").replace(",1,u1,ghopper", ",2,u1,bob")
    week1.write("canvas.csv", template.replace(",2,u2,ada", ",1,u2,ada"))
    assert week1.grade("w1", "--canvas", str(tmp_path / "canvas.csv"), "--students", "bob") == 0
    assert Fair.asked == [] and week1.grades()["bob"][SHAPES.stem] == "4.05"
    filled = [line.split(",")[-3] for line in (week1.out / "canvas.csv").read_text().splitlines()]
    assert filled[2:4] == ["9.72", "24"]      # of 24 there, where 10 are here
    said = json.loads((week1.out / "results/bob.json").read_text("utf-8"))
    assert said["score"] == 4.05 == pytest.approx(sum(test["score"] for test in said["tests"]))
    assert main(["grade", "--regrade", str(week1.out / "manifest.json"), "--no-jail", "--students", "bob"]) == 0
    assert Fair.asked[-1:] == ["bob 00"] and week1.grades()["bob"][SHAPES.stem] == "4.05"
    manifest = json.loads((week1.out / "manifest.json").read_text("utf-8"))
    assert main(["grade", "--resume", "--out", str(week1.out), "--no-jail"]) == 0       # it is a term's still
    assert week1.grades()["bob"]["late"] == "00:2"
    # What an earlier version wrote knows of no term, and is regraded all the same.
    manifest["rules"] = {name: value for name, value in manifest["rules"].items()
                         if name not in ("term", "arrived", "chapter_days")}
    del manifest["options"]["term"]
    (week1.out / "manifest.json").write_text(json.dumps(manifest))
    assert main(["grade", "--regrade", str(week1.out / "manifest.json"), "--no-jail", "--grading",
                 str(ROOT / "grading.toml")]) == 0


def test_a_regrade_takes_options_that_are_given_now_and_a_look_says_who_is_unknown(week1, tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    assert main(["grade", "--regrade", str(week1.out / "manifest.json"), "--no-jail", "--timeout", "3",
                 "--hidden-from", str(tmp_path / "mine")]) == 0
    kept = json.loads((week1.out / "manifest.json").read_text("utf-8"))["options"]
    assert (kept["timeout"], kept["hidden_from"]) == (3, str(tmp_path / "mine")) and kept["chapters"] == [SHAPES.stem]
    week1.write("term.toml", TERM.replace("eve =", "nobody ="))
    capsys.readouterr()
    assert week1.grade("w1", "--dry-run") == 0
    assert "names nobody here: nobody" in capsys.readouterr().out


def test_a_run_that_was_interrupted_goes_on_with_the_same_command(semester, monkeypatch):
    semester.gradescope("w1", ("ada", "2026-10-06 10:00:00 Z", {SHAPES.stem: "x = 1"}))
    semester.at("2026-10-08T12:00:00+02:00")

    class Interrupted(Fair):
        def run(self, *_):
            raise KeyboardInterrupt

    monkeypatch.setattr(grade, "Jobs", Interrupted)
    assert semester.grade("w1") == 130
    monkeypatch.setattr(grade, "Jobs", Fair)
    semester.at("2026-10-30T12:00:00+01:00")        # what came then is not as late as that
    assert semester.grade("w1", "--chapters", "0") == 0 and semester.grades()["ada"]["late"] == "00:1"


def test_who_has_left_the_roster_counts_nowhere(week1, capsys):
    week1.write("roster.csv", ROSTER.replace("Bob,bob,2,bob@uni\n", ""))
    week1.gradescope("w1b", ("ada", "2026-10-05 10:00:00 Z", {SHAPES.stem: "x = 1"}))
    assert week1.grade("w1b") == 0 and "bob" not in week1.grades()
    assert "no longer handed in: bob" in capsys.readouterr().out
    assert (week1.out / f"submissions/bob/{SHAPES.stem}.py").exists()


# -- before anything is asked ----------------------------------------------------------------------

def _tree(top: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in top.rglob("*") if path.is_file()}


def test_a_dry_run_says_who_is_late_and_leaves_no_trace(week1, capsys):
    week1.gradescope("w2", ("ada", "2026-10-20 17:00:00 Z", {SHAPES.stem: "x = 9", LINEAR.stem: "y = 1"}))
    week1.at("2026-10-22T12:00:00+02:00")
    before, _ = _tree(week1.top), capsys.readouterr()
    assert week1.grade("w2", "--dry-run") == 0 and not Fair.asked
    assert _tree(week1.top) == before
    said = capsys.readouterr().out.splitlines()
    assert said == [
        "ada: ex00_shapes.py stays as it was: what came Tue 20 Oct 2026, 19:00 came after week 1 had closed",
        "2 are as they were graded, 1 are to be asked.",
        "week 1 (00): due Mon 5 Oct 2026, 23:59, 16 days 12 hours ago; 2 of 3 handed it in",
        "    late: bob 2 days (00)", "    nothing came from: eve",
        "week 2 (03): due Mon 19 Oct 2026, 18:00, 2 days 18 hours ago; 1 of 3 handed it in",
        "    late: ada 2 days (03)", "    nothing came from: bob, eve", "    to be asked: ada (03)",
        "week 3 (05): due Mon 2 Nov 2026, 18:00, in 11 days 7 hours; 0 of 3 handed it in",
        "Nothing was asked, and nothing was written."]


def _hand_in_a_link(week1) -> None:
    """In week 2 Bob hands in what is refused, and nobody else anything."""
    week1.gradescope("w2", ("bob", "2026-10-19 10:00:00 Z", {LINEAR.stem: "y = 1"}))
    handed = week1.top / "w2" / "submission_1" / f"{LINEAR.stem}.py"
    handed.unlink()
    handed.symlink_to("/etc/passwd")
    week1.at("2026-10-22T12:00:00+02:00")


def test_a_look_at_one_chapter_tells_of_its_hand_out_and_what_was_refused(week1, capsys):
    _hand_in_a_link(week1)
    capsys.readouterr()
    assert week1.grade("w2", "--dry-run", "--chapters", "3") == 0
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if "week" in line] == [
        "week 2 (03): due Mon 19 Oct 2026, 18:00, 2 days 18 hours ago; 0 of 3 handed it in"]
    assert "    nothing came from: ada, eve" in said
    assert any(line.startswith("    what came was refused: bob (") and "link" in line for line in said), said


def test_a_refusal_is_told_until_the_student_hands_in_again(week1, capsys):
    """Whoever runs the term again from another folder is told of it once more."""
    _hand_in_a_link(week1)
    week1.grade("w2")
    week1.gradescope("w3", ("ada", "2026-10-19 10:00:00 Z", {LINEAR.stem: "y = 2"}))
    capsys.readouterr()
    week1.grade("w3")
    assert any("what came was refused: bob (" in line for line in capsys.readouterr().out.splitlines())
    week1.gradescope("w4", ("bob", "2026-10-20 10:00:00 Z", {LINEAR.stem: "y = 3"}))
    week1.grade("w4")
    assert "refused" not in capsys.readouterr().out


def test_of_two_hand_outs_alike_the_one_worth_more_does_not_count():
    """Nobody has less because a smaller one was as low."""
    handouts = tuple(Handout(name, (chapter,), 0.0, None, "", {})
                     for name, chapter in (("small", SHAPES), ("large", LINEAR)))
    book = Gradebook([], {}, Grading(term=Term("UTC", 1, False, handouts)))
    book.of = lambda student, handout: Score(0.0, {"small": 5.0, "large": 20.0}[handout.name])
    assert [handout.name for handout in book.dropped("ada")] == ["large"]


def test_before_the_first_deadline_there_is_only_a_dry_run(semester, capsys):
    semester.gradescope("w1", ("ada", "2026-10-01 10:00:00 Z", {SHAPES.stem: "x = 1"}))
    semester.at("2026-10-02T12:00:00+02:00")
    assert semester.grade("w1", "--dry-run") == 0 and not semester.out.exists()
    assert "extended: eve until Fri 9 Oct 2026, 12:00" in capsys.readouterr().out
    assert semester.grade("w1") == 2 and not semester.out.exists()
    assert "nothing is due yet: week 1 is due Mon 5 Oct 2026, 23:59" in capsys.readouterr().err


@pytest.mark.parametrize("arguments, words", [
    (["--dry-run"], "--dry-run goes with --term"), (["--shard", "1/2", "--seed", "1", "--term"], "do not go together")])
def test_what_does_not_go_together_is_said(arguments, words, semester, tmp_path, capsys):
    semester.write("in/ada/ex00_shapes.py", "x = 1")
    more = [str(tmp_path / "term.toml")] if arguments[-1] == "--term" else []
    assert main(["grade", str(tmp_path / "in"), "--out", str(tmp_path / "out"), *arguments, *more]) == 2
    assert words in capsys.readouterr().err and not (tmp_path / "out").exists()


# -- when it came ------------------------------------------------------------------------------------

def test_canvas_says_late_and_not_how_much_and_a_table_may(semester, capsys):
    semester.write("c/lovelaceada_LATE_1_11_ex00_shapes.py", "x = 1")
    semester.write("c/bob_LATE_2_11_ex00_shapes.py", "x = 2")
    semester.write("c/bob_2_12_ex00_shapes-1.py", "x = 2")          # the mark of what was replaced is not of this
    semester.write("c/eve_3_11_ex00_shapes.py", "x = 3")
    semester.write("c/eve_LATE_3_12_ex00_shapes-1.py", "x = 3")
    semester.at("2026-10-08T12:00:00+02:00")
    semester.write("term.toml", TERM.replace("extensions", "# extensions"))
    assert semester.grade("c") == 0
    said = capsys.readouterr().out
    assert "late, and nobody says by how much (late.csv may): ada (00), eve (00)\n" in said
    assert "nobody says when it came: bob" in said
    assert [semester.grades()[name]["late"] for name in ("ada", "bob", "eve")] == ["00:?", "", "00:?"]
    assert "Nobody says by how much, and nothing was taken off" in semester.page("feedback/ada.html")
    semester.write("late.csv", "student,chapter,days\nada,0-3,1\nbob,shapes,0.5\neve,0,0\n")
    semester.write("rules.toml", RULES + 'days = "late.csv"\n')
    assert semester.grade("c") == 0 and Fair.asked == []
    assert [semester.grades()[name][SHAPES.stem] for name in ("ada", "bob")] == ["9", "9.4868"]
    assert "late, and nobody" not in capsys.readouterr().out


def test_what_has_no_time_and_changes_after_it_was_due_is_late(semester):
    """As in folders: what was read after the deadline and is another now came after that."""
    semester.write("f/bob/ex00_shapes.py", "x = 1")
    semester.at("2026-10-07T12:00:00+02:00")
    semester.grade("f")
    assert semester.grades()["bob"]["late"] == ""
    semester.write("f/bob/ex00_shapes.py", "x = 2")
    semester.at("2026-10-11T12:00:00+02:00")
    semester.grade("f")
    assert Fair.asked == ["bob 00"] and semester.grades()["bob"]["late"] == "00:2"
    semester.write("f/bob/ex00_shapes.py", "x = 3")
    semester.at("2026-10-13T12:00:00+02:00")
    assert semester.grade("f") == 0 and not Fair.asked      # it closed yesterday


def test_the_time_of_a_file_counts_only_if_asked_for(semester):
    semester.write("f/bob/ex00_shapes.py", "x = 1")
    at = datetime.fromisoformat("2026-10-06T12:00:00+02:00").timestamp()
    os.utime(semester.top / "f/bob/ex00_shapes.py", (at, at))
    semester.at("2026-10-08T12:00:00+02:00")
    for asked, late in (("", ""), ("file_times = true\n", "00:1"), ("", "")):
        semester.write("term.toml", asked + TERM)
        semester.grade("f")
        assert semester.grades()["bob"]["late"] == late


@pytest.mark.parametrize("at, late", [(2 ** 40, "00:3"), (-2 ** 40, "")])
def test_a_time_that_cannot_be_is_none_to_end_a_run(at, late, semester):
    semester.write("term.toml", "file_times = true\n" + TERM)
    semester.write("f/bob/ex00_shapes.py", "x = 1")
    os.utime(semester.top / "f/bob/ex00_shapes.py", (at, at))
    semester.at("2026-10-08T12:00:00+02:00")
    assert semester.grade("f") == 0 and semester.grades()["bob"]["late"] == late
    assert "handed in" in semester.page("class.html")


def _git(folder: Path, *arguments: str, at: str = "2026-10-01T10:00:00Z") -> None:
    subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@y", *arguments], cwd=folder, check=True,
                   capture_output=True, env={**os.environ, "GIT_COMMITTER_DATE": at, "GIT_AUTHOR_DATE": at})


def _clone(folder: Path) -> None:
    """A file that was committed in time, and one that was not."""
    (folder / "exercises").mkdir(parents=True)
    _git(folder, "init", "-q")
    for file, at in ((SHAPES, "2026-10-01T10:00:00Z"), (LINEAR, "2026-10-20T10:00:00Z")):
        (folder / "exercises" / file.exercise.name).write_text("x = 1")
        _git(folder, "add", ".")
        _git(folder, "commit", "-q", "-m", "x", at=at)


@pytest.mark.parametrize("packed", [False, True])
def test_a_clone_says_when_each_chapter_was_committed(packed, semester):
    _clone(semester.top / "g/week-ada")
    if packed:
        _git(semester.top / "g/week-ada", "gc", "-q")
    semester.at("2026-10-22T12:00:00+02:00")
    assert semester.grade("g") == 0 and semester.grades()["ada"]["late"] == "03:1"


def test_a_clone_that_is_hostile_runs_nothing(tmp_path):
    clone, marks = tmp_path / "in" / "ada", tmp_path / "marks"
    _clone(clone)
    marks.mkdir()
    (tmp_path / "evil").write_text(f"#!/bin/sh\ntouch {marks}/$$\n")
    (tmp_path / "evil").chmod(0o755)
    with (clone / ".git/config").open("a") as config:
        config.write(f"[log]\nshowSignature = true\n[gpg]\nprogram = {tmp_path}/evil\n[core]\nfsmonitor = "
                     f"{tmp_path}/evil\npager = {tmp_path}/evil\nsshCommand = {tmp_path}/evil\n")
    signed = subprocess.run(["git", "cat-file", "commit", "HEAD"], cwd=clone, capture_output=True, check=True).stdout
    head, _, rest = signed.partition(b"\n\n")
    signed = head + b"\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\n" + rest
    made = subprocess.run(["git", "hash-object", "-t", "commit", "-w", "--stdin"], cwd=clone, input=signed, check=True,
                          capture_output=True).stdout.decode().strip()
    (clone / ".git/HEAD").write_text(made + "\n")
    subprocess.run(["git", "log", "-1"], cwd=clone, capture_output=True, check=True)
    assert list(marks.iterdir())        # git as it is asked everywhere does run it
    for mark in marks.iterdir():
        mark.unlink()
    (student,), _ = collect.collect(tmp_path / "in", tmp_path / "out")
    assert student.times[LINEAR.exercise.name][1] == "git" and not list(marks.iterdir())


@pytest.mark.parametrize("head", ["ref: refs/heads/../../../../x\n", "ref: refs/heads/none\n", "--output=/x\n", ""])
def test_a_clone_that_is_broken_has_no_times_and_its_files_all_the_same(head, tmp_path):
    _clone(tmp_path / "in/ada")
    (tmp_path / "in/ada/.git/HEAD").write_text(head)
    (student,), _ = collect.collect(tmp_path / "in", tmp_path / "out")
    assert student.times[LINEAR.exercise.name][1] == "file" and not student.refused


def test_gradescope_s_times(tmp_path):
    (tmp_path / "m.yml").write_text("".join(
        f"submission_{n}:\n  :submitters:\n  - :email: a@b\n  :created_at: {at}\n" for n, at in enumerate((
            "2026-10-05 10:00:00.000000000 Z", "2026-10-05 03:00:00 -0700", "'2026-10-05T10:00:00Z'", "2026-10-05",
            "2026-10-05 10:00:00", "soon", "[1, 2]"))))
    right = datetime.fromisoformat("2026-10-05T10:00:00+00:00").timestamp()
    said = [entry["at"] for entry in gradescope.people(tmp_path / "m.yml").values()]
    assert said == [right, right, right, None, None, None, None]


def test_a_helper_counts_for_the_chapters_that_import_it(semester):
    """A changed helper asks those again, and makes them late; the others stay as they are."""
    files = {SHAPES.stem: "from .mine import x", LINEAR.stem: "y = 1", "mine": "x = 1", "other": "z = 1"}
    semester.gradescope("a", ("ada", "2026-10-05 10:00:00 Z", files))
    semester.at("2026-10-20T12:00:00+02:00")
    semester.grade("a")
    assert Fair.asked == ["ada 00", "ada 03"] and semester.grades()["ada"]["late"] == ""
    semester.gradescope("b", ("ada", "2026-10-06 10:00:00 Z", {**files, "mine": "x = 2", "other": "z = 2"}))
    semester.grade("b")
    assert Fair.asked == ["ada 00"] and semester.grades()["ada"]["late"] == "00:1"
    # An older export brings no older helper back, and once the chapter has closed, no helper changes what it was.
    for name, at, other in (("a", "2026-10-05 10:00:00 Z", "2"), ("c", "2026-10-13 10:00:00 Z", "3")):
        semester.gradescope(name, ("ada", at, {**files, SHAPES.stem: f"from .mine import x  # {name}", "mine": "x = 3",
                                               "other": f"z = {other}"}))
        semester.grade(name)
        assert Fair.asked == [] and (semester.out / "submissions/ada/mine.py").read_text() == "x = 2"
        assert (semester.out / "submissions/ada/other.py").read_text() == f"z = {other}"


# -- the file ------------------------------------------------------------------------------------------

def test_a_term_s_file(tmp_path):
    (tmp_path / "term.toml").write_text(TERM)
    term = terms.read(tmp_path / "term.toml")
    first, second, third = term.handouts
    assert [term.when(handout.due) for handout in term.handouts] == [
        "Mon 5 Oct 2026, 23:59", "Mon 19 Oct 2026, 18:00", "Mon 2 Nov 2026, 18:00"]
    assert third.due == datetime.fromisoformat("2026-11-02T17:00:00+00:00").timestamp()
    assert first.days("ada", first.due) == 0 and first.days("ada", first.due + 1) == 1
    assert first.days("eve", first.due + 3 * terms.DAY) == 0 and first.days("eve", first.due + 4 * terms.DAY) == 1
    assert first.chapters == (SHAPES,) and term.of(LINEAR) is second and term.of(chapters.find("1")) is None


@pytest.mark.parametrize("old, new, words", [
    ('zone = "Europe/Berlin"', "", "zone must name a time zone of this machine"),
    ("Europe/Berlin", "Europe/Atlantis", "got 'Europe/Atlantis'"), ("Europe/Berlin", "../../etc", "zone must name"),
    ('zone = "Europe/Berlin"', 'zone = "UTC"\ndrop = 3', "drop must be a number of hand-outs from 0 to 2, got 3"),
    ('zone = "Europe/Berlin"', 'zone = "UTC"\nfile_times = 1', "file_times must be true or false, got 1"),
    ("closes =", "close =", "week 1: close has no meaning here; known are chapters, closes, due"),
    ("due = 2026-10-05\n", 'due = "2026-10-05"\n', "week 1: due must be a day or a time without quotes"),
    ("due = 2026-10-05\n", "", "week 1: due must be a day or a time"),
    ("eve = 2026-10-09T12:00:00", "eve = 3", "week 1: eve's extension must be a day"),
    ("eve = 2026-10-09T12:00:00", "eve = 2026-10-04", "week 1: eve's extension is before it is due"),
    ("closes = 2026-10-12", "closes = 2026-10-04", "week 1: closes is before it is due"),
    ('chapters = "3"', 'chapters = "0-3"', "ex00_shapes is in it twice"),
    ('name = "week 2"', 'name = "week 1"', "week 1 is in it twice"),
    ('chapters = "3"', 'chapters = "99"', "there is no chapter '99'"),
    ('chapters = "3"', "chapters = 3", "week 2: chapters must be a list"),
    ("5 * days", "5 * weeks", "has no value: 'weeks' is not arithmetic on"),
    ("[[handout]]", "[handouts]", "term.toml: "), ("= ", "", "term.toml: ")])
def test_a_term_s_file_that_means_nothing_is_refused(old, new, words, tmp_path):
    assert old in TERM
    (tmp_path / "term.toml").write_text(TERM.replace(old, new))
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        terms.read(tmp_path / "term.toml")
    assert str(tmp_path / "term.toml") in str(error.value)


def test_a_term_counts_days_by_chapter(tmp_path):
    (tmp_path / "late.csv").write_text("student,days\nada,1\n")
    (tmp_path / "g.toml").write_text('[late]\nformula = "points"\ndays = "late.csv"\n')
    (tmp_path / "term.toml").write_text(TERM)
    assert grading.read(tmp_path / "g.toml").days == {"ada": 1}
    with pytest.raises(ValueError, match="late.csv: a term counts days by chapter: add a column chapter"):
        grading.read(tmp_path / "g.toml", terms.read(tmp_path / "term.toml"))
    (tmp_path / "late.csv").write_text("student,chapter,days\nada,,1\n")
    with pytest.raises(ValueError, match="line 2: there is no chapter ''"):
        grading.read(tmp_path / "g.toml")


def test_the_term_in_the_instructors_page_is_one(tmp_path):
    shown = re.search(r"```toml\n(zone.*?)```", (ROOT / "INSTRUCTORS.md").read_text("utf-8"), re.S)[1]
    (tmp_path / "term.toml").write_text(shown)
    assert len(terms.read(tmp_path / "term.toml").handouts) == 2
