"""The rooms themselves: what a student's process can see, and how processes end."""

import os
import subprocess
import sys
import time

import pytest

from grader.course import chapters
from grader.course.chapters import ROOT
from grader.judge.engine import Grader
from grader.sandbox.launcher import WORKER, Launcher
from grader.sandbox.process import Ended
from grader.sandbox.setting import Setting

LINEAR = chapters.find("linear")
SOLUTION = LINEAR.solution.read_text("utf-8")


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


forks = pytest.mark.skipif(sys.platform != "linux", reason="forking a process that has torch in memory is not safe")


@pytest.fixture(params=[pytest.param(True, id="fork", marks=forks), pytest.param(False, id="fresh")])
def launcher(request):
    launcher = Launcher(fork=request.param)
    yield launcher
    launcher.close()


def test_a_worker_that_ends_says_how(launcher):
    worker = launcher.start(WORKER)
    worker.send("nonsense", name="x")
    with pytest.raises(Ended):
        worker.receive(1, timeout=60)
    assert not _alive(worker.pid)


def test_an_ended_worker_is_gone(launcher):
    worker = launcher.start(WORKER)
    worker.end()
    assert not _alive(worker.pid)


def test_workers_die_with_the_front_end(tmp_path):
    """A killed front end leaves nothing behind, not even an endless loop."""
    (tmp_path / "ex03_linear.py").write_text(SOLUTION + (
        "\n\nimport os\nfrom pathlib import Path\n\n\ndef linear_flops(a, b, c):\n"
        "    Path(__file__).with_name('pid').write_text(str(os.getpid()))\n    while True: pass\n"), "utf-8")
    front = subprocess.Popen([sys.executable, "-m", "grader", "check", "3", "--submission", str(tmp_path),
                              "--timeout", "300"], cwd=ROOT, stdout=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while not (tmp_path / "pid").exists():
        assert time.monotonic() < end and front.poll() is None
        time.sleep(0.05)
    time.sleep(0.1)
    worker = int((tmp_path / "pid").read_text())
    assert _alive(worker)
    front.kill()
    front.wait()
    end = time.monotonic() + 10
    while _alive(worker):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_what_a_submission_starts_ends_with_it(tmp_path):
    (tmp_path / "ex03_linear.py").write_text(SOLUTION + (
        "\n\nimport subprocess\nfrom pathlib import Path\n\n\ndef linear_flops(a, b, c):\n"
        "    child = subprocess.Popen(['sleep', '300'])\n"
        "    Path(__file__).with_name('pid').write_text(str(child.pid))\n    return 2 * a * b * c\n"), "utf-8")
    with Grader() as grader:
        words = [v.word for v in grader.grade(LINEAR, tmp_path)]
    assert set(words) == {"passed"}
    assert not _alive(int((tmp_path / "pid").read_text()))


def test_a_students_process_holds_no_answer(tmp_path):
    """Neither the chapter's reference nor a later one, nor the side that compares, is loaded."""
    (tmp_path / "ex03_linear.py").write_text(SOLUTION + (
        "\n\nimport gc\nimport sys\n\n\ndef linear_flops(a, b, c):\n"
        "    files = {getattr(m, '__file__', None) or '' for m in list(sys.modules.values())}\n"
        "    files |= {f.__code__.co_filename for f in gc.get_objects() if type(f) is type(lambda: 0)}\n"
        "    print(sorted(f for f in files if '/solutions/' in f))\n"
        "    return 2 * a * b * c\n"), "utf-8")
    with Grader() as grader:
        said = {v.check.function: v for v in grader.grade(LINEAR, tmp_path)}
    assert said["test_flops"].word == "passed"
    assert said["test_flops"].output.split() == ["[]"] * 2


def test_a_process_that_is_asked_visible_checks_has_no_hidden_ones(tmp_path):
    """What it prints is shown to whoever handed it in."""
    (tmp_path / "ex03_linear.py").write_text(SOLUTION + (
        "\n\nimport gc\n\n\ndef linear_flops(a, b, c):\n"
        "    print(len([f for f in gc.get_objects() if type(f) is type(lambda: 0)\n"
        "               and '/hidden/' in f.__code__.co_filename]))\n"
        "    return 2 * a * b * c\n"), "utf-8")
    with Grader() as grader:
        said = {v.check: v.output.split() for v in grader.grade(LINEAR, tmp_path, hidden=True) if v.output}
    seen = {check.hidden: {int(n) for n in numbers} for check, numbers in said.items()}
    assert seen[False] == {0}


@forks
def test_the_zygote_has_one_thread_and_no_reference():
    launcher = Launcher(fork=True)
    worker = launcher.start(WORKER)
    zygote = launcher._first._ended.__self__.pid
    assert len(os.listdir(f"/proc/{zygote}/task")) == 1
    worker.end()
    launcher.close()
    assert not _alive(zygote)


def test_front_ends_import_no_torch():
    script = "from grader.front import report, screen, watch; import sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


def test_inputs_are_the_same_in_every_process(tmp_path):
    """A wrong answer is wrong in the same words, run after run."""
    (tmp_path / "ex03_linear.py").write_text(SOLUTION.replace("y = x @", "y = -x @"), "utf-8")

    def said(seed: int = 0, **options):
        with Grader(Setting(seed=seed), **options) as grader:
            return [v.facts for v in grader.grade(LINEAR, tmp_path)]
    assert said() == said() == said(fork=False)
    assert said() != said(seed=1)


def test_prints_belong_to_the_check_that_made_them(tmp_path):
    """However soon the answer follows, what was printed before it is there, and only then."""
    (tmp_path / "ex03_linear.py").write_text(SOLUTION + (
        "\n\nright = linear_backward\ncount = 0\n\n\ndef linear_backward(x, weight, grad_out):\n"
        "    global count\n    count += 1\n    print('call', count, 'x' * 10_000)\n"
        "    return right(x, weight, grad_out)\n"), "utf-8")
    with Grader() as grader:
        said = [v.output.split()[1::3] for v in grader.grade(LINEAR, tmp_path)]
    calls = [int(number) for numbers in said for number in numbers]
    assert calls == list(range(1, len(calls) + 1)) and len(calls) > 4
    assert max(map(len, said)) < len(calls)
