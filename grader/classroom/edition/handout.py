"""The students' edition of the course: lessons, stubs, visible checks, and a record in place of answers.

`python -m grader handout DIR [--chapters 0-9] [--given 0-4]`. A chapter that is given keeps its
solution and its mistakes. Of any other the edition holds the stub, in `exercises/` to be written
and in `stubs/` as it was, and in `key/` what the reference and each known mistake answered to the
visible checks (see `grader.judge.record`). A list of all files with their hashes is for `update`.
Nothing is written before `leaks` has looked through all of it, and the same course gives the same
bytes.
"""

import ast
import re
import shutil
import tempfile
from pathlib import Path

import jinja2

from grader.author import links
from grader.classroom.edition import leaks
from grader.course import chapters, checks, lesson, stubs
from grader.course.chapters import ROOT, Chapter, CourseError
from grader.front import update
from grader.judge import record
from grader.judge.engine import Grader
from grader.sandbox.setting import Setting

PAGES = Path(__file__).parent / "files"      # what an edition holds that the course does not
PATIENCE = 60.0             # seconds for a check: what a busy machine left out would be missed without a word
AS_THEY_ARE = (".gitattributes", ".gitignore", "LICENSE", "requirements.txt", "requirements-serve.txt")
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(((?!https?:|#)[^)\s#]+)(?:#[^)\s]*)?\)")


def run(folder: Path, chosen: list[Chapter], given: list[Chapter], tell=lambda words: None) -> None:
    """Write the students' edition of these chapters into a new or empty folder.

    given: those of them whose solution the students get. tell(words): told what is being done.
    Raises ValueError where the folder holds something, where a chapter is missing that another one
    builds on, or where something would be shown that must not be; then nothing is written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} must be a new or an empty folder; what is in it would be mixed up with the edition")
    _complete(chosen, given)
    _installed([chapter for chapter in chosen if chapter not in given])
    with tempfile.TemporaryDirectory(prefix="handout-") as scratch:
        draft, secrets = Path(scratch), leaks.secrets(given)
        _copy(draft, chosen, given)
        _refuse_leaks(draft, secrets)       # at once: asking takes minutes
        with Grader(Setting(timeout=PATIENCE)) as grader:
            for chapter in chosen:
                if chapter not in given:
                    tell(f"asking the reference and the mistakes of {chapter.stem}")
                    _record(grader, chapter, draft)
                    grader.mistakes.forget(chapter)
        _refuse_leaks(draft, secrets, "key")
        _write(draft / update.LIST, update.listed(draft))
        folder.mkdir(parents=True, exist_ok=True)
        for inside in draft.iterdir():      # the draft's own mode is for nobody but this process
            (shutil.copytree if inside.is_dir() else shutil.copy2)(inside, folder / inside.name)


def _complete(chosen: list[Chapter], given: list[Chapter]) -> None:
    """Raise ValueError where a chapter is left out that another one builds on."""
    if extra := [c.number for c in given if c not in chosen]:
        raise ValueError(f"--given names {', '.join(extra)}, which --chapters leaves out")
    for name, those in (("--chapters", chosen), ("--given", given)):
        for chapter in those:
            if missing := [other.number for other in chapters.needs(chapter) if other not in those]:
                raise ValueError(f"{name} has {chapter.number}, which builds on {', '.join(missing)}: add them")


def _installed(asked: list[Chapter]) -> None:
    """Raise CourseError where a check cannot be asked here: at once, since asking the others takes minutes."""
    for chapter in asked:
        for check in checks.collect(chapter.tests(), chapter.stem, hidden=False):
            if check.lacking:
                raise CourseError(f"{chapter.stem}: {check.lacking} (or leave the chapter out, with --chapters)")


# -- what an edition holds -------------------------------------------------------------------------

def _copy(draft: Path, chosen: list[Chapter], given: list[Chapter]) -> None:
    """Write everything but the records."""
    numbers = {chapter.number for chapter in chosen}
    files = [ROOT / name for name in AS_THEY_ARE] + [*chapters.engine_files(), ROOT / "exercises/__init__.py"]
    files += [path for path in (ROOT / "assets").rglob("*") if path.is_file() and path.suffix != ".py"
              and not any(part.startswith((".", "__")) or part == "run" for part in path.relative_to(ROOT).parts)
              and (not re.match(r"\d\d(?!\d)", path.name) or path.name[:2] in numbers)]
    for chapter in chosen:
        files += [chapter.tests(), chapter.notebook]
        needed = {check.needs for check in checks.collect(chapter.tests(), chapter.stem, hidden=False)} - {None}
        files += [ROOT / f"requirements-{package}.txt" for package in sorted(needed)]
        files += [chapter.solution, chapter.mistakes] if chapter in given else []
    for path in files:
        if path.exists():
            copy = draft / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    for chapter in chosen:
        for folder in ["exercises"] + ["stubs"] * (chapter not in given):
            _write(draft / folder / chapter.solution.name, chapters.stub(chapter))
    course = (ROOT / "pyproject.toml").read_text("utf-8")
    course = re.sub(r"\n\[project\.urls\].*?(?=\n\[)", "", course, flags=re.S)     # there lie the solutions
    _write(draft / "pyproject.toml", course.partition("\n[tool.ruff]")[0])
    torch = re.search(r"(?m)^torch==\S+", (ROOT / "requirements.txt").read_text("utf-8"))[0]
    words = {"table": lesson.table(chosen), "given": given, "torch": torch,
             "first": next((chapter for chapter in chosen if chapter not in given), chosen[0]),
             "cells": [_cells(chapter, chosen, given) for chapter in chosen]}
    for page in sorted(PAGES.iterdir()):
        made = jinja2.Template(page.read_text("utf-8"), trim_blocks=True, lstrip_blocks=True,
                               undefined=jinja2.StrictUndefined, keep_trailing_newline=True).render(words)
        _write(draft / page.name, made)
    for page in (*draft.glob("notebooks/*.ipynb"), *draft.rglob("*.md")):
        _unlink(page, draft)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())


def _unlink(page: Path, draft: Path) -> None:
    """Of a link to a file that is not in the edition, keep the words: "lesson 16" stays, and leads nowhere."""
    def words(link: re.Match) -> str:
        target = (page.parent / link[2]).resolve()
        return link[0] if target.exists() and target.is_relative_to(draft.resolve()) else link[1]
    text = page.read_text("utf-8")
    if page.suffix == ".md":
        _write(page, LINK.sub(words, text))
        return
    notebook = lesson.loads(links.put(text, page.name, ""))
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = LINK.sub(words, cell["source"])
    _write(page, lesson.dumps(notebook))


def _cells(chapter: Chapter, chosen: list[Chapter], given: list[Chapter]) -> dict:
    """Where a lesson runs students' code: {"chapter", "own": cell or None, "others": {chapter: cell}, "left_out"}.

    A cell is its number as Jupyter shows it, the first that uses something of that chapter which is
    to be written; of a chapter that is left out, the one that imports it.
    """
    source: dict[str, Chapter] = {}     # of each imported name
    first: dict[Chapter, int] = {}
    for cell in lesson.cells(chapter, "code"):
        code = re.sub(r"(?m)^[%!].*", "", cell["source"])
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("exercises."):
                other = Chapter(node.module.removeprefix("exercises."))
                source |= {name.asname or name.name: other for name in node.names if name.name in _unwritten(other)}
                if other not in chosen:
                    first.setdefault(other, cell["execution_count"])
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in source:
                first.setdefault(source[node.id], cell["execution_count"])
    others = {other: cell for other, cell in sorted(first.items()) if other not in (chapter, *given)}
    return {"chapter": chapter, "own": None if chapter in given else first.get(chapter), "others": others,
            "left_out": [other for other in others if other not in chosen]}


def _unwritten(chapter: Chapter) -> set[str]:
    """What of a stub raises NotImplementedError: the parts to be written, and given ones that use them."""
    nodes = {node.name: list(ast.walk(node)) for node in ast.parse(chapters.stub(chapter)).body
             if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    found = {name for name, inside in nodes.items()
             if any(isinstance(node, ast.FunctionDef) and stubs.is_stub(node) for node in inside)}
    while more := {name for name, inside in nodes.items()
                   if any(isinstance(node, ast.Name) and node.id in found for node in inside)} - found:
        found |= more
    return found


# -- the record ------------------------------------------------------------------------------------

def _record(grader: Grader, chapter: Chapter, draft: Path) -> None:
    """Ask the reference, and each mistake where it can show, every visible check; keep what they answer."""
    suspects, answers = grader.mistakes.suspects(chapter), []
    for check in grader.all_checks(chapter):
        asked = {"file": check.file, "function": check.function, "dtype": check.dtype}
        reply, body = grader.key.right_answer(check)
        answers.append(({**asked, "mistake": None}, {"answer": reply["answer"], "changed": reply["changed"]}, body))
        for number in grader.mistakes.wrong(check):
            reply = suspects[number].submission.ask(check)
            answers.append(({**asked, "mistake": number}, _placeless(reply.header), reply.body))
    said = [{"words": suspect.edit.words, "by_size": suspect.edit.by_size,
             **{kind: sorted(getattr(suspect.edit, kind)) for kind in ("parts", "own", "leans")}}
            for suspect in suspects]
    head = {"seed": grader.setting.seed, "device": grader.setting.device, "mistakes": said}
    record.write(draft / chapter.record.relative_to(ROOT), head, answers)


def _placeless(reply: dict) -> dict:
    """A reply whose message names no folder of this run, which would be another the next time."""
    here = rf"{re.escape(tempfile.gettempdir())}[/\\][^/\\\s:'\"]+"
    return {**reply, "message": re.sub(here, "…", reply["message"])} if "message" in reply else reply


def _refuse_leaks(draft: Path, secrets: list[leaks.Secret], under: str = "") -> None:
    """Raise CourseError where the draft, or a folder of it, shows what it must not."""
    if found := list(leaks.find(draft, secrets, under)):
        lines = [f"  {name} shows a line of {secret.source}:\n      {secret.text}" for name, secret in found[:10]]
        more = f"\n  and {len(found) - 10} more" * (len(found) > 10)
        raise CourseError("the edition would show what students must not see; nothing was written\n"
                          + "\n".join(lines) + more
                          + "\nWhat is shown on purpose goes, with its file, into grader/classroom/edition/shown.txt.")
