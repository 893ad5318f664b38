"""Draws assets/flow/10.svg: three query heads ask one head of keys. Every number is computed here.

    python assets/flow/draw_10.py
"""

from math import exp, sqrt
from pathlib import Path

WORDS = ["the", "cat", "saw", "her", "kitten"]
QUERIES = [[2, 0, 0, 0], [0, 2, 0, 0], [0, 0, 2, 0]]                    # heads 0, 1, 2
KEYS = [[0, 1, 0, 0], [2, 0, 0, 1], [0, 2, 0, 0], [1, 1, 0, 0], [0, 0, 2, 0]]
VALUES = [[0, 0, 0, 0], [4, 0, 0, 0], [0, 4, 0, 0], [1, 1, 0, 0], [0, 0, 4, 0]]
WIDTH, HIGH, ROW = 360, 626, 22
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#B34E00", "#00704F", "#444444"

scores = [[sum(a * b for a, b in zip(q, k)) / sqrt(len(q)) for k in KEYS] for q in QUERIES]
weights = [[exp(s) / sum(map(exp, row)) for s in row] for row in scores]
mixed = [[sum(w * v[f] for w, v in zip(row, VALUES)) for f in range(len(VALUES[0]))] for row in weights]


def text(x, y, said, color=GREY, anchor="middle", weight="normal", size=12) -> str:
    return (f'<text x="{x}" y="{y}" font-size="{size}" fill="{color}" text-anchor="{anchor}" '
            f'font-weight="{weight}">{said}</text>')


def grid(x, y, rows, cell, color, fill, digits=0) -> list[str]:
    """A matrix whose upper left corner is (x, y)."""
    parts = [f'<rect x="{x}" y="{y}" width="{cell * len(rows[0])}" height="{ROW * len(rows)}" rx="4" '
             f'fill="{fill}" stroke="{color}"/>']
    for i, row in enumerate(rows):
        parts += [text(x + cell * (j + 0.5), y + ROW * i + 16, f"{n:.{digits}f}", color)
                  for j, n in enumerate(row)]
    return parts


def heads(y) -> list[str]:
    return [text(52, y + ROW * i + 16, f"head {i}", anchor="end") for i in range(3)]


def arrow(y, said) -> list[str]:
    return [f'<path d="M180 {y}v22m-4 -6l4 6l4 -6" fill="none" stroke="#777777"/>',
            text(190, y + 16, said, anchor="start")]


def draw() -> str:
    parts = [text(4, 18, "Three query heads ask key/value head A", "#111111", "start", "bold", 14)]
    parts += [text(4, 42, "queries, stacked: (3, 4)", BLUE, "start", "bold")]
    parts += [*heads(50), *grid(60, 50, QUERIES, 46, BLUE, "#E8F1F8")]
    parts += [text(180, 134, "times", anchor="middle")]
    parts += [text(4, 154, "keys of A, once, transposed: (4, 5)", ORANGE, "start", "bold")]
    parts += [text(60 + 58 * (j + 0.5), 174, word, "#111111") for j, word in enumerate(WORDS)]
    parts += [*grid(60, 180, list(zip(*KEYS)), 58, ORANGE, "#FBEEE4"), *arrow(272, "÷ √4")]
    parts += [text(4, 312, "scores: (3, 5)", BLUE, "start", "bold")]
    parts += [*heads(320), *grid(60, 320, scores, 58, BLUE, "#E8F1F8"), *arrow(390, "softmax of each row")]
    parts += [text(4, 430, "weights: (3, 5)", BLUE, "start", "bold")]
    parts += [*heads(438), *grid(60, 438, weights, 58, BLUE, "#E8F1F8", 2)]
    parts += arrow(508, "times the values of A, (5, 4)")
    parts += [text(4, 548, "outputs: (3, 4)", GREEN, "start", "bold")]
    parts += heads(556)
    parts += [*grid(60, 556, mixed, 58, GREEN, "#E5F3EE", 2)]
    body = "\n".join(parts)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HIGH + 4}" width="{WIDTH}" '
            f'height="{HIGH + 4}" font-family="Helvetica, Arial, sans-serif">\n'
            f'<rect width="{WIDTH}" height="{HIGH + 4}" fill="#ffffff"/>\n{body}\n</svg>\n')


if __name__ == "__main__":
    Path(__file__).with_name("10.svg").write_text(draw(), "utf-8")
