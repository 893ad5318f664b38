"""`check("ex03_linear")` in a notebook: plain text that is the same on every machine."""

import atexit
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from grader.course import chapters
from grader.front import report
from grader.judge.engine import Grader


@cache
def _grader() -> Grader:
    """One grader for the life of the kernel, so that only the first check waits for torch."""
    grader = Grader(many=True)
    atexit.register(grader.close)
    return grader


def check(chapter: str, part: str = "") -> None:
    """Grade your file and print what came of it.

    chapter: "3", "linear" or "ex03_linear". part: only the checks whose names contain it.
    Raises ValueError where there is no such chapter, or no check of that name.
    """
    found, grader = chapters.find(chapter), _grader()
    if not any(part in check.name for check in grader.checks(found)):
        names = {check.function.removeprefix("test_"): check.function for check in grader.checks(found)}
        near = chapters.close(part.removeprefix("test_"), names)
        raise ValueError(f"no check of {found.stem} has {part!r} in its name; " + (
            f"did you mean {near}?" if near else f"there are {', '.join(names.values())}"))
    verdicts = list(grader.grade(found, only=lambda check: part in check.name, waited_for=True))
    passed = sum(verdict.word == "passed" for verdict in verdicts)
    print(f"{found.stem}: {passed} of {len(verdicts)} checks passed ({report.words(verdicts)})")
    if failed := report.first_failure(verdicts):
        print("\n" + report.failure(failed, grader.setting))
        if len(every := report.failures(verdicts)) > 1:
            print("\nand\n" + report.in_short([verdict for verdict in every if verdict != failed]))
    if filled_in := report.lent({found: verdicts}):
        print(filled_in)
    if waiting := next((v for v in verdicts if v.word == "waiting"), None):
        print(f"  {waiting.facts[0]}")


def show_failure(chapter: str, name: str, source: str) -> None:
    """Print what one check says to a file with this text: lesson 00 shows a failure that way."""
    found = chapters.find(chapter)
    with TemporaryDirectory() as folder:
        Path(folder, found.exercise.name).write_text(source, "utf-8")
        [verdict] = _grader().grade(found, Path(folder), only=lambda check: check.name == name)
    print(report.failure(verdict, _grader().setting))


_grader()       # so that it imports torch while the notebook's own cell does
