"""What grading a class costs: 60 honest submissions of three chapters, two at a time, behind both walls.

Every fifth of them made a mistake that has a name. Hidden checks are asked too, and the pages are written.
Other graders are measured beside it where they are installed (see other_graders.py).
"""

import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from grader.course import chapters
from grader.course.chapters import ROOT, SOLUTIONS
from grader.judge.engine import Grader
from grader.judge.verdict import Word
from grader.sandbox import jail
from grader.sandbox.setting import Setting
from tests.course.bench.other_graders import CHAPTERS, OTHERS, hand_in, seconds, tool_of, version_of
from tests.course.classroom.handed_in import clean, every

SIZES, FEW = (20, 40, 60), (2, 6)       # submissions of a run; of a run of nbgrader or otter, two at a time
MISSING = jail.missing()


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
    """Bytes that they take, without files; of a page that several share, each has its part. This one is left out."""
    total = 0
    for pid in tree().keys() - {os.getpid()}:
        try:
            said = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += sum(map(int, re.findall(r"Pss_(?:Anon|Shmem):\s+(\d+)", said)))
        except OSError:
            continue
    return total << 10


def spent(call) -> float:
    """CPU seconds of a call."""
    before = cpu()
    call()
    return cpu() - before


def grade(folder: Path, count: int) -> tuple[float, float, list[tuple[int, int]]]:
    """Grade a class of this size: (seconds, of CPU, (cells that are written, bytes of memory) several times)."""
    hand_in(folder / "handed", count)
    command = [sys.executable, "-m", "grader", "grade", folder / "handed", "--out", folder / "out", "--jobs", "2",
               "--seed", "0", *["--no-jail"] * bool(MISSING), "--chapters", *(chapter.number for chapter in CHAPTERS)]
    samples, used, ended, before, start = [], [0.0], threading.Event(), cpu(), time.perf_counter()

    def look() -> None:
        while not ended.wait(0.25):
            samples.append((len(list(folder.glob("out/cells/*/*.json"))), memory()))
            used.append(cpu() - before)     # what ends behind bubblewrap takes its count along: looked at while it runs
    threading.Thread(target=look, daemon=True).start()
    try:
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        return time.perf_counter() - start, max(used), samples
    finally:
        ended.set()


def bench_class():
    """Three runs, one after the other; then the others on two sizes, which a straight line leads to 60."""
    print(f"grade: {'WITHOUT WALLS, ' + MISSING if MISSING else 'behind both walls'}; load {os.getloadavg()[0]:.1f}")
    took, used = {}, {}
    for count in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            took[count], used[count], samples = grade(Path(folder), count)
        print(f"{count} submissions: {took[count]:.1f} s, {60 * count / took[count]:.0f} a minute, "
              f"{used[count]:.0f} s of CPU; load {os.getloadavg()[0]:.1f}", flush=True)
    for count in SIZES[1:]:
        for what, all_of in ("seconds", took), ("CPU", used):
            yield (f"grade: {what} a submission, {count} against {SIZES[0]} of them",
                   all_of[count] / count / (all_of[SIZES[0]] / SIZES[0]), 1.1)
    begin, end = (statistics.median(held for cells, held in samples if low <= cells < high) for low, high in (
        (2.25 * count, 2.5 * count), (2.75 * count, 3 * count)))    # the last chapter's mistakes are loaded by then
    print(f"memory of all processes: {begin / 1e6:.0f} MB in the last chapter's second quarter, "
          f"{end / 1e6:.0f} MB in its last", flush=True)
    yield "grade: memory of all processes, a chapter's last quarter against its second", end / begin, 1.05
    for tool in OTHERS:
        path = tool_of(tool)
        if not path:
            print(f"{tool} is not here")
            continue
        few = [seconds(tool, path, some) for some in FEW]
        for what, ours, (two, six) in zip(("time", "CPU"), (took[count], used[count]), zip(*few)):
            whole = two + (count - FEW[0]) * (six - two) / (FEW[1] - FEW[0])
            print(f"{version_of(tool, path)}: {what} of {FEW[0]} and {FEW[1]} submissions {two:.1f} and {six:.1f} s, "
                  f"so of {count} {whole:.0f} s; load {os.getloadavg()[0]:.1f}", flush=True)
            yield f"grade: {what} of {count} submissions, against {tool}'s", ours / whole, 0.2


def bench_cpu():
    """All chapters' visible checks of one submission by a grader that is kept; the reference has answered."""
    one = statistics.median(spent(lambda: subprocess.run([sys.executable, "-c", "import torch"])) for _ in range(5))
    every_chapter = chapters.chapters()
    for walls in (False, True)[:1 + (not MISSING)]:
        with Grader(Setting(walls=walls), many=True) as grader:
            def submission(chosen):
                for chapter in chosen:
                    for verdict in grader.grade(chapter, SOLUTIONS):
                        assert verdict.word in (Word.PASSED, Word.WAITING)      # for a package that is not here
            submission(every_chapter)
            for count, target in (17, 2), (len(every_chapter), 2.6):
                warm = statistics.median(spent(lambda: submission(every_chapter[:count])) for _ in range(3))
                print(f"visible checks of {count} chapters: {warm:.2f} s of CPU, import torch {one:.2f} s", flush=True)
                where = "behind walls" if walls else "without walls"
                yield f"a submission's CPU, {count} chapters {where}, against import torch", warm / one, target


def bench_hostile():
    """The files of hostile/, and as many honest ones of the same chapters, by one grader; what waits until its time is
    up costs that time besides.
    """
    if MISSING:
        print(f"no row of hostile files: {MISSING}")
        return
    took, waited = {"honest": 0.0, "hostile": 0.0}, 0.0
    with Grader(Setting(walls=True), many=True) as grader, tempfile.TemporaryDirectory() as folder:
        for file in every("hostile"):
            file.write(Path(folder))
            grader.key.prepare(grader.checks(file.chapter))
            for kind, handed_in in ("honest", SOLUTIONS), ("hostile", Path(folder)):
                start = time.perf_counter()
                verdicts = list(grader.grade(file.chapter, handed_in))
                took[kind] += time.perf_counter() - start
                waited += sum(verdict.seconds for verdict in verdicts if verdict.word == "timeout")
    clean()
    print(f"honest {took['honest']:.1f} s, hostile {took['hostile']:.1f} s, {waited:.1f} s of it waited in vain")
    yield ("grade: time of the hostile files without what they were waited for, against honest ones",
           (took["hostile"] - waited) / took["honest"], 2)
