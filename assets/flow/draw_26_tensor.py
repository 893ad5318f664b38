"""Draws lesson 26's two split layers: f and g between two ranks, forward and backward, every number computed here.

    python assets/flow/draw_26_tensor.py
"""

from pen import arrow, cell, save, text

FIRST = [[1, 0, 1], [0, 1, 0], [1, -1, 0], [0, 0, 2]]   # (4, 3): rank 0 has the first two rows
SECOND = [[1, 2, 0, 1], [0, 1, 1, 1]]                   # (2, 4): rank 0 has the first two columns
X, OURS, SENT = [1, 2, 3], "#FFFFFF", "#D9EFDF"
X0 = {0: 92, 1: 228}                                    # where a rank's column begins
WIDE = 124


def show(numbers):
    return " ".join(str(n).replace("-", "\u2212") for n in numbers)


def both(y, label, numbers, fill=OURS):
    text(8, y + 19, label, size=12)
    for rank in (0, 1):
        cell(X0[rank], y, WIDE, 28, show(numbers[rank]), fill, 1)


def down(y, how=None):
    """From one row to the next: each rank for itself or, between the two, what is sent."""
    for rank in (0, 1):
        arrow(X0[rank] + WIDE / 2, y, X0[rank] + WIDE / 2, y + 22)
        if how:
            arrow(X0[rank] + WIDE / 2, y, X0[1 - rank] + WIDE / 2 + (22 if rank else -22), y + 22)
    if how:
        text(8, y + 15, how, size=12, bold=True)


added = [sum(w * x for w, x in zip(row, X)) for row in FIRST]
h = [max(a, 0) for a in added]
own = {rank: range(2 * rank, 2 * rank + 2) for rank in (0, 1)}
parts = {rank: [sum(row[j] * h[j] for j in own[rank]) for row in SECOND] for rank in own}
y = [a + b for a, b in zip(parts[0], parts[1])]
back = [sum(row[j] for row in SECOND) if added[j] > 0 else 0 for j in range(4)]
grads = {rank: [sum(back[j] * FIRST[j][i] for j in own[rank]) for i in range(3)] for rank in own}
whole = [a + b for a, b in zip(grads[0], grads[1])]

text(8, 20, "Two layers, split between two ranks", bold=True, size=12.5)
for rank in own:
    text(X0[rank] + WIDE / 2, 42, f"rank {rank}", "middle", 12, True)
text(8, 66, "forward", size=12, bold=True)
both(74, "x", {0: X, 1: X})
down(103)
both(126, "h = relu(xAᵀ)", {rank: [h[j] for j in own[rank]] for rank in own})
down(155)
both(178, "part of y", parts)
down(207, "g: summed")
both(230, "y", {0: y, 1: y}, SENT)
text(8, 284, "backward", size=12, bold=True)
both(292, "dy", {0: [1, 1], 1: [1, 1]})
down(321)
both(344, "d(xAᵀ)", {rank: [back[j] for j in own[rank]] for rank in own})
down(373)
both(396, "part of dx", grads)
down(425, "f: summed")
both(448, "dx", {0: whole, 1: whole}, SENT)
text(8, 498, "Green: the same on both ranks, after an all-reduce.", size=12)
save("26_tensor", 510, f"Two layers on two ranks. Forward both have x, each two of four features, each a part of y; g "
     f"sums them to {y[0]} and {y[1]}. Backward each has a part of the gradient of x; f sums them to "
     f"{', '.join(map(str, whole))}")
