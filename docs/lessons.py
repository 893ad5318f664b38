"""A lesson as it stands in its notebook, with what a site needs besides: links to pages, alt text, solutions."""

import ast
import re
from pathlib import Path

from docs import maps, solutions
from grader.course import lesson
from grader.course.chapters import Chapter

MAP = re.compile(r"^!\[([^\]]*)\]\(\.\./assets/map/\d\d\.svg\)$", re.M)
DISPLAY = re.compile(r"^\$\$\n.*?\n\$\$$", re.M | re.S)
EXERCISE = re.compile(r"\]\(\.\./exercises/(ex\d\d_\w+)\.py\)")
EXERCISE_LINK = re.compile(r"\[([^\]]*)\]\(\.\./exercises/[^)]*\)")
FOLD = re.compile(r"<details>\s*<summary>(.*?)</summary>\s*(.*?)\s*</details>", re.S)
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")      # a model of bytes may write them; no page can hold them
README = re.compile(r"\]\(\.\./README\.md[^)]*\)")
SOLUTION = ("<details class=\"solution\"><summary>A solution. First write your own, ask the check below, and read "
            "what it says</summary>\n\n{}\n\n</details>")


def anchor(title: str) -> str:
    """The anchor that Jupyter gives to a heading, which the lessons' links use."""
    return re.sub('[`"]', "", title).replace(" ", "-")


def write(chapter: Chapter, folder: Path, with_solutions: bool, book: bool = False) -> None:
    """Write the lesson where Sphinx reads it, at the place that it has in the course.

    book: for paper, where nothing folds and the exercises' files have no pages.
    """
    notebook, folds, out = lesson.read(chapter), _folds(chapter) if with_solutions else {}, []
    for index, cell in enumerate(notebook["cells"]):
        source = cell["source"]
        if cell["cell_type"] == "markdown":
            if book:
                source = EXERCISE_LINK.sub(r"\1", FOLD.sub(_unfolded, source))
            source = README.sub("](../index.md)", EXERCISE.sub(r"](../exercises/\1.md)", source))
            source = DISPLAY.sub(r"\n\g<0>\n", source)      # a paragraph may touch an equation; not for Sphinx
            cell["source"] = source if book else MAP.sub(lambda found: maps.linked(found[1], "", chapter), source)
        for output in cell.get("outputs", []):
            if "text" in output:
                output["text"] = CONTROL.sub("\N{REPLACEMENT CHARACTER}", output["text"])
        if any("image/png" in output.get("data", {}) for output in cell.get("outputs", [])):
            cell["metadata"]["mystnb"] = {"image": {"alt": alt(source)}}
        out.append(cell)
        if index in folds:
            out.append({"cell_type": "markdown", "metadata": {}, "id": f"solution-{index}",
                        "source": SOLUTION.format(folds[index])})
    notebook["cells"] = out
    (folder / "notebooks" / chapter.notebook.name).write_text(lesson.dumps(notebook), "utf-8")


def _folds(chapter: Chapter) -> dict[int, str]:
    """What the solution of each exercise says, by the cell that it follows."""
    places, folds, before = solutions.assigned(chapter), {}, None
    for exercise in lesson.exercises(chapter):
        if parts := places.get(exercise.number):
            before = exercise
            folds[exercise.cell] = f"```python\n{solutions.shown(chapter, parts)}```"
        else:                           # it goes on with a method whose whole code stands there
            folds[exercise.cell] = f"It is part of the solution of [{before.title}](#{anchor(before.title)})."
    return folds


def _unfolded(fold: re.Match) -> str:
    """What a fold holds, under its words."""
    return f'<p class="fold">{fold[1]}</p>\n\n{fold[2]}\n\n'


def alt(code: str) -> str:
    """What the figure below a cell shows: the titles and the axes that its code gives it."""
    said = {"title": [], "xlabel": [], "ylabel": []}
    for node in ast.walk(ast.parse(re.sub(r"^[%!].*$", "", code, flags=re.M))):
        named = [(word.arg, word.value) for word in node.keywords] if isinstance(node, ast.Call) else []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            named.append((node.func.attr.removeprefix("set_").replace("sup", ""), node.args[0]))
        for name, value in named:
            if name in said and (words := _words(value)) and words not in said[name]:
                said[name].append(words)
    parts = ["; ".join(said["title"]) or "A figure"]
    parts += [f"{axis}: {', '.join(said[name])}" for axis, name in (("across", "xlabel"), ("up", "ylabel"))
              if said[name]]
    return f"Figure drawn by the code above. {'. '.join(parts)}."


def _words(value) -> str:
    """The words of a string in code, with … where a number is put in."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return " ".join(value.value.split())
    if isinstance(value, ast.JoinedStr):
        return " ".join("".join(part.value if isinstance(part, ast.Constant) else "…" for part in value.values).split())
    return ""
