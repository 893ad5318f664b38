"""Draws assets/flow/09.svg: how one query is answered. Every number is computed here.

    python assets/flow/draw_09.py
"""

from math import exp, sqrt
from pathlib import Path

WORDS = ["the", "old", "river", "bank", "flooded"]
QUERY = [3, 3, 0]                                       # bank asks for water and for money
KEYS = [[0, 0, 0], [0, 0, 0], [2, 0, 0], [0.5, 0.5, 0], [1, 0, 0]]
VALUES = [[0, 0, 0], [0, 0, 1], [2, 0, 0], [0.5, 0.5, 0], [1, 0, 0]]
WIDTH, LEFT, STEP = 360, 80, 56
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#B34E00", "#00704F", "#555555"

products = [sum(a * b for a, b in zip(QUERY, key)) for key in KEYS]
scores = [product / sqrt(len(QUERY)) for product in products]
powers = [exp(score) for score in scores]
weights = [power / sum(powers) for power in powers]
mix = [sum(w * value[f] for w, value in zip(weights, VALUES)) for f in range(len(QUERY))]


def short(number: float, digits: int = 2) -> str:
    return f"{number:.{digits}f}" if number % 1 else f"{number:.0f}"


def text(x, y, said, size=12, color="#111111", anchor="middle", weight="normal") -> str:
    return (f'<text x="{x}" y="{y}" font-size="{size}" fill="{color}" text-anchor="{anchor}" '
            f'font-weight="{weight}">{said}</text>')


def box(x, y, width, height, fill, stroke) -> str:
    return (f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" fill="{fill}" '
            f'stroke="{stroke}"/>')


def vector(x, y, numbers, color, fill) -> list[str]:
    """Three numbers, one above the other, in a box whose top is at y."""
    return [box(x - 22, y, 44, 52, fill, color),
            *(text(x, y + 15 + 16 * i, short(n), color=color) for i, n in enumerate(numbers))]


def label(y, *lines) -> list[str]:
    return [text(74, y + 16 * i, line, 12, GREY, "end") for i, line in enumerate(lines)]


def arrow(x, top, bottom) -> str:
    return f'<path d="M{x} {top}V{bottom}m-3 -5l3 5l3 -5" fill="none" stroke="#777777"/>'


def draw() -> str:
    at = [LEFT + STEP * i + STEP // 2 - 2 for i in range(len(WORDS))]
    parts = [text(4, 18, "“bank” asks every word", 14, weight="bold", anchor="start")]
    parts += [box(4, 30, 352, 28, "#E8F1F8", BLUE),
              text(14, 49, "query of “bank”:", 12, BLUE, "start", "bold"),
              text(240, 49, "water 3, money 3, age 0", 12, BLUE)]
    parts += [text(x, 80, word, 12, weight="bold") for x, word in zip(at, WORDS)]
    parts += label(103, "key: water", "money", "age")
    for x, key in zip(at, KEYS):
        parts += [*vector(x, 88, key, ORANGE, "#FBEEE4"), arrow(x, 142, 156)]
    rows = (("query · key", products, 170), ("÷ √3", scores, 204), ("e to that", powers, 238))
    for name, numbers, y in rows:
        parts += label(y, name)
        parts += [text(x, y, short(n)) for x, n in zip(at, numbers)]
        parts += [arrow(x, y + 5, y + 20) for x in at]
    total = sum(powers)
    parts += label(272, f"÷ sum, {total:.2f}", "= weights")
    for x, w in zip(at, weights):
        high = 44 * w
        parts += [box(x - 14, 322 - high, 28, high, "#9CC4E0", BLUE), text(x, 272, f"{w:.2f}", weight="bold")]
    parts += label(348, "value: water", "money", "age")
    for x, value in zip(at, VALUES):
        parts += vector(x, 333, value, GREEN, "#E5F3EE")
    parts += [f'<path d="M{at[0]} 388v8H{at[-1]}v-8M{at[2]} 396v13m-3 -5l3 5l3 -5" fill="none" stroke="#777777"/>']
    parts += [box(4, 411, 352, 46, "#E5F3EE", GREEN),
              text(14, 430, "weights × values, added up:", 12, GREEN, "start", "bold"),
              text(14, 448, "water {:.2f}, money {:.2f}, age {:.2f}".format(*mix), 12, GREEN, "start")]
    body = "\n".join(parts)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} 464" width="{WIDTH}" height="464" '
            f'font-family="Helvetica, Arial, sans-serif">\n<rect width="{WIDTH}" height="464" fill="#ffffff"/>\n'
            f'{body}\n</svg>\n')


if __name__ == "__main__":
    Path(__file__).with_name("09.svg").write_text(draw(), "utf-8")
