"""The rooms themselves: what a student's process can see, and how processes end."""

import os
import subprocess
import sys
import time

import pytest

from grader.course import chapters
from grader.course.chapters import ROOT
from grader.judge.engine import Grader
from grader.sandbox import jail
from grader.sandbox.launcher import WORKER, ZYGOTE, Launcher, fresh
from grader.sandbox.process import CAN_TELL, Ended, Stopped
from grader.sandbox.setting import Setting
from grader.sandbox.submission import AFTER_TIMEOUT, BUDGET

LINEAR = chapters.find("linear")
SOLUTION = LINEAR.solution.read_text("utf-8")


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


forks = pytest.mark.skipif(sys.platform != "linux", reason="forking a process that has torch in memory is not safe")


two_processors = pytest.mark.skipif(sys.platform != "linux" or (os.cpu_count() or 1) < 2,
                                    reason="two workers need two processors, and forks")


@pytest.fixture(params=[pytest.param(True, id="fork", marks=forks), pytest.param(False, id="fresh")])
def launcher(request):
    launcher = Launcher(WORKER, fork=request.param)
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


def test_the_last_words_of_a_process_are_kept(launcher):
    worker = launcher.start(WORKER)
    worker.send("nonsense", name="x")
    with pytest.raises(Ended) as ended:
        worker.receive(1, timeout=60)
    assert ended.value.status and "unknown request 'nonsense'" in worker.output()


def test_a_process_that_is_hung_up_on_may_end_by_itself():
    worker = fresh(ZYGOTE, "fresh", WORKER, environment={**os.environ, "PYTHONPATH": str(ROOT)}, patience=30)
    worker.hang_up()
    worker.send("start", name="", device="cpu")     # to nobody, and no error
    assert worker.end(kill=False) == 0


def test_a_file_that_is_slow_in_every_check_ends_in_time(tmp_path):
    """Once all its checks together have taken BUDGET times what one may, each gets AFTER_TIMEOUT seconds."""
    (tmp_path / "ex03_linear.py").write_text(SOLUTION + (
        "\n\nimport time\n\n\nclass Linear:\n    def __init__(self, *_, **__):\n        time.sleep(60)\n"), "utf-8")
    limit, count = 1.5, BUDGET + 3
    with Grader(Setting(timeout=limit)) as grader:
        checks = [check for check in grader.checks(LINEAR) if "Linear" in check.names][:count]
        assert len(checks) == count
        start = time.monotonic()
        said = [v.facts for v in grader.grade(LINEAR, tmp_path, only=lambda check: check in checks, waited_for=True)]
        took = time.monotonic() - start
    first, later = [f"no answer within {limit:g} seconds"], [f"no answer within {AFTER_TIMEOUT:g} second"]
    assert said.count(later) >= 3 and said == [first] * said.index(later) + [later] * said.count(later)
    assert took < limit * (BUDGET + 1) + AFTER_TIMEOUT * count + 20     # and 20 to start, on a busy machine


