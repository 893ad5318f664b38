"""A file of the course or a student's: what its names mean, and its lines as they stand in an assembled file."""

import ast
import re
import textwrap
from functools import cached_property
from pathlib import Path

from grader.course import chapters, stubs
from grader.course.chapters import Chapter
from grader.course.lent import FAR, OWN, Lent, bindings
from grader.front.assembly.names import uses

ALONE = Path(__file__).with_name("alone")
MARKS = re.compile(r"^[ \t]*# (BEGIN|END) SOLUTION\n", re.M)
NOT_WRITTEN = "# The course's: yours is not written yet.\n"
COLUMNS = 100
Key = tuple[str, str]                   # a module and a name in it; ("math", "") is the module itself


class Module:
    """A file of the course or a student's, with what is not written in it filled in."""

    def __init__(self, path: Path, chapter: Chapter | None = None):
        self.path, self.chapter = path, chapter
        self.begun = bool(chapter) and path == chapter.exercise
        self.lent = None
        if self.begun and chapter.solution.exists():
            self.lent = Lent(stubs.unwritten(chapter, methods=True), chapter.solution)

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax; what is lent has lines beyond FAR. Raises ValueError naming a file that cannot be read."""
        try:
            tree = ast.parse(stubs.text_of(self.path.read_bytes()))
        except (SyntaxError, ValueError, RecursionError) as error:
            raise ValueError(f"{chapters.shown(self.path)} cannot be read: {error}") from None
        if self.lent:
            self.lent.fill_in(tree)
        return tree

    @cached_property
    def bound(self) -> dict[str, ast.stmt]:
        return bindings(self.tree.body)

    def means(self, name: str) -> Key | None:
        """What a name stands for in this module, if the module says so."""
        node = self.bound.get(name)
        if node is None:
            return None
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            return self.path.stem, name
        [alias] = node.names
        if isinstance(node, ast.Import):
            where = alias.name if alias.asname else alias.name.partition(".")[0]
            if where in ("exercises", "solutions", "given") or alias.name.startswith(("exercises.", "given.")):
                raise self.refusal(node, "imports a module of the course whole; import what is used of it by its name")
            return (where, where) if (ALONE / f"{where}.py").exists() else (where, "")
        package, _, stem = (node.module or "").rpartition(".")
        ours = bool(node.level) or package in ("exercises", "given")
        if alias.name == "*" or not (stem and ours) and node.module in (None, "exercises", "given"):
            raise self.refusal(node, "imports more than names; import what is used by its name")
        return (stem if ours else node.module), alias.name

    def refusal(self, node: ast.stmt, why: str) -> ValueError:
        path, line = (self.lent.solution, node.lineno - FAR) if node.lineno > FAR else (self.path, node.lineno)
        return ValueError(f"{chapters.shown(path)}, line {line}: it {why}")

    def text(self, node: ast.stmt, final: dict[str, str], named: bool = True) -> str:
        """A statement's lines, with the comment above it, in which names are what they are in the whole file.

        named: whether the name that it defines is one of those; a method's is not.
        """
        mixed = [inner for inner in getattr(node, "body", []) if inner.lineno > FAR] if node.lineno <= FAR else []
        if isinstance(node, ast.ClassDef) and mixed:
            inner = [self.text(statement, final, named=False) for statement in node.body]
            marked = ["    " + NOT_WRITTEN + text if statement in mixed else text
                      for statement, text in zip(node.body, inner)]
            head = ast.ClassDef(**{**vars(node), "body": [], "end_lineno": self._first(node.body[0]) - 1})
            return self.text(head, final) + "\n".join(marked)
        lines = self._lines(self.lent.solution if node.lineno > FAR else self.path)
        far = FAR if node.lineno > FAR else 0
        first, last = self._first(node) - far, node.end_lineno - far
        while first > 1 and re.match(r"\s*#(?! (BEGIN|END) SOLUTION)", lines[first - 2]):
            first -= 1
        edits = [(docstring.lineno - far, docstring.col_offset, docstring.end_lineno - far, None, _shortened(docstring))
                 for docstring in map(_docstring, ast.walk(node)) if docstring]
        for use in uses(node):
            said = use.name.removesuffix(OWN)
            if (becomes := final.get(use.name, said)) != said:
                edits.append((use.line - far, use.column, use.line - far, len(said), becomes))
        if named and final.get(name := getattr(node, "name", ""), name) != (said := name.removesuffix(OWN)):
            line = lines[node.lineno - far - 1]
            edits.append((node.lineno - far, re.search(rf"\b{said}\b", line).start(), node.lineno - far, len(said),
                          final[name]))
        taken = {number: lines[number - 1].encode() for number in range(first, last + 1)}
        for begin, column, end, length, becomes in sorted(edits, reverse=True):
            rest = b"\n" if length is None else taken[begin][column + length:]
            taken[begin] = taken[begin][:column] + becomes.encode() + rest
            for number in range(begin + 1, end + 1):
                taken[number] = b""
        return MARKS.sub("", b"".join(taken.values()).decode())

    @staticmethod
    def _first(node: ast.stmt) -> int:
        return min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])

    @staticmethod
    def _lines(path: Path) -> list[str]:
        return [f"{line}\n" for line in stubs.text_of(path.read_bytes()).split("\n")]


def _docstring(node: ast.AST) -> ast.Expr | None:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.body and ast.get_docstring(node) is not None:
        return node.body[0]
    return None


def _shortened(docstring: ast.Expr) -> str:
    """Its first sentence."""
    text = " ".join(docstring.value.value.split()).removeprefix("Given: ")
    text = re.split(r"(?<=[.?!])(?<! al\.) ", text)[0].removesuffix(":")
    quotes = 'r"""' if "\\" in text else '"""'
    lines = textwrap.wrap(quotes + text + '"""', COLUMNS - docstring.col_offset, break_long_words=False)
    return ("\n" + " " * docstring.col_offset).join(lines)
