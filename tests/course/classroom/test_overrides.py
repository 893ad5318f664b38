"""What a person decides counts everywhere, and stays."""

import json
import re
import xml.etree.ElementTree as xml

import pytest

from grader.classroom.output import canvas, exports, grading, pages
from grader.classroom.output.gradebook import Gradebook
from grader.classroom.output.grading import Grading
from grader.classroom.output.overrides import Override
from grader.classroom.run.cells import Cell
from grader.course import chapters
from grader.front.results import Asked, Result, from_json, to_json
from grader.judge.verdict import Word

LINEAR, SHAPES = chapters.find("linear"), chapters.find("shapes")
CHECKS = [Asked(f"test_{word}", "tests/test_ex03_linear.py", False, 1.0, "A rule.", "") for word in ("passed", "wrong")]
MANIFEST = {"version": "1", "commit": "", "clean": True, "torch": "", "python": "", "seed": 0, "layers": {},
            "options": {"walls": True}, "begun": "2026-11-22T08:00", "students": {}, "refused": {}, "not_asked": []}
HEAD = "student,chapter,points,extra,excused,comment,reason\n"


def _book(rows: str, tmp_path) -> Gradebook:
    """ada and bob, each with 1 of 2 points in 00 and in 03, and these decisions."""
    (tmp_path / "overrides.csv").write_text(HEAD + rows)
    (tmp_path / "g.toml").write_text('overrides = "overrides.csv"\n')
    verdicts = tuple(Result(**vars(check), verdict=Word(check.check[5:])) for check in CHECKS)
    cells = [Cell(student, chapter, "graded", "", {}, 0, "cpu", 10.0, True, 0.0, verdicts)
             for student in ("ada", "bob") for chapter in (SHAPES, LINEAR)]
    return Gradebook(cells, {SHAPES.stem: CHECKS, LINEAR.stem: CHECKS}, grading.read(tmp_path / "g.toml"))


@pytest.mark.parametrize("rows, csv_row, total, of", [
    ("ada,3,2,,,,appeal granted\n", "ada,1,2,3,", 3, 4),
    ("ada,linear,,0.5,,well written,bonus\n", "ada,1,1.5,2.5,", 2.5, 4),
    ("ada,ex03_linear,,,yes,,ill\n", "ada,1,EX,1,", 1, 2), ("ada,03,0,,,see me,copied\n", "ada,1,0,1,", 1, 4),
    ("ada,3,2,1,,,both\n", "ada,1,3,4,", 4, 4), ("ada,3,,,,see me,\n", "ada,1,1,2,", 2, 4)])
def test_a_decision_counts_in_every_export(rows, csv_row, total, of, tmp_path):
    book = _book(rows, tmp_path)
    assert exports.grades(book).splitlines()[2:] == [csv_row, "bob,1,1,2,"]
    said = exports.gradescope(book, "ada")
    assert said["score"] == total == pytest.approx(sum(test["score"] for test in said["tests"]))
    assert of == pytest.approx(sum(test["max_score"] for test in said["tests"]))
    names = [case.get("name") for case in xml.fromstring(exports.junit(book)).iter("testcase")]
    assert names.count("decided by a person") == (0 if "see me,\n" in rows else 1)
    template = tmp_path / "canvas.csv"
    template.write_text("Student,ID,SIS Login ID,Linear 03 (7)\nPoints Possible,,,2\nAda,1,ada,\nBob,2,bob,\n")
    canvas.Template.read(template).fill(tmp_path / "filled.csv", book)
    filled = (tmp_path / "filled.csv").read_text().splitlines()
    assert filled[2] == f"Ada,1,ada,{csv_row.split(',')[2]}" and filled[3] == "Bob,2,bob,1"


def test_a_decision_is_on_the_student_s_page_and_its_reason_on_the_instructor_s(tmp_path):
    book = _book("ada,3,2,,,Your proof was right.,appeal of 3 May\n", tmp_path)
    pages.write(tmp_path / "out", book, MANIFEST)
    ada, bob, all_ = (" ".join(re.sub("<[^>]*>", " ", (tmp_path / "out" / name).read_text("utf-8")).split())
                      for name in ("feedback/ada.html", "feedback/bob.html", "class.html"))
    assert "Decided by a person 2 points, where the checks gave 1. Your proof was right." in ada
    assert "appeal of 3 May" not in ada and "Decided by a person" not in bob and "3 of 4 points" in ada
    assert "03 2 points appeal of 3 May" in all_


def test_who_is_excused_is_said_in_the_table_of_the_class(tmp_path):
    pages.write(tmp_path / "out", _book("bob,0,,,yes,,ill\n", tmp_path), MANIFEST)
    text = (tmp_path / "out" / "class.html").read_text("utf-8")
    assert "bob 50 excused 50" in " ".join(re.sub("<[^>]*>", " ", text).split())


def test_decisions_are_kept_in_the_manifest(tmp_path):
    rules = _book("ada,3,2,,,,appeal\nbob,0,,,yes,,ill\n", tmp_path).grading
    assert rules.override("ada", LINEAR) == Override(2.0, reason="appeal")
    assert rules.override("ada", SHAPES) == Override()
    assert from_json(Grading, json.loads(json.dumps(to_json(rules)))) == rules


@pytest.mark.parametrize("text, words", [
    ("student,grade\nada,1\n", "the column 'grade' has no meaning"),
    (HEAD + "ada,99,1,,,,why\n", "line 2: there is no chapter '99'"),
    (HEAD + "ada,3,1,,,,\n", "a decision on points has a reason"), (HEAD + "ada,3,,,,,why\n", "it decides nothing"),
    (HEAD + "ada,3,much,,,,why\n", "points must be a number from 0 up, got 'much'"),
    (HEAD + "ada,3,-1,,,,why\n", "points must be a number from 0 up"), (HEAD + "ada,3,,inf,,,why\n", "extra must be"),
    (HEAD + "ada,3,,,maybe,,why\n", "excused must be yes or no"), (HEAD + ",3,1,,,,why\n", "student is empty"),
    (HEAD + "ada,3,1,,,,why\nada,linear,2,,,,why\n", "line 3: ada has a line for linear already")])
def test_a_file_that_means_nothing_is_refused_by_its_line(text, words, tmp_path):
    (tmp_path / "overrides.csv").write_text(text)
    (tmp_path / "g.toml").write_text('overrides = "overrides.csv"\n')
    with pytest.raises(ValueError, match=re.escape(words)):
        grading.read(tmp_path / "g.toml")
