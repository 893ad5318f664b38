"""Verdicts as text and as JSON. Words come first; colour only repeats them."""

import json
import linecache
import os
import textwrap
from pathlib import Path

from grader.chapters import EXERCISES, ROOT, Chapter
from grader.engine import FINE, Verdict
from grader.submission import Setting

WIDTH = 88
LINES = 20                  # a failure fits in so many
BAR = 12                    # cells of the board's bar


def failure(verdict: Verdict, setting: Setting, folder: Path | None = None) -> str:
    """One verdict explained: rule, difference, likely mistake, hint, and how to repeat it."""
    check = verdict.check
    parts = [("rule", check.rule, 3)]
    parts += [("" if i else verdict.word, fact, 4) for i, fact in enumerate(verdict.facts[:5])]
    if verdict.frames:
        parts.append(("line", _frame(verdict.frames[-1]), 2))
    if verdict.mistake:
        parts.append(("likely", verdict.mistake, 5))
    elif check.hint:
        parts.append(("hint", " ".join(check.hint.split()), 5))
    if verdict.output.strip():
        parts.append(("printed", _tail(verdict.output), 3))
    parts.append(("again", again(verdict, setting, folder), 1))
    title = f"{check.chapter} · {check.name} · {verdict.word}"
    lines = [title, *(line for part in parts for line in _labelled(*part))]
    if len(lines) > LINES:      # the middle of a long story goes; how to repeat it stays
        lines = [*lines[:LINES - 2], "          …", lines[-1]]
    return "\n".join(lines)


def _labelled(label: str, text: str, most: int) -> list[str]:
    """A label and its text, wrapped beside it."""
    if label == "again":
        return [f"  {label:<8}{text}"]
    lines = [line for piece in _printable(text).split("\n")
             for line in textwrap.wrap(piece, WIDTH - 10, break_on_hyphens=False) or [""]]
    if len(lines) > most:
        lines = lines[:most - 1] + [lines[most - 1][:WIDTH - 12] + " …"]
    return [f"  {label if i == 0 else '':<8}{line}" for i, line in enumerate(lines)]


def _printable(text: str) -> str:
    """No control characters: a submission's words must not move the cursor or colour the screen."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text.expandtabs(4))


def _frame(frame: dict) -> str:
    path, number = Path(frame["file"]), frame["line"]
    line = linecache.getline(str(path), number).strip()
    name = shown(path) if path.is_relative_to(ROOT) else path.name
    return f"{name}:{number}, in {frame['function']}:\n    {line[:WIDTH - 16]}"


def _tail(output: str) -> str:
    lines = [line if len(line) < 70 else line[:66] + " …" for line in output.strip().splitlines()]
    return "\n".join(lines[-3:])


def shown(path: Path) -> str:
    """A path as a person would type it: relative to the course where it lies inside."""
    try:
        return path.resolve().relative_to(ROOT).as_posix()
    except ValueError:
        return str(path)


def again(verdict: Verdict, setting: Setting, folder: Path | None) -> str:
    """The one command that repeats a check under a debugger."""
    check = verdict.check
    where = shown(Chapter(check.chapter).tests(check.hidden))
    options = f" --submission {shown(folder)}" if folder else ""
    options += f" --device {setting.device}" if setting.device != "cpu" else ""
    options += f" --seed {setting.seed}" if setting.seed else ""
    return f'pytest "{where}::{check.name}"{options} --in-process --pdb'


def words(verdicts: list[Verdict]) -> str:
    """A chapter in words: "all passed", or how many of what."""
    count: dict[str, int] = {}
    for verdict in verdicts:
        count[verdict.word] = count.get(verdict.word, 0) + 1
    if count.keys() == {"passed"}:
        return "all passed"
    names = {"todo": "to do"}
    order = ["wrong", "error", "forbidden", "timeout", "crashed", "waiting", "todo"]
    return ", ".join(f"{count[w]} {names.get(w, w)}" for w in order if w in count)


def row(chapter: Chapter, verdicts: list[Verdict]) -> str:
    """The board's line of a chapter: name, bar, passed / asked, words."""
    passed = sum(v.word == "passed" for v in verdicts)
    full = BAR * passed // max(1, len(verdicts))
    bar = "█" * full + "░" * (BAR - full)
    name = f"{chapter.number} {chapter.name.replace('_', ' ')}"
    return f"{name:<28} {bar} {passed:>3} / {len(verdicts):<3} {words(verdicts)}"


def first_failure(verdicts: list[Verdict]) -> Verdict | None:
    return next((verdict for verdict in verdicts if verdict.word not in FINE), None)


def next_step(results: dict[Chapter, list[Verdict]], folder: Path | None = None) -> str:
    """What to do next, in a sentence."""
    folder = folder or EXERCISES
    for chapter, verdicts in results.items():
        if first_failure(verdicts):
            return (f"Next: mend {shown(folder / chapter.stem)}.py, then check again "
                    f"(python -m grader check {chapter.number}).")
    for chapter, verdicts in results.items():
        if any(verdict.word == "todo" for verdict in verdicts):
            return (f"Next: read notebooks/{chapter.notebook.name} and write "
                    f"{shown(folder / chapter.stem)}.py.")
    for chapter, verdicts in results.items():
        if any(verdict.word == "waiting" for verdict in verdicts):
            return f"Next: {chapter.stem} waits for an earlier chapter; finish that one first."
    return "Everything asked has passed."


def board(results: dict[Chapter, list[Verdict]], setting: Setting, folder: Path | None) -> str:
    """What stands under the board's rows: the first failure in full, then what to do next."""
    every = [verdict for verdicts in results.values() for verdict in verdicts]
    failed = [verdict for verdict in every if verdict.word not in FINE]
    said = f"{sum(v.word == 'passed' for v in every)} of {len(every)} checks passed, " \
           f"{sum(v.points for v in every)} of {sum(v.check.points for v in every)} points."
    if failed:
        rest = f"\n(and {len(failed) - 1} more below it)" if len(failed) > 1 else ""
        said += f"\n\n{failure(failed[0], setting, folder)}{rest}"
    return f"{said}\n\n{next_step(results, folder)}"


def write_json(path: Path, results: dict[Chapter, list[Verdict]], setting: Setting) -> None:
    """Every verdict, for programs; the file appears whole or not at all."""
    every = [verdict for verdicts in results.values() for verdict in verdicts]
    content = {
        "device": setting.device, "seed": setting.seed, "timeout": setting.timeout,
        "points": sum(v.points for v in every),
        "of_points": sum(v.check.points for v in every),
        "verdicts": [{
            "chapter": v.check.chapter, "check": v.check.name, "hidden": v.check.hidden,
            "verdict": v.word, "points": v.points, "of_points": v.check.points,
            "rule": v.check.rule, "facts": v.facts, "mistake": v.mistake,
            "output": v.output, "seconds": round(v.seconds, 3)} for v in every]}
    draft = path.with_name(path.name + ".part")
    draft.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    os.replace(draft, path)
