"""A chapter is added by following CONTRIBUTING.md, and left out again by following what `without` lists."""

import ast
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from grader.author.without import without
from grader.course import chapters

ROOT = chapters.ROOT
LEAVE = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", "*.bak", "pocket", "evidence",
                               "broken", "hostile", "test_new.py", "draw_0[0124-9]*.py", "draw_1*.py")


TAKEN = {chapter.number for chapter in chapters.chapters()}
FREE = next(number for number in ["28", *map("{:02}".format, range(100))] if number not in TAKEN)    # the page says 28
NAME = "name" if all(chapter.name != "name" for chapter in chapters.chapters()) else f"name_{FREE}"
STEM = f"{FREE}_{NAME}"


def run(folder: Path, command: str) -> str:
    """Run a command as a reader of CONTRIBUTING.md would; returns what it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("COURSE_", "PYTEST_"))}
    path = f"{folder / '.venv' / 'bin'}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(command, shell=True, cwd=folder, env={**environment, "PATH": path}, text=True,
                          capture_output=True)
    assert done.returncode == 0, f"{command}\n{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture
def course(tmp_path) -> Path:
    """A copy of the course with an environment that is this one."""
    folder = Path(shutil.copytree(ROOT, tmp_path / "course", ignore=LEAVE))
    program = folder / ".venv" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    program.chmod(0o755)
    for made in ("student", "maintainer"):      # what make looks at to see whether it has to install
        (folder / ".venv" / made).touch()
    return folder


def contents(course: Path) -> dict[str, bytes]:
    return {path.relative_to(course).as_posix(): path.read_bytes() for path in sorted(course.rglob("*"))
            if path.is_file() and not {"__pycache__", ".pytest_cache", ".ruff_cache"} & set(path.parts)}


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
def test_a_chapter_comes_and_goes_by_the_book(course):
    before = contents(course)
    page = before["CONTRIBUTING.md"].decode()
    steps = re.search(r"## How to add a chapter.*?```sh\n(.*?)```", page, re.S)[1]
    steps = steps.replace("28 name", f"{FREE} {NAME}").replace("28", FREE).splitlines()
    assert len(steps) == 5 and steps.pop().startswith(f"make test CHAPTER={FREE} ")
    said = [run(course, step) for step in steps]

    written = [name for name in said[0].split() if name.endswith(".py") and not name.startswith("exercises")]
    run(course, f"python -m ruff check {' '.join(written)}")
    rules = run(course, "python -m pytest -q -p no:cacheprovider tests/course/checks/test_chapters.py "
                "tests/course/lessons/test_lessons.py tests/course/lessons/test_numbers.py "
                "tests/course/lessons/test_after_each_exercise.py "
                f"tests/course/parity/test_parity_ex{STEM}.py -k 'ex{STEM} or not ex'")
    assert int(re.search(r"(\d+) passed", rules)[1]) >= 27 and "failed" not in rules

    map_alone = (course / f"assets/map/{FREE}.svg").read_text("utf-8")
    assert f"You are here: {FREE} {NAME.replace('_', ' ').capitalize()}" in map_alone
    solution = course / f"solutions/ex{STEM}.py"
    solution.write_text(solution.read_text("utf-8") + "\n\nfrom .ex09_attention import causal_mask\n", "utf-8")
    run(course, "python assets/map/draw_map.py")
    lit, unlit = ((course / f"assets/map/{number}.svg").read_text("utf-8").count("#FFB800") for number in (FREE, "09"))
    assert lit == unlit > map_alone.count("#FFB800"), "it lights what it builds on"

    said = run(course, f"python -m grader without {FREE}")
    own = re.search(r"To delete:\n((?:  .*\n)+)", said)[1].split()
    row, = (number for number, line in enumerate((course / "README.md").read_text("utf-8").splitlines(), 1)
            if f"{STEM}.ipynb" in line)
    named = re.search(r"What else names it, to mend:\n((?:  .*\n)+)", said)[1].splitlines()
    if f"ex{STEM}" in page:         # as an example
        assert named.pop(0).startswith("  CONTRIBUTING.md: "), said
    assert named == [f"  README.md: line {row}"], said
    for name in own:
        (course / name).unlink()
    run(course, steps[-1])
    after = contents(course)
    assert after.pop("assets/screen.svg") and before.pop("assets/screen.svg")    # of the checks as they are now
    assert after == before


def test_nothing_is_written_over(course):
    before = contents(course)
    for wrong, words in (("8 name", "two digits"), ("028 name", "two digits"), ("٢٨ name", "two digits"),
                         ("03 name", "number is taken: there is a chapter 03_linear"),
                         (f"{FREE} rope", "name is taken: there is a chapter 07_rope"),
                         *((f"{FREE} {name}", "small letters") for name in ("Name", "a-b", "a__b", FREE, "../x"))):
        done = subprocess.run([sys.executable, "-m", "grader", "new", *wrong.split()], cwd=course, text=True,
                              capture_output=True)
        assert done.returncode == 2 and words in done.stderr, (wrong, done.stderr)
    mine = course / "assets" / "flow" / f"draw_{FREE}.py"
    mine.write_text("mine\n")
    done = subprocess.run([sys.executable, "-m", "grader", "new", FREE, NAME], cwd=course, text=True,
                          capture_output=True)
    assert done.returncode == 2 and f"draw_{FREE}.py is there already" in done.stderr
    assert contents(course) == {**before, f"assets/flow/draw_{FREE}.py": b"mine\n"}


@cache
def imports(path: Path) -> set[str]:
    """The chapters that a Python file imports, by what Python itself reads in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found |= {part for name in names for part in name.split(".") if re.fullmatch(r"ex\d\d_\w+", part)}
    return found


@pytest.mark.parametrize("chapter", chapters.chapters()[::4], ids=lambda chapter: chapter.stem)
def test_what_needs_a_chapter_is_listed(chapter):
    said = without([chapter])
    head, _, rest = said.partition("What else names it")
    for path in chapter.exercise, chapter.solution, chapter.notebook, chapter.mistakes, chapter.tests(), \
            chapter.tests(hidden=True):
        assert f"\n  {path.relative_to(ROOT).as_posix()}\n" in head
    for folder in ("assets", "solutions", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            if "broken" not in path.parts and chapter.stem in imports(path):
                assert f"  {name}:" in rest or f"  {name}\n" in head, name
    for other in chapters.chapters():
        assert (f"\n  {other.stem[2:]}" in head) == (chapter in chapters.needs(other)), other
        if other != chapter and chapter.notebook.name in other.notebook.read_text("utf-8"):
            assert f"  notebooks/{other.notebook.name}: cell" in rest
