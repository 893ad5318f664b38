"""A small extension of Sphinx: the last touches to a page, for a browser that has not seen it yet.

Pictures get their sizes, so that text stays where it is while they come, and are asked for when they come near. Code
and outputs get their width in columns, so that a phone can choose letters with which they fit. Scripts wait until the
page is read, and a stylesheet is loaded by pages that have something for it.
"""

import html
import re
from functools import cache
from pathlib import Path

from PIL import Image

IMAGE = re.compile(r'<img ([^>]*?)src="([^":]+)"([^>]*?) ?/?>')
FOLD = '<summary aria-label="Toggle hidden content">'       # myst-nb's words are not those that are seen
CODE = re.compile(r"<pre>(.*?)</pre>", re.S)

SHEET = re.compile(r' *<link rel="stylesheet" type="text/css" href="[./]*_static/(\w+)[^"]*" />\n')
# Stylesheets, by their first word, and what a page has that they are for.
SHEETS = {"katex": 'class="katex', "mystnb": 'class="cell', "pocket": 'id="pocket"', "copybutton": "<pre"}


@cache
def size(path: Path) -> tuple[int, int]:
    """A picture's width and height in pixels."""
    if path.suffix == ".svg":
        box = re.search(r'viewBox="[\d.]+ [\d.]+ ([\d.]+) ([\d.]+)"', path.read_text("utf-8"))
        return round(float(box[1])), round(float(box[2]))
    with Image.open(path) as image:
        return image.size


def sized(page: str, folder: Path) -> str:
    """A page's HTML with the size of each picture; all but the first wait until they come near. folder: the page's."""
    seen = []

    def dress(image: re.Match) -> str:
        width, height = size((folder / image[2]).resolve())
        seen.append(image[2])
        lazy = ' loading="lazy"' * (len(seen) > 1)
        return (f'<img {image[1]}src="{image[2]}"{image[3].rstrip()} width="{width}" height="{height}"{lazy}'
                ' decoding="async">')
    return IMAGE.sub(dress, page)


def measured(page: str) -> str:
    """A page's HTML with the columns that each block of code takes."""
    def measure(block: re.Match) -> str:
        lines = html.unescape(re.sub(r"<[^>]*>", "", block[1])).splitlines()
        return f'<pre style="--columns:{max(map(len, lines), default=1) or 1}">{block[1]}</pre>'
    return CODE.sub(measure, page)


def light(page: str) -> str:
    """A page's HTML without the stylesheets that it has nothing for, and with scripts that let it be read first."""
    def keep(sheet: re.Match) -> str:
        return sheet[0] if SHEETS.get(sheet[1], "") in page else ""
    return re.sub(r'<script src=', "<script defer src=", SHEET.sub(keep, page))


def _finish(app, exception) -> None:
    if exception is None and app.builder.name == "html":
        for path in Path(app.outdir).rglob("*.html"):
            head, body, text = light(path.read_text("utf-8")).partition("<body>")
            text = text.replace(FOLD, "<summary>")
            path.write_text(head + body + measured(sized(text, path.parent)), "utf-8")


def setup(app) -> dict:
    app.connect("build-finished", _finish)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
