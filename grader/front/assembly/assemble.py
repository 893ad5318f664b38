"""The model that a student built, in one file: their parts, and the reference's where one is not written.

What the file has to hold is found from its end: main() uses some names, what they stand for uses others, each as the
module understands it in which it is written. The lines are those of the files they come from, in the order of the
chapters, with docstrings cut to their first sentence. Libraries but torch have stand-ins in alone/.
"""

import ast
import os
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from grader.course import chapters, stubs
from grader.course.chapters import ROOT
from grader.course.lent import FAR, OWN
from grader.front.assembly.module import ALONE, COLUMNS, NOT_WRITTEN, Key, Module
from grader.front.assembly.names import Use, uses

SHAPES = "jaxtyping", "typing"          # their types are for the reader: nothing asks them when the model runs
WEIGHTS = 'WEIGHTS = "assets/pocket"'


class Assembly:
    """All that main() needs, found and put in order."""

    def __init__(self):
        self.modules: dict[str, Module | None] = {}     # None: a library
        self.names: dict[Key, str] = {}                 # what a library's module or function is called here
        self.runs: dict[Key, bool] = {}                 # False: a type that only signatures name
        self.loose: list[tuple[Module, ast.stmt]] = []
        self._reach(("main", "main"), True)
        self._reach(("main", "WEIGHTS"), True)

    def module(self, name: str) -> Module | None:
        if name not in self.modules:
            self.modules[name] = self._open(name)
        return self.modules[name]

    @staticmethod
    def _open(name: str) -> Module | None:
        for path in (ALONE / f"{name}.py", ROOT / "given" / f"{name}.py"):
            if path.is_file():
                return Module(path)
        chapter = next((chapter for chapter in chapters.chapters() if chapter.stem == name), None)
        return chapter and Module(stubs.source_folder(chapter, chapters.EXERCISES) / f"{name}.py", chapter)

    def _reach(self, key: Key, runs: bool) -> None:
        module = self.module(key[0])
        node = module.bound[key[1]] if module else None
        runs = runs or isinstance(node, (ast.FunctionDef, ast.ClassDef))
        if key in self.runs and self.runs[key] >= runs:
            return
        self.runs[key] = runs
        if not module:
            return
        if any(stubs.is_stub(part) for part in ast.walk(node) if isinstance(part, ast.FunctionDef)):
            raise ValueError(f"{chapters.shown(module.path)}: {key[1]} is not written, and no reference is here to "
                             "stand in for it")
        self._follow(module, node, runs)
        for statement in module.tree.body:      # such as Linear.forward = forward
            targets = statement.targets if isinstance(statement, ast.Assign) else []
            if any(isinstance(target, (ast.Attribute, ast.Subscript)) and isinstance(target.value, ast.Name)
                   and target.value.id == key[1] for target in targets):
                self.loose.append((module, statement))
                self._follow(module, statement, True)

    def _follow(self, module: Module, node: ast.stmt, runs: bool) -> None:
        for use in uses(node):
            if key := self.meaning(module, use):
                self.names.setdefault(key, use.name)
                self._reach(key, runs and not use.signature)

    def meaning(self, module: Module, use: Use) -> Key | None:
        """Where a name comes from, also through modules that pass it on. Raises ValueError where there it is none."""
        key, through = module.means(use.name), module
        while key and (source := self.module(key[0])) and source is not through:
            if key[1] not in source.bound:
                raise module.refusal(module.bound[use.name],
                                     f"imports {key[1]}, which {chapters.shown(source.path)} does not have")
            key, through = source.means(key[1]), source
        return key

    def final(self) -> dict[Key, str]:
        """What everything is called in the whole file: its own name, unless one before it has that."""
        taken, final = set(), {}
        for key in sorted(self.runs, key=lambda key: (self.module(key[0]) is not None, *self._place(key))):
            module = self.module(key[0])
            name = wanted = (key[1] if module else self.names[key]).removesuffix(OWN)
            if name in taken:
                name = f"{wanted}_{module.chapter.number if module and module.chapter else key[0].replace('.', '_')}"
            while name in taken:
                name += "_"
            taken.add(name)
            final[key] = name
        return final

    def _place(self, key: Key) -> tuple:
        module = self.module(key[0])
        if not module:
            return 0, *key
        node = module.bound[key[1]]
        return 2 if module.chapter else 3 if key[0] == "main" else 1, key[0], module.tree.body.index(node)

    def text(self, weights: str) -> str:
        """The whole file. weights: where main() looks for a checkpoint when it is told nothing."""
        final = self.final()
        order = sorted((key for key in self.runs if self.module(key[0])), key=self._place)
        here = {module: {name: final[key] for name in [*module.bound] if (key := self._known(module, name)) in final}
                for module in filter(None, list(self.modules.values()))}
        typed = [key for key in order if not self.runs[key]]
        pieces, seen, last = [], {id(self.modules[module].bound[name]) for module, name in typed}, None
        for key in order:
            module = self.modules[key[0]]
            if id(node := module.bound[key[1]]) in seen:
                continue
            if module is not last:
                pieces.append(_heading(module, key[0]))
            seen.add(id(node))
            pieces.append(NOT_WRITTEN * (node.lineno > FAR) + module.text(node, here[module]))
            last = module
        # what is assigned to what is there: after all of it
        pieces[-1:-1] = [module.text(node, here[module]) for module, node in self.loose]
        body = "".join(_spaced(pieces)).replace(WEIGHTS, f"WEIGHTS = {weights!r}")
        aliases = [self.modules[module].text(self.modules[module].bound[name], here[self.modules[module]])
                   for module, name in typed]
        libraries = {key: name for key, name in final.items() if not self.module(key[0])}
        shapes = {key: name for key, name in libraries.items() if key[0] in SHAPES and not self.runs[key]}
        needed = _imports({key: name for key, name in libraries.items() if key not in shapes})
        reader = textwrap.indent(_imports(shapes) + "".join(aliases), "    ")
        return (f'"""{self.summary()}"""\n\nfrom __future__ import annotations\n\n{needed}'
                + ("from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:       # shapes, for the reader\n" + reader
                   if reader else "") + f"\n{body}\n\nif __name__ == \"__main__\":\n    {final['main', 'main']}()\n")

    def _known(self, module: Module, name: str) -> Key | None:
        """What a name of a module means, where the file has it."""
        if name not in module.bound:
            return None
        try:
            return self.meaning(module, Use(name, 0, 0, False))
        except ValueError:          # an import that is not used
            return None

    def parts(self) -> tuple[list[str], list[str]]:
        """(the student's parts, the others): "05 softmax", or "16" where the file is not begun."""
        mine, lent = {}, {}
        for key in sorted((key for key in self.runs if self.module(key[0])), key=self._place):
            module = self.modules[key[0]]
            if module.chapter and key[1] in stubs.parts(module.chapter):
                whole = module.begun and not any(node.lineno > FAR for node in ast.walk(module.bound[key[1]])
                                                 if hasattr(node, "lineno"))
                name = f"{module.chapter.number} {key[1]}" if module.begun else module.chapter.number
                (mine if whole else lent)[name] = None
        return list(mine), list(lent)

    def libraries(self) -> list[str]:
        """What has to be installed."""
        return sorted({key[0].partition(".")[0] for key in self.runs if self.runs[key] and not self.module(key[0])}
                      - sys.stdlib_module_names)

    def summary(self) -> str:
        """What the file says of itself."""
        mine, lent = self.parts()
        said = f"A transformer in one file, from exercises/: {_parts(mine)} yours" + (
            f"; the course's stand in for {', '.join(lent)}." if lent else ".")
        said = textwrap.fill(said, COLUMNS - 3)
        return f"{said}\n\nIt needs {' and '.join(self.libraries())}. Made by python -m grader assemble.\n"


