"""Chapter 26 against one process, torch's DistributedDataParallel and fully_shard: in threads, and under torchrun.

Everything is float64 and has to agree to 1e-10. Processes talk by gloo, on the loopback device alone.
"""

import csv
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from given.ranks import Deadlock, RankFailed, run_threads
from solutions.ex26_many_devices import DataParallel, ring_all_reduce
from tests.course.parity.ranks_ex26_many_devices import everything, one_process

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = Path(__file__).with_name("ranks_ex26_many_devices.py")
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the loopback device has another name")


def torchrun(ranks: int, *command, code: int = 0) -> str:
    """Run a command under torchrun, with CPUs alone; what it prints."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    alone = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
             "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    ran = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", "--master-addr=127.0.0.1",
         f"--master-port={port}", "--monitor-interval=1", *map(str, command)],
        cwd=ROOT, env={**os.environ, **alone}, capture_output=True, text=True, timeout=300)
    assert ran.returncode == code, f"{ran.stdout[-2000:]}\n{ran.stderr[-4000:]}"
    return ran.stdout + ran.stderr


def agree(found: dict, whole: dict, by: str) -> None:
    """What was found by a split is what one process finds."""
    for name in whole.keys() & found.keys():
        assert found[name] == pytest.approx(whole[name], rel=1e-10, abs=1e-10), (by, name)


def hold(ranks: list[dict], size: int) -> None:
    """The numbers of every rank are one process's, and bytes sent are bytes predicted."""
    whole = one_process()
    for found in ranks:
        for by in ("data", "zero1", "zero3"):
            agree(found[by], whole, by)
        assert found["tensor"]["losses"] == pytest.approx(whole["losses"][:1], rel=1e-10)
        assert found["tensor"]["norm"] == pytest.approx(found["tensor"]["whole norm"], rel=1e-10, abs=1e-10)
        for name in ("losses", "gradients"):
            assert found["pipeline"][name] == pytest.approx(found["pipeline"][f"whole {name}"], rel=1e-10, abs=1e-10)
        for by in ("ring", "data", "zero1", "zero3", "tensor", "vocabulary", "pipeline"):
            assert found[by]["bytes"] == pytest.approx(found[by]["predicted"], rel=1e-12), (by, size)
            assert size == 1 or found[by]["bytes"] > 0


@pytest.mark.parametrize("size", [1, 2])
def test_threads_equal_one_process(size):
    hold(run_threads(size, everything), size)


def test_threads_say_the_same_twice():
    assert run_threads(2, everything) == run_threads(2, everything)


@ON_LINUX
def test_processes_equal_one_process_and_torch(tmp_path):
    torchrun(2, SCRIPT, "parity", tmp_path)
    said = [json.loads((tmp_path / f"{rank}.json").read_text("utf-8")) for rank in range(2)]
    hold([rank["ours"] for rank in said], 2)
    whole = one_process()
    for rank in said:
        for by, found in rank["theirs"].items():
            agree(found, whole, by)
    threads = run_threads(2, everything)
    for rank, here in zip(said, threads):
        for by in here:
            agree(rank["ours"][by], here[by], by)
            assert rank["ours"][by]["bytes"] == here[by]["bytes"]


@ON_LINUX
def test_processes_are_told_who_failed(tmp_path):
    torchrun(2, SCRIPT, "failures", tmp_path, code=1)
    said = json.loads((tmp_path / "0.json").read_text("utf-8"))
    assert said["uneven"] == "x must be alike on all ranks, got ((5,), torch.float32) on rank 0 and " \
        "((6,), torch.float32) on rank 1"
    assert "rank 0 waited in recv for rank 1, which cannot go on" in said["gone"]


# -- threads that fail

