"""Draws assets/flow/09_mask.svg, a mask on its way into weights, and 09_heads.svg, one word in two heads.

    python assets/flow/draw_09_more.py
"""

import sys
from math import exp, inf, sqrt
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from pen import arrow, cell, parts, save, text  # noqa: E402

WORDS = ["the", "old", "river", "bank", "flooded"]
#        water money age noun verb adjective
ROWS = [[0, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 1], [2, 0, 0, 1, 0, 0], [.5, .5, 0, 1, 0, 0], [1, 0, 0, 0, 1, 0]]
# For each head: the query and the key of a row of features, and what it hands over.
HEADS = [(lambda x: (3 * x[3], 3 * x[3], 0), lambda x: (x[0], x[1], 0), lambda x: x[:3]),
         (lambda x: (4 * x[4], 0, 0), lambda x: (x[3], 0, 0), lambda x: x[3:])]
NAMES = [("water", "money", "age"), ("noun", "verb", "adject.")]
BLUE, PALE, GREY, GREEN = "#0072B2", "#CDE6F5", "#DDDDDD", "#D5EFE4"


def scores(head: int) -> list[list[float]]:
    query, key, _ = HEADS[head]
    return [[sum(a * b for a, b in zip(query(x), key(y))) / sqrt(3) for y in ROWS] for x in ROWS]


def softmax(row: list[float]) -> list[float]:
    powers = [exp(score) for score in row]
    return [power / sum(powers) for power in powers]


def square(x: int, y: int, title: str, cells: list[list[tuple[str, str]]]) -> None:
    text(x, y - 8, title, bold=True, size=11.5)
    for i, row in enumerate(cells):
        for j, (words, fill) in enumerate(row):
            cell(x + 29 * j, y + 24 * i, 29, 24, words, fill, 0.6, 10.5)


def mask() -> None:
    plain = scores(0)
    hidden = [[score if j <= i else -inf for j, score in enumerate(row)] for i, row in enumerate(plain)]
    weights = [softmax(row) for row in hidden]

    def shown(number: float) -> str:
        return "−∞" if number == -inf else f"{number:.2f}" if number else "0"

    def fills(of):
        return [[of(i, j) for j in range(5)] for i in range(5)]

    left, right, top, low = 54, 209, 24, 176
    square(left, top, "1. scores", fills(lambda i, j: (shown(plain[i][j]), "#FFFFFF")))
    square(right, top, "2. mask: may look?", fills(lambda i, j: ("yes", PALE) if j <= i else ("no", GREY)))
    square(left, low, "3. where no: −∞", fills(lambda i, j: (shown(hidden[i][j]), "#FFFFFF" if j <= i else GREY)))
    square(right, low, "4. softmax, per row", fills(lambda i, j: (
        shown(weights[i][j]), GREY if j > i else "#9CC4E0" if weights[i][j] > 0.3 else "#FFFFFF")))
    for y in (top, low):
        for i, word in enumerate(WORDS):
            text(left - 5, y + 24 * i + 16, word, "end", 11.5)
    text(4, 316, "Rows: who asks. Columns: who is asked, same order.", size=11.5)
    save("09_mask", 324, "A causal mask, from scores to weights")


def heads() -> None:
    text(4, 18, "“flooded” asks in two heads", bold=True, size=14)
    text(180, 40, "its six features: water 1, verb 1, all others 0", "middle", 12)
    for head, (query, _, value) in enumerate(HEADS):
        x, asks = 8 + 178 * head, query(ROWS[4])
        arrow(180, 46, x + 82, 64)
        cell(x, 66, 166, 24, f"head {head}: query ({', '.join(f'{n:g}' for n in asks)})", PALE, 1, 12)
        weights = softmax(scores(head)[4])
        for j, (word, weight) in enumerate(zip(WORDS, weights)):
            y = 100 + 24 * j
            text(x + 50, y + 16, word, "end", 12)
            cell(x + 56, y + 3, 74 * weight / 0.5, 16, "", "#9CC4E0", 0.8)
            text(x + 60 + 74 * weight / 0.5, y + 16, f"{weight:.2f}", size=12)
        arrow(x + 82, 222, x + 82, 238)
        mix = [sum(w * value(row)[f] for w, row in zip(weights, ROWS)) for f in range(3)]
        for f, (name, number) in enumerate(zip(NAMES[head], mix)):
            text(x + 28 + 55 * f, 252, name, "middle", 12)
            cell(x + 2 + 55 * f, 258, 52, 24, f"{number:.2f}", GREEN, 1, 12)
        arrow(x + 82, 284, 93 + 174 * head, 302)
        for f, number in enumerate(mix):
            cell(33 + 49 * (3 * head + f), 304, 49, 26, f"{number:.2f}", GREEN, 1, 12)
    text(180, 348, "side by side: six features again, head 0 first", "middle", 12)
    save("09_heads", 358, "One word in two heads")


if __name__ == "__main__":
    mask()
    parts.clear()
    heads()
