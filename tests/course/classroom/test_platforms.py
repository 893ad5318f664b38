"""The files for places where students hand in, run as far as a machine without those places can."""

import json
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from grader.__main__ import main
from grader.classroom.intake import collect
from grader.course import chapters
from grader.course.chapters import ROOT
from tests.course.stubs import fresh

SHAPES = chapters.find("shapes")
RIGHT = SHAPES.solution.read_text("utf-8")
SLIP = RIGHT.replace("raise ValueError", "raise TypeError")
BASH = shutil.which("bash")
needs_bash = pytest.mark.skipif(not BASH or os.name == "nt", reason="bash is not installed")


def _program(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]), "utf-8")
    path.chmod(0o755)
    return path


def _clean(**more) -> dict[str, str]:
    return {**{name: value for name, value in os.environ.items() if name != "PYTHONPATH"}, **more}


# -- Gradescope ------------------------------------------------------------------------------------

# What gradescope-autograders.readthedocs.io/en/latest/specs documents; of the rest Gradescope takes no notice.
VISIBLE = {"hidden", "after_due_date", "after_published", "visible"}
FORMATS = {"text", "html", "simple_format", "md", "ansi"}
OF_ALL = {"score": float, "execution_time": float, "output": str, "output_format": FORMATS,
          "test_output_format": FORMATS, "test_name_format": FORMATS, "visibility": VISIBLE,
          "stdout_visibility": VISIBLE, "extra_data": dict, "tests": list, "leaderboard": list}
OF_ONE = {"score": float, "max_score": float, "status": {"passed", "failed"}, "name": str, "name_format": FORMATS,
          "number": str, "output": str, "output_format": FORMATS, "tags": list, "visibility": VISIBLE,
          "extra_data": dict}


def _documented(said: dict, fields: dict) -> None:
    for name, value in said.items():
        kind = fields[name]
        if isinstance(kind, set):
            assert value in kind, name
        else:
            assert isinstance(value, (int, float) if kind is float else kind), name


@pytest.fixture
def autograder(tmp_path):
    """A made-up /autograder, as Gradescope builds it from the zip."""
    top = tmp_path / "autograder"
    assert main(["platform", "gradescope", str(tmp_path / "a.zip"), "--chapters", "0", "--no-jail"]) == 0
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        archive.extractall(top / "source")
    shutil.copy(top / "source" / "run_autograder", top / "run_autograder")
    (top / "submission").mkdir()
    (top / "results").mkdir()
    _program(top / "venv" / "bin" / "python", f'exec "{sys.executable}" "$@"')
    return top


def _run(top: Path) -> subprocess.CompletedProcess:
    return subprocess.run([BASH, top / "run_autograder"], cwd=top, env=_clean(AUTOGRADER=str(top), TMPDIR=str(top)),
                          capture_output=True, text=True)


@needs_bash
def test_gradescope_gets_results_in_its_own_words(autograder):
    (autograder / "submission" / "hw").mkdir()
    (autograder / "submission" / "hw" / SHAPES.exercise.name).write_text(SLIP, "utf-8")
    (autograder / "submission" / "more.py").symlink_to("/etc/passwd")
    done = _run(autograder)
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads((autograder / "results" / "results.json").read_text("utf-8"))
    _documented(said, OF_ALL)
    for test in said["tests"]:
        _documented(test, OF_ONE)
        assert 0 <= test["score"] <= test["max_score"] and test["visibility"] == "visible"
    assert sum(test["score"] for test in said["tests"]) == pytest.approx(said["score"], abs=0.01)
    assert {test["status"] for test in said["tests"]} == {"passed", "failed"} and "without a jail" in said["output"]
    assert sorted(path.name for path in autograder.iterdir()) == ["results", "run_autograder", "source", "submission",
                                                                  "venv"]


@needs_bash
def test_where_the_grader_fails_nobody_gets_no_points(autograder):
    (autograder / "submission" / SHAPES.exercise.name).write_text(RIGHT, "utf-8")
    (autograder / "source" / "grading.toml").write_text("[")
    done = _run(autograder)
    assert done.returncode == 2 and "grading.toml" in done.stderr
    assert not any((autograder / "results").iterdir())


