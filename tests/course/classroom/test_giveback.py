"""What goes back: zips as Canvas and Moodle take them, and letters that nobody sends."""

import ast
import csv
import dataclasses
import email
import email.policy
import io
import re
import zipfile
from pathlib import Path

import pytest

from grader.__main__ import main
from grader.classroom.run import grade
from grader.classroom.run.cells import Plan
from grader.course import chapters
from grader.front.results import Asked, Result
from grader.judge.verdict import Word
from tests.course.classroom.test_grade import Generous

LINEAR = chapters.find("linear")
PEOPLE = [("Lovelace, Ada", "ada", "70000", "ada@uni.edu"), ("Eve O'Neil", "eve", "124", "eve@uni.edu"),
          ("Zoë Müller", "zoe", "70003", "zoë"), ("山田 太郎", "yamada", "70004", ""),
          ("José García", "jose", "70005", "j@u.eu")]
FILES = {
    "lovelaceada_LATE_70000_998811_ex03_linear-1.py": "1", "lovelaceada_70000_998812_ex00_shapes.py": "1",
    "lovelaceada_70000_998813_photo.png": "1",
    "O'Neil Eve_5_assignsubmission_file_/ex03_linear.py": "1",
    "Zoë Müller_6_assignsubmission_file_ex03_linear.py": "1",
    "山田太郎_70004_998814_hw.zip": None, "garcíajosé_70005_998815_linear (2).py": "1",
}


class Half(Generous):
    """In place of processes: each chapter has one check that is passed and one that fails."""

    def plan(self, stems: list[str]) -> Plan:
        return Plan({stem: tuple(Asked(f"test_{word}", f"tests/test_{stem}.py", False, 2.0, "A rule.", "")
                                 for word in ("passed", "wrong")) for stem in stems}, {})

    def run(self, todo, folders, checks):
        for cell in todo:
            yield dataclasses.replace(cell, verdicts=tuple(
                Result(**vars(check), verdict=Word(check.check[5:]), facts=("you gave \x1b[31m\n1",))
                for check in checks[cell.chapter.stem]))


