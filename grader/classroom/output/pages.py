"""What is handed back: a page for each student, and one of the whole class for the instructor.

Each page is one file that asks for nothing else: no script, no font, no picture. Every text may be a
stranger's. It is escaped, its control characters are shown as codes, and its length is limited.
Of a hidden check a student sees the rule, and whether it passed: any more would be a line on which a submission that
knows what it is asked could send it out.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import jinja2
from markupsafe import Markup, escape

from grader.classroom.output import reflection
from grader.classroom.output.exports import file_names
from grader.classroom.output.gradebook import Gradebook
from grader.classroom.output.overrides import Override
from grader.classroom.output.similar import SHARE, shared_lines, similar, too_long
from grader.classroom.run.cells import Cell
from grader.classroom.term import view
from grader.course import stubs
from grader.course.chapters import Chapter
from grader.front import report
from grader.front.results import Line, Result, write_whole
from grader.judge.verdict import Word

MOST = 2_000                # characters of one text
FACTS = 5                   # of one failure that are shown
PRINTED = 3                 # lines of output that are shown
PAIRS = 30                  # pairs of submissions whose code is shown
SHOWN = 60                  # lines of each file of a pair


def write(out: Path, book: Gradebook, manifest: dict) -> None:
    """Write feedback/NAME.html for each student, and class.html, into a run's folder."""
    students = {name: sorted(book.students[name], key=lambda cell: cell.chapter)
                for name in sorted(book.students, key=lambda name: (name.casefold(), name))}
    pages, pen = {name: f"{file}.html" for name, file in file_names(students).items()}, _pen()
    (out / "feedback").mkdir(parents=True, exist_ok=True)
    feedback = pen.get_template("feedback.html")
    for name, own in students.items():
        write_whole(out / "feedback" / pages[name], feedback.render(
            student=name, chapters=[_chapter(cell, book) for cell in own], total=book.total(name),
            formula=book.grading.formula, plan=view.plan(name, book), seeds=sorted({cell.seed for cell in own}),
            manifest=manifest))
    write_whole(out / "class.html", pen.get_template("class.html").render(
        manifest=manifest, pages=pages, stems=book.chapters, total=book.sum(book.cells),
        rows=[{"student": name, "score": book.sum(own), "cells": {cell.chapter: cell for cell in own},
               "excused": {cell.chapter for cell in own if book.override(cell).excused},
               "scores": {cell.chapter: book.cell(cell) for cell in own}} for name, own in students.items()],
        chapters=[_class_chapter(chapter, students, book) for chapter in book.chapters],
        letters={word: word.letter for word in Word},
        mistakes=(mistakes := _mistakes(students)), weeks=view.weeks(book, mistakes), upcoming=view.upcoming(book),
        stuck=view.STUCK, look=_look(out, students), share=SHARE, decided=_decided(book),
        alike=_alike(out, students, book.chapters)))


def _pen() -> jinja2.Environment:
    pen = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True,
                             undefined=jinja2.StrictUndefined, finalize=_shown, trim_blocks=True, lstrip_blocks=True)
    pen.filters.update(prose=_prose, heat=_heat, title=report.title, tail=_tail,
                       points=lambda points: f"{round(points, 2):g}")
    return pen


def _shown(value, most: int = MOST):
    """A text as it may stand on a page: control characters as codes, and no more than `most` characters."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    text = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in value[:most].expandtabs(4))
    return text + (" …" if len(value) > most else "")


def _prose(text: str) -> Markup:
    """The course's own words: what stands between backticks is code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(_shown(text)))))


def _tail(output: str) -> str:
    """The end of what a submission printed."""
    return _shown("\n".join(line[:200] for line in output.strip()[-MOST:].split("\n")[-PRINTED:]))


def _heat(percent: int) -> int:
    """The colour of a cell, from 0 (hot: nothing) to 5 (calm: everything)."""
    return 5 if percent >= 100 else percent // 20


# -- a student's page ----------------------------------------------------------------------------

