"""Students who have written some exercises of a lesson: the stub with the solution's parts in their places."""

import ast
from pathlib import Path

from grader.course import chapters, lesson
from grader.course.chapters import Chapter


def after(chapter: Chapter, number: int) -> str:
    """The chapter's file of a student who has written one exercise, by its number, and no other."""
    exercise = next(exercise for exercise in lesson.exercises(chapter) if exercise.number == number)
    source = chapters.stub(chapter)
    for part in exercise.parts:
        source = _written(source, chapter.solution.read_text("utf-8"), part)
    return source


def exercises(chapter: Chapter) -> list[int]:
    """The numbers of the chapter's exercises that ask for code."""
    return [exercise.number for exercise in lesson.exercises(chapter) if exercise.parts]


def begun(folder: Path, chapter: Chapter, number: int) -> None:
    """Write it into a folder of fresh stubs."""
    (folder / chapter.exercise.name).write_text(after(chapter, number), "utf-8")


def _written(source: str, solution: str, part: str) -> str:
    """A file with the solution's part in place of its own, and behind it the helpers that only the solution has."""
    lines, theirs = source.splitlines(keepends=True), solution.splitlines(keepends=True)
    (first, last), (start, end) = _place(source, part), _place(solution, part)
    lines[first:last] = theirs[start:end]
    here = {node.name for node in ast.parse(source).body if hasattr(node, "name")}
    nodes = {node.name: node for node in ast.parse(solution).body if hasattr(node, "name")}
    needed, left = {}, [nodes[part.partition(".")[0]]]
    while left:
        for name in {name.id for name in ast.walk(left.pop()) if isinstance(name, ast.Name)} & nodes.keys():
            if name not in here and name not in needed:
                needed[name] = nodes[name]
                left.append(nodes[name])
    for helper in needed.values():
        lines += ["\n\n", *theirs[helper.lineno - 1:helper.end_lineno]]
    return "".join(lines)


def _place(source: str, part: str) -> tuple[int, int]:
    """The lines of a function, a class or a method, [first, last), with what decorates it."""
    nodes = ast.parse(source).body
    for name in part.split("."):
        node = next(node for node in nodes if getattr(node, "name", "") == name)
        nodes = getattr(node, "body", [])
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1, node.end_lineno
