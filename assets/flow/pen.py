"""What several drawings are made with: words, boxes and arrows on a white page 360 px wide."""

from pathlib import Path
from xml.sax.saxutils import escape

HERE = Path(__file__).resolve().parent
FONT = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
WIDTH = 360
parts: list[str] = []


def text(x, y, words, anchor="start", size=13, bold=False):
    parts.append(f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}"'
                 f'{" font-weight=" + chr(34) + "bold" + chr(34) if bold else ""}>{escape(str(words))}</text>')


def cell(x, y, width, height, words="", fill="#FFFFFF", edge=1, size=13):
    parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}" '
                 f'stroke="#000000" stroke-width="{edge}"/>')
    text(x + width / 2, y + height / 2 + 4.5, words, "middle", size)


def arrow(x1, y1, x2, y2):
    parts.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="#000000" '
                 'stroke-width="1.4" marker-end="url(#tip)"/>')


def down(x, top, bottom):
    arrow(x, top, x, bottom)


def along(path):
    """An arrow around corners: an SVG path, as "M10 20 V40 H30"."""
    parts.append(f'<path d="{path}" fill="none" stroke="#000000" stroke-width="1.4" '
                 'marker-end="url(#tip)"/>')


def save(number, height, title):
    (HERE / f"{number}.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" font-family="{FONT}" role="img">\n<title>{escape(title)}</title>\n'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0 8 4 0 8z"/></marker></defs>\n'
        f'<rect width="{WIDTH}" height="{height}" fill="#FFFFFF"/>\n' + "\n".join(parts) + "\n</svg>\n", "utf-8")
