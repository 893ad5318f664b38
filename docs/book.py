"""The lessons as a book: an EPUB by Sphinx, and a PDF, which is Sphinx's one long page printed by Chromium.

Chromium, and not LaTeX: it finds a font for every letter that a tokenizer is shown, reads SVG and KaTeX as they are,
and is what the site's tests need anyway.
"""

import html
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections import Counter
from pathlib import Path

from docs import bibliography, glossary, lessons, maps, pages
from grader.course.chapters import chapters

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NAME = "build-a-transformer"
IDENTIFIER = "urn:uuid:2f0c6a0e-6d0b-5d5e-9f0e-0c5d5b1a7e31"         # of all editions: a reader replaces the one it has
COVER = """<!doctype html><meta charset="utf-8"><body style="margin: 0; padding: 150px 90px; text-align: center;
 font: 44px/1.4 'Noto Sans', 'DejaVu Sans', Helvetica, sans-serif"><h1>{title}</h1><p>{abstract}</p>{map}
<p>{name}</p><style>h1 {{ font-size: 96px; line-height: 1.1; margin: 0 }} svg {{ width: 100%; height: auto;
 margin: 100px 0 }}</style>"""
ENTRY = re.compile(r'<li><p>(<a class="reference internal" href="#([^"]+)">.*?</a>)</p></li>')


def write_sources(folder: Path) -> None:
    """Everything Sphinx reads for the book: lessons without solutions, and what they look up."""
    for chapter in chapters():
        lessons.write(chapter, folder, with_solutions=False, book=True)
    pages.write_book(folder)
    glossary.write(folder)
    bibliography.write(folder)


def bind(made: Path, file: Path, cover: bytes) -> None:
    """Write the EPUB that Sphinx made, with a cover, less what epubcheck finds in it.

    That is no word of equations, a missing stylesheet, and another identifier in the contents. cover: a PNG.
    """
    with zipfile.ZipFile(next(made.glob("*.epub"))) as draft, zipfile.ZipFile(file, "w") as book:
        texts = {name: draft.read(name) for name in draft.namelist()}
        for name in texts:
            text = texts[name]
            if name.endswith(".xhtml"):
                text = re.sub(rb'<link[^>]*href="[^"]*mystnb\.[^"]*"[^>]*/>', b"", text)
            elif name == "content.opf":
                text = re.sub(rb'(<item (?=[^>]*href="([^"]+)")[^>]*?) ?/>', lambda item: item[1] + (
                    b' properties="mathml"/>' if b"<math" in texts[item[2].decode()] else b"/>"), text)
                text = text.replace(b"</metadata>", b'<meta name="cover" content="cover"/></metadata>').replace(
                    b"</manifest>", b'<item id="cover" href="cover.png" media-type="image/png" '
                                    b'properties="cover-image"/></manifest>')
            elif name == "toc.ncx":
                text = text.replace(b'<meta name="dtb:uid" content="book"/>',
                                    f'<meta name="dtb:uid" content="{IDENTIFIER}"/>'.encode())
            book.writestr(name, text, zipfile.ZIP_STORED if name == "mimetype" else zipfile.ZIP_DEFLATED)
        book.writestr("cover.png", cover)


def cover() -> bytes:
    """The EPUB's cover as a PNG: the title over the map."""
    with tempfile.TemporaryDirectory() as folder:
        page, picture = Path(folder, "cover.html"), Path(folder, "cover.png")
        page.write_text(COVER.format(**pages.CITED, map=maps.draw_map.picture(None)), "utf-8")
        _chromium(page, picture, Path(folder, "profile"), "--window-size=1200,1700", f"--screenshot={picture}")
        return picture.read_bytes()


def make_pdf(page: Path, file: Path, profile: Path) -> None:
    """Print Sphinx's one long page as a book whose contents say on which page each chapter begins.

    It is printed twice: the first time to see where chapters begin.
    """
    import pikepdf

    text = closed(page.read_text("utf-8"))
    page.write_text(numbered(text, {}), "utf-8")
    print_pdf(page, file, profile)
    with pikepdf.open(file) as draft:
        page.write_text(numbered(text, places(draft)), "utf-8")
    print_pdf(page, file, profile)
    with pikepdf.open(file, allow_overwriting_input=True) as book:
        title, author = pages.CITED["title"], pages.CITED["name"]
        with book.open_metadata() as about:
            about["dc:title"], about["dc:creator"], about["dc:language"] = title, [author], ["en"]
        book.docinfo["/Title"], book.docinfo["/Author"] = title, author
        book.save(object_stream_mode=pikepdf.ObjectStreamMode.generate, recompress_flate=True)


def closed(text: str) -> str:
    """A page's HTML in which every link leads to a place of the page, or to a server.

    Sphinx writes #document-glossary#term-RoPE where the page has the second anchor, or several of that name.
    """
    there = Counter(html.unescape(name) for name in re.findall(r'\bid="([^"]+)"', text))

    def mend(link: re.Match) -> str:
        address = html.unescape(link[2])
        if address.startswith(("http:", "https:", "mailto:")):
            return link[0]
        page, _, anchor = address.removeprefix("#").partition("#")
        target = anchor if there[anchor] == 1 else page
        return f'{link[1]} href="#{html.escape(target)}"' if address.startswith("#") and there[target] else link[1]
    return re.sub(r'(<a\b[^>]*?) href="([^"]*)"', mend, text)


def numbered(text: str, where: dict[str, int]) -> str:
    """A page's HTML whose contents say the page of each entry, by its anchor; 000 where that is not known."""
    return ENTRY.sub(lambda entry: f'<li><p>{entry[1]}<span class="page">{where.get(entry[2], "000")}</span></p></li>',
                     text)


def places(pdf) -> dict[str, int]:
    """The page on which each anchor of a printed page lies, counted from 1."""
    numbers = {page.objgen: number for number, page in enumerate(pdf.pages, 1)}
    return {str(name).removeprefix("/"): numbers[target[0].objgen] for name, target in pdf.Root.Dests.items()}


def print_pdf(page: Path, file: Path, profile: Path) -> None:
    """Print a page to a PDF file, with an outline."""
    _chromium(page, file, profile, "--no-pdf-header-footer", "--generate-pdf-document-outline",
              f"--print-to-pdf={file}")


def _chromium(page: Path, file: Path, profile: Path, *options: str) -> None:
    """Have Chromium write a file of a page."""
    file.unlink(missing_ok=True)
    done = subprocess.run([CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                           f"--user-data-dir={profile}", *options, page.as_uri()],
                          capture_output=True, text=True, timeout=600)
    if not file.exists():
        raise ValueError(f"Chromium wrote no {file.name}: {done.stderr[-500:]}")
