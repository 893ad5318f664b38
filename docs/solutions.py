"""Which part of a chapter belongs to which exercise of its lesson, and the reference's code for it."""

import ast
import re
import textwrap
from dataclasses import dataclass

from grader.course.chapters import BLOCK, Chapter
from grader.course.hints import FOLD, HEADING

MARKS = re.compile(r"^[ \t]*# (?:BEGIN|END) SOLUTION\n", re.M)


@dataclass
class Exercise:
    """An exercise of a lesson: the cell with its hints, or with its heading where it has none; its words."""

    cell: int
    title: str
    words: str


def exercises(cells: list[dict]) -> list[Exercise]:
    """The exercises of a lesson in order."""
    found, told = [], False             # told: its check has been asked, so what follows is about something else
    for index, cell in enumerate(cells):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown" and (heading := HEADING.search(source)):
            found.append(Exercise(index, heading[0].removeprefix("### "), ""))
            source, told = source[heading.start():], False
        if not found or told:
            continue
        found[-1].words += FOLD.sub("", source) + "\n"
        if cell["cell_type"] == "markdown" and FOLD.search(source):
            found[-1].cell = index
        told = cell["cell_type"] == "code" and "check(" in source
    return found


def parts(chapter: Chapter) -> dict[str, str]:
    """The code of every function and method that a student writes: {"RoPE.forward": "def forward(…"}."""
    source = chapter.solution.read_text("utf-8")
    lines, found = source.splitlines(keepends=True), {}

    def walk(body, prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                walk(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.FunctionDef):
                if "# BEGIN SOLUTION" in "".join(lines[node.lineno - 1:node.end_lineno]):
                    found[prefix + node.name] = _without_docstring(node, lines)
    walk(ast.parse(source).body, "")
    for helper in BLOCK.finditer(source):
        if not helper[1]:               # at the margin: the reference's own helper, shown where it is first used
            code = MARKS.sub("", helper[0]).strip() + "\n"
            names = {node.name for node in ast.parse(code).body if hasattr(node, "name")}
            user = next((part for part in found if any(name in found[part] for name in names)), None)
            if user:
                found[user] = f"{code}\n\n{found[user]}"
    return found


def assigned(chapter: Chapter, cells: list[dict]) -> dict[int, list[str]]:
    """The parts that each exercise asks for, by the cell with its hints. Every part belongs to one exercise.

    Of exercises that speak of a part alike, it belongs to the first; a method that each names, since it is
    extended from one to the next, to the last. A part that none speaks of goes with the part before it.
    """
    asked, places, last, known = exercises(cells), {}, None, parts(chapter)
    for part in known:
        alone = sum(other.endswith("." + part.rpartition(".")[2]) for other in known) == 1
        fits = {exercise.cell: _fits(part, alone, exercise) for exercise in asked}
        best = [cell for cell in fits if fits[cell] == max(fits.values())]
        if fits[best[0]]:
            last = best[-1 if "." in part and not part.endswith("__") and fits[best[0]] >= 3 else 0]
        last = asked[0].cell if last is None else last
        places.setdefault(last, []).append(part)
    return places


def shown(chapter: Chapter, names: list[str]) -> str:
    """The code of some parts, methods within their class."""
    code, source, out, opened = parts(chapter), chapter.solution.read_text("utf-8"), [], ""
    for name in names:
        owner, dot, _ = name.rpartition(".")
        head = re.search(rf"^class {owner}\b.*\n", source, re.M)[0] if dot and owner != opened else ""
        opened = owner
        out.append(head + (textwrap.indent(code[name], "    ") if dot else code[name]))
    return "\n\n".join(part.rstrip() for part in out) + "\n"


def _fits(part: str, alone: bool, exercise: Exercise) -> int:
    """How surely an exercise asks for a part; 0 where it does not. `alone`: no other class has such a method."""
    owner, dot, name = part.rpartition(".")
    code = " ".join(re.findall(r"`[^`]+`|check\(.*", exercise.words))

    def has(word: str, where: str) -> bool:
        return bool(re.search(rf"\b{re.escape(word)}\b", where))
    if has(part, exercise.title) or (dot and has(owner, exercise.title) and has(part, code)):
        return 6
    if has(part, code):
        return 5
    if dot and not name.startswith("__") and has(name, code):
        if has(owner, code) and name != "forward":
            return 4
        if alone:
            return 3
    if dot and has(owner, exercise.title):
        return 2
    return int(bool(dot) and has(owner, code))


def _without_docstring(node: ast.FunctionDef, lines: list[str]) -> str:
    """A function as it is written, less its docstring, which the exercise has shown, and the marks around the code."""
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    head, body = lines[first - 1:node.body[0].lineno - 1], lines[node.body[0].lineno - 1:node.end_lineno + 1]
    if ast.get_docstring(node) is not None:
        body = lines[node.body[0].end_lineno:node.end_lineno + 1]
    return textwrap.dedent(MARKS.sub("", "".join(head + body))).strip("\n") + "\n"
