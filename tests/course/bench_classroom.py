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
tests = cache(lambda stem: checks.load(chapters.find(stem).tests))
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
               "--seed", "0", "--chapters", ",".join(c.number for c in CHAPTERS), *["--no-jail"] * bool(MISSING)]
    samples, ended, start = [], threading.Event(), time.perf_counter()

    def look() -> None:
        while not ended.wait(0.25):
            samples.append((len(list(folder.glob("out/cells/*/*.json"))), memory()))
    looking = threading.Thread(target=look)
    looking.start()
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    took = time.perf_counter() - start
    ended.set()
    looking.join()
    return took, samples
