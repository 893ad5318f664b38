"""Verdicts as text. Words come first; colour only repeats them."""

import re
import textwrap
from collections import Counter
from pathlib import Path

from grader.course import chapters, stubs
from grader.course.chapters import EXERCISES, ROOT, SOLUTIONS, Chapter, needs, shown
from grader.judge.verdict import Verdict, Word
from grader.sandbox.reply import CodeLine
from grader.sandbox.setting import Setting

WIDTH = 88
LINES = 20                  # a failure fits in so many,
FACTS = 5                   # with so many of its facts at most
CUT = 4_000                 # characters of a text that are looked at before it is wrapped
BAR = 12                    # cells of the board's bar


def failure(verdict: Verdict, setting: Setting, folder: Path | None = None) -> str:
    """One verdict explained: rule, difference, likely mistake, hint, and how to repeat it."""
    for facts in range(FACTS, 0, -1):       # the first differences say most: what is likely must not fall off
        lines = _explained(verdict, setting, folder, facts)
        if len(lines) <= LINES:
            break
    else:                       # the middle of a long story goes; how to repeat it stays
        lines = [*lines[:LINES - 2], "          …", lines[-1]]
    return "\n".join(lines)


def _explained(verdict: Verdict, setting: Setting, folder: Path | None, facts: int) -> list[str]:
    check, parts = verdict.check, []
    if verdict.whole:
        title = f"{check.chapter} · the whole file · {verdict.word}"
    else:
        title = f"{check.chapter} · {check.name} · {verdict.word}"
        parts.append(("rule", check.rule, 3))
    parts += [("" if i else verdict.word, fact, 4) for i, fact in enumerate(verdict.facts[:facts])]
    parts += [("" if i else "line", _line(frame), 3)
              for i, frame in enumerate(_telling(verdict.lines, check.chapter))]
    if verdict.whole:
        parts.append(("", "No check was asked.", 1))
    elif verdict.mistake:
        parts += [("and" if i else "likely", words, 5) for i, words in enumerate(verdict.mistake.split("\n"))]
    elif check.hint and verdict.word != Word.FORBIDDEN:     # it speaks of another thing
        parts.append(("hint", " ".join(check.hint.split()), 5))
    if verdict.output.strip():
        parts.append(("printed", _tail(verdict.output), 3))
    if not verdict.whole:
        parts.append(("again", again(verdict, setting, folder), 1))
    return [title, *(line for part in parts for line in _labelled(*part))]


def in_short(verdicts: list[Verdict]) -> str:
    """Failures of one chapter in short: what each says, once, and the checks that say it."""
    said: dict[str, list[str]] = {}
    for verdict in verdicts:
        what = _printable((verdict.mistake or " ".join(verdict.facts))[:CUT])
        name = "the whole file" if verdict.whole else verdict.check.name
        said.setdefault(f"{verdict.word}: {what}", []).append(name)
    lines = []
    for what, names in said.items():
        words = textwrap.wrap(" ".join(what.split()), WIDTH - 4)
        cut = [words[0], f"{words[1][:WIDTH - 6]} …"] if len(words) > 2 else words
        lines += [f"  {line}" for line in cut]
        lines += [f"      {line}" for line in textwrap.wrap(", ".join(names), WIDTH - 8)]
    return "\n".join(lines)


def _labelled(label: str, text: str, most: int) -> list[str]:
    """A label and its text, wrapped beside it; indented lines are code and stay as they are."""
    if label == "again":
        return [f"  {label:<8}{text}"]
    lines = []
    for piece in _printable(text[:CUT]).split("\n"):
        if piece.startswith("    "):
            lines.append(piece if len(piece) <= WIDTH - 10 else piece[:WIDTH - 12] + " …")
        else:
            lines += textwrap.wrap(piece, WIDTH - 10, break_on_hyphens=False) or [""]
    if len(lines) > most:
        lines = lines[:most - 1] + [lines[most - 1][:WIDTH - 12] + " …"]
    return [f"  {f'{label} ' if i == 0 else '':<8}{line}" for i, line in enumerate(lines)]


def _printable(text: str) -> str:
    """No control characters: a submission's words must not move the cursor or colour the screen."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text.expandtabs(4))


def _telling(frames: tuple[CodeLine, ...], chapter: str) -> list[CodeLine]:
    """The last line in the graded file, and the deepest one where that is another file of the student's."""
    own = [frame for frame in frames if frame.file.stem == chapter and frame.file.parent != SOLUTIONS]
    last = [frame for frame in frames[-1:] if frame.file.parent != SOLUTIONS]
    return list(dict.fromkeys([*own[-1:], *last])) or list(frames[-1:])


def _line(frame: CodeLine) -> str:
    """Where a line is and what it says, as it stands in the file now."""
    name = shown(frame.file) if frame.file.is_relative_to(ROOT) else frame.file.name
    where = f"{name}:{frame.line}" + (f", in {frame.function}" if frame.function else "")
    return f"{where}:\n    {stubs.line_of(frame.file, frame.line)}"


def _tail(output: str) -> str:
    lines = [line if len(line) < 70 else line[:66] + " …" for line in output.strip().splitlines()]
    return "\n".join(lines[-3:])