@dataclass
class Card:
    """A failure of a visible check, in all precisions in which it is the same, and what likely has its cause."""

    result: Result
    lines: list[Line]
    kinds: list[str] = field(default_factory=list)
    alike: list["Card"] = field(default_factory=list)

    @property
    def facts(self) -> tuple[str, ...]:
        return self.result.facts[:FACTS]

    @property
    def cause(self) -> tuple:
        """What it has in common with others of its cause: the mistake, or the same exception on the same line."""
        result = self.result
        if result.mistake:
            return (result.mistake,)
        if self.lines and result.facts:
            return result.facts[0].partition(":")[0], *self.lines
        return result.function, result.verdict


class Rule(NamedTuple):
    """What verdicts are about, once, and how many say it."""

    rule: str
    hidden: bool
    times: int


def _chapter(cell: Cell, book: Gradebook) -> dict:
    """One chapter of a student's page."""
    parts = [result for result in cell.verdicts if not result.whole]
    whole = [result for result in cell.verdicts if result.whole and not result.hidden][:1]
    bad = [result for result in parts if not result.hidden and not result.verdict.fine]
    return {"cell": cell, "chapter": cell.chapter, "score": book.cell(cell), "words": _words(cell),
            "override": book.override(cell), "asked": book.asked(cell), "late": view.late(cell, book),
            "whole": _cards(whole, cell.chapter),
            "cards": _cards(bad, cell.chapter),
            "hidden": _rules(result for result in cell.verdicts if result.hidden and result.verdict != Word.PASSED),
            "todo": _rules(result for result in parts
                           if not result.hidden and result.verdict in (Word.TODO, Word.WAITING)),
            "passed": _rules(result for result in cell.verdicts if result.verdict == Word.PASSED)}


def _cards(results: list[Result], chapter: Chapter) -> list[Card]:
    """Failures of visible checks, each thing once: what has the same cause stands below the first of its kind."""
    checks: dict[tuple, Card] = {}
    for result in results:
        card = checks.setdefault((result.function, result.verdict, result.mistake),
                                 Card(result, _telling(result.lines, chapter)))
        card.kinds += [result.dtype] if result.dtype else []
    cards: dict[tuple, Card] = {}
    for card in checks.values():
        first = cards.setdefault(card.cause, card)
        if first is not card:
            first.alike.append(card)
    return list(cards.values())


def _telling(lines: Sequence[Line], chapter: Chapter) -> list[Line]:
    """The last line in the graded file, and the deepest one where that is another of the student's."""
    own = [line for line in lines if line.file == f"{chapter.stem}.py"][-1:]
    return own + [line for line in lines[-1:] if line not in own]


def _rules(results: Iterable[Result]) -> list[Rule]:
    """What these verdicts are about, each rule once."""
    counts = Counter((result.rule, result.hidden) for result in results)
    return [Rule(*about, times) for about, times in counts.items()]


def _words(cell: Cell) -> str:
    """A cell in words: "all passed", or how many checks got which verdict."""
    if cell.missing:
        return "not handed in"
    if any(result.whole and not result.hidden for result in cell.verdicts):
        return "the file could not be checked"
    if all(result.verdict == Word.PASSED for result in cell.verdicts):
        return f"all {len(cell.verdicts)} checks passed"
    count = Counter(result.verdict for result in cell.verdicts if not result.hidden)
    many = {word: f"{word}s" for word in (Word.ERROR, Word.TIMEOUT) if count[word] > 1}
    words = [f"{count[word]} {many.get(word, word.label)}" for word in Word if count[word]]
    hidden = [result.verdict == Word.PASSED for result in cell.verdicts if result.hidden]
    return ", ".join(words + [f"{sum(hidden)} of {len(hidden)} hidden ones passed"] * bool(hidden))


# -- the class ------------------------------------------------------------------------------------

@dataclass
class Question:
    """A check over the class, in all its precisions: who got what."""

    number: int
    asked: Result
    got: dict[str, Word] = field(default_factory=dict)      # by student; the first precision that failed speaks

    @property
    def count(self) -> Counter:
        return Counter(self.got.values())

    @property
    def not_passed(self) -> int:
        return len(self.got) - self.count[Word.PASSED]

    @property
    def rate(self) -> int:
        """Per cent that did not pass."""
        return round(100 * self.not_passed / len(self.got))


