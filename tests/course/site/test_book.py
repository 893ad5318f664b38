"""The book: its pages, what it leads to, who wrote it. The whole is long; these ask small pages of the same kind."""

import re
import zipfile

import pytest

pytest.importorskip("sphinx", reason="the site is built by requirements-site.txt")
pikepdf = pytest.importorskip("pikepdf", reason="the PDF is finished by requirements-site.txt")

from docs import book, lessons, pages  # noqa: E402
from grader.course import lesson  # noqa: E402
from grader.course.chapters import find  # noqa: E402
from tests.course.site import browser  # noqa: E402

PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>x</title><body><h1>Two chapters</h1><ul>
<li><p><a class="reference internal" href="#document-a">A</a></p></li>
<li><p><a class="reference internal" href="#document-b">B</a></p></li></ul>
<div style="break-before: page" id="document-a"><h2>A</h2><a href="_downloads/a.py">a file</a></div>
<div style="break-before: page">more</div><div style="break-before: page" id="document-b"><h2>B</h2></div>"""


@browser.needed
def test_contents_say_the_pages_and_no_link_leads_into_a_folder(tmp_path):
    (tmp_path / "index.html").write_text(PAGE, "utf-8")
    book.make_pdf(tmp_path / "index.html", tmp_path / "book.pdf", tmp_path / "profile")
    made = (tmp_path / "index.html").read_text("utf-8")
    assert re.findall(r'<span class="page">(\d+)</span>', made) == ["2", "4"]
    with pikepdf.open(tmp_path / "book.pdf") as pdf:
        assert str(pdf.docinfo["/Title"]) == pages.CITED["title"]
        assert str(pdf.docinfo["/Author"]) == pages.CITED["name"]
        assert len(pdf.pages) == 4 and "/Outlines" in pdf.Root
        links = [link for page in pdf.pages for link in page.get("/Annots", [])]
        assert len(links) == 2 and not any("/URI" in link.get("/A", {}) for link in links)
    assert b"file:" not in (tmp_path / "book.pdf").read_bytes()


def test_links_lead_to_places_of_the_book():
    text = '<p id="document-a"></p><p id="one"></p><p id="two"></p><p id="two"></p>'
    assert book.closed(text + '<a href="#document-a#one">') == text + '<a href="#one">'
    assert book.closed(text + '<a href="#document-a#two">') == text + '<a href="#document-a">'
    assert book.closed(text + '<a class="x" href="#three">') == text + '<a class="x">'
    assert book.closed(text + '<a href="_downloads/x.csv">') == text + "<a>"
    assert book.closed('<a href="https://arxiv.org">') == '<a href="https://arxiv.org">'


def test_the_title_page_comes_before_the_contents(tmp_path):
    (tmp_path / "assets" / "map").mkdir(parents=True)
    pages.write_book(tmp_path)
    first = (tmp_path / "index.md").read_text("utf-8")
    assert first.index("# Build a transformer") < first.index("all.svg") < first.index("Version") < first.index(
        '<p class="contents">') < first.index("[00 · ")


def test_paper_has_no_code_that_only_draws_and_no_answers_of_checks(tmp_path):
    (tmp_path / "notebooks").mkdir()
    chapter = find("attention")
    lessons.write(chapter, tmp_path, with_solutions=False, book=True)
    made = lesson.loads((tmp_path / "notebooks" / chapter.notebook.name).read_text("utf-8"))["cells"]
    assert sum("remove-input" in cell["metadata"].get("tags", ()) for cell in made) == len(
        lessons._hidden(lesson.cells(chapter)))
    assert not any("checks passed (" in output.get("text", "") for cell in made for output in cell.get("outputs", ()))


@browser.needed
def test_the_cover_is_a_picture():
    assert book.cover().startswith(b"\x89PNG")


def test_an_epub_shows_its_cover(tmp_path):
    with zipfile.ZipFile(tmp_path / "draft.epub", "w") as draft:
        draft.writestr("mimetype", "application/epub+zip")
        draft.writestr("toc.ncx", '<ncx><head><meta name="dtb:uid" content="book"/></head></ncx>')
        draft.writestr("content.opf", "<package><metadata></metadata><manifest></manifest></package>")
    book.bind(tmp_path, tmp_path / "book.zip", b"picture")
    with zipfile.ZipFile(tmp_path / "book.zip") as made:
        assert made.read("cover.png") == b"picture" and book.IDENTIFIER.encode() in made.read("toc.ncx")
        assert b'href="cover.png" media-type="image/png" properties="cover-image"' in made.read("content.opf")


def test_every_edition_has_one_identifier_and_an_author():
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", book.IDENTIFIER)
    assert pages.CITED["name"] and pages.CITED["version"]
