"""What an attacker, or an accident, did to a class once, and cannot do any more."""

import json
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
import torch

from grader.classroom.output import canvas, exports, reflection, similar
from grader.classroom.output.gradebook import Gradebook
from grader.classroom.output.grading import Grading
from grader.classroom.run import cells
from grader.classroom.run.cells import Cell
from grader.classroom.run.folder import locked
from grader.course import chapters, stubs
from grader.course.chapters import ROOT
from grader.front.results import Asked, Line, Result
from grader.judge import compare
from grader.judge.engine import Grader
from grader.judge.verdict import Word
from grader.sandbox import wire
from grader.sandbox.reply import CodeLine
from grader.sandbox.wire import Leaf

LINEAR = chapters.find("linear")
RIGHT = LINEAR.solution.read_text("utf-8")
CHECK = Asked("test_one", "tests/test_ex03_linear.py", False, 1.0, "A rule.", "A hint.")


def _hand_in(top: Path, student: str, source: str = RIGHT) -> None:
    (top / student).mkdir(parents=True, exist_ok=True)
    (top / student / "ex03_linear.py").write_text(source, "utf-8")


def _grade(top: Path, *arguments) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "grader", "grade", top / "in", "--out", top / "out", "--chapters", 3, "--no-jail"]
    return subprocess.run(list(map(str, [*command, *arguments])), cwd=ROOT, capture_output=True, text=True)


def _cell(out: Path, student: str) -> Cell:
    return cells.read(out, student, LINEAR)


