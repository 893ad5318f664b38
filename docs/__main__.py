"""`python -m docs`: write the course as a site into site/.

The sources of the site's pages are written into a folder that lives as long as the build. Every warning is an
error: a link that leads nowhere, an equation that cannot be read.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from docs import bibliography, glossary, lessons, pages
from grader.chapters import ROOT, chapters

HERE = Path(__file__).resolve().parent


def write_sources(folder: Path, solutions: bool) -> None:
    """Everything Sphinx reads: the course's own layout, so that the links within it lead where they did."""
    shutil.copytree(ROOT / "assets", folder / "assets", ignore=shutil.ignore_patterns("__pycache__", "run"))
    for name in ("notebooks", "exercises"):
        (folder / name).mkdir()
    for chapter in chapters():
        lessons.write(chapter, folder, solutions)
        pages.write_exercise(chapter, folder)
    pages.write_front(folder)
    glossary.write(folder)
    bibliography.write(folder)


def build(out: Path, solutions: bool = True) -> int:
    """Write the site into a folder, in place of the one that was there; 0 where nothing was wrong.

    A folder that holds something else than a site is left alone: ValueError.
    """
    from sphinx.cmd.build import main

    from docs.equations import KATEX
    if not KATEX.is_dir():
        raise ValueError(f"equations are drawn by KaTeX, which is not in {KATEX}: run npm ci --prefix docs")
    if out.exists() and any(out.iterdir()) and not (out / "searchindex.js").exists():
        raise ValueError(f"{out} holds something else than a site: name another folder")
    with tempfile.TemporaryDirectory() as temporary:
        source, made = Path(temporary, "source"), Path(temporary, "site")
        source.mkdir()
        write_sources(source, solutions)
        code = main(["-b", "html", "-q", "-W", "--keep-going", "-c", str(HERE),
                     "-d", str(Path(temporary, "trees")), str(source), str(made)])
        if code == 0:
            if out.exists():
                shutil.rmtree(out)
            shutil.move(made, out)
    return code


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m docs", description="Write the course as a site.")
    parser.add_argument("out", nargs="?", type=Path, default=ROOT / "site", help="the folder (default: site)")
    parser.add_argument("--no-solutions", action="store_true", help="leave out the folded solutions")
    options = parser.parse_args()
    try:
        code = build(options.out.resolve(), not options.no_solutions)
    except ValueError as problem:
        print(problem, file=sys.stderr)
        return 2
    if code == 0:
        print(f"Open {options.out.resolve() / 'index.html'}")
    return code


if __name__ == "__main__":
    sys.exit(main())
