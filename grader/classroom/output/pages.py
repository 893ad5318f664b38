"""What is handed back: a page for each student, and one of the whole class for the instructor.

Each page is one file that asks for nothing else: no script, no font, no picture. Every text may be a
stranger's. It is escaped, its control characters are shown as codes, and its length is limited.
Of a hidden check a student sees the verdict and the rule, and nothing that was asked or answered.
"""

import hashlib
import re
from collections import Counter, defaultdict
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from grader.classroom.output.similar import SHARE, shared_lines, similar, too_long
from grader.course.chapters import Chapter
from grader.front import report
from grader.front.results import write_whole
from grader.judge.verdict import Word

MOST = 2_000                # characters of one text
FACTS = 5                   # of one failure that are shown
PRINTED = 3                 # lines of output that are shown
PAIRS = 30                  # pairs of submissions whose code is shown
SHOWN = 60                  # lines of each file of a pair


def write(out: Path, cells: list[dict], manifest: dict) -> None:
    """Write feedback/NAME.html for each student of these cells, and class.html, into a run's folder."""
    students = defaultdict(list)
    for cell in sorted(cells, key=lambda cell: (cell["student"].casefold(), cell["student"], cell["chapter"])):
        students[cell["student"]].append({**cell, "chapter": Chapter(cell["chapter"])})
    pages, pen = file_names(students), _pen()
    (out / "feedback").mkdir(parents=True, exist_ok=True)
    feedback = pen.get_template("feedback.html")
    for name, own in students.items():
        write_whole(out / "feedback" / pages[name], feedback.render(
            student=name, chapters=[_chapter(cell) for cell in own], **_sum(own)))
    chapters = sorted({cell["chapter"] for own in students.values() for cell in own})
    write_whole(out / "class.html", pen.get_template("class.html").render(
        manifest=manifest, pages=pages, stems=chapters, total=_sum(sum(students.values(), [])),
        rows=[{"student": name, **_sum(own), "cells": {cell["chapter"]: cell for cell in own}}
              for name, own in students.items()],
        chapters=[_class_chapter(chapter, students) for chapter in chapters],
        letters={word: word.letter for word in Word},
        mistakes=_mistakes(students), look=_look(students), alike=_alike(out, students, chapters), share=SHARE))


def file_names(students) -> dict[str, str]:
    """The name of each student's page: their own, with a mark where a file system might not keep it apart."""
    names: dict[str, str] = {}
    for student in students:
        safe = re.sub(r"[^\w.@; -]", "_", student).encode()[:150].decode("utf-8", "ignore").strip(". ")
        if safe != student or safe.casefold() in map(str.casefold, names):
            safe += f"-{hashlib.sha256(student.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
        names[student] = f"{safe}.html"
    return names


