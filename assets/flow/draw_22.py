"""Draws lesson 22's five latents on two roads to the same scores, every number computed here.

    python assets/flow/draw_22.py
"""

from pen import arrow, cell, save, text

TOKENS = {"my": (1, 0, 2), "cat": (2, 1, 0), "sat": (0, 1, 1), "on": (1, 1, 0), "it": (0, 2, 1)}    # rank 3
W_K = [(1, 0, 1), (0, 2, -1)]                   # a key of 2 numbers
QUERY = (2, 1)                                  # what "it" asks
KEPT, MADE, ASKED = "#D6EAF5", "#FBE3D2", "#D9EFDF"


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def said(number):
    return f"{number}".replace("-", "−")


def row(x, y, numbers, fill, width=28):
    for i, number in enumerate(numbers):
        cell(x + width * i, y, width, 24, said(number), fill)


keys = {name: [dot(line, latent) for line in W_K] for name, latent in TOKENS.items()}
brought = [dot(QUERY, column) for column in zip(*W_K, strict=True)]
scores = [dot(QUERY, key) for key in keys.values()]
assert scores == [dot(brought, latent) for latent in TOKENS.values()]

text(10, 20, "Expanded: make all keys, then ask them", bold=True)
text(90, 42, "latents, kept", "middle", 12)
text(209, 42, "keys, made", "middle", 12)
text(318, 42, "scores", "middle", 12)
for t, (name, latent) in enumerate(TOKENS.items()):
    y = 50 + 24 * t
    text(40, y + 17, name, "end")
    row(48, y, latent, KEPT)
    row(181, y, keys[name], MADE)
    row(302, y, [scores[t]], "#FFFFFF", 32)
text(156, 103, "· W_Kᵀ", "middle", 11)
arrow(136, 110, 176, 110)
text(269, 103, f"q = ({QUERY[0]}, {QUERY[1]})", "middle", 11)
arrow(241, 110, 297, 110)
n, rank, size = len(TOKENS), len(brought), len(QUERY)
text(10, 190, f"{n} · {size} · {rank} = {n * size * rank} products for the keys, {n * size} for the scores", size=12)

text(10, 226, "Absorbed: bring the query to the latents", bold=True)
text(38, 248, "q", "middle", 12)
row(10, 256, QUERY, ASKED)
text(95, 261, "· W_K", "middle", 11)
arrow(70, 268, 120, 268)
text(166, 248, "brought", "middle", 12)
row(124, 256, brought, ASKED)
arrow(166, 284, 166, 306)
text(176, 299, "times each of the five latents", size=11)
for t, name in enumerate(TOKENS):
    text(98 + 34 * t, 320, name, "middle", 11)
row(81, 326, scores, "#FFFFFF", 34)
text(10, 374, f"{size} · {rank} = {size * rank} products for the query, {n} · {rank} = {n * rank} for the scores",
     size=12)
save("22", 388, "Five latents of three numbers each: made into keys and asked by a query, or asked by the query, "
     "brought to their size; both give the scores " + ", ".join(map(str, scores)))
