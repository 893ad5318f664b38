"""Draws lesson 18's toy tokens on their way to experts and back, every number computed here.

    python assets/flow/draw_18.py
"""

from math import exp

from pen import arrow, cell, save, text

TOKENS = {"for": (2, 0, 0), "x": (1, 0.5, 0), "in": (1.5, 0, 0.5), "3": (0, 2, 0), ":": (0.2, 0, 2)}
ROUTER = [(1, 0, 0), (0, 1, 0), (0, 0, 1), (0.5, 0.5, 0)]       # a row for each expert
FILLS = ["#D6EAF5", "#FBE3D2", "#E4E4E4", "#D9EFDF"]

chosen = []                                     # for each token its experts, the best first, and their weights
for x in TOKENS.values():
    powers = [exp(sum(a * b for a, b in zip(x, row))) for row in ROUTER]
    best = sorted(range(len(ROUTER)), key=lambda n: -powers[n])[:2]
    chosen.append([(n, powers[n] / sum(powers[m] for m in best)) for n in best])

text(10, 20, "Five tokens, two experts each", bold=True)
for t, (token, experts) in enumerate(zip(TOKENS, chosen)):
    left = 14 + 68 * t
    cell(left, 32, 60, 24, token)
    for k, (n, weight) in enumerate(experts):
        cell(left + 30 * k, 56, 30, 22, n, FILLS[n])
        text(left + 15 + 30 * k, 93, f"{weight:.2f}", "middle", 11)
text(10, 116, "sorted by expert, ten rows:", size=12)
arrow(180, 100, 180, 122)
x, slot = 10.0, {}
for n in range(len(ROUTER)):
    visitors = [(t, k) for t, two in enumerate(chosen) for k, (m, _) in enumerate(two) if m == n]
    first = x
    for t, k in visitors:
        cell(x, 128, 32, 24, list(TOKENS)[t], FILLS[n])
        slot[t, k] = x + 16
        x += 32
    width = x - first
    arrow(first + width / 2, 154, first + width / 2, 172)
    cell(first, 174, width, 26, f"expert {n}" if width > 50 else n, FILLS[n], 1.6)
    arrow(first + width / 2, 202, first + width / 2, 220)
    x += 6
text(180, 240, "sorted back, weighted, and added up for each token:", "middle", 12)
for t, (token, experts) in enumerate(zip(TOKENS, chosen)):
    left = 14 + 68 * t
    cell(left, 252, 60, 24, token)
    for k, (n, weight) in enumerate(experts):
        text(left + 30, 294 + 17 * k, f"{'+ ' * (k > 0)}{weight:.2f} E{'₀₁₂₃'[n]}", "middle", 11)
save("18", 324, "Five tokens choose two of four experts each; their ten choices are sorted by expert, computed, "
     "sorted back and added up with the router's weights")
