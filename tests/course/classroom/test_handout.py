"""The students' edition: what it holds, what it must not hold, and that it works like the course.

Most of it is asked of a course of two small chapters, laid out like this one in a folder of its
own, of which an edition is made in seconds; a little of this course itself.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from grader.classroom.edition import handout, leaks
from grader.course import chapters, checks
from grader.course.chapters import ROOT, CourseError
from grader.judge import mistakes, record
from grader.judge.edits import Edit, edits
from grader.judge.engine import Grader
from grader.sandbox.frames import FrameError
from grader.sandbox.setting import Setting

FIRST = '''"""First: twice and thrice."""

import torch


def twice(x: torch.Tensor) -> torch.Tensor:
    """2 x."""
    # BEGIN SOLUTION
    number_two = torch.full_like(x, 2.0)
    return x * number_two
    # END SOLUTION


def refuses(n: int) -> int:
    """n, which must be above 0."""
    # BEGIN SOLUTION
    if n < 1:
        raise ValueError(f"n must be above 0, got {n}")
    return n
    # END SOLUTION
'''
LAST = '''"""Last: four times."""

import torch

from .ex01_first import twice


def four_times(x: torch.Tensor) -> torch.Tensor:
    """4 x."""
    # BEGIN SOLUTION
    return twice(twice(x))
    # END SOLUTION
'''
FIRST_CHECKS = '''from grader import needs, raises


def test_twice(impl, draw):
    """twice gives 2 x.

    Multiply.
    """
    return impl.twice(draw.uniform(3))


def test_sign(impl, draw):
    """twice keeps the sign.

    Of negative numbers, too.
    """
    return impl.twice(-draw.uniform(3))


@needs('numpy')
def test_refuses(impl, draw):
    """refuses wants n above 0.

    Raise a ValueError.
    """
    return raises(ValueError, lambda: impl.refuses(0), names="n")
'''
LAST_CHECKS = '''def test_four_times(impl, draw):
    """four_times gives 4 x.

    Twice, twice.
    """
    return impl.four_times(draw(3))


def test_of_one_number(impl, draw):
    """four_times takes one number, too.

    Of no dimension.
    """
    return impl.four_times(draw())
'''
HIDDEN = '''def test_of_zeros(impl, draw):
    """Twice nothing stays nothing at all.

    0 is its own double.
    """
    zeros = draw(3) * 0
    return impl.twice(zeros)
'''
# The second and third cannot be told apart by test_twice alone.
MISTAKES = '''[[mistake]]
find = "torch.full_like(x, 2.0)"
replace = "torch.full_like(x, 2.5)"
says = "This is two and a half."

[[mistake]]
find = "return x * number_two"
replace = "return x * number_two + x"
says = "This is thrice."

[[mistake]]
find = "return x * number_two"
replace = "return x.abs() * number_two + x.abs()"
says = "This is thrice, without a sign."

[[mistake]]
find = "if n < 1:"
replace = "if n < 0:"
says = "0 is not above 0."

[[alternative]]
find = "return x * number_two"
replace = "return number_two.mul(x)"
why = "The same product."
'''
LAST_MISTAKES = '''[[mistake]]
find = "twice(twice(x))"
replace = "twice(x) * 3"
says = "This is six times."

[[mistake]]
find = "twice(twice(x))"
replace = "twice(x.no_such) if x.dim() else open(__import__('tempfile').mkdtemp() + '/none')"
says = "There is no such attribute."
'''


def _lesson(words: str, code: str) -> str:
    cells = [{"cell_type": "markdown", "metadata": {}, "source": words.splitlines(keepends=True)}]
    for number, lines in enumerate(("from exercises.ex01_first import twice", code), 1):
        cells.append({"cell_type": "code", "execution_count": number, "metadata": {}, "outputs": [],
                      "source": lines.splitlines(keepends=True)})
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


FILES = {
    "solutions/ex01_first.py": FIRST, "solutions/ex02_last.py": LAST,
    "tests/test_ex01_first.py": FIRST_CHECKS, "tests/test_ex02_last.py": LAST_CHECKS,
    "tests/hidden/test_ex01_first.py": HIDDEN,
    "tests/mistakes/ex01_first.toml": MISTAKES, "tests/mistakes/ex02_last.toml": LAST_MISTAKES,
    "notebooks/01_first.ipynb": _lesson(
        "# First\n\n![a map](../assets/map/01.svg) Next: [02 · Last](02_last.ipynb), by the\n"
        "[script](../assets/draw.py).\n\n### Exercise 1: `twice`\n\n<details><summary>Hint 1: start</summary>\n\n"
        "See [lesson\n02](02_last.ipynb).\n\n</details>", "twice(1)"),
    "notebooks/02_last.ipynb": _lesson("# Last", "twice(1)"),
    "assets/map/01.svg": "<svg/>", "assets/map/02.svg": "<svg/>", "assets/draw.py": "", "assets/plain.txt": "plain",
    "requirements-numpy.txt": "numpy", "requirements-dev.txt": "ruff",
}


def make_course(folder: Path) -> Path:
    """A course of two chapters with this course's grader."""
    for name in ("requirements.txt", "pyproject.toml", "LICENSE", ".gitignore", "exercises/__init__.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    for name in ("grader", "given"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    return folder


def _python(folder: Path, *arguments: str, input: str = "", **environment) -> subprocess.CompletedProcess:
    inherited = {name: value for name, value in os.environ.items() if name not in ("COURSE_EXERCISES", "PYTHONPATH")}
    return subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, input=input,
                          env={**inherited, "PYTHONDONTWRITEBYTECODE": "1", **environment})