def _class_chapter(chapter: Chapter, students: dict[str, list[Cell]], book: Gradebook) -> dict:
    """A chapter's checks over the class: who got what, and the share of those asked that did not pass.

    A file that no check could be asked of is a failure of its own, and not one of each check.
    """
    every = {name: cell for name, own in students.items() for cell in own if cell.chapter == chapter}
    graded = {name: cell for name, cell in every.items() if not cell.missing}
    asked = {name: cell for name, cell in graded.items()
             if not any(result.whole and not result.hidden for result in cell.verdicts)}
    checks: dict[tuple, Question] = {}
    for name, cell in asked.items():
        for result in (result for result in cell.verdicts if not result.whole):
            check = checks.setdefault((result.hidden, result.function), Question(len(checks) + 1, result))
            if check.got.get(name, Word.PASSED) == Word.PASSED:
                check.got[name] = result.verdict
    return {"chapter": chapter, "graded": list(graded), "asked": asked.keys(), "missing": len(every) - len(graded),
            "checks": list(checks.values()), "score": book.sum(graded.values())}


def _mistakes(students: dict[str, list[Cell]]) -> list[dict]:
    """The named mistakes: who made each, in which chapter; the most frequent first."""
    made: dict[tuple[Chapter, str], dict[str, None]] = defaultdict(dict)
    for name, own in students.items():
        for cell in own:
            for result in cell.verdicts:
                for mistake in result.mistake.splitlines():
                    made[cell.chapter, mistake][name] = None
    return [{"chapter": chapter, "mistake": words, "students": list(names)}
            for (chapter, words), names in sorted(made.items(), key=lambda item: (-len(item[1]), item[0]))]


def _decided(book: Gradebook) -> list[dict]:
    """What persons have decided, and why."""
    return [{"student": cell.student, "chapter": cell.chapter, "what": str(override) or "a comment",
             "why": override.reason or override.comment}
            for cell in book.cells if (override := book.override(cell)) != Override()]


def _look(out: Path, students: dict[str, list[Cell]]) -> list[dict]:
    """What a person should look at: files with other names, without an answer, or with lines that may hide a use."""
    found = []
    for name, own in students.items():
        for cell in own:
            if cell.whole or cell.note:
                found.append({"student": name, "chapter": cell.chapter,
                              "word": cell.whole.verdict if cell.whole else cell.state,
                              "why": cell.note or " ".join(cell.whole.facts)})
            for file, number, line in reflection.lines(out / "submissions" / name, cell.chapter):
                found.append({"student": name, "chapter": cell.chapter, "word": "reflection",
                              "why": f"{file} line {number}: {line}" if number else f"{file}: {line}"})
    return found


def _alike(out: Path, students: dict[str, list[Cell]], chapters: list[Chapter]) -> dict:
    """Pairs whose files look alike, all their chapters together; the code of the first PAIRS. Files not compared."""
    pairs: dict[tuple[str, str], list[dict]] = defaultdict(list)
    left_out = []
    for chapter in chapters:
        files = {name: path for name in students
                 if (path := out / "submissions" / name / f"{chapter.stem}.py").is_file()}
        left_out += [{"student": name, "chapter": chapter} for name, path in files.items() if too_long(path)]
        for one, other, share in similar(files, chapter):
            pairs[one, other].append({"chapter": chapter, "share": share, "files": (files[one], files[other])})
    ranked = sorted(pairs.items(), key=lambda pair: (-sum(found["share"] for found in pair[1]), pair[0]))
    for _, found in ranked[:PAIRS]:
        for both in found:
            both["code"] = [_excerpt(file, lines) for file, lines in
                            zip(both["files"], shared_lines(*both["files"], both["chapter"]))]
    return {"pairs": ranked[:PAIRS], "more": len(ranked[PAIRS:]), "left_out": left_out}


def _excerpt(file: Path, shared: list[int]) -> list[dict]:
    """The lines of a file that another one shares, with a line of its own before and after each run."""
    lines, marked = stubs.text_of(file.read_bytes()).split("\n"), set(shared)
    near = [n for n in range(1, len(lines) + 1) if marked & {n - 1, n, n + 1}][:SHOWN]
    return [{"number": n, "text": _shown(lines[n - 1], 200), "shared": n in marked, "gap": n - 1 not in near}
            for n in near]
