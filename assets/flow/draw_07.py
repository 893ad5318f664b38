"""Draws 07.svg: one key at five places, turned pair by pair, and its score with a query at place 4.

    python assets/flow/draw_07.py
"""

import math
from pathlib import Path

FONT = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
BLUE, ORANGE, GREY, INK = "#DCEBF7", "#FBD9BF", "#F1F1F1", "#000000"
PAIRS = [BLUE, BLUE, ORANGE, ORANGE]
KEY, QUERY, THETA, PLACES = [1, 1, 1, 0], [2, 0, 1, 1], [1, 0.1], 5
LEFT, ROW = 62, 24


def turned(vector, place) -> list[float]:
    out = []
    for pair, theta in enumerate(THETA):
        a, b = vector[2 * pair:2 * pair + 2]
        cos, sin = math.cos(place * theta), math.sin(place * theta)
        out += [a * cos - b * sin, a * sin + b * cos]
    return out


def text(x, y, words, size=13, anchor="middle", weight="normal") -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}">{words}</text>'


def number(value, digits) -> str:
    return f"{value:.{digits}f}".replace("-", "−")


def table(x, y, rows, width, digits, fills) -> str:
    return "".join(
        f'<rect x="{x + width * j}" y="{y + ROW * i}" width="{width}" height="{ROW}" fill="{fills[j]}" stroke="{INK}"/>'
        + text(x + width * (j + 0.5), y + ROW * i + 17, number(value, digits))
        for i, row in enumerate(rows) for j, value in enumerate(row))


def places(y) -> str:
    return "".join(text(8, y + ROW * i + 17, f"place {i}", anchor="start") for i in range(PLACES))


def arrow(x1, y1, x2, y2) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{INK}" stroke-width="1.6" marker-end="url(#tip)"/>'


query = turned(QUERY, 4)
keys = [turned(KEY, place) for place in range(PLACES)]
scores = [[sum(a * b for a, b in zip(query, key, strict=True))] for key in keys]
TOP, MIDDLE, LOWER = 48, 226, 410
parts = [
    text(LEFT, 18, "key of “the”", 13, "start", "bold"), text(LEFT, 36, "pair 0", 12.5, "start"),
    text(LEFT + 72, 36, "pair 1", 12.5, "start"),
    text(234, 18, "angle, in radians", 13, "start", "bold"), text(234, 36, "× 1", 12.5, "start"),
    text(292, 36, "× 0.1", 12.5, "start"), places(TOP),
    table(LEFT, TOP, [KEY] * PLACES, 36, 0, PAIRS),
    table(234, TOP, [[place * theta for theta in THETA] for place in range(PLACES)], 58, 1, [BLUE, ORANGE]),
    arrow(134, 172, 134, 196), arrow(292, 172, 240, 196),
    text(LEFT, 216, "each pair turned by its angle", 13, "start", "bold"), places(MIDDLE),
    table(LEFT, MIDDLE, keys, 48, 2, PAIRS), arrow(260, MIDDLE + 60, 286, MIDDLE + 60),
    text(320, 216, "score", 13, "middle", "bold"), table(292, MIDDLE, scores, 58, 2, [GREY]),
    text(LEFT, 378, "times the query of “man”, turned for place 4", 13, "start", "bold"),
    text(8, LOWER - 5, "place 4", anchor="start"), table(LEFT, LOWER - 22, [query], 48, 2, PAIRS),
    text(8, 440, "Nearest “the” (place 3): " + number(scores[3][0], 2)
         + ". Farthest (place 0): " + number(scores[0][0], 2) + ".", 13, "start"),
]
(Path(__file__).parent / "07.svg").write_text(
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 360 452" width="360" height="452" '
    f'font-family="{FONT}" fill="{INK}"><defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
    f'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 Z" fill="{INK}"/></marker></defs>'
    '<rect width="360" height="452" fill="#FFFFFF"/>' + "\n".join(parts) + "</svg>\n", "utf-8")
