"""Which of a gradebook's columns takes which chapter's points: as grading.toml says, else by what it is called."""

import re
from functools import cache

from grader.course import chapters
from grader.course.chapters import Chapter
from grader.front.report import title

TOTAL = "total"
ASK = "[canvas] in grading.toml says what is meant"

_ASSIGNMENT = re.compile(r"(.*) \(\d+\)")


def assignment(header: str) -> str:
    """The assignment that a column "Linear 03 (11)" is for; "" where it is for none."""
    found = _ASSIGNMENT.fullmatch(header.strip())
    return found[1] if found else ""


def columns(header: list[str], given: dict[str, str], asked: list[Chapter]) -> tuple[dict[int, str], list[str]]:
    """(what each column takes: a chapter's stem, or TOTAL; what is to be said of it, in lines).

    given: a column's title, with its number or without, by a stem or TOTAL. asked: the chapters of this run.
    """
    names = {number: name for number, whole in enumerate(header) if (name := assignment(whole))}
    found: dict[int, str] = {}
    said, settled = [], set(given)
    for what, called in given.items():
        fits = [number for number, name in names.items() if _same(called, name) or _same(called, header[number])]
        if len(fits) == 1 and fits[0] not in found:
            found[fits[0]] = what
        else:
            said.append(f"[canvas] in grading.toml has {what} = {called!r}, and "
                        + ("no column is called that" if not fits else "that column is taken" if len(fits) == 1 else
                           f"{len(fits)} columns are: add the number, such as {header[fits[0]]!r}"))
    for spoken in (_named_for, _speaks_of):
        rest = {number: spoken(name) for number, name in names.items() if number not in found}
        for chapter in asked:
            fits = [number for number, stems in rest.items() if chapter.stem in stems]
            if not fits or chapter.stem in settled:
                continue
            settled.add(chapter.stem)
            called = " and ".join(repr(header[number]) for number in fits)
            if len(fits) > 1:
                said.append(f"{called} are named for {title(chapter)}, and none is filled in: {ASK}")
            elif len(rest[fits[0]]) > 1:
                said.append(f"{called} speaks of {' and '.join(sorted(rest[fits[0]]))}, and is not filled in: {ASK}")
            else:
                found[fits[0]] = chapter.stem
                said += [f"{called} is taken for {title(chapter)}"] * (spoken is _speaks_of)
    if not found and not given and len(names) == 1 and not any(map(_speaks_of, names.values())) \
            and not any(map(_named_for, names.values())):
        found = dict.fromkeys(names, TOTAL)
    none = [title(chapter) for chapter in asked if chapter.stem not in found.values()]
    if none and TOTAL not in found.values():
        said.append(f"no column takes {', '.join(none)}: {ASK}")
    if others := [header[number] for number in names if number not in found]:
        said.append(f"named for no chapter, and left as they were: {', '.join(map(repr, others))}")
    return found, list(dict.fromkeys(said))


def _same(one: str, other: str) -> bool:
    return " ".join(one.split()).casefold() == " ".join(other.split()).casefold()


def _words(text: str) -> str:
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))


@cache
def _calls(chapter: Chapter) -> frozenset[str]:
    """What a chapter is called: by its files, and by its title, "Feed-forward"."""
    said = _words(chapter.title.partition(":")[0]).removeprefix("the ")
    return frozenset({chapter.name.replace("_", " "), said} - {""})


def _named_for(name: str) -> set[str]:
    """The chapter whose name this is: "ex03_linear", "03 linear", "Feed-forward 08", "Chapter 3"."""
    words = _words(name).removeprefix("the ")
    return {chapter.stem for chapter in chapters.chapters() for call in _calls(chapter)
            if words in (call, f"{chapter.number} {call}", f"ex{chapter.number} {call}", f"{call} {chapter.number}")
            or re.fullmatch(rf"(chapter|lesson|exercise|ex) ?0?{int(chapter.number)}( {call})?", words)}


def _speaks_of(name: str) -> set[str]:
    """The chapters that a title has the names of: "Week 3: Softmax". "Flash attention" does not speak of attention."""
    words, found = f" {_words(name)} ", {}
    for chapter in chapters.chapters():
        for call in _calls(chapter):
            for at in re.finditer(f"(?= {call} )", words):
                found[at.start(), at.start() + len(call)] = chapter.stem
    return {stem for (start, end), stem in found.items() if not any(
        a <= start and end <= b and (a, b) != (start, end) for a, b in found)}
