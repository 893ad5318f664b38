"""A second hand-out: `update` in a student's folder brings what is new, and loses nothing of anybody's."""

import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from grader.course import chapters
from grader.front import update
from tests.course.classroom.test_handout import FILES, FIRST, LAST, _contents, _grader, _python, make_course

STUB = chapters.make_stub(FIRST)
MENDED = FIRST.replace('"""2 x."""', '"""2 x, of any shape."""')
MINE = FIRST.replace("2.0", "2.5")


@pytest.fixture(scope="module")
def editions(tmp_path_factory) -> tuple[Path, Path]:
    """What was handed out first, with one chapter, and then, with both; in between, everything was mended a little."""
    top = tmp_path_factory.mktemp("editions")
    course = make_course(top / "course")
    assert _grader(course, "handout", str(top / "first"), "--chapters", "1").returncode == 0
    (course / "solutions/ex01_first.py").write_text(MENDED)
    lesson = FILES["notebooks/01_first.ipynb"].replace("# First", "# The first")
    (course / "notebooks/01_first.ipynb").write_text(lesson)
    (course / "assets/plain.txt").write_text("plainer")
    (course / "requirements.txt").write_text((course / "requirements.txt").read_text() + "# more\n")
    (course / "grader/front/watch.py").write_text((course / "grader/front/watch.py").read_text() + "# mended\n")
    (course / "grader/front/more.py").write_text("")
    done = _grader(course, "handout", str(top / "second"))
    assert done.returncode == 0, done.stderr
    return top / "first", top / "second"


@pytest.fixture
def mine(editions, tmp_path) -> Path:
    return Path(shutil.copytree(editions[0], tmp_path / "mine"))


def _update(folder: Path, edition: Path) -> str:
    done = _grader(folder, "update", str(edition))
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
    return done.stdout


def _kept(folder: Path) -> dict[str, str]:
    """The text of what is in the backups, by its name in the folder."""
    return {path.relative_to(path.parents[len(path.relative_to(folder / "backups").parts) - 2]).as_posix():
            path.read_text("utf-8", "replace") for path in (folder / "backups").rglob("*") if path.is_file()}


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "zip"])
def test_a_folder_where_nothing_was_begun_becomes_the_new_edition(packed, editions, mine, tmp_path):
    new = editions[1]
    if packed:
        new = tmp_path / "new.zip"
        with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in editions[1].rglob("*"):
                archive.write(path, Path("course-2") / path.relative_to(editions[1]))
    said = _update(mine, new)
    assert "New: ex02_last." in said and "Other packages are needed now" in said
    kept = _kept(mine)
    shutil.rmtree(mine / "backups")
    assert _contents(mine) == _contents(editions[1])
    assert kept["exercises/ex01_first.py"] == STUB and kept["assets/plain.txt"] == "plain"
    assert "mended" not in kept["grader/front/watch.py"]
    assert "Everything is as in this edition already." in _update(mine, new) and not (mine / "backups").exists()


def test_what_was_begun_stays_and_a_stub_that_changed_lies_beside_it(editions, mine):
    (mine / "exercises/ex01_first.py").write_text(MINE)
    said = _update(mine, editions[1])
    assert (mine / "exercises/ex01_first.py").read_text() == MINE
    assert (mine / "exercises/ex01_first.py.new").read_text() == chapters.make_stub(MENDED)
    assert "Begun, and left as they are: ex01_first." in said
    assert "The stub of ex01_first is another than the one you began with" in said
    assert "exercises/ex01_first.py" not in _kept(mine)
    assert "This is two and a half." in _grader(mine, "check", "1").stdout
    again = _update(mine, editions[1])      # it is told as long as it lies there, and nothing is written
    assert "lies beside your file" in again and len(list((mine / "backups").iterdir())) == 1


@pytest.mark.parametrize("mine_too", [STUB + "\n# a note of mine\n", "def (", ""])
def test_a_note_in_a_stub_is_a_beginning(mine_too, editions, mine):
    (mine / "exercises/ex01_first.py").write_text(mine_too)
    _update(mine, editions[1])
    assert (mine / "exercises/ex01_first.py").read_text() == mine_too


def test_windows_line_ends_are_no_beginning(editions, mine):
    (mine / "exercises/ex01_first.py").write_bytes(STUB.replace("\n", "\r\n").encode())
    assert "Begun" not in _update(mine, editions[1])
    assert (mine / "exercises/ex01_first.py").read_text() == chapters.make_stub(MENDED)


def test_a_lesson_that_was_run_stays_until_it_is_mended_and_is_kept_then(editions, mine, tmp_path):
    lesson = mine / "notebooks/01_first.ipynb"
    ran = lesson.read_text().replace('"outputs": []', '"outputs": [1]')
    lesson.write_text(ran)
    same = Path(shutil.copytree(editions[0], tmp_path / "same"))
    (same / "assets/plain.txt").write_text("plainer")
    said = _update(mine, same)
    assert lesson.read_text() == ran and "0 files are new, 1 were replaced" in said and "You had" not in said
    said = _update(mine, editions[1])
    assert "The first" in lesson.read_text() and _kept(mine)["notebooks/01_first.ipynb"] == ran
    assert "You had changed notebooks/01_first.ipynb: yours is backups/" in said


