"""Draws 16.svg: twelve numbers of a GPT-2 file on their way into three matrices, and one token through them.

    python assets/flow/draw_16.py
"""

import json
from pathlib import Path

FONT = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
BLUE, ORANGE, GREEN, WHITE, INK = "#CFE4F5", "#FBD9BF", "#C9EADF", "#FFFFFF", "#000000"
COLOURS, NAMES = [BLUE, ORANGE, GREEN], ["q_proj", "k_proj", "v_proj"]
X, C = [1, 2], [[1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12]]
WIDE = len(X)
header = json.dumps({"h.0.attn.c_attn.weight": {"dtype": "F32", "shape": [2, 6], "data_offsets": [0, 48]}},
                    separators=(",", ":"))
HEADER, NUMBERS = (len(header) + 7) // 8 * 8, 4 * len(C) * len(C[0])
columns = list(zip(*C, strict=True))
thirds = [columns[WIDE * n:WIDE * (n + 1)] for n in range(3)]           # each row is one column of C
results = [[sum(x * w for x, w in zip(X, row, strict=True)) for row in third] for third in thirds]
LEFT, CELL, HEIGHT = 30, 50, 424


def text(x, y, words, size=13, anchor="middle", weight="normal") -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}">{words}</text>'


def box(x, y, words, fill, width=CELL, height=28) -> str:
    return (f'<rect x="{x}" y="{y}" width="{width}" height="{height}" stroke="{INK}" fill="{fill}"/>'
            + text(x + width / 2, y + height / 2 + 5, words, 14))


def step(y, words) -> str:
    x = LEFT + 14
    return (f'<line x1="{x}" y1="{y + 2}" x2="{x}" y2="{y + 28}" stroke="{INK}" stroke-width="1.6" '
            f'marker-end="url(#tip)"/>' + text(x + 12, y + 20, words, 13, "start"))


parts = [text(LEFT, 20, f"The file: {8 + HEADER + NUMBERS} bytes", 14, "start", "bold"),
         box(LEFT, 28, "8", WHITE, 30), box(LEFT + 30, 28, f"{HEADER}: names, shapes", WHITE, 170),
         box(LEFT + 200, 28, f"{NUMBERS}: numbers", BLUE, 100),
         step(60, "the header says: h.0.attn.c_attn, (2, 6)"),
         *(text(LEFT + CELL * (j + 0.5), 108, "qqkkvv"[j], 13, weight="bold") for j in range(6)),
         *(box(LEFT + CELL * j, 114 + 28 * i, number, COLOURS[j // WIDE])
           for i, row in enumerate(C) for j, number in enumerate(row)),
         text(LEFT - 14, 147, "in", 13),
         step(174, "cut into three; columns become rows"),
         *(text(LEFT + 100 * n + 46, 224, NAMES[n], 13, weight="bold") for n in range(3)),
         *(box(LEFT + 100 * n + 46 * j, 230 + 28 * i, number, COLOURS[n], 46)
           for n, third in enumerate(thirds) for i, row in enumerate(third) for j, number in enumerate(row)),
         text(LEFT - 16, 263, "out", 13),
         step(290, f"one token, x = ({X[0]}, {X[1]}), times each row"),
         *(text(LEFT + 100 * n + 46, 340, "query key value".split()[n], 13, weight="bold") for n in range(3)),
         *(box(LEFT + 100 * n + 46 * i, 346, number, COLOURS[n], 46)
           for n, result in enumerate(results) for i, number in enumerate(result)),
         text(LEFT, 396, f"for example {X[0]} · {thirds[0][0][0]} + {X[1]} · {thirds[0][0][1]} = {results[0][0]}"
              f" and {X[0]} · {thirds[1][1][0]} + {X[1]} · {thirds[1][1][1]} = {results[1][1]}", 13, "start"),
         text(LEFT, 414, "All three are square: no shape says which is which.", 13, "start")]
(Path(__file__).parent / "16.svg").write_text(
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 360 {HEIGHT}" width="360" height="{HEIGHT}" '
    f'font-family="{FONT}" fill="{INK}"><defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
    f'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 Z" fill="{INK}"/></marker></defs>'
    f'<rect width="360" height="{HEIGHT}" fill="#FFFFFF"/>' + "\n".join(parts) + "</svg>\n", "utf-8")
