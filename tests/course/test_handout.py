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

from grader import chapters, record
from grader.chapters import ROOT
from grader.classroom import handout, leaks
from grader.frames import FrameError

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
FIRST_CHECKS = '''from grader import raises


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
'''


def _lesson(stem: str, words: str, code: str) -> str:
    cells = [{"cell_type": "markdown", "metadata": {}, "source": words.splitlines(keepends=True)}]
    for number, lines in enumerate((f"from exercises.{stem} import *\nfrom exercises.ex01_first import twice", code), 1):
        cells.append({"cell_type": "code", "execution_count": number, "metadata": {}, "outputs": [],
                      "source": lines.splitlines(keepends=True)})
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


FILES = {
    "solutions/ex01_first.py": FIRST, "solutions/ex02_last.py": LAST,
    "tests/test_ex01_first.py": FIRST_CHECKS, "tests/test_ex02_last.py": LAST_CHECKS,
    "tests/hidden/test_ex01_first.py": HIDDEN,
    "tests/mistakes/ex01_first.toml": MISTAKES, "tests/mistakes/ex02_last.toml": LAST_MISTAKES,
    "notebooks/01_first.ipynb": _lesson(
        "ex01_first", "# First\n\n![a map](../assets/map/01.svg) Next: [02 · Last](02_last.ipynb), by the\n"
        "[script](../assets/draw.py).\n\n### Exercise 1: `twice`\n\n<details><summary>Hint 1: start</summary>\n\n"
        "See [lesson\n02](02_last.ipynb).\n\n</details>", "twice(1)"),
    "notebooks/02_last.ipynb": _lesson("ex02_last", "# Last", "twice(1)"),
    "assets/map/01.svg": "<svg/>", "assets/map/02.svg": "<svg/>", "assets/draw.py": "", "assets/plain.txt": "plain",
}


def make_course(folder: Path) -> Path:
    """A course of two chapters with this course's grader."""
    for name in ("requirements.txt", "pyproject.toml", "LICENSE", ".gitignore", "exercises/__init__.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    shutil.copytree(ROOT / "grader", folder / "grader", ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    return folder


def _python(folder: Path, *arguments: str, **environment) -> subprocess.CompletedProcess:
    inherited = {name: value for name, value in os.environ.items() if name not in ("COURSE_EXERCISES", "PYTHONPATH")}
    return subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True,
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

def test_it_holds_what_a_student_needs_and_no_answers(built):
    files = set(_contents(built))
    assert {"README.md", "Makefile", "requirements.txt", "pyproject.toml", "LICENSE", "exercises/ex01_first.py",
            "stubs/ex01_first.py", "key/ex01_first.key", "key/ex02_last.key", "tests/test_ex02_last.py",
            "notebooks/01_first.ipynb", "assets/map/02.svg", "assets/plain.txt", "grader/engine.py"} <= files
    assert not [name for name in files if name.startswith(("solutions/", "tests/hidden", "tests/mistakes",
                                                           "grader/classroom"))]
    assert "assets/draw.py" not in files
    assert (built / "exercises/ex01_first.py").read_text() == chapters.make_stub(FIRST)


def test_built_twice_it_is_the_same_byte_for_byte(course, built, tmp_path):
    done = _python(course, "-m", "grader", "handout", str(tmp_path / "again"), PYTHONHASHSEED="3")
    assert done.returncode == 0, done.stderr
    assert _contents(tmp_path / "again") == _contents(built)
    for path in built.rglob("*"):
        assert path.is_dir() or str(course) not in path.read_bytes().decode("utf-8", "replace"), path


def test_a_chapter_that_is_left_out_is_nowhere(course, tmp_path):
    done = _grader(course, "handout", str(tmp_path / "one"), "--chapters", "1")
    assert done.returncode == 0, done.stderr
    assert not [name for name in _contents(tmp_path / "one") if "02" in name]
    lesson = (tmp_path / "one/notebooks/01_first.ipynb").read_text()
    said = "".join(json.loads(lesson)["cells"][0]["source"])
    assert "Next: 02 · Last, by the\nscript." in said and "See lesson\n02." in said
    assert "![a map](../assets/map/01.svg)" in said
    assert "02_last" not in (tmp_path / "one/README.md").read_text()


def test_a_given_chapter_is_as_in_the_course(course, tmp_path):
    folder = tmp_path / "given"
    done = _grader(course, "handout", str(folder), "--given", "1")
    assert done.returncode == 0, done.stderr
    assert (folder / "solutions/ex01_first.py").read_text() == FIRST
    assert not (folder / "key/ex01_first.key").exists() and not (folder / "tests/hidden").exists()
    assert "solutions of 01 are given" in (folder / "README.md").read_text()
    (folder / "exercises/ex02_last.py").write_text(LAST)
    done = _grader(folder, "check", "--seed", "0")
    assert "all passed" in done.stdout, done.stdout + done.stderr       # on the reference's twice
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
    "a solution": "number_two = torch.full_like(x, 2.0)",
    "a mistake": "return x.abs() * number_two + x.abs()",
    "an alternative": "return   number_two.mul(x)",
    "a hidden check": "zeros = draw(3) * 0\n    return impl.twice(zeros)",
    "a hidden rule": "Twice nothing stays nothing at all. 0 is its own double.",
}
PLACES = {
    "notebooks/01_first.ipynb": lambda secret: _lesson("ex01_first", "# First", f"x = '''\n{secret}\n'''"),
    "notebooks/02_last.ipynb": lambda secret: _lesson("ex02_last", f"# L\n{secret.replace('*', '&#42;')}", "twice(1)"),
    "assets/plain.bin": lambda secret: f"\0\1{secret}\0",
    "tests/test_ex01_first.py": lambda secret: FIRST_CHECKS + f"\n\ndef more():\n    '''x\n\n    {secret}\n    '''\n",
    "tests/mistakes/ex01_first.toml": lambda secret: MISTAKES.replace(
        "This is thrice.", "No: " + " ".join(secret.split())),      # so it comes to lie in the record
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("secret", SECRETS)
def test_a_leak_stops_the_build(course, tmp_path, monkeypatch, place, secret):
    """In this process, without asking any check: only what is planted is to be found."""
    for name in FILES:
        (tmp_path / "course" / name).parent.mkdir(parents=True, exist_ok=True)
    planted = make_course(tmp_path / "course")
    (planted / place).write_text(PLACES[place](SECRETS[secret]), "utf-8")
    for module, names in ((chapters, ("ROOT", "SOLUTIONS", "TESTS", "EXERCISES", "STUBS", "KEY")),
                          (handout, ("ROOT",)), (leaks, ("ROOT",))):
        for name in names:
            monkeypatch.setattr(module, name, planted / name.lower() if name != "ROOT" else planted)
    chapters.prerequisites.cache_clear()
    draft = tmp_path / "draft"
    handout._copy(draft, chapters.chapters(), [])
    said = [suspect.words for suspect in handout.edits(chapters.find("1"), "mistake")]
    record.write(draft / "key/ex01_first.key", {"seed": 0, "device": "cpu", "mistakes": said}, [])
    with pytest.raises(leaks.CourseError, match="must not see"):
        handout._refuse_leaks(draft, [])
