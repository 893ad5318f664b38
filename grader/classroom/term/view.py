"""A term on the pages: all of a student's hand-outs; of the class who is late, has nothing, and is stuck where."""

from collections.abc import Iterator, Sequence

from grader.classroom.output.gradebook import Gradebook, Score
from grader.classroom.run.cells import Cell
from grader.classroom.term import terms
from grader.classroom.term.semester import count, title
from grader.classroom.term.terms import Handout
from grader.front import report

STUCK = 50                  # per cent of a chapter's points: who has less is stuck there


def late(cell: Cell, book: Gradebook) -> str:
    """What being late took off a chapter, and why; "" where nothing was late."""
    days, formula = book.grading.late(cell.student, cell.chapter)
    if cell.missing or days == 0:
        return ""
    if days is None:
        return "handed in late. Nobody says by how much, and nothing was taken off"
    said, term = f"{count(days)} late", book.grading.term
    arrival = book.grading.arrived.get(cell.student, {}).get(cell.chapter.stem)
    by_hand = cell.chapter.stem in book.grading.chapter_days.get(cell.student, {})
    if term and arrival and arrival.at is not None and not by_hand:
        due = term.of(cell.chapter).due_for(cell.student)
        said += f" (due {term.when(due)}, handed in {term.when(arrival.at)})"
    if not formula:
        return f"{said}. Nothing was taken off"
    return f"{said}. Of {book.decided(cell).points:g} points `{formula}` leaves {book.cell(cell).points:g}"


def plan(student: str, book: Gradebook) -> list[dict]:
    """A student's hand-outs, those to come too."""
    term = book.grading.term
    dropped = book.dropped(student)
    return [{"title": title(handout), "due": _due(student, handout, book), "score": _score(student, handout, book),
             "notes": list(_notes(student, handout, handout in dropped, book))}
            for handout in (term.handouts if term else ())]


def _due(student: str, handout: Handout, book: Gradebook) -> str:
    until = handout.due_for(student)
    return book.grading.term.when(until) + (" (extended for you)" if until > handout.due else "")


def _score(student: str, handout: Handout, book: Gradebook) -> Score | None:
    """A student's points of a hand-out; None where nothing of it is due."""
    own = [cell for cell in book.students[student] if cell.chapter in handout.chapters]
    return book.of(student, handout) if own else None


def _notes(student: str, handout: Handout, dropped: bool, book: Gradebook) -> Iterator[str]:
    own = [cell for cell in book.students[student] if cell.chapter in handout.chapters]
    if not own:
        yield "to come"
    if dropped:
        yield "does not count, as the lowest"
    if missing := [cell.chapter.number for cell in own if cell.missing and not book.override(cell).excused]:
        yield f"not handed in: {', '.join(missing)}"
    for cell in own:
        if (days := book.grading.late(student, cell.chapter)[0]) and not cell.missing:
            taken = round(book.decided(cell).points - book.cell(cell).points, 4)
            yield f"{cell.chapter.number}: {count(days)} late" + (f", {taken:g} points off" if taken else "")


def weeks(book: Gradebook, mistakes: Sequence[dict]) -> list[dict]:
    """The hand-outs that are due, the last one first: how it went, and what went wrong where."""
    term = book.grading.term
    return [_week(handout, book, [one for one in mistakes if one["chapter"] in handout.chapters])
            for handout in reversed(term.due() if term else [])]


def _week(handout: Handout, book: Gradebook, mistakes: list[dict]) -> dict:
    cells = [cell for cell in book.cells if cell.chapter in handout.chapters]
    came = [cell for cell in cells if not cell.missing]
    here = dict.fromkeys(cell.student for cell in came)
    late: dict[str, list[str]] = {}
    for cell in came:
        if (days := book.grading.late(cell.student, cell.chapter)[0]) != 0:
            words = count(days) if days else "nobody says how much"
            late.setdefault(cell.student, []).append(f"{cell.chapter.number} {words}")
    stuck = {chapter: [cell.student for cell in came if cell.chapter == chapter and book.most(chapter)
                       and not book.override(cell).excused
                       and 100 * book.decided(cell).points < STUCK * book.most(chapter)]
             for chapter in handout.chapters}
    return {"title": title(handout), "due": book.grading.term.when(handout.due), "here": list(here), "late": late,
            "extended": {name: book.grading.term.when(at) for name, at in handout.extensions.items()},
            "nothing": [name for name in dict.fromkeys(cell.student for cell in cells) if name not in here],
            "score": book.sum(came), "mistakes": mistakes,
            "stuck": {report.title(chapter): names for chapter, names in stuck.items() if names}}


def upcoming(book: Gradebook) -> list[str]:
    """What is due next, in words."""
    term = book.grading.term
    return [f"{title(handout)} is due {term.when(handout.due)}" for handout in (term.handouts if term else ())
            if handout.due > terms.now()]