def _points(cell: Cell) -> float:
    return sum(result.points for result in cell.verdicts)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Three who are right, graded once."""
    top = tmp_path_factory.mktemp("attacks")
    for student in ("ada", "bob", "eve"):
        _hand_in(top / "in", student)
    assert _grade(top, "--seed", 5).returncode == 0
    return top


@pytest.fixture
def again(run, tmp_path) -> Path:
    """A copy of that run."""
    shutil.copytree(run, tmp_path / "run")
    manifest = tmp_path / "run" / "out" / "manifest.json"
    manifest.write_text(manifest.read_text("utf-8").replace(str(run), str(tmp_path / "run")), "utf-8")
    return tmp_path / "run"


def test_what_was_graded_is_never_replaced_by_missing(again):
    shutil.rmtree(again / "in" / "eve")
    (again / "in" / "eve").symlink_to(again / "in" / "ada")
    (again / "in" / "bob" / "ex03_linear.py").unlink()
    done = _grade(again, "--resume")
    assert "bob ex03_linear is no longer there; what was graded stays" in done.stdout
    assert {student: _points(_cell(again / "out", student)) > 0 for student in ("ada", "bob", "eve")} == {
        "ada": True, "bob": True, "eve": True}
    (again / "out" / "cells" / "bob" / "ex03_linear.json").unlink()
    _grade(again, "--resume")
    assert _cell(again / "out", "bob").missing


def test_what_changed_is_asked_on_a_seed_that_no_page_has_told(again):
    _hand_in(again / "in", "eve", RIGHT + "\nSEED = 5\n")
    _hand_in(again / "in", "zoe")
    _grade(again, "--resume")
    seeds = {student: _cell(again / "out", student).seed for student in ("ada", "bob", "eve", "zoe")}
    assert seeds["ada"] == seeds["bob"] == 5 and seeds["eve"] == seeds["zoe"] != 5
    # A regrade asks each on its own.
    done = subprocess.run([sys.executable, "-m", "grader", "grade", "--regrade", str(again / "out" / "manifest.json")],
                          cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.rstrip().splitlines()[-2] == "nothing", done.stdout + done.stderr
    assert {student: _cell(again / "out", student).seed for student in seeds} == seeds


def test_verdicts_changed_by_hand_are_asked_again(again):
    path = cells.path(again / "out", "bob", LINEAR)
    said = json.loads(path.read_text("utf-8"))
    said["verdicts"] = said["verdicts"][:1]
    path.write_text(json.dumps(said), "utf-8")
    done = _grade(again, "--resume")
    assert "bob ex03_linear: its verdicts were changed by another hand" in done.stdout
    assert len(_cell(again / "out", "bob").verdicts) == len(_cell(again / "out", "ada").verdicts)


def test_two_runs_do_not_work_in_one_folder(again):
    with locked(again / "out"):
        done = _grade(again, "--resume")
    assert done.returncode == 2 and "another run is at work in" in done.stderr
    assert _grade(again, "--resume").returncode == 0


def test_one_appeal_asks_one_student(again):
    paths = {student: cells.path(again / "out", student, LINEAR) for student in ("ada", "bob", "eve")}
    before = {student: path.stat().st_mtime_ns for student, path in paths.items()}
    manifest = again / "out" / "manifest.json"
    appeal = [sys.executable, "-m", "grader", "grade", "--regrade", str(manifest), "--students"]
    done = subprocess.run([*appeal, "bob"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [student for student, stamp in before.items()
            if paths[student].stat().st_mtime_ns != stamp] == ["bob"]
    page = (again / "out" / "feedback" / "bob.html").read_text("utf-8")
    assert "with seed 5." in page and "--seed 5" in page
    done = subprocess.run([*appeal, "mallory"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "--students mallory: nobody here is called that" in done.stderr


def test_a_name_moves_no_cursor(tmp_path):
    """What a student called an archive stands in Canvas' name for it, and on the instructor's screen."""
    _hand_in(tmp_path / "in", "ada")
    (tmp_path / "in" / "eve_12_34_a\x1b[2J\x1b]0;title\x07\u202eb.zip").write_bytes(b"no archive")
    done = _grade(tmp_path)
    assert "left out: eve: eve_12_34_a?[2J?]0;title??b.zip: it cannot be read" in done.stdout
    assert all(c.isprintable() or c == "\n" for c in done.stdout + done.stderr)


def test_nothing_is_resumed_where_nothing_was_begun(run, tmp_path):
    shutil.copytree(run / "in", tmp_path / "in")
    (tmp_path / "out").mkdir()
    done = _grade(tmp_path, "--resume")
    assert done.returncode == 2 and "is no manifest of a run" in done.stderr


def _book(*students: str) -> Gradebook:
    verdicts = (Result(**vars(CHECK), verdict=Word.PASSED),)
    return Gradebook([Cell(student, LINEAR, "graded", "", {}, 0, "cpu", 10.0, True, 0.0, verdicts)
                      for student in students], {LINEAR.stem: [CHECK]}, Grading())


def test_a_name_as_long_as_a_file_system_takes_keeps_nobody_from_their_results(tmp_path):
    exports.write(tmp_path, _book("ada", "学" * 84))
    assert len(list((tmp_path / "results").iterdir())) == 2 and (tmp_path / "results" / "ada.json").exists()


@pytest.mark.parametrize("first", [0, 1])
def test_nobody_is_called_as_another_s_page(first):
    """A login may be any word, such as the name that somebody else's file gets where theirs cannot be one."""
    page = exports.file_names(["O'Neil"])["O'Neil"]
    students = ["O'Neil", page] if first else [page, "O'Neil", page.upper()]
    names = exports.file_names(students)
    assert len({name.casefold() for name in names.values()}) == len(students)


@pytest.mark.parametrize("handed_in, filled, said", [
    (["a_bob", "bob"], "bob", "a_bob is not filled in: its row is bob's"),
    (["a_bob", "b_bob"], None, "neither is filled in"),
    (["bob"], "bob", ""), (["bob_1234"], "bob_1234", "")])
def test_nobody_takes_another_s_row(handed_in, filled, said, tmp_path):
    template = tmp_path / "canvas.csv"
    template.write_text("Student,ID,SIS Login ID,Linear 03 (7)\nPoints Possible,,,1\nBob,1,bob,\n", "utf-8")
    lines = canvas.Template.read(template).fill(tmp_path / "filled.csv", _book(*handed_in))
    row = (tmp_path / "filled.csv").read_text("utf-8").splitlines()[2]
    assert row == ("Bob,1,bob,1" if filled else "Bob,1,bob,") and said in " ".join(lines)


@pytest.mark.parametrize("right", [float("inf"), float("-inf")])
@pytest.mark.parametrize("mine", [0.0, 1e308, -1e308, float("inf"), float("-inf"), float("nan"), 10**400],
                         ids=lambda mine: str(mine)[:6])
def test_an_infinity_is_equal_to_itself_alone(mine, right):
    kind = "int" if isinstance(mine, int) else "float"
    assert bool(compare.differences(Leaf(kind, mine), Leaf("float", right), "cpu")) is (mine != right)


