"""Which submissions of a chapter look alike: a hint to read two files side by side, never a verdict.

A file is cut into the subtrees of its syntax tree. In each, what the file itself named (variables,
helpers, attributes) becomes a number in order of appearance, so that renaming hides nothing; constants,
words in messages and torch's names stay. Comments, docstrings and annotations do not count. What the
course itself holds, in the stub, the reference, its alternatives, its known mistakes or given/, tells nothing
and is left out. Of the rest, what few in the class have weighs more than what many have.
"""

import ast
import math
import re
import warnings
from collections import defaultdict
from functools import cache
from pathlib import Path

import numpy as np

from grader.course import chapters, stubs
from grader.course.chapters import Chapter
from grader.judge.edits import edits

SMALLEST, LARGEST = 6, 150  # nodes of a subtree that is looked at
LONGEST = 100_000           # bytes of a file that is looked at: three times the longest chapter's
LEAST = 20                  # subtrees of its own that a file needs before anything is said of it
SHARE = 0.5                 # in common from here on is worth a look
CLASS = 20                  # submissions imagined beside the real ones, so that two are a class too
BLOCK = 4096                # subtrees that are compared at once


def similar(files: dict[str, Path], chapter: Chapter) -> list[tuple[str, str, float]]:
    """Pairs of names whose files look alike, and how much they share, the most alike first.

    The share is that of the file that has less of its own: 1.0 where all of it is in the other too,
    names aside. From SHARE on a pair is given. Two people who write a chapter on their own stay well
    below it; see test_pages. A file that cannot be parsed, is too long, or has little of its own, is in no pair.
    """
    own = {name: found for name, path in files.items() if len(found := _own(path, chapter)) >= LEAST}
    holders = defaultdict(list)
    for row, marks in enumerate(own.values()):
        for mark in marks:
            holders[mark].append(row)
    weights = {mark: math.log((len(files) + CLASS) / len(rows)) for mark, rows in holders.items()}
    whole = np.array([sum(weights[mark] for mark in marks) for marks in own.values()])
    common = np.zeros((len(own), len(own)), np.float32)
    shared = [mark for mark, rows in holders.items() if len(rows) > 1]
    for start in range(0, len(shared), BLOCK):
        block = np.zeros((len(own), BLOCK), np.float32)
        for column, mark in enumerate(shared[start:start + BLOCK]):
            block[holders[mark], column] = math.sqrt(weights[mark])
        common += block @ block.T
    share = common / np.minimum.outer(whole, whole)
    names = list(own)
    pairs = [(*sorted((names[i], names[j])), min(1.0, float(share[i, j])))
             for i, j in np.argwhere(np.triu(share >= SHARE, 1))]
    return sorted(pairs, key=lambda pair: (-pair[2], pair[:2]))


def too_long(path: Path) -> bool:
    """Whether a file is longer than what is compared."""
    return path.stat().st_size > LONGEST


def shared_lines(one: Path, other: Path, chapter: Chapter) -> tuple[list[int], list[int]]:
    """The numbers of the lines in each file that hold what only these two have, and not the course."""
    first, second = _own(one, chapter), _own(other, chapter)
    both = first.keys() & second.keys()
    spans = [set().union(*(found[mark] for mark in both)) for found in (first, second)]
    return tuple(sorted({number for start, end in sorted(own) for number in range(start, end + 1)}) for own in spans)


def _own(path: Path, chapter: Chapter) -> dict[int, set[tuple[int, int]]]:
    """A file's subtrees less those of the course."""
    known, names, words = _course(chapter)
    try:
        if too_long(path):
            return {}
        found = _prints(stubs.text_of(path.read_bytes()), names, words)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    return {mark: lines for mark, lines in found.items() if mark not in known}


@cache
def _course(chapter: Chapter) -> tuple[frozenset[int], frozenset[str], frozenset[str]]:
    """Subtrees that the course holds; the names its stub defines or imports; every word of the stub."""
    solution = chapter.solution.read_text("utf-8")
    stub = chapters.make_stub(solution)
    names = {alias.asname or alias.name.partition(".")[0] for node in ast.walk(ast.parse(stub))
             if isinstance(node, (ast.Import, ast.ImportFrom)) for alias in node.names}
    names |= {node.name for node in ast.walk(ast.parse(stub)) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    words = frozenset(re.findall(r"\w+", stub))
    edited = [edit.source for kind in ("mistake", "alternative") for edit in edits(chapter, kind)]
    known = set()
    given = [path.read_text("utf-8") for path in (chapters.ROOT / "given").glob("*.py")]
    for text in (stub, solution, *edited, *given):
        known |= _prints(text, names, words).keys()
    return frozenset(known), frozenset(names), words


def _prints(text: str, names: frozenset[str], words: frozenset[str]) -> dict[int, set[tuple[int, int]]]:
    """Every subtree of a middling size, as a hash, and the first and the last line of each of its kind."""
    with warnings.catch_warnings(action="ignore"):
        tree = ast.parse(text)
    flat = _Flat(tree, names, words)
    found = defaultdict(set)
    for start, end, node in flat.spans:
        if SMALLEST <= end - start <= LARGEST:
            numbers: dict[tuple, int] = {}
            mark = hash(tuple(numbers.setdefault(token, len(numbers)) if isinstance(token, tuple) else token
                              for token in flat.tokens[start:end]))
            found[mark].add((node.lineno, node.end_lineno))
    return dict(found)


class _Flat(ast.NodeVisitor):
    """A tree as one list of tokens, in which every subtree is a slice.

    A name that the file binds is a tuple; all other tokens are text.
    """

    def __init__(self, tree: ast.AST, names: frozenset[str], words: frozenset[str]):
        self.tokens: list[str | tuple[str]] = []
        self.spans: list[tuple[int, int, ast.AST]] = []
        self._bound, self._attributes = set(), set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                self._attributes.add(node.attr)
            else:
                self._bound.add(_binds(node))
        self._bound -= names | {None}
        self._attributes -= words
        self.visit(tree)

    def generic_visit(self, node: ast.AST) -> None:
        start = len(self.tokens)
        self.tokens.append("Assign" if isinstance(node, ast.AnnAssign) else type(node).__name__)
        for field, value in ast.iter_fields(node):
            if field in ("ctx", "annotation", "returns", "type_comment", "simple", "kind"):
                continue
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, ast.AST):
                    if not _is_text(item):
                        self.visit(item)
                elif item is not None:
                    self.tokens.append(self._token(node, field, item))
        if hasattr(node, "lineno"):
            self.spans.append((start, len(self.tokens), node))

    def _token(self, node: ast.AST, field: str, item) -> str | tuple[str]:
        if field == "attr":
            return (item,) if item in self._attributes or item in self._bound else f".{item}"
        if field in ("id", "arg", "name", "asname") and item in self._bound:
            return (item,)
        return f"{field} {item!r}"


def _binds(node: ast.AST) -> str | None:
    """The name that a node gives to something, if it does."""
    if isinstance(node, ast.Name):
        return node.id if isinstance(node.ctx, ast.Store) else None
    if isinstance(node, ast.arg):
        return node.arg
    if isinstance(node, ast.alias):
        return node.asname
    return getattr(node, "name", None) if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.ExceptHandler)) else None


def _is_text(node: ast.AST) -> bool:
    """A docstring, or another text that stands alone."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
