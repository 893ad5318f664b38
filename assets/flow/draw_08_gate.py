"""Draws 08_gate.svg: the same four mentions through a gate: two readings, multiplied.

    python assets/flow/draw_08_gate.py
"""

import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from pen import arrow, cell, save, text  # noqa: E402

MENTIONS = ["bank", "river bank", "savings bank", "river savings b."]
X = [[0, 0], [1, 0], [0, 1], [1, 1]]
GATE = [[1, -1], [-1, 1], [-1, -1]]
UP = [[1, -1], [-1, 1], [0, 0]]
DOWN = [[1, 1, 1], [1, -1, 1]]
LIT, ROW, WIDE, LEFT, RIGHT = 1, 24, 40, 104, 238


def times(rows, matrix) -> list[list[float]]:
    """rows · matrixᵀ"""
    return [[sum(a * b for a, b in zip(row, weights, strict=True)) for weights in matrix] for row in rows]


def number(value: float) -> str:
    return f"{value:.2f}".removesuffix(".00").replace("-0.00", "0").replace("-", "−")


def table(x, y, rows, title, lit="#FFD873"):
    text(x + WIDE * len(rows[0]) / 2, y - 8, title, "middle", bold=True)
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            cell(x + WIDE * j, y + ROW * i, WIDE, ROW, number(value + 0.0), lit if i == LIT else "#DCEBF7", size=12)


def names(x, y, anchor="start"):
    for i, name in enumerate(MENTIONS):
        text(x, y + ROW * i + 17, name, anchor, 12, bold=i == LIT)


gate, up = times(X, GATE), times(X, UP)
opened = [[value / (1 + math.exp(-value)) for value in row] for row in gate]
through = [[a * b for a, b in zip(*rows, strict=True)] for rows in zip(opened, up, strict=True)]
answers = times(through, DOWN)
FIRST, SECOND, THIRD = 30, 178, 318
names(4, FIRST)
table(LEFT, FIRST, gate, "x W_gateᵀ: (4, 3)")
arrow(LEFT + 121, FIRST + 48, RIGHT - 3, FIRST + 48)
table(RIGHT, FIRST, opened, "silu of it: (4, 3)")
names(4, SECOND)
table(LEFT, SECOND, up, "x W_upᵀ: (4, 3)")
arrow(RIGHT + 60, FIRST + 4 * ROW + 4, RIGHT + 60, SECOND - 24)
arrow(LEFT + 121, SECOND + 48, RIGHT - 3, SECOND + 48)
table(RIGHT, SECOND, through, "the two, multiplied")
arrow(RIGHT + 60, SECOND + 4 * ROW + 4, RIGHT + 60, THIRD - 24)
text(RIGHT + 52, THIRD - 30, "W_downᵀ", "end")
names(RIGHT - 8, THIRD, "end")
table(RIGHT, THIRD, answers, "clear?, which?")
save("08_gate", THIRD + 4 * ROW + 12, "Four mentions through a gated network")