def test_a_deadlock_is_found_and_told_by_name():
    with pytest.raises(Deadlock, match="rank 0 waits in recv for rank 1; rank 1 waits in recv for rank 0"):
        run_threads(2, lambda group: group.recv(1 - group.rank))
    with pytest.raises(Deadlock, match="rank 0 waits in send for rank 1; rank 1 has returned"):
        run_threads(2, lambda group: group.rank or group.send(torch.ones(1), 1))
    with pytest.raises(Deadlock, match="rank 0 waits in agree for rank 1; rank 1 waits in send for rank 0"):
        run_threads(2, lambda group: group.send(torch.ones(1), 0) if group.rank else group.agree(x=1))
    with pytest.raises(Deadlock, match="rank 2 waits in exchange for rank 0 and rank 1"):
        run_threads(3, lambda group: group.exchange(torch.ones(1), (group.rank + 1) % 3, (group.rank + 2) % 3)
                    if group.rank == 2 else group.recv(2 - 2 * group.rank) if group.rank else group.recv(1))


def test_a_rank_that_raises_is_named_to_all_that_wait():
    def run(group):
        if group.rank == 2:
            raise OSError("no memory")
        ring_all_reduce(torch.ones(3), group)
    said = run_threads(4, run, errors=True)
    assert isinstance(said[2], OSError)
    assert [str(error) for error in said if isinstance(error, RankFailed)] == ["rank 2 failed: OSError: no memory"] * 3
    with pytest.raises((OSError, RankFailed), match="no memory"):
        run_threads(4, run)


def test_an_uneven_shard_is_refused_on_all_ranks():
    said = run_threads(3, lambda group: ring_all_reduce(torch.ones(4 + (group.rank == 1)), group), errors=True)
    assert len({str(error) for error in said}) == 1
    assert all(isinstance(error, ValueError) and "(5,)" in str(error) for error in said)


def test_each_rank_has_random_numbers_and_modes_of_its_own():
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    state = torch.get_rng_state()

    def run(group):
        first = torch.rand(2)
        group.agree(x=1)
        return torch.cat([first, torch.rand(2)]), torch.is_grad_enabled()
    with torch.no_grad():
        found = run_threads(3, run)
    assert all(torch.equal(x, expected) and not grad for x, grad in found)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(grad for _, grad in run_threads(2, run))


@pytest.mark.parametrize("to", [-1, 2, 0])
def test_a_rank_that_is_not_there_is_refused(to):
    with pytest.raises(ValueError, match="to must be another rank"):
        run_threads(2, lambda group: group.rank or group.send(torch.ones(1), to))


def test_gradients_of_a_model_that_two_ranks_share_do_not_hang():
    net = torch.nn.Linear(2, 2)
    said = run_threads(2, lambda group: DataParallel(net, group) and None, errors=True)
    assert said == [None, None]


# -- torch's own engine

@ON_LINUX
def test_a_sharded_run_goes_on_with_another_number_of_ranks(tmp_path):
    how = ("--model", "tiny", "--batch", 6, "--seq", 16, "--steps", 4, "--every", 2)
    torchrun(2, "-m", "assets.pocket.train_sharded", tmp_path / "2", *how)
    unstopped = losses(tmp_path / "2")
    assert len(unstopped) == 4 and unstopped[3] < unstopped[0]
    for ranks in (1, 3):
        run = tmp_path / str(ranks)
        shutil.copytree(tmp_path / "2", run, ignore=shutil.ignore_patterns("step-4"))
        said = torchrun(ranks, "-m", "assets.pocket.train_sharded", run, *how)
        assert f"{ranks} ranks, going on after step 2" in said
        assert losses(run) == pytest.approx(unstopped, abs=1e-5)
        assert losses(run)[:2] == unstopped[:2]
        assert (run / "step-4" / ".metadata").exists()


def losses(run: Path) -> list[float]:
    rows = list(csv.reader((run / "losses.csv").open(encoding="utf-8")))
    assert [int(step) for step, _ in rows] == list(range(1, len(rows) + 1))
    return [float(loss) for _, loss in rows]


@ON_LINUX
def test_a_sharded_run_says_what_it_cannot_do(tmp_path):
    said = torchrun(2, "-m", "assets.pocket.train_sharded", tmp_path / "run", "--batch", 5, code=1)
    assert "--batch must be a multiple of the 2 ranks" in said and said.count("train_sharded: --batch") == 1
    alone = subprocess.run([sys.executable, "-m", "assets.pocket.train_sharded", "run"], cwd=ROOT, text=True,
                           capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert alone.returncode == 2 and "torchrun --nproc-per-node 2" in alone.stderr