def test_the_zip_holds_hidden_checks_only_for_a_jail(tmp_path):
    held = {}
    for name, flags in (("open", ["--no-jail", "--chapters", "0", "3"]), ("shut", []), ("again", [])):
        assert main(["platform", "gradescope", str(tmp_path / name), *flags]) == 0
        with zipfile.ZipFile(tmp_path / name) as archive:
            held[name] = {info.filename: info for info in archive.infolist()}
            line = next(line for line in archive.read("run_autograder").decode().splitlines() if "options=" in line)
            assert line.startswith("options=(--chapters 00 03 --no-jail)" if flags else "options=()")
    hidden = "tests/hidden/test_ex00_shapes.py"
    assert hidden in held["shut"] and hidden not in held["open"]
    assert not any(name.startswith("tests/course/") or "__pycache__" in name for name in held["shut"])
    for name in ("setup.sh", "run_autograder"):
        assert held["shut"][name].external_attr >> 16 & stat.S_IXUSR
    assert (tmp_path / "shut").read_bytes() == (tmp_path / "again").read_bytes()


@needs_bash
def test_setup_installs_what_the_course_pins(autograder, tmp_path):
    """Of three Pythons the first that this Ubuntu has."""
    said = tmp_path / "said"
    stubs = tmp_path / "bin"
    _program(stubs / "apt-get", f'echo "apt-get $*" >> "{said}"', 'case "$*" in *3.13*) exit 100;; esac')
    _program(stubs / "python3.12", f'echo "python3.12 $*" >> "{said}"')
    _program(autograder / "venv" / "bin" / "python", f'echo "pip $*" >> "{said}"')
    subprocess.run([BASH, autograder / "source" / "setup.sh"], check=True,
                   env=_clean(AUTOGRADER=str(autograder), PATH=f"{stubs}:{os.environ['PATH']}"))
    lines = said.read_text().splitlines()
    assert "apt-get install -y bubblewrap libseccomp2" in lines
    assert "apt-get install -y python3.12 python3.12-venv" in lines
    assert f"python3.12 -m venv {autograder}/venv" in lines and not [line for line in lines if "3.11" in line]
    torch = next(line for line in (ROOT / "requirements.txt").read_text().splitlines() if line.startswith("torch=="))
    assert any(line.startswith("pip") and line.endswith(f"/cpu {torch}") for line in lines)
    assert lines[-1].endswith(f"-r {autograder}/source/requirements-class.txt")


