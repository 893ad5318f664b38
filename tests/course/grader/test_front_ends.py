"""The command line, watch, pytest and the notebook's check, each as its user meets it."""

import fcntl
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import time
import xml.etree.ElementTree as xml

import pytest
import torch

from grader.course import chapters
from grader.course.chapters import ROOT
from grader.course.packages import lacking
from grader.front import report
from tests.course.stubs import fresh

LINEAR = chapters.find("linear")
SOLUTION = LINEAR.solution.read_text("utf-8")
THREE_MISTAKES = (SOLUTION
                  .replace("y = x @ self.weight.T", "y = x @ self.weight.reshape(x.shape[-1], -1)")
                  .replace("return 2 * batch", "return batch")
                  .replace('"... d_out -> (...) d_out").sum(0)', '"... d_out -> (...) d_out").mean(0)'))


@pytest.fixture
def student(tmp_path):
    """A folder of fresh stubs, used in place of exercises/."""
    return fresh(tmp_path)


def _run(*arguments, folder=None, **environment) -> subprocess.CompletedProcess:
    environment = {**os.environ, **({"COURSE_EXERCISES": str(folder)} if folder else {}), **environment}
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment,
                          capture_output=True, text=True)


def _check(*arguments, **kwargs):
    return _run("-m", "grader", "check", *arguments, **kwargs)


def test_a_fresh_clone_is_all_to_do(student):
    done = _check(folder=student)
    assert done.returncode == 0, done.stderr
    for chapter in chapters.chapters():
        assert re.search(rf"(?m)^{chapter.number} .* 0 / \d+ +\d+ to do$", done.stdout)
    assert "0 of " in done.stdout
    assert f"Next: read notebooks/{chapters.chapters()[0].notebook.name}" in done.stdout


def test_the_reference_passes_everything():
    done = _check("--submission", "solutions", "--hidden")
    assert done.returncode == 0, done.stdout
    waiting = re.findall(r"(?m) \d+ waiting$", done.stdout)        # where a package that few checks need is missing
    assert done.stdout.count("all passed") + len(waiting) == len(chapters.chapters())
    assert len(waiting) == bool(lacking("triton"))


def test_three_mistakes_are_explained_in_twenty_lines(student):
    (student / "ex03_linear.py").write_text(THREE_MISTAKES, "utf-8")
    done = _check("linear", folder=student)
    assert done.returncode == 1
    failure = done.stdout.split("\n\n")[2]
    assert len(failure.splitlines()) <= report.LINES
    assert "reshape is not a transpose" in " ".join(failure.split())
    assert 'pytest "tests/test_ex03_linear.py::test_' in failure
    assert "--in-process --pdb" in failure


def test_json_says_everything_and_is_whole(student, tmp_path):
    (student / "ex03_linear.py").write_text(THREE_MISTAKES, "utf-8")
    file = tmp_path / "verdicts.json"
    _check("3", "--json", str(file), "--seed", "7", folder=student)
    said = json.loads(file.read_text("utf-8"))
    by_name = {verdict["check"]: verdict for verdict in said["verdicts"]}
    assert said["seed"] == 7 and said["points"] < said["of_points"]
    assert by_name["test_flops"]["verdict"] == "wrong"
    assert by_name["test_parameters"]["verdict"] == "passed"
    assert [path.name for path in tmp_path.glob("verdicts*")] == ["verdicts.json"]


@pytest.mark.parametrize("arguments, words", [
    (["check", "99"], "there is no chapter '99'"),
    (["check", "--submission", "nowhere"], "nowhere is no folder"),
    (["check", "--device", "abacus"], "invalid choice"),
    (["check", "--timeout", "0"], "timeout must be above 0"),
    (["check", "--timeout", "nan"], "timeout must be above 0"),
    (["check", "3", "--json", "/nowhere/at/all.json"], "/nowhere/at"),
    (["reset"], "CHAPTER"),
    (["dance"], "invalid choice"),
    ([], "COMMAND"),
])
def test_bad_usage_is_explained(arguments, words):
    done = _run("-m", "grader", *arguments)
    assert done.returncode == 2
    assert words in done.stderr and "Traceback" not in done.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_said_in_a_line():
    done = _check("3", "--submission", "solutions", "--device", "cuda")
    assert done.returncode == 2
    assert "no CUDA device" in done.stderr and "Traceback" not in done.stderr


