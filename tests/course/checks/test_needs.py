"""A check that needs a package which is not there waits, says how to install it, and is graded nowhere."""

import dataclasses
import re
import subprocess
import sys

import pytest

from grader.classroom.run import cells
from grader.course import chapters, checks
from grader.course.chapters import ROOT, CourseError
from grader.judge.edits import edits
from grader.judge.engine import Grader

FLASH = chapters.find("flash_attention")
SAYS = r"this needs triton: pip install -r requirements-triton\.txt"


@pytest.fixture
def without_triton(monkeypatch):
    """As on a machine that has no Triton: nothing here imports it."""
    found = checks.importlib.util.find_spec
    monkeypatch.setattr(checks.importlib.util, "find_spec", lambda name: name != "triton" and found(name))


def test_what_is_there_is_not_lacking():
    check = checks.Check("ex00_shapes", "test_x", None, "", False, 1, ("cpu",), None, "A rule.", 1, frozenset())
    assert not check.lacking and not dataclasses.replace(check, needs="torch").lacking
    assert dataclasses.replace(check, needs="no_such_package").lacking == (
        "this needs no_such_package: pip install -r requirements-no_such_package.txt")


def test_a_check_without_its_package_waits(without_triton):
    """The reference is not asked it; every other check passes."""
    with Grader() as grader:
        verdicts = list(grader.grade(FLASH, chapters.SOLUTIONS, only=lambda check: "kernel" in check.name
                                     or check.name.startswith("test_merge")))
    words = {verdict.word for verdict in verdicts if verdict.check.needs}
    assert words == {"waiting"} == {v.word for v in verdicts} - {"passed"}
    assert all(re.fullmatch(SAYS, verdict.facts[0]) for verdict in verdicts if verdict.word == "waiting")


def test_no_mistake_waits_to_be_found(without_triton):
    assert not any("flash_tiles" in edit.parts for edit in edits(FLASH, "mistake"))


def test_a_class_is_not_graded_without_it(without_triton):
    """Points would be lost that nobody could earn."""
    with Grader() as grader, pytest.raises(CourseError, match=f"{FLASH.stem}: {SAYS}"):
        cells.plan(grader, [FLASH.stem])


def test_every_package_has_its_requirements_file():
    for chapter in chapters.chapters():
        for hidden in (False, True):
            for check in checks.collect(chapter.tests(hidden), chapter.stem, hidden):
                path = ROOT / f"requirements-{check.needs}.txt"
                assert not check.needs or check.needs in path.read_text("utf-8")


def test_the_chapter_is_loaded_without_it():
    """A file that is only read until something calls the kernel."""
    program = "import sys; sys.modules['triton'] = None; from solutions import ex17_flash_attention as chapter; " \
              "assert chapter.triton is None"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
