"""Cells on Dask's workers, and a class graded in shards."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from grader.__main__ import main
from grader.classroom.run import cells
from grader.classroom.run.cells import Cell
from grader.course import chapters
from grader.course.chapters import ROOT, CourseError
from grader.front.results import Asked
from grader.sandbox import jail

SHAPES = chapters.find("shapes")
RIGHT = SHAPES.solution.read_text("utf-8")
STUDENTS = {"ada": RIGHT + "\nimport time\ntime.sleep(2)\n",
            "grace": RIGHT.replace("raise ValueError", "raise TypeError"), "lin": "def (",
            "linus": "", "zoë": RIGHT + "\nimport helper\n"}
SEED = 77
OPEN = ["--no-jail"] * bool(jail.missing())      # behind walls where they can be built
NEEDED = "distributed is not installed: pip install -r requirements-cluster.txt"


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory):
    """What a class handed in; beside it a folder with an instructor's own hidden check."""
    top = tmp_path_factory.mktemp("class")
    for name, text in STUDENTS.items():
        (top / "in" / name).mkdir(parents=True)
        (top / "in" / name / f"{SHAPES.stem}.py").write_text(text, "utf-8")
    (top / "in" / "linus" / f"{SHAPES.stem}.py").rename(top / "in" / "linus" / "my_shapes.txt")
    (top / "in" / "zoë" / "helper.py").write_text("HELP = True\n")
    (top / "mine").mkdir()
    (top / "mine" / f"test_{SHAPES.stem}_mine.py").write_text(
        'def test_mine(impl, draw):\n    """Strides."""\n    return list(impl.row_major_strides((2, 3)))\n')
    return top / "in"


def _grade(submissions, out, *more) -> list[str]:
    return ["grade", str(submissions), "--out", str(out), "--chapters", "0", "--seed", str(SEED), *OPEN,
            "--hidden-from", str(submissions.parent / "mine"), *map(str, more)]


@pytest.fixture(scope="module")
def plain(handed_in):
    """The run as it is on one machine."""
    out = handed_in.parent / "plain"
    assert main(_grade(handed_in, out)) == 0
    return out


def _verdicts(out) -> dict[str, Cell]:
    """The cells of a run by student, without what it took to make them."""
    found = {name: cells.read(out, name, SHAPES) for name in STUDENTS}
    return {name: replace(cell, seconds=0.0, verdicts=[replace(result, seconds=0.0) for result in cell.verdicts])
            for name, cell in found.items()}


def _kill_one_that_answers(cluster) -> str:
    """Kill a worker that has been given a cell; returns its address, "" while there is none."""
    for nanny in cluster.workers.values():
        worker = cluster.scheduler.workers.get(nanny.worker_address)
        if worker and any(task.key.startswith("_answer") for task in worker.processing):
            os.kill(nanny.pid, signal.SIGKILL)
            return worker.address
    return ""


def test_a_worker_that_is_killed_costs_nothing(handed_in, plain):
    """Its cell is asked again by another, and all cells are as they are without a cluster."""
    distributed = pytest.importorskip("distributed", reason=NEEDED)
    out = handed_in.parent / "machines"
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit=None,
                                  local_directory=str(handed_in.parent / "scratch"), silence_logs=50) as cluster:
        run = subprocess.Popen([sys.executable, "-m", "grader", *_grade(
            handed_in, out, "--cluster", cluster.scheduler_address)], cwd=ROOT, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True)
        killed, end = "", time.monotonic() + 240
        while run.poll() is None and time.monotonic() < end:
            killed = killed or _kill_one_that_answers(cluster)
            time.sleep(0.02)
        assert run.poll() == 0, run.stdout.read()
        assert killed and killed not in cluster.scheduler.workers
        assert f"the worker {killed} was lost on the way" in run.stdout.read()
    assert _verdicts(out) == _verdicts(plain)
    layers = json.loads((out / "manifest.json").read_text("utf-8"))["layers"]
    assert all(layers.values()) and bool(layers) != bool(OPEN)
    assert "test_mine" in {result.check for result in _verdicts(out)["ada"].verdicts}


