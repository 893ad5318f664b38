"""What people write: faults as they were met in public code, each as a student would write it.

people/exNN_name.toml holds them. `code` is the part as it was written: its functions stand in place of the
solution's, its methods in place of the class's. `told` are regular expressions of which the screen has to say one,
in the sentence, the rule, what differs or the hint: it names this very cause. `code` with two faults in it has the
words of both.
"""

import ast
import contextlib
import itertools
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from grader.course.chapters import Chapter
from grader.judge.engine import Grader
from grader.judge.verdict import Verdict
from tests.course.checks.touched import ASK_ALL, lines_of_checks

FOLDER = Path(__file__).with_name("people")


@dataclass(frozen=True)
class Fault:
    """A file with what somebody wrote in it, and the words of which one has to be said."""

    habit: str
    source: str
    parts: frozenset[str]       # the top-level names that are written otherwise
    lines: frozenset[int]       # of the solution: the bodies that others stand in place of
    told: tuple[str, ...]

    def fits(self, words: str) -> bool:
        return any(re.search(pattern, " ".join(words.split()), re.I) for pattern in self.told)


def faults(chapter: Chapter) -> list[Fault]:
    """Each fault alone, and with SEEDS above 1 then those of different parts two by two."""
    path = FOLDER / f"{chapter.stem}.toml"
    if not path.exists():
        return []
    solution = chapter.solution.read_text("utf-8")
    entries = tomllib.loads(path.read_text("utf-8"))["fault"]
    alone = [_fault(solution, entry["habit"], [entry["code"]], entry["told"]) for entry in entries]
    pairs, free = [], set(range(len(entries)) if ASK_ALL else ())
    for i, j in itertools.combinations(range(len(entries)), 2):
        if {i, j} <= free and not alone[i].parts & alone[j].parts:
            free -= {i, j}
            both = entries[i], entries[j]
            pairs.append(_fault(solution, " + ".join(entry["habit"] for entry in both),
                                [entry["code"] for entry in both], sum((entry["told"] for entry in both), [])))
    return alone + pairs


def _fault(solution: str, habit: str, codes: list[str], told: list[str]) -> Fault:
    tree, parts, lines = ast.parse(solution), set(), set()
    for node in (node for code in codes for node in ast.parse(code).body):
        name = getattr(node, "name", None)
        old = next((other for other in tree.body if name and getattr(other, "name", None) == name), None)
        if old is None:         # an import, a helper: before all that may use it
            first = next(i for i, other in enumerate(tree.body)
                         if isinstance(other, (ast.FunctionDef, ast.ClassDef)))
            tree.body.insert(first, node)
            continue
        parts.add(name)
        if isinstance(node, ast.ClassDef) and isinstance(old, ast.ClassDef):
            written = {inner.name: inner for inner in node.body if isinstance(inner, ast.FunctionDef)}
            gone = [inner for inner in old.body if getattr(inner, "name", None) in written]
            kept = [inner for inner in old.body if inner not in gone]
            lines |= _lines(*gone) if len(gone) == len(written) else _lines(old)
            old.body = kept + list(written.values())
        else:
            tree.body[tree.body.index(old)] = node
            lines |= _lines(old)
    return Fault(habit, ast.unparse(tree), frozenset(parts), frozenset(lines), tuple(told))


def _lines(*nodes: ast.FunctionDef | ast.ClassDef) -> set[int]:
    """Of their bodies: the line of a def is run by every import."""
    return {line for node in nodes for line in range(node.body[0].lineno, node.end_lineno + 1)}


@dataclass
class Screen:
    """What somebody with a fault reads."""

    fault: Fault
    told: bool                  # the first failure names the cause
    wrong: list[str]            # sentences that name another
    first: Verdict | None       # None: no visible check sees it


def screen(grader: Grader, chapter: Chapter, fault: Fault, folder: Path) -> Screen:
    """Grade a fault as a student's file; what it cannot change is not asked.

    It is asked until a check fails, as a student is shown one; with SEEDS above 1 to the end, and all is named.
    """
    folder.mkdir(parents=True)
    (folder / f"{chapter.stem}.py").write_text(fault.source, "utf-8")

    run = lines_of_checks(chapter)
    may = {check for check in run if run[check] & fault.lines} or set(run)
    visible = [check for check in grader.checks(chapter) if not check.lacking]
    with contextlib.closing(grader.submission(chapter, folder)) as candidate:
        verdicts = (grader.verdict(candidate, check, visible) for check in visible if ASK_ALL or check in may)
        failed = [*itertools.islice((verdict for verdict in verdicts if not verdict.word.fine), None if ASK_ALL else 1)]
    if not failed:
        return Screen(fault, False, [], None)
    first = failed[0]
    words = first.mistake or f"{first.check.rule} {' '.join(first.facts)} {first.check.hint}"
    wrong = sorted({words for verdict in failed for words in verdict.mistake.splitlines() if not fault.fits(words)})
    return Screen(fault, fault.fits(words) and not wrong, wrong, first)