def again(verdict: Verdict, setting: Setting, folder: Path | None) -> str:
    """The one command that repeats a check under a debugger."""
    check = verdict.check
    options = f" --submission {_quoted(shown(folder))}" if folder else ""
    options += f" --device {setting.device}" if setting.device != "cpu" else ""
    options += f" --seed {setting.seed}" if setting.seed else ""
    return f'pytest "{check.file}::{check.name}"{options} --in-process --pdb'


def _quoted(path: str) -> str:
    """As every shell takes it, those of Windows too; plain where it may be."""
    return path if re.fullmatch(r"[\w./:\\-]+", path, re.A) else f'"{path}"'


def words(verdicts: list[Verdict]) -> str:
    """A chapter in words: "all passed", or how many of what."""
    count = Counter(verdict.word for verdict in verdicts)
    if count.keys() == {Word.PASSED}:
        return "all passed"
    if given(verdicts):
        return "given"
    if verdicts and verdicts[0].whole:
        return {"forbidden": "the file uses what is to be written", "missing": "not handed in"}.get(
            verdicts[0].word, "the file cannot be loaded")
    return ", ".join(f"{count[word]} {word.label}" for word in Word if word in count and word != Word.PASSED)


def given(verdicts: list[Verdict]) -> bool:
    """Whether a students' edition gives this chapter's solution, and nothing was written in its place."""
    return chapters.STUBS.is_dir() and bool(verdicts) and all(
        verdict.word == Word.TODO and Chapter(verdict.check.chapter).solution.exists() for verdict in verdicts)


def row(chapter: Chapter, verdicts: list[Verdict]) -> str:
    """The board's line of a chapter: name, bar, passed / asked, words."""
    passed = sum(v.word == "passed" for v in verdicts)
    full = BAR * passed // max(1, len(verdicts))
    bar = "█" * full + "░" * (BAR - full)
    return f"{title(chapter):<28} {bar} {passed:>3} / {len(verdicts):<3} {words(verdicts)}"


def title(chapter: Chapter) -> str:
    """A chapter in words: "10 grouped query attention"."""
    return f"{chapter.number} {chapter.name.replace('_', ' ')}"


def first_failure(verdicts: list[Verdict]) -> Verdict | None:
    return next((verdict for verdict in verdicts if not verdict.word.fine), None)


def next_step(results: dict[Chapter, list[Verdict]], folder: Path | None = None) -> str:
    """What to do next, in a sentence."""
    folder = folder or EXERCISES
    for chapter, verdicts in results.items():
        if first_failure(verdicts):
            return (f"Next: mend {shown(folder / chapter.stem)}.py, then check again "
                    f"(python -m grader check {chapter.number}).")
    todo = [chapter for chapter, verdicts in results.items() if any(verdict.word == "todo" for verdict in verdicts)]
    if todo:
        chapter = min(todo, key=lambda chapter: given(results[chapter]))
        return f"Next: read notebooks/{chapter.notebook.name} and write {shown(folder / chapter.stem)}.py."
    for chapter, verdicts in results.items():
        if waiting := [verdict for verdict in verdicts if verdict.word == "waiting"]:
            return f"Next: {chapter.stem} waits, and {waiting[0].facts[0]}."
    return "Everything asked has passed."


def board(results: dict[Chapter, list[Verdict]], setting: Setting, folder: Path | None,
          every: bool = False) -> str:
    """What stands under the board's rows: the first failure in full, then what to do next.

    every: all failures in short, below the first.
    """
    verdicts = [verdict for chapter in results.values() if not given(chapter) for verdict in chapter]
    failed = sorted(failures(verdicts), key=lambda verdict: verdict.word == "missing")     # rows say that already
    said = f"{sum(v.word == 'passed' for v in verdicts)} of {len(verdicts)} checks passed, " \
           f"{total(v.points for v in verdicts)} of {total(v.check.points for v in verdicts)} points."
    if folder:
        said += f" (These inputs again: --seed {setting.seed})"
    elif filled_in := lent(results):
        said += f"\n{filled_in}"
    if failed:
        said += f"\n\n{failure(failed[0], setting, folder)}"
    if every:
        for chapter in results:
            if mine := [verdict for verdict in failed if verdict.check.chapter == chapter.stem]:
                said += f"\n\n{chapter.stem}\n{in_short(mine)}"
    elif len(failed) > 1:
        said += f"\n(and {len(failed) - 1} more: python -m grader check --all lists them)"
    return f"{said}\n\n{next_step(results, folder)}"


def lent(results: dict[Chapter, list[Verdict]]) -> str:
    """Of files in a student's own folder, what was filled in for these verdicts; "" where that is nothing."""
    asked = [chapter for chapter, verdicts in results.items() if any(verdict.word != "todo" for verdict in verdicts)]
    used = {*asked, *(other for chapter in asked for other in needs(chapter))}
    return "\n".join(textwrap.wrap(stubs.lent(sorted(used)), WIDTH))


def total(points) -> str:
    """A sum of points, which may be shares."""
    return f"{round(sum(points), 2):g}"


def failures(verdicts: list[Verdict]) -> list[Verdict]:
    """What is wrong; a file that cannot be loaded counts once, and not for each of its checks."""
    found = [verdict for verdict in verdicts if not verdict.word.fine]
    seen = set()
    return [v for v in found if not v.whole or not (v.check.chapter in seen or seen.add(v.check.chapter))]