def test_a_scheduler_that_goes_after_the_last_cell_fails_no_run():
    pytest.importorskip("distributed", reason=NEEDED)
    from grader.classroom.run.cluster import Cluster
    cluster = Cluster.__new__(Cluster)
    cluster._machines, cluster._client = ["tcp://one", "tcp://two"], SimpleNamespace(nthreads=lambda: {"tcp://one": 1})
    assert cluster.lost() == ["the worker tcp://two"]
    cluster._client = None      # as it is when nobody answers: every question is an error
    assert cluster.lost() == []


def test_a_worker_with_another_course_is_refused(handed_in, tmp_path, monkeypatch, capsys):
    pytest.importorskip("distributed", reason=NEEDED)
    hashes = cells.hashes
    monkeypatch.setattr(cells, "hashes", lambda *of: {**hashes(*of), "checks": "as they were", "reference": "old"})
    assert main(_grade(handed_in, tmp_path / "out", "--cluster", "local")) == 2
    said = capsys.readouterr().err
    assert "does not have this course's checks and reference of ex00_shapes" in said and "same commit" in said
    assert not (tmp_path / "out" / "scratch").exists()


def test_a_cell_that_is_lost_again_and_again_is_crashed_and_the_others_are_not(monkeypatch, tmp_path):
    distributed = pytest.importorskip("distributed", reason=NEEDED)
    from grader.classroom.run import cluster

    def answer(cell, files, checks):
        if cell.student == "s3":
            raise distributed.KilledWorker("_answer", SimpleNamespace(address="tcp://lost:1"), 3)
        return replace(cell, hashes=files)
    monkeypatch.setattr(cluster, "_answer", answer)
    (tmp_path / "helper.py").write_bytes(b"x")
    todo = [Cell(f"s{i}", SHAPES, "graded", "", {}, 0, "cpu", 1.0, False) for i in range(9)]    # more than go at once
    check = Asked("test_it", "tests/test_ex00_shapes.py", False, 1.0, "", "")
    this = cluster.Cluster.__new__(cluster.Cluster)
    with distributed.Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None) as this._client:
        done = {cell.student: cell for cell in this.run(
            todo, {cell.student: tmp_path for cell in todo}, {SHAPES.stem: [check]})}
    lost = done.pop("s3")
    assert lost.note and [result.verdict for result in lost.verdicts] == ["crashed"]
    assert len(done) == 8 and all(cell.hashes == {"helper.py": b"x"} and not cell.note for cell in done.values())


# Climbs from the submission to the process that asked it, and ends whoever keeps that one: without walls, what a
# poisoned file can do to a machine.
POISON = RIGHT + '''

def _kill():
    import os
    import signal
    from pathlib import Path
    pid = os.getpid()
    while pid > 1:
        above = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        if b"grader.classroom.run.jobs" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(above, signal.SIGKILL)
        pid = above


_kill()
'''


def test_a_poisoned_file_costs_nobody_else_a_point(handed_in, plain, tmp_path, monkeypatch):
    """It ends each worker that asks it, and with it what others have there: Dask gives all of those up."""
    distributed = pytest.importorskip("distributed", reason=NEEDED)
    import dask
    shutil.copytree(handed_in, tmp_path / "in")
    shutil.copytree(handed_in.parent / "mine", tmp_path / "mine")
    (tmp_path / "in" / "ada" / f"{SHAPES.stem}.py").write_text(RIGHT + "\nimport time\ntime.sleep(4)\n", "utf-8")
    (tmp_path / "in" / "bane").mkdir()
    (tmp_path / "in" / "bane" / f"{SHAPES.stem}.py").write_text(POISON, "utf-8")
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}), distributed.LocalCluster(
            n_workers=1, threads_per_worker=4, dashboard_address=None, memory_limit=None, silence_logs=50,
            local_directory=str(tmp_path / "scratch")) as cluster:
        done = subprocess.run([sys.executable, "-m", "grader", *_grade(
            tmp_path / "in", tmp_path / "out", "--cluster", cluster.scheduler_address, "--no-jail")], cwd=ROOT,
            capture_output=True, text=True, timeout=400)
    assert done.returncode == 1, done.stdout + done.stderr
    poison = cells.read(tmp_path / "out", "bane", SHAPES)
    assert {result.verdict for result in poison.verdicts} == {"crashed"} and "KilledWorker" not in done.stderr
    assert "could not be graded: bane" in done.stdout and done.stdout.count("could not be graded") == 1
    words = [{name: {result.check: result.verdict for result in cell.verdicts}
              for name, cell in _verdicts(out).items()} for out in (plain, tmp_path / "out")]
    assert words[0] == words[1]


