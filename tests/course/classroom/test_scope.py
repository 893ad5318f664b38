"""A cgroup for each grading job: made by systemd, or in a cgroup that was delegated; said where there is none."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from grader.classroom.run import scope
from grader.classroom.run.jobs import Job
from grader.classroom.run.scope import Scopes
from grader.course import chapters
from grader.course.chapters import ROOT
from grader.sandbox.setting import Setting

SHAPES = chapters.find("shapes")
HERE = Scopes(1)
HERE.close()


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine without systemd, whose cgroups are folders: (where processes are described, the cgroup of this one)."""
    monkeypatch.setattr(scope, "_systemd_refuses", lambda limits: "systemd is not here")
    own, proc = tmp_path / "cgroups" / "grading", tmp_path / "proc"
    own.mkdir(parents=True)
    (own / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    _process(proc / "self", own.parent, "/outer/grading")
    return proc, own


def _process(described: Path, mounted: Path, inside: str) -> None:
    described.mkdir(parents=True)
    (described / "cgroup").write_text(f"1:name=systemd:/elsewhere\n0::{inside}\n")
    (described / "mountinfo").write_text(
        f"24 1 0:22 / /proc rw shared:13 - proc proc rw\n30 23 0:26 /outer {mounted} rw - cgroup2 cgroup2 rw\n")


def test_a_delegated_cgroup_is_divided(machine):
    proc, own = machine
    scopes = Scopes(3, proc)
    assert scopes.by == "this cgroup"
    assert (own / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"
    leaf = own / f"grader-{os.getpid()}"
    assert (leaf / "cgroup.procs").read_text() == str(os.getpid())      # what is divided has no process of its own
    first, second = (scopes.around(["/bin/sh", "-c", "echo $$"]) for _ in range(2))
    started = subprocess.run(first, capture_output=True, text=True, check=True)
    job = Path(first[3]).parent
    assert started.stdout.strip().isdecimal() and job.parent == own and Path(second[3]).parent != job
    assert (job / "cgroup.procs").read_text() == "0\n"      # to the kernel: whoever writes this
    most = int((job / "memory.max").read_text())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert scope.LEAST <= most <= max(scope.LEAST, memory / 4) and most % (1 << 20) == 0
    assert [(job / name).read_text() for name in ("pids.max", "cpu.weight", "memory.swap.max")] == ["512", "100", "0"]
    _process(proc / "77", own.parent, f"/outer/grading/{job.name}")
    assert scopes.said(77) == (
        f"each job has a cgroup of its own, by this cgroup: {most / (1 << 30):.1f} GB of memory, "
        "512 processes and threads, an even share of the processors")
    (job / "pids.max").write_text("max")
    assert scopes.said(77).endswith("an even share of the processors; processes cannot be limited here")
    scopes.close()
    assert (job / "cgroup.kill").read_text() == "1"
    assert (own / "cgroup.subtree_control").read_text() == "-memory -pids -cpu"
    assert (own / "cgroup.procs").read_text() == str(os.getpid())


def test_a_limit_around_all_of_them_is_shared_out(machine):
    proc, own = machine
    (own / "memory.max").write_text(f"{9 << 30}\n")
    job = Path(Scopes(2, proc).around(["true"])[3]).parent
    assert int((job / "memory.max").read_text()) == 3 << 30
    (own / "memory.max").write_text("max\n")


@pytest.mark.parametrize("spoil, why", [
    (lambda proc, own: (own / "cgroup.controllers").write_text("cpuset memory\n"),
     "cannot limit processes, processors"),
    (lambda proc, own: (own / "cgroup.subtree_control").mkdir(), "cannot be divided: Is a directory"),
    (lambda proc, own: (proc / "self" / "mountinfo").write_text(""), "no cgroup (v2) is mounted"),
    (lambda proc, own: (proc / "self" / "cgroup").unlink(), "No such file")],
    ids=["no controller", "not allowed", "version 1", "no cgroups"])
def test_where_there_is_none_it_is_said_and_why(spoil, why, machine):
    proc, own = machine
    spoil(proc, own)
    scopes = Scopes(1, proc)
    assert scopes.around(["true"]) == ["true"]
    said = scopes.said(os.getpid())
    assert said.startswith("jobs have no cgroup of their own (") and why in said and said.endswith("the others lack")
    assert not list(own.glob("grader-*-*"))


@pytest.fixture
def systemd(tmp_path, monkeypatch):
    """A command of systemd's that keeps what it was asked, and runs the rest."""
    run = tmp_path / "bin" / "systemd-run"
    run.parent.mkdir()
    run.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/asked\n'
                   'while [ "$1" != "--" ]; do shift; done\nshift\nexec "$@"\n')
    run.chmod(0o755)
    monkeypatch.setenv("PATH", f"{run.parent}:{os.environ['PATH']}")
    return tmp_path / "asked"


def test_systemd_makes_the_scope_of_a_job(systemd, tmp_path):
    scopes = Scopes(2)
    assert scopes.by == "systemd"
    job = Job(Setting(), tmp_path, scopes)
    try:
        plan = job.plan([SHAPES.stem])
        assert plan.checks[SHAPES.stem]         # it was asked, and answered, through systemd's command
        asked = systemd.read_text().splitlines()
        assert len(asked) == 2 and "grader.classroom.run.jobs" in asked[1]
        for words in ("--scope", "MemoryMax=", "MemorySwapMax=0", "TasksMax=512", "CPUWeight=100"):
            assert words in asked[1]
        assert ("--user" in asked[1]) == (os.getuid() != 0)
        assert "systemd made one that limits nothing" in plan.scope     # which this one's did not
    finally:
        job.close()


def test_the_run_says_it_wherever_walls_are_described(tmp_path):
    (tmp_path / "in" / "ada").mkdir(parents=True)
    (tmp_path / "in" / "ada" / f"{SHAPES.stem}.py").write_bytes(SHAPES.solution.read_bytes())
    done = subprocess.run([sys.executable, "-m", "grader", "grade", tmp_path / "in", "--out", tmp_path / "out",
                           "--chapters", "0", "--no-jail"], cwd=ROOT, capture_output=True, text=True)
    said = json.loads((tmp_path / "out" / "manifest.json").read_text("utf-8"))["scope"]
    assert ("by systemd" in said or "by this cgroup" in said) if HERE.by else "jobs have no cgroup of their own" in said
    assert f"{said[0].upper()}{said[1:]}." in done.stdout
    assert said in (tmp_path / "out" / "class.html").read_text("utf-8").replace("&#39;", "'")


@pytest.mark.skipif(not HERE.by, reason=HERE.said(None))
def test_a_job_of_this_machine_is_ended_for_its_memory_and_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr(scope, "LEAST", 64 << 20)
    monkeypatch.setattr(os, "sysconf", lambda name: 4096 if name == "SC_PAGE_SIZE" else (256 << 20) // 4096)
    scopes = Scopes(1)
    try:
        greedy, other = (subprocess.Popen(scopes.around([sys.executable, "-c", code])) for code in (
            "import time; time.sleep(1); x = b'x' * (1 << 30)", "import time; time.sleep(8)"))
        time.sleep(0.5)
        assert "0.1 GB of memory, 512 processes and threads, an even share" in scopes.said(greedy.pid)
        assert greedy.wait(20) == -9 and other.wait(20) == 0
    finally:
        scopes.close()
