"""Draws lesson 14's valley: one step of AdamW, the third, number by number, for two weights.

    python assets/flow/draw_14.py
"""

import math
from pathlib import Path
from xml.sax.saxutils import escape

HERE = Path(__file__).resolve().parent
FONT = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
WIDTH, BLUE, AMBER, GREEN = 360, "#D6EAF5", "#F9D9A0", "#D9EFDF"
BOTTOM, STEEPNESS, START, RATE = (3.0, 1.0), (1.0, 40.0), (-1.0, 2.0), 0.5
parts: list[str] = []


def steps(which: int) -> list[dict]:
    """Three steps of Adam for one weight."""
    w, m, v, made = START[which], 0.0, 0.0, []
    for t in (1, 2, 3):
        g = STEEPNESS[which] * (w - BOTTOM[which])
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        mean, ruler = m / (1 - 0.9**t), math.sqrt(v / (1 - 0.999**t))
        made.append({"w": w, "g": g, "mean": mean, "ruler": ruler, "share": mean / ruler,
                     "new": w - RATE * mean / ruler})
        w = made[-1]["new"]
    return made


def text(x, y, words, anchor="start", size=13, bold=False):
    weight = ' font-weight="bold"' if bold else ""
    parts.append(f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}"{weight}>{escape(words)}</text>')


def box(x, y, words, fill="#FFFFFF", edge=1):
    parts.append(f'<rect x="{x:g}" y="{y:g}" width="92" height="26" fill="{fill}" stroke="#000000" '
                 f'stroke-width="{edge:g}"/>')
    text(x + 46, y + 18, words.replace("-0.00", "0.00").replace("-", "−"), "middle")


def arrow(x, top):
    parts.append(f'<line x1="{x}" y1="{top}" x2="{x}" y2="{top + 19}" stroke="#000000" stroke-width="1.5" '
                 'marker-end="url(#tip)"/>')


ROWS = [("w", "weight", "{:.2f}", BLUE), ("g", "slope g", "{:.2f}", "#FFFFFF"),
        ("mean", "mean of slopes", "{:.2f}", "#FFFFFF"), ("ruler", "ruler (root of", "{:.2f}", AMBER),
        ("share", "mean / ruler", "{:.2f}", GREEN), ("new", "weight − 0.5 ·", "{:.2f}", BLUE)]
SECOND = {"g": "steepness · distance", "mean": "so far, corrected", "ruler": "mean square)", "new": "that"}
text(10, 20, "The third step of Adam, two weights", bold=True)
for x, name in ((204, "a: flat"), (306, "b: steep")):
    text(x, 44, name, "middle", bold=True)
both = steps(0), steps(1)
for r, (key, label, form, fill) in enumerate(ROWS):
    top = 54 + 48 * r
    text(10, top + (11 if key in SECOND else 18), label, size=13)
    if key in SECOND:
        text(10, top + 26, SECOND[key], size=12)
    for x, made in zip((158, 260), both, strict=True):
        box(x, top, form.format(made[2][key]), fill, 2.4 if key == "share" else 1)
        if r:
            arrow(x + 46, top - 21)
height = 54 + 48 * len(ROWS) + 12
shares = " and ".join(f"{made[2]['share']:.2f}" for made in both).replace("-", "−")
text(10, height - 14, f"One is 40 times as steep; steps: {shares} of the rate")
(HERE / "14.svg").write_text(
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
    f'font-family="{FONT}" role="img">\n<title>Each weight has a slope, a running mean of its slopes and a ruler; '
    'the step is the mean divided by the ruler</title>\n'
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    f'<path d="M0 0 8 4 0 8z"/></marker></defs>\n<rect width="{WIDTH}" height="{height}" fill="#FFFFFF"/>\n'
    + "\n".join(parts) + "\n</svg>\n", "utf-8")
