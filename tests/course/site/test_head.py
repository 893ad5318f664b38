"""What a page's head says to machines and its foot to readers, with addresses and without; and the page that is not."""

import re

import pytest

pytest.importorskip("sphinx", reason="the site is built by requirements-site.txt")

from docs import __main__ as making  # noqa: E402
from docs import front  # noqa: E402
from docs import pages as course_pages  # noqa: E402
from grader.author import links  # noqa: E402
from tests.course.site.conftest import Page  # noqa: E402

ADDRESSES = {"Repository": "https://github.com/you/course", "Documentation": "https://you.github.io/course"}


def tags(path) -> list[str]:
    return re.findall(r"<(?:meta|link)[^>]*>", path.read_text("utf-8"))


@pytest.fixture
def known(tmp_path, monkeypatch):
    """A site of three pages whose addresses are known."""
    monkeypatch.setattr(links, "address", lambda of="Repository": ADDRESSES[of])

    def write(folder):
        (folder / course_pages.ZIP).touch()
        (folder / "index.md").write_text("\n\n".join([
            "# Course", "A first sentence.", *course_pages.fetch(folder),
            "```{toctree}\nREADME\nglossary\nassets/pocket/README\n```"]))
        for name in ("README", "glossary"):
            (folder / f"{name}.md").write_text(f"# {name}\n\nWhat the page {name} says.\n")
    assert making._sphinx("html", tmp_path / "made", write) == 0
    return tmp_path / "made"


def test_every_page_describes_itself_once(site, pages):
    for path in pages:
        names = re.findall(r'<meta (?:name|property)="([^"]+)"', "".join(tags(path)))
        assert len(names) == len(set(names)) and "viewport" in names, path
        if path.stem not in ("search", "404"):
            assert {"description", "og:title", "og:description"} <= set(names), path


def test_without_an_address_there_is_none(site, pages):
    for path in pages:
        assert not re.search('canonical|og:url|og:image', "".join(tags(path))), path
    assert not (site / "sitemap.xml").exists() and (site / ".nojekyll").exists()


def test_with_an_address_machines_are_told_it(known):
    head = "".join(tags(known / "README.html"))
    assert 'rel="canonical" href="https://you.github.io/course/README.html"' in head
    assert 'property="og:url" content="https://you.github.io/course/README.html"' in head
    assert re.findall("<loc>(.*?)</loc>", (known / "sitemap.xml").read_text("utf-8")) == [
        f"https://you.github.io/course/{name}.html" for name in ("README", "assets/pocket/README", "glossary", "index")]
    assert 'href="/course/_static/site.css' in (known / "404.html").read_text("utf-8")


def test_with_an_address_readers_are_told_it(known):
    for path in known.rglob("*.html"):
        assert f'href="{ADDRESSES["Repository"]}"' in path.read_text("utf-8"), path
    foot = (known / "README.html").read_text("utf-8")
    assert f'{ADDRESSES["Repository"]}/issues/new?title=Mistake%20on%20the%20page%20README' in foot
    told = Page(known / "index.html")
    assert "git clone https://github.com/you/course course" in "".join(told.text)
    assert any(link.endswith(course_pages.ZIP) for link in told.links)


def test_a_page_that_is_not_says_so(site):
    assert "Page not found" in (site / "404.html").read_text("utf-8")
    for link in re.findall(r'(?:href|src)="([^"]+)"', (site / "404.html").read_text("utf-8")):
        assert link.startswith(("/", "#", "https://")), link        # it is shown at any depth


def test_with_an_address_a_lesson_can_be_opened_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(links, "address", lambda: ADDRESSES["Repository"])
    monkeypatch.setattr(front.pocket, "place", lambda model: "")
    front.write(tmp_path, "", tmp_path)
    told = (tmp_path / "index.md").read_text("utf-8")
    assert "(https://colab.research.google.com/github/you/course/blob/main/notebooks/00_shapes.ipynb)" in told
    assert "(https://codespaces.new/you/course)" in told
