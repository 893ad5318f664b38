"""The pages of lessons: what is folded, what figures say, how they look in the dark and on a phone."""

import re

import pytest

from grader.course import lesson
from grader.course.chapters import chapters, find

pytest.importorskip("sphinx", reason="the site is built by requirements-site.txt")

from docs import finish, lessons  # noqa: E402
from tests.course.lessons.run_notebooks import described  # noqa: E402
from tests.course.site import browser  # noqa: E402

LESSON = pytest.mark.parametrize("chapter", chapters(), ids=lambda chapter: chapter.stem)
CELL = {"cell_type": "code", "metadata": {}, "outputs": []}
DRAWN = {"output_type": "display_data", "data": {"image/png": ""}, "metadata": {}}


@LESSON
def test_every_figure_has_the_words_of_its_author(chapter):
    for cell in lesson.cells(chapter, "code"):
        shown = [output for output in cell["outputs"] if "image/png" in output.get("data", {})]
        assert ("alt" in cell["metadata"]) == bool(shown), cell["source"]
        assert all(output["metadata"]["image/png"]["alt"] == cell["metadata"]["alt"] for output in shown)
        assert 60 < len(cell["metadata"].get("alt", 61 * " ")) < 400, cell["metadata"]["alt"]


def test_a_lesson_run_anew_keeps_its_authors_words():
    cell = CELL | {"source": 'ax.set_title("Two lines")\nplt.show()'}
    assert "Two lines" in described(cell, [DRAWN | {}])[0]["metadata"]["image/png"]["alt"]
    cell["metadata"] = {"alt": "One line rises, one falls."}
    assert described(cell, [DRAWN | {}])[0]["metadata"]["image/png"]["alt"] == "One line rises, one falls."


def test_code_that_only_draws_is_hidden():
    sources = ["import torch", "x = 1", "fig, ax = plt.subplots()\nax.plot([x])\nplt.show()",
               "y = 2\nfig, ax = plt.subplots()\nplt.show()", "print(y)", "ax = 3\nprint(ax)"]
    cells = [CELL | {"source": source} for source in sources]
    assert lessons._hidden(cells) == {0, 2}
    cells[2] = cells[2] | {"outputs": [{"output_type": "stream", "text": "1\n"}]}
    assert lessons._hidden(cells) == {0}


def test_pages_fold_what_sets_up_and_say_what_checks_ask(site):
    for chapter in chapters():
        page = (site / "notebooks" / f"{chapter.notebook.stem}.html").read_text("utf-8")
        hidden = len(lessons._hidden(lesson.cells(chapter)))
        assert page.count('<details class="admonition hide above-input">') == hidden >= 1, chapter
        assert not re.search(r"\d of \d+ checks passed \(\d+ to do\)", page), chapter
        asking = [cell for cell in lesson.cells(chapter, "code") if lessons._checks(cell)]
        assert page.count('<p class="asked">') == len(asking) > 0, chapter


def test_pictures_know_their_sizes_and_wait(site, pages):
    for page in pages.values():
        for image in page.images:
            assert int(image["width"]) > 0 and int(image["height"]) > 0 and image["decoding"] == "async", page.path
        assert [image.get("loading") for image in page.images[:2]] == [None, "lazy"][:len(page.images)], page.path


def test_sizes_and_columns_are_measured(tmp_path):
    (tmp_path / "a.svg").write_text('<svg viewBox="0 0 360 464"></svg>', "utf-8")
    assert finish.sized('<img alt="x" src="a.svg" />', tmp_path) == (
        '<img alt="x" src="a.svg" width="360" height="464" decoding="async">')
    assert finish.measured("<pre><b>a &lt; b</b>\nab</pre>") == '<pre style="--columns:5"><b>a &lt; b</b>\nab</pre>'


@browser.needed
def test_code_outputs_and_symbols_fit_a_phone(site, pages):
    found, _ = browser.ask(site, [page for page in pages if page.parent.name == "notebooks"], """
        document.querySelectorAll("details").forEach(fold => fold.open = true);
        const wide = all => [...document.querySelectorAll(all)].filter(e => e.scrollWidth > e.clientWidth + 1);
        const small = [...document.querySelectorAll("article .highlight pre")].filter(
            e => parseFloat(getComputedStyle(e).fontSize) < 9);
        return [...wide("article pre"), ...small, ...wide(".table-wrapper").filter(
            e => e.textContent.trim().startsWith("symbol"))].map(e => e.textContent.slice(0, 60));""", width=360)
    assert [words for words in found if words] == []


@browser.needed
def test_in_the_dark_drawings_are_dark_and_figures_keep_their_colours(site):
    page = site / "notebooks" / "09_attention.html"
    ask = """const filter = what => getComputedStyle(document.querySelector(what)).filter;
        return [filter('article img[src$=".svg"]'), filter(".cell_output img")];"""
    assert find("attention").notebook.stem == page.stem
    (drawing, figure), = browser.ask(site, [page], ask, dark=True)[0]
    assert "invert" in drawing and "hue-rotate" in drawing and "invert" not in figure
    assert browser.ask(site, [page], ask)[0] == [["none", "none"]]


def test_a_page_loads_what_it_has_something_for(pages):
    for page in pages.values():
        text = page.path.read_text("utf-8")
        assert ("katex.min.css" in text) == ('class="katex' in text), page.path
        assert ("pocket.css" in text) == (page.path.name == "index.html" and page.path.parent.name == "site"), page.path
        assert "<script src=" not in text, page.path