def test_files_of_ones_own_stay(editions, mine):
    own = {"notes.md": "mine", "exercises/helper.py": "mine", "tests/test_mine.py": "mine", "grader.py": "mine",
           ".venv/x": "mine", "exercises/ex01_first.20260101-000000.py.bak": "mine"}
    for name, text in own.items():
        (mine / name).parent.mkdir(exist_ok=True)
        (mine / name).write_text(text)
    _update(mine, editions[1])
    for name, text in own.items():
        assert (mine / name).read_text() == text if name != "grader.py" else _kept(mine)[name] == text


def test_a_chapter_that_is_given_now_counts_as_given(editions, mine, tmp_path):
    course = make_course(tmp_path / "course")
    assert _grader(course, "handout", str(tmp_path / "given"), "--given", "1").returncode == 0
    said = _update(mine, tmp_path / "given")
    assert "Solved in solutions/ now: ex01_first." in said
    said = _grader(mine, "check").stdout
    assert "0 of 2 checks passed" in said and "Next: read notebooks/02_last.ipynb" in said, said
    assert next(line for line in said.splitlines() if line.startswith("01 first")).endswith("given")
    (mine / "exercises/ex02_last.py").write_text(LAST)
    assert "2 of 2 checks passed" in _grader(mine, "check").stdout


# Ends the process, as a power cut would, at the step of this number.
CUT = """
import os, shutil, sys
from pathlib import Path
from grader.front import update
steps = 0
def counted(act):
    def counting(*arguments, **more):
        global steps
        steps += 1
        if steps == int(sys.argv[2]):
            os._exit(9)
        return act(*arguments, **more)
    return counting
for where, name in ((os, "replace"), (os, "rename"), (shutil, "copyfile"), (shutil, "copy2"), (Path, "unlink")):
    setattr(where, name, counted(getattr(where, name)))
update.run(Path(sys.argv[1]), lambda words: None)
print(steps)
"""


def test_an_update_that_is_cut_off_anywhere_goes_on_with_the_same_command(editions, mine, tmp_path):
    (mine / "exercises/ex01_first.py").write_text(MINE)
    (mine / "notebooks/01_first.ipynb").write_text("my notes")
    whole = Path(shutil.copytree(mine, tmp_path / "whole"))
    steps = int(_python(whole, "-c", CUT, str(editions[1]), "0").stdout)
    assert steps > 50

    def here(folder: Path) -> dict[str, str]:
        return {name: text for name, text in _contents(folder).items() if not name.startswith("backups/")}
    # the first, some of the rest, and each of the last: the list of files, the grader's two names, what finishes that
    for step in (1, 4, 9, steps // 2, *range(steps - 4, steps + 1)):
        folder = Path(shutil.copytree(mine, tmp_path / f"cut{step}"))
        assert _python(folder, "-c", CUT, str(editions[1]), str(step)).returncode == 9
        assert (folder / "exercises/ex01_first.py").read_text() == MINE
        said = _grader(folder, "update", str(editions[1]))
        assert said.returncode == 0, (step, said.stdout, said.stderr)
        assert here(folder) == here(whole), step
        assert _kept(folder)["notebooks/01_first.ipynb"] == "my notes", step


@pytest.mark.parametrize("made, words", [
    (lambda path, mine: path / "none", "there is no"), (lambda path, mine: path, "holds no edition"),
    (lambda path, mine: mine, "is this folder itself"),
    (lambda path, mine: make_course(path / "course"), "holds the whole course, with all solutions"),
    (lambda path, mine: (path / "x.zip").write_bytes(b"no zip") and path / "x.zip", "is no zip that can be read")])
def test_what_is_no_edition_is_refused_and_nothing_is_written(made, words, mine, tmp_path):
    (tmp_path / "new").mkdir()
    edition, before = made(tmp_path / "new", mine), _contents(mine)
    done = _grader(mine, "update", str(edition))
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert _contents(mine) == before


def test_the_course_itself_is_not_updated(tmp_path):
    with pytest.raises(ValueError, match="holds the whole course, which git updates"):
        update.run(tmp_path)


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
def test_the_same_by_git(editions, tmp_path):
    """As INSTRUCTORS.md says it: each edition is a commit, and a student pulls."""
    def git(folder: Path, *arguments: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=folder, check=True,
                       capture_output=True)
    origin = Path(shutil.copytree(editions[0], tmp_path / "origin"))
    git(origin, "init", "-q")
    git(origin, "add", "-A")
    git(origin, "commit", "-qm", "first")
    git(tmp_path, "clone", "-q", str(origin), "student")
    student = tmp_path / "student"
    head, _, tail = STUB.rpartition("raise NotImplementedError")       # the stub's other part is mended
    (student / "exercises/ex01_first.py").write_text(f"{head}return n{tail}")
    git(student, "commit", "-qam", "mine")
    shutil.copytree(editions[1], origin, dirs_exist_ok=True)
    git(origin, "add", "-A")
    git(origin, "commit", "-qm", "second")
    git(student, "pull", "-q", "--no-rebase", "--no-edit")
    merged = (student / "exercises/ex01_first.py").read_text()
    assert "return n\n" in merged and "2 x, of any shape." in merged
    assert (student / "exercises/ex02_last.py").exists()
