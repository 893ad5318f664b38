"""term.toml: what is handed out, when it is due, and for whom it is due later."""

import datetime
import math
import time
import tomllib
import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from grader.classroom.output.formula import calculate
from grader.course import chapters
from grader.course.chapters import Chapter

DAY = 86_400
LATE, FILE = "LATE", "file"         # what Canvas writes into a name; when a file was written
_TERM = {"zone", "drop", "file_times", "handout"}
_HANDOUT = {"name", "chapters", "due", "closes", "late", "extensions"}


def now() -> float:
    """The time; a test has its own."""
    return time.time()


@dataclass(frozen=True)
class Arrival:
    """When a chapter's files, as they are here, came from a student."""

    files: str              # their hash
    at: float | None        # None where nobody says
    how: str                # whose word that is
    seen: float             # when a run read them first


@dataclass(frozen=True)
class Handout:
    """Some chapters, which are due together. Times are seconds since 1970."""

    name: str
    chapters: tuple[Chapter, ...]
    due: float
    closes: float | None            # later than that nothing is taken
    late: str                       # a formula of its own, in place of grading.toml's
    extensions: dict[str, float]    # when it is due for whom

    def due_for(self, student: str) -> float:
        return self.extensions.get(student, self.due)

    def closed(self, student: str, at: float) -> bool:
        """Whether that is too late to count at all."""
        return self.closes is not None and at > max(self.closes, self.due_for(student))

    def days(self, student: str, at: float) -> int:
        """The days that have begun since it was due."""
        return max(0, math.ceil((at - self.due_for(student)) / DAY))


@dataclass(frozen=True)
class Term:
    """What is handed out in a semester, in the order in which it is due."""

    zone: str
    drop: int               # so many hand-outs, a student's lowest, do not count
    file_times: bool        # when a file was written counts where nothing else is known
    handouts: tuple[Handout, ...]

    def of(self, chapter: Chapter) -> Handout | None:
        """The hand-out that a chapter is part of."""
        return next((handout for handout in self.handouts if chapter in handout.chapters), None)

    def is_due(self, student: str, chapter: Chapter) -> bool:
        handout = self.of(chapter)
        return handout is not None and handout.due_for(student) <= now()

    def due(self) -> list[Handout]:
        """The hand-outs that are due for somebody."""
        return [handout for handout in self.handouts if min([handout.due, *handout.extensions.values()]) <= now()]

    def when(self, at: float) -> str:
        """A time in words, such as "Mon 5 Oct 2026, 23:59"."""
        moment = datetime.datetime.fromtimestamp(at, zoneinfo.ZoneInfo(self.zone))
        return f"{moment:%a} {moment.day} {moment:%b %Y, %H:%M}"


def read(path: Path) -> Term:
    """A term's file; a ValueError says what it cannot mean."""
    try:
        said = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path}: {error}") from None
    try:
        return _term(said)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _term(said: dict) -> Term:
    _known(said, _TERM, "")
    try:
        zone = zoneinfo.ZoneInfo(said.get("zone", ""))
    except (ValueError, TypeError, OSError, zoneinfo.ZoneInfoNotFoundError):
        raise ValueError(f"zone must name a time zone of this machine, such as \"Europe/Berlin\", got "
                         f"{said.get('zone')!r}") from None
    drop, file_times, found = said.get("drop", 0), said.get("file_times", False), said.get("handout")
    if type(file_times) is not bool:
        raise ValueError(f"file_times must be true or false, got {file_times!r}")
    if type(found) is not list or not found or not all(type(one) is dict for one in found):
        raise ValueError("it has no [[handout]] with a name, chapters and due")
    handouts = sorted((_handout(one, zone) for one in found), key=lambda handout: handout.due)
    if type(drop) is not int or not 0 <= drop < len(handouts):
        raise ValueError(f"drop must be a number of hand-outs from 0 to {len(handouts) - 1}, got {drop!r}")
    for what in ([handout.name for handout in handouts],
                 [chapter.stem for handout in handouts for chapter in handout.chapters]):
        if twice := [one for one in what if what.count(one) > 1]:
            raise ValueError(f"{twice[0]} is in it twice")
    return Term(str(zone), drop, file_times, tuple(handouts))


def _handout(said: dict, zone: zoneinfo.ZoneInfo) -> Handout:
    name = said.get("name")
    if type(name) is not str or not name.strip():
        raise ValueError(f"a hand-out's name must be a text, got {name!r}")
    _known(said, _HANDOUT, f"{name}: ")
    listed, late, extensions = said.get("chapters"), said.get("late", ""), said.get("extensions", {})
    if type(listed) is not str:
        raise ValueError(f"{name}: chapters must be a list such as \"0-4,7\", got {listed!r}")
    if type(late) is not str:
        raise ValueError(f"{name}: late must be a formula, got {late!r}")
    if late:
        calculate(late, points=1.0, of_points=1.0, days=1.0)
    if type(extensions) is not dict:
        raise ValueError(f"{name}: extensions must be a table of students and times, got {extensions!r}")
    due = _time(said.get("due"), zone, f"{name}: due")
    longer = {student: _time(until, zone, f"{name}: {student}'s extension") for student, until in extensions.items()}
    closes = _time(said["closes"], zone, f"{name}: closes") if "closes" in said else None
    for what, at in [*((f"{student}'s extension", at) for student, at in longer.items()), ("closes", closes or due)]:
        if at < due:
            raise ValueError(f"{name}: {what} is before it is due")
    return Handout(name.strip(), tuple(chapters.several(listed)), due, closes, late, longer)


def _time(said, zone: zoneinfo.ZoneInfo, what: str) -> float:
    """A moment, in the term's zone where it names none of its own; a day means its end."""
    if type(said) is datetime.date:
        said = datetime.datetime.combine(said + datetime.timedelta(days=1), datetime.time())
        return said.replace(tzinfo=zone).timestamp() - 1
    if type(said) is not datetime.datetime:
        raise ValueError(f"{what} must be a day or a time without quotes, such as 2026-10-05T18:00:00, got {said!r}")
    return (said if said.tzinfo else said.replace(tzinfo=zone)).timestamp()


def _known(said: dict, known: set[str], where: str) -> None:
    if strange := sorted(said.keys() - known):
        raise ValueError(f"{where}{strange[0]} has no meaning here; known are {', '.join(sorted(known))}")


def span(seconds: float) -> str:
    """How long that is: "1 day 3 hours", "2 hours", "5 minutes"."""
    return " ".join(list(_parts(seconds))[:2]) or "less than a minute"


def _parts(seconds: float) -> Iterator[str]:
    for unit, size in (("day", DAY), ("hour", 3600), ("minute", 60)):
        count, seconds = divmod(seconds, size)
        if count:
            yield f"{count:.0f} {unit}{'s' * (count != 1)}"
