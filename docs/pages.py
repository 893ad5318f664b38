"""The course's own pages, and for each exercise what is to be written, and what it has to do."""

import ast
import re
import shutil
import subprocess
from pathlib import Path

from docs import lessons, maps, solutions
from grader.author import links
from grader.course.chapters import ROOT, Chapter, chapters, prerequisites, stub
from grader.course.lesson import exercises

WHOLE = ("The model as a map: text runs in at the upper left, through the blocks along the residual stream, "
         "and out at the upper right")
# The course's own pages: they lie where they did, so that links between them lead where they did.
PAGES = {"Start here": "README", "For instructors": "INSTRUCTORS", "For contributors": "CONTRIBUTING",
         "What changed": "CHANGELOG"}
CITED = dict(re.findall(r"(?m)^(?:  - )?([a-z-]+): (.+)$", (ROOT / "CITATION.cff").read_text("utf-8")))
IMPRINT = '<p class="imprint">{name}. Version {version}, {license} license.</p>\n\n<p class="contents">Contents</p>'
ZIP = "build-a-transformer.zip"
TREE = "```{{toctree}}\n:hidden:\n:caption: {}\n\n{}\n```"


def write_exercises(folder: Path) -> None:
    """Write the list of exercises."""
    everyone = chapters()
    rows = "\n".join(f"- [{chapter.number} · {name(chapter)}]({chapter.stem}.md): "
                     f"{', '.join(f'`{part}`' for part in _tops(chapter))}" for chapter in everyone)
    stems = "\n".join(chapter.stem for chapter in everyone)
    (folder / "exercises" / "index.md").write_text(
        "# Exercises\n\nA file for each lesson, and what you write in it. Each page has the contracts: names, shapes, "
        f"units and errors.\n\n{rows}\n\n```{{toctree}}\n:hidden:\n\n{stems}\n```\n", "utf-8")


def write_book(folder: Path) -> None:
    """Write the first page of the book, and its contents."""
    readme = (ROOT / "README.md").read_text("utf-8").split("\n\n")
    (folder / "assets" / "map" / "all.svg").write_text(maps.draw_map.picture(None), "utf-8")
    names = {f"notebooks/{chapter.notebook.stem}": f"{chapter.number} · {chapter.title.rstrip('.')}"
             for chapter in chapters()}
    names |= {"glossary": "Glossary", "bibliography": "Bibliography", "assets/pocket/README": "The pocket model"}
    contents = "\n".join(f"- [{title}]({entry}.{'ipynb' if 'notebooks' in entry else 'md'})"
                         for entry, title in names.items())
    (folder / "index.md").write_text("\n\n".join([
        readme[0], readme[1], f"![{WHOLE}](assets/map/all.svg)", IMPRINT.format(**CITED), contents,
        TREE.replace(":caption: {}\n", "").format("\n".join(names))]) + "\n", "utf-8")


def write_pages(folder: Path) -> None:
    """Write the course's own pages, and the files that they link to."""
    for name in [*(f"{page}.md" for page in PAGES.values()), "LICENSE", "CITATION.cff"]:
        shutil.copy(ROOT / name, folder)
    told = (ROOT / "README.md").read_text("utf-8").split("\n\n")[2:]      # title and promise are the front page's
    told[told.index("## Two commands")] = "\n\n".join([*fetch(folder), "## Two commands"])
    (folder / "README.md").write_text("\n\n".join(["# Start here", *told]), "utf-8")


def write_zip(folder: Path) -> None:
    """Write the course as it was committed last; nothing where this is no checkout."""
    if (ROOT / ".git").exists() and shutil.which("git"):
        command = ["git", "archive", f"--prefix={Path(ZIP).stem}/", f"--output={folder / ZIP}", "HEAD"]
        subprocess.run(command, cwd=ROOT, check=True)


def fetch(folder: Path) -> list[str]:
    """How one comes by the course's files, where that is known: from its repository, or as a zip."""
    url, out = links.address(), []
    if url:
        out.append(f"Fetch the [course's repository]({url}):\n\n```sh\ngit clone {url} course\ncd course\n```")
    if (folder / ZIP).exists():
        out.append(f"{'Or d' if url else 'D'}ownload [the whole course as a zip]({ZIP}), unpack it, and open a "
                   "terminal in its folder.")
    return out


def write_exercise(chapter: Chapter, folder: Path) -> None:
    """Write the page of an exercise file, and the file itself to download."""
    source = stub(chapter)
    (folder / "exercises" / f"{chapter.stem}.py").write_text(source, "utf-8")
    told = ast.get_docstring(ast.parse(source)).partition("\n")[2].strip()
    where = {part.partition(".")[0]: exercise.title for exercise in reversed(exercises(chapter))
             for part in exercise.parts}
    used = ", ".join(f"[{other.number} {name(other)}]({other.stem}.md)" for other in prerequisites(chapter))
    lesson = f"../notebooks/{chapter.notebook.name}"
    out = [f"# {chapter.number} · {name(chapter)}: the exercise", _code(told), f"**Lesson:** [{chapter.number} · "
           f"{name(chapter)}]({lesson}). **Builds on:** {used or 'nothing'}. **The file:** "
           f"[{chapter.stem}.py]({chapter.stem}.py). **To check it:** `python -m grader check {chapter.number}`."]
    tops = _tops(chapter)
    given = "\n\n".join(code for top, code in _pieces(source).items() if top not in tops)
    for top, code in _pieces(source).items():
        if top in tops:
            title = where[top]
            out += [f"## {top}", f"[{title}]({lesson}#{lessons.anchor(title)})", f"```python\n{code}\n```"]
    out += ["## Given", "What stands in the file already: imports, and what you need not write.",
            f"```python\n{given}\n```"]
    (folder / "exercises" / f"{chapter.stem}.md").write_text("\n\n".join(out) + "\n", "utf-8")


def name(chapter: Chapter) -> str:
    """The chapter's name: "RoPE" of "RoPE: a position is an angle …"."""
    return chapter.title.partition(":")[0].rstrip(".")


def _tops(chapter: Chapter) -> list[str]:
    """The functions and classes of which a student writes something."""
    return list(dict.fromkeys(part.partition(".")[0] for part in solutions.parts(chapter)))


def _pieces(source: str) -> dict[str, str]:
    """A file's functions and classes by name; everything between them is with what follows "", the rest."""
    lines, found = source.splitlines(), {"": ""}
    for node in ast.parse(source).body:
        first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
        code = "\n".join(lines[first - 1:node.end_lineno])
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = code
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            found[""] += code + "\n"
    found[""] = found[""].rstrip()
    return found


def _code(words: str) -> str:
    """Words of a docstring as Markdown: marks that mean something there are escaped, and lines may wrap."""
    return re.sub(r"([*_\[\]<`$\\])", r"\\\1", words)