def test_words_come_without_colour(student):
    """Pipes and NO_COLOR get no escape codes, and a submission can smuggle none in."""
    (student / "ex03_linear.py").write_text(
        SOLUTION.replace("return 2 * batch", 'print("\\x1b[31mred\\x1b[2J")\n    return batch'), "utf-8")
    for environment in ({}, {"NO_COLOR": "1", "FORCE_COLOR": "", "TERM": "xterm"}):
        done = _check("3", folder=student, **environment)
        assert "\x1b" not in done.stdout and "red" in done.stdout


def test_reset_keeps_the_old_file(student):
    (student / "ex03_linear.py").write_text("mine\n")
    done = _run("-m", "grader", "reset", "3", folder=student)
    assert done.returncode == 0 and "is kept as" in done.stdout
    assert [p.read_text() for p in student.glob("ex03_linear.*.py.bak")] == ["mine\n"]
    assert (student / "ex03_linear.py").read_text("utf-8") == chapters.make_stub(SOLUTION)


def test_stubs_leave_work_alone(student):
    (student / "ex03_linear.py").write_text(THREE_MISTAKES, "utf-8")
    (student / "ex02_embedding.py").unlink()
    done = _run("-m", "grader", "stubs", folder=student)
    assert "1 stubs written, 1 kept" in done.stdout
    assert (student / "ex03_linear.py").read_text("utf-8") == THREE_MISTAKES


# -- watch ---------------------------------------------------------------------------------------

def _own_terminal() -> None:
    """So that Ctrl-C arrives, also where these tests were started in the background, which ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Watching:
    """`python -m grader watch` in a terminal of its own."""

    def __init__(self, folder, *options, **environment):
        ours, theirs = pty.openpty()
        self.terminal, self.text = ours, ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "grader", "watch", "3", *options], cwd=ROOT, stdin=theirs, stdout=theirs,
            stderr=theirs, start_new_session=True,
            preexec_fn=_own_terminal,
            env={**os.environ, "COURSE_EXERCISES": str(folder), "TERM": "dumb",
                                "COLUMNS": "100", **environment})
        os.close(theirs)
        os.set_blocking(ours, False)

    def until(self, words: str, seconds: float = 60) -> str:
        """What is printed until these words are."""
        end = time.monotonic() + seconds
        while words not in self.text:
            assert time.monotonic() < end and self.process.poll() is None, self.text
            try:
                self.text += os.read(self.terminal, 1 << 16).decode("utf-8", "replace")
            except BlockingIOError:
                time.sleep(0.02)
        before, _, self.text = self.text.partition(words)
        return before

    def type(self, keys: bytes) -> None:
        os.write(self.terminal, keys)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.terminal)


@pytest.mark.parametrize("leave", [b"q\n", b"\x03"], ids=["q", "ctrl-c"])
def test_watch_grades_each_save_and_can_be_left(student, leave):
    watching = Watching(student)
    try:
        watching.until("Waiting for a save")
        (student / "ex03_linear.py").write_text(THREE_MISTAKES, "utf-8")
        assert "reshape is not a transpose" in " ".join(watching.until("Waiting for a save").split())
        (student / "ex03_linear.py").write_text(SOLUTION, "utf-8")
        assert "all passed" in watching.until("Waiting for a save")
        watching.type(b"\n")
        assert "all passed" in watching.until("Waiting for a save")
        watching.type(leave)
        assert watching.process.wait(60) == 0
    finally:
        watching.close()


def test_watch_opens_with_the_state_and_a_save_ends_a_hanging_check(student):
    hanging = SOLUTION.replace("y = x @ self.weight.T", "while True: pass")
    assert hanging != SOLUTION
    (student / "ex03_linear.py").write_text(hanging, "utf-8")
    watching = Watching(student, "--timeout", "300")
    try:
        watching.until("This is how it stands")
        watching.until("asking ")
        (student / "ex03_linear.py").write_text(THREE_MISTAKES, "utf-8")
        assert "reshape is not a transpose" in " ".join(watching.until("Waiting for a save").split())
    finally:
        watching.close()


def test_watch_needs_no_file_events(student):
    """A folder replaced behind the watcher's back sends no events, and is seen all the same."""
    watching = Watching(student, WATCHFILES_FORCE_POLLING="true", WATCHFILES_POLL_DELAY_MS="3600000")
    try:
        watching.until("Waiting for a save")
        (student / "ex03_linear.py").write_text(SOLUTION, "utf-8")
        assert "all passed" in watching.until("Waiting for a save")
    finally:
        watching.close()


# -- pytest --------------------------------------------------------------------------------------

def _pytest(*arguments, **kwargs):
    return _run("-m", "pytest", "-p", "no:cacheprovider", *arguments, **kwargs)


