"""The site for readers: built once, whole, at home on any disk, and readable without a script."""

import posixpath
import re
import subprocess
import sys
import zipfile
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import pytest

from grader.course import lesson
from grader.course.chapters import ROOT, chapters, find

pytest.importorskip("sphinx", reason="the site is built by requirements-site.txt")

from docs import __main__ as making  # noqa: E402
from docs import bibliography, book, glossary, lessons, solutions, terms  # noqa: E402
from tests.course.checks.touched import SEEDS  # noqa: E402
from tests.course.site import browser  # noqa: E402
from tests.course.site.conftest import Page, build  # noqa: E402

AXE = ROOT / "docs" / "node_modules" / "axe-core" / "axe.min.js"


def test_every_lesson_and_every_exercise_has_a_page(site, pages):
    for chapter in chapters():
        assert site / "notebooks" / f"{chapter.notebook.stem}.html" in pages
        assert site / "exercises" / f"{chapter.stem}.html" in pages
    assert {site / f"{name}.html" for name in ("index", "glossary", "bibliography", "search", "README",
                                               "INSTRUCTORS", "CONTRIBUTING", "CHANGELOG")} <= set(pages)


def _target(site, page: Page, address: str):
    """The file that an address within the site leads to."""
    path = unquote(urlsplit(address).path)
    return ((site if path.startswith("/") else page.path.parent) / path.lstrip("/")).resolve() if path else page.path


def test_nothing_is_loaded_from_another_host(site, pages):
    for page in pages.values():
        for address in page.loads:
            assert not urlsplit(address).netloc, (page.path, address)
            assert _target(site, page, address).exists(), (page.path, address)
    for sheet in site.rglob("*.css"):
        for address in re.findall(r"url\(['\"]?([^)'\"]+)", sheet.read_text("utf-8")):
            assert not urlsplit(address).netloc, (sheet, address)


def test_internal_links_and_anchors_resolve(site, pages):
    broken = []
    for page in pages.values():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = _target(site, page, link)
            anchor = unquote(parts.fragment)
            if not target.exists() or anchor and target in pages and anchor not in pages[target].ids:
                broken.append((page.path.name, link))
    assert not broken


def test_every_picture_has_words(pages):
    for page in pages.values():
        for image in page.images:
            assert len(image.get("alt") or "") > 20, (page.path, image["src"])


def test_equations_are_drawn_without_a_script(site, pages):
    for chapter in chapters():
        told = lesson.prose(chapter)
        html = (site / "notebooks" / f"{chapter.notebook.stem}.html").read_text("utf-8")
        displayed = re.findall(r"^\$\$\n(.*?)^\$\$$", told, re.M | re.S)
        parts = len(displayed) + sum(equation.count(r"\qquad") for equation in displayed)      # each may have its line
        assert html.count('class="katex-display"') == parts, chapter
        assert "katex-error" not in html
        for raw in ("$$", r"\frac", r"\begin{"):
            visible = re.sub(r"<annotation.*?</annotation>|<pre>.*?</pre>", "", html, flags=re.S)
            assert raw not in visible, (chapter, raw)
    assert not any("katex" in load and load.endswith(".js") for page in pages.values() for load in page.loads)
    assert list((site / "_static" / "fonts").glob("KaTeX_Main-Regular.woff2"))


def test_search_finds_rope(site):
    index = (site / "searchindex.js").read_text("utf-8")
    names = re.search(r'docnames:\[(.*?)\]|"docnames": *\[(.*?)\]', index)
    place = re.findall(r'"([^"]+)"', names[1] or names[2]).index("notebooks/07_rope")
    found = re.findall(r'"rope": ?(\[[\d,]+\]|\d+)', index)          # in texts, and in titles
    assert str(place) in re.findall(r"\d+", " ".join(found))


def test_outputs_are_those_of_the_notebooks(site):
    page = "".join(Page(site / "notebooks" / "07_rope.html").text)
    for cell in lesson.cells(find("rope"), "code"):
        for output in cell["outputs"] if not lessons._checks(cell) else []:
            assert output.get("text", "").strip() in page


