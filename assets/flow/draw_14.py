"""Draws lesson 14's valley: one step of AdamW, the third, number by number, for two weights.

    python assets/flow/draw_14.py
"""

import math

import pen

BLUE, AMBER, GREEN, WHITE = "#D6EAF5", "#F9D9A0", "#D9EFDF", "#FFFFFF"
BOTTOM, STEEPNESS, START, RATE = (3.0, 1.0), (1.0, 40.0), (-1.0, 2.0), 0.5
HALF, TOP, ROW, HIGH = 35, 54, 46, 26       # half a box's width; the first row, from row to row, a box's height


def steps(which: int) -> list[dict]:
    """Three steps of Adam for one weight."""
    w, m, v, made = START[which], 0.0, 0.0, []
    for t in (1, 2, 3):
        g = STEEPNESS[which] * (w - BOTTOM[which])
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        mean, size = m / (1 - 0.9**t), math.sqrt(v / (1 - 0.999**t))
        step = -RATE * mean / size
        made.append({"w": w, "g": g, "mean": mean, "size": size, "share": mean / size, "step": step,
                     "new": w + step})
        w += step
    return made


def number(value: float, form: str = "{:.2f}") -> str:
    return form.format(value).replace("-0.00", "0.00").replace("-", "−")


def around(x, first, last, away):
    """An arrow from the side of one row's box to the side of a later row's, past those between."""
    top, bottom = (TOP + ROW * row + HIGH / 2 for row in (first, last))
    side, lane = (x + HALF, x + HALF + away) if away > 0 else (x - HALF, x - HALF + away)
    pen.along(f"M{side:g} {top:g}H{lane:g}V{bottom:g}H{side:g}")


ROWS = [("w", "weight", "", BLUE), ("g", "gradient g", "steepness · distance", WHITE),
        ("mean", "m̂: mean of g", "so far, corrected", WHITE), ("size", "√v̂: root of the", "mean of g²", AMBER),
        ("share", "m̂ / √v̂", "", GREEN), ("step", "step", "−0.5 · that", WHITE),
        ("new", "new weight", "weight + step", BLUE)]
pen.text(10, 20, "The third step of Adam, two weights", bold=True)
for row, (_, label, more, _) in enumerate(ROWS):
    pen.text(10, TOP + ROW * row + (11 if more else 18), label)
    pen.text(10, TOP + ROW * row + 26, more, size=12)
for x, name, made in ((200, "a: flat", steps(0)), (306, "b: steep", steps(1))):
    pen.text(x, 44, name, "middle", bold=True)
    for row, (key, _, _, fill) in enumerate(ROWS):
        form = "{:+.2f}" if key == "step" else "{:.2f}"
        pen.cell(x - HALF, TOP + ROW * row, 2 * HALF, HIGH, number(made[2][key], form), fill,
                 2.4 if key == "share" else 1)
        if row and key != "size":               # √v̂ is not made from m̂
            pen.arrow(x, TOP + ROW * row - ROW + HIGH, x, TOP + ROW * row - 1)
    around(x, 1, 3, -8)                         # g to √v̂
    around(x, 2, 4, 9)                          # m̂ to m̂ / √v̂
    around(x, 0, 6, -15)                        # weight to new weight
pen.text(10, TOP + ROW * len(ROWS) + 6, f"b is {STEEPNESS[1] / STEEPNESS[0]:.0f} times as steep as a, and no step is "
         f"longer than {RATE}.", size=12)
pen.save("14", TOP + ROW * len(ROWS) + 18, "Each weight has a gradient, a running mean of it and one of its square; "
         "the step is the mean divided by the root of the mean square, times the rate, against the gradient")
