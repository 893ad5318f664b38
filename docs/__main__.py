"""`python -m docs`: write the course as a site into site/.

The sources of the site's pages are written into a folder that lives as long as the build. Every warning is an
error: a link that leads nowhere, an equation that cannot be read.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from docs import bibliography, book, front, glossary, lessons, moving, pages, pocket, search
from grader.course.chapters import ROOT, chapters

HERE = Path(__file__).resolve().parent


def write_sources(folder: Path, solutions: bool, with_book: bool, model: Path) -> None:
    """Everything Sphinx reads: the course's own layout, so that the links within it lead where they did.

    model: where the pocket model's files for the browser lie.
    """
    for chapter in chapters():
        lessons.write(chapter, folder, solutions)
        pages.write_exercise(chapter, folder)
    if solutions:               # without them nothing can be graded: a class gets an edition of its own
        pages.write_zip(folder)
    front.write(folder, book.NAME if with_book else "", model)
    pages.write_pages(folder)
    pages.write_exercises(folder)
    glossary.write(folder)
    bibliography.write(folder)


def build(out: Path, solutions: bool = True, with_book: bool = False) -> int:
    """Write the site into a folder, in place of the one that was there; 0 where nothing was wrong.

    with_book: the lessons as a PDF and an EPUB, too, in the same folder.
    A folder that holds something else than a site is left alone: ValueError.
    """
    from docs.equations import KATEX
    for user, tool in (("equations are drawn by KaTeX", KATEX), ("pages are found by Pagefind", search.PAGEFIND), *(
            ("figures that move are drawn by d3", moving.MODULES / module) for module in moving.DRAWN_WITH)):
        if not tool.exists():
            raise ValueError(f"{user}, which is not in {tool}: run npm ci --prefix docs")
    if with_book and not book.CHROMIUM:
        raise ValueError("the PDF is printed by Chromium, which is not installed: apt-get install chromium")
    if out.exists() and any(out.iterdir()) and not (out / "searchindex.js").exists():
        raise ValueError(f"{out} holds something else than a site: name another folder")
    with tempfile.TemporaryDirectory() as temporary:
        made, model = Path(temporary, "site"), Path(temporary, "pocket")
        pocket.write(model)
        files = [made / f"{book.NAME}{kind}" for kind in (".epub", ".pdf") if with_book]
        code = _sphinx("html", made, lambda folder: write_sources(folder, solutions, with_book, model))
        if with_book and code == 0:
            paper = Path(temporary, "epub"), Path(temporary, "page")
            code = _sphinx("epub", paper[0], book.write_sources) or _sphinx("singlehtml", paper[1], book.write_sources)
        if code == 0 and with_book:
            book.bind(paper[0], files[0], book.cover())
            book.make_pdf(paper[1] / "index.html", files[1], Path(temporary, "profile"))
        if code == 0:
            search.index(made)
            shutil.copytree(model, made / pocket.FILES, dirs_exist_ok=True)
            if out.exists():
                shutil.rmtree(out)
            shutil.move(made, out)
    return code


def _sphinx(builder: str, made: Path, write) -> int:
    """Run one of Sphinx's builders on sources that `write` writes; its exit code."""
    from sphinx.cmd.build import main

    source = made.with_name(f"{made.name}-source")
    for name in ("notebooks", "exercises"):
        (source / name).mkdir(parents=True)
    shutil.copytree(ROOT / "assets", source / "assets", ignore=shutil.ignore_patterns("__pycache__", "run"))
    write(source)
    return main(["-b", builder, "-t", builder, "-q", "-W", "--keep-going", "-c", str(HERE),
                 "-d", str(made.with_name(f"{made.name}-trees")), str(source), str(made)])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m docs", description="Write the course as a site.")
    parser.add_argument("out", nargs="?", type=Path, default=ROOT / "site", help="the folder (default: site)")
    parser.add_argument("--no-solutions", action="store_true", help="leave out the folded solutions")
    parser.add_argument("--book", action="store_true", help="the lessons as a PDF and an EPUB, too")
    options = parser.parse_args()
    try:
        code = build(options.out.resolve(), not options.no_solutions, options.book)
    except ValueError as problem:
        print(problem, file=sys.stderr)
        return 2
    if code == 0:
        print(f"Open {options.out.resolve() / 'index.html'}")
    return code


if __name__ == "__main__":
    sys.exit(main())
