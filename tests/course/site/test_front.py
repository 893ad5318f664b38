"""The front page: whoever comes by knows what this is and can start, and sees what they have done."""

import re
import subprocess
import zipfile

import pytest

from grader.course import lesson
from grader.course.chapters import ROOT, chapters, parts
from tests.course.site import browser
from tests.course.site.conftest import Page


@pytest.fixture(scope="module")
def said(site) -> str:
    return " ".join("".join(Page(site / "index.html").text).split())


def test_it_says_what_whom_how_long_and_how(said):
    title, promise, whom = (ROOT / "README.md").read_text("utf-8").split("\n\n")[:3]
    for words in (title.removeprefix("# "), promise, whom, "make check", "make test", "Python 3.11"):
        assert " ".join(words.split()) in said, words
    for part, those in parts().items():
        assert f"{part}: {lesson.hours(those)}" in said
    assert "MIT license" in said and "The course's authors (20" in said


def test_it_has_a_line_for_each_lesson(site, said):
    links = Page(site / "index.html").links
    for chapter in chapters():
        name, _, told = chapter.title.rstrip(".").partition(": ")
        assert f"{chapter.number} · {name}: {told}" in said
        assert links.count(f"notebooks/{chapter.notebook.stem}.html") >= 2
    assert len(re.findall("You have", said)) < 3


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="only what was committed is packed")
def test_the_course_can_be_taken_home_as_it_was_committed(site):
    for page in ("index.html", "README.html"):
        (link,) = [link for link in Page(site / page).links if link.endswith(".zip")]
    committed = subprocess.run(["git", "ls-tree", "-r", "--name-only", "HEAD"], cwd=ROOT, capture_output=True,
                               text=True, check=True)
    with zipfile.ZipFile(site / link) as archive:
        held = {name.removeprefix("build-a-transformer/") for name in archive.namelist() if not name.endswith("/")}
    assert held == set(committed.stdout.splitlines())


@browser.needed
def test_what_was_done_is_ticked(site):
    with browser.visit(site) as (page, address, console):
        page.goto(f"{address}/notebooks/07_rope.html")
        page.get_by_label("I have done this lesson").check()
        page.reload()
        assert page.get_by_label("I have done this lesson").is_checked()
        page.goto(address)
        assert page.locator("li:has(span.done)").all_inner_texts() == [
            "07 · RoPE: a position is an angle, and scores see only the distance ✓ done"]
        page.goto(f"{address}/notebooks/07_rope.html")
        page.get_by_label("I have done this lesson").uncheck()
        page.goto(address)
        assert page.locator("span.done").count() == 0 and console == []


@browser.needed
@pytest.mark.parametrize("page", ["index.html", "notebooks/07_rope.html"])
def test_nothing_is_asked_where_nothing_can_be_kept(site, page):
    with browser.visit(site) as (reader, address, _):
        reader.add_init_script("Object.defineProperty(window, 'localStorage', {get() { throw new Error('no'); }});")
        reader.goto(f"{address}/{page}")
        assert reader.locator(".done").count() == 0 and reader.locator("h1").count() == 1
    with browser.visit(site, scripts=False) as (reader, address, _):
        reader.goto(f"{address}/{page}")
        assert reader.locator(".done").count() == 0
