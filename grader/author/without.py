"""What a course without some of its chapters would miss: their own files, and every line that names them."""

import os
import re
from pathlib import Path

from grader.course import chapters, lesson
from grader.course.chapters import ROOT, Chapter

TEXT = {".py", ".ipynb", ".md", ".toml", ".yml", ".cpp", ""}
SKIP = {".git", ".venv", "__pycache__", ".ipynb_checkpoints", ".pytest_cache", ".ruff_cache"}
NUMBERS = re.compile(r"(?:^|_)(?:ex)?(\d\d)(?=[_.])")       # in a file's name: 03_linear.ipynb, test_evidence_04_06.py


def without(gone: list[Chapter]) -> str:
    """The files to delete and the places to mend if these chapters are left out, as text."""
    own = [path for path in _files() if _belongs(path, gone)]
    building = [other for other in chapters.chapters() if other not in gone and set(gone) & set(chapters.needs(other))]
    said = [f"Without {', '.join(chapter.stem[2:] for chapter in gone)}", "", "To delete:"]
    said += [f"  {path.relative_to(ROOT).as_posix()}" for path in own]
    if building:
        said += ["", "Chapters that build on it, to leave out too or to write anew:"]
        said += [f"  {other.stem[2:]}" + _through(other, gone) for other in building]
    places = {path: found for path in _files() if path not in own and (found := _places(path, _names(gone, own)))}
    if places:
        said += ["", "What else names it, to mend:"]
        said += [f"  {path.relative_to(ROOT).as_posix()}: {found}" for path, found in places.items()]
    return "\n".join(said)


def _files() -> list[Path]:
    """Every file of the course, but for what git and Python keep for themselves."""
    found = []
    for folder, inner, names in os.walk(ROOT):
        inner[:] = sorted(set(inner) - SKIP)
        found += [Path(folder) / name for name in sorted(names) if not name.endswith(".bak")]
    return found


def _belongs(path: Path, gone: list[Chapter]) -> bool:
    """Whether a file's name holds numbers of these chapters, and of no other: assets/flow/draw_03.py."""
    numbers = set(NUMBERS.findall(path.name))
    return bool(numbers) and numbers <= {chapter.number for chapter in gone}


def _through(other: Chapter, gone: list[Chapter]) -> str:
    direct = set(chapters.prerequisites(other))
    between = [chapter.number for chapter in sorted(direct) if set(gone) & set(chapters.needs(chapter))]
    return "" if direct & set(gone) else f" (through {', '.join(between)})"


def _names(gone: list[Chapter], own: list[Path]) -> re.Pattern:
    """What the chapters and their files go by in a text."""
    words = {re.escape(path.stem) for path in own if len(path.stem) > 2}
    for chapter in gone:
        words |= {chapter.stem[2:], rf"(?:chapter|lesson)s? {chapter.number}\b",
                  rf"\b(?:find|check|hint)\(\"(?:{chapter.name}|{chapter.number}|{int(chapter.number)})\""}
    return re.compile("|".join(sorted(words)), re.I)


def _places(path: Path, names: re.Pattern) -> str:
    """Where a file speaks of the chapters: "lines 3, 8", or cells of a notebook, counted from 1."""
    if path.suffix not in TEXT:
        return ""
    text = path.read_bytes().decode("utf-8", "replace")
    kind, parts = "line", text.splitlines()
    if path.suffix == ".ipynb":
        kind, parts = "cell", [cell["source"] for cell in lesson.loads(text)["cells"]]
    found = [str(number) for number, part in enumerate(parts, 1) if names.search(part)]
    return f"{kind}{'s' * (len(found) > 1)} {', '.join(found)}" if found else ""
