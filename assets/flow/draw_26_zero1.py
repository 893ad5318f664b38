"""Draws lesson 26's ZeRO-1 step: three ranks, section 2's six numbers as gradients, every number computed here.

    python assets/flow/draw_26_zero1.py
"""

from pen import arrow, cell, save, text

SIZE, RATE = 3, 0.1
WIDE, HIGH, LEFT = 98, 28, 64
SUMMED, MOVED = "#D6EAF5", "#D9EFDF"

gradients = [[10**rank * n for n in range(1, 2 * SIZE + 1)] for rank in range(SIZE)]
weights = [float(n) for n in range(2 * SIZE + 1, 4 * SIZE + 1)]
means = [sum(column) / SIZE for column in zip(*gradients)]
moved = [w - RATE * g / abs(g) for w, g in zip(weights, means)]     # Adam's first step: m / √v is the sign


def show(numbers, piece):
    return " ".join(f"{number:g}" for number in numbers[2 * piece:2 * piece + 2])


def label(top, rank):
    text(8, top + HIGH / 2 + 5, f"rank {rank}", size=12)


def passes(y, words):
    """A wide arrow between two rows of boxes, and what is sent there."""
    arrow(LEFT + 1.5 * WIDE, y, LEFT + 1.5 * WIDE, y + 26)
    text(LEFT + 1.5 * WIDE + 12, y + 17, words, size=12, bold=True)


text(8, 20, "One step of ZeRO-1 on three ranks", bold=True, size=12.5)
text(8, 44, "Gradients: whole on each rank, each its own", size=12)
for rank in range(SIZE):
    top = 54 + (HIGH + 4) * rank
    label(top, rank)
    for piece in range(SIZE):
        cell(LEFT + WIDE * piece, top, WIDE - 2, HIGH, show(gradients[rank], piece))
passes(152, "reduce-scatter, ÷ 3")
text(8, 196, "Each rank's own piece: mean gradient, m, v, w", size=12)
for rank in range(SIZE):
    top = 206 + (HIGH + 22) * rank
    label(top, rank)
    cell(LEFT + WIDE * rank, top, WIDE - 2, HIGH, show(means, rank), SUMMED, 1.8)
    text(LEFT + WIDE * (rank + 1) - 2, top + HIGH + 14, f"w {show(weights, rank)} → {show(moved, rank)}", "end", 11)
passes(358, "all-gather")
text(8, 402, "New weights: whole on each rank, all alike", size=12)
for rank in range(SIZE):
    top = 412 + (HIGH + 4) * rank
    label(top, rank)
    for piece in range(SIZE):
        cell(LEFT + WIDE * piece, top, WIDE - 2, HIGH, show(moved, piece), MOVED)
text(8, 526, f"(AdamW's first step at rate {RATE}, without decay: each w", size=12)
text(8, 542, f"moves by {RATE} against the sign of its gradient.)", size=12)
save("26_zero1", 554, "A step of ZeRO-1: three ranks have six gradients each; a reduce-scatter leaves rank 0 the means "
     f"{show(means, 0)}, rank 1 {show(means, 1)}, rank 2 {show(means, 2)}; each moves its two weights; an all-gather "
     "gives all six new weights to all")
