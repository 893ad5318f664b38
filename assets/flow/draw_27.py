"""Draws lesson 27's law of small numbers: twelve losses, and three that cost the same, every number computed here.

    python assets/flow/draw_27.py
"""

from pen import cell, save, text

E, A, B, ALPHA, BETA = 1, 8, 16, 0.5, 0.5
SIZES, TOKENS, BUDGET = (4, 16, 64), (16, 64, 256, 1024), 1024      # the budget: n · d
PARTS = (("E", "#E3E8EE"), ("A/√n", "#D6EAF5"), ("B/√d", "#FBE3D2"))
SAME = "#FFF0C2"


def terms(n, d):
    return E, A / n**ALPHA, B / d**BETA


text(10, 20, "Losses for n parameters, d tokens", bold=True, size=12.5)
for column, d in enumerate(TOKENS):
    text(127 + 64 * column, 44, f"d = {d:,}", "middle", 12)
for row, n in enumerate(SIZES):
    text(10, 70 + 32 * row, f"n = {n}", size=12)
    for column, d in enumerate(TOKENS):
        same = n * d == BUDGET
        cell(97 + 64 * column, 52 + 32 * row, 60, 28, f"{sum(terms(n, d)):g}", SAME if same else "#FFFFFF",
             1.8 if same else 1)
text(10, 172, f"Yellow: n · d = {BUDGET:,}, so the same cost.", size=12)
text(10, 200, "What each of these three is made of", bold=True, size=12.5)
unit = 38
for row, n in enumerate(SIZES):
    d, x = BUDGET // n, 82.0
    text(10, 228 + 38 * row, f"{n} · {d}", size=12)
    for (_, fill), value in zip(PARTS, terms(n, d)):
        cell(x, 212 + 38 * row, unit * value, 26, f"{value:g}", fill)
        x += unit * value
    text(x + 8, 229 + 38 * row, f"= {sum(terms(n, d)):g}", size=12)
for n, (name, fill) in enumerate(PARTS):
    cell(82 + 88 * n, 328, 18, 14, "", fill)
    text(106 + 88 * n, 340, name, size=12)
save("27", 356, "Twelve losses of a law, three sizes by four numbers of tokens; of the three of one cost, 6, 5 and 6, "
     "the one in the middle is lowest: its model's part and its tokens' part are equal, 2 and 2")
