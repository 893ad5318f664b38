"""What came since the last run, put to what is here already: one folder of a student's files through a semester.

Nothing that was handed in is replaced by what is older, by the stub of a new edition, or by what came after closing.
"""

import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from grader.classroom.intake import collect
from grader.classroom.intake.collect import Handed
from grader.classroom.intake.roster import Roster
from grader.classroom.output.grading import Grading
from grader.classroom.run import cells
from grader.classroom.term import terms
from grader.classroom.term.terms import FILE, LATE, Arrival, Term
from grader.course import chapters
from grader.course.chapters import Chapter
from grader.front import provenance

INBOX = "inbox"             # in OUT, while what came is sorted
CHANGED = "changed since"   # how it is known that what has no time of its own was late


@dataclass
class Came:
    """What was handed in, by everybody in the class, and what is to be said of it."""

    students: list[Handed] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)


def take_in(submissions: Path, out: Path, rules: Grading, before: dict, roster: Roster | None,
            only: Sequence[str] | None) -> Came:
    """Put what came to what is in OUT, and note in the rules when it did.

    before: the manifest of the last run. only: the chapters that are looked at in what came; all without.
    """
    asked = [chapter for chapter in (chapters.several(*only) if only else chapters.chapters())
             if rules.term.of(chapter)]
    shutil.rmtree(out / INBOX, ignore_errors=True)
    found, refused = collect.collect(submissions, out / INBOX, roster=roster)
    known = before.get("students", {})
    members = [person.called for person in roster.people] if roster else list(known)
    called = {name.casefold(): name for name in [*known, *members]}
    came, here = Came(refused=refused), {}
    for student in found:
        name = called.get(student.name.casefold(), student.name)
        folder, records = out / "submissions" / name, rules.arrived.setdefault(name, {})
        here[name] = replace(student, name=name, folder=folder)
        refused_too, said = _put(student, here[name], records, rules.term, asked)
        here[name].refused = student.refused + refused_too
        came.said += [f"{name}: {words}" for words in said]
    for name in members:
        if name not in here:
            folder = out / "submissions" / name
            folder.mkdir(parents=True, exist_ok=True)
            was = known.get(name, {})       # a refusal is told until they hand in again
            here[name] = Handed(name, was.get("source", ""), folder, refused=was.get("refused", []))
    came.students = [here[name] for name in sorted(here, key=str.casefold)]
    shutil.rmtree(out / INBOX, ignore_errors=True)
    return came


def _put(new: Handed, here: Handed, records: dict[str, Arrival], term: Term,
         asked: Collection[Chapter]) -> tuple[list[str], list[str]]:
    """Copy a student's files to those of before. Returns (why some count nowhere, why some of before stay)."""
    refused, stays, now = [], {}, terms.now()
    times = {name: (at if at is None else min(max(at, 0.0), now), how) for name, (at, how) in new.times.items()
             if how != FILE or term.file_times}
    here.folder.mkdir(parents=True, exist_ok=True)
    for chapter in asked:
        name = f"{chapter.stem}.py"
        old = here.folder / name
        if not (new.folder / name).is_file() or _same(new.folder / name, old):
            continue
        at, record, handout = _at(times, name), records.get(chapter.stem), term.of(chapter)
        if old.exists() and (new.folder / name).read_bytes().split() == chapters.stub(chapter).encode().split():
            stays[name] = "what came now is the stub as it was handed out"
        elif old.exists() and at is not None and record and record.at is not None and at < record.at:
            stays[name] = "what came now is older"
        elif handout.closed(here.name, now if at is None else at) and (old.exists() or at is not None):
            words = f"what came {'now' if at is None else term.when(at)} came after {handout.name} had closed"
            if old.exists():
                stays[name] = words
            else:
                stays[name] = ""
                refused.append(f"{name}: {words}")
        if name not in stays:
            shutil.copyfile(new.folder / name, old)
    helpers = {path.name for path in new.folder.glob("*.py")} - {f"{c.stem}.py" for c in chapters.chapters()}
    for name in sorted(helpers):
        if (here.folder / name).exists() and not _same(new.folder / name, here.folder / name):
            closed = [c for c in chapters.chapters() if (handout := term.of(c)) and c.stem in records
                      and handout.closed(here.name, now if (at := _at(times, name)) is None else at)
                      and here.folder / name in cells.handed_in(c, here.folder)]
            if closed or any("older" in why for why in stays.values()):
                stays[name] = f"{closed[0].stem} imports it, and has closed" if closed else "what came now is older"
        if name not in stays:
            shutil.copyfile(new.folder / name, here.folder / name)
    for chapter in asked:
        if (here.folder / f"{chapter.stem}.py").is_file():
            _note(chapter, here, {name: when for name, when in times.items() if name not in stays}, records, term, now)
    return refused, [f"{name} stays as it was: {why}" for name, why in stays.items() if why]


def _note(chapter: Chapter, here: Handed, times: dict, records: dict[str, Arrival], term: Term, now: float) -> None:
    """Keep when a chapter's files came: the first time that they were as they are."""
    own, record = cells.handed_in(chapter, here.folder), records.get(chapter.stem)
    files = provenance.digest(*own)
    words = [times[path.name] for path in own if path.name in times]
    at, how = max(((at, how) for at, how in words if at is not None), default=(None, ""))
    late = any(how == LATE for _, how in words)
    if record and record.files == files:
        if record.how == FILE and not term.file_times:
            record = replace(record, at=None, how="")
        if at is not None and (record.at is None or at < record.at):
            record = replace(record, at=at, how=how)
    else:
        if at is None and record and record.seen > term.of(chapter).due_for(here.name):
            at, how = record.seen, CHANGED
        record = Arrival(files, at, how or LATE * late, now)
    records[chapter.stem] = record


def _at(times: dict[str, tuple[float | None, str]], name: str) -> float | None:
    return times.get(name, (None, ""))[0]


def _same(one: Path, other: Path) -> bool:
    return other.is_file() and one.read_bytes() == other.read_bytes()