def _parts(names: list[str]) -> str:
    return f"{len(names)} part is" if len(names) == 1 else f"{len(names)} parts are"


def _heading(module: Module, stem: str) -> str:
    if not module.chapter:
        words = {"given": "given", "alone": f"in place of the library {stem}"}.get(module.path.parent.name, "")
        title = "from here on" if stem == "main" else f"{stem}: {words}"
    else:
        owner = "yours" if module.begun else "the course's, as yours is not begun"
        title = f"{module.chapter.number} {module.chapter.name.replace('_', ' ')}: {owner}"
    return f"# ---- {title} ".ljust(COLUMNS, "-") + "\n"


def _spaced(pieces: list[str]) -> Iterator[str]:
    """Two empty lines around functions, classes and headings; none between constants."""
    for before, piece in zip(["", *pieces], pieces):
        large = re.compile(r"^(def|class|@|# ----)", re.M)
        yield ("\n\n" if large.search(before) or large.search(piece) else "") + piece


def _imports(libraries: dict[Key, str]) -> str:
    """The lines that import these, by what they are called."""
    whole, several = [], {}
    for (where, name), called in sorted(libraries.items()):
        if name:
            several.setdefault(where, []).append(name if name == called else f"{name} as {called}")
        else:
            whole.append(f"import {where}\n" if where == called else f"import {where} as {called}\n")
    return "".join([*whole, *(f"from {where} import {', '.join(names)}\n" for where, names in several.items())])


def assemble(out: Path) -> str:
    """Write the model that exercises/ holds into one file, and return what to say of it.

    A file that is there already is kept beside it. Raises ValueError where a file cannot be read, or put together, and
    where out is no place for one.
    """
    if out.is_dir() or not out.resolve().parent.is_dir():
        raise ValueError(f"OUT must be a file in a folder that is there, such as model.py, got {out}")
    assembly = Assembly()
    try:
        weights = Path(os.path.relpath(ROOT / "assets/pocket", out.resolve().parent)).as_posix()
    except ValueError:          # another drive
        weights = (ROOT / "assets/pocket").as_posix()
    text = assembly.text(weights)
    kept = stubs.set_aside(out) if out.exists() and out.read_text("utf-8", "replace") != text else None
    out.write_text(text, "utf-8", newline="\n")
    mine, lent = assembly.parts()
    said = [f"{chapters.shown(out)}: {len(text.splitlines()):,} lines. {_parts(mine)} yours"
            + (f", and the course's stand in for {', '.join(lent)}." if lent else "."),
            f"It needs {' and '.join(assembly.libraries())}, and goes on with a text:",
            f'    python {chapters.shown(out)} "The for statement"']
    return "\n".join(said + ([f"What {out.name} held before is kept as {chapters.shown(kept)}."] if kept else []))
