"""A lesson as it stands in its notebook: its cells, and the exercises that they make up.

Notebooks are nbformat 4's JSON, in which a text is a list of its lines. They are read and written as nbformat does, but
without it: importing it takes 1.4 s, and all of `python -m grader hint` 0.1 s.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from grader.course import chapters
from grader.course.chapters import Chapter

FOLD = re.compile(r"<details><summary>Hint (\d)[^<]*</summary>\s*(.*?)\s*</details>", re.S)
HEADING = re.compile(r"^### (Exercise (\d+): .*)$", re.M)


@dataclass
class Exercise:
    """What an exercise asks for, and says."""

    number: int
    title: str                  # "Exercise 1: the start"
    parts: tuple[str, ...]      # "Linear.forward", "linear_flops"; none where it goes on with those of the one before
    cell: int                   # the cell with its hints; with its heading, where it has none
    hints: dict[int, str] = field(default_factory=dict)
    checks: list[str] = field(default_factory=list)         # what its cells ask: check("ex03_linear", "forward")


def loads(text: str) -> dict:
    """A notebook from its file's text; each text in it is one string."""
    notebook = json.loads(text)
    for holder, key in _texts(notebook):
        holder[key] = "".join(holder[key])
    return notebook


def dumps(notebook: dict) -> str:
    """A notebook as its file's text, byte by byte what nbformat writes. Its texts become lists of their lines."""
    for holder, key in _texts(notebook):
        holder[key] = holder[key].splitlines(keepends=True)
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def read(chapter: Chapter) -> dict:
    """The lesson's notebook."""
    return loads(chapter.notebook.read_text("utf-8"))


def cells(chapter: Chapter, kind: str = "") -> list[dict]:
    """The lesson's cells: all, or those of one kind, "markdown" or "code"."""
    return [cell for cell in read(chapter)["cells"] if kind in ("", cell["cell_type"])]


def prose(chapter: Chapter) -> str:
    """The lesson's text, without its code."""
    return "\n\n".join(cell["source"] for cell in cells(chapter, "markdown"))


def exercises(chapter: Chapter) -> list[Exercise]:
    """The lesson's exercises, in order. The cell of a heading declares the parts, in its metadata."""
    found = []
    for index, cell in enumerate(cells(chapter)):
        source = cell["source"]
        if cell["cell_type"] == "markdown":
            if heading := HEADING.search(source):
                asked = cell["metadata"].get("exercise", {}).get("parts", ())
                found.append(Exercise(int(heading[2]), heading[1], tuple(asked), index))
            if found and (hints := {int(number): words for number, words in FOLD.findall(source)}):
                found[-1].cell, found[-1].hints = index, hints
        elif found and f'check("{chapter.stem}", ' in source:
            found[-1].checks += [name for name in re.findall(r'"(\w+)"', source) if name != chapter.stem]
    return found


def minutes(chapter: Chapter) -> float:
    """About how long a chapter takes: 180 words a minute, 45 seconds for each cell, 7.5 minutes for each part to write.

    Words in folds do not count. Over all lessons it is what their first cells say, summed.
    """
    words = len(re.sub(r"<details>.*?</details>", "", prose(chapter), flags=re.S).split())
    write = chapters.stub(chapter).count("raise NotImplementedError")
    return words / 180 + 0.75 * len(cells(chapter, "code")) + 7.5 * write


def hours(those: Iterable[Chapter]) -> str:
    """About how long some chapters take, in words."""
    count = max(1, round(sum(map(minutes, those)) / 60))
    return f"about {count} hour{'s' * (count > 1)}"


def table(chosen: Iterable[Chapter] = ()) -> str:
    """The README's tables of chapters (all, where none is chosen), one a part, as Markdown."""
    tables = []
    for part, those in chapters.parts(chosen).items():
        rows = [f"| [{c.number}](notebooks/{c.notebook.name}) | {c.title} | "
                f"{', '.join(p.number for p in chapters.prerequisites(c)) or '–'} |" for c in those]
        tables.append("\n".join([f"### {part}: {hours(those)}", "",
                                 "| lesson | what you build | uses |", "|---|---|---|", *rows]) + "\n")
    return "\n".join(tables)


def _texts(notebook: dict) -> Iterator[tuple[dict, str]]:
    """(holder, key) of each text: a cell's source, what it printed, and what it showed as text or SVG."""
    for cell in notebook["cells"]:
        yield cell, "source"
        for output in cell.get("outputs", ()):
            if "text" in output:
                yield output, "text"
            data = output.get("data", {})
            yield from ((data, kind) for kind in data if kind.startswith("text/") or kind == "image/svg+xml")
