"""Draws lesson 23's five orders on their way into a state, by two rules, every number computed here.

    python assets/flow/draw_23.py
"""

from pen import arrow, cell, save, text

GUESTS = {"Ann": (1, 0, 0), "Bob": (0, 1, 0), "Cleo": (0, 0, 1), "Dan": (0.6, 0.8, 0)}
DRINKS = {"tea": (1, 0), "milk": (0, 1), "cocoa": (1, 1)}           # hot, milky
ORDERS = [("Ann", "tea"), ("Bob", "milk"), ("Cleo", "cocoa"), ("Ann", "milk"), ("Dan", "tea")]
ROWS, FILL = ("Ann", "Bob", "Cleo"), "#FBE3D2"
LEFT, STEP, SIDE = 45, 61, 28
WIDE = 34                           # the cells of the last state: −0.12 is the longest number


def states(corrects: bool) -> list[list[list[float]]]:
    """The state, 3 x 2, after each order; corrects: by the delta rule."""
    state, seen = [[0.0, 0.0] for _ in range(3)], []
    for who, what in ORDERS:
        k, v = GUESTS[who], DRINKS[what]
        told = [sum(k[i] * state[i][j] for i in range(3)) if corrects else 0 for j in range(2)]
        state = [[state[i][j] + k[i] * (v[j] - told[j]) for j in range(2)] for i in range(3)]
        seen.append(state)
    return seen


def said(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".").replace("-", "−") if abs(number) > 1e-9 else "0"


text(10, 20, "Five orders, written into a state of 3 × 2", bold=True)
for n, (who, what) in enumerate(ORDERS):
    middle = LEFT + STEP * n + (WIDE if n == 4 else SIDE)
    text(middle, 58, who, "middle", 12, True)
    text(middle, 73, what, "middle", 12)
    if who not in ROWS:             # a key that is no row of its own
        text(middle, 88, " ".join(map(said, GUESTS[who])), "middle", 10)
    else:
        arrow(middle, 78, middle, 92)
for top, corrects, title in ((96, False, "added: S + kᵀ v"), (232, True, "corrected: S + kᵀ (v − k S)")):
    before = [[0.0, 0.0] for _ in range(3)]
    for n, state in enumerate(states(corrects)):
        width = WIDE if n == 4 else SIDE
        for i in range(3):
            for j in range(2):
                changed = abs(state[i][j] - before[i][j]) > 1e-9
                cell(LEFT + STEP * n + width * j, top + SIDE * i, width, SIDE, said(state[i][j]),
                     FILL if changed else "#FFFFFF", size=10)
        before = state
        for j, feature in enumerate(("hot", "milky")):
            text(LEFT + STEP * n + width * (j + 0.5), top + 3 * SIDE + 13, feature, "middle", 10)
    for i, row in enumerate(ROWS):
        text(10, top + SIDE * i + 18, row, size=12)
    text(10, top - 56 if not corrects else top - 10, title, size=12)
save("23", 338, "The state after each of five orders, by two rules. After Ann's second order the sum says hot and "
     "milky of her, and the corrected state milky alone")
