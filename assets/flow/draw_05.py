"""Draws 05.svg: four scores on their way to probabilities and to a loss.

    python assets/flow/draw_05.py
"""

import math
from pathlib import Path

FONT = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
BLUE, ORANGE, INK = "#DCEBF7", "#FBD9BF", "#000000"
WORDS, SCORES, ANSWER = ["mat", "sofa", "floor", "moon"], [2, 1, 0, -3], 1
shifted = [score - max(SCORES) for score in SCORES]
weights = [math.exp(score) for score in shifted]
shares = [weight / sum(weights) for weight in weights]
LOSS = -math.log(shares[ANSWER])
LEFT, WIDTH = 20, 62


def text(x, y, words, size=13, anchor="middle", weight="normal") -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}">{words}</text>'


def row(y, values, digits) -> str:
    said = [f"{value:.{digits}f}".replace("-", "−") for value in values]
    return "".join(
        f'<rect x="{LEFT + WIDTH * i}" y="{y}" width="{WIDTH}" height="30" stroke="{INK}" '
        f'fill="{ORANGE if i == ANSWER else BLUE}"/>' + text(LEFT + WIDTH * (i + 0.5), y + 20, word, 14)
        for i, word in enumerate(said))


def step(y, words) -> str:
    x = LEFT + WIDTH * 0.5
    return (f'<line x1="{x}" y1="{y + 2}" x2="{x}" y2="{y + 26}" stroke="{INK}" stroke-width="1.6" '
            f'marker-end="url(#tip)"/>' + text(x + 14, y + 19, words, 13, "start"))


parts = [*(text(LEFT + WIDTH * (i + 0.5), 22, word, 14, weight="bold") for i, word in enumerate(WORDS)),
         row(30, SCORES, 0), text(LEFT + 4 * WIDTH + 8, 50, "scores", 12.5, "start"),
         step(60, f"subtract the largest score, {max(SCORES)}"),
         row(90, shifted, 0),
         step(120, "take e to the power of each"),
         row(150, weights, 3), text(LEFT + 4 * WIDTH + 8, 170, "weights", 12.5, "start"),
         step(180, f"divide by their sum, {sum(weights):.3f}"),
         row(210, shares, 4), text(LEFT + 4 * WIDTH + 8, 224, "proba-", 12.5, "start"),
         text(LEFT + 4 * WIDTH + 8, 239, "bilities", 12.5, "start"),
         f'<line x1="{LEFT + WIDTH * 1.5}" y1="242" x2="{LEFT + WIDTH * 1.5}" y2="286" stroke="{INK}" '
         'stroke-width="1.6" marker-end="url(#tip)"/>',
         text(LEFT + WIDTH * 1.5 + 14, 261, "the text said “sofa”:", 13, "start"),
         text(LEFT + WIDTH * 1.5 + 14, 278, "minus the natural logarithm", 13, "start"),
         f'<rect x="{LEFT + WIDTH}" y="290" width="{WIDTH}" height="30" stroke="{INK}" fill="{ORANGE}"/>',
         text(LEFT + WIDTH * 1.5, 310, f"{LOSS:.4f}", 14, weight="bold"),
         text(LEFT + WIDTH * 2 + 8, 310, "the loss, in nats", 13, "start")]
(Path(__file__).parent / "05.svg").write_text(
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 360 332" width="360" height="332" '
    f'font-family="{FONT}" fill="{INK}"><defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
    f'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 Z" fill="{INK}"/></marker></defs>'
    '<rect width="360" height="332" fill="#FFFFFF"/>' + "\n".join(parts) + "</svg>\n", "utf-8")
