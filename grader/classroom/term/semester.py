"""What a run of a term looks at, and what it says of it before anything is asked."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from grader.classroom.intake.collect import Handed
from grader.classroom.output.grading import Grading
from grader.classroom.run.cells import Cell
from grader.classroom.term import terms
from grader.classroom.term.terms import LATE, Handout, Term, span
from grader.course.chapters import Chapter, chapters, several

EXERCISE = re.compile(r"ex\d\d_")
NAMES = 12                  # of whom something is to be asked; the others are counted


def chapters_of(term: Term, before: dict, options) -> list[str]:
    """The stems of what has been graded and what is due; a ValueError where nothing is, and a run would be in vain."""
    only = several(*options.chapters) if options.chapters else chapters()
    due = {chapter.stem for handout in term.due() for chapter in handout.chapters if chapter in only}
    begun = before.get("options", {}).get("chapters", [])
    if not term.due() and not options.dry_run:
        first = term.handouts[0]
        raise ValueError(f"nothing is due yet: {first.name} is due {term.when(first.due)}; --dry-run looks before")
    return sorted(due.union(begun))


def lines(grading: Grading, students: Sequence[Handed], todo: Sequence[Cell],
          chosen: Sequence[Chapter]) -> Iterator[str]:
    """Of each hand-out with a chosen chapter: who handed in, who is late, who has nothing, and what is to be asked."""
    term = grading.term
    for handout in term.handouts if term else ():
        if not set(chosen) & {*handout.chapters}:
            continue
        here = [student for student in students if has(student.folder, handout.chapters)]
        yield f"{title(handout)}: due {term.when(handout.due)}, {ago(handout.due)}; {len(here)} of {len(students)} " \
              f"handed {'something' if len(handout.chapters) > 1 else 'it'} in"
        if longer := {name: at for name, at in handout.extensions.items() if at > terms.now()}:
            yield f"    extended: {', '.join(f'{name} until {term.when(at)}' for name, at in longer.items())}"
        if handout not in term.due():
            continue
        late: dict[str, list[str]] = {"late": [], "late, and nobody says by how much (late.csv may)": [],
                                      "nobody says when it came": []}
        by_days, unsaid, unknown = late.values()
        for student in here:
            days: dict[float | None, list[str]] = {}
            for chapter in (one for one in handout.chapters if has(student.folder, [one])):
                days.setdefault(grading.late(student.name, chapter)[0], []).append(chapter.number)
            by_days += [f"{student.name} {count(by)} ({' '.join(own)})" for by, own in days.items() if by]
            unsaid += [f"{student.name} ({' '.join(own)})" for by, own in days.items() if by is None]
            records = grading.arrived.get(student.name, {})
            if any((own := records.get(chapter.stem)) and own.at is None and own.how != LATE
                   and chapter.stem not in grading.chapter_days.get(student.name, {})
                   for chapter in handout.chapters):
                unknown.append(student.name)
        without = [student for student in students if student not in here
                   and handout.due_for(student.name) <= terms.now()]
        refused = {student.name: [why for why in student.refused if not EXERCISE.match(why) or any(
            why.startswith(chapter.stem) for chapter in handout.chapters)] for student in without}
        late["nothing came from"] = [name for name, why in refused.items() if not why]
        late["what came was refused"] = [f"{name} ({'; '.join(why)})" for name, why in refused.items() if why]
        asked: dict[str, list[str]] = {}
        for cell in todo:
            if cell.chapter in handout.chapters:
                asked.setdefault(cell.student, []).append(cell.chapter.number)
        late["to be asked"] = [f"{name} ({' '.join(own)})" for name, own in list(asked.items())[:NAMES]] + (
            [f"and of {len(asked) - NAMES} more"] if len(asked) > NAMES else [])
        yield from (f"    {what}: {', '.join(named)}" for what, named in late.items() if named)


def has(folder: Path, some: Sequence[Chapter]) -> bool:
    """Whether one of these chapters has been handed in."""
    return any((folder / f"{chapter.stem}.py").is_file() for chapter in some)


def title(handout: Handout) -> str:
    """A hand-out's name and the numbers of its chapters: "week 1 (00, 03)"."""
    return f"{handout.name} ({', '.join(chapter.number for chapter in handout.chapters)})"


def ago(at: float) -> str:
    """How far a moment is from now."""
    left = at - terms.now()
    return f"in {span(left)}" if left > 0 else f"{span(-left)} ago"


def count(days: float) -> str:
    return f"{days:g} day{'s' * (days != 1)}"
