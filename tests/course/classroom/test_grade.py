"""A class's submissions: what is read of them, how they are graded, and what comes out."""

import contextlib
import csv
import dataclasses
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import xml.etree.ElementTree as xml
import zipfile
from pathlib import Path

import pytest

from grader.__main__ import main
from grader.classroom.edition import handout
from grader.classroom.intake import archives, collect, reading
from grader.classroom.output import canvas, exports, grading
from grader.classroom.output.gradebook import Gradebook
from grader.classroom.output.grading import Grading
from grader.classroom.run import cells, grade, jobs
from grader.classroom.run.cells import Cell, Plan
from grader.classroom.run.scope import Scopes
from grader.course import chapters
from grader.course.chapters import ROOT, Chapter
from grader.front.results import Asked, Result
from grader.judge.engine import Grader
from grader.judge.verdict import Word
from grader.sandbox import jail
from grader.sandbox.setting import Setting
from tests.course.stubs import fresh

SHAPES, LINEAR = chapters.find("shapes"), chapters.find("linear")
RIGHT = {chapter: chapter.solution.read_text("utf-8") for chapter in (SHAPES, LINEAR)}
SLIP = RIGHT[LINEAR].replace("return 2 * batch", "return batch")
SEED = 77


def _zip(path: Path, files: dict[str, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def _tar(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for info, content in members:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def _folder(path: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text, "utf-8")
    return path


def _class(top: Path) -> Path:
    """Two who are right in part, one file that cannot be loaded, one bomb, and what is no submission."""
    _folder(top / "ada", {"ex00_shapes.py": RIGHT[SHAPES], "ex03_linear.py": RIGHT[LINEAR]})
    _zip(top / "grace.zip", {"hw/exercises/ex03_linear.py": SLIP, "hw/exercises/my_ex00_shapes.py": RIGHT[SHAPES],
                             "hw/solutions/ex00_shapes.py": "1/0", "../out.py": "1", "hw/README.md": "hello"})
    _folder(top / "@lin", {"ex03_linear.py": 'print("\\x1b[31m]]>\\0<b>")\ndef (\n'})
    _tar(top / "mallory.tgz", (tarfile.TarInfo("ex03_linear.py"), b"#" * (reading.MAX_FILE + 1)))
    (top / "notes.txt").write_text("remember the milk")
    return top


def _grade(*arguments, **kwargs) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "grader", "grade", *map(str, arguments)], cwd=ROOT,
                          capture_output=True, text=True, **kwargs)


TEMPLATE = """\
Student,ID,SIS User ID,SIS Login ID,Section,Linear 03 (11),Homework (12),Current Score
    Points Possible,,,,,24,5,(read only)
"Hopper, Grace",1,u1,ghopper,A,,4,
"Byron, Ada",2,u2,ada,A,,4,
"Noone, Nobody",3,u3,nobody,A,7,4,
"""


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """One run: its folder and what the screen said."""
    top = tmp_path_factory.mktemp("class")
    submissions = _class(top / "handed in")
    (top / "canvas.csv").write_text(TEMPLATE, "utf-8")
    _folder(top / "mine", {"test_linear.py": "", "test_ex03_linear_mine.py": 'def test_mine(impl, draw):\n'
                           '    """The layer of an instructor."""\n    return impl.linear_flops(1, 2, 3)\n'})
    done = _grade(submissions, "--out", top / "out", "--jobs", 2, "--chapters", 0, 3, "--seed", SEED, "--no-jail",
                  "--timeout", 5, "--canvas", top / "canvas.csv", "--hidden-from", top / "mine")
    assert done.returncode == 1, done.stdout + done.stderr      # something was refused
    return top / "out", done.stdout


def _cell(out: Path, student: str, chapter: Chapter) -> Cell:
    return cells.read(out, student, chapter)


def _grades(out: Path) -> dict[str, dict[str, str]]:
    """The rows of grades.csv by student."""
    with (out / "grades.csv").open(encoding="utf-8", newline="") as file:
        return {row["student"]: row for row in csv.DictReader(file)}


def _book(student: str, points: float, of_points: float, rules: Grading = Grading()) -> Gradebook:     # noqa: B008
    """A student with so many points in chapter 03, which has two checks."""
    checks = [Asked(f"test_{word}", "", False, worth, "", "")
              for word, worth in (("passed", points), ("wrong", of_points - points))]
    verdicts = tuple(Result(**vars(check), verdict=Word(check.check[5:])) for check in checks)
    cell = Cell(student, LINEAR, "graded", "", {}, SEED, "cpu", 5.0, False, 0.0, verdicts)
    return Gradebook([cell], {LINEAR.stem: checks}, rules)


# -- what is read ----------------------------------------------------------------------------------

def _special(name: str, kind: bytes, target: str = "") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, b""


@pytest.mark.parametrize("member, words", [
    (_special("ex03_linear.py", tarfile.SYMTYPE, "/etc/passwd"), "a link is not read"),
    (_special("ex03_linear.py", tarfile.LNKTYPE, "ex00_shapes.py"), "a link is not read"),
    (_special("ex03_linear.py", tarfile.FIFOTYPE), "a device is not read"),
    (_special("ex03_linear.py", tarfile.CHRTYPE), "a device is not read"),
    ((tarfile.TarInfo("../ex03_linear.py"), b"1"), "leads outside"),
    ((tarfile.TarInfo("/tmp/ex03_linear.py"), b"1"), "leads outside"),
    ((tarfile.TarInfo("C:\\ex03_linear.py"), b"1"), "leads outside"),
    ((tarfile.TarInfo("a\\..\\ex03_linear.py"), b"1"), "leads outside"),
    ((tarfile.TarInfo("ex03_linear.py"), b"#" * (reading.MAX_FILE + 1)), "larger than 1 MB"),
    ((tarfile.TarInfo("EX00_shapes.py"), b"1"), "there twice"),
], ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else value[0].name)
def test_what_an_archive_must_not_hold_is_left_out_and_said(member, words, tmp_path):
    good = tarfile.TarInfo("ex00_shapes.py"), b"x = 1\n"
    _tar(tmp_path / "in" / "eve.tar.gz", good, member)
    (eve,), refused = collect.collect(tmp_path / "in", tmp_path / "out")
    assert words in " ".join(eve.refused) and not refused
    assert words in eve.missing(LINEAR) + (eve.missing(SHAPES) or "")
    assert [path.name for path in eve.folder.iterdir()] == ["ex00_shapes.py"] * ("twice" not in words)
    assert sorted(path.relative_to(tmp_path).parts[0] for path in tmp_path.iterdir()) == ["in", "out"]


def _bomb(path: Path, kind: str) -> None:
    """Archives that unpack to more than they say, or than anybody wants."""
    path.parent.mkdir(parents=True)
    if kind == "zip":       # 3 MB that say they are 10 bytes
        _zip(path, {"ex03_linear.py": "x = '" + "a" * (3 << 20) + "'"})
        path.write_bytes(path.read_bytes().replace((3 * (1 << 20) + 6).to_bytes(4, "little"),
                                                   (10).to_bytes(4, "little")))
    elif kind == "many":
        _zip(path, {f"{n}.txt": "" for n in range(reading.MAX_ENTRIES + 1)})
    elif kind == "heavy":
        _zip(path, {f"m{n}.py": "#" * (1 << 20) for n in range((reading.MAX_BYTES >> 20) + 1)})
    elif kind == "lzma":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
            archive.writestr("ex03_linear.py", "1")
    elif kind == "nonsense":
        path.write_bytes(b"PK\x03\x04 and so on")
    elif kind == "secret":
        _zip(path, {"ex03_linear.py": "1"})
        content = bytearray(path.read_bytes())
        content[content.index(b"PK\x01\x02") + 8] |= 1
        path.write_bytes(content)


@pytest.mark.parametrize("kind, words", [
    ("zip", "cannot be read"), ("many", "more than 100 files"), ("heavy", "2 MB of them"),
    ("lzma", "compressed in another way"), ("nonsense", "cannot be read"), ("secret", "encrypted")])
def test_an_archive_that_cannot_be_read_is_refused_and_the_others_go_on(kind, words, tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MAX_ENTRIES", 100)
    monkeypatch.setattr(reading, "MAX_BYTES", 2 << 20)
    _bomb(tmp_path / "in" / "eve.zip", kind)
    _folder(tmp_path / "in" / "ada", {"ex03_linear.py": "1"})
    eve = reading.read({"": tmp_path / "in" / "eve.zip"})
    assert words in eve.refused[0] and not eve.chosen
    assert list(reading.read({"": tmp_path / "in" / "ada"}).chosen) == ["ex03_linear.py"]


def test_a_tar_is_read_no_further_than_its_limit_whatever_it_says(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MAX_UNPACKED", 1 << 20)
    _tar(tmp_path / "in" / "eve.tgz", (tarfile.TarInfo("film.mp4"), b"\0" * (2 << 20)),
         (tarfile.TarInfo("ex03_linear.py"), b"1"))
    eve = reading.read({"": tmp_path / "in" / "eve.tgz"})
    assert "unpacks to more than 1 MB" in eve.refused[0] and not eve.chosen


@pytest.mark.parametrize("files, chosen", [
    ({"ex03_linear.py": "1", "old/ex03_linear.py": "2", "helper.py": "3"}, {"ex03_linear.py": "1", "helper.py": "3"}),
    ({"exercises/ex03_linear.py": "1", "answers/ex03_linear.py": "2"}, {"ex03_linear.py": "1"}),
    ({"hw/exercises/ex03_linear.py": "1", ".git/ex03_linear.py": "2", "__MACOSX/ex03_linear.py": "2"},
     {"ex03_linear.py": "1"}),
    ({"hw.txt": "1"}, {}),
])
def test_the_folder_with_the_exercises_is_found(files, chosen, tmp_path):
    """In a folder and in an archive alike, and in an archive that lies in a student's folder."""
    _folder(tmp_path / "in" / "ada", files)
    _zip(tmp_path / "in" / "grace.zip", files)
    _zip(tmp_path / "in" / "linus" / "handed in.zip", files)
    students, _ = collect.collect(tmp_path / "in", tmp_path / "out")
    assert len(students) == 3
    for student in students:
        assert {path.name: path.read_text() for path in student.folder.iterdir()} == chosen


def test_links_in_a_folder_are_not_followed(tmp_path):
    folder = _folder(tmp_path / "in" / "eve", {"ex00_shapes.py": "1"})
    (folder / "ex03_linear.py").symlink_to(LINEAR.solution)
    (folder / "exercises").symlink_to(ROOT / "solutions")
    os.mkfifo(folder / "pipe.py")
    (tmp_path / "in" / "ada").symlink_to(folder)
    (eve,), refused = collect.collect(tmp_path / "in", tmp_path / "out")
    assert "ex03_linear.py: a link is not read" in eve.missing(LINEAR)
    assert [path.name for path in eve.folder.iterdir()] == ["ex00_shapes.py"]
    assert refused == {"ada": "a link is not followed"}


@pytest.mark.parametrize("name, why", [
    ("eve<b>", "a name has"), ("e\nve", "a name has"), ("=1+1", "a name has"), ("eve ", "a name has"),
    ("x" * 101, "a name has"), ("Ada", "handed in twice"), ("eve.rar", "a name has")])
def test_names_are_checked_where_they_are_read(name, why, tmp_path):
    for folder in (name, "ada", "Zoë d_1;@x"):
        _folder(tmp_path / "in" / folder, {"ex03_linear.py": "1"})
    if name == "eve.rar":
        shutil.rmtree(tmp_path / "in" / name)
        (tmp_path / "in" / name).write_text("")
        why = "neither a folder nor an archive"
    students, refused = collect.collect(tmp_path / "in", tmp_path / "out")
    assert why in refused[name] and "Zoë d_1;@x" in [student.name for student in students]


@pytest.mark.parametrize("name, near", [
    ("my_ex03_linear.py", True), ("ex03 linear.py", True), ("linear.py", True), ("ex3_linear.py", True),
    ("EX03_Linear.PY", True), ("ex03_linear.py.txt", True), ("ex03_linaer.py", True), ("old/ex03_linear.py", True),
    ("ex04_normalization.py", False), ("nonlinear.py", False), ("README.md", False)])
def test_near_misses_of_a_name(name, near):
    assert chapters.near_miss(LINEAR, ["README.md", "ex00_shapes.py", name]) == (name if near else "")


# -- one run ---------------------------------------------------------------------------------------

def test_each_cell_says_what_came_of_it(graded):
    out, screen = graded
    assert {result.verdict for result in _cell(out, "ada", LINEAR).verdicts} == {"passed"}
    slip = _cell(out, "grace", LINEAR)
    wrong = [result for result in slip.verdicts if result.verdict != "passed"]
    assert {result.verdict for result in wrong} == {"wrong"} and {one.check for one in wrong} >= {"test_flops"}
    assert slip.state == "graded" and 0 < len(wrong) < len(slip.verdicts) and slip.seed == SEED
    missing = _cell(out, "grace", SHAPES)
    assert missing.state == "missing" and not missing.verdicts
    assert "there is hw/exercises/my_ex00_shapes.py" in missing.note and "out.py" in missing.note
    broken = _cell(out, "@lin", LINEAR).verdicts
    assert broken and all(one.whole and one.verdict == "error" and not one.mistake for one in broken)
    assert "larger than 1 MB" in _cell(out, "mallory", LINEAR).note
    assert "refused: notes.txt" in screen and "left out: mallory: ex03_linear.py: larger than 1 MB" in screen
    assert not (out / "scratch").exists()


def test_the_manifest_says_what_a_regrade_needs(graded):
    out, screen = graded
    said = json.loads((out / "manifest.json").read_text("utf-8"))
    assert said["seed"] == SEED and said["torch"] and said["python"] and said["version"] and said["cpu"]
    assert said["options"]["chapters"] == [SHAPES.stem, LINEAR.stem] and not said["options"]["walls"]
    assert said["hashes"][LINEAR.stem]["checks"] == _cell(out, "ada", LINEAR).hashes["checks"]
    mine = [result for result in _cell(out, "ada", LINEAR).verdicts if result.check == "test_mine"]
    assert len(mine) == 1 and mine[0].hidden and mine[0].verdict == "passed"
    assert said["not_asked"] == ["test_linear.py"] and "not asked: test_linear.py" in screen
    assert said["refused"] == {"notes.txt": "neither a folder nor an archive (.zip, .tar, .tar.gz, .tgz), "
                                            "nor a file as Canvas or Moodle names it"}


def test_grades(graded):
    rows = _grades(graded[0])
    assert set(rows) == {exports.MAXIMUM, "ada", "grace", "'@lin", "mallory"}
    assert rows["ada"]["total"] == rows[exports.MAXIMUM]["total"]
    assert 0 == float(rows["grace"][SHAPES.stem]) < float(rows["grace"]["total"]) < float(rows["ada"]["total"])
    assert rows["grace"]["missing"] == "00" and rows["mallory"]["missing"] == "00 03"
    for name, row in rows.items():
        assert float(row["total"]) == pytest.approx(float(row[SHAPES.stem]) + float(row[LINEAR.stem])), name


def test_gradescope_shows_of_hidden_checks_the_rule_alone(graded):
    out, _ = graded
    said = json.loads((out / "results" / "grace.json").read_text("utf-8"))
    hidden = [test for test in said["tests"] if "hidden" in test["name"]]
    asked = [result for result in _cell(out, "grace", LINEAR).verdicts if result.hidden]
    assert len(hidden) == len(asked) > 0 and "not passed" in {test["output"] for test in hidden}
    for test in hidden:
        assert test["visibility"] == "after_published" and test["output"] in ("passed", "not passed")
    assert sum(test["score"] for test in said["tests"]) == pytest.approx(said["score"], abs=0.01)
    assert sum(test["max_score"] for test in said["tests"]) == pytest.approx(
        float(_grades(out)[exports.MAXIMUM]["total"]), abs=0.01)
    broken = json.loads((out / "results" / "@lin.json").read_text("utf-8"))
    assert len(broken["tests"]) == 2 and "SyntaxError" in broken["tests"][1]["output"]


def test_junit_has_points_and_counts_a_broken_file_once(graded):
    out, _ = graded
    suites = {suite.get("name"): suite for suite in xml.parse(out / "junit.xml").iter("testsuite")}
    assert suites[f"@lin {LINEAR.stem}"].get("failures") == "1"
    assert suites[f"grace {SHAPES.stem}"].get("failures") == "1"
    assert suites[f"ada {LINEAR.stem}"].get("failures") == "0"
    case = next(case for case in suites[f"grace {LINEAR.stem}"] if case.get("name") == "test_flops")
    said = {one.get("name"): one.get("value") for one in case.iter("property")}
    assert said["verdict"] == "wrong" and said["points"] == "0.0" and said["hidden"] == "false" and said["mistake"]
    worth = [float(one.get("value")) for suite in suites.values() if suite.get("name").startswith("ada")
             for one in suite.iter("property") if one.get("name") == "of_points"]      # as grading.toml has it
    assert sum(worth) == pytest.approx(float(_grades(out)["ada"]["total"]), abs=0.01)


def test_canvas_is_filled_in_and_kept_otherwise(graded):
    out, screen = graded
    rows = list(csv.reader((out / "canvas.csv").open(encoding="utf-8")))
    assert rows[0] == TEMPLATE.splitlines()[0].split(",")
    assert rows[1][0].strip() == "Points Possible" and rows[4][5] == "7" and rows[2][6] == "4"
    assert float(rows[3][5]) == 24 and _grades(out)["ada"][LINEAR.stem] == _grades(out)[exports.MAXIMUM][LINEAR.stem]
    assert rows[2][5] == "" and "grace is in no row" in screen and "scaled" in screen


@pytest.mark.parametrize("name, row", [
    ("ghopper", 2), ("Grace Hopper", 2), ("hoppergrace_1_99_file", 2), ("u2", 3), ("adabyron", 3), ("somebody", None)])
def test_canvas_finds_people_by_login_id_and_name(name, row, tmp_path):
    (tmp_path / "canvas.csv").write_text(TEMPLATE, "utf-8")
    template = canvas.Template.read(tmp_path / "canvas.csv")
    said = template.fill(tmp_path / "filled.csv", _book(name, 1.0, 2.0))
    rows = list(csv.reader((tmp_path / "filled.csv").open(encoding="utf-8")))
    assert [i for i in (2, 3, 4) if rows[i][5] == "12"] == ([row] if row else [])
    assert any(name in line for line in said) == (row is None)


def test_canvas_says_which_columns_and_which_late_days_it_leaves(tmp_path):
    late = Grading(formula="points - days", days={"ada": 2.0})

    def said(template: str, rules: Grading) -> str:
        (tmp_path / "canvas.csv").write_text(template, "utf-8")
        book = _book("ada", 24.0, 24.0, rules)
        return " | ".join(canvas.Template.read(tmp_path / "canvas.csv").fill(tmp_path / "filled.csv", book))
    assert "left as they were: 'Homework (12)'" in said(TEMPLATE, Grading())
    assert "late" not in said(TEMPLATE, Grading()) and "late days come off the total alone" in said(TEMPLATE, late)
    alone = "Student,ID,SIS Login ID,Homework (12)\nAda,2,ada,\n"
    assert said(alone, late) == "" and (tmp_path / "filled.csv").read_text("utf-8").endswith("ada,22\n")


def test_canvas_fills_a_row_once(tmp_path):
    (tmp_path / "canvas.csv").write_text(TEMPLATE, "utf-8")
    ada = _book("ada", 2.0, 2.0)
    book = Gradebook([*ada.cells, dataclasses.replace(ada.cells[0], student="Ada Byron", verdicts=())],
                     {LINEAR.stem: ada.cells[0].verdicts}, Grading())
    said = canvas.Template.read(tmp_path / "canvas.csv").fill(tmp_path / "filled.csv", book)
    assert list(csv.reader((tmp_path / "filled.csv").open(encoding="utf-8")))[3][5] == "24"
    assert "Ada Byron is not filled in: its row is ada's" in said


# -- going on and grading again --------------------------------------------------------------------

def _copy_of(graded, tmp_path) -> tuple[Path, Path]:
    """(what was handed in, the run's folder), to change."""
    top = graded[0].parent
    shutil.copytree(top / "handed in", tmp_path / "handed in")
    shutil.copytree(top / "out", tmp_path / "out")
    shutil.copytree(top / "mine", tmp_path / "mine")
    return tmp_path / "handed in", tmp_path / "out"


@pytest.mark.parametrize("broken", ["{", "[]", '{"student": "grace"}', "null"])
def test_a_cell_that_cannot_be_read_is_none(broken, tmp_path):
    file = cells.path(tmp_path, "grace", LINEAR)
    file.parent.mkdir(parents=True)
    file.write_text(broken, "utf-8")
    assert cells.read(tmp_path, "grace", LINEAR) is None


@pytest.mark.parametrize("field, value", [
    ("chapter", 3), ("timeout", "5"), ("walls", 1), ("verdicts", {}), ("verdicts", [{}]), ("hashes", {"checks": 1}),
    ("seed", True), ("seed", None)])
def test_a_cell_with_a_field_that_means_nothing_is_none(field, value, graded, tmp_path):
    said = json.loads(cells.path(graded[0], "ada", LINEAR).read_text("utf-8"))
    file = cells.path(tmp_path, "ada", LINEAR)
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(said))
    assert cells.read(tmp_path, "ada", LINEAR) == _cell(graded[0], "ada", LINEAR)
    file.write_text(json.dumps({**said, field: value}))
    assert cells.read(tmp_path, "ada", LINEAR) is None


def test_a_cell_of_an_earlier_version_is_read(graded, tmp_path):
    """Cells once held points, of each verdict and of all."""
    said = json.loads(cells.path(graded[0], "grace", LINEAR).read_text("utf-8"))
    assert not {"points", "of_points"} & said.keys() and not any("points" in one for one in said["verdicts"])
    file = cells.path(tmp_path, "grace", LINEAR)
    file.parent.mkdir(parents=True)
    old = {**said, "points": 7.0, "of_points": 9, "verdicts": [{**one, "points": 0.5} for one in said["verdicts"]]}
    file.write_text(json.dumps(old))
    assert cells.read(tmp_path, "grace", LINEAR) == _cell(graded[0], "grace", LINEAR)


def test_resume_asks_only_what_has_changed(graded, tmp_path):
    submissions, out = _copy_of(graded, tmp_path)
    before = _cell(out, "ada", LINEAR), _cell(out, "ada", SHAPES)
    (submissions / "ada" / "ex03_linear.py").write_text(SLIP, "utf-8")
    cells.path(out, "grace", LINEAR).write_text("{", "utf-8")      # as nothing writes it
    done = _grade(submissions, "--out", out, "--resume", "--no-jail")
    assert "2 are as they were graded, 2 are to be asked" in done.stdout, done.stderr
    assert f"seed {SEED}" not in done.stdout        # the pages of before may have told it
    assert {result.verdict for result in before[0].verdicts} == {"passed"}
    assert "wrong" in {result.verdict for result in _cell(out, "ada", LINEAR).verdicts}
    assert float(_grades(out)["ada"]["total"]) < float(_grades(graded[0])["ada"]["total"])
    assert _cell(out, "ada", SHAPES) == before[1]
    again, first = _cell(out, "grace", LINEAR), _cell(graded[0], "grace", LINEAR)
    assert again.same(first) and [one.verdict for one in again.verdicts] == [one.verdict for one in first.verdicts]


def test_ctrl_c_leaves_what_is_done_and_nothing_else(tmp_path):
    submissions = tmp_path / "handed in"
    for name in ("ada", "grace", "linus"):
        _folder(submissions / name, {"ex03_linear.py": RIGHT[LINEAR] + ("\nimport time\ntime.sleep(300)\n" * (
            name == "linus"))})
    process = subprocess.Popen(
        [sys.executable, "-m", "grader", "grade", submissions, "--out", tmp_path / "out", "--chapters", "3",
         "--timeout", "300", "--no-jail"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
    end = time.monotonic() + 120
    while not cells.read(tmp_path / "out", "grace", LINEAR):
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130, process.stdout.read()
    said = process.stdout.read()
    assert f"interrupted. What was asked is kept; grade --resume --out {tmp_path / 'out'} goes on." in said
    assert not (tmp_path / "out" / "scratch").exists()
    assert sorted(path.parent.name for path in (tmp_path / "out" / "cells").rglob("*")
                  if path.is_file()) == ["ada", "grace"]


def _with_temporary_files_in(folder: Path) -> list[int]:
    """The processes that were told to keep their temporary files there."""
    found, wanted = [], f"TMPDIR={folder}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")
def test_where_the_run_is_killed_its_jobs_end(tmp_path):
    started = tmp_path / "started"
    _folder(tmp_path / "in" / "linus", {"ex03_linear.py": RIGHT[LINEAR] + (
        f"\nimport time\nopen({str(started)!r}, 'w').close()\ntime.sleep(300)\n")})
    out = (tmp_path / "out").resolve()
    process = subprocess.Popen(
        [sys.executable, "-m", "grader", "grade", tmp_path / "in", "--out", out, "--chapters", "3",
         "--timeout", "300", "--no-jail"], cwd=ROOT, stdout=subprocess.DEVNULL)
    end = time.monotonic() + 120
    while not started.exists():
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.05)
    assert len(_with_temporary_files_in(out / "scratch")) >= 3      # the job, its zygote, the worker that sleeps
    process.kill()
    process.wait()
    end = time.monotonic() + 30
    while left := _with_temporary_files_in(out / "scratch"):
        assert time.monotonic() < end, left
        time.sleep(0.1)


def test_what_a_job_said_last_is_told(tmp_path):
    setting = Setting()
    object.__setattr__(setting, "timeout", -1.0)        # as no Setting can be made, there or here
    with pytest.raises(jobs.Died, match=r"(?s)ended with 1 .*timeout must be above 0 seconds, got -1"):
        jobs.Job(setting, tmp_path, Scopes(1)).ask("plan", 120, stems=[])


def test_a_regrade_keeps_the_old_cells_and_says_what_changed(graded, tmp_path):
    _, out = _copy_of(graded, tmp_path)
    right = _cell(out, "ada", LINEAR)
    first, *others = right.verdicts
    old = dataclasses.replace(right, verdicts=(dataclasses.replace(first, verdict=Word.WRONG), *others))
    cells.write(out, old)       # as if a check had been mended since
    done = _grade("--regrade", out / "manifest.json", "--chapters", "3")
    assert "each cell on the seed that it had" in done.stdout
    changed = done.stdout.partition("What changed:\n")[2].splitlines()
    most = float(_grades(out)[exports.MAXIMUM][LINEAR.stem])
    before, now = re.fullmatch(rf"ada {LINEAR.stem}: (\S+) of {most:g} → (\S+) of {most:g} points", changed[0]).groups()
    assert 0 < float(before) < float(now) == most
    assert changed[1] == f"  tests/test_ex03_linear.py::{first.check}: wrong → passed", done.stderr
    assert changed[2].startswith("The cells of before are kept in")
    (kept,) = (out / "kept").iterdir()
    assert cells.read(kept, "ada", LINEAR) == old
    assert "wrong → passed" in (kept / "changes.txt").read_text("utf-8")
    assert {one.verdict for one in _cell(out, "ada", LINEAR).verdicts} == {"passed"}
    assert _cell(out, "ada", LINEAR).same(right) and right.seed == SEED
    assert _cell(out, "ada", SHAPES) == _cell(graded[0], "ada", SHAPES)


class Generous:
    """In place of processes: each chapter has a visible check of 2 points, which everybody passes, in no time."""

    def __init__(self, *_):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def plan(self, stems: list[str]) -> Plan:
        return Plan({stem: (Asked("test_it", f"tests/test_{stem}.py", False, 2.0, "", ""),) for stem in stems}, {})

    def lost(self):
        return []

    def run(self, todo, folders, checks):
        for cell in todo:
            yield dataclasses.replace(cell, verdicts=tuple(Result(**vars(check), verdict=Word.PASSED)
                                                           for check in checks[cell.chapter.stem]))


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """(the arguments that go on with a run, those that regrade it, its folder): ada and bob, graded by rules.toml."""
    monkeypatch.setattr(grade, "Jobs", Generous)
    for name in ("ada", "bob"):
        _folder(tmp_path / "in" / name, {"ex00_shapes.py": "1", "ex03_linear.py": "1"})
    _folder(tmp_path, {"rules.toml": "[weights]\n0 = 1000\n3 = 24\n", "gradebook.csv": TEMPLATE})
    out = tmp_path / "out"
    resume = ["grade", str(tmp_path / "in"), "--out", str(out), "--no-jail", "--resume"]
    assert main([*resume[:-1], "--chapters", "0,3", "--grading", str(tmp_path / "rules.toml"),
                 "--canvas", str(tmp_path / "gradebook.csv")]) == 0
    return resume, ["grade", "--regrade", str(out / "manifest.json")], out


def _points(out: Path) -> tuple[float, float]:
    """Ada's in chapters 00 and 03, as grades.csv says and what Gradescope gets."""
    found = tuple(float(_grades(out)["ada"][chapter.stem]) for chapter in (SHAPES, LINEAR))
    said = json.loads((out / "results" / "ada.json").read_text("utf-8"))
    assert found == tuple(test["score"] for test in said["tests"])
    return found


@pytest.mark.parametrize("again", [0, 1], ids=["resume", "regrade"])
def test_a_run_keeps_its_grading_file(again, begun, tmp_path, capsys):
    command, out = begun[again], begun[2]
    assert main(command) == 0 and _points(out) == (1000, 24)
    (tmp_path / "rules.toml").unlink()
    assert main(command) == 2
    assert f"{tmp_path / 'rules.toml'}, by which this run was graded, is gone" in capsys.readouterr().err
    assert main([*command, "--grading", str(ROOT / "grading.toml")]) == 0 and _points(out) == (2, 2)


@pytest.mark.parametrize("again", [0, 1], ids=["resume", "regrade"])
def test_other_rules_count_every_chapter_anew_whatever_is_asked(again, begun, tmp_path, capsys):
    command, out = begun[again], begun[2]
    (tmp_path / "rules.toml").write_text("[weights]\n0 = 7\n3 = 5\n", "utf-8")
    assert main([*command, "--chapters", "3"]) == 0 and _points(out) == (7, 5)
    if again:
        assert f"ada {SHAPES.stem}: 1000 of 1000 → 7 of 7 points" in capsys.readouterr().out


@pytest.mark.parametrize("again", [0, 1], ids=["resume", "regrade"])
def test_canvas_is_filled_in_again_or_set_aside(again, begun, tmp_path, capsys):
    def points() -> str:
        return list(csv.reader((out / "canvas.csv").open(encoding="utf-8")))[3][5]
    command, out = begun[again], begun[2]
    book = TEMPLATE.replace(",24,", ",,")       # any number of points is possible
    (tmp_path / "gradebook.csv").write_text(book, "utf-8")
    for worth in (24, 5):
        (tmp_path / "rules.toml").write_text(f"[weights]\n3 = {worth}\n", "utf-8")
        assert main(command) == 0 and points() == str(worth)
    (tmp_path / "gradebook.csv").unlink()
    capsys.readouterr()
    assert main(command) == 0 and not (out / "canvas.csv").exists() and (out / "canvas.csv.old").exists()
    assert f"canvas: {tmp_path / 'gradebook.csv'} is gone" in capsys.readouterr().out
    (tmp_path / "other.csv").write_text(book, "utf-8")
    assert main([*command, "--canvas", str(tmp_path / "other.csv")]) == 0 and points() == "5"


def test_who_is_no_longer_handed_in_is_said_each_time(begun, tmp_path, capsys):
    resume, regrade, out = begun
    assert json.loads((out / "manifest.json").read_text("utf-8"))["gone"] == []
    (tmp_path / "in" / "bob").rename(tmp_path / "bob")
    for command in (resume, resume, regrade):
        capsys.readouterr()
        assert main(command) == 0 and "no longer handed in: bob;" in capsys.readouterr().out
        assert json.loads((out / "manifest.json").read_text("utf-8"))["gone"] == ["bob"]
    assert (out / "feedback" / "bob.html").exists() and cells.read(out, "bob", LINEAR)
    _zip(tmp_path / "in" / "bob.zip", {"ex03_linear.py": "1"})
    (tmp_path / "bob").rename(tmp_path / "in" / "bob")
    assert main(resume) == 1
    screen = capsys.readouterr().out
    assert "handed in twice" in screen and "no longer" not in screen


def test_the_screen_knows_what_was_handed_in_instead(begun, tmp_path, capsys):
    _folder(tmp_path / "in" / "dan", {"my_ex00_shapes.py": "1", "linear.py": "1", "notes.txt": ""})
    (tmp_path / "in" / "eve").mkdir()
    main(begun[0])
    screen = capsys.readouterr().out.splitlines()
    assert "missing: dan handed in none of these chapters: there is my_ex00_shapes.py; there is linear.py" in screen
    assert "missing: eve handed in none of these chapters" in screen


@pytest.mark.skipif(bool(jail.missing()), reason=jail.missing() or "there is a jail")
def test_the_walls_are_tried_and_written_into_the_results(tmp_path):
    _folder(tmp_path / "in" / "ada", {"ex03_linear.py": RIGHT[LINEAR]})
    done = _grade(tmp_path / "in", "--out", tmp_path / "out", "--chapters", 3, "--timeout", 60)
    assert done.returncode == 0 and "Behind walls: no network" in done.stdout, done.stdout + done.stderr
    layers = json.loads((tmp_path / "out" / "manifest.json").read_text("utf-8"))["layers"]
    cell = _cell(tmp_path / "out", "ada", LINEAR)
    assert layers and all(layers.values()) and cell.walls and {one.verdict for one in cell.verdicts} == {"passed"}
    assert not json.loads((tmp_path / "out" / "results" / "ada.json").read_text("utf-8"))["output"]


def test_without_walls_a_run_stops_or_marks_every_result(graded, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(jail, "missing", lambda: "bubblewrap is not installed")
    _folder(tmp_path / "in" / "ada", {"ex03_linear.py": RIGHT[LINEAR]})
    assert main(["grade", str(tmp_path / "in"), "--out", str(tmp_path / "out")]) == 2
    assert "bubblewrap is not installed. --no-jail goes on" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    out, screen = graded
    assert "WITHOUT WALLS" in screen and not _cell(out, "ada", LINEAR).walls
    assert json.loads((out / "results" / "ada.json").read_text("utf-8"))["output"] == "Graded without a jail."


def test_a_job_that_dies_is_started_again_and_its_cell_asked_once_more(tmp_path, monkeypatch):
    setting = Setting("cpu", SEED, 5.0)
    folder = _folder(tmp_path / "ada", {"ex03_linear.py": RIGHT[LINEAR]})
    cell = Cell("ada", LINEAR, "graded", "", {}, SEED, "cpu", 5.0, False)
    asked, ask = [], jobs.Job.ask

    def dying(job, do, limit, **arguments):
        asked.append(do)
        return ask(job, do, 0.01 if len(asked) in deaths else limit, **arguments)
    monkeypatch.setattr(jobs.Job, "ask", dying)
    check = Asked("test_flops", "tests/test_ex03_linear.py", False, 1.0, "", "")
    for deaths in ({1}, {1, 2}):
        asked.clear()
        with jobs.Jobs(1, setting, tmp_path) as pool:
            (done,) = pool.run([cell], {"ada": folder}, {LINEAR.stem: [check]})
        assert asked == ["answer", "answer"]
        words = {result.verdict for result in done.verdicts}
        assert words == ({"passed"} if len(deaths) == 1 else {"crashed"})
    assert "ended twice" in done.verdicts[0].facts[0] and "took too long" in done.note


# -- points ----------------------------------------------------------------------------------------

VISIBLE, HIDDEN = Asked("test_a", "", False, 6.0, "", ""), Asked("test_b", "", True, 2.0, "", "")


@pytest.mark.parametrize("rules, asked, factors", [
    (Grading(), [VISIBLE, HIDDEN], {False: 1.0, True: 1.0}),
    (Grading(0.5), [VISIBLE, HIDDEN], {False: 4 / 6, True: 2.0}),
    (Grading(0.5), [VISIBLE], {False: 1.0, True: 1.0}),
    (Grading(0.25, {LINEAR.stem: 20.0}), [VISIBLE, HIDDEN], {False: 2.5, True: 2.5}),
    (Grading(None, {LINEAR.stem: 16.0}), [VISIBLE, HIDDEN], {False: 2.0, True: 2.0}),
    (Grading(0.5), [], {False: 0.0, True: 0.0}),
])
def test_weights_and_the_share_of_hidden_checks(rules, asked, factors):
    assert rules.factors(LINEAR.stem, asked) == pytest.approx(factors)


def test_a_grading_file(tmp_path):
    (tmp_path / "late.csv").write_text("student,days\nada,2\n")
    (tmp_path / "g.toml").write_text('hidden_share = 0.5\n[weights]\n03 = 10\n[late]\n'
                                     'formula = "max(points * 0.9 ** days, points - 3)"\ndays = "late.csv"\n')
    rules = grading.read(tmp_path / "g.toml")
    assert rules.weights == {LINEAR.stem: 10.0} and rules.days == {"ada": 2.0}
    assert rules.after_late("ada", 10.0, 20.0) == pytest.approx(8.1)
    assert rules.after_late("grace", 10.0, 20.0) == 10.0
    half = dataclasses.replace(rules, hidden_share=None, weights={LINEAR.stem: 20.0})
    assert exports.grades(_book("ada", 10.0, 20.0, half)).splitlines()[2] == "ada,10,10,2,8.1,"
    assert exports.grades(_book("ada", 3.0, 6.0, half)).splitlines()[2] == "ada,10,10,2,8.1,"
    assert grading.read().hidden_share == 0.5       # the course's own


@pytest.mark.parametrize("text, words", [
    ("hidden_share = 2", "hidden_share must be a number from 0 to 1"), ("share = 1", "share has no meaning"),
    ("[weights]\n99 = 1", "no chapter '99'"), ("[weights]\n3 = -1", "weight of 3"), ("[", "g.toml"),
    ("[late]\nformula = 'points'", "need each other"), ("[late]\nformula = 'evil()'\ndays = 'l.csv'", "evil()"),
    ("[late]\nformula = 'points'\ndays = 'l.csv'", "takes the columns student and days")])
def test_a_grading_file_that_means_nothing_is_refused(text, words, tmp_path):
    (tmp_path / "g.toml").write_text(text)
    (tmp_path / "l.csv").write_text("student,days\nada,soon\n")
    with pytest.raises(ValueError, match=re.escape(words)):
        grading.read(tmp_path / "g.toml")


@pytest.mark.parametrize("formula", [
    "__import__('os').system('true')", "points.real", "9 ** 9 ** 9 ** 9", "points / 0", "(-8) ** 0.5", "min(1)",
    "[points]", "lambda: 1", "true", "points if days else 0", "'a' * 9", "1e999", "", "points points", "(" * 999])
def test_a_formula_is_arithmetic_and_no_more(formula):
    with pytest.raises(ValueError, match="formula"):
        grading.calculate(formula, points=1.0, days=1.0)


# -- bad usage, and `check` ------------------------------------------------------------------------

@pytest.mark.parametrize("words", [["0,3-5"], ["0,", "3-5"], ["5", "04", "linear", "ex00_shapes"], ["3-5", "shapes"]])
def test_chapters_are_chosen_by_lists_and_by_names_in_every_command(words, tmp_path, monkeypatch):
    assert [chapter.number for chapter in chapters.several(*words)] == ["00", "03", "04", "05"]
    assert main(["platform", "gradescope", str(tmp_path / "a.zip"), "--no-jail", "--chapters", *words]) == 0
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert "--chapters 00 03 04 05" in archive.read("run_autograder").decode()
    given = []
    monkeypatch.setattr(handout, "run", lambda folder, *chosen, **_: given.extend(chosen))
    assert main(["handout", str(tmp_path), "--chapters", *words, "--given", *words]) == 0
    assert given == [chapters.several(*words)] * 2


@pytest.mark.parametrize("arguments, words", [
    (["nowhere", "--out", "OUT"], "nowhere is no folder"),
    (["IN"], "--out DIR"),
    (["IN", "--out", "OUT", "--chapters", "0,99"], "such as 0,3-5"),
    (["--out", "OUT"], "SUBMISSIONS"),
    (["IN", "--out", "OUT", "--jobs", "0"], "1 to 1000"),
    (["IN/ada", "--out", "OUT"], "holds exercises itself"),
    (["IN", "--out", "IN/out"], "must not lie in each other"),
    (["IN", "--out", "IN"], "is not empty"),
    (["IN", "--out", "FULL"], "is not empty"),
    (["IN", "--out", "FULL", "--resume"], "no manifest"),
    (["IN", "--out", "OUT", "--hidden-from", "nowhere"], "--hidden-from nowhere"),
    (["IN", "--out", "OUT", "--timeout", "0"], "timeout must be above 0 seconds"),
    (["IN", "--out", "OUT", "--timeout", "-3"], "timeout must be above 0 seconds"),
    (["IN", "--out", "OUT", "--grading", "nowhere.toml"], "nowhere.toml"),
    (["IN", "--out", "OUT", "--canvas", "IN/ada/ex03_linear.py"], "no gradebook of Canvas"),
    (["--regrade", "nowhere.json"], "no manifest"),
])
def test_bad_usage_is_explained_and_nothing_is_written(arguments, words, tmp_path, capsys):
    _folder(tmp_path / "IN" / "ada", {"ex03_linear.py": "1"})
    _folder(tmp_path / "FULL", {"thesis.txt": "all of it"})
    places = {name: str(tmp_path / name) for name in ("IN", "OUT", "FULL")}
    for name, place in places.items():
        arguments = [argument.replace(name, place) if argument.startswith(name) else argument for argument in arguments]
    with contextlib.suppress(SystemExit):       # as argparse leaves
        assert main(["grade", *arguments, "--no-jail"]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "OUT").exists() and (tmp_path / "FULL" / "thesis.txt").exists()


def test_check_says_what_is_missing_and_that_it_is_no_success(tmp_path, capsys):
    _folder(tmp_path / "ada", {"my_ex03_linear.py": RIGHT[LINEAR]})
    assert main(["check", "3", "--submission", str(tmp_path / "ada"), "--json", str(tmp_path / "said.json")]) == 1
    screen = capsys.readouterr().out
    assert "not handed in" in screen and "there is my_ex03_linear.py" in screen
    said = json.loads((tmp_path / "said.json").read_text("utf-8"))
    assert said["verdicts"][0]["verdict"] == "missing" and said["torch"] and said["commit"] is not False
    assert said["chapters"][LINEAR.stem]["passed"] == 0 < said["chapters"][LINEAR.stem]["of_points"]


def test_hidden_checks_that_are_not_there_are_said(tmp_path, monkeypatch, capsys):
    tests = tmp_path / "tests"
    shutil.copytree(chapters.TESTS, tests, ignore=shutil.ignore_patterns("hidden", "course"))
    monkeypatch.setattr(chapters, "TESTS", tests)
    monkeypatch.setattr(chapters, "HIDDEN", tests / "hidden")
    assert main(["check", "3", "--submission", str(chapters.SOLUTIONS), "--hidden"]) == 2
    assert "there are no hidden checks for 03" in capsys.readouterr().err
    (tests / "hidden").mkdir()
    shutil.copy(ROOT / "tests" / "hidden" / "test_ex03_linear.py", tests / "hidden")
    assert chapters.without_hidden([SHAPES, LINEAR]) == [SHAPES]


def test_a_file_without_what_is_asked_for_loads_no_mistakes(tmp_path):
    folder = _folder(tmp_path, {"ex03_linear.py": "", "ex00_shapes.py": "def ("})
    with Grader() as grader:
        for chapter in (SHAPES, LINEAR):
            assert not {verdict.word for verdict in grader.grade(chapter, folder)} & {"passed"}
        assert grader.mistakes._suspects == {}


def test_pytest_gives_points_to_junit(tmp_path):
    student = fresh(tmp_path / "student")
    (student / "ex03_linear.py").write_text(SLIP, "utf-8")
    (student / "ex00_shapes.py").write_text("def (", "utf-8")
    subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_ex03_linear.py",
                    "tests/test_ex00_shapes.py", "-k", "flops or shapes", "--submission", student,
                    f"--junitxml={tmp_path / 'j.xml'}"], cwd=ROOT, capture_output=True)
    cases = {case.get("name"): case for case in xml.parse(tmp_path / "j.xml").iter("testcase")}
    said = {one.get("name"): one.get("value") for one in cases["test_flops"].iter("property")}
    assert said["verdict"] == "wrong" and float(said["points"]) == 0 and float(said["of_points"]) > 0
    assert said["hidden"] == "false" and said["mistake"]
    shapes = [case for case in cases.values() if "shapes" in case.get("classname")]
    assert len(shapes) > 2 and sum(case.find("failure") is not None for case in shapes) == 1
