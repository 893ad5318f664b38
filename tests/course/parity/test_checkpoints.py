"""Checkpoints of chapter 14 under kill -9, full disks and damaged bytes: one is always whole."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest
import torch
from torch import nn

from grader.course.chapters import ROOT
from solutions.ex14_training import AdamW, load_checkpoint, save_checkpoint

KILLS = 40
ON_POSIX = pytest.mark.skipif(os.name != "posix", reason="needs fork and signals")


def make_run(size: int):
    """A model that is all zeros, its optimizer, and a generator."""
    model = nn.Linear(size, size)
    for p in model.parameters():
        nn.init.zeros_(p)
    return model, AdamW(model.parameters()), torch.Generator().manual_seed(0)


@torch.no_grad()
def mark(run, step: int) -> None:
    """Make weights, m and v tell the step that they belong to."""
    model, optimizer, _ = run
    for p in model.parameters():
        p.fill_(step)
        optimizer.state[p] = {"step": step, "m": torch.full_like(p, step), "v": torch.full_like(p, step)}


def is_marked(run, step: int) -> bool:
    model, optimizer, _ = run
    return all(bool((p == step).all() and (optimizer.state[p]["m"] == step).all()
                    and (optimizer.state[p]["v"] == step).all() and optimizer.state[p]["step"] == step)
               for p in model.parameters())


def save_forever(path: str, run, step: int) -> None:
    while True:
        step += 1
        mark(run, step)
        save_checkpoint(path, *run[:2], step, run[2])


def kill_and_look(path: str) -> dict:
    """Kill KILLS processes that save all the time, each at a random moment; look after each."""
    torch.set_num_threads(1)
    run, moments, steps, cut_short = make_run(200), random.Random(0), [2], 0
    for step in range(3):                                # the first makes things ready
        start = time.perf_counter()
        mark(run, step)
        save_checkpoint(path, *run[:2], step, run[2])
    one_save = time.perf_counter() - start
    for _ in range(KILLS):
        child = os.fork()
        if child == 0:
            save_forever(path, run, steps[-1])
        time.sleep(moments.uniform(0, 5 * one_save))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        cut_short += os.path.exists(path + ".unfinished")
        other = make_run(200)
        step = load_checkpoint(path, *other)
        assert is_marked(other, step), f"step {step} is a mixture"
        assert step >= steps[-1], "an older checkpoint came back"
        steps.append(step)
    return {"steps": steps, "cut short": cut_short}


@ON_POSIX
def test_after_every_kill_there_is_a_whole_checkpoint(tmp_path):
    """In a process of its own, which has one thread, so that it may fork."""
    said = subprocess.run([sys.executable, "-m", "tests.course.parity.test_checkpoints", str(tmp_path / "run")],
                          cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert len(found["steps"]) == KILLS + 1
    assert found["steps"][-1] > found["steps"][0], "no new checkpoint was ever saved"
    assert found["cut short"] > 0, "no kill came while a checkpoint was being written"


@pytest.mark.parametrize("fails", ["fsync", "replace"])
def test_a_failed_save_leaves_the_old_one(tmp_path, monkeypatch, fails):
    run, path = make_run(20), tmp_path / "run"
    mark(run, 1)
    save_checkpoint(path, *run[:2], 1, run[2])
    mark(run, 2)
    with monkeypatch.context() as patched:
        def full(*_):
            raise OSError(28, "No space left on device")
        patched.setattr(os, fails, full)
        with pytest.raises(OSError, match="No space left"):
            save_checkpoint(path, *run[:2], 2, run[2])
    other = make_run(20)
    assert load_checkpoint(path, *other) == 1 and is_marked(other, 1)
    save_checkpoint(path, *run[:2], 2, run[2])
    assert load_checkpoint(path, *other) == 2 and is_marked(other, 2)
    assert list(tmp_path.iterdir()) == [path]


@ON_POSIX
def test_a_disk_quota_leaves_the_old_one(tmp_path):
    """The write itself fails in the middle: the process may write files of 10,000 bytes."""
    run, path = make_run(100), tmp_path / "run"
    mark(run, 1)
    save_checkpoint(path, *run[:2], 1, run[2])
    before = path.read_bytes()
    import resource
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
        with pytest.raises(OSError):
            save_checkpoint(path, *run[:2], 2, run[2])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, old)
    assert path.read_bytes() == before


def test_a_missing_folder_is_no_checkpoint(tmp_path):
    run = make_run(4)
    with pytest.raises(OSError):
        save_checkpoint(tmp_path / "missing" / "run", *run[:2], 1, run[2])
    assert not list(tmp_path.iterdir())


def damaged(whole: bytes):
    """Every 23rd byte flipped, and the file cut at every 23rd length."""
    for place in range(0, len(whole), 23):
        yield whole[:place] + bytes([whole[place] ^ (1 << place % 8)]) + whole[place + 1:]
        yield whole[:place]
    yield whole + b"\0"


def test_every_damaged_file_is_refused_and_nothing_changes(tmp_path):
    run, other, path = make_run(6), make_run(6), tmp_path / "run"
    mark(run, 3)
    mark(other, 1)
    save_checkpoint(path, *run[:2], 3, run[2])
    before, random_state = other[2].get_state(), torch.get_rng_state()
    for content in damaged(path.read_bytes()):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="path .*run"):
            load_checkpoint(path, *other)
    assert is_marked(other, 1)
    assert torch.equal(other[2].get_state(), before) and torch.equal(torch.get_rng_state(), random_state)


if __name__ == "__main__":
    print(json.dumps(kill_and_look(sys.argv[1])))
