"""Whose is what, in a folder as it comes: a folder or an archive each, or the export of Canvas, Moodle or Gradescope.

Names are looked at once, here. What lies there when it is read may be something else.
"""

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from grader.classroom.intake.gradescope import METADATA
from grader.classroom.intake.reading import ENDINGS
from grader.course import chapters

MAX_NAME = 100              # characters of a name,
MAX_BYTES = 255             # and bytes, as file systems take them
PUNCTUATION = " .-_@;,'’()+&"
UNSEEN = re.compile("FILLER|VARIATION SELECTOR|GRAPHEME JOINER|VOWEL INHERENT")      # among letters and marks

_CANVAS = re.compile(r"(?:(?P<who>[^_]+)_)??(?P<late>LATE_)?(?P<id>\d+|anon_\w{5})_\d+_"
                     r"(?P<file>.+?)(?:-(?P<again>\d+))?(?P<ending>\.tar\.gz|\.\w+)")
_CANVAS_TEXT = re.compile(r".+_(text|link)\.html")
_MOODLE = re.compile(r"(?P<who>.+)_(?P<id>\d+)_assignsubmission_(?P<kind>[a-z]+)_?(?P<file>.*)")
_GRADESCOPE = re.compile(r"submission_\d+")


@dataclass
class Source:
    """What one student handed in, as far as its name tells."""

    name: str                       # what the student is called where no roster knows better
    keys: tuple[str, ...]           # what it says of whose it is: an ID, an address, a name
    number: str = ""                # what tells two of one name apart, where the platform numbers what is handed in
    files: dict[str, Path] = field(default_factory=dict)    # a folder or an archive as ""; single files by their names
    at: float | None = None         # when it was handed in, where the platform says so
    late: set[str] = field(default_factory=set)             # the single files that Canvas has marked late

    @property
    def shown(self) -> str:
        """What it is called in the folder."""
        names = [path.name for path in self.files.values()]
        return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def sources_of(submissions: Path, people: dict[str, dict] | None = None) -> tuple[list[Source], dict[str, str]]:
    """(what each student handed in, why other entries are refused). people: whom Gradescope's folders belong to."""
    if submissions.is_file() and submissions.name.lower().endswith(ENDINGS):
        raise ValueError(f"SUBMISSIONS {submissions} is an archive: unpack it, and name the folder")
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
        if why := _refused(path, source):
            refused[path.name] = why
            continue
        whose = (source.number, *source.keys) if source.number else (path.name,)
        if versions.get((whose, file), -1) <= version:
            versions[whose, file] = version
            whole = found.setdefault(whose, source)
            whole.files[file] = path
            whole.late = whole.late - {file} | source.late
    if not found and not refused:
        raise ValueError(f"SUBMISSIONS {submissions} is empty")
    called = Counter(source.name.casefold() for source in found.values())
    for source in found.values():
        if source.number and called[source.name.casefold()] > 1:        # two people of one name
            source.name += f" ({source.number})"
    return list(found.values()), refused


def _source(path: Path, people: dict[str, dict]) -> tuple[Source, str, int]:
    """(whose an entry is, the name of the one file that it is or "", which version of that)."""
    name, folder = unicodedata.normalize("NFC", path.name), path.is_dir()
    if not folder and (match := _CANVAS.fullmatch(name)):       # it numbers people, and what is handed in again
        who = match["who"] or match["id"]
        file = match["file"] + match["ending"]
        return (Source(who, (match["id"], who), match["id"], late={file} if match["late"] else set()), file,
                int(match["again"] or 0))
    if (match := _MOODLE.fullmatch(name)) and bool(match["file"]) != folder:    # it numbers what is handed in
        who = match["who"].rstrip(". ")       # "King, Jr."
        return Source(who, (who,), match["id"]), match["file"], int(match["kind"] == "file")
    if folder and _GRADESCOPE.fullmatch(name) and (keys := people.get(name, {}).get("keys")):
        return Source(keys[0], tuple(unicodedata.normalize("NFC", key) for key in keys), at=people[name]["at"]), "", 0
    ending = next((end for end in ENDINGS if name.lower().endswith(end)), "") if not folder else ""
    name = name[:len(name) - len(ending)]
    return Source(name, (name,)), "", 0


def canvas_file(name: str) -> str:
    """What a file of Canvas' download was called when it was handed in; "" where it is not named as one."""
    match = _CANVAS.fullmatch(unicodedata.normalize("NFC", name))
    return match["file"] + match["ending"] if match else ""


def moodle_folder(name: str) -> str:
    """The folder of Moodle's download that this is, or would lie in; "" where it is not named as one."""
    match = _MOODLE.fullmatch(name)
    return name[:match.start("file")] if match else ""


def _refused(path: Path, source: Source) -> str:
    """Why an entry is not read, or ""."""
    if path.is_symlink():
        return "a link is not followed"
    if not path.is_dir() and not (path.is_file() and (source.number or path.name.lower().endswith(ENDINGS))):
        if path.is_file() and _CANVAS_TEXT.fullmatch(path.name):
            return "a text or a link that was handed in, and no file"
        return "neither a folder nor an archive (.zip, .tar, .tar.gz, .tgz), nor a file as Canvas or Moodle names it"
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


@cache
def _orders(name: str) -> frozenset[str]:
    """A name from each of its words on, and backwards, without what stands between letters."""
    words = unicodedata.normalize("NFC", name).casefold().replace(",", " ").split()
    orders = [words[::-1], *(words[i:] + words[:i] for i in range(len(words)))]
    return frozenset("".join(c for word in order for c in word if unicodedata.category(c)[0] in "LMN")
                     for order in orders) - {""}
