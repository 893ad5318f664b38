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

text(10, 20, "The text so far: the cat. The draft guesses three words:", bold=True, size=12.5)
count, going = 0, True
for i, (word, q, p, u) in enumerate(zip(DRAFTED, Q, P, U)):
    left, id = 10 + 116 * i, WORDS.index(word)
    chance = min(1, p[id] / q[id])
    kept = u < chance
    going = going and kept
    count += going
    cell(left, 32, 104, 26, word, KEPT if kept else LOST, 1.6)
    for n, words in enumerate((f"draft's q = {q[id]:g}", f"target's p = {p[id]:g}", f"min(1, p / q) = {chance:g}",
                               f"u = {u:.3f}: {'kept' if kept else 'rejected'}")):
        text(left + 52, 76 + 18 * n, words, "middle", 12)
left = [max(0, p - q) for p, q in zip(P[count], Q[count])]
total = sum(left)
arrow(294, 138, 294, 158)
text(10, 154, "In its place: what the draft says too rarely", bold=True, size=12.5)
for n, (word, p, q, more) in enumerate(zip(WORDS, P[count], Q[count], left)):
    x = 70 + 57 * n
    text(x + 27, 178, word, "middle", 12)
    for row, number in enumerate((p, q, more, more / total)):
        cell(x, 184 + 22 * row, 55, 20, f"{number:.2f}", OWN if row == 3 and number else "#FFFFFF", size=12)
for row, words in enumerate(("p", "q", "max(0, p−q)", f"÷ {total:g}")):
    text(66, 198 + 22 * row, words, "end", 11)
below, own = 0.0, None
for word, more in zip(WORDS, left):
    below += more / total
    if U[-1] < below:
        own = word
        break
text(10, 294, f"u = {U[-1]:.3f} in these draws “{own}”. After one pass of the target:", size=12)
arrow(180, 300, 180, 316)
for n, word in enumerate([*DRAFTED[:count], own]):
    cell(60 + 82 * n, 320, 76, 26, word, KEPT if n < count else OWN, 1.6)
save("24", 356, "A draft guesses sat, on, mat; the target keeps sat and on, rejects mat, and draws the from the "
     "residual: three words after one pass")