@pytest.mark.parametrize("line, found", [
    ('y = vars(torch)["_C"]._nn.linear(x, w)', True), ('y = getattr(torch, "o" + "ps")', True),
    ("import inspect", True), ("from ctypes import cdll", True), ("f = torch.nn.__dict__['Linear']", True),
    ("sys.modules['grader']", True), ('eval("1")', True), ("setattr(self, name, value)", True),
    ('y = getattr(self, "bias", None)', False), ("model.eval()", False), ("# eval(x)", False),
    ("retrieval(x)", False), ("self.inspect(x)", False), ("x = gc_content(x)", False),
    ("𝓮val('1')", True), ("g = getattr", True), ("import math, ctypes", True), ("from sys import modules", True),
    ("x = 0;" * 300 + " y = vars(x)", True), ("f = operator.attrgetter(name)", True), ("x = 'eval(1)'", False),
    ("for m in self.modules(): m", False), ('"a # is no comment"; eval("1")', True)])
def test_a_line_that_may_hide_a_use_is_shown(line, found, tmp_path):
    (tmp_path / "ex03_linear.py").write_text(f"import torch\n{line}\n", "utf-8")
    assert reflection.lines(tmp_path, LINEAR) == ([("ex03_linear.py", 2, line)] if found else [])


@pytest.mark.parametrize("file, content, said", [
    ("ex03_linear.py", b"# nothing here\reval('1')\r", (2, "eval('1')")),
    ("ex03_linear.py", b"g = getattr\\\n  (x, y)\n", (1, "g = getattr\\")),
    ("ex03_linear.py", b"# coding: latin-1\n# \xe9\neval('1')\n", (3, "eval('1')")),
    ("ex03_linear.py", b"x = [0]\n#" + b"x" * reflection.LONGEST, (0, "too long, or")),
    ("ex03_linear.py", b"x = a" + b".b" * 40_000, (0, "too long, or nested too deep")),
    ("ex03_linear.py", b"eval(", None), ("helper.py", b"import torch\neval('1')\n", (2, "eval('1')")),
    ("ex04_normalization.py", b"eval('1')", None)],
    ids=["a line ends in CR", "over two lines", "another encoding", "too long", "too deep", "no Python", "a helper",
         "another chapter"])
def test_no_way_of_writing_hides_such_a_line(file, content, said, tmp_path):
    (tmp_path / "ex03_linear.py").write_bytes(RIGHT.encode())
    (tmp_path / file).write_bytes(content)
    found = reflection.lines(tmp_path, LINEAR)
    assert not found if said is None else found[0][:2] == (file, said[0]) and found[0][2].startswith(said[1])


@pytest.mark.parametrize("chapter", chapters.chapters(), ids=lambda chapter: chapter.stem)
def test_the_course_s_own_solutions_hide_little(chapter):
    """So that what is listed is worth a look."""
    assert len(reflection.lines(chapter.solution.parent, chapter)) <= 2


BORROWED = "\nUNUSED = lambda: torch.nn.functional.linear\n"


@pytest.fixture(scope="module")
def grader():
    with Grader(many=True) as grader:
        yield grader


@pytest.mark.parametrize("content, word, words", [
    (b"\xef\xbb\xbf" + RIGHT.encode(), "passed", ""),
    (b"\xef\xbb\xbf" + (RIGHT + BORROWED).encode(), "forbidden", "torch.nn.functional.linear"),
    (b"# coding: latin-1\n# \xe9\n" + RIGHT.encode(), "passed", ""),
    (b"# coding: latin-1\n# \xe9\n" + (RIGHT + BORROWED).encode(), "forbidden", "torch.nn.functional.linear"),
    (b"# coding: utf-7\n" + RIGHT.encode("utf-7") + b"\n# +AAo-SECRET = 1\n", "error", "save it as UTF-8"),
    (b"\r# coding: utf-7\r" + RIGHT.encode("utf-7") + b"\r# +AAo-SECRET = 1\r", "error", "save it as UTF-8"),
    (b"# coding: raw_unicode_escape\n# \\u000aSECRET = 1\n" + RIGHT.encode("ascii", "backslashreplace"), "error",
     "save it as UTF-8"),
    (b"# coding: idna\n" + b"a." * 400_000, "error", "save it as UTF-8"),
    (RIGHT.encode("utf-16"), "error", "save it as that"), (RIGHT.encode() + b"\0", "error", "a null byte"),
    (RIGHT.encode() + b"# \xe9", "error", "byte 0xe9 in line"), (RIGHT.replace("\n", "\r").encode(), "passed", "")],
    ids=["BOM", "BOM, borrowed", "Latin-1", "Latin-1, borrowed", "UTF-7", "UTF-7 after CR", "escapes", "IDNA", "UTF-16",
         "null", "bytes", "CR"])