@pytest.fixture
def graded(tmp_path, monkeypatch) -> Path:
    """A run's folder: what two platforms gave, joined to a roster."""
    monkeypatch.setattr(grade, "Jobs", Half)
    for name, text in FILES.items():
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("ex03_linear.py", "1")
        else:
            path.write_text(text)
    with (tmp_path / "roster.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("name", "login", "id", "email"), *PEOPLE])
    assert main(["grade", str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--no-jail", "--chapters", "0,3",
                 "--roster", str(tmp_path / "roster.csv")]) == 0
    return tmp_path / "out"


def _unzip(file) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


# What Canvas (app/models/abstract_assignment.rb) and Moodle (mod/assign/feedback/file/importziplib.php) read in a name.
def _canvas(name: str) -> tuple[str, str]:
    numbers = [part for part in name.split("_") if part != "LATE" and re.fullmatch(r"\d+", part)]
    return numbers[0], numbers[1]


def _moodle(path: str) -> tuple[str, str, str, str]:
    folder, _, name = path.partition("/")
    _, number, subtype, plugin, *_ = folder.split("_", 4)
    return number, subtype, plugin, name


def test_each_platform_gets_its_own_names_back(graded, capsys):
    assert main(["giveback", str(graded)]) == 1         # zoe has no address, and Moodle's zip all the same
    said = capsys.readouterr().out
    canvas = _unzip(graded / "giveback/canvas.zip")
    assert {_canvas(name) for name in canvas} == {("70000", "998811"), ("70000", "998812"), ("70004", "998814"),
                                                  ("70005", "998815")}
    assert all(name in FILES for name in canvas)
    moodle = _unzip(graded / "giveback/moodle.zip")
    assert {_moodle(name) for name in moodle} == {(number, "assignsubmission", "file", "feedback.html")
                                                  for number in "56"}
    pages = {name: (graded / "feedback" / f"{name}.html").read_bytes() for name in ("eve", "zoe", "yamada")}
    assert sorted(moodle.values()) == sorted([pages["eve"], pages["zoe"]])
    inside = _unzip(io.BytesIO(canvas["山田太郎_70004_998814_hw.zip"]))
    assert inside == {"feedback.html": pages["yamada"]}
    assert "canvas.zip: 4 files" in said and "moodle.zip: 2 files" in said and "none of which was sent" in said
    assert "no letter: zoe ('zoë' is no address)" in said


def test_what_comes_back_as_a_py_is_comments_on_that_file(graded):
    main(["giveback", str(graded)])
    files = {name: text.decode() for name, text in _unzip(graded / "giveback/canvas.zip").items()
             if name.endswith(".py")}
    linear, shapes = (files[name] for name in list(FILES)[:2])
    assert all(line.startswith("#") and line.isprintable() for text in files.values() for line in text.splitlines())
    assert not any(ast.parse(text).body for text in files.values())
    assert "ex03_linear.py: 2 of 4 points" in linear and "ex00" not in linear and "ex03" not in shapes
    assert linear.startswith("# Feedback for ada, in all 4 of 8 points\n")
    assert "#   test_wrong: 0 of 2\n#       wrong: A rule.\n" in linear
    assert "you gave ?[31m\n" in linear
    other = files["garcíajosé_70005_998815_linear (2).py"]      # of a file that is no chapter's, all
    assert "ex00_shapes.py: 0 of 4 points" in other and "ex03_linear.py: 0 of 4 points" in other


def test_a_letter_is_a_draft_with_the_page(graded):
    main(["giveback", str(graded)])
    letters = {path.stem: email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
               for path in (graded / "giveback/mail").iterdir()}
    assert letters.keys() == {"ada", "eve", "jose"}
    letter, (to,) = letters["ada"], letters["ada"]["To"].addresses
    assert (to.addr_spec, to.display_name) == ("ada@uni.edu", "Ada Lovelace")
    assert letter["X-Unsent"] == "1" and not letter["From"] and letter["Subject"]
    body = letter.get_body().get_content().replace("\r", "")
    assert body.startswith("Hello Ada Lovelace,\n") and "graded:\n\n4 of 8 points\n" in body
    page, = letter.iter_attachments()
    assert page.get_content().splitlines() == (graded / "feedback/ada.html").read_text("utf-8").splitlines()
    assert (page.get_filename(), page.get_content_type()) == ("feedback.html", "text/html")


def test_given_back_again_what_lay_there_is_kept(graded):
    main(["giveback", str(graded)])
    first = (graded / "giveback/canvas.zip").read_bytes()
    (graded / "giveback/mail/ada.eml").write_text("my own words")
    main(["grade", "--regrade", str(graded / "manifest.json"), "--no-jail"])        # the names are known still
    main(["giveback", str(graded)])
    assert (graded / "giveback/canvas.zip").read_bytes() == first
    assert [path.read_text() for path in graded.glob("kept/giveback-*/mail/ada.eml")] == ["my own words"]


def test_who_gets_nothing_back_is_said(graded, tmp_path, capsys):
    (tmp_path / "people.csv").write_text("name,login\nAda Lovelace,ada\nEve,eve\nZoe,zoe\nY,yamada\nJ,jose\n")
    (graded / "feedback/ada.html").unlink()
    assert main(["giveback", str(graded), "--roster", str(tmp_path / "people.csv")]) == 1
    assert "goes back in no way: ada\n" in capsys.readouterr().out and not (graded / "giveback/mail").exists()


def test_a_run_that_has_not_ended_gives_nothing_back(graded, tmp_path, capsys):
    text = (graded / "manifest.json").read_text()
    (graded / "manifest.json").write_text(text.replace('"ended"', '"begun_again"'))
    assert main(["giveback", str(graded)]) == 2
    assert "this run has not ended; grade --resume" in capsys.readouterr().err and not (graded / "giveback").exists()
    assert main(["giveback", str(tmp_path)]) == 2
    assert "is no manifest of a run" in capsys.readouterr().err