def _grader(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    return _python(folder, "-m", "grader", *arguments)


def _contents(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="session")
def course(tmp_path_factory):
    return make_course(tmp_path_factory.mktemp("course"))


@pytest.fixture(scope="session")
def built(course, tmp_path_factory):
    """The edition of both chapters, as it is handed out."""
    folder = tmp_path_factory.mktemp("editions") / "edition"
    done = _grader(course, "handout", str(folder))
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def edition(built, tmp_path):
    """A student's own copy."""
    return Path(shutil.copytree(built, tmp_path / "mine"))


# -- what it holds ---------------------------------------------------------------------------------

def test_what_is_not_installed_is_said_before_anything_is_asked(tmp_path, monkeypatch):
    """Asking the other chapters takes minutes."""
    monkeypatch.setattr(checks.packages, "lacking", lambda package: f"this needs {package}" if package else "")
    monkeypatch.setattr(handout, "Grader", None)        # nobody starts one
    needing = next(chapter for chapter in chapters.chapters()
                   if any(check.needs for check in checks.collect(chapter.tests(), chapter.stem, False)))
    with pytest.raises(CourseError, match=f"{needing.stem}: this needs \\w+ "):
        handout.run(tmp_path / "edition", chapters.chapters(), [], tell=lambda words: pytest.fail(words))
    assert not (tmp_path / "edition").exists()


def test_it_holds_what_a_student_needs_and_no_answers(built):
    files = set(_contents(built))
    assert {"README.md", "Makefile", "requirements.txt", "pyproject.toml", "LICENSE", "exercises/ex01_first.py",
            "stubs/ex01_first.py", "key/ex01_first.key", "key/ex02_last.key", "tests/test_ex02_last.py",
            "notebooks/01_first.ipynb", "assets/map/02.svg", "assets/plain.txt", "grader/judge/engine.py",
            "requirements-numpy.txt"} <= files
    assert not [name for name in files if name.startswith(("solutions/", "tests/hidden", "tests/mistakes",
                                                           "grader/classroom"))]
    assert not files & {"assets/draw.py", "requirements-dev.txt"}
    assert (built / "exercises/ex01_first.py").read_text() == chapters.make_stub(FIRST)


def test_built_twice_it_is_the_same_byte_for_byte(course, built, tmp_path):
    done = _python(course, "-m", "grader", "handout", str(tmp_path / "again"), PYTHONHASHSEED="3")
    assert done.returncode == 0, done.stderr
    assert _contents(tmp_path / "again") == _contents(built)
    for path in built.rglob("*"):
        assert path.is_dir() or str(course) not in path.read_bytes().decode("utf-8", "replace"), path


def test_a_known_mistake_that_gives_no_answer_in_time_is_not_left_out_in_silence(monkeypatch):
    chapter = chapters.find("00")
    waits = "import time\ntime.sleep(60)\n" + chapter.solution.read_text("utf-8")
    monkeypatch.setattr(mistakes, "edits", lambda chapter, kind: [Edit(waits, "It waits.", frozenset({"split_heads"}))])
    with Grader(Setting(timeout=2)) as grader:
        check = next(check for check in grader.checks(chapter) if "split_heads" in check.names)
        with pytest.raises(CourseError, match="It waits."):
            grader.mistakes.wrong(check)


def test_a_chapter_that_is_left_out_is_nowhere(course, tmp_path):
    done = _grader(course, "handout", str(tmp_path / "one"), "--chapters", "1", "--given", "1")
    assert done.returncode == 0, done.stderr
    assert not [name for name in _contents(tmp_path / "one") if "02" in name]
    lesson = (tmp_path / "one/notebooks/01_first.ipynb").read_text()
    said = "".join(json.loads(lesson)["cells"][0]["source"])
    assert "Next: 02 · Last, by the\nscript." in said and "See lesson\n02." in said
    assert "![a map](../assets/map/01.svg)" in said
    assert "02_last" not in (tmp_path / "one/README.md").read_text()


def test_the_readme_says_from_which_cell_on_a_lesson_needs_code(built):
    """Lesson 02 of the small course uses chapter 01 alone."""
    rows = (built / "README.md").read_text().splitlines()
    assert "| 01 | from [2] on | – |" in rows and "| 02 | – | 01 from [2] on |" in rows
    linear = handout._cells(chapters.find("linear"), [chapters.find("linear")], [])
    assert linear["own"] == 12      # cells 2 to 11 run on fresh stubs, this one does not


def test_a_given_chapter_is_as_in_the_course(course, tmp_path):
    folder = tmp_path / "given"
    done = _grader(course, "handout", str(folder), "--given", "1")
    assert done.returncode == 0, done.stderr
    assert (folder / "solutions/ex01_first.py").read_text() == FIRST
    assert not (folder / "key/ex01_first.key").exists() and not (folder / "tests/hidden").exists()
    assert "solutions of 01 are given" in (folder / "README.md").read_text()
    (folder / "exercises/ex02_last.py").write_text(LAST)
    done = _grader(folder, "check", "2")
    assert "all passed" in done.stdout, done.stdout + done.stderr       # on the given twice
    (folder / "exercises/ex01_first.py").write_text(FIRST.replace("2.0", "2.5"))
    done = _grader(folder, "check", "1", "--seed", "5")
    assert "This is two and a half." in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("options, words", [
    (["--chapters", "2"], "--chapters has 02, which builds on 01"),
    (["--given", "2"], "--given has 02, which builds on 01"),
    (["--chapters", "1", "--given", "2"], "--given names 02, which --chapters leaves out"),
    (["--chapters", "2-1"], "runs backwards"),
    (["--chapters", "7"], "there is no chapter '7'"),
])
def test_a_choice_that_cannot_work_is_refused(course, tmp_path, options, words):
    done = _grader(course, "handout", str(tmp_path / "new"), *options)
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "new").exists()


