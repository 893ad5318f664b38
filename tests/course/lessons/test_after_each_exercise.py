"""Whoever has written a single exercise of a lesson can go on: the rest is lent, and the lesson runs to its end."""

import ast
import os
import subprocess
import sys

import nbformat
import pytest
from nbclient import NotebookClient

from grader.course import chapters, stubs
from grader.course.chapters import ROOT
from grader.course.lent import OWN, Lent
from grader.judge.engine import Grader
from tests.course.checks.touched import SEEDS
from tests.course.lessons import students
from tests.course.stubs import fresh

ALL = [(chapter, number) for chapter in chapters.chapters() for number in students.exercises(chapter)]


def _named(pair) -> str:
    return f"{pair[0].stem}-{pair[1]}"


@pytest.mark.parametrize("chapter", chapters.chapters(), ids=lambda chapter: chapter.stem)
def test_what_is_lent_makes_the_file_whole(chapter, tmp_path):
    """After each exercise the file's functions and classes are the reference's, word by word: its cells run."""
    whole, numbers = _definitions(ast.parse(chapter.solution.read_text("utf-8"))), students.exercises(chapter)
    for number in numbers:
        students.begun(tmp_path, chapter, number)
        tree = ast.parse((tmp_path / chapter.exercise.name).read_text("utf-8"))
        missing = stubs.unwritten(chapter, tmp_path, methods=True)
        assert bool(missing) == (len(numbers) > 1), f"after exercise {number} nothing is left to write"
        Lent(missing, chapter.solution).fill_in(tree)
        assert _definitions(tree) == whole, f"after exercise {number}"


def _definitions(tree: ast.Module) -> dict[str, str]:
    return {node.name.removesuffix(OWN): ast.dump(node).replace(OWN, "") for node in tree.body if hasattr(node, "name")}


def test_what_runs_is_said_and_shown_where_it_stands(tmp_path):
    """A half-written file, imported as a notebook does: one line names what is lent, which is the reference's."""
    chapter = chapters.find("softmax")
    students.begun(fresh(tmp_path), chapter, 1)
    script = ("import inspect, torch\n"
              "from exercises import ex05_softmax as mine, ex09_attention as later\n"
              "from exercises.ex05_softmax import log_softmax, softmax\n"
              "for f in (softmax, log_softmax, mine._shifted, mine._shifted_of_the_course):\n"
              "    code = inspect.unwrap(f).__code__\n"
              "    print(code.co_filename, inspect.getsource(code).strip().splitlines()[0])\n"
              "assert later.softmax is softmax\n"
              "print(mine.cross_entropy(torch.zeros(2, 4), torch.tensor([1, 2])))\n")
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True,
                          env={**os.environ, "COURSE_EXERCISES": str(tmp_path)})
    mine, theirs = str(tmp_path / chapter.exercise.name), str(chapter.solution)
    said = done.stdout.splitlines()
    assert [line.split(" ")[0] for line in said[:4]] == [mine, theirs, mine, theirs], done.stderr
    assert "def log_softmax" in said[1] and "def _shifted" in said[3] and "1.3863" in said[4]
    assert done.stderr == ("Not written yet, so the reference stands in: ex05_softmax (logsumexp, log_softmax, "
                           "cross_entropy and 2 more).\n")


@pytest.mark.parametrize("name, number", [("softmax", 2), ("embedding", 2), ("rope", 4)])
def test_what_is_lent_earns_nothing(name, number, tmp_path, monkeypatch):
    """Checks of what is written pass, those of what is lent are to do, and none fails or waits for a part."""
    chapter = chapters.find(name)
    students.begun(fresh(tmp_path), chapter, number)
    monkeypatch.setattr(chapters, "EXERCISES", tmp_path)
    missing = stubs.unwritten(chapter)
    with Grader() as grader:
        found = {verdict.check: verdict.word for verdict in grader.grade(chapter)}
    for check, word in found.items():
        if missing & check.names:
            assert word == "todo", check.name
        else:
            assert word in ("passed", "todo"), check.name
    words = set(found.values())
    assert words == {"passed", "todo"} or name == "embedding" and words == {"todo"}


def test_a_part_of_a_later_chapter_is_lent_too(tmp_path, monkeypatch):
    """The student's GQA, on a chapter 09 of which one exercise is written: nothing waits."""
    earlier, chapter = chapters.find("attention"), chapters.find("grouped_query_attention")
    students.begun(fresh(tmp_path), earlier, 1)
    (tmp_path / chapter.exercise.name).write_bytes(chapter.solution.read_bytes())
    monkeypatch.setattr(chapters, "EXERCISES", tmp_path)
    with Grader() as grader:
        assert {verdict.word for verdict in grader.grade(chapter)} == {"passed"}


@pytest.mark.skipif(len(SEEDS) == 1, reason="the weekly run's: an hour of lessons")
@pytest.mark.parametrize("pair", [pair for pair in ALL if pair[0].number < "17"], ids=_named)
def test_the_lesson_runs_to_its_end(pair, tmp_path, monkeypatch):
    chapter, number = pair
    students.begun(fresh(tmp_path), chapter, number)
    monkeypatch.setenv("COURSE_EXERCISES", str(tmp_path))
    notebook = nbformat.read(chapter.notebook, as_version=4)
    NotebookClient(notebook, timeout=600, kernel_name="python3",
                   resources={"metadata": {"path": str(chapter.notebook.parent)}}).execute()
    said = [line for cell in notebook.cells for output in cell.get("outputs", ())
            for line in output.get("text", "").splitlines() if line.startswith("Not written yet")
            and "check(" not in cell.source]
    assert len(said) == 1
