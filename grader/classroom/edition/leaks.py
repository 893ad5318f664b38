"""What a hand-out must not show: lines of solutions, of hidden checks, of mistakes; and where they are found.

A line is compared with its runs of spaces as one, and is found anywhere in a text: in a file's bytes,
in every string of a notebook, in a record once unpacked, with and without HTML's entities.

What tells something, as counted on 22 chapters:
- Lines of fewer than 16 characters are left out: 141 of the 1,734 lines of solution bodies, such as
  `return x` and `else:`. So are imports, such as `import numpy as np`.
- A line that a stub or a given chapter's file holds is known to students already (a refusal of bad input
  is given in one chapter and asked for in another). One that the grader's own code holds, which
  knows nothing of transformers, is anybody's: `with torch.no_grad():`.
- The rest is looked for, line by line. Where a lesson or a visible check says one on purpose,
  or by chance, `shown.txt` names the file and the line; in any other file it is a leak.
- Hidden checks are written like visible ones: 142 of their 2,412 lines that are long enough, such as
  `layer = draw.fill(impl.Linear(6, 4))`, stand in a visible check too, but two in a row do in 11 of 2,170
  places only. So in a file of checks two lines in a row are looked for, elsewhere each line.
- A mistake's edit is every line that the edited reference has and the reference has not; the same
  for the alternatives, which are right.
"""

import ast
import html
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from grader.course import chapters
from grader.course.chapters import Chapter
from grader.judge import record
from grader.judge.edits import edits

LEAST = 16                  # characters of a line that tells something
SHOWN = Path(__file__).parent / "shown.txt"


@dataclass(frozen=True, order=True)
class Secret:
    """A line, or two in a row, of a file that students do not get."""

    text: str
    source: str             # "solutions/ex03_linear.py"
    in_checks: bool = True  # whether it is looked for in files of checks too


def secrets(given: list[Chapter]) -> list[Secret]:
    """All that an edition must not hold, of every chapter of the course; it gives these solutions."""
    known = [chapters.stub(chapter) for chapter in chapters.chapters()]
    known += [path.read_text("utf-8") for chapter in given for path in (chapter.solution, chapter.mistakes)
              if path.exists()]
    known += [path.read_text("utf-8") for path in chapters.engine_files()]
    told, found = "\n".join(map(_one_line, known)), set()
    for chapter in chapters.chapters():
        for source, function in _hidden_checks(chapter):
            found.update(Secret(line, source, False) for line in function)
            found.update(Secret(f"{one} {two}", source) for one, two in itertools.pairwise(function)
                         if min(len(one), len(two)) > 3)        # a bracket or quotes are no second line
        if chapter not in given:
            solution = chapter.solution.read_text("utf-8")
            found.update(Secret(line, f"solutions/{chapter.solution.name}")
                         for block in chapters.BLOCK.finditer(solution) for line in _lines(block[0])[1:-1])
            own = set(_lines(solution))
            found.update(Secret(line, f"tests/mistakes/{chapter.mistakes.name}")
                         for kind in ("mistake", "alternative") for edit in edits(chapter, kind)
                         for line in _lines(edit.source) if line not in own)
    return sorted(secret for secret in found if len(secret.text) >= LEAST and secret.text not in told
                  and not re.match(r"import \w|from \S+ import \w", secret.text))


def find(folder: Path, wanted: list[Secret], under: str = "") -> Iterator[tuple[str, Secret]]:
    """(file, secret) for each that a file of an edition holds and `shown.txt` does not allow there.

    under: look through this folder of the edition alone.
    """
    allowed = shown()
    inner = {secret.text: set(re.findall(r"\w+", secret.text)[1:-1]) for secret in wanted}
    for path in sorted(path for path in (folder / under).rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        checks, said = name.startswith("tests/"), set()
        for text in _texts(path):
            words = set(re.findall(r"\w+", text))       # a line can be there only if all its words are
            for secret in wanted:
                if (secret.in_checks or not checks) and inner[secret.text] <= words \
                        and secret.text in text and (name, secret.text) not in allowed | said:
                    said.add((name, secret.text))
                    yield name, secret


def shown() -> set[tuple[str, str]]:
    """The (file, line) that `shown.txt` allows."""
    lines = [line.split(None, 1) for line in SHOWN.read_text("utf-8").splitlines() if line and line[0] != "#"]
    return {(name, _one_line(text)) for name, text in lines}


def _hidden_checks(chapter: Chapter) -> Iterator[tuple[str, list[str]]]:
    """(file, lines) of each hidden check of a chapter."""
    for path in sorted(chapters.HIDDEN.glob(f"test_{chapter.stem}*.py")):
        source = path.read_text("utf-8")
        lines = source.splitlines()
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield f"tests/hidden/{path.name}", _lines("\n".join(lines[node.lineno - 1:node.end_lineno]))


def _texts(path: Path) -> list[str]:
    """What a file says, on one line: its text, and what is wrapped up in it."""
    text = path.read_bytes().decode("utf-8", "replace")
    if path.suffix == ".key":
        text = "\n".join(part for header, body in record.frames(path)
                         for part in (*_strings(header), body.decode("utf-8", "replace")))
    elif path.suffix == ".ipynb":
        text = "\n".join(_strings(json.loads(text)))
    return [_one_line(said) for said in dict.fromkeys([text, html.unescape(text)])]


def _strings(node) -> Iterator[str]:
    """Every string of a JSON tree; a list of strings alone is one text, as notebooks write it."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, list) and all(isinstance(part, str) for part in node):
        yield "".join(node)
    elif isinstance(node, (list, dict)):
        for part in node.values() if isinstance(node, dict) else node:
            yield from _strings(part)


def _lines(text: str) -> list[str]:
    return [line for line in map(_one_line, text.splitlines()) if line]


def _one_line(text: str) -> str:
    return " ".join(text.split())
