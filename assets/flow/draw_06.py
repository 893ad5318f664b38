"""Draws 06.svg: where positions come in, added to the word vectors or added to the scores.

    python assets/flow/draw_06.py
"""

import math
from pathlib import Path

FONT = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
GREY, BLUE, ORANGE, INK = "#F0F0F0", "#DCEBF7", "#FBE3D3", "#000000"
NAMES = ["dog", "bites", "man"]
WORDS = [[2, 0, 0, 1], [0, 0, 2, 1], [0, 2, 0, 1]]
places = [[f(p * speed) for speed in (1, 0.01) for f in (math.sin, math.cos)] for p in range(3)]
summed = [[a + b for a, b in zip(*rows, strict=True)] for rows in zip(WORDS, places, strict=True)]
scores = [[sum(a * b for a, b in zip(q, k, strict=True)) / 2 for k in WORDS] for q in WORDS]
bias = [[0.5 * min(k - q, 0) for k in range(3)] for q in range(3)]
biased = [[a + b for a, b in zip(*rows, strict=True)] for rows in zip(scores, bias, strict=True)]


def number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0").replace("-", "−").replace("−0.0", "0")


def text(x, y, words, size=12.5, anchor="middle", weight="normal") -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}">{words}</text>'


def grid(left, top, values, fill, width=25, size=12.5) -> str:
    return "".join(
        f'<rect x="{left + width * j}" y="{top + 26 * i}" width="{width}" height="26" fill="{fill}" stroke="{INK}"/>'
        + text(left + width * (j + 0.5), top + 26 * i + 18, number(value), size)
        for i, line in enumerate(values) for j, value in enumerate(line))


parts = [
    text(180, 20, "1. added to the words", 14, weight="bold"),
    text(85, 44, "words"), text(199, 44, "positions"), text(357, 44, "sum, into attention", anchor="end"),
    grid(41, 52, WORDS, GREY, 22), text(137, 96, "+", 18), grid(145, 52, places, BLUE, 27, 11.5),
    text(261, 96, "=", 18), grid(269, 52, summed, ORANGE, 22, 11.5),
    *(text(37, 70 + 26 * i, name, anchor="end") for i, name in enumerate(NAMES)),
    text(180, 150, "3 tokens down, 4 features across", 12.5),
    text(180, 196, "2. added to the scores", 14, weight="bold"),
    text(84, 220, "scores"), text(199, 220, "bias"), text(314, 220, "into softmax"),
    grid(42, 228, scores, GREY, 28), text(139, 272, "+", 18), grid(150, 228, bias, BLUE, 33), text(260, 272, "=", 18),
    grid(271, 228, biased, ORANGE, 29, 11.5),
    *(text(37, 246 + 26 * i, name, anchor="end") for i, name in enumerate(NAMES)),
    text(180, 326, "3 queries down, 3 keys across"),
    text(180, 344, "here the bias takes off ½ for each step back"),
]
(Path(__file__).parent / "06.svg").write_text(
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 360 356" width="360" height="356" '
    f'font-family="{FONT}" fill="{INK}"><rect width="360" height="356" fill="#FFFFFF"/>'
    + "\n".join(parts) + "</svg>\n", "utf-8")
