"""Cells on Dask's workers, and a class graded in shards."""

import json
import os
import shutil
import signal
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
from grader.course.chapters import ROOT
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
    assert _verdicts(out) == _verdicts(plain)
    layers = json.loads((out / "manifest.json").read_text("utf-8"))["layers"]
    assert all(layers.values()) and bool(layers) != bool(OPEN)
    assert "test_mine" in {result.check for result in _verdicts(out)["ada"].verdicts}


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
