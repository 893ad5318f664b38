"""Broken and hostile submissions: each gets a clear verdict, and everything else is graded.

Each file in broken/ is appended to chapter 03's solution. Its head says what must come of it:
the verdict, the check that gets it ("all" of them or "none"), and words that the student must
read. Checks of the chapter's other parts must pass.
"""

from pathlib import Path

import pytest

from grader import chapters, report
from grader.engine import Grader

FILES = sorted((Path(__file__).parent / "broken").glob("*.py"))
LINEAR = chapters.find("linear")


@pytest.fixture(scope="module")
def grader():
    with Grader(timeout=2) as grader:
        yield grader


def _head(content: bytes) -> dict:
    lines = content.decode("utf-8", "replace").splitlines()[:3]
    return dict(line.removeprefix("# ").split(": ", 1) if ": " in line
                else (line.removeprefix("# ").rstrip(":"), "") for line in lines)


def _part(check: str) -> str:
    """Which of the chapter's parts a check asks about."""
    return next((part for part in ("backward", "flops") if part in check), "Linear")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_broken_submission(file, grader, tmp_path):
    content = file.read_bytes()
    head = _head(content)
    (tmp_path / "ex03_linear.py").write_bytes(LINEAR.solution.read_bytes() + b"\n\n" + content)
    hit = set()
    for verdict in grader.grade(LINEAR, tmp_path):
        name, text = verdict.check.function, report.failure(verdict, grader.setting, tmp_path)
        assert len(text.splitlines()) <= report.LINES
        if head["checks"] in ("all", name):
            assert verdict.word == head["verdict"], text
            assert head["words"] in text, text
            hit.add(name)
        elif _part(name) != _part(head["checks"]) or head["checks"] == "none":
            assert verdict.word == "passed", text
    assert hit or head["checks"] == "none"


def test_other_chapters_are_graded(tmp_path):
    """A file that dies at import takes no other chapter with it."""
    for chapter in chapters.chapters():
        source = chapter.solution.read_text("utf-8")
        dead = "\n\nimport os\n\nos._exit(0)\n" if chapter == LINEAR else ""
        (tmp_path / f"{chapter.stem}.py").write_text(source + dead, "utf-8")
    with Grader() as grader:
        words = {chapter.stem: {v.word for v in grader.grade(chapter, tmp_path)}
                 for chapter in chapters.chapters()}
    assert words.pop("ex03_linear") == {"crashed"}
    assert set().union(*words.values()) == {"passed"}


def test_missing_file_is_to_do(grader, tmp_path):
    verdicts = list(grader.grade(LINEAR, tmp_path))
    assert {v.word for v in verdicts} == {"todo"}
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

import grader.worker

write = grader.worker.write_frame


def forge(stream, header, body=b""):
    write(stream, {{"id": header["id"], **{header!r}}} if "answer" in header else header)


grader.worker.write_frame = forge
""", "utf-8")
    verdicts = list(grader.grade(LINEAR, tmp_path))
    assert {verdict.word for verdict in verdicts} == {"crashed"}
    assert all(report.failure(verdict, grader.setting) for verdict in verdicts)
