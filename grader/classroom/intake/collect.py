"""What a class has handed in: a folder or an archive per student, whose names are looked at once."""

import os
import re
import shutil
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path

from grader.classroom.intake.reading import ENDINGS, Read, shown
from grader.course import chapters
from grader.course.chapters import ROOT
from grader.sandbox.frames import FrameError
from grader.sandbox.launcher import fresh
from grader.sandbox.process import Child, Ended, TimedOut

SECONDS = 20.0              # that reading one student's folder or archive may take

_NAME = re.compile(r"[\w.\-@; ]{1,100}")


@dataclass
class Handed:
    """What one student handed in."""

    name: str
    source: str                     # the folder's or archive's name
    folder: Path                    # where the copied files lie
    files: list[str] = field(default_factory=list)      # every file that was seen, as "folder/name"
    refused: list[str] = field(default_factory=list)    # what was left out, and why

    def missing(self, chapter: chapters.Chapter) -> str | None:
        """None where the chapter's file is there; else what was there instead, or ""."""
        if (self.folder / f"{chapter.stem}.py").is_file():
            return None
        near = chapters.near_miss(chapter, self.files)
        return "; ".join([*([f"there is {near}"] if near else []), *self.refused])


class Reader:
    """A process that reads what students handed in (see reading); one that does not survive it is started anew."""

    def __init__(self):
        self._child: Child | None = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._child:
            self._child.end()

    def read(self, path: Path) -> Read:
        """One student's folder or archive; why not, where it cannot be read within the limits."""
        if self._child is None:
            self._child = fresh("grader.classroom.intake.reading", environment={**os.environ, "PYTHONPATH": str(ROOT)})
        try:
            said, body = self._child.ask("read", SECONDS, path=str(path))
        except (Ended, TimedOut, FrameError) as error:
            self._child.end()
            self._child = None
            why = f"it took more than {SECONDS:g} seconds" if isinstance(error, TimedOut) else "it took too much memory"
            return Read(refused=[f"{shown(path.name)}: reading {why}"])
        chosen, start = {}, 0
        for name, size in said["sizes"].items():
            chosen[name] = body[start:start + size]
            start += size
        return Read(chosen, said["files"], said["refused"])


def collect(submissions: Path, into: Path, shard: tuple[int, int] = (1, 1)) -> tuple[list[Handed], dict[str, str]]:
    """Copy what each student handed in to a folder of their name below `into`.

    shard: (I, N) takes every N-th student, from the I-th on.
    Returns (the students, why others are not among them by the name of their folder or archive).
    """
    sources, refused = sources_of(submissions)
    students = []
    with Reader() as reader:
        for found in list(sources.values())[shard[0] - 1::shard[1]]:
            if len(found) > 1:      # which one counts is not for a program to say
                names = " and ".join(path.name for _, path in found)
                refused.update({path.name: f"handed in twice: {names}" for _, path in found})
            else:
                name, path = found[0]
                students.append(_copy(reader.read(path), name, path.name, into / name))
    return students, refused


def sources_of(submissions: Path) -> tuple[dict[str, list[tuple[str, Path]]], dict[str, str]]:
    """(the folders and archives by their student, each with the student's name; why others are refused).

    The name is that of this one look: what lies there when it is read may be something else.
    """
    if not submissions.is_dir():
        raise ValueError(f"SUBMISSIONS {submissions} is no folder")
    if any((submissions / f"{chapter.stem}.py").exists() for chapter in chapters.chapters()):
        raise ValueError(f"SUBMISSIONS {submissions} holds exercises itself; "
                         "it takes a folder of folders or archives, one per student")
    sources: dict[str, list[tuple[str, Path]]] = {}
    refused: dict[str, str] = {}
    for path in sorted(submissions.iterdir()):
        if path.name.startswith("."):
            continue
        name, why = _student(path)
        if why:
            refused[path.name] = why
        else:
            sources.setdefault(name.casefold(), []).append((name, path))
    if not sources and not refused:
        raise ValueError(f"SUBMISSIONS {submissions} is empty")
    return sources, refused


def parse_shard(text: str) -> tuple[int, int]:
    """(I, N) of "I/N"."""
    found = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text)
    number, of = map(int, found.groups()) if found else (0, 0)
    if not 1 <= number <= of:
        raise ValueError(f"--shard {text!r}: it takes I/N with I from 1 to N, such as 2/8")
    return number, of


def _student(path: Path) -> tuple[str, str]:
    """(the student's name, why this entry is refused)."""
    if path.is_symlink():
        return "", "a link is not followed"
    name = path.name
    if not path.is_dir():
        ending = next((end for end in ENDINGS if name.lower().endswith(end)), "")
        if not path.is_file() or not ending:
            return "", "neither a folder nor an archive (.zip, .tar, .tar.gz, .tgz)"
        name = name[:-len(ending)]
    name = unicodedata.normalize("NFC", name)
    if not _NAME.fullmatch(name) or name[0] in ". " or name[-1] in ". ":
        return "", "a name has 1 to 100 letters, digits, spaces and . _ - @ ; and neither begins nor ends with a dot"
    return name, ""


def _copy(found: Read, name: str, source: str, folder: Path) -> Handed:
    """Write the files that count to a student's folder, in place of those of before."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    for file, content in found.chosen.items():
        (folder / file).write_bytes(content)
    return Handed(name, source, folder, found.files, found.refused)
