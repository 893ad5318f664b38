"""Whose is what, in a folder as it comes: a folder or an archive each, or the export of Canvas, Moodle or Gradescope.

Names are looked at once, here. What lies there when it is read may be something else.
"""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from grader.classroom.intake.gradescope import METADATA
from grader.classroom.intake.reading import ENDINGS
from grader.course import chapters

MAX_NAME = 100              # characters of a name,
MAX_BYTES = 255             # and bytes, as file systems take them
PUNCTUATION = " .-_@;,'’()+&"
UNSEEN = re.compile("FILLER|VARIATION SELECTOR|GRAPHEME JOINER|VOWEL INHERENT")      # among letters and marks

_CANVAS = re.compile(r"(?P<who>[^\W_]+)_(?P<late>LATE_)?(?P<id>\d+)_\d+_(?P<file>.+?)(?:-(?P<again>\d+))?"
                     r"(?P<ending>\.py|\.ipynb|\.txt|\.zip|\.tar|\.tgz|\.tar\.gz)")
_MOODLE = re.compile(r"(?P<who>.+)_(?P<id>\d+)_assignsubmission_\w+")
_GRADESCOPE = re.compile(r"submission_\d+")


@dataclass
class Source:
    """What one student handed in, as far as its name tells."""

    name: str                       # what the student is called where no roster knows better
    keys: tuple[str, ...]           # what it says of whose it is: an ID, an address, a name
    files: dict[str, Path] = field(default_factory=dict)    # a folder or an archive as ""; single files by their names

    @property
    def shown(self) -> str:
        """What it is called in the folder."""
        names = [path.name for path in self.files.values()]
        return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def sources_of(submissions: Path, people: dict[str, list[str]] | None = None) -> tuple[list[Source], dict[str, str]]:
    """(what each student handed in, why other entries are refused). people: whom Gradescope's folders belong to."""
    if not submissions.is_dir():
        raise ValueError(f"SUBMISSIONS {submissions} is no folder")
    if any((submissions / f"{chapter.stem}.py").exists() for chapter in chapters.chapters()):
        raise ValueError(f"SUBMISSIONS {submissions} holds exercises itself; "
                         "it takes a folder of folders or archives, one per student")
    found: dict[tuple, Source] = {}
    versions: dict[tuple, int] = {}
    refused: dict[str, str] = {}
    for path in sorted(submissions.iterdir()):
        if path.name.startswith(".") or path.name == METADATA:
            continue
        source, file, version = _source(path, people or {})
        why = _refused(path, source)
        if why:
            refused[path.name] = why
            continue
        place = (source.keys, file) if file else (path.name,)
        if file and versions.get(place, -1) > version:
            continue                # Canvas numbers what is handed in again
        versions[place] = version
        found.setdefault(source.keys if file else place, source).files[file] = path
    if not found and not refused:
        raise ValueError(f"SUBMISSIONS {submissions} is empty")
    return list(found.values()), refused


def _source(path: Path, people: dict[str, list[str]]) -> tuple[Source, str, int]:
    """(whose an entry is, the name of the one file that it is or "", which version of that)."""
    name, folder = unicodedata.normalize("NFC", path.name), path.is_dir()
    if not folder and (match := _CANVAS.fullmatch(name)):
        file = match["file"] + match["ending"]
        return Source(match["who"], (match["id"], match["who"])), file, int(match["again"] or 0)
    if folder and (match := _MOODLE.fullmatch(name)):
        return Source(match["who"], (match["id"], match["who"])), "", 0
    if folder and _GRADESCOPE.fullmatch(name) and (keys := people.get(name)):
        return Source(keys[0], tuple(keys)), "", 0
    ending = next((end for end in ENDINGS if name.lower().endswith(end)), "") if not folder else ""
    name = name[:len(name) - len(ending)]
    return Source(name, (name,)), "", 0


def _refused(path: Path, source: Source) -> str:
    """Why an entry is not read, or ""."""
    if path.is_symlink():
        return "a link is not followed"
    single = _CANVAS.fullmatch(unicodedata.normalize("NFC", path.name))
    if not path.is_dir() and not (path.is_file() and (single or path.name.lower().endswith(ENDINGS))):
        return "neither a folder nor an archive (.zip, .tar, .tar.gz, .tgz), nor a file as Canvas names it"
    if not is_name(source.name):
        return (f"a name has 1 to {MAX_NAME} letters, digits, spaces and any of . _ - @ ; , ' ( ) + & ; and neither "
                "begins nor ends with a dot, nor begins with a bracket")
    return ""


def is_name(text: str) -> bool:
    """Whether somebody may be called that: in any script, with what stands in names, and nothing unseen."""
    return (0 < len(text) <= MAX_NAME and len(text.encode("utf-8", "replace")) <= MAX_BYTES
            and text[0] not in ". (" and text[-1] not in ". " and text.isprintable() and all(
        c in PUNCTUATION or unicodedata.category(c)[0] in "LMN" and not UNSEEN.search(unicodedata.name(c, ""))
        for c in text))


def scripts(name: str) -> set[str]:
    """The scripts that look alike, where one word of a name mixes them: {"LATIN", "CYRILLIC"}, or nothing."""
    for word in re.findall(r"[^\W\d_]+", name):
        found = {unicodedata.name(c, "").partition(" ")[0] for c in word} & {"LATIN", "CYRILLIC", "GREEK", "CHEROKEE"}
        if len(found) > 1:
            return found
    return set()


def same_names(one: str, other: str) -> bool:
    """Whether two ways to write a name are of one person: "Lovelace, Ada", "Ada Lovelace", "lovelaceada"."""
    return bool(_orders(one) & _orders(other))


def _orders(name: str) -> set[str]:
    def joined(words: Iterable[str]) -> str:
        return "".join(re.findall(r"\w", "".join(words))).casefold()
    words = name.replace(",", " ").split()
    return {joined(order) for order in (words, words[::-1], words[1:] + words[:1], words[-1:] + words[:-1])} - {""}
