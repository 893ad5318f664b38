"""What a class has handed in: a folder or an archive per student, whose names are looked at once."""

import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from grader.classroom.intake.gradescope import METADATA
from grader.classroom.intake.reading import Read, shown
from grader.classroom.intake.roster import Roster
from grader.classroom.intake.sources import Source, sources_of
from grader.course import chapters
from grader.course.chapters import ROOT
from grader.sandbox.frames import FrameError
from grader.sandbox.launcher import fresh
from grader.sandbox.process import Child, Ended, TimedOut

SECONDS = 20.0              # that reading one student's folder or archive may take


@dataclass
class Handed:
    """What one student handed in."""

    name: str
    source: str                     # the folder's or archive's name
    folder: Path                    # where the copied files lie
    files: list[str] = field(default_factory=list)      # every file that was seen, as "folder/name"
    refused: list[str] = field(default_factory=list)    # what was left out, and why
    names: list[str] = field(default_factory=list)      # of what was handed in, as the platform has them

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

    def read(self, source: Source) -> Read:
        """What one student handed in; why not, where it cannot be read within the limits."""
        try:
            said, body = self._ask("read", files={name: str(path) for name, path in source.files.items()})
        except ValueError as error:
            return Read(refused=[f"{shown(source.shown)}: reading {error}"])
        chosen, start = {}, 0
        for name, size in said["sizes"].items():
            chosen[name] = body[start:start + size]
            start += size
        return Read(chosen, said["files"], said["refused"])

    def people(self, submissions: Path) -> dict[str, list[str]]:
        """Whom Gradescope's folders belong to, by its own file; nobody where there is none."""
        if not (submissions / METADATA).is_file():
            return {}
        try:
            return self._ask("people", path=str(submissions / METADATA))[0]["people"]
        except ValueError as error:
            raise ValueError(f"{submissions / METADATA}: reading {error}") from None

    def _ask(self, do: str, **arguments) -> tuple[dict, bytes]:
        if self._child is None:
            self._child = fresh("grader.classroom.intake.reading", environment={**os.environ, "PYTHONPATH": str(ROOT)})
        try:
            return self._child.ask(do, SECONDS, **arguments)
        except (Ended, TimedOut, FrameError) as error:
            self._child.end()
            self._child = None
            raise ValueError(f"it took more than {SECONDS:g} seconds" if isinstance(error, TimedOut)
                             else "it took too much memory") from None


def collect(submissions: Path, into: Path, shard: tuple[int, int] = (1, 1),
            roster: Roster | None = None) -> tuple[list[Handed], dict[str, str]]:
    """Copy what each student handed in to a folder of their name below `into`.

    shard: (I, N) takes every N-th student, from the I-th on. roster: who is in the class; nobody else is read.
    Returns (the students, why others are not among them by the name of their folder or archive).
    """
    students = []
    with Reader() as reader:
        named, refused = whose(submissions, reader, roster)
        for found in list(named.values())[shard[0] - 1::shard[1]]:
            if len(found) > 1:      # which one counts is not for a program to say
                names = " and ".join(source.shown for _, source in found)
                refused.update({source.shown: f"handed in twice: {names}" for _, source in found})
            else:
                name, source = found[0]
                students.append(_copy(reader.read(source), name, source, into / name))
    return students, refused


def whose(submissions: Path, reader: Reader, roster: Roster | None = None,
          ) -> tuple[dict[str, list[tuple[str, Source]]], dict[str, str]]:
    """(what was handed in by each student, each with the student's name; why other entries are refused)."""
    sources, refused = sources_of(submissions, reader.people(submissions))
    named: dict[str, list[tuple[str, Source]]] = {}
    for source in sources:
        person = roster.person(source) if roster else None
        if roster and not person:
            refused[source.shown] = roster.why_nobody(source)
        else:
            name = person.called if person else source.name
            named.setdefault(name.casefold(), []).append((name, source))
    return dict(sorted(named.items())), refused


def parse_shard(text: str) -> tuple[int, int]:
    """(I, N) of "I/N"."""
    found = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text)
    number, of = map(int, found.groups()) if found else (0, 0)
    if not 1 <= number <= of:
        raise ValueError(f"--shard {text!r}: it takes I/N with I from 1 to N, such as 2/8")
    return number, of


def _copy(found: Read, name: str, source: Source, folder: Path) -> Handed:
    """Write the files that count to a student's folder, in place of those of before."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    for file, content in found.chosen.items():
        (folder / file).write_bytes(content)
    return Handed(name, source.shown, folder, found.files, found.refused,
                  sorted(path.name for path in source.files.values()))
