"""The bibliography: what the lessons link to outside of the course, cited as bibliography.toml says."""

import re
import tomllib
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from grader.author.links import OPENED
from grader.course.chapters import Chapter, chapters
from grader.course.lesson import cells

LINK = re.compile(r"\]\((https?://[^)\s]+)\)")
TITLE = re.compile(r"\*(.+)\*")


@cache
def table() -> dict[str, dict[str, str]]:
    """{"2017": {address: citation}, …, "pages": …}: papers by year, then other pages."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def links() -> dict[str, list[Chapter]]:
    """Every address that a lesson links to, and those lessons."""
    found = {}
    for chapter in chapters():
        text = "\n".join(OPENED.sub("", cell["source"]) for cell in cells(chapter, "markdown"))
        for address in dict.fromkeys(LINK.findall(text)):
            found.setdefault(address, []).append(chapter)
    return found


def write(folder: Path) -> None:
    """Write the bibliography's page: papers by year, then other pages."""
    rows, where = {"Papers, by year": [], "Other pages": []}, links()
    for year, sources in table().items():
        for address, citation in sources.items():
            if lessons := where.get(address):
                words = TITLE.sub(rf"[*\1*]({address})", citation)
                words = f"{words} ({urlsplit(address).hostname})" if year == "pages" else f"**{year}** {words}"
                rows["Other pages" if year == "pages" else "Papers, by year"].append(
                    f"- {words}. Lesson{'s' * (len(lessons) > 1)}\N{NO-BREAK SPACE}"
                    + ", ".join(f"[{c.number}](notebooks/{c.notebook.name})" for c in lessons))
    out = ["# Bibliography", "Everything outside of the course that its lessons link to, and where they do."]
    out += [text for heading in rows for text in (f"## {heading}", "\n".join(rows[heading]))]
    (folder / "bibliography.md").write_text("\n\n".join(out) + "\n", "utf-8")
