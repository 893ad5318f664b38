"""Draws 08.svg: four mentions of "bank" through three detectors to two answers.

    python assets/flow/draw_08.py
"""

from pathlib import Path

FONT = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
BLUE, AMBER, INK = "#DCEBF7", "#FFD873", "#000000"
MENTIONS = ["bank", "river bank", "savings bank", "river savings b."]
X = [[0, 0], [1, 0], [0, 1], [1, 1]]
UP = [[1, -1], [-1, 1], [-1, -1]]
DOWN = [[1, 1, 1], [1, -1, 1]]
LIT, LEFT, ROW = 1, 106, 26


def times(rows, matrix) -> list[list[int]]:
    """rows · matrixᵀ"""
    return [[sum(a * b for a, b in zip(row, weights, strict=True)) for weights in matrix] for row in rows]


def text(x, y, words, size=13, anchor="middle", weight="normal") -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}">{words}</text>'


def table(x, y, rows, width, heads) -> str:
    said = [text(x + width * (j + 0.5), y - 6, head, 12.5) for j, head in enumerate(heads)]
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            said += [f'<rect x="{x + width * j}" y="{y + ROW * i}" width="{width}" height="{ROW}" stroke="{INK}" '
                     f'fill="{AMBER if i == LIT else BLUE}"/>',
                     text(x + width * (j + 0.5), y + ROW * i + 18, str(value).replace("-", "−"), 14)]
    return "".join(said)


def names(y) -> str:
    return "".join(text(4, y + ROW * i + 18, name, 12.5, "start", "bold" if i == LIT else "normal")
                   for i, name in enumerate(MENTIONS))


def arrow(x1, y1, x2, y2) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{INK}" stroke-width="1.6" marker-end="url(#tip)"/>'


before = times(X, UP)
hidden = [[max(value, 0) for value in row] for row in before]
answers = times(hidden, DOWN)
TOP, LOW = 58, 244
parts = [
    text(LEFT + 40, 18, "x: (4, 2)", 13, weight="bold"), text(282, 18, "x W_upᵀ: (4, 3)", 13, weight="bold"),
    names(TOP), table(LEFT, TOP, X, 40, ["river", "money"]), arrow(190, TOP + 39, 212, TOP + 39),
    table(216, TOP, before, 44, ["r − m", "m − r", "−r − m"]),
    arrow(282, TOP + 4 * ROW + 4, 206, LOW - 48),
    text(256, TOP + 4 * ROW + 32, "below 0: to 0", 13, "start"),
    text(LEFT + 66, LOW - 28, "hidden: (4, 3)", 13, weight="bold"),
    names(LOW), table(LEFT, LOW, hidden, 40, ["1st", "2nd", "3rd"]), arrow(230, LOW + 39, 252, LOW + 39),
    text(305, LOW - 28, "y: (4, 2)", 13, weight="bold"),
    table(257, LOW, answers, 48, ["clear?", "which?"]),
    text(4, LOW + 4 * ROW + 22, "y = hidden W_downᵀ. No arrow leads from row to row.", 13, "start"),
]
(Path(__file__).parent / "08.svg").write_text(
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 360 382" width="360" height="382" '
    f'font-family="{FONT}" fill="{INK}"><defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
    f'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 Z" fill="{INK}"/></marker></defs>'
    '<rect width="360" height="382" fill="#FFFFFF"/>' + "\n".join(parts) + "</svg>\n", "utf-8")
