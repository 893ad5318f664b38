"""Speed and memory as ratios measured in one run, beside their targets: make bench.

Each number is a median. Nothing here passes or fails: timings are noisy, and a reader judges.
"""

import importlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from grader.course import chapters
from grader.course.chapters import ROOT
from grader.front.provenance import processor
from grader.judge.edits import edits
from grader.judge.engine import Grader
from tests.course.bench.clock import seconds


def run(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True)


def grader_rows():
    """(what, ratio, target) for the grader, in units of a cold `import torch`."""
    cold = seconds(lambda: run("-c", "import torch"))
    print(f"one cold import of torch: {cold:.2f} s; ratios are to this", flush=True)
    everything = chapters.chapters()
    one = seconds(lambda: run("-m", "grader", "check", everything[-1].stem, "--submission", "solutions"))
    yield f"check one chapter ({everything[-1].name}) from cold", one / cold, 1.6
    whole = seconds(lambda: run("-m", "grader", "check", "--submission", "solutions"), 3)
    yield "check: each further chapter", (whole - one) / (len(everything) - 1) / cold, 0.1
    with Grader(many=True) as grader:       # as watch has it
        for chapter in everything:
            call = lambda chapter=chapter: list(  # noqa: E731
                grader.grade(chapter, chapters.SOLUTIONS, waited_for=True))
            call()
            saved = seconds(call)
            yield f"watch: save to verdict, {chapter.name}", saved / cold, 0.3
        with tempfile.TemporaryDirectory() as folder:
            for chapter in everything:
                edits(chapter, "mistake")[0].write(chapter, Path(folder))
                call = lambda chapter=chapter: list(  # noqa: E731
                    grader.grade(chapter, Path(folder), waited_for=True))
                call()
                yield f"watch: save to a named mistake, {chapter.name}", seconds(call) / cold, 0.3


def memory_rows():
    """(what, MB, target): what a worker has of its own after a chapter's checks."""
    if not Path("/proc/self/smaps_rollup").exists():
        print("no rows of memory: only Linux says what a process shares with no other")
        return
    with Grader() as grader:
        for chapter in chapters.chapters():
            candidate = grader.submission(chapter, chapters.SOLUTIONS)
            for check in grader.checks(chapter):
                if not check.lacking:
                    candidate.ask(check)
            yield f"a worker's own memory, {chapter.name} (MB)", _private(candidate.pid) / 1e6, 80
            candidate.close()


def _private(pid: int) -> int:
    """Bytes that a process shares with no other."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(kb) << 10 for kb in re.findall(r"Private_(?:Clean|Dirty): +(\d+) kB", rollup))


def chapter_rows():
    """What the chapters' own bench_*.py files measure."""
    for path in sorted(Path(__file__).parent.glob("bench_*.py")):
        module = importlib.import_module(f"tests.course.bench.{path.stem}")
        for name, call in vars(module).items():
            if name.startswith("bench_"):
                rows = call()
                yield from [rows] if isinstance(rows, tuple) else rows


def main() -> None:
    print(f"{processor()}, {os.cpu_count()} cores, {sys.platform}, Python {sys.version.split()[0]}")
    for rows in (grader_rows, memory_rows, chapter_rows):
        for what, ratio, target in rows():
            word = "" if target is None else f"within {target:.2g}" if ratio <= target else f"OVER {target:.2g}"
            print(f"{what:<58} {ratio:>8.2f}   {word}", flush=True)


if __name__ == "__main__":
    main()
