"""The bibliography: what the lessons link to outside of the course. There is no second list."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from docs.lessons import read
from grader.chapters import Chapter, chapters

LINK = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((https?://[^)\s]+)\)")
PAPER = re.compile(r"arxiv\.org/abs|doi\.org|openreview\.net|proceedings\.|jmlr\.org|\.pdf$|transformer-circuits\.pub")
READING = re.compile(r"^(?:\*\*To read on\*\*|#+ To read on)$(.*)", re.M | re.S)
ARXIV = re.compile(r"arxiv\.org/abs/(\d\d)\d\d\.\d+")
AUTHORS = r"[A-Z][\w’'-]+(?:,? (?:and|et al\.|[A-Z][\w’'-]+))*"
BEFORE = re.compile(rf"({AUTHORS}(?:,? (?:19|20)\d\d)?),? \(?$")


@dataclass
class Source:
    """One page or paper: how it is cited best, and the lessons that link to it."""

    address: str
    words: str = ""
    score: int = -1
    lessons: list[Chapter] = field(default_factory=list)

    @property
    def year(self) -> str:
        if found := ARXIV.search(self.address):
            return f"{'19' if found[1] > '90' else '20'}{found[1]}"
        found = re.findall(r"\b((?:19|20)\d\d)\b", self.words)
        return found[0] if found else ""


def sources() -> list[Source]:
    """Every address that a lesson links to, each once."""
    found = {}
    for chapter in chapters():
        for cell in read(chapter)["cells"]:
            if cell["cell_type"] == "markdown":
                for address, words, score in _cited("".join(cell["source"])):
                    source = found.setdefault(address, Source(address))
                    if chapter not in source.lessons:
                        source.lessons.append(chapter)
                    if score > source.score:
                        source.words, source.score = words, score
    return list(found.values())


def _cited(text: str):
    """(address, citation, how good a citation it is) for each link of a cell."""
    reading = READING.search(text)
    for item in re.split(r"\n(?=- )", reading[1]) if reading else []:
        item, end = " ".join(item.removeprefix("\n").strip().removeprefix("- ").split()), 0
        for link in LINK.finditer(item):
            after = re.match(r"[^:;.(]*(?:\([^()]*\))?[^:;.(]*(?=[:;.]|$)", item[link.end():])
            rest = after[0] if after and len(after[0]) < 60 and not LINK.search(after[0]) else ""
            before = re.split(r"[;:] |\. |, and |^and |beside it, the ", item[end:link.start()])[-1]
            yield link[2], f"{before}{link[0]}{rest}".strip(" ,;"), 3
            end = link.end() + len(rest)
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
                yield link[2], link[0], 2 if re.search(r"\d{4}$|et al", link[1]) else 0


def write(folder: Path) -> None:
    """Write the bibliography's page: papers by year, then other pages."""
    everything = sources()
    papers = [source for source in everything if PAPER.search(source.address)]
    pages = [source for source in everything if source not in papers]
    out = ["# Bibliography", "Everything outside of the course that its lessons link to, and where they do."]
    for heading, chosen in (("Papers, by year", papers), ("Other pages", pages)):
        rows = [f"- {f'**{source.year}** ' if source in papers else ''}{source.words} — lesson "
                + ", ".join(f"[{c.number}](notebooks/{c.notebook.name})" for c in source.lessons)
                for source in sorted(chosen, key=lambda s: (s.year, s.address) if s in papers else ("", s.address))]
        out += [f"## {heading}", "\n".join(rows)]
    (folder / "bibliography.md").write_text("\n\n".join(out) + "\n", "utf-8")
