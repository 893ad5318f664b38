"""Verdicts as data, for programs: what is written as JSON, and read again without believing it."""

import dataclasses
import json
import os
import types
import typing
from dataclasses import dataclass
from pathlib import Path

from grader.course import stubs
from grader.course.chapters import SOLUTIONS, Chapter
from grader.course.checks import Check
from grader.front.provenance import digest, made_with
from grader.judge.verdict import Verdict, Word
from grader.sandbox.reply import CodeLine
from grader.sandbox.setting import Setting

MAX_TEXT = 10_000           # characters of one text, such as what a submission printed
MAX_FACTS = 20


@dataclass(frozen=True)
class Asked:
    """A check, as data."""

    check: str              # its name, with the precision: "test_forward[float32]"
    file: str
    hidden: bool
    of_points: float
    rule: str
    hint: str

    @classmethod
    def of(cls, check: Check) -> "Asked":
        return cls(check.name, check.file, check.hidden, float(check.points), check.rule, " ".join(check.hint.split()))

    @property
    def function(self) -> str:
        return self.check.partition("[")[0]

    @property
    def dtype(self) -> str:
        """The precision that it is asked in, or ""."""
        return self.check.partition("[")[2].rstrip("]")


@dataclass(frozen=True)
class Line:
    """A line of what was handed in, with its text as it was when it was graded."""

    file: str
    line: int
    function: str
    text: str

    @classmethod
    def of(cls, line: CodeLine) -> "Line":
        text = stubs.line_of(line.file, line.line)
        return cls(line.file.name, line.line, clean(line.function, 200), clean(text, 300))


@dataclass(frozen=True)
class Result(Asked):
    """What came of a check, as data. Nothing of the reference's text is in it, and no text is endless."""

    verdict: Word
    mistake: str = ""
    facts: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()
    whole: bool = False     # it speaks of the file as a whole
    output: str = ""
    seconds: float = 0.0

    @classmethod
    def of(cls, verdict: Verdict) -> "Result":
        lines = tuple(Line.of(line) for line in verdict.lines if line.file.parent != SOLUTIONS)
        return cls(**vars(Asked.of(verdict.check)), verdict=verdict.word, mistake=verdict.mistake,
                   facts=tuple(map(clean, verdict.facts[:MAX_FACTS])), lines=lines, whole=verdict.whole,
                   output=clean(verdict.output), seconds=round(verdict.seconds, 3))

    @property
    def points(self) -> float:
        return self.of_points if self.verdict == Word.PASSED else 0.0


def to_json(value):
    """A dataclass, and what is in it, as JSON has it; a chapter is its stem."""
    if isinstance(value, Chapter):
        return value.stem
    if dataclasses.is_dataclass(value):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {name: to_json(part) for name, part in value.items()}
    return [to_json(part) for part in value] if isinstance(value, (list, tuple)) else value


def from_json(kind, value):
    """A value of this type; ValueError where JSON holds something else. What is no field of a class is left out."""
    outer, inner = typing.get_origin(kind), typing.get_args(kind)
    if outer is tuple and type(value) is list:
        return tuple(from_json(inner[0], part) for part in value)
    if outer is dict and type(value) is dict:
        return {name: from_json(inner[1], part) for name, part in value.items()}
    if outer is types.UnionType:        # None, or one other
        return None if value is None else from_json(inner[0], value)
    if kind in (Chapter, Word) and type(value) is str:
        return kind(value)
    if dataclasses.is_dataclass(kind) and type(value) is dict:
        names = {field.name: field.type for field in dataclasses.fields(kind)}
        if missing := [name for name in names if name not in value]:
            raise ValueError(f"{missing[0]} of a {kind.__name__} is missing")
        return kind(**{name: from_json(type_, value[name]) for name, type_ in names.items()})
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ValueError(f"this is no {getattr(kind, '__name__', kind)}: {str(value)[:80]!r}")
    return value


def clean(text: str, most: int = MAX_TEXT) -> str:
    """A stranger's text, cut, with no half of a character that cannot be written."""
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= most else text[:most] + " …"


def write_whole(path: Path, text: str) -> None:
    """Write a file that appears whole or not at all."""
    draft = path.with_name(path.name + ".part")
    draft.write_text(text, "utf-8")
    os.replace(draft, path)


def write_json(path: Path, results: dict[Chapter, list[Verdict]], setting: Setting, folder: Path) -> None:
    """Every verdict of a run of `check` on the files in a folder, and what it was made with."""
    every = [verdict for verdicts in results.values() for verdict in verdicts]
    content = {
        **made_with(), "device": setting.device, "seed": setting.seed, "timeout": setting.timeout,
        "submission": str(folder), "hashes": {c.stem: digest(folder / f"{c.stem}.py") for c in results},
        "seconds": round(sum(v.seconds for v in every), 3),
        "points": sum(v.points for v in every), "of_points": sum(v.check.points for v in every),
        "chapters": {chapter.stem: {"points": sum(v.points for v in verdicts),
                                    "of_points": sum(v.check.points for v in verdicts),
                                    "passed": sum(v.word == "passed" for v in verdicts),
                                    "checks": len(verdicts)} for chapter, verdicts in results.items()},
        "verdicts": [{"chapter": v.check.chapter, **to_json(result), "points": result.points}
                     for v, result in zip(every, map(Result.of, every))]}
    write_whole(path, json.dumps(content, indent=1) + "\n")
