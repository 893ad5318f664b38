"""Verdicts as data, for programs."""

import json
import linecache
import os
from pathlib import Path

from grader.course.chapters import SOLUTIONS, Chapter
from grader.course.checks import Check
from grader.front.provenance import digest, made_with
from grader.judge.verdict import Verdict
from grader.sandbox.setting import Setting

MAX_TEXT = 10_000           # characters of one text, such as what a submission printed
MAX_FACTS = 20


def of_check(check: Check) -> dict:
    """A check, as data."""
    return {"check": check.name, "file": check.file, "hidden": check.hidden, "of_points": float(check.points),
            "rule": check.rule, "hint": " ".join(check.hint.split())}


def of_verdict(verdict: Verdict) -> dict:
    """A verdict, as data. Nothing of the reference's text is in it, and no text is endless."""
    lines = []
    for line in verdict.lines:
        if line.file.parent != SOLUTIONS:
            linecache.checkcache(str(line.file))
            lines.append({"file": line.file.name, "line": line.line, "function": clean(line.function, 200),
                          "text": clean(linecache.getline(str(line.file), line.line).strip(), 300)})
    return {**of_check(verdict.check), "verdict": verdict.word, "points": float(verdict.points),
            "mistake": verdict.mistake, "facts": [clean(fact) for fact in verdict.facts[:MAX_FACTS]],
            "lines": lines, "whole": verdict.whole, "output": clean(verdict.output),
            "seconds": round(verdict.seconds, 3)}


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
        "verdicts": [{"chapter": v.check.chapter, **of_verdict(v)} for v in every]}
    write_whole(path, json.dumps(content, indent=1) + "\n")
