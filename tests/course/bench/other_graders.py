"""Other programs that grade a class, on the checks of three chapters: how long nbgrader and otter take.

They are no requirement of the course: BENCH_GRADERS names a virtual environment with them and with
requirements.txt, or they lie on PATH beside such a Python. They are asked the same checks as the course's grader, the
hidden ones too, against recorded answers, each submission a notebook; two of them are graded at a time.
"""

import json
import os
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from grader.course import chapters
from grader.course.chapters import ROOT, SOLUTIONS
from grader.judge.edits import edits
from grader.judge.engine import Grader

CHAPTERS = [chapters.find(number) for number in ("00", "03", "09")]

# What stands beside the notebooks. A check is run as the grader runs it, and compared with torch's own tolerances.
CHECKING = '''
from functools import cache
from pathlib import Path
from types import SimpleNamespace
import torch
from grader.course import chapters, checks
from grader.course.draw import Draw

FILE = Path(__file__).with_name("answers.pt")
tests = cache(lambda file: checks.load(chapters.ROOT / file))
recorded = cache(lambda: torch.load(FILE, weights_only=False))

def ask(names, stem, file, function, dtype):
    torch.manual_seed(0)
    impl = SimpleNamespace(**{**names, "__package__": "solutions"})
    return getattr(tests(file), function)(impl, Draw(0), *([getattr(torch, dtype)] if dtype else []))

def agree(a, b):
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        [agree(a[name], b[name]) for name in a]
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        [agree(*pair) for pair in zip(a, b)]
    elif isinstance(a, (torch.Tensor, float)):
        torch.testing.assert_close(a, b, equal_nan=True)
    else:
        assert a == b

def check(names, *which):
    agree(ask(names, *which), recorded()[which])
'''
RECORD = """
import importlib, sys, torch, checking
torch.save({which: checking.ask(vars(importlib.import_module("solutions." + which[0])), *which)
            for which in map(tuple, eval(sys.argv[1]))}, checking.FILE)
"""


def hand_in(folder: Path, count: int) -> list[Path]:
    """A folder per student, alike but for a comment and for the mistakes."""
    students = [folder / f"student{number:02}" for number in range(count)]
    for number, student in enumerate(students):
        for chapter in CHAPTERS:
            known = edits(chapter, "mistake")
            student.mkdir(parents=True, exist_ok=True)
            if number % 5 == 4 and chapter == CHAPTERS[number // 5 % 3]:
                known[number % len(known)].write(chapter, student)
            else:
                shutil.copy(chapter.solution, student)
            with (student / chapter.exercise.name).open("a", encoding="utf-8") as file:
                file.write(f"\n# {student.name}\n")
    return students


def tool_of(name: str) -> Path | None:
    """Where a tool is installed; None where it is not."""
    found = shutil.which(name, path=f"{os.environ.get('BENCH_GRADERS', '')}/bin:{os.environ['PATH']}")
    return Path(found) if found else None


def version_of(name: str, path: Path) -> str:
    """A tool and its release."""
    release = {"otter": "otter-grader"}.get(name, name)
    said = f"import importlib.metadata as m; print({release!r}, m.version({release!r}))"
    return subprocess.run([path.parent / "python", "-c", said], capture_output=True, text=True).stdout.strip()


def seconds(tool: str, path: Path, count: int) -> tuple[float, float]:
    """(seconds, of CPU) in which a tool grades this many submissions, two at a time."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "checking.py").write_text(CHECKING)
        with Grader() as grader:
            checks = [(c.chapter, c.file, c.function, c.dtype) for chapter in CHAPTERS
                      for c in grader.checks(chapter, hidden=True) if not c.lacking]
        env = {**os.environ, "PYTHONPATH": f"{ROOT}:{folder}", "OMP_NUM_THREADS": "1",
               "PATH": f"{path.parent}:{os.environ['PATH']}"}

        def call(where: Path, *command) -> None:
            subprocess.run(command, cwd=where, env=env, check=True, capture_output=True)
        call(folder, path.parent / "python", "-c", RECORD, repr(checks))
        both = OTHERS[tool](path, folder, hand_in(folder / "handed", count), checks, call)
        start, before = time.perf_counter(), os.times()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda command: call(*command), both))
        after = os.times()
        return time.perf_counter() - start, sum(after[2:4]) - sum(before[2:4])


def notebook(file: Path, student: Path, checks: list) -> None:
    """A student's three files as cells, and a cell for each check where there are any."""
    cells = [("import checking", {}, "first")]
    for chapter in CHAPTERS:
        code = (student / chapter.exercise.name).read_text("utf-8").replace("from .ex", "from solutions.ex")
        cells.append((code, {"solution": True}, chapter.stem))
    cells += [(f"checking.check(globals(), *{which})", {"grade": True, "locked": True, "points": 1}, f"c{n}")
              for n, which in enumerate(checks)]
    plain = {"grade": False, "solution": False, "locked": False, "schema_version": 3, "task": False,
             "cell_type": "code"}
    content = [{"cell_type": "code", "id": name.replace("_", "-"), "execution_count": None, "outputs": [],
                "metadata": {"nbgrader": {**plain, **how, "grade_id": name}}, "source": code}
               for code, how, name in cells]
    spec = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"cells": content, "metadata": spec, "nbformat": 4, "nbformat_minor": 5}))


def nbgrader(path: Path, folder: Path, students: list[Path], checks: list, call) -> list:
    """Two courses with half of the class each, since one command works on one notebook at a time."""
    for half in (0, 1):
        course = folder / f"course{half}"
        notebook(course / "source/three/three.ipynb", SOLUTIONS, checks)
        (course / "nbgrader_config.py").write_text(f"c = get_config()\nc.CourseDirectory.root = {str(course)!r}\n")
        call(course, path, "generate_assignment", "three")
        for student in students[half::2]:
            notebook(course / "submitted" / student.name / "three/three.ipynb", student, checks)
    return [(folder / f"course{half}", path, "autograde", "three") for half in (0, 1)]


def otter(path: Path, folder: Path, students: list[Path], checks: list, call) -> list:
    """A command for each submission."""
    (folder / "tests").mkdir()
    for n, which in enumerate(checks):
        case = {"code": f">>> checking.check(globals(), *{which})"}
        test = {"name": f"c{n}", "points": 1, "suites": [{"cases": [case], "scored": True, "setup": "",
                                                          "teardown": "", "type": "doctest"}]}
        (folder / f"tests/c{n}.py").write_text(f"OK_FORMAT = True\ntest = {test!r}\n")
    call(folder, path, "generate", "-t", "tests", "-o", "autograder.zip")
    for student in students:
        notebook(student / "three.ipynb", student, [])
    return [(student, path, "run", "-a", folder / "autograder.zip", "three.ipynb") for student in students]


OTHERS = {"nbgrader": nbgrader, "otter": otter}
