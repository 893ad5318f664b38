"""Broken submissions: each gets a clear verdict, and everything else is graded.

What must come of each file in broken/ stands in its head (see handed_in.py). Checks of the
chapter's other parts must pass. None takes more time than every check waiting twice for its limit.
"""

import json
import os
import signal
import time

import pytest

from grader.course import chapters
from grader.front import report, results
from grader.judge.engine import Grader
from grader.sandbox.launcher import CAN_FORK
from grader.sandbox.setting import Setting
from tests.course.classroom.handed_in import every

LINEAR = chapters.find("linear")
LIMIT = 2.0     # seconds for a check


@pytest.fixture(scope="module")
def grader():
    with Grader(Setting(timeout=LIMIT)) as grader:
        yield grader


@pytest.mark.parametrize("handed_in", every("broken"), ids=str)
def test_broken_submission(handed_in, grader, tmp_path):
    if handed_in.file.stem == "kills_its_parent" and not CAN_FORK:
        pytest.skip("without a zygote between them, a worker's parent is this process")
    handed_in.write(tmp_path)
    start = time.monotonic()
    verdicts = list(grader.grade(handed_in.chapter, tmp_path))
    assert time.monotonic() - start < 2 * LIMIT * len(verdicts)
    handed_in.holds(verdicts, grader.setting, tmp_path)
    results.write_json(tmp_path / "verdicts.json", {handed_in.chapter: verdicts}, grader.setting, tmp_path)
    said = (tmp_path / "verdicts.json").read_text("utf-8")
    assert json.loads(said) and len(said) < 100_000 + 70_000 * len(verdicts)


@pytest.mark.parametrize("target, words", [("solutions", "is a link"), ("huge", "is a link"), ("folder", "no file")])
def test_what_is_no_plain_file_is_not_opened(target, words, grader, tmp_path):
    file = tmp_path / "ex03_linear.py"
    if target == "solutions":
        file.symlink_to(LINEAR.solution)
    elif target == "huge":
        (tmp_path / "huge").write_bytes(b"")
        os.truncate(tmp_path / "huge", 1 << 40)
        file.symlink_to(tmp_path / "huge")
    else:
        file.mkdir()
    verdicts = list(grader.grade(LINEAR, tmp_path))
    assert {verdict.word for verdict in verdicts} == {"error"} and words in verdicts[0].facts[0]


def test_a_file_of_two_megabytes_is_not_opened(grader, tmp_path):
    (tmp_path / "ex03_linear.py").write_bytes(LINEAR.solution.read_bytes() + b"#" * (2 << 20))
    assert "larger than 1 MB" in next(grader.grade(LINEAR, tmp_path)).facts[0]


def test_a_key_that_dies_is_replaced(tmp_path):
    """Whatever an answer does to the side that compares, it costs that answer and nothing else."""
    (tmp_path / "ex03_linear.py").write_bytes(LINEAR.solution.read_bytes())
    with Grader() as grader:
        check, *others = grader.checks(LINEAR)
        grader.key.prepare([check])
        os.kill(grader.key._referee.pid, signal.SIGKILL)
        candidate = grader.submission(LINEAR, tmp_path)
        first = grader.verdict(candidate, check)
        assert first.word == "crashed" and "trusted side" in first.facts[0]
        assert {grader.verdict(candidate, other).word for other in others} == {"passed"}
        candidate.close()


def test_other_chapters_are_graded(tmp_path):
    """A file that dies at import takes no other chapter with it."""
    for chapter in chapters.chapters():
        source = chapter.solution.read_text("utf-8")
        dead = "\n\nimport os\n\nos._exit(0)\n" if chapter == LINEAR else ""
        (tmp_path / f"{chapter.stem}.py").write_text(source + dead, "utf-8")
    with Grader() as grader:
        words = {chapter.stem: {v.word for v in grader.grade(chapter, tmp_path, only=lambda check: not check.lacking)}
                 for chapter in chapters.chapters()}
    assert words.pop("ex03_linear") == {"crashed"}
    assert set().union(*words.values()) == {"passed"}


def test_a_file_that_is_not_there_is_missing(grader, tmp_path):
    verdicts = list(grader.grade(LINEAR, tmp_path))
    assert {v.word for v in verdicts} == {"missing"}
    assert "ex03_linear.py" in verdicts[0].facts[0]


@pytest.mark.parametrize("name", ["random", "torch", "einops", "typing", "grader"])
def test_file_named_like_a_library(name, grader, tmp_path):
    """A helper beside the submission hides no module that others import."""
    (tmp_path / "ex03_linear.py").write_bytes(LINEAR.solution.read_bytes())
    (tmp_path / f"{name}.py").write_text("raise ImportError('the wrong module')\n")
    assert {v.word for v in grader.grade(LINEAR, tmp_path)} == {"passed"}


def test_a_helper_beside_the_submission_is_found(grader, tmp_path):
    source = LINEAR.solution.read_text("utf-8").replace(
        "return 2 * batch * in_features * out_features", "return twice(batch * in_features * out_features)")
    (tmp_path / "ex03_linear.py").write_text(source + "\n\nfrom .helper import twice\n", "utf-8")
    (tmp_path / "helper.py").write_text("def twice(n):\n    return 2 * n\n")
    assert {v.word for v in grader.grade(LINEAR, tmp_path)} == {"passed"}


def test_grading_without_fork(tmp_path):
    """Where forking is not safe, fresh processes give the same verdicts."""
    with Grader(fork=False) as fresh:
        (tmp_path / "ex03_linear.py").write_text(LINEAR.solution.read_text("utf-8").replace(
            "2 * batch * in", "batch * in"), "utf-8")
        words = {v.check.name: v.word for v in fresh.grade(LINEAR, tmp_path)}
    assert words.pop("test_flops") == "wrong"
    assert set(words.values()) == {"passed"}


FORGED = {
    "frames that are none": {"raised": "X", "message": "", "frames": [1], "named": []},
    "frames without a line": {"raised": "X", "message": "", "frames": [{"file": "f", "line": "1"}], "named": []},
    "names that are none": {"raised": "X", "message": "", "frames": [], "named": [{}]},
    "uses that are none": {"forbidden": [1, 2]},
    "a chapter that is none": {"todo": ["ex03_linear"]},
    "inputs that are none": {"answer": {"kind": "none"}, "changed": [[]]},
    "an answer that is none": {"answer": 5, "changed": []},
    "a tensor out of nothing": {"answer": {"kind": "tensor", "dtype": "float32", "shape": [9], "at": 0,
                                           "device": "cpu", "requires_grad": False,
                                           "aliases_input": False}, "changed": []},
    "nothing": {},
    "a verdict": {"verdict": "passed"},
}


@pytest.mark.parametrize("header", FORGED.values(), ids=FORGED)
def test_forged_replies_are_not_believed(header, grader, tmp_path):
    """A submission that takes over its own channel cannot hurt the side that reads."""
    (tmp_path / "ex03_linear.py").write_text(LINEAR.solution.read_text("utf-8") + f"""

import grader.sandbox.worker

write = grader.sandbox.worker.write_frame


def forge(stream, header, body=b""):
    write(stream, {{"id": header["id"], **{header!r}}} if "answer" in header else header)


grader.sandbox.worker.write_frame = forge
""", "utf-8")
    verdicts = list(grader.grade(LINEAR, tmp_path))
    assert {verdict.word for verdict in verdicts} == {"crashed"}
    assert all(report.failure(verdict, grader.setting) for verdict in verdicts)
