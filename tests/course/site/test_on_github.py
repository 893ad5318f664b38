"""The lessons as GitHub shows them: nbconvert's plain HTML, within the rules of GitHub's stylesheet that matter here.

nbconvert's other templates load scripts from other hosts, for equations and diagrams; GitHub takes none of them, and
draws the equations itself. So equations are left as they are written here.
"""

import shutil

import pytest

from grader.course import lesson
from grader.course.chapters import ROOT, chapters
from tests.course.site import browser

pytestmark = browser.needed
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{}</title><link rel=icon href="data:,"><style>
body {{ margin: 0; padding: 16px; font: 16px/1.5 sans-serif; overflow-wrap: break-word; }}
img {{ max-width: 100%; }} pre, table {{ display: block; overflow: auto; }}</style><body>{}</body></html>"""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What each lesson's page measures and loads at 360 px; and the console."""
    from nbconvert import HTMLExporter

    folder = tmp_path_factory.mktemp("shown")
    (folder / "notebooks").mkdir()
    shutil.copytree(ROOT / "assets", folder / "assets", ignore=shutil.ignore_patterns("pocket", "evidence"))
    exporter = HTMLExporter(template_name="basic")
    for chapter in chapters():
        with chapter.notebook.open(encoding="utf-8") as file:
            body, _ = exporter.from_file(file)
        (folder / "notebooks" / f"{chapter.notebook.stem}.html").write_text(PAGE.format(chapter.title, body), "utf-8")
    pages = sorted(folder.glob("notebooks/*.html"))
    found, console = browser.ask(folder, pages, """
        document.querySelectorAll("details").forEach(fold => fold.open = true);
        return {title: document.title, width: document.documentElement.scrollWidth,
                loaded: performance.getEntriesByType("resource").map(entry => entry.name),
                drawings: [...document.images].filter(i => i.src.endsWith(".svg")).map(i => i.alt),
                broken: [...document.images].filter(i => !i.naturalWidth).map(i => i.alt + i.src.slice(0, 60)),
                figures: [...document.images].filter(i => i.src.startsWith("data:image/png")).map(i => i.alt)};
        """, width=360)
    return dict(zip(chapters(), found)), console


def test_every_lesson_is_shown_quietly_and_whole(said):
    pages, console = said
    assert console == []
    for chapter, page in pages.items():
        assert page["title"] == chapter.title and page["broken"] == []
        assert [name for name in page["loaded"] if not name.startswith(("data:", "http://127.0.0.1:"))] == []
        assert len(page["drawings"]) >= 2 and len(page["figures"]) >= 3, chapter
        assert min(map(len, page["drawings"])) > 20, chapter
        told = [cell["metadata"]["alt"] for cell in lesson.cells(chapter, "code") if "alt" in cell["metadata"]]
        assert page["figures"] == told, chapter


def test_no_lesson_scrolls_sideways_on_a_phone(said):
    assert {chapter.number: page["width"] for chapter, page in said[0].items() if page["width"] > 360} == {}
