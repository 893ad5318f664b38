"""The reference's code for each part of a chapter, and the exercise of its lesson that it is the solution of."""

import ast
import re
import textwrap

from grader.course.chapters import BLOCK, Chapter
from grader.course.lesson import exercises

MARKS = re.compile(r"^[ \t]*# (?:BEGIN|END) SOLUTION\n", re.M)


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


def assigned(chapter: Chapter) -> dict[int, list[str]]:
    """The parts that each exercise's solution shows, by its number: where several ask for a part, the last does."""
    last = {part: exercise.number for exercise in exercises(chapter) for part in exercise.parts}
    places = {}
    for part in parts(chapter):
        places.setdefault(last[part], []).append(part)
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


def _without_docstring(node: ast.FunctionDef, lines: list[str]) -> str:
    """A function as it is written, less its docstring, which the exercise has shown, and the marks around the code."""
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    head, body = lines[first - 1:node.body[0].lineno - 1], lines[node.body[0].lineno - 1:node.end_lineno + 1]
    if ast.get_docstring(node) is not None:
        body = lines[node.body[0].end_lineno:node.end_lineno + 1]
    return textwrap.dedent(MARKS.sub("", "".join(head + body))).strip("\n") + "\n"
