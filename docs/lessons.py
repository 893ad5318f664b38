"""A lesson as it stands in its notebook, with what a site needs besides: links to pages, alt text, solutions.

Two kinds of code are folded, and left out of the book: the first cell, which sets up, and cells that only draw. What
check(...) says of files that nobody has written yet is replaced by a line that says what the cell does.
"""

import ast
import re
from pathlib import Path

from docs import maps, moving, solutions
from grader.course import lesson
from grader.course.chapters import Chapter

MAP = re.compile(r"^!\[([^\]]*)\]\(\.\./assets/map/\d\d\.svg\)$", re.M)
DISPLAY = re.compile(r"^\$\$\n.*?\n\$\$$", re.M | re.S)
EXERCISE = re.compile(r"\]\(\.\./exercises/(ex\d\d_\w+)\.py\)")
EXERCISE_LINK = re.compile(r"\[([^\]]*)\]\(\.\./exercises/[^)]*\)")
FOLD = re.compile(r"<details>\s*<summary>(.*?)</summary>\s*(.*?)\s*</details>", re.S)
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")      # a model of bytes may write them; no page can hold them
CHECKED = re.compile(r"ex\d\d_\w+: \d+ of (\d+) checks passed.*\n?")
ASKED = ('<p class="asked">In the notebook, this cell asks your file {}, and says what is wrong.</p>')
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
    hidden, below = _hidden(notebook["cells"]), []
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
            cell["metadata"]["mystnb"] = {"image": {"alt": described(cell)}}
        if index in hidden:
            cell["metadata"]["tags"] = [*cell["metadata"].get("tags", ()), "remove-input" if book else "hide-input"]
        out.append(cell)
        if cell["cell_type"] == "markdown":             # what a figure's text says of it comes first
            out, below = [*out, *below], []
        if not book:
            below += moving.below(chapter, cell)
        if checks := _checks(cell):
            cell["outputs"] = []
            out.append(_markdown(f"asked-{index}", ASKED.format(f"{checks} check{'s' * (checks > 1)}")))
        if index in folds:
            out.append(_markdown(f"solution-{index}", SOLUTION.format(folds[index])))
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


def _markdown(name: str, source: str) -> dict:
    return {"cell_type": "markdown", "metadata": {}, "id": name, "source": source}


def _checks(cell: dict) -> int:
    """How many checks a cell asks, where it says nothing else."""
    said = "".join(output.get("text", "-") for output in cell.get("outputs", []))
    return 0 if CHECKED.sub("", said).strip() else sum(map(int, CHECKED.findall(said)))


def _hidden(cells: list[dict]) -> set[int]:
    """The places of the code that is folded: the first cell, and those that only draw.

    Such a cell ends in plt.show(), prints nothing, and makes no name that a later cell takes from it.
    """
    code = [index for index, cell in enumerate(cells) if cell["cell_type"] == "code"]
    names = [_names(cells[index]["source"]) for index in code]
    draws = {index for place, index in enumerate(code)
             if cells[index]["source"].rstrip().endswith("plt.show()")
             and all(output["output_type"] != "stream" for output in cells[index]["outputs"])
             and not _handed_on(names[place][0], names[place + 1:])}
    return {code[0], *draws}


def _handed_on(made: set[str], later: list[tuple[set[str], set[str]]]) -> bool:
    """Whether later cells use a name before they make it anew."""
    for anew, used in later:
        if made & (used - anew):
            return True
        made = made - anew
    return False


def _names(code: str) -> tuple[set[str], set[str]]:
    """The names that a cell makes, and those that it uses."""
    made, used = set(), set()
    for node in ast.walk(_tree(code)):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else made).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            made.add(node.name)
        elif isinstance(node, ast.arg):
            made.add(node.arg)
        elif isinstance(node, ast.alias):
            made.add(node.asname or node.name)
    return made, used


def _unfolded(fold: re.Match) -> str:
    """What a fold holds, under its words."""
    return f'<p class="fold">{fold[1]}</p>\n\n{fold[2]}\n\n'


def described(cell: dict) -> str:
    """What a cell's figure shows, in the words of its author; else in those that its code gives it."""
    return cell["metadata"].get("alt") or alt(cell["source"])


def alt(code: str) -> str:
    """What the figure below a cell shows, by its code: titles and axes."""
    said = {"title": [], "xlabel": [], "ylabel": []}
    for node in ast.walk(_tree(code)):
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


def _tree(code: str) -> ast.Module:
    return ast.parse(re.sub(r"^[%!].*$", "", code, flags=re.M))


def _words(value) -> str:
    """The words of a string in code, with … where a number is put in."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return " ".join(value.value.split())
    if isinstance(value, ast.JoinedStr):
        return " ".join("".join(part.value if isinstance(part, ast.Constant) else "…" for part in value.values).split())
    return ""