def test_pytest_skips_what_is_to_do(student, tmp_path):
    report_file = tmp_path / "report.xml"
    done = _pytest("tests", f"--junitxml={report_file}", folder=student)
    assert done.returncode == 0, done.stdout
    cases = list(xml.parse(report_file).iter("testcase"))
    assert cases and all(case.find("skipped") is not None for case in cases)
    names = {case.get("classname") for case in cases}
    assert not any("hidden" in name or "course" in name for name in names)


def test_pytest_fails_with_the_same_words(student):
    (student / "ex03_linear.py").write_text(THREE_MISTAKES, "utf-8")
    done = _pytest("tests/test_ex03_linear.py", "-k", "flops", folder=student)
    assert done.returncode == 1
    assert "rule    linear_flops counts" in done.stdout and "Traceback" not in done.stdout


def test_pytest_grades_a_submission_with_hidden_checks(student):
    (student / "ex03_linear.py").write_text(SOLUTION, "utf-8")
    done = _pytest("tests", "--hidden", "--submission", str(student), "-k", "ex03_linear", "-rA")
    assert done.returncode == 0
    assert "PASSED tests/hidden/test_ex03_linear.py::" in done.stdout
    assert "PASSED tests/test_ex03_linear.py::test_forward[bfloat16]" in done.stdout


def test_a_conftest_among_what_was_handed_in_is_not_run(student):
    """pytest loads a conftest.py that lies in a folder it is given; a submission is no such folder."""
    (student / "ex03_linear.py").write_text(SOLUTION.replace("return 2 * batch", "return batch"), "utf-8")
    (student / "conftest.py").write_text(
        "import pathlib\npathlib.Path(__file__).with_name('ran').touch()\n"
        "def pytest_pyfunc_call(pyfuncitem):\n    return True\n")
    for arguments in (["--submission", str(student)], [f"--submission={student}"]):
        done = _pytest("tests/test_ex03_linear.py", "-k", "flops", *arguments)
        assert done.returncode == 1 and "1 failed" in done.stdout
    assert not (student / "ran").exists()


def test_what_is_handed_in_is_graded_on_inputs_that_nobody_has_seen(student, tmp_path):
    """So no table of the public seed's answers helps; the seed is said, to be used again."""
    (student / "ex03_linear.py").write_text(SOLUTION, "utf-8")
    files = [tmp_path / "one.json", tmp_path / "two.json"]
    shown = [_check("3", "--submission", str(student), "--json", str(file)).stdout for file in files]
    seeds = [json.loads(file.read_text("utf-8"))["seed"] for file in files]
    assert seeds[0] != seeds[1] and 0 not in seeds
    assert all(f"--seed {seed}" in text for seed, text in zip(seeds, shown))
    again = _check("3", "--submission", str(student), "--seed", str(seeds[0]))
    assert f"--seed {seeds[0]}" in again.stdout


def test_pytest_in_process_stops_in_the_students_line(student):
    (student / "ex03_linear.py").write_text(SOLUTION.replace(
        "return 2 * batch * in_features * out_features", "answer = undefined_name\n    return answer"), "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/test_ex03_linear.py::test_flops",
         "--in-process", "--pdb"], cwd=ROOT, input="p batch\nq\n", capture_output=True, text=True,
        env={**os.environ, "COURSE_EXERCISES": str(student)})
    assert "NameError: name 'undefined_name' is not defined" in done.stdout
    assert "ex03_linear.py" in done.stdout and "-> answer = undefined_name" in done.stdout


def test_pytest_in_process_gives_the_same_verdicts(student):
    (student / "ex03_linear.py").write_text(THREE_MISTAKES, "utf-8")
    arguments = ["tests/test_ex03_linear.py", "-rA", "-q", "--tb=no"]
    here, there = (_pytest(*arguments, *more, folder=student) for more in (["--in-process"], []))

    def verdicts(done):
        return sorted(re.findall(r"(?m)^(PASSED|FAILED) (\S+)", done.stdout))
    assert verdicts(here) == verdicts(there) and len(verdicts(here)) > 10


# -- notebook ------------------------------------------------------------------------------------

def test_check_in_a_notebook(student):
    script = "from grader import check; check('linear', 'flops'); check('ex03_linear', 'nonsense')"
    done = _run("-c", script, folder=student)
    assert done.stdout.splitlines()[0] == "ex03_linear: 0 of 1 checks passed (1 to do)"
    assert "ValueError: no check of ex03_linear has 'nonsense' in its name" in done.stderr
    (student / "ex03_linear.py").write_text(THREE_MISTAKES, "utf-8")
    once, twice = (_run("-c", "from grader import check; check('linear')", folder=student).stdout
                   for _ in range(2))
    assert once == twice and "hint" in once or "likely" in once
