"""The lessons as a book: an EPUB by Sphinx, and a PDF, which is Sphinx's one long page printed by Chromium.

Chromium, and not LaTeX: it finds a font for every letter that a tokenizer is shown, reads SVG and KaTeX as they are,
and is what the site's tests need anyway.
"""

import re
import shutil
import subprocess
import zipfile
from pathlib import Path

from docs import bibliography, glossary, lessons, pages
from grader.course.chapters import chapters

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NAME = "build-a-transformer"


def write_sources(folder: Path) -> None:
    """Everything Sphinx reads for the book: lessons without solutions, and what they look up."""
    for chapter in chapters():
        lessons.write(chapter, folder, with_solutions=False, book=True)
    pages.write_book(folder)
    glossary.write(folder)
    bibliography.write(folder)


def bind(made: Path, file: Path) -> None:
    """Write the EPUB that Sphinx made, less what epubcheck finds in it: no word of equations, a missing stylesheet."""
    with zipfile.ZipFile(next(made.glob("*.epub"))) as draft, zipfile.ZipFile(file, "w") as book:
        texts = {name: draft.read(name) for name in draft.namelist()}
        for name in texts:
            text = texts[name]
            if name.endswith(".xhtml"):
                text = re.sub(rb'<link[^>]*href="[^"]*mystnb\.[^"]*"[^>]*/>', b"", text)
            elif name == "content.opf":
                text = re.sub(rb'(<item (?=[^>]*href="([^"]+)")[^>]*?) ?/>', lambda item: item[1] + (
                    b' properties="mathml"/>' if b"<math" in texts[item[2].decode()] else b"/>"), text)
            book.writestr(name, text, zipfile.ZIP_STORED if name == "mimetype" else zipfile.ZIP_DEFLATED)


def print_pdf(page: Path, file: Path, profile: Path) -> None:
    """Print a page to a PDF file, with an outline."""
    done = subprocess.run(
        [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
         "--no-pdf-header-footer", "--generate-pdf-document-outline", f"--print-to-pdf={file}", page.as_uri()],
        capture_output=True, text=True, timeout=600)
    if not file.exists():
        raise ValueError(f"Chromium printed no PDF: {done.stderr[-500:]}")
