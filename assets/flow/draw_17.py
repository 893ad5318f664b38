"""Draws lesson 17's toy on its way: one query, six keys in tiles of two, a maximum and a sum that run along.

    python assets/flow/draw_17.py

The numbers are computed here from the lesson's q, k and v, in plain Python.
"""

from math import exp, inf, sqrt

from pen import arrow, cell, save, text

Q = [2, 1, 1, 0]
K = [[1, 0, 0, 3], [2, 1, 1, 0], [1, 1, 1, 2], [0, 1, -1, 1], [4, 1, 1, 0], [3, 1, 1, 1]]
V = [[4, 0, 0], [0, 4, 0], [0, 0, 4], [4, 4, 0], [0, 2, 2], [2, 0, 2]]
TILE, BLUE, AMBER, GREEN, GREY = 2, "#D6EAF5", "#F9D9A0", "#D9EFDF", "#E8E8E8"


def main() -> None:
    scores = [sum(a * b for a, b in zip(Q, key)) / sqrt(len(Q)) for key in K]
    text(8, 18, "Six scores of one query, two at a time", bold=True)
    high, total, mixed, y = -inf, 0.0, [0.0] * 3, 30
    for tile in range(len(K) // TILE):
        here = range(tile * TILE, (tile + 1) * TILE)
        risen = max(high, *(scores[j] for j in here))
        shrink = exp(high - risen)
        weights = [exp(scores[j] - risen) for j in here]
        total = total * shrink + sum(weights)
        mixed = [m * shrink + sum(w * V[j][f] for w, j in zip(weights, here)) for f, m in enumerate(mixed)]
        said = f"maximum {risen:g}" if high == -inf else "maximum stays " + f"{risen:g}" if risen == high else \
            f"maximum rises: {high:g} to {risen:g}"
        text(8, y + 18, f"Tile {tile + 1}", bold=True)
        text(60, y + 18, "scores")
        text(196, y + 18, "e^(score − maximum)")
        for n, (j, weight) in enumerate(zip(here, weights)):
            cell(106 + 38 * n, y + 2, 38, 24, f"{scores[j]:g}", BLUE)
            cell(196 + 58 * n, y + 26, 58, 24, f"{weight:.3f}", AMBER)
        text(8, y + 46, said)
        if high not in (-inf, risen):
            text(8, y + 64, f"e^({high:g} − {risen:g}) = {shrink:.3f}: the old sum and", size=12)
            text(8, y + 80, "the old mix shrink by this", size=12)
            y += 30
        arrow(72, y + 56, 72, y + 74)
        text(8, y + 94, "sum")
        cell(40, y + 78, 64, 24, f"{total:.3f}", GREEN, 1.6)
        text(122, y + 94, "mix")
        for f, number in enumerate(mixed):
            cell(152 + 62 * f, y + 78, 62, 24, f"{number:.3f}", GREEN, 1.6)
        y += 118
        high = risen

    cell(8, y - 4, 344, 1, "", "#000000", 0)
    text(8, y + 20, "At the end", bold=True)
    text(8, y + 44, "out = mix / sum")
    for f, number in enumerate(mixed):
        cell(152 + 62 * f, y + 28, 62, 24, f"{number / total:.3f}", GREY, 1.6)
    text(8, y + 76, "Softmax over all six scores at once gives the same.")
    save("17", y + 90, "Attention of one query over six keys, in three tiles, with a running maximum, sum and mix")


if __name__ == "__main__":
    main()
