"""Canvas' gradebook with columns and rows as people have them: titles of lessons, free words, addresses for logins."""

import csv
from pathlib import Path

import pytest

from grader.classroom.intake.roster import Person, Roster
from grader.classroom.output import canvas, grading
from grader.classroom.output.columns import TOTAL, columns
from grader.classroom.output.gradebook import Gradebook
from grader.classroom.output.grading import Grading
from grader.classroom.run.cells import Cell
from grader.course import chapters
from grader.front.results import Asked, Result
from grader.judge.verdict import Word

ALL = chapters.chapters()
CHECK = Asked("test_x", "tests/test_ex05_softmax.py", False, 1.0, "A rule.", "")


def _taken(*titles: str, given: dict[str, str] | None = None) -> tuple[list[str], str]:
    """(what each of these columns takes, what is said)."""
    found, said = columns(["Student", "ID", *titles], given or {}, ALL)
    return [found.get(number, "") for number in range(2, 2 + len(titles))], "\n".join(said)


@pytest.mark.parametrize("title, stem", [
    ("Feed-forward 08 (1)", "ex08_feedforward"), ("feedforward (1)", "ex08_feedforward"),
    ("Week 3: Softmax (12345)", "ex05_softmax"), ("Lab 5 – Softmax (7)", "ex05_softmax"),
    ("The whole model (2)", "ex13_transformer"), ("Transformer (2)", "ex13_transformer"),
    ("HW 4: flash attention, part 1 (2)", "ex17_flash_attention"), ("Grouped-query attention (3)",
                                                                     "ex10_grouped_query_attention"),
    ("Chapter 3 (4)", "ex03_linear"), ("ex03_linear (4)", "ex03_linear"), ("Block (3)", "ex12_block"),
    ("Week 9: pretrained weights (1)", "ex16_pretrained"), ("Participation (2)", ""), ("Pretraining essay (2)", ""),
    ("Week 3 (2)", ""), ("Softmax", ""), ("Attention and softmax (9)", "")])
def test_a_column_is_known_by_what_people_call_a_chapter(title, stem):
    assert _taken(title, "Attendance (99)", "Quiz (98)")[0] == [stem, "", ""]


def test_a_single_column_takes_the_total_unless_it_is_another_chapters():
    for title, what in (("Homework (1)", {2: TOTAL}), ("Softmax 05 (1)", {}), ("Week 3: Softmax (1)", {}),
                        ("Chapter 5 (1)", {}), ("Week 2: linear (1)", {2: "ex03_linear"})):
        assert columns(["Student", "ID", title], {}, [chapters.find("linear")])[0] == what, title


def test_what_was_guessed_and_what_is_not_clear_is_said_once():
    taken, said = _taken("Week 3: Softmax (1)", "Linear 03 (2)", "Linear, the essay (3)", "RoPE quiz (4)",
                         "RoPE lab (5)", "Attention and softmax (6)", "Attendance (7)")
    assert taken == ["", "ex03_linear", "", "", "", "", ""]
    assert said.count("'Week 3: Softmax (1)' and 'Attention and softmax (6)' are named for 05 softmax") == 1
    assert said.count("'RoPE quiz (4)' and 'RoPE lab (5)' are named for 07 rope, and none is filled in: [canvas]") == 1
    assert "'Attendance (7)'" in said and "no column takes 00 shapes, 01 tokens" in said
    assert "03 linear" not in said
    assert "'Week 3: Softmax (1)' is taken for 05 softmax" in _taken("Week 3: Softmax (1)", "Attendance (7)")[1]


def test_two_strict_names_of_a_chapter_are_not_settled_by_a_freer_look():
    assert _taken("Softmax 05 (1)", "Chapter 5 (2)")[0] == ["", ""]


def test_the_table_says_the_rest():
    given = {"ex05_softmax": "Week 3: the exponential", "ex03_linear": "Softmax (2)", TOTAL: "Homework (9)",
             "ex07_rope": "Angles"}
    taken, said = _taken("week 3:  the Exponential (1)", "Softmax (2)", "Homework (8)", "Homework (9)", "Tokens (4)",
                         given=given)
    assert taken == ["ex05_softmax", "ex03_linear", "", TOTAL, "ex01_tokens"]
    assert "ex07_rope = 'Angles', and no column is called that" in said
    assert "2 columns are: add the number, such as 'Homework (8)'" in _taken(
        "Homework (8)", "Homework (9)", given={TOTAL: "Homework"})[1]


def test_the_table_stands_in_grading_toml(tmp_path):
    (tmp_path / "g.toml").write_text('[canvas]\n5 = "Week 3"\ntotal = "Homework"\n')
    assert grading.read(tmp_path / "g.toml").canvas == {"ex05_softmax": "Week 3", "total": "Homework"}
    for wrong, words in (('[canvas]\n5 = 3\n', "canvas.5 must be the title of a column, got 3"),
                         ('[canvas]\nnone = "x"\n', "there is no chapter 'none'")):
        (tmp_path / "g.toml").write_text(wrong)
        with pytest.raises(ValueError, match=words):
            grading.read(tmp_path / "g.toml")


BOOK = """\
Student,ID,SIS User ID,SIS Login ID,Week 3: Softmax (12)
    Points Possible,,,,1
"Lovelace, Ada",1,u1,alovelace10@uni.edu,
"José García",2,u2,jgarcia@uni.edu,
"Smith, Anna",3,u3,asmith1@uni.edu,
"Smith, Anna",4,u4,asmith2@uni.edu,
"""


def _filled(tmp_path: Path, *students: str, roster: Roster | None = None) -> tuple[list[str], str]:
    (tmp_path / "canvas.csv").write_text(BOOK, "utf-8")
    verdicts = (Result(**vars(CHECK), verdict=Word.PASSED),)
    softmax = chapters.find("softmax")
    book = Gradebook([Cell(student, softmax, "graded", "", {}, 0, "cpu", 10.0, True, 0.0, verdicts)
                      for student in students], {softmax.stem: [CHECK]}, Grading())
    said = canvas.Template.read(tmp_path / "canvas.csv", roster).fill(tmp_path / "filled.csv", book)
    rows = list(csv.reader((tmp_path / "filled.csv").open(encoding="utf-8")))[2:]
    return [row[1] for row in rows if row[4] == "1"], "\n".join(said)


@pytest.mark.parametrize("student, row", [
    ("alovelace10", "1"), ("alovelace10@uni.edu", "1"), ("Jose\u0301 Garci\u0301a", "2"), ("garcíajosé", "2"),
    ("asmith2", "4"), ("u3", "3")])
def test_a_row_is_found_by_login_address_and_name(student, row, tmp_path):
    assert _filled(tmp_path, student)[0] == [row]


def test_a_row_is_found_by_what_the_roster_knows(tmp_path):
    roster = Roster([Person("Ada King", "aking", "1", "ak@uni.edu"), Person("Garcia Jose", "jg", "", "jgarcia@uni.edu"),
                     Person("Anna Smith", "anna-s", "", "asmith2@uni.edu")])
    assert _filled(tmp_path, "aking", "jg", "anna-s", roster=roster)[0] == ["1", "2", "4"]
    assert not _filled(tmp_path, "aking", "jg", "anna-s")[0]


def test_two_of_one_name_are_told_and_neither_is_filled_in(tmp_path):
    rows, said = _filled(tmp_path, "Anna Smith")
    assert not rows and "Anna Smith is in 2 rows by login, ID or name; not filled in" in said
