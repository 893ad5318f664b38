"""Draws 04.svg: the four features of "cat" on their way through LayerNorm and RMSNorm.

    python assets/flow/draw_04.py
"""

from pathlib import Path

FONT = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
BLUE, ORANGE, INK = "#DCEBF7", "#FBE3D3", "#000000"
CAT = [7, 7, -1, -1]
MEAN = sum(CAT) / 4
STD = (sum((v - MEAN) ** 2 for v in CAT) / 4) ** 0.5
RMS = (sum(v ** 2 for v in CAT) / 4) ** 0.5


def number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0").replace("-", "−")


def text(x, y, words, size=13, anchor="middle", weight="normal") -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}">{words}</text>'


def row(middle, y, values, fill) -> str:
    width, left = 40, middle - 80
    return "".join(
        f'<rect x="{left + width * i}" y="{y}" width="{width}" height="30" fill="{fill}" stroke="{INK}"/>'
        + text(left + width * i + width / 2, y + 20, number(value), 14) for i, value in enumerate(values))


def arrow(x, y, x2, y2) -> str:
    return f'<line x1="{x}" y1="{y}" x2="{x2}" y2="{y2}" stroke="{INK}" stroke-width="1.6" marker-end="url(#tip)"/>'


centred, layer = [v - MEAN for v in CAT], [(v - MEAN) / STD for v in CAT]
rms = [v / RMS for v in CAT]
LEFT, RIGHT = 90, 270
parts = [
    text(180, 20, "one token, “cat”: four features", 14, weight="bold"),
    row(180, 30, CAT, "#F0F0F0"),
    arrow(140, 62, LEFT, 96), arrow(220, 62, RIGHT, 96),
    text(LEFT, 116, "LayerNorm", 14, weight="bold"), text(RIGHT, 116, "RMSNorm", 14, weight="bold"),
    text(LEFT, 137, f"subtract the mean, {number(MEAN)}"), text(RIGHT, 137, "leave the mean"),
    row(LEFT, 147, centred, BLUE), row(RIGHT, 147, CAT, ORANGE),
    arrow(LEFT, 179, LEFT, 203), arrow(RIGHT, 179, RIGHT, 203),
    text(LEFT, 221, "divide by the standard"), text(LEFT, 238, f"deviation, {number(STD)}"),
    text(RIGHT, 221, "divide by the root"), text(RIGHT, 238, f"mean square, {number(RMS)}"),
    row(LEFT, 248, layer, BLUE), row(RIGHT, 248, rms, ORANGE),
    text(180, 312, "the three measures: rms² = mean² + std²", 13, weight="bold"),
]
unit, x0, y0 = 22, 100, 404
x1, y1 = x0 + unit * STD, y0 - unit * MEAN
parts += [
    f'<path d="M{x0} {y0} L{x1} {y0} L{x1} {y1} Z" fill="#F0F0F0" stroke="{INK}" stroke-width="1.6"/>',
    text((x0 + x1) / 2, y0 + 18, f"std {number(STD)}"),
    text(x1 + 6, (y0 + y1) / 2 + 4, f"mean {number(MEAN)}", 13, "start"),
    text((x0 + x1) / 2 - 8, (y0 + y1) / 2 - 6, f"rms {number(RMS)}", 13, "end"),
]
(Path(__file__).parent / "04.svg").write_text(
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 360 432" width="360" height="432" '
    f'font-family="{FONT}" fill="{INK}"><defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
    f'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 Z" fill="{INK}"/></marker></defs>'
    '<rect width="360" height="432" fill="#FFFFFF"/>' + "\n".join(parts) + "</svg>\n", "utf-8")
