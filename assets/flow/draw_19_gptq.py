"""Draws 19_gptq.svg: two weights rounded apart, and as GPTQ rounds them, where the second makes up for the first.

    python assets/flow/draw_19_gptq.py
"""

import math

from pen import arrow, cell, save, text

WEIGHTS, INPUTS = [0.4, 0.4], [[1.0, 1.0], [2.0, 2.1], [-1.0, -0.9]]
BLUE, ORANGE, GREEN, WHITE = "#DCEBF7", "#FBD9BF", "#D9EFDF", "#FFFFFF"
SIDE, TALL, LEFT, RIGHT = 56, 28, 24, 224


def signed(value):
    return f"{value:g}".replace("-", "−")


def off(codes):
    """How far the outputs of all tokens are from those of the weights."""
    return math.hypot(*(dot(row, codes) - dot(row, WEIGHTS) for row in INPUTS))


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def pair(x, y, words, fills):
    for i, (word, fill) in enumerate(zip(words, fills)):
        cell(x + SIDE * i, y, SIDE, TALL, word, fill)


first, second = zip(*INPUTS)
apart = [round(w) for w in WEIGHTS]
error = WEIGHTS[0] - apart[0]
moved = WEIGHTS[1] + error * dot(first, second) / dot(second, second)
gptq = [apart[0], round(moved)]

text(180, 20, "three tokens, two inputs nearly equal", "middle", bold=True)
for i, row in enumerate(INPUTS):
    pair(124, 30 + TALL * i, map(signed, row), [WHITE] * 2)
text(180, 142, "the weights of one output", "middle", bold=True)
pair(124, 152, map(signed, WEIGHTS), [BLUE] * 2)
arrow(140, 184, 90, 216)
arrow(220, 184, 270, 216)
text(LEFT + SIDE, 236, "round both", "middle", bold=True)
text(RIGHT + SIDE, 236, "GPTQ", "middle", bold=True)
text(RIGHT + SIDE, 262, "round the first", "middle")
pair(RIGHT, 270, [apart[0], signed(WEIGHTS[1])], [ORANGE, BLUE])
arrow(RIGHT + SIDE, 302, RIGHT + SIDE, 318)
text(RIGHT + SIDE, 336, f"its error {error:g} moves", "middle")
text(RIGHT + SIDE, 353, "the second", "middle")
pair(RIGHT, 361, [apart[0], f"{moved:.2f}"], [ORANGE, GREEN])
arrow(RIGHT + SIDE, 393, RIGHT + SIDE, 409)
text(RIGHT + SIDE, 427, "round that", "middle")
arrow(LEFT + SIDE, 246, LEFT + SIDE, 430)
for x, codes in ((LEFT, apart), (RIGHT, gptq)):
    pair(x, 436, codes, [ORANGE] * 2)
    text(x + SIDE, 486, f"outputs off by {off(codes):.2f}", "middle")

save("19_gptq", 500, f"Rounded apart, two weights become {apart[0]} and {apart[1]}, and the outputs are off by "
     f"{off(apart):.2f}. GPTQ rounds the first to {gptq[0]}, moves the second to {moved:.2f} and rounds that to "
     f"{gptq[1]}: off by {off(gptq):.2f}.")
