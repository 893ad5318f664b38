"""Draws lesson 11's toy on its way: the fifth token against a cache that holds four.

    python assets/flow/draw_11.py

The numbers are computed here from the lesson's x and weights, in plain Python.
"""

from math import exp
from pathlib import Path

WORDS = ["the", "dog", "bites", "a", "man"]
X = [[1, 0, 1], [0, 2, 1], [1, 1, 0], [2, 0, 1], [0, 1, 2]]
W_Q = [[1, 0, 1], [0, 1, 0], [1, 0, 0], [0, 1, 1]]       # (out, in)
W_K = [[1, 0, 0], [0, 1, 1], [0, 1, 0], [1, 0, 1]]
W_V = [[2, 0, 1], [0, 1, 0], [1, 0, 0], [0, 0, 3]]
ROOM = 6
INK, OLD, NEW, EMPTY = "#000000", "#E3E8EE", "#FFD36B", "#FFFFFF"
FONT = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
CELL, HIGH = 22, 24


def times(row, matrix):
    return [sum(a * b for a, b in zip(row, weights)) for weights in matrix]


def text(x, y, words, anchor="middle", bold=False):
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x}" y="{y}" font-size="12.5" text-anchor="{anchor}" fill="{INK}"{weight}>{words}</text>'


def row(x, y, numbers, fill, wide=CELL):
    out = []
    for i, number in enumerate(numbers):
        out.append(f'<rect x="{x + i * wide}" y="{y}" width="{wide}" height="{HIGH}" fill="{fill}" '
                   f'stroke="{INK}" stroke-width="0.8"/>')
        out.append(text(x + i * wide + wide / 2, y + 17, number))
    return "".join(out)


def arrow(*points):
    path = " L".join(f"{x} {y}" for x, y in points)
    return f'<path d="M{path}" fill="none" stroke="{INK}" stroke-width="1.5" marker-end="url(#tip)"/>'


def main() -> None:
    keys, values = [times(x, W_K) for x in X], [times(x, W_V) for x in X]
    query = times(X[-1], W_Q)
    scores = [sum(a * b for a, b in zip(query, key)) / 2 for key in keys]
    total = sum(map(exp, scores))
    weights = [exp(score) / total for score in scores]
    out = [sum(w * value[f] for w, value in zip(weights, values)) for f in range(4)]

    k_at, score_at, weight_at, v_at = 46, 142, 188, 264
    new_y, top = 92, 190
    svg = [text(8, 18, "1. Only the new token, “man”, is projected:", "start", True),
           text(8, 50, "x", "start"), row(k_at, 33, X[-1], NEW), text(122, 50, "3 features", "start"),
           text(k_at, new_y - 5, "query q", "start"), row(k_at, new_y, query, NEW),
           text(155, new_y - 5, "key k", "start"), row(155, new_y, keys[-1], NEW),
           text(v_at, new_y - 5, "value v", "start"), row(v_at, new_y, values[-1], NEW),
           text(8, 146, "2. k and v join the cache; q is compared with", "start", True),
           text(22, 162, "every key. Softmax turns scores into weights.", "start", True)]
    for at, name, anchor in ((k_at, "keys", "start"), (score_at, "q·k / 2", "start"),
                             (weight_at, "weight", "start"), (v_at, "values", "start")):
        svg.append(text(at, top - 5, name, anchor))
    for i in range(ROOM):
        y = top + i * HIGH
        if i == len(WORDS):
            svg += [text(8, y + 17, "room", "start"), row(k_at, y, [""] * 4, EMPTY), row(v_at, y, [""] * 4, EMPTY)]
            continue
        fill = NEW if i == len(WORDS) - 1 else OLD
        svg += [text(8, y + 17, WORDS[i], "start"), row(k_at, y, keys[i], fill), row(v_at, y, values[i], fill),
                text(score_at + 20, y + 17, f"{scores[i]:.1f}"), text(weight_at + 22, y + 17, f"{weights[i]:.2f}")]
        svg.append(arrow((weight_at + 42, y + 12), (v_at - 4, y + 12)))
    end = top + ROOM * HIGH
    svg += [text(8, end + 26, "3. The output is the weighted sum of the values:", "start", True),
            text(150, end + 56, "output", "end"), row(158, end + 39, [f"{n:.2f}" for n in out], NEW, 48),
            text(8, end + 88, "Grey was there before. Yellow is computed in this step.", "start")]
    high = end + 100
    (Path(__file__).parent / "11.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 360 {high}" width="360" height="{high}" '
        f'font-family="{FONT}">\n<title>One step of decoding with a cache</title>\n'
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="9" markerHeight="9" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 L10 5 L0 10 z" fill="{INK}"/></marker></defs>\n'
        f'<rect width="360" height="{high}" fill="#FFFFFF"/>\n' + "\n".join(svg) + "\n</svg>\n", "utf-8")


if __name__ == "__main__":
    main()
