"""The text that the pocket model reads: docstrings, from packages that pip can fetch anywhere.

A document is a module with all of its docstrings, or a topic of help(). Some documents are held out,
whole. Paragraphs that stood before are dropped, and then every line of the training text that shares
50 characters with the text held out.
"""

import ast
import random
import re
import subprocess
import sys
import sysconfig
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

# Each wheel, pinned, with the licence that its metadata names.
PACKAGES = {
    "Django==5.2.19": "BSD-3-Clause",
    "matplotlib==3.11.2": "Python Software Foundation License",
    "networkx==3.6.1": "BSD-3-Clause",
    "nltk==3.10.4": "Apache-2.0",
    "numpy==2.4.6": "BSD-3-Clause AND 0BSD AND MIT AND Zlib AND CC0-1.0",
    "pandas==3.1.1": "BSD-3-Clause",
    "scikit-learn==1.9.1": "BSD-3-Clause",
    "scipy==1.17.1": "BSD",
    "SQLAlchemy==2.1.9": "MIT",
    "statsmodels==0.15.0": "BSD-3-Clause",
    "sympy==1.14.0": "BSD",
    "xarray==2026.9.0": "Apache-2.0",
}
ELSEWHERE = {"test", "tests", "testing", "idlelib", "site-packages", "dist-packages", "lib2to3", "turtledemo",
             "pydoc_data", "encodings", "__pycache__"}
EVERY = 50                                       # one document in so many is held out, and
LESSONS = {"topic formatstrings", "shutil.py"}   # two that the lessons read
PASSAGE = 50                                     # characters that count as the same text


def wheels(folder: Path) -> list[Path]:
    """The packages as pip downloads them, into a folder where they stay."""
    folder.mkdir(parents=True, exist_ok=True)
    names = tuple(package.lower().replace("-", "_").replace("==", "-") + "-" for package in PACKAGES)

    def found() -> list[Path]:
        return [path for path in sorted(folder.glob("*.whl")) if path.name.lower().startswith(names)]
    if len(found()) < len(PACKAGES):
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
                        "--dest", folder, *PACKAGES], check=True)
    return found()


def documents(folder: Path) -> dict[str, list[str]]:
    """Each document's name and texts, in a fixed order."""
    from pydoc_data.topics import topics
    found = {f"topic {name}": [plain(topics[name])] for name in sorted(topics)}
    library = Path(sysconfig.get_path("stdlib"))
    sources = [(str(path.relative_to(library)), path.read_bytes()) for path in sorted(library.rglob("*.py"))
               if not ELSEWHERE & set(path.relative_to(library).parts)]
    for wheel in wheels(folder):
        with zipfile.ZipFile(wheel) as archive:
            sources += [(name, archive.read(name)) for name in sorted(archive.namelist())
                        if name.endswith(".py") and not ELSEWHERE & set(name.split("/"))]
    for name, source in sources:
        if texts := docstrings(source):
            found[name] = texts
    return found


def docstrings(source: bytes) -> list[str]:
    """The docstrings of a module, its classes and its functions, from 40 characters on."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    with warnings.catch_warnings(action="ignore"):
        tree = ast.parse(source)
    texts = [plain(ast.get_docstring(node) or "") for node in ast.walk(tree) if isinstance(node, documented)]
    return [text for text in texts if len(text) >= 40]


def plain(text: str) -> str:
    """A text without most of reStructuredText's marks: roles, literals, directives' lines."""
    text = re.sub(r":[\w:+-]+:`[~!]?([^`<]*?)(?:\s*<[^`]*>)?`", r"\1", text)
    text = re.sub(r"^\s*\.\. .*::.*\n?", "", text, flags=re.MULTILINE)
    return text.replace("``", "")


def split(folder: Path) -> tuple[list[str], list[str]]:
    """The texts to train on and the texts held out, with no passage in both; shuffled by document."""
    found = documents(folder)
    names = list(found)
    random.Random(0).shuffle(names)
    out = {name for i, name in enumerate(names) if i % EVERY == 0} | LESSONS
    seen = set()
    held_out = [text for name in names if name in out for text in unseen(found[name], seen)]
    texts = [text for name in names if name not in out for text in unseen(found[name], seen)]
    passages = np.unique(hashes(joined_lines(held_out)[0]))
    while (kept := [text for text in without(texts, passages) if len(text) >= 40]) != texts:
        texts = kept                             # lines that became neighbours may share one too
    assert shared(texts, held_out) == 0
    return texts, held_out


def unseen(texts: list[str], seen: set[str]) -> Iterator[str]:
    """Texts without the paragraphs that are in seen, which learns the new ones."""
    for text in texts:
        kept = []
        for paragraph in re.split(r"\n\s*\n", text):
            known = normal(paragraph)
            if len(known) < PASSAGE or known not in seen:
                kept.append(paragraph)
            seen.add(known)
        if len(text := "\n\n".join(kept)) >= 40:
            yield text


def normal(text: str) -> str:
    """In small letters, with one space for every run of white space."""
    return " ".join(text.lower().split())


def joined_lines(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """All lines of the texts, normal, as bytes in one row, and for each byte the line's number."""
    lines = [(normal(line) + " ").encode() if line.strip() else b""
             for text in texts for line in [*text.split("\n"), "\0"]]     # "\0": texts do not touch
    return (np.frombuffer(b"".join(lines), np.uint8),
            np.repeat(np.arange(len(lines)), [len(line) for line in lines]))


def hashes(row: np.ndarray) -> np.ndarray:
    """A hash of the PASSAGE bytes from each place on: Σ byteᵢ baseⁱ, modulo 2⁶⁴."""
    base, width, power = np.uint64(0x9E3779B97F4A7C15), 1, row.astype(np.uint64)
    total, done = np.zeros_like(power), 0
    for bit in bin(PASSAGE)[:1:-1]:              # PASSAGE is a sum of powers of two, and so is the window
        if bit == "1":
            total[:len(row) - done] += power[done:] * np.power(base, done, dtype=np.uint64)
            done += width
        power[:-width] = power[:-width] + power[width:] * np.power(base, width, dtype=np.uint64)
        width *= 2
    return total[:max(0, len(row) - PASSAGE + 1)]


def without(texts: list[str], passages: np.ndarray) -> Iterator[str]:
    """Texts without the lines that one of the hashed passages touches."""
    row, line_of = joined_lines(texts)
    starts = np.flatnonzero(np.isin(hashes(row), passages))
    touched = {line for start in starts for line in range(line_of[start], line_of[start + PASSAGE - 1] + 1)}
    number = 0
    for text in texts:
        lines = text.split("\n")
        yield "\n".join(line for i, line in enumerate(lines) if number + i not in touched)
        number += len(lines) + 1


def shared(texts: list[str], held_out: list[str]) -> int:
    """How many passages of the texts stand in those held out."""
    passages = np.unique(hashes(joined_lines(held_out)[0]))
    return int(np.isin(hashes(joined_lines(texts)[0]), passages).sum())
