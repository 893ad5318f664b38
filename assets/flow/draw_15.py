"""Draws 15.svg: five logits on their way to one token: temperature, top-p, softmax, a draw.

    python assets/flow/draw_15.py
"""

import math
from pathlib import Path

FONT = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
BLUE, ORANGE, GREY, INK = "#DCEBF7", "#FBD9BF", "#E6E6E6", "#000000"
WORDS, LOGITS = ["statement", "loop", "each", "zebra", "of"], [3.0, 2.5, 1.0, -2.0, 0.5]
TEMPERATURE, P, U = 0.5, 0.9, 0.9
LEFT, WIDTH, HEIGHT = 9, 68, 468


def softmax(values):
    weights = [math.exp(value) for value in values]
    return [weight / sum(weights) for weight in weights]


def top_p(values, p):
    """The values, with None where the tokens before, likeliest first, have p already."""
    shares, before, kept = softmax(values), 0.0, [None] * len(values)
    for i in sorted(range(len(values)), key=lambda i: -values[i]):
        if before < p:
            kept[i] = values[i]
        before += shares[i]
    return kept


warm = [value / TEMPERATURE for value in LOGITS]
shares = softmax(warm)
kept = top_p(warm, P)
final = softmax([-math.inf if value is None else value for value in kept])
ends = [sum(final[:i + 1]) for i in range(len(final))]
CHOSEN = next(i for i, end in enumerate(ends) if end > U)


def text(x, y, words, size=13, anchor="middle", weight="normal") -> str:
    return f'<text x="{x:.1f}" y="{y}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}">{words}</text>'


def row(y, values, digits) -> str:
    said = ["−∞" if value in (None, 0) else f"{value:.{digits}f}".replace("-", "−") for value in values]
    if digits == 3:
        said = ["0" if word == "−∞" else word for word in said]
    return "".join(
        f'<rect x="{LEFT + WIDTH * i}" y="{y}" width="{WIDTH}" height="30" stroke="{INK}" '
        f'fill="{GREY if kept[i] is None and word in ("−∞", "0") else BLUE}"/>'
        + text(LEFT + WIDTH * (i + 0.5), y + 20, word, 14) for i, word in enumerate(said))


def step(y, words) -> str:
    x = LEFT + 14
    return (f'<line x1="{x}" y1="{y + 2}" x2="{x}" y2="{y + 26}" stroke="{INK}" stroke-width="1.6" '
            f'marker-end="url(#tip)"/>' + text(x + 12, y + 19, words, 13, "start"))


LINE, LONG = 336, 5 * WIDTH
cut = sum(value is None for value in kept)
together = " + ".join(f"{share:.3f}" for share in sorted(shares, reverse=True)[:len(LOGITS) - cut])
parts = [*(text(LEFT + WIDTH * (i + 0.5), 20, word, 13, weight="bold") for i, word in enumerate(WORDS)),
         row(28, LOGITS, 2), step(58, f"temperature: divide by {TEMPERATURE}"),
         row(88, warm, 2), step(118, "softmax, to get probabilities"),
         row(148, shares, 3),
         step(178, f"top-p = {P}: {together} reach {P}"),
         row(208, kept, 2), step(238, "softmax: what is left adds up to 1 again"),
         row(268, final, 3), step(298, f"side by side on a line; draw u = {U}")]
left = 0.0
for i, share in enumerate(final):
    if share:
        x = LEFT + LONG * left
        parts.append(f'<rect x="{x:.1f}" y="{LINE}" width="{LONG * share:.1f}" height="36" stroke="{INK}" '
                     f'fill="{ORANGE if i == CHOSEN else BLUE}"/>')
        if share > 0.15:
            parts.append(text(x + LONG * share / 2, LINE + 23, WORDS[i], 13))
        left += share
for end in [0, *(end for end, share in zip(ends, final, strict=True) if share)]:
    last = end > 0.99
    parts.append(text(LEFT + LONG * end, LINE + 52, f"{end:.0f}" if last or not end else f"{end:.3f}",
                      12, "end" if last else "middle" if end else "start"))
x = LEFT + LONG * U
parts += [f'<line x1="{x:.1f}" y1="{LINE + 84}" x2="{x:.1f}" y2="{LINE + 40}" stroke="{INK}" stroke-width="1.6" '
          'marker-end="url(#tip)"/>', text(x, LINE + 98, f"u = {U}", 13),
          text(LEFT, LINE + 98, f"the next token: “{WORDS[CHOSEN]}”", 14, "start", "bold")]
(Path(__file__).parent / "15.svg").write_text(
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 360 {HEIGHT}" width="360" height="{HEIGHT}" '
    f'font-family="{FONT}" fill="{INK}"><defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
    f'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 Z" fill="{INK}"/></marker></defs>'
    f'<rect width="360" height="{HEIGHT}" fill="#FFFFFF"/>' + "\n".join(parts) + "</svg>\n", "utf-8")
