"""The bibliography: what the lessons link to outside of the course, and how they cite it, or bibliography.toml does."""

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from grader.author.links import OPENED
from grader.course.chapters import Chapter, chapters
from grader.course.lesson import read

LINK = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((https?://[^)\s]+)\)")
PAPER = re.compile(r"arxiv\.org/abs|doi\.org|openreview\.net|proceedings\.|jmlr\.org|\.pdf$|transformer-circuits\.pub")
READING = re.compile(r"^(?:\*\*To read on\*\*|#+ To read on)$(.*)", re.M | re.S)
ARXIV = re.compile(r"arxiv\.org/abs/(\d\d)\d\d\.\d+")
NAME, YEAR = r"[A-Z][\w’'-]+", r"(?:19|20)\d\d"
AUTHORS = rf"{NAME}(?:, {NAME})*(?: et al\.|,? and {NAME})?"
BEFORE = re.compile(rf"({NAME} et al\.(?:,? {YEAR})?|{NAME}(?:, {NAME})* and {NAME}(?:,? {YEAR})?|{NAME},? {YEAR})"
                    r",? \(?$")
AFTER = re.compile(rf"\)?(?: \([^()\[\]]*\)|, {AUTHORS}, {YEAR}|, {YEAR})?")


@dataclass
class Source:
    """One page or paper: how it is cited best, and the lessons that link to it."""

    address: str
    words: str = ""
    score: int = -1
    year: str = ""
    lessons: list[Chapter] = field(default_factory=list)


def sources() -> list[Source]:
    """Every address that a lesson links to, each once."""
    found, named = {}, tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    for chapter in chapters():
        for cell in read(chapter)["cells"]:
            if cell["cell_type"] == "markdown":
                for address, words, score in _cited(OPENED.sub("", "".join(cell["source"]))):
                    source = found.setdefault(address, Source(address))
                    source.year = source.year or _year(address, words)
                    if chapter not in source.lessons:
                        source.lessons.append(chapter)
                    if address in named:
                        source.words = re.sub(r"\*(.+)\*", rf"[*\1*]({address})", named[address])
                        source.year = source.year or _year(address, source.words)
                    elif score > source.score:
                        source.words, source.score = words, score
    return list(found.values())


def _year(address: str, words: str) -> str:
    """The year of a paper: arXiv's numbers begin with it, other citations name it."""
    if found := ARXIV.search(address):
        return f"20{found[1]}"
    found = re.search(YEAR, LINK.sub(r"\1", words))
    return found[0] if found else ""


def _cited(text: str):
    """(address, citation, how good a citation it is) for each link of a cell."""
    reading = READING.search(text)
    for item in re.split(r"\n(?=- )", reading[1]) if reading else []:
        item, end = " ".join(item.removeprefix("\n").strip().removeprefix("- ").split()), 0
        for link in LINK.finditer(item):
            rest = AFTER.match(item[link.end():])[0]
            before = re.split(r"; |: (?=[a-z])|(?<! al)\. ", item[end:link.start()])[-1]
            before = before.lstrip(" ,)").removeprefix("and ")
            if not re.match(r"[A-Z*(]|$", before):          # not whose it is, but what is said of another
                before = ""
            end = link.end() + len(rest)
            rest = rest if "(" in before else rest.removeprefix(")")
            yield link[2], f"{before}{link[0]}{rest}", 3 if before or rest else 1
    body = text[:reading.start()] if reading else text
    for line in re.split(r"\n\n|\n(?=\|)", body):
        line = " ".join(line.split())
        for link in LINK.finditer(line):
            if line.startswith("|"):
                row = line.strip("| ").split("|")[0].strip()
                yield link[2], link[0] if re.search(r"[a-z]{3}", link[1].lower().replace("arxiv", "")) \
                    else f"{LINK.sub('', row).strip(' ()')}, {link[0]}", 1
            elif before := BEFORE.search(line[:link.start()]):
                yield link[2], f"{before[1]}, {link[0]}", 2
            else:
                yield link[2], link[0], 2 if re.search(rf"\D{YEAR}$|et al", link[1]) else 0


def write(folder: Path) -> None:
    """Write the bibliography's page: papers by year, then other pages."""
    everything = sources()
    papers = [source for source in everything if PAPER.search(source.address)]
    pages = [source for source in everything if source not in papers]
    out = ["# Bibliography", "Everything outside of the course that its lessons link to, and where they do."]
    for heading, chosen in (("Papers, by year", papers), ("Other pages", pages)):
        rows = [f"- {f'**{source.year}** ' if source in papers else ''}{source.words}"
                f"{'' if source in papers else f' ({urlsplit(source.address).hostname})'}. "
                f"Lesson{'s' * (len(source.lessons) > 1)}\N{NO-BREAK SPACE}"
                + ", ".join(f"[{c.number}](notebooks/{c.notebook.name})" for c in source.lessons)
                for source in sorted(chosen, key=lambda s: (s.year, s.address) if s in papers else ("", s.address))]
        out += [f"## {heading}", "\n".join(rows)]
    (folder / "bibliography.md").write_text("\n\n".join(out) + "\n", "utf-8")
