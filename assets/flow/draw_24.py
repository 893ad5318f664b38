"""Draws lesson 24's three drafted words on their way through one pass of the target, every number computed here.

    python assets/flow/draw_24.py
"""

from pen import arrow, cell, save, text

WORDS = ["the", "cat", "mat", "sat", "on"]
DRAFTED = ["sat", "on", "mat"]
Q = [(0.1, 0.1, 0.1, 0.5, 0.2), (0.1, 0.2, 0.1, 0.2, 0.4), (0.2, 0.15, 0.5, 0.05, 0.1)]
P = [(0.05, 0.05, 0.1, 0.6, 0.2), (0.3, 0.1, 0.2, 0.1, 0.3), (0.45, 0.25, 0.15, 0.05, 0.1)]
U = (0.556, 0.442, 0.636, 0.480)                # torch.rand(4, dtype=float64) of seed 14
KEPT, LOST, OWN = "#D9EFDF", "#FBE3D2", "#D6EAF5"

text(10, 20, "So far: the cat. The draft guesses:", bold=True, size=12.5)
for n, words in enumerate(("draft's q", "target's p", "min(1, p/q)", "u")):
    text(82, 76 + 18 * n, words, "end", 11)
count, going = 0, True
for i, (word, q, p, u) in enumerate(zip(DRAFTED, Q, P, U)):
    left, id = 92 + 88 * i, WORDS.index(word)
    chance = min(1, p[id] / q[id])
    kept = u < chance
    going = going and kept
    count += going
    cell(left, 32, 80, 26, word, KEPT if kept else LOST, 1.6)
    for n, words in enumerate((f"{q[id]:g}", f"{p[id]:g}", f"{chance:g}", f"{u:.3f}", "kept" if kept else "rejected")):
        text(left + 40, 76 + 18 * n, words, "middle", 12)
left = [max(0, p - q) for p, q in zip(P[count], Q[count])]
total = sum(left)
arrow(308, 154, 308, 178)
text(10, 174, "In its place, from the residual:", bold=True, size=12.5)
for n, (word, p, q, more) in enumerate(zip(WORDS, P[count], Q[count], left)):
    x = 86 + 53 * n
    text(x + 25.5, 196, word, "middle", 12)
    for row, number in enumerate((p, q, more, more / total)):
        cell(x, 202 + 22 * row, 51, 20, f"{number:.2f}", OWN if row == 3 and number else "#FFFFFF", size=12)
for row, words in enumerate(("p", "q", "max(0, p−q)", f"÷ {total:g}")):
    text(82, 216 + 22 * row, words, "end", 11)
below, own = 0.0, None
for word, more in zip(WORDS, left):
    below += more / total
    if U[-1] < below:
        own = word
        break
text(10, 312, f"u = {U[-1]:.3f} draws “{own}”. After one pass:", size=12)
arrow(180, 318, 180, 334)
for n, word in enumerate([*DRAFTED[:count], own]):
    cell(60 + 82 * n, 338, 76, 26, word, KEPT if n < count else OWN, 1.6)
save("24", 374, "A draft guesses sat, on, mat; the target keeps sat and on, rejects mat, and draws the from the "
     "residual: three words after one pass")
