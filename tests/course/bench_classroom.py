"""What grading a class costs: 60 honest submissions of three chapters, two at a time, behind both walls.

Every fifth of them made a mistake that has a name. Hidden checks are asked too, and the pages are written.
nbgrader and otter are asked the visible checks alone, against recorded answers, each submission a notebook.
They are no requirement of the course: BENCH_GRADERS names a virtual environment with them and with
requirements.txt, or they lie on PATH; without them their rows are left out.
"""

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from grader import chapters, jail
from grader.chapters import ROOT, SOLUTIONS
from grader.engine import Grader
from grader.mistakes import edits

CHAPTERS = [chapters.find(number) for number in ("00", "03", "09")]
SIZES, FEW = (20, 40, 60), (2, 6)       # submissions of a run; of a run of nbgrader or otter, two at a time
MISSING = jail.missing()

# What stands beside the notebooks. A check is run as the grader runs it, and compared with torch's own tolerances.
CHECKING = '''
from functools import cache
from pathlib import Path
from types import SimpleNamespace
import torch
from grader import chapters, checks
from grader.draw import Draw

FILE = Path(__file__).with_name("answers.pt")
tests = cache(lambda stem: checks.load(chapters.find(stem).tests()))
recorded = cache(lambda: torch.load(FILE, weights_only=False))

def ask(names, stem, function, dtype):
    torch.manual_seed(0)
    impl = SimpleNamespace(**{**names, "__package__": "solutions"})
    return getattr(tests(stem), function)(impl, Draw(0), *([getattr(torch, dtype)] if dtype else []))

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


def tree() -> dict[int, list[str]]:
    """The processes that this one has started, and theirs: a pid → its fields in /proc/PID/stat, from the state on."""
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            stats[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue        # it has ended by now
    found = [os.getpid()]
    for pid in found:
        found += [child for child, fields in stats.items() if int(fields[1]) == pid]
    return {pid: stats[pid] for pid in found}


def cpu() -> float:
    """CPU seconds of these processes, and of those that they waited for. Those behind bubblewrap are among them."""
    return sum(int(ticks) for fields in tree().values() for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def memory() -> int:
    """Bytes that they have of their own or share among each other, files not counted; this one is left out."""
    total = 0
    for pid in tree().keys() - {os.getpid()}:
        try:
            total += sum(map(int, re.findall(r"Rss(?:Anon|Shmem):\s+(\d+)", Path(f"/proc/{pid}/status").read_text())))
        except OSError:
            continue
    return total << 10


def spent(call) -> float:
    """CPU seconds of a call."""
    before = cpu()
    call()
    return cpu() - before


def grade(folder: Path, count: int) -> tuple[float, list[tuple[int, int]]]:
    """Grade a class of this size: (seconds, (cells that are written, bytes of memory) a few times a second)."""
    hand_in(folder / "handed", count)
    command = [sys.executable, "-m", "grader", "grade", folder / "handed", "--out", folder / "out", "--jobs", "2",
               "--seed", "0", *["--no-jail"] * bool(MISSING), "--chapters", *(chapter.number for chapter in CHAPTERS)]
    samples, ended, start = [], threading.Event(), time.perf_counter()

    def look() -> None:
        while not ended.wait(0.25):
            samples.append((len(list(folder.glob("out/cells/*/*.json"))), memory()))
    threading.Thread(target=look, daemon=True).start()
    try:
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        return time.perf_counter() - start, samples
    finally:
        ended.set()


def bench_class():
    """Three runs, one after the other; then the others on two sizes, which a straight line leads to 60."""
    print(f"grade: {'WITHOUT WALLS, ' + MISSING if MISSING else 'behind both walls'}; load {os.getloadavg()[0]:.1f}")
    took = {}
    for count in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            took[count], samples = grade(Path(folder), count)
        print(f"{count} submissions: {took[count]:.1f} s, {60 * count / took[count]:.0f} a minute", flush=True)
        yield f"grade: time of {count} submissions, against {SIZES[0]}, a submission", (
            took[count] / count / (took[SIZES[0]] / SIZES[0])), 1.1
    begin, end = (statistics.median(held for cells, held in samples if low <= cells <= high) for low, high in (
        (2 * count, 2.25 * count), (2.75 * count, 3 * count)))      # all chapters are known by then
    print(f"memory of all processes: {begin / 1e6:.0f} MB at first, {end / 1e6:.0f} MB at the end", flush=True)
    yield "grade: memory of all processes, at the end against at first", end / begin, 1.05
    for tool, prepare in (("nbgrader", nbgrader), ("otter", otter)):
        path = shutil.which(tool, path=f"{os.environ.get('BENCH_GRADERS', '')}/bin:{os.environ['PATH']}")
        if not path:
            print(f"{tool} is not here")
            continue
        few = [theirs(path, prepare, count) for count in FEW]
        each = (few[1] - few[0]) / (FEW[1] - FEW[0])
        whole = few[0] + (count - FEW[0]) * each
        print(f"{version(path)}: {FEW[0]} and {FEW[1]} submissions in {few[0]:.1f} and {few[1]:.1f} s, so {count} in "
              f"{whole:.0f} s, {60 * count / whole:.1f} a minute; load {os.getloadavg()[0]:.1f}", flush=True)
        yield f"grade: time of {count} submissions, against {tool}'s", took[count] / whole, 0.2


def bench_cpu():
    """All chapters' visible checks of one submission by a grader that is kept; the reference has answered."""
    one = statistics.median(spent(lambda: subprocess.run([sys.executable, "-c", "import torch"])) for _ in range(5))
    for walls in (False, True)[:1 + (not MISSING)]:
        with Grader(many=True, walls=walls) as grader:
            def submission():
                for chapter in chapters.chapters():
                    assert all(verdict.word == "passed" for verdict in grader.grade(chapter, SOLUTIONS))
            submission()
            warm = statistics.median(spent(submission) for _ in range(3))
        print(f"all chapters' visible checks: {warm:.2f} s of CPU, import torch {one:.2f} s", flush=True)
        yield f"a submission's CPU, {'behind' if walls else 'without'} walls, against import torch", warm / one, 2


# -- the others ------------------------------------------------------------------------------------

def version(path: str) -> str:
    name = {"otter": "otter-grader"}.get(Path(path).name, "nbgrader")
    said = f"import importlib.metadata as m; print(m.version({name!r}))"
    return f"{name} {subprocess.run([python(path), '-c', said], capture_output=True, text=True).stdout.strip()}"


def python(path: str) -> Path:
    """The interpreter beside a tool."""
    return Path(path).parent / "python"


def theirs(path: str, prepare, count: int) -> float:
    """Seconds in which a tool grades this many submissions, two at a time."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "checking.py").write_text(CHECKING)
        with Grader() as grader:
            checks = [(c.chapter, c.function, c.dtype) for chapter in CHAPTERS for c in grader.checks(chapter)]
        env = {**os.environ, "PYTHONPATH": f"{ROOT}:{folder}", "OMP_NUM_THREADS": "1",
               "PATH": f"{Path(path).parent}:{os.environ['PATH']}"}

        def call(where: Path, *command) -> None:
            subprocess.run(command, cwd=where, env=env, check=True, capture_output=True)
        call(folder, python(path), "-c", RECORD, repr(checks))
        both = prepare(path, folder, hand_in(folder / "handed", count), checks, call)
        start = time.perf_counter()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda command: call(*command), both))
        return time.perf_counter() - start


def notebook(file: Path, student: Path, checks: list) -> None:
    """A student's three files as cells, and a cell for each check where there are any."""
    cells = [("import checking", {}, "first")]
    for chapter in CHAPTERS:
        code = (student / chapter.exercise.name).read_text("utf-8").replace("from .ex", "from solutions.ex")
        cells.append((code.replace("from __future__ import annotations", ""), {"solution": True}, chapter.stem))
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


def nbgrader(path: str, folder: Path, students: list[Path], checks: list, call) -> list:
    """Two courses with half of the class each, since one command works on one notebook at a time."""
    for half in (0, 1):
        course = folder / f"course{half}"
        notebook(course / "source/three/three.ipynb", SOLUTIONS, checks)
        (course / "nbgrader_config.py").write_text(f"c = get_config()\nc.CourseDirectory.root = {str(course)!r}\n")
        call(course, path, "generate_assignment", "three")
        for student in students[half::2]:
            notebook(course / "submitted" / student.name / "three/three.ipynb", student, checks)
    return [(folder / f"course{half}", path, "autograde", "three") for half in (0, 1)]


def otter(path: str, folder: Path, students: list[Path], checks: list, call) -> list:
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