def test_a_folder_that_holds_something_is_left_alone(course, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    done = _grader(course, "handout", str(tmp_path))
    assert done.returncode == 2 and "must be a new or an empty folder" in done.stderr
    assert os.listdir(tmp_path) == ["mine.txt"]


# -- what it must not hold ---------------------------------------------------------------------------

SECRETS = {
    "solutions/ex01_first.py": "number_two = torch.full_like(x, 2.0)",
    "tests/mistakes/ex01_first.toml": "return number_two.mul(x)",                   # which is right
    "tests/mistakes/ex02_last.toml": "return  twice(x) * 3",
    "tests/hidden/test_ex01_first.py": 'zeros = draw(3) * 0\n    return impl.twice(zeros)\n    """',
}
PLACES = {
    "notebooks/01_first.ipynb": lambda text: _lesson("# First", f"x = \'\'\'\n{text}\n\'\'\'"),
    "notebooks/02_last.ipynb": lambda text: _lesson("# Last\n" + text.replace("(", "&#40;"), "twice(1)"),
    "assets/plain.txt": lambda text: f"\0\1{text}\0",
    "tests/test_ex01_first.py": lambda text: FIRST_CHECKS + f"\n\ndef more():\n    \'\'\'x\n\n    {text}\n    \'\'\'\n",
}


@pytest.mark.parametrize("place", PLACES)
def test_a_leak_stops_the_build(tmp_path, place):
    """Each kind of secret, wherever it is planted; nothing is written."""
    course = make_course(tmp_path / "course")
    (course / place).write_text(PLACES[place]("\n    ".join(SECRETS.values())), "utf-8")
    done = _grader(course, "handout", str(tmp_path / "new"))
    assert done.returncode == 2 and not (tmp_path / "new").exists()
    for source, secret in SECRETS.items():
        assert f"{place} shows a line of {source}:\n      {' '.join(secret.split())[:19]}" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_a_leak_in_the_record_stops_the_build(tmp_path):
    """What a mistake says lies in the record, which is compressed."""
    course = make_course(tmp_path / "course")
    (course / "tests/mistakes/ex02_last.toml").write_text(
        LAST_MISTAKES.replace("six times.", "no number_two = torch.full_like(x, 2.0)"), "utf-8")
    done = _grader(course, "handout", str(tmp_path / "new"), "--chapters", "1-2")
    assert done.returncode == 2 and not (tmp_path / "new").exists()
    assert "key/ex02_last.key shows a line of solutions/ex01_first.py" in done.stderr


def test_what_is_known_anyway_is_no_leak(course, tmp_path, monkeypatch):
    """A line of a solution that is given; and in a check, one line that a hidden check has too."""
    for name in ("ROOT", "SOLUTIONS", "TESTS", "HIDDEN"):
        monkeypatch.setattr(chapters, name, course / {"ROOT": "", "HIDDEN": "tests/hidden"}.get(name, name.lower()))
    first, last = chapters.chapters()
    for name, text in (("tests/test_ex01_first.py", "    zeros = draw(3) * 0\n    return zeros"),
                       ("notebooks/01_first.ipynb", _lesson(SECRETS["solutions/ex01_first.py"], ""))):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    assert [name for name, _ in leaks.find(tmp_path, leaks.secrets([first]))] == []
    assert [name for name, _ in leaks.find(tmp_path, leaks.secrets([]))] == ["notebooks/01_first.ipynb"]


def test_this_course_shows_only_what_shown_txt_says(tmp_path):
    """And every line there is still shown, so that none allows what has gone."""
    handout._copy(tmp_path, chapters.chapters(), [])
    for chapter in chapters.chapters():     # of a record, the words are enough
        words = [edit.words for edit in edits(chapter, "mistake")]
        record.write(tmp_path / "key" / chapter.record.name, {"mistakes": words}, [])
    secrets = leaks.secrets([])
    found = [f"{name}: {secret.text}" for name, secret in leaks.find(tmp_path, secrets)]
    assert not found, found
    texts: dict[str, list[str]] = {}
    known = {secret.text for secret in secrets}
    for name, line in sorted(leaks.shown()):
        texts[name] = texts.get(name) or leaks._texts(tmp_path / name)
        assert line in known and any(line in text for text in texts[name]), f"{name} no longer shows: {line}"


# -- that it works -------------------------------------------------------------------------------------

# In the edition's folder: of each state of the exercises, every verdict as [word, likely mistake, facts].
GRADE = """
import json, sys
from pathlib import Path
from grader.course import chapters
from grader.front import report
from grader.judge.engine import Grader
said = []
with Grader() as grader:
    for state in json.load(sys.stdin):
        for name, text in state.items():
            Path("exercises", name).write_text(text, "utf-8")
        results = {chapter: list(grader.grade(chapter)) for chapter in chapters.chapters()}
        said.append({v.check.name: [v.word, v.mistake, v.facts] for verdicts in results.values() for v in verdicts})
        said[-1]["next"] = report.next_step(results)
print(json.dumps(said))
"""


def _states(edition: Path, *states: dict[str, str]) -> list[dict]:
    """What the edition's grader says of each of these states of its exercises."""
    done = _python(edition, "-c", GRADE, input=json.dumps(states))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _first(old: str = "", new: str = "") -> dict[str, str]:
    assert old in FIRST
    return {"ex01_first.py": FIRST.replace(old, new)}


def test_verdicts_are_those_of_the_course(edition):
    """To do, waiting for a chapter that is not written, wrong by a known mistake, right in the end."""
    fresh, waiting, slip, thrice, unsigned, zero, done = _states(
        edition, {}, {"ex02_last.py": LAST}, _first("2.0", "2.5"), _first("* number_two", "* number_two + x"),
        _first("x * number_two", "x.abs() * number_two + x.abs()"), _first("n < 1", "n < 0"), _first())
    assert {fresh[name][0] for name in ("test_twice", "test_sign", "test_refuses", "test_four_times")} == {"todo"}
    assert fresh["next"].startswith("Next: read notebooks/01_first.ipynb")
    said = "this needs a part of ex01_first.py that is not written yet"
    assert waiting["test_four_times"] == ["waiting", "", [said]]
    assert slip["test_twice"][:2] == ["wrong", "This is two and a half."]
    assert "you gave" in slip["test_twice"][2][0] and "expected" in slip["test_twice"][2][0]
    assert slip["test_four_times"][0] == "wrong"
    # These two give the same answer to test_twice, and another check tells them apart.
    assert thrice["test_twice"][1] == "This is thrice."
    assert unsigned["test_twice"][1] == "This is thrice, without a sign."
    assert zero["test_refuses"][1] == "0 is not above 0." and zero["test_twice"][0] == "passed"
    assert {done[name][0] for name in ("test_twice", "test_sign", "test_refuses", "test_four_times")} == {"passed"}


def test_an_exception_of_a_known_mistake_is_named(edition):
    said, = _states(edition, {**_first(), "ex02_last.py": LAST.replace("twice(twice(x))", "twice(x.no_such)")})
    assert said["test_four_times"][:2] == ["error", "There is no such attribute."]


def test_the_command_line(edition):
    """Fresh stubs have exit code 0; a file can be started over; stubs and hints are there."""
    done = _grader(edition, "check")
    assert done.returncode == 0 and "0 of 5 checks passed" in done.stdout, done.stderr
    mine = edition / "exercises/ex01_first.py"
    mine.write_text("mine\n")
    done = _grader(edition, "reset", "1")
    assert done.returncode == 0, done.stderr
    assert mine.read_text() == chapters.make_stub(FIRST)
    assert [path.read_text() for path in mine.parent.glob("*.bak")] == ["mine\n"]
    mine.unlink()
    assert "1 stubs written" in _grader(edition, "stubs").stdout and mine.exists()
    assert "See lesson" in _grader(edition, "hint", "1", "twice").stdout
    said = _grader(edition, "--help").stdout
    assert "\n    check " in said
    assert not [word for word in ("handout", "grade", "new", "without") if f"\n    {word} " in said]


def test_a_notebook_and_pytest_ask_the_same(edition):
    (edition / "exercises/ex01_first.py").write_text(_first("2.0", "2.5")["ex01_first.py"])
    done = _python(edition, "-c", "from grader import check; check('first', 'twice')")
    assert "likely  This is two and a half." in done.stdout, done.stdout + done.stderr
    done = _python(edition, "-m", "pytest", "-q", "tests/test_ex01_first.py::test_twice", "tests/test_ex02_last.py")
    assert "1 failed, 2 skipped" in done.stdout, done.stdout + done.stderr
    done = _python(edition, "-m", "pytest", "tests/test_ex01_first.py::test_twice", "--in-process")
    assert "Here a debugger stops" in done.stdout and "This is two and a half." in done.stdout


@pytest.mark.parametrize("arguments", [["--seed", "7"], ["--submission", "exercises"]])
def test_another_seed_than_the_recorded_is_refused_in_words(edition, arguments):
    (edition / "exercises/ex01_first.py").write_text(FIRST)
    done = _grader(edition, "check", "1", *arguments)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "the answers of ex01_first for --seed 0 --device cpu alone" in done.stderr


def test_a_damaged_record_is_said(edition):
    path = edition / "key/ex01_first.key"
    content = path.read_bytes()
    for damaged in (b"", b"no record", content[:-9]):
        path.write_bytes(damaged)
        with pytest.raises(FrameError, match="ex01_first.key"):
            record.Record(path)
    (edition / "exercises/ex01_first.py").write_text(FIRST)
    done = _grader(edition, "check", "1")
    assert done.returncode == 2 and "ex01_first.key" in done.stderr and "Traceback" not in done.stderr


def test_an_edition_of_this_course(tmp_path):
    """Chapter 03, as its students get it: solved, and with a slip that is told them."""
    linear = chapters.find("linear")
    handout.run(tmp_path / "new", [linear], [])
    assert (tmp_path / "new" / "key" / linear.record.name).stat().st_size < 50_000
    solution = linear.solution.read_text("utf-8")
    right, slip = _states(tmp_path / "new", {"ex03_linear.py": solution}, {"ex03_linear.py": solution.replace(
        "y = x @ self.weight.T", "y = x @ self.weight.reshape(x.shape[-1], -1)")})
    assert {said[0] for name, said in right.items() if name != "next"} == {"passed"}
    assert slip["test_forward[float32]"][1].startswith("reshape is not a transpose")
