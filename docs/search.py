"""A small extension of Sphinx: pages as Pagefind reads them, which finds sections; and Pagefind, run over the site."""

import re
import subprocess
from pathlib import Path

PAGEFIND = Path(__file__).resolve().parent / "node_modules" / "pagefind" / "lib" / "runner" / "bin.cjs"
# The anchor of a section stands on its heading, where Pagefind looks for it.
SECTION = re.compile(r'<section([^>]*?) id="([^"]*)">((?:\s*<span id="[^"]*"></span>)*)\s*<h(\d)>')
HEADING = r'<section\1>\3<h\4 id="\2">'
# What is not to be found: code of lessons (its contracts stand in the exercises) with what it prints and draws,
# solutions, the map, the sign beside a heading, and of an equation all but what a screen reader says.
IGNORED = re.compile(
    r'(?=class="(?:cell_(?:in|out)put|solution"|map"|headerlink"|katex-html)|(?<=<annotation )encoding)')
# Readers ask for a root in words; lessons write the sign, in equations and between words.
RADICAL = re.compile(r"<msqrt>|√(?=[^<>]*<)")
WORDS = ' data-words="square root sqrt" data-pagefind-index-attrs="data-words">'
# Of a lesson and its exercise, the lesson comes first.
WEIGHTS = {"exercises": 0.5}


def _mark(app, page, template, context, tree) -> None:
    """The text that is searched: that of pages of the course, and not of lists of pages."""
    if tree is not None:
        body = IGNORED.sub("data-pagefind-ignore ", SECTION.sub(HEADING, context["body"]))
        body = RADICAL.sub(lambda sign: f"<msqrt{WORDS}" if sign[0] == "<msqrt>" else f"<span{WORDS}√</span>", body)
        searched = page not in ("index", "exercises/index", "CHANGELOG", "bibliography")
        mark = f' data-pagefind-body data-pagefind-weight="{WEIGHTS.get(page.partition("/")[0], 1)}"' * searched
        context["body"] = f"<div{mark}>{body}</div>"


def index(site: Path) -> None:
    """Write what Pagefind needs in a reader's browser into the site."""
    done = subprocess.run(["node", str(PAGEFIND), "--site", str(site)], capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"Pagefind could not be run: {done.stdout}{done.stderr}")


def setup(app) -> dict:
    app.connect("html-page-context", _mark)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