def test_what_is_looked_at_is_what_is_run(content, word, words, grader, tmp_path):
    """In UTF-7 a line of code can hide in a comment; a scan that cannot read a file sees nothing in it."""
    (tmp_path / "ex03_linear.py").write_bytes(content)
    verdicts = [Result.of(verdict) for verdict in grader.grade(LINEAR, tmp_path)]
    said = {result.verdict: " ".join(result.facts) for result in verdicts}
    assert word in said and words in said[word] and (word == "forbidden" or len(said) == 1)


def test_a_byte_order_mark_is_no_work(tmp_path):
    """A file that an editor has saved as it was: with a mark before it, or with other ends of lines."""
    stub = chapters.stub(LINEAR)
    for content in (stub.encode("utf-8-sig"), stub.replace("\n", "\r\n").encode(), stub.encode()):
        (tmp_path / "ex03_linear.py").write_bytes(content)
        assert not stubs.started(LINEAR, tmp_path)
    first, rest = stub.split("raise NotImplementedError", 1)
    (tmp_path / "ex03_linear.py").write_text(f"{first}self.weight = None{rest}", "utf-8-sig")
    assert stubs.started(LINEAR, tmp_path) and "linear_flops" in stubs.unwritten(LINEAR, tmp_path)


def test_a_line_of_a_helper_is_read_in_no_encoding_of_its_choice(tmp_path):
    """The process that writes verdicts down would read a megabyte of IDNA for minutes, and zlib's for nothing."""
    (tmp_path / "helper.py").write_bytes(b"# coding: zlib_codec\nx = 1\n")
    assert Line.of(CodeLine(tmp_path / "helper.py", 2, "f")).text == ""
    (tmp_path / "helper.py").write_bytes(b"# coding: latin-1\n\n  x = '\xe9'\n")
    assert Line.of(CodeLine(tmp_path / "helper.py", 3, "f")).text == "x = 'é'"


def test_a_subtree_over_many_lines_takes_little_memory(tmp_path):
    """A set of the lines of each subtree took half a gigabyte for a file, in the process that keeps all grades."""
    sum_of = "(\nx0" + "\n" * 90_000 + "+ " + " + ".join(f"x{number}" for number in range(1, 70)) + ")\n"
    file = tmp_path / "ex03_linear.py"
    file.write_text("y = " + sum_of, "utf-8")
    tracemalloc.start()
    try:
        assert similar.similar({"eve": file, "mallory": file}, LINEAR)[0][2] == 1.0
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("large, said", [
    ([10**4299 + number for number in range(3600)], "characters"), (["x" * 999_999] * 8, "characters"),
    ({f"{number}{'k' * 190}": 0 for number in range(500)}, "characters"), (torch.zeros(1 << 20), "tensors of"),
    ([[torch.zeros(1)] * 40_000] * 4, "values")], ids=["ints", "strings", "labels", "numbers", "tensors"])
def test_an_answer_much_larger_than_the_right_one_is_not_compared(large, said):
    """It would take as many times as long, for each check and each known mistake."""
    most = wire.Size.beside(*wire.encode([24, torch.zeros(3, 4), "right"]))
    with pytest.raises(wire.TooLarge, match=said):
        wire.decode(*wire.encode(large), most)
    wire.decode(*wire.encode([24] * 500 + ["x" * 10_000, torch.zeros(200, 400)]), most)


def test_an_answer_much_larger_than_the_right_one_is_wrong(tmp_path):
    (tmp_path / "ex03_linear.py").write_text(
        RIGHT + "\n\ndef linear_flops(*_):\n    return [10**4299 + i for i in range(1600)]\n", "utf-8")
    with Grader() as grader:
        verdict, = grader.grade(LINEAR, tmp_path, only=lambda check: check.function == "test_flops")
    assert verdict.word == "wrong" and "characters, many times what is expected" in verdict.facts[0]
