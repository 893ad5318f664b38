"""Draws lesson 20's layer: three numbers through a frozen matrix, and beside it through two thin ones.

    python assets/flow/draw_20.py
"""

import pen

BLUE, AMBER, GREEN, WHITE = "#D6EAF5", "#F9D9A0", "#D9EFDF", "#FFFFFF"
X, W, A, B, SCALE = [2, 1, 3], [[1, 0, 2], [0, 1, -1]], [1, -1, 1], [0.5, -0.25], 2
thin = sum(a * x for a, x in zip(A, X, strict=True))
slow = [sum(w * x for w, x in zip(row, X, strict=True)) for row in W]
added = [SCALE * b * thin for b in B]
out = [s + a for s, a in zip(slow, added, strict=True)]
merged = [[w + SCALE * b * a for w, a in zip(row, A, strict=True)] for row, b in zip(W, B, strict=True)]
SIDE, LEFT, RIGHT = 44, 20, 214


def number(value: float) -> str:
    return f"{value:g}".replace("-", "−")


def row(x, y, numbers, fill):
    for place, value in enumerate(numbers):
        pen.cell(x + SIDE * place, y, SIDE, 28, number(value), fill)


pen.text(10, 20, "One token x through a LoRA layer of rank 1", bold=True)
row(114, 34, X, WHITE)
pen.text(104, 53, "x", "end")
pen.arrow(150, 62, 90, 92)
pen.arrow(210, 62, 276, 92)
pen.text(LEFT, 88, "W: frozen", bold=True)
row(LEFT, 98, W[0], BLUE)
row(LEFT, 126, W[1], BLUE)
pen.text(344, 88, "A: learns", "end", bold=True)
row(RIGHT, 98, A, AMBER)
pen.arrow(280, 126, 280, 150)
pen.text(252, 171, "x Aᵀ =", "end")
pen.cell(280 - SIDE / 2, 152, SIDE, 28, number(thin), WHITE)
pen.text(250, 240, "B: learns", "end", bold=True)
for place, value in enumerate(B):
    pen.cell(280 - SIDE / 2, 220 + 28 * place, SIDE, 28, number(value), AMBER)
pen.arrow(280, 180, 280, 216)
pen.arrow(86, 154, 86, 304)
pen.arrow(280, 276, 280, 304)
pen.text(LEFT, 300, "x Wᵀ", bold=True)
row(LEFT + 22, 308, slow, BLUE)
pen.text(168, 327, "+", "middle", 16)
pen.text(270, 300, f"{SCALE} · x Aᵀ Bᵀ", "end", bold=True)
row(RIGHT + SIDE / 2, 308, added, AMBER)
pen.arrow(86, 336, 150, 362)
pen.arrow(280, 336, 214, 362)
row(136, 366, out, GREEN)
pen.text(126, 385, "y", "end")
pen.text(10, 426, "Merged: the same in one matrix, W + 2 · B A", bold=True)
row(114, 436, merged[0], GREEN)
row(114, 464, merged[1], GREEN)
terms = " + ".join(f"{number(w)} · {x}" for w, x in zip(merged[0], X, strict=True))
pen.text(10, 512, f"{terms} = {number(out[0])}, the first number of y.", size=12)
pen.save("20", 524, "A token goes through a frozen matrix W and, beside it, through two thin matrices A and B; "
         "the two results are added, and can be merged into one matrix")
