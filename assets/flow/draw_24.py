"""Draws lesson 24's toy numbers on their way: five numbers, three steps, every value computed here.

    python assets/flow/draw_24.py
"""

from math import exp, log1p

from pen import arrow, cell, save, text

X = [-4, -1, 0, 1, 4]
STEPS = {"x": X, "max(x, 0)": [max(x, 0) for x in X], "log(1 + e^−|x|)": [log1p(exp(-abs(x))) for x in X]}
STEPS["softplus(x)"] = [sum(numbers) for numbers in zip(*list(STEPS.values())[1:])]

text(10, 20, "Five numbers on their way", bold=True)
for step, (label, numbers) in enumerate(STEPS.items()):
    top = 34 + 50 * step
    text(108, top + 17, label, "end")
    for i, number in enumerate(numbers):
        words = f"{number:.3f}".rstrip("0").rstrip(".").replace("-", "−")
        cell(116 + 48 * i, top, 48, 24, words, {0: "#D6EAF5", 3: "#D9EFDF"}.get(step, "#FFFFFF"))
for x, words in ((140, ""), (236, "add the two"), (332, "")):
    arrow(x, 160, x, 182)
    text(x + 8, 176, words, size=12)
save("24", 222, "Five numbers from −4 to 4: max(x, 0) and log(1 + e^−|x|) of each add up to its softplus")