def test_every_solution_stands_behind_one_fold_after_its_hints(site, tmp_path):
    for chapter in chapters():
        places, asked = solutions.assigned(chapter), lesson.exercises(chapter)
        known = solutions.parts(chapter)
        assert sorted(part for parts in places.values() for part in parts) == sorted(known)
        html = (site / "notebooks" / f"{chapter.notebook.stem}.html").read_text("utf-8")
        assert html.count('class="solution"') == len(asked)
        for parts in places.values():
            compile(solutions.shown(chapter, parts), chapter.stem, "exec")
            assert set(re.findall(r"^class .*", solutions.shown(chapter, parts), re.M)) <= set(
                chapter.solution.read_text("utf-8").splitlines()), (chapter, parts)
        shown = "".join(solutions.shown(chapter, parts) for parts in places.values())
        assert "BEGIN SOLUTION" not in shown and "NotImplementedError" not in shown
    for name, owner, asker in (("mixture_of_experts", "MoE", 2), ("fine_tuning", "LoRALinear", 1)):
        for number, parts in solutions.assigned(find(name)).items():
            assert (f"{owner}.forward" in parts) == (number == asker)
    block = "".join(Page(site / "notebooks" / "12_block.html").text)
    assert "It is part of the solution of Exercise 1" in block[block.index("Exercise 2: what is only handed on"):]
    rope = "".join(Page(site / "notebooks" / "07_rope.html").text)
    assert rope.index("Hint 3") < rope.index("return 1 / base **") < rope.index("Exercise 2")


def test_the_site_without_solutions_has_none(tmp_path):
    bare = build(tmp_path / "bare", "--no-solutions")
    assert not list(bare.rglob("*.zip"))
    for chapter in chapters():
        page = "".join(Page(bare / "notebooks" / f"{chapter.notebook.stem}.html").text) + "".join(
            Page(bare / "exercises" / f"{chapter.stem}.html").text)
        assert "A solution. First" not in page
    assert "return 1 / base **" not in page and 'class="solution"' not in "".join(
        path.read_text("utf-8") for path in bare.rglob("*.html"))


def test_lessons_link_to_the_glossary_and_its_words_name_real_lessons(site):
    numbers = {chapter.number for chapter in chapters()}
    for words in glossary.table().values():
        assert words and all(lesson in numbers for lesson, _ in words.values())
    for chapter in chapters():
        html = (site / "notebooks" / f"{chapter.notebook.stem}.html").read_text("utf-8")
        assert "../glossary.html" in html, chapter
    assert "../glossary.html#term-RoPE" in (site / "notebooks" / "07_rope.html").read_text("utf-8")
    pages = {page.stem[:2]: page.read_text("utf-8") for page in site.glob("notebooks/*.html")}
    for word in terms.EVERYDAY:
        assert [number for number, page in pages.items() if f"#term-{word}\"" in page] == [
            glossary.table()["terms"][word][0]], word
    assert "|" in glossary.symbols(find("rope"))[0]
    told = (site / "glossary.html").read_text("utf-8")
    assert all(f"{chapter.notebook.stem}.html" in told for chapter in chapters())


def test_bibliography_holds_each_paper_once_and_says_where(site):
    linked = bibliography.links()
    papers = {address: year for year, sources in bibliography.table().items() for address in sources
              if year != "pages" and address in linked}
    assert len(papers) > 60
    page = (site / "bibliography.html").read_text("utf-8")
    links = Page(site / "bibliography.html").links
    for address in papers:
        assert links.count(address) == 1, address
    assert papers["https://arxiv.org/abs/2104.09864"] == "2021" and "Su et al." in page


def test_front_page_says_what_the_pocket_model_writes(site):
    said = " ".join("".join(Page(site / "index.html").text).split())
    samples = (ROOT / "assets" / "pocket" / "README.md").read_text("utf-8").partition("## What it says\n")[2]
    sample = re.search(r"```text\n(.*?)```", samples, re.S)[1]
    assert " ".join(sample.split()) in said


def test_the_epub_can_be_read_by_a_strict_reader(tmp_path):
    """Each page is XML, the contents name it, equations are MathML, and nothing is missing or run."""
    assert making._sphinx("epub", tmp_path / "made", book.write_sources) == 0
    book.bind(tmp_path / "made", tmp_path / "book.epub", b"a picture")
    with zipfile.ZipFile(tmp_path / "book.epub") as file:
        assert file.infolist()[0].filename == "mimetype" and file.infolist()[0].compress_type == zipfile.ZIP_STORED
        held = {name: file.read(name) for name in file.namelist()}
    assert {f"notebooks/{chapter.notebook.stem}.xhtml" for chapter in chapters()} <= set(held)
    listed = re.findall(r'<item [^>]*href="([^"]+)"[^>]*>', held["content.opf"].decode())
    assert set(listed) == set(held) - {"mimetype", "content.opf", "META-INF/container.xml"}
    for name in [name for name in held if name.endswith(".xhtml")]:
        text = held[name].decode()
        ElementTree.fromstring(re.sub(r"&(?!(lt|gt|amp|quot|apos|#))\w+;", "", text))
        marked = re.search(rf'<item (?=[^>]*href="{re.escape(name)}")[^>]*mathml', held["content.opf"].decode())
        assert bool(marked) == ("<math" in text) and "<script" not in text and "details>" not in text
        for address in re.findall(r'(?:<img[^>]*|<link[^>]*(?:rel="stylesheet")[^>]*)(?:src|href)="([^"]+)"', text):
            assert posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(address))) in held, address
    rope = held["notebooks/07_rope.xhtml"].decode()
    assert "Hint 3" in rope and "A solution. First" not in rope and "return 1 / base **" not in rope