def _pen() -> jinja2.Environment:
    pen = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True,
                             undefined=jinja2.StrictUndefined, finalize=_shown, trim_blocks=True, lstrip_blocks=True)
    pen.filters.update(prose=_prose, percent=_percent, heat=_heat, title=report.title, tail=_tail,
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


def _percent(cell: dict) -> int:
    """Points out of a hundred, rounded down, so that only all of them are 100."""
    return int(100 * cell["points"] / cell["of_points"] + 1e-9) if cell["of_points"] else 0


def _heat(percent: int) -> int:
    """The colour of a cell, from 0 (hot: nothing) to 5 (calm: everything)."""
    return 5 if percent >= 100 else percent // 20


def _sum(cells: list[dict]) -> dict:
    return {key: sum(cell[key] for cell in cells) for key in ("points", "of_points")}


# -- a student's page ----------------------------------------------------------------------------

def _chapter(cell: dict) -> dict:
    """One chapter of a student's page."""
    verdicts = cell["verdicts"]
    open_, hidden = ([v for v in verdicts if v["hidden"] == kind] for kind in (False, True))
    whole = [v for v in (*open_, *hidden) if v["whole"]][:1]
    cards = _cards([v for v in open_ if not v["whole"] and not Word(v["verdict"]).fine], cell["chapter"])
    return {**cell, "words": _words(cell), "whole": _cards(whole, cell["chapter"]), "cards": cards,
            "hidden": _rules(v for v in hidden if not v["whole"] and not Word(v["verdict"]).fine),
            "todo": _rules(v for v in verdicts if v["verdict"] in ("todo", "waiting")),
            "passed": _rules(v for v in verdicts if v["verdict"] == "passed")}


def _cards(verdicts: list[dict], chapter: Chapter) -> list[dict]:
    """Failures of visible checks, each thing once: what has the same cause stands below the first of its kind."""
    checks: dict[tuple, dict] = {}
    for verdict in verdicts:
        name, _, kind = verdict["check"].rstrip("]").partition("[")
        check = checks.setdefault((name, verdict["verdict"], verdict["mistake"]), {
            **verdict, "function": name, "kinds": [], "alike": [], "facts": verdict["facts"][:FACTS],
            "lines": _telling(verdict["lines"], chapter)})
        check["kinds"] += [kind] if kind else []
    cards: dict[tuple | str, dict] = {}
    for key, check in checks.items():
        cause = key
        if check["mistake"]:
            cause = check["mistake"]
        elif check["lines"] and check["facts"]:     # the same exception on the same line
            cause = check["facts"][0].partition(":")[0], str(check["lines"])
        first = cards.setdefault(cause, check)
        if first is not check:
            first["alike"].append(check)
    return list(cards.values())


def _telling(lines: list[dict], chapter: Chapter) -> list[dict]:
    """The last line in the graded file, and the deepest one where that is another of the student's."""
    own = [line for line in lines if line["file"] == f"{chapter.stem}.py"][-1:]
    return own + [line for line in lines[-1:] if line not in own]


def _rules(verdicts) -> list[dict]:
    """What these verdicts are about, each rule once."""
    counts = Counter((v["rule"], v["verdict"], v["hidden"]) for v in verdicts)
    return [{"rule": rule, "verdict": word, "hidden": hidden, "times": times}
            for (rule, word, hidden), times in counts.items()]


def _function(verdict: dict) -> str:
    return verdict["check"].partition("[")[0]


def _words(cell: dict) -> str:
    """A cell in words: "all passed", or how many checks got which verdict."""
    if cell["state"] == "missing":
        return "not handed in"
    whole = {v["hidden"] for v in cell["verdicts"] if v["whole"]}
    if False in whole:
        return "the file could not be checked"
    count = Counter(v["verdict"] for v in cell["verdicts"] if not v["whole"])
    if whole:
        return f"{count['passed']} of {count.total()} visible checks passed; the hidden ones could not be asked"
    if count.keys() == {"passed"}:
        return f"all {count['passed']} checks passed"
    many = {word: f"{word}s" for word in (Word.ERROR, Word.TIMEOUT) if count[word] > 1}
    return ", ".join(f"{count[word]} {many.get(word, word.label)}" for word in Word if count[word])


# -- the class ------------------------------------------------------------------------------------

def _class_chapter(chapter: Chapter, students: dict[str, list[dict]]) -> dict:
    """A chapter's checks over the class: who got what, and the share of those asked that did not pass.

    A file that no check could be asked of is a failure of its own, and not one of each check.
    """
    graded = {name: cell for name, own in students.items() for cell in own
              if cell["chapter"] == chapter and cell["state"] == "graded"}
    every = sum(own_cell["chapter"] == chapter for own in students.values() for own_cell in own)
    asked = {name: cell for name, cell in graded.items()
             if not any(v["whole"] and not v["hidden"] for v in cell["verdicts"])}
    said: dict[tuple, dict] = {}
    for name, cell in asked.items():
        for verdict in (v for v in cell["verdicts"] if not v["whole"]):
            check = said.setdefault((verdict["hidden"], _function(verdict)), {**verdict, "got": {}})
            # Of several precisions the first that failed speaks for the check.
            if check["got"].get(name, "passed") == "passed":
                check["got"][name] = verdict["verdict"]
    checks = []
    for number, ((_, function), check) in enumerate(said.items(), 1):
        count = Counter(check["got"].values())
        not_passed = len(check["got"]) - count["passed"]
        checks.append({**check, "number": number, "function": function, "count": count,
                       "rate": round(100 * not_passed / len(check["got"])), "not_passed": not_passed})
    return {"chapter": chapter, "graded": list(graded), "asked": asked.keys(), "missing": every - len(graded),
            "checks": checks, **_sum(list(graded.values()))}


def _mistakes(students: dict[str, list[dict]]) -> list[dict]:
    """The named mistakes: who made each, in which chapter; the most frequent first."""
    made: dict[tuple[Chapter, str], dict[str, None]] = defaultdict(dict)
    for name, own in students.items():
        for cell in own:
            for verdict in cell["verdicts"]:
                if verdict["mistake"]:
                    made[cell["chapter"], verdict["mistake"]][name] = None
    return [{"chapter": chapter, "mistake": words, "students": list(names)}
            for (chapter, words), names in sorted(made.items(), key=lambda item: (-len(item[1]), item[0]))]


def _look(students: dict[str, list[dict]]) -> list[dict]:
    """Cells that a person should look at: files with another name, or that no check could be asked of."""
    found = []
    for name, own in students.items():
        for cell in own:
            whole = next((v for v in cell["verdicts"] if v["whole"]), None)
            if whole or cell["note"]:
                found.append({"student": name, "chapter": cell["chapter"], "word": whole["verdict"] if whole else
                              cell["state"], "why": cell["note"] or " ".join(whole["facts"] if whole else [])})
    return found


def _alike(out: Path, students: dict[str, list[dict]], chapters: list[Chapter]) -> dict:
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
    lines, marked = file.read_text("utf-8").split("\n"), set(shared)
    near = [n for n in range(1, len(lines) + 1) if marked & {n - 1, n, n + 1}][:SHOWN]
    return [{"number": n, "text": _shown(lines[n - 1], 200), "shared": n in marked, "gap": n - 1 not in near}
            for n in near]