class Machines:
    """A scheduler and machines, each a process of its own, as they are started by hand."""

    def __init__(self, folder):
        self._folder, self._processes = folder, []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"tcp://127.0.0.1:{free.getsockname()[1]}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self._processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def scheduler(self) -> subprocess.Popen:
        return self._start(ROOT, "scheduler", "--host", "127.0.0.1", "--port", self.address.rpartition(":")[2],
                           "--no-dashboard")

    def worker(self, course=ROOT) -> subprocess.Popen:
        return self._start(course, "worker", self.address, "--nthreads", "1", "--no-dashboard", "--local-directory",
                           str(self._folder))

    def _start(self, course, what: str, *arguments: str) -> subprocess.Popen:
        process = subprocess.Popen([sys.executable, "-m", f"distributed.cli.dask_{what}", *arguments], cwd=course,
                                   env={**os.environ, "PYTHONPATH": str(course)}, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, start_new_session=True)
        self._processes.append(process)
        return process

    def end(self, process: subprocess.Popen) -> None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self._processes.remove(process)


def test_a_scheduler_that_is_started_anew_ends_the_run_and_resume_goes_on(handed_in, plain, tmp_path):
    pytest.importorskip("distributed", reason=NEEDED)
    out = tmp_path / "out"
    with Machines(tmp_path) as machines:
        scheduler = machines.scheduler()
        machines.worker()
        command = [sys.executable, "-m", "grader", *_grade(handed_in, out, "--cluster", machines.address)]
        run = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + 200
        while not list(out.glob("cells/*/*.json")) or not any(
                not cell.missing for cell in map(lambda name: cells.read(out, name, SHAPES), STUDENTS) if cell):
            assert run.poll() is None and time.monotonic() < end, run.communicate()
            time.sleep(0.02)
        machines.end(scheduler)
        machines.scheduler()
        said = run.communicate(timeout=200)
        assert run.returncode == 2, said
        assert "the scheduler is gone, or was started anew" in said[1] and "--resume goes on with it" in said[1]
        assert "Traceback" not in said[1]
        assert 0 < len([name for name in STUDENTS if cells.read(out, name, SHAPES)]) < len(STUDENTS)
        machines.worker()
        again = subprocess.run([*command, "--resume"], cwd=ROOT, capture_output=True, text=True)
        assert again.returncode == 0, again.stdout + again.stderr
        assert "are as they were graded" in again.stdout
    assert _verdicts(out) == _verdicts(plain)


def test_a_machine_with_another_commit_is_named_and_resume_goes_on_without_it(handed_in, plain, tmp_path):
    pytest.importorskip("distributed", reason=NEEDED)
    out, other = tmp_path / "out", tmp_path / "course"
    for name in ("grader", "given", "solutions", "exercises", "tests/hidden", "tests/mistakes", "pyproject.toml"):
        copy = shutil.copy2 if (ROOT / name).is_file() else shutil.copytree
        (other / name).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / name, other / name)
    for test in ROOT.glob("tests/*.py"):
        shutil.copy2(test, other / "tests")
    with (other / "solutions" / SHAPES.solution.name).open("a") as file:
        file.write("# as it was last week\n")
    with Machines(tmp_path) as machines:
        machines.scheduler()
        old = machines.worker(other)
        command = [sys.executable, "-m", "grader", *_grade(handed_in, out, "--cluster", machines.address)]
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert run.returncode == 2 and "Traceback" not in run.stderr
        assert re.search(r"the worker tcp://\S+ does not have this course's reference of ex00_shapes: each machine "
                         "needs the course at the same commit", run.stderr), run.stderr
        machines.end(old)
        machines.worker()
        again = subprocess.run([*command, "--resume"], cwd=ROOT, capture_output=True, text=True)
        assert again.returncode == 0, again.stdout + again.stderr
    assert _verdicts(out) == _verdicts(plain)


