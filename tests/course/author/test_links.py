"""Lessons opened from elsewhere: one address, in all of them or in none, and a lesson that fetches the course."""

import json
import os
import re
import shutil
import subprocess
import tomllib

import nbformat
import pytest
from nbclient import NotebookClient

from docs import bibliography
from grader.author import links, new
from grader.classroom.edition import handout
from grader.course import chapters, lesson
from tests.course.lessons.fresh_notebooks import same_text
from tests.course.stubs import fresh

ROOT, URL = chapters.ROOT, "https://github.com/someone/course"
LESSON = chapters.find("linear").notebook


def names(file: str) -> set[str]:
    lines = (ROOT / file).read_text("utf-8").splitlines()
    return {re.match(r"[\w-]+", line)[0] for line in lines if line and line[0] not in "#-"}


def test_lessons_hold_the_links_of_the_setting_and_no_others():
    for chapter in chapters.chapters():
        text, name = chapter.notebook.read_text("utf-8"), chapter.notebook.name
        assert text.rstrip() == links.put(text, name, links.address()).rstrip(), "make links writes them"
        linked, bare = links.put(text, name, URL), links.put(text, name, "")
        opening, first = (next(cell["source"] for cell in lesson.loads(linked)["cells"] if cell["cell_type"] == kind)
                          for kind in ("markdown", "code"))
        assert f"(https://colab.research.google.com/github/someone/course/blob/main/notebooks/{name})" in opening
        assert "(https://codespaces.new/someone/course)" in opening
        assert first.splitlines()[3].startswith(f'    os.system("git clone -q {URL} course;')
        assert links.put(linked, name, URL) == linked and links.put(linked, name, "") == bare
        assert URL not in bare and "colab" not in bare and "codespaces.new" not in bare


def test_the_students_edition_does_not_say_where_the_solutions_lie(tmp_path):
    page = tmp_path / "notebooks" / LESSON.name
    page.parent.mkdir()
    page.write_text(links.put(LESSON.read_text("utf-8"), LESSON.name, URL), "utf-8")
    handout._unlink(page, tmp_path)
    said = page.read_text("utf-8")
    assert "someone/course" not in said and "git clone" not in said and "sys.path.insert" in said


def test_what_a_hosted_notebook_may_lack_is_what_a_student_needs():
    """But for what shows notebooks, which a host has, and what only tests import."""
    assert names("requirements.txt") - names("requirements-colab.txt") == {"jupyter", "nbval", "pytest"}
    assert names("requirements-colab.txt") <= names("requirements.txt")


@pytest.mark.skipif(not shutil.which("git") or os.name == "nt", reason="the course is fetched by git, in a shell")
def test_a_lesson_in_a_bare_folder_fetches_the_course_and_runs(tmp_path, monkeypatch):
    origin, bare = tmp_path / "origin", tmp_path / "bare"
    shutil.copytree(ROOT, origin, ignore=shutil.ignore_patterns(
        ".git", ".venv", "site", "node_modules", "__pycache__", "*_cache", "run", "evidence", "*.bak"))
    fresh(origin / "exercises")
    for command in ("init -q", "add -A", "-c user.name=a -c user.email=a@b commit -qm all"):
        subprocess.run(["git", *command.split()], cwd=origin, check=True)
    bare.mkdir()
    lesson = bare / LESSON.name
    lesson.write_text(links.put(LESSON.read_text("utf-8"), LESSON.name, f"file://{origin}"), "utf-8")
    pip = tmp_path / "bin" / "pip"              # asks for what is there already, and leaves a note
    pip.parent.mkdir()
    pip.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\n')
    pip.chmod(0o755)
    monkeypatch.setenv("PATH", f"{pip.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("COURSE_EXERCISES", raising=False)

    wanted, notebook = nbformat.read(lesson, as_version=4), nbformat.read(lesson, as_version=4)
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(bare)}}).execute()
    assert (bare / "course" / "grader").is_dir() and (tmp_path / "asked").read_text().endswith("colab.txt\n")
    for cell, as_committed in zip(notebook.cells, wanted.cells):
        if "check(" in cell.source and cell.cell_type == "code":
            assert same_text(cell.outputs[0].text, as_committed.outputs[0].text)


def test_the_dev_container_runs_the_course():
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text("utf-8"))
    assert "$(grep ^torch== requirements.txt)" in container["postCreateCommand"]
    assert container["postCreateCommand"].endswith("make check")
    python = re.search(r"python:([\d.]+)", container["image"])[1]
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["requires-python"]
    assert tuple(map(int, python.split("."))) >= tuple(map(int, wanted.removeprefix(">=").split(".")))
    assert all((ROOT / file).is_file() for file in container["customizations"]["codespaces"]["openFiles"])


def test_the_bibliography_names_what_lessons_link_to():
    """Each address once, by a title in italics, and each paper in its year; a new chapter's too."""
    said = [entry for entries in bibliography.table().values() for entry in entries.items()]
    papers = {address: year for year, entries in bibliography.table().items()
              for address in entries if "arxiv" in address}
    assert papers == {address: f"20{address.rpartition('/')[2][:2]}" for address in papers}
    assert len({address for address, _ in said}) == len(said)
    assert all(len(bibliography.TITLE.findall(citation)) == 1 for _, citation in said)
    text = (new.FILES / "notebooks" / "NN_name.ipynb").read_text("utf-8")
    linked = [*bibliography.links(), *bibliography.LINK.findall(text)]
    missing = [address for address in linked if address not in dict(said)]
    assert len(linked) > 100 and not missing, "docs/bibliography.toml names them"
