"""The hints of a lesson, read out of its folds: there is no second copy."""

import re

from grader.course.chapters import Chapter, close
from grader.course.lesson import Exercise, exercises

LINK = re.compile(r"\[([^\]]*)\]\([^)\s]+\)")


def hint(chapter: Chapter, part: str, number: int = 1) -> str:
    """A lesson's hint about a part: a function, a class, a method, a check, or an exercise's number.

    Raises ValueError, naming what there is, for a part or a number that the lesson does not have.
    """
    asked = [exercise for exercise in exercises(chapter) if exercise.hints]
    exercise = max(asked, key=lambda exercise: _fits(exercise, part), default=None)
    if not exercise or not _fits(exercise, part):
        names = {name: name for exercise in asked for name in _names(exercise)}
        near = close(part, names)
        raise ValueError(f"lesson {chapter.number} has no exercise about {part!r}; " + (
            f"did you mean {near}?" if near else f"there are {', '.join(names)}"))
    hints = exercise.hints
    if number not in hints:
        raise ValueError(f"this exercise has the hints {', '.join(map(str, hints))}, got {number}")
    words = LINK.sub(r"\1", hints[number])       # a terminal has no use for where a link leads
    said = f"{exercise.title}, hint {number} of {len(hints)}\n\n{words}"
    if number + 1 in hints:
        said += f"\n\nThe next one: python -m grader hint {chapter.number} {part} {number + 1}"
    return said


def _names(exercise: Exercise) -> list[str]:
    """The parts that it asks for, each behind its class: "Linear", "Linear.forward", "linear_flops"."""
    return [name for part in exercise.parts for name in dict.fromkeys((part.partition(".")[0], part))]


def _fits(exercise: Exercise, part: str) -> int:
    """How surely an exercise is about a part; 0 where it is not."""
    if part == str(exercise.number):
        return 4
    if re.search(rf"(?i)\b{re.escape(part)}\b", exercise.title):
        return 3
    if any(part.lower() in (check, check.removeprefix("test_")) for check in exercise.checks):
        return 2
    return part in _names(exercise) or any(part.lower() in check for check in exercise.checks)
