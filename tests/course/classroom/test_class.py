"""A class from end to end: an edition is handed out, solved in part, collected among strangers' files, and graded.

90 hostile, 20 broken and 20 honest submissions are graded behind both walls by two jobs. The run is killed half-way
and taken up again. Every verdict is as expected, and nothing is left behind.
"""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from grader.classroom.run import cells
from grader.classroom.run.cells import Cell
from grader.course import chapters
from grader.course.chapters import ROOT
from grader.judge import mistakes
from grader.sandbox import jail
from tests.course.classroom.handed_in import clean, every, left_behind, text_of

pytestmark = pytest.mark.skipif(bool(jail.missing()), reason=jail.missing() or "the jail is here")
CHAPTERS = [chapters.find(number) for number in ("00", "03", "04", "05")]
LINEAR = chapters.find("03")
HANGING = 3                     # of those whose checks hang, which cost their time
MAX_LATE = 5                    # of the others, on a busy machine


def _chosen(folder: str, count: int) -> list:
    """Those that need walls first; few that hang."""
    files = [file for file in sorted(every(folder), key=lambda file: not file.wall) if file.chapter in CHAPTERS]
    hanging = [file for file in files if "timeout" in file.expected]
    return [file for file in files if file not in hanging[HANGING:]][:count]


def _grader(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "grader", *map(str, arguments)]


class Run:
    """What was handed in, and what came out."""

    def __init__(self, folder: Path):
        self.edition, self.handed, self.out = folder / "edition", folder / "submissions", folder / "out"
        numbers = ",".join(chapter.number for chapter in CHAPTERS)
        subprocess.run(_grader("handout", self.edition, "--chapters", numbers), cwd=ROOT, check=True,
                       capture_output=True)
        self.honest: dict[str, tuple[set, str]] = {}        # what each has solved, and a mistake's words
        known = mistakes.edits(LINEAR, "mistake")
        for number in range(20):
            name = f"honest{number:02}"
            solved = set(CHAPTERS[:1 + number % len(CHAPTERS)])
            self._stubs(name, solved)
            words = ""
            if number >= 16:
                known[number - 16].write(LINEAR, self.handed / name)
                words = known[number - 16].words
            self.honest[name] = solved, words
        self.strangers = {f"{kind}-{i:03}": file for kind, count in (("hostile", 90), ("broken", 20))
                          for i, file in enumerate(_chosen(kind, count))}
        for name, file in self.strangers.items():
            file.write(self.handed / name)
        self.command = _grader("grade", self.handed, "--out", self.out, "--jobs", "2", "--chapters",
                               *(chapter.number for chapter in CHAPTERS))

    def _stubs(self, name: str, solved: set) -> None:
        """A copy of the edition's exercises, with the reference in place of these."""
        (self.handed / name).mkdir(parents=True)
        for chapter in CHAPTERS:
            source = chapter.solution if chapter in solved else self.edition / "exercises" / chapter.exercise.name
            (self.handed / name / chapter.exercise.name).write_bytes(source.read_bytes())

    def graded(self) -> dict[Path, list]:
        """How long each check took of the cells that have been graded, which never comes twice alike."""
        cells = {path: json.loads(path.read_text("utf-8")) for path in self.out.glob("cells/*/*.json")}
        return {path: [verdict["seconds"] for verdict in cell["verdicts"]]
                for path, cell in cells.items() if cell["state"] == "graded"}

    def cell(self, name: str, chapter) -> Cell:
        return cells.read(self.out, name, chapter)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    run = Run(tmp_path_factory.mktemp("class"))
    clean()
    first = subprocess.Popen(run.command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    run.count = len(run.honest) * len(CHAPTERS) + len(run.strangers)
    while len(run.graded()) < run.count // 2:
        assert first.poll() is None, first.stdout.read()
        time.sleep(0.2)
    first.send_signal(signal.SIGKILL)
    first.wait()
    run.before = run.graded()
    done = subprocess.run([*run.command, "--resume"], cwd=ROOT, capture_output=True, text=True)
    run.said = done.stdout + done.stderr
    assert done.returncode in (0, 1), run.said
    yield run
    clean()


def test_a_killed_run_goes_on_where_it_was(run):
    after = run.graded()
    assert run.count // 2 <= len(run.before) < run.count == len(after)
    assert all(after[path] == took for path, took in run.before.items())


def test_the_honest_get_what_they_have_earned(run):
    for name, (solved, words) in run.honest.items():
        for chapter in CHAPTERS:
            cell = run.cell(name, chapter)
            said = {result.verdict for result in cell.verdicts}
            if words and chapter == LINEAR:
                assert words in {result.mistake for result in cell.verdicts}, name
            else:
                assert said == ({"passed"} if chapter in solved else {"todo"}), (name, chapter)


def test_strangers_get_the_verdicts_that_their_heads_say(run):
    late = []       # what takes much may take too long on a busy machine, which buys nothing
    for name, file in run.strangers.items():
        for chapter in CHAPTERS:
            cell = run.cell(name, chapter)
            if chapter != file.chapter:
                assert cell.missing and not cell.verdicts
                continue
            visible = [result for result in cell.verdicts if not result.hidden]
            if "timeout" not in file.expected and any(result.verdict == "timeout" for result in visible):
                late.append(str(file))
                continue
            file.expects([(result.function, result.verdict, text_of(result)) for result in visible])
    assert len(late) <= MAX_LATE, late


def test_nothing_is_left_behind(run):
    assert not left_behind()
    assert not (run.out / "scratch").exists()
    own = [int(path.name) for path in Path("/proc").glob("[0-9]*")
           if str(run.out).encode() in _environment(path) or str(run.out).encode() in _command(path)]
    assert not own, [_command(Path("/proc", str(pid))) for pid in own]


def _command(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def _environment(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes() if int(process.name) != os.getpid() else b""
    except OSError:
        return b""


def test_every_page_and_table_is_there(run):
    names = {*run.honest, *run.strangers}
    assert {path.stem for path in (run.out / "feedback").glob("*.html")} == names
    with (run.out / "grades.csv").open(newline="", encoding="utf-8") as file:
        rows = {row["student"]: row for row in csv.DictReader(file)}
    assert names <= rows.keys()
    most = float(rows["(maximum)"]["total"])
    assert float(rows["honest03"]["total"]) == most > float(rows["honest00"]["total"]) > 0
    assert float(rows["honest00"][LINEAR.stem]) == 0
    layers = json.loads((run.out / "manifest.json").read_text("utf-8"))["layers"]
    assert layers and all(layers.values())
