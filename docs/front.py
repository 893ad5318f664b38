"""The front page: what the course is, its map, how to start, and its lessons, part by part."""

import re
from pathlib import Path

from docs import maps, pages, pocket
from grader.author import links
from grader.course import lesson
from grader.course.chapters import ROOT, chapters, parts

CODE = re.compile(r"```sh\n.*?```", re.S)


def write(folder: Path, book: str, model: Path) -> None:
    """Write the first page and the table of contents, index.md.

    book: the name of the PDF and the EPUB that lie beside it, "" where there are none. model: where the pocket model's
    files for the browser lie.
    """
    readme, first = (ROOT / "README.md").read_text("utf-8"), chapters()[0]
    title, promise, whom = readme.split("\n\n")[:3]
    out = [title, promise,
           f"**[Begin with lesson {first.number}](notebooks/{first.notebook.name})**, or with any part of the map: "
           f"each is a link to the lesson that builds it.{links.words(first.notebook.name, links.address())}",
           maps.linked(pages.WHOLE, "notebooks/"), pocket.place(model)]
    out += ["## Start here", whom, *pages.fetch(folder), *_commands(readme), "## Lessons", *_lessons(), *_words()]
    if book:
        out += ["## To take along",
                f'The lessons as a book: <a href="{book}.pdf">PDF</a>, <a href="{book}.epub">EPUB</a>.']
    out += ["## To cite", _cited(), *_contents()]
    (folder / "index.md").write_text("\n\n".join(out) + "\n", "utf-8")


def _commands(readme: str) -> list[str]:
    """The README's two commands, and where its other ways stand."""
    told = readme.partition("\n## Two commands\n")[2].strip()
    gigabytes = next(words for words in told.split("\n\n") if words.startswith("On Linux, `pip`"))
    return [told.split("\n\n")[0], CODE.search(told)[0], gigabytes,
            f"Then open `notebooks/{chapters()[0].notebook.name}` in Jupyter or your editor. [Start here](README.md) "
            "has the other ways to install, without make, on Windows, with uv, and what a student does all day."]


def _lessons() -> list[str]:
    """The course's parts with their hours, and a line for each lesson."""
    out = []
    for part, those in parts().items():
        lines = []
        for chapter in those:
            name, colon, told = chapter.title.rstrip(".").partition(":")
            lines.append(f"- [**{chapter.number} · {name}**](notebooks/{chapter.notebook.name}){colon}{told}")
        out += [f"### {part}: {lesson.hours(those)}", "\n".join(lines)]
    return out


def _words() -> list[str]:
    """What the pocket model writes, out of its own page."""
    page = (ROOT / "assets" / "pocket" / "README.md").read_text("utf-8")
    told, said = page.split("\n\n")[1], page.partition("## What it says\n")[2].strip()
    return ["## What such a model says", told, said, "[More about the pocket model](assets/pocket/README.md)"]


def _cited() -> str:
    """Author, year, title, version and licence, as CITATION.cff has them."""
    return ("{name} ({year}). *{title}*, version {version}. {license} license. As a file for reference managers: "
            "[CITATION.cff](CITATION.cff).").format(**pages.CITED, year=pages.CITED["date-released"][:4])


def _contents() -> list[str]:
    """What the sidebar lists."""
    lists = {part: [f"notebooks/{chapter.notebook.stem}" for chapter in those] for part, those in parts().items()} | {
             "The course": [f"{title} <{page}>" for title, page in pages.PAGES.items()],
             "To look up": ["exercises/index", "glossary", "bibliography", "The pocket model <assets/pocket/README>"]}
    return [pages.TREE.format(caption, "\n".join(entries)) for caption, entries in lists.items()]
