"""The two walls: what each layer forbids is refused, and the honest get the verdicts that they get without."""

from pathlib import Path

import pytest

from grader.course import chapters
from grader.course.chapters import CourseError
from grader.judge.engine import Grader
from grader.sandbox import jail
from grader.sandbox.launcher import Slot
from grader.sandbox.setting import Setting

pytestmark = pytest.mark.skipif(bool(jail.missing()), reason=jail.missing() or "the jail is here")
SHAPES, LINEAR, TRAINING = map(chapters.find, ("00", "03", "14"))


@pytest.fixture(scope="module")
def grader():
    with Grader(Setting(walls=True)) as grader:
        yield grader


def test_every_layer_refuses_what_it_forbids(grader):
    assert grader.layers and all(grader.layers.values()), grader.layers


def test_what_is_attempted_succeeds_without_walls(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("")
    with Grader() as open_:
        worker = Slot(open_._own).open()
        held = worker.ask("probe", jail.PROBING, name="", secrets=[str(secret)])[0]["layers"]
        worker.end()
    assert {layer for layer, refused in held.items() if refused} <= {"no network", "little disk", "little memory"}


@pytest.mark.parametrize("chapter", [SHAPES, TRAINING], ids=lambda chapter: chapter.stem)
def test_the_reference_passes_behind_walls(grader, chapter):
    failed = [(verdict.check.name, verdict.word, verdict.facts)
              for verdict in grader.grade(chapter, chapters.SOLUTIONS, hidden=True) if verdict.word != "passed"]
    assert not failed


def test_a_failure_names_the_file_that_was_handed_in(grader, tmp_path):
    source = LINEAR.solution.read_text("utf-8").replace("        # BEGIN SOLUTION\n", "        oops\n")
    source = source.replace("        # END SOLUTION\n", "")
    (tmp_path / "ex03_linear.py").write_text(source, "utf-8")
    failed = [verdict for verdict in grader.grade(LINEAR, tmp_path, waited_for=True) if verdict.word == "error"]
    assert failed and failed[0].lines[-1].file == tmp_path / "ex03_linear.py"
    assert "oops" in failed[0].facts[0]


def test_a_mistake_is_named_behind_walls(grader, tmp_path):
    from grader.judge.edits import edits
    edit = edits(LINEAR, "mistake")[0]
    edit.write(LINEAR, tmp_path)
    assert edit.words in {verdict.mistake for verdict in grader.grade(LINEAR, tmp_path)}


def test_a_neighbour_and_another_try_leave_nothing(grader, tmp_path):
    """What a submission writes is gone with its worker, its stage with the submission; its chapter's stage stays."""
    source = ("import os, tempfile\nfrom pathlib import Path\n"
              "print(os.listdir(tempfile.gettempdir()))\nPath(tempfile.gettempdir(), 'left').write_text('x')\n"
              "print('left' in os.listdir(tempfile.gettempdir()), len(os.listdir('..')))\n")
    (tmp_path / "ex03_linear.py").write_text(source + LINEAR.solution.read_text("utf-8"), "utf-8")
    for _ in range(2):
        said = [verdict.output for verdict in grader.grade(LINEAR, tmp_path) if verdict.output]
        assert said == ["[]\nTrue 2\n"]
    stages = Path(grader._others.stages.path).iterdir()
    left = [folder for folder in stages if folder.name not in ("probe", "neighbour")]
    assert all((folder / "tests").is_dir() and not list(folder.glob("*.py")) for folder in left)


def test_without_bubblewrap_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CourseError, match="apt-get install bubblewrap"):
        Grader(Setting(walls=True))


def test_walls_are_for_the_cpu():
    with pytest.raises(CourseError, match="device='cpu'"):
        Grader(Setting("cuda", walls=True))