def test_a_run_that_no_machine_is_left_for_ends_with_a_sentence(monkeypatch, tmp_path):
    distributed = pytest.importorskip("distributed", reason=NEEDED)
    from grader.classroom.run import cluster
    monkeypatch.setattr(cluster, "JOINING", 1.0)
    todo = [Cell("ada", SHAPES, "graded", "", {}, 0, "cpu", 1.0, False)]
    this = cluster.Cluster.__new__(cluster.Cluster)
    with distributed.Client(processes=False, n_workers=0, dashboard_address=None) as this._client:
        with pytest.raises(CourseError, match="no machine has been at work for 1 seconds.*--resume goes on"):
            list(this.run(todo, {"ada": tmp_path}, {SHAPES.stem: []}))


# -- shards ----------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def shards(handed_in):
    """The class in two shards."""
    folders = [handed_in.parent / f"shard{i}" for i in (1, 2)]
    for i, folder in enumerate(folders, 1):
        assert main(_grade(handed_in, folder, "--shard", f"{i}/2")) == 0
    return folders


def test_merged_shards_are_the_run_in_one(plain, shards, tmp_path):
    names = [sorted(path.name for path in (folder / "cells").iterdir()) for folder in shards]
    assert [len(own) for own in names] == [3, 2] and sorted(sum(names, [])) == sorted(STUDENTS)
    assert main(["merge", str(tmp_path / "out"), *map(str, reversed(shards))]) == 0
    assert _verdicts(tmp_path / "out") == _verdicts(plain)
    for name in ("grades.csv", *(f"results/{student}.json" for student in STUDENTS)):
        assert (tmp_path / "out" / name).read_text("utf-8") == (plain / name).read_text("utf-8"), name
    merged, whole = (json.loads((out / "manifest.json").read_text("utf-8")) for out in (tmp_path / "out", plain))
    assert {**merged, "begun": 0, "ended": 0} == {**whole, "begun": 0, "ended": 0}


def _said(folder, **changed):
    """A shard's manifest with other values."""
    path = folder / "manifest.json"
    said = {**json.loads(path.read_text("utf-8")), **changed}
    path.write_text(json.dumps({name: value for name, value in said.items() if value is not None}))


def test_shards_that_do_not_belong_together_are_not_merged(shards, tmp_path, capsys):
    cases = {       # how two shards are spoilt, and what is then said
        "shard 2/2 is missing": lambda one, two: [one],
        "no manifest": lambda one, two: [one, two, two.with_name("nowhere")],
        "both shard 2/2": lambda one, two: [one, two, shutil.copytree(two, two.with_name("again"))],
        "has not ended": lambda one, two: _said(two, ended=None) or [one, two],
        "differ in seed: 77 and 1": lambda one, two: _said(two, seed=1) or [one, two],
        "differ in torch": lambda one, two: _said(two, torch="1.0") or [one, two],
        "differ in hashes.ex00_shapes": lambda one, two: _said(
            two, hashes={SHAPES.stem: {"checks": "other"}}) or [one, two],
        "grace": lambda one, two: cells.path(two, "grace", SHAPES).unlink() or [one, two],
    }
    for number, (words, spoil) in enumerate(cases.items()):
        top = tmp_path / str(number)
        folders = spoil(*(shutil.copytree(folder, top / folder.name) for folder in shards))
        assert main(["merge", str(top / "out"), *map(str, folders)]) == 2, words
        assert words in capsys.readouterr().err
        assert not (top / "out" / "grades.csv").exists()


@pytest.mark.parametrize("shard", ["0/3", "4/3", "1", "a/b", "1/0"])
def test_a_shard_is_one_of_n(shard, handed_in, tmp_path, capsys):
    assert main(_grade(handed_in, tmp_path / "out", "--shard", shard)) == 2
    assert "I/N" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_shards_need_one_seed(handed_in, tmp_path, capsys):
    assert main(["grade", str(handed_in), "--out", str(tmp_path / "out"), "--shard", "1/2", "--no-jail"]) == 2
    assert "--seed" in capsys.readouterr().err and not (tmp_path / "out").exists()
