"""Reading what a class handed in, attacked: one entry's fault is that entry's alone, and has limits."""

import gzip
import io
import os
import shutil
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

from grader.classroom.intake import collect, reading
from grader.course import chapters

LINEAR = chapters.find("linear")
GOOD = "x = 1\n"


def _class(top: Path, *names: str) -> Path:
    for name in names:
        (top / name).mkdir(parents=True)
        (top / name / "ex03_linear.py").write_text(GOOD)
    return top


def _handed(top: Path, out: Path) -> dict[str, collect.Handed]:
    return {student.name: student for student in collect.collect(top, out)[0]}


@pytest.mark.parametrize("becomes", ["a link", "nothing", "a file"])
def test_what_changes_after_the_first_look_is_that_students_fault_alone(becomes, tmp_path, monkeypatch):
    """A folder that a sync client takes away, or a student swaps: everybody else's files stay."""
    top, looked = _class(tmp_path / "in", "ada", "eve", "zoe"), collect.sources_of

    def then_changed(submissions):
        found = looked(submissions)
        shutil.rmtree(top / "eve")
        if becomes == "a link":
            (top / "eve").symlink_to(chapters.SOLUTIONS)
        elif becomes == "a file":
            (top / "eve").write_text("no archive")
        return found

    monkeypatch.setattr(collect, "sources_of", then_changed)
    handed = _handed(top, tmp_path / "out")
    assert handed.keys() == {"ada", "eve", "zoe"}
    for name in ("ada", "zoe"):
        assert (handed[name].folder / "ex03_linear.py").read_text() == GOOD
    assert "cannot be read" in handed["eve"].refused[0] and handed["eve"].missing(LINEAR)
    assert not list(handed["eve"].folder.iterdir())


@pytest.mark.parametrize("deep", [False, True])
def test_a_folder_that_becomes_a_link_during_the_walk_is_not_followed(deep, tmp_path, monkeypatch):
    folder = tmp_path / "eve" / "work" if deep else tmp_path / "eve"
    (folder / "exercises").mkdir(parents=True)
    (folder / "exercises" / "ex03_linear.py").write_text(GOOD)
    opened = reading._open

    def swapped(name, *arguments):
        if name == "exercises":
            shutil.rmtree(folder / name)
            (folder / name).symlink_to(chapters.SOLUTIONS)
        return opened(name, *arguments)

    monkeypatch.setattr(reading, "_open", swapped)
    found = reading.read(tmp_path / "eve")
    assert not found.chosen and "cannot be read" in found.refused[0]


def _tar(members) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def _folders():
    for number in range(2 * reading.MAX_ENTRIES):
        info = tarfile.TarInfo(f"d{number}")
        info.type = tarfile.DIRTYPE
        yield info, b""


def _oversized() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(2 * reading.MAX_REFUSED):
            archive.writestr(f"m{number}.py", b"#" * (reading.MAX_FILE + 1))
    return packed.getvalue()


def _header():
    info = tarfile.TarInfo("ex03_linear.py")
    info.pax_headers = {"comment": "x" * (200 << 20)}
    yield info, b""


@pytest.mark.parametrize("name, content, words", [
    ("eve.tgz", lambda: _tar(_folders()), "files and folders"),
    ("eve.zip", _oversized, "of its files cannot be taken"),
    ("eve.tar.gz", lambda: gzip.compress(b"") * (40 << 20 >> 5), "cannot be read|seconds"),
    ("eve.tgz", lambda: _tar(_header()), "memory|MemoryError|unpacks to more"),
], ids=["folders", "oversized", "empty gzip members", "a header of 200 MB"])
def test_reading_an_archive_has_limits(name, content, words, tmp_path, monkeypatch):
    monkeypatch.setattr(collect, "SECONDS", 4.0)
    top = _class(tmp_path / "in", "ada", "zoe")
    (top / name).write_bytes(content())
    start = time.monotonic()
    handed = _handed(top, tmp_path / "out")
    assert time.monotonic() - start < 10 * collect.SECONDS
    assert any(word in handed["eve"].refused[0] for word in words.split("|")), handed["eve"].refused
    assert len(handed["eve"].refused) == 1
    for other in ("ada", "zoe"):
        assert not handed[other].refused and handed[other].missing(LINEAR) is None


def test_what_ends_the_reader_ends_one_entry(tmp_path, monkeypatch):
    """The next student has a new one."""
    asked = collect.Reader.read

    def killed(reader, path):
        if path.name == "eve":
            asked(reader, path)
            os.kill(reader._child.pid, 9)
        return asked(reader, path)

    monkeypatch.setattr(collect.Reader, "read", killed)
    handed = _handed(_class(tmp_path / "in", "ada", "eve", "zoe"), tmp_path / "out")
    assert handed["eve"].refused == ["eve: reading it took too much memory"]
    assert handed["zoe"].missing(LINEAR) is None and not handed["zoe"].refused


@pytest.mark.parametrize("files, words", [
    ({"a/b/c/d/ex03_linear.py": GOOD}, "it lies in 3 others"),
    ({"inner.zip": "PK", "readme.txt": "see the zip"}, "an archive in it is not read"),
    ({"ex03_linear.py": GOOD, "exercises/ex03_linear.py": GOOD}, "those in the folder itself were taken"),
    ({"ex03_linear.py": chapters.stub(LINEAR), "ex03_linear (1).py": GOOD}, "which is the stub as it was handed out"),
    ({"ex03_linear.py": GOOD, "a/b/c/d/notes.txt": ""}, ""),
    ({"exercises/ex03_linear.py": GOOD, "solutions/ex03_linear.py": GOOD}, ""),
])
def test_what_was_not_taken_is_said(files, words, tmp_path):
    for name, content in files.items():
        (tmp_path / "ada" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "ada" / name).write_text(content)
    said = reading.read(tmp_path / "ada").refused
    assert words in said[0] if words else not said