@browser.needed
def test_a_page_becomes_a_pdf(site, tmp_path):
    book.print_pdf(site / "bibliography.html", tmp_path / "page.pdf", tmp_path / "profile")
    printed = (tmp_path / "page.pdf").read_bytes()
    assert printed.startswith(b"%PDF") and b"/Outlines" in printed
    assert len(re.findall(rb"/Type /Page\b", printed)) > 1


def test_a_folder_that_is_no_site_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    done = subprocess.run([sys.executable, "-m", "docs", str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "something else" in done.stderr
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


@browser.needed
def test_no_page_scrolls_sideways_on_a_phone(site, pages):
    widths, _ = browser.ask(site, list(pages), """
        document.querySelectorAll("details").forEach(fold => fold.open = true);
        return document.documentElement.scrollWidth;""", width=360)
    assert {page.name: width for page, width in zip(pages, widths) if width > 360} == {}


@browser.needed
def test_what_is_wide_scrolls_inside_itself(site, pages):
    """Each line of code, table and equation ends within the page, or within a box that scrolls."""
    lost, _ = browser.ask(site, [page for page in pages if page.parent.name == "notebooks"], """
        document.querySelectorAll("details").forEach(fold => fold.open = true);
        const scrolls = e => ["auto", "scroll"].includes(getComputedStyle(e).overflowX);
        return [...document.querySelectorAll("article pre, article table, article .katex-display")].filter(e => {
            const fits = e.scrollWidth <= e.clientWidth + 1 || scrolls(e);
            if (fits && e.getBoundingClientRect().right <= 361) return false;
            for (let up = e.parentElement; up.tagName != "ARTICLE"; up = up.parentElement)
                if (scrolls(up) && up.getBoundingClientRect().right <= 361) return false;
            return true;
        }).map(e => e.textContent.slice(0, 80));""", width=360)
    assert [found for found in lost if found] == []


@browser.needed
def test_pages_are_quiet_and_load_from_their_own_host(site, pages):
    loaded, console = browser.ask(site, list(pages), """
        return performance.getEntriesByType("resource").map(entry => entry.name);""")
    assert all(loaded)
    for name in {name for names in loaded for name in names}:
        assert name.startswith(("data:", "http://127.0.0.1:")), name
    assert console == []


@browser.needed
@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not there: npm ci --prefix docs")
@pytest.mark.parametrize("place", ["", "exercises", "assets/pocket", *[
    f"notebooks/{chapter.notebook.stem}.html" for chapter in chapters()[::7 if len(SEEDS) == 1 else 1]]])
def test_axe_finds_nothing_serious(site, pages, place):
    """In light, and in the dark, where only colours are others. Of one lesson in seven, and with more seeds of all."""
    chosen = [page for page in pages if site / place in (page, page.parent)]
    found = {}
    with browser.visit(site) as (page, address, _):
        for path in chosen:
            page.goto(f"{address}/{path.relative_to(site).as_posix()}")
            page.add_script_tag(path=AXE)
            found[path.name] = page.evaluate("""async () => {
                document.querySelectorAll("details").forEach(fold => fold.open = true);
                const wrong = [];
                for (const [theme, rules] of [["light", {}], ["dark", {runOnly: ["color-contrast"]}]]) {
                    document.body.dataset.theme = theme;
                    const said = await axe.run(document, {resultTypes: ["violations"], ...rules});
                    for (const rule of said.violations)
                        if (["serious", "critical"].includes(rule.impact))
                            wrong.push([theme, rule.id, rule.nodes.length, rule.nodes[0].html.slice(0, 120)]);
                }
                return {asked: document.querySelector("article") !== null, wrong};}""")
    assert found and all(said["asked"] for said in found.values())
    assert {name: said["wrong"] for name, said in found.items() if said["wrong"]} == {}


@browser.needed
def test_equations_are_seen_with_scripts_off(site):
    page = site / "notebooks" / "07_rope.html"
    (found,), _ = browser.ask(site, [page], """
        return {script: !document.documentElement.classList.contains("no-js"),
                sizes: [...document.querySelectorAll(".katex-html")].map(e => e.getBoundingClientRect().height),
                font: getComputedStyle(document.querySelector(".katex")).fontFamily};""", scripts=False)
    assert not found["script"]
    assert len(found["sizes"]) > 8 and min(found["sizes"]) > 8
    assert "KaTeX_Main" in found["font"]


@browser.needed
def test_a_search_for_rope_finds_the_lesson(site):
    with browser.visit(site) as (page, address, _):
        page.goto(f"{address}/search.html?q=RoPE")
        page.wait_for_selector('#search-results a[href*="notebooks/07_rope.html"]', timeout=20_000)