# -- GitHub Classroom ------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A student's repository in which one exercise is begun, with the workflow."""
    top = tmp_path_factory.mktemp("repository")
    for name in ("grader", "given", "solutions", "tests/mistakes"):
        shutil.copytree(ROOT / name, top / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (ROOT / "requirements.txt", ROOT / "pyproject.toml", *(ROOT / "tests").glob("*.py")):
        shutil.copy(path, top / path.relative_to(ROOT))
    fresh(top / "exercises")
    shutil.copy(ROOT / "exercises" / "__init__.py", top / "exercises")
    (top / "exercises" / SHAPES.exercise.name).write_text(SLIP, "utf-8")
    assert main(["platform", "github", str(top)]) == 0
    return top


@pytest.fixture(scope="module")
def workflow(repository):
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((repository / ".github" / "workflows" / "classroom.yml").read_text("utf-8"))


def _step(workflow, name: str) -> dict:
    return next(step for step in workflow["jobs"]["run-autograding-tests"]["steps"] if step.get("name") == name)


@needs_bash
def test_the_workflow_checks_and_counts(repository, workflow, tmp_path):
    _program(tmp_path / "bin" / "python", f'exec "{sys.executable}" "$@"')
    env = _clean(CHAPTERS="00", POINTS="100", GITHUB_STEP_SUMMARY=str(tmp_path / "summary.md"),
                 PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert set(workflow["jobs"]["run-autograding-tests"]["env"]) == {"CHAPTERS", "POINTS"}
    check = subprocess.run([BASH, "-e", "-c", _step(workflow, "Check")["run"]], cwd=repository, env=env,
                           capture_output=True, text=True)
    assert check.returncode == 1 and "shape must have" not in check.stderr, check.stdout + check.stderr
    points = _step(workflow, "Points")
    assert points["if"] == "always()" and points["shell"] == "python"
    for worth in ("100", ""):
        (tmp_path / "summary.md").unlink(missing_ok=True)
        done = subprocess.run([sys.executable, "-c", points["run"]], cwd=repository, env={**env, "POINTS": worth},
                              capture_output=True, text=True, check=True)
        said = json.loads((repository / "verdicts.json").read_text("utf-8"))
        most = float(worth or said["of_points"])
        report = json.loads(done.stdout.splitlines()[1].partition("::notice title=Autograding report::")[2])
        assert report["maxPoints"] == most and 0 < report["totalPoints"] < most
        assert report["totalPoints"] == pytest.approx(most * said["points"] / said["of_points"], abs=0.01)
        points_line = f"Points {report['totalPoints']:g}/{most:g}"
        assert done.stdout.splitlines()[0] == f"::notice title=Autograding complete::{points_line}"
        assert f"| {SHAPES.stem} | {said['points']:g} |" in (tmp_path / "summary.md").read_text()


@needs_bash
def test_the_workflow_installs_what_the_edition_pins(repository, workflow, tmp_path):
    _program(tmp_path / "bin" / "python", f'echo "$*" >> "{tmp_path / "said"}"')
    subprocess.run([BASH, "-e", "-c", _step(workflow, "Install")["run"]], cwd=repository, check=True,
                   env=_clean(PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}"))
    first, second = (tmp_path / "said").read_text().splitlines()
    assert "/cpu torch==" in first and second.endswith("-r requirements.txt")
    assert workflow[True] == ["push", "workflow_dispatch"]      # YAML takes `on` for true
    assert [step["uses"].partition("@")[0] for step in workflow["jobs"]["run-autograding-tests"]["steps"]
            if "uses" in step] == ["actions/checkout", "actions/setup-python"]


# -- a plain folder --------------------------------------------------------------------------------

@pytest.fixture
def edition(tmp_path):
    (tmp_path / "edition" / "exercises").mkdir(parents=True)
    (tmp_path / "edition" / "exercises" / SHAPES.exercise.name).write_text(RIGHT, "utf-8")
    (tmp_path / "inbox").mkdir()
    assert main(["platform", "folder", str(tmp_path / "edition")]) == 0
    return tmp_path / "edition"


def _hand_in(edition, *arguments, **env) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, edition / "hand_in.py", *map(str, arguments)], env=_clean(**env),
                          capture_output=True, text=True)


def test_what_is_handed_in_again_counts(edition, tmp_path):
    inbox = tmp_path / "inbox"
    assert _hand_in(edition, inbox, "grace").returncode == 0
    assert _hand_in(edition, inbox, LOGNAME="ada", USERNAME="ada").returncode == 0
    (edition / "exercises" / SHAPES.exercise.name).write_text(SLIP, "utf-8")
    done = _hand_in(edition, inbox, "grace")
    assert "1 files handed in" in done.stdout
    students, refused = collect.collect(inbox, tmp_path / "collected")
    assert not refused and [student.name for student in students] == ["ada", "grace"]
    assert [(student.folder / SHAPES.exercise.name).read_text("utf-8") for student in students] == [RIGHT, SLIP]
    assert sorted(path.name for path in inbox.iterdir()) == ["ada.zip", "grace.zip"]


@pytest.mark.parametrize("arguments, words", [
    ([], "Hand in what is in exercises/"), (["nowhere"], "nowhere is no folder"),
    (["INBOX", "../eve"], "cannot be a name"),
    (["INBOX", ".eve"], "cannot be a name"), (["INBOX", "eve."], "cannot be a name")])
def test_handing_in_refuses_what_cannot_be_read(arguments, words, edition, tmp_path):
    done = _hand_in(edition, *(argument.replace("INBOX", str(tmp_path / "inbox")) for argument in arguments))
    assert done.returncode == 1 and words in done.stderr
    assert not any((tmp_path / "inbox").iterdir())


# -- the command -----------------------------------------------------------------------------------

def test_nothing_is_overwritten(edition, tmp_path, capsys):
    (edition / "hand_in.py").write_text("mine")
    assert main(["platform", "folder", str(edition)]) == 2
    assert "is there already" in capsys.readouterr().err and (edition / "hand_in.py").read_text() == "mine"
    (tmp_path / "a.zip").write_text("mine")
    assert main(["platform", "gradescope", str(tmp_path / "a.zip")]) == 2
    assert (tmp_path / "a.zip").read_text() == "mine"


@pytest.mark.parametrize("arguments, words", [
    (["github", "NOWHERE"], "holds no exercises/"), (["folder", "EDITION", "--no-jail"], "for gradescope"),
    (["gradescope", "NEW", "--chapters", "99"], "99"), (["moodle", "NEW"], "there are folder, github, gradescope")])
def test_bad_usage_is_explained(arguments, words, edition, tmp_path, capsys):
    places = {"EDITION": edition, "NOWHERE": tmp_path / "nowhere", "NEW": tmp_path / "new.zip"}
    assert main(["platform", *(str(places.get(argument, argument)) for argument in arguments)]) == 2
    assert words in capsys.readouterr().err and not (tmp_path / "new.zip").exists()

