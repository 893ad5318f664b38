"""The glossary: shapes and terms from one table, and the symbols from the lessons' own tables."""

import re
import tomllib
from functools import cache
from pathlib import Path

from grader.course.chapters import Chapter, chapters
from grader.course.lesson import cells

SYMBOLS = re.compile(r"^\| *symbol[^\n]*\n\|[-| :]+\n(?:\|[^\n]*\n?)+", re.M)


@cache
def table() -> dict[str, dict[str, tuple[str, str]]]:
    """{"terms": {"RoPE": (lesson, meaning)}, "shapes": …}. A lesson that is left out takes its words with it."""
    lessons = {chapter.number for chapter in chapters()}
    found = tomllib.loads(Path(__file__).with_name("glossary.toml").read_text("utf-8"))
    return {kind: {word: (lesson, meaning) for word, (lesson, meaning) in words.items() if lesson in lessons}
            for kind, words in found.items()}


def symbols(chapter: Chapter) -> list[str]:
    """The tables of a lesson whose first column is the symbol, as Markdown."""
    return [found[0].strip() for cell in cells(chapter, "markdown")
            for found in SYMBOLS.finditer(cell["source"])]


def write(folder: Path) -> None:
    """Write the glossary's page."""
    lessons = {chapter.number: f"[Lesson\u00a0{chapter.number}](notebooks/{chapter.notebook.name})"
               for chapter in chapters()}
    out = ["# Glossary", "[Terms](#Terms) · [Shapes](#Shapes) · [Symbols](#Symbols), lesson by lesson."]
    for kind, heading, mark in (("terms", "Terms", ""), ("shapes", "Shapes", "`")):
        out += [f"## {heading}"]
        if kind == "shapes":
            out += ["The axes that stand in signatures, comments and tables."]
        out += ["```{glossary}"]
        for word, (lesson, meaning) in table()[kind].items():
            out[-1] += f"\n{mark}{word}{mark}\n  {meaning[0].upper()}{meaning[1:]}. {lessons[lesson]}.\n"
        out[-1] += "```"
    out += ["## Symbols", "A letter may mean one thing in one lesson and another in the next, so they stand by lesson."]
    for chapter in chapters():
        if found := symbols(chapter):
            out += [f"### {chapter.number} · {chapter.title.partition(':')[0]}",
                    f"From [lesson {chapter.number}](notebooks/{chapter.notebook.name}).", *found]
    (folder / "glossary.md").write_text("\n\n".join(out) + "\n", "utf-8")
