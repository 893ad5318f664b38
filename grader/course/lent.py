"""A part that a student has not written is filled in with the reference's, before their file is compiled.

The reference's function or class takes the stub's place in the file's syntax tree. So it finds the student's other
parts by their names, and these find it; its lines in tracebacks and debuggers are those of the reference's file.
"""

import ast
import types
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from grader.course import chapters

FAR = 1_000_000         # what is added to a lent line's number until it is compiled; no file is as long
OWN = "_of_the_course"  # ends the name of what is lent and is not to be found in the student's file


@dataclass(frozen=True)
class Lent:
    """What is filled in: parts such as "softmax", or methods such as "Linear.forward", and the reference's file."""

    parts: frozenset[str]
    solution: Path

    def fill_in(self, tree: ast.Module) -> None:
        """Put the reference's parts into a student's tree, and before them what they need and the file lacks.

        A helper that only the reference has may have a name that means another thing in the student's file, and a
        part that is missing there shall not be found by a check: these are lent under names of their own.
        """
        source = self.solution.read_text("utf-8")
        theirs = ast.increment_lineno(ast.parse(source), FAR)
        mine, handed_out = bindings(tree.body), bindings(ast.parse(chapters.make_stub(source)).body)
        private = {name for name in bindings(theirs.body) if (name in mine) != (name in handed_out)}
        for node in ast.walk(theirs):
            for field in ("id", "name"):
                if getattr(node, field, None) in private:
                    setattr(node, field, getattr(node, field) + OWN)
        given, body, placed = bindings(theirs.body), [], set(mine)

        def place(node: ast.stmt) -> None:
            for name in sorted({name.id for name in ast.walk(node) if isinstance(name, ast.Name)}):
                if name in given and name not in placed:
                    placed.add(name)
                    place(given[name])
                    body.append(given[name])
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in self.parts:
                node = given[node.name]
                place(node)
            elif isinstance(node, ast.ClassDef) and any(part.startswith(f"{node.name}.") for part in self.parts):
                methods = {f"{node.name}.{method.name}": method for method in given[node.name].body
                           if isinstance(method, ast.FunctionDef)}
                for number, method in enumerate(node.body):
                    if (name := f"{node.name}.{getattr(method, 'name', '')}") in self.parts:
                        node.body[number] = methods[name]
                        place(methods[name])
            body.append(node)
        tree.body = body

    def located(self, code: types.CodeType) -> types.CodeType:
        """Compiled code, in which what was lent says where it stands."""
        code = code.replace(co_consts=tuple(
            self.located(const) if isinstance(const, types.CodeType) else const for const in code.co_consts))
        if code.co_firstlineno <= FAR:
            return code
        return code.replace(co_filename=str(self.solution), co_firstlineno=code.co_firstlineno - FAR)


def bindings(body: Iterable[ast.stmt]) -> dict[str, ast.stmt]:
    """The statements of a module by the names that they bind; an import of many names is many."""
    found = {}
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found[node.name] = node
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for name in node.names:
                alone = ast.Import([name]) if isinstance(node, ast.Import) else \
                    ast.ImportFrom(node.module, [name], node.level)
                found[name.asname or name.name.partition(".")[0]] = ast.copy_location(alone, node)
        else:
            found.update(dict.fromkeys((name.id for name in ast.walk(node) if isinstance(name, ast.Name)
                                        and isinstance(name.ctx, ast.Store)), node))
    return found