@pytest.fixture
def one_processor():
    """One processor for this process and its children."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


@pytest.mark.skipif(not CAN_TELL, reason="only Linux says how long a process waits for a processor")
@pytest.mark.parametrize("walls", [False, pytest.param(True, marks=pytest.mark.skipif(
    bool(jail.missing()), reason="the jail cannot be built here"))])
def test_a_busy_machine_fails_nobody(tmp_path, one_processor, walls):
    """0.6 seconds of work take three among four endless loops, and are within a limit of 1 all the same."""
    work = ("\n\nimport time\n\n_flops = linear_flops\n\n\ndef linear_flops(*sizes):\n"
            "    end = time.thread_time() + SECONDS\n    while time.thread_time() < end: pass\n"
            "    return _flops(*sizes)\n")
    with Grader(Setting(timeout=1, walls=walls)) as grader:
        grader.checks(LINEAR)
        loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
        try:
            for seconds, word in (("0.3", "passed"), ("1e9", "timeout")):
                (tmp_path / "ex03_linear.py").write_text(SOLUTION + work.replace("SECONDS", seconds), "utf-8")
                said, = grader.grade(LINEAR, tmp_path, only=lambda check: check.function == "test_flops")
                assert said.word == word and said.seconds > 1
        finally:
            for loop in loops:
                loop.kill()
                loop.wait()


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
    launcher = Launcher(WORKER, fork=True)
    worker = launcher.start(WORKER)
    with open(f"/proc/{worker.pid}/stat") as stat:
        zygote = int(stat.read().rpartition(")")[2].split()[1])     # its parent
    assert len(os.listdir(f"/proc/{zygote}/task")) == 1
    worker.end()
    launcher.close()
    assert not _alive(zygote)


def test_front_ends_import_no_torch():
    names = "judge.engine", "front.report", "front.screen", "front.watch", "classroom.run.grade", "classroom.run.jobs"
    script = f"import sys, {', '.join(f'grader.{name}' for name in names)}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


def test_inputs_are_the_same_in_every_process(tmp_path):
    """A wrong answer is wrong in the same words, run after run."""
    (tmp_path / "ex03_linear.py").write_text(SOLUTION.replace("y = x @", "y = -x @"), "utf-8")

    def said(seed: int = 0, **options):
        with Grader(Setting(seed=seed, timeout=60), **options) as grader:
            return [v.facts for v in grader.grade(LINEAR, tmp_path, waited_for=True)]
    assert said() == said() == said(fork=False)
    assert said() != said(seed=1)


@two_processors
def test_two_workers_say_what_one_says(tmp_path):
    """Where a reader waits, and the reference has answered, a second worker is asked checks from the end on."""
    numbers = tmp_path / "numbers"
    broken = SOLUTION.replace("y = x @", "y = -x @") + (
        "\n\nimport os\nfrom pathlib import Path\n\nprint('imported')\n"
        "with Path(__file__).with_name('numbers').open('a') as file:\n    file.write(f'{os.getpid()}\\n')\n\n\n"
        "def linear_flops(a, b, c):\n    os._exit(3)\n")
    (tmp_path / "ex03_linear.py").write_text(broken, "utf-8")
    said = []
    with Grader() as grader:
        for workers in (1, 2):
            numbers.write_text("", "utf-8")
            found = list(grader.grade(LINEAR, tmp_path, waited_for=True))
            said.append([(v.check, v.word, v.facts, v.mistake, v.lines) for v in found])
            assert [v.output for v in found].count("imported\n") == 2 and found[0].output == "imported\n"
            assert len(numbers.read_text("utf-8").split()) == workers + 1       # and one after the exit
    assert said[0] == said[1] and {word for _, word, *_ in said[0]} >= {"wrong", "crashed", "passed"}


@two_processors
def test_two_workers_keep_to_processors_of_their_own(launcher):
    """And none to anything where there is but one worker, or nobody knows which process it is."""
    workers = [launcher.start(WORKER) for _ in range(3)]
    for half, worker in enumerate(workers[:2]):
        worker.keep_to(half)
    first, second, third = (os.sched_getaffinity(worker.pid) for worker in workers)
    assert first and second and not first & second and first | second == third == os.sched_getaffinity(0)
    workers[0].end()
    workers[0].keep_to(1)
    for worker in workers[1:]:
        worker.end()


@two_processors
def test_neither_of_two_workers_goes_on_when_nobody_waits(tmp_path):
    (tmp_path / "ex03_linear.py").write_text(SOLUTION, "utf-8")
    with Grader() as grader:
        list(grader.grade(LINEAR, tmp_path, waited_for=True))
        (tmp_path / "ex03_linear.py").write_text(SOLUTION + "\n\nimport time\ntime.sleep(60)\n", "utf-8")
        start = time.monotonic()
        with pytest.raises(Stopped):
            list(grader.grade(LINEAR, tmp_path, waited_for=True, stop=lambda: time.monotonic() > start + 0.5))
        assert time.monotonic() < start + 9     # less than a check may take


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
