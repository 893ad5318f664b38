"""Draws lesson 03's toy numbers on their way: one token meets one question, then all meet all.

    python assets/flow/draw_03.py
"""

from pen import arrow, cell, save, text

TOKENS = ["the", "cat", "sat", "down", "here"]
QUESTIONS = ["who?", "does?", "where?"]
X = [[1, 0, 0, 0], [2, 3, 0, 0], [0, 1, 2, 1], [0, 0, 1, 3], [0, 0, 0, 2]]
W = [[1, 2, -1, 0], [0, 1, 2, -1], [1, 0, 0, 2]]
Y = [[sum(a * b for a, b in zip(x, w)) for w in W] for x in X]
BLUE, AMBER, GREEN = "#D6EAF5", "#F9D9A0", "#D9EFDF"
CAT, WHO = 1, 0


def minus(number):
    return str(number).replace("-", "−")


def row(left, top, numbers, fill, edge=1):
    for j, number in enumerate(numbers):
        cell(left + 30 * j, top, 30, 24, minus(number), fill, edge)


text(10, 20, "One token, one question", bold=True)
products = [a * b for a, b in zip(X[CAT], W[WHO])]
for top, label, numbers, fill in ((30, "cat", X[CAT], BLUE), (62, "× who?", W[WHO], AMBER),
                                  (94, "products", products, "#FFFFFF")):
    text(78, top + 17, label, "end")
    row(86, top, numbers, fill)
arrow(210, 106, 244, 106)
text(212, 98, "sum", size=12)
cell(248, 94, 34, 24, minus(sum(products)), GREEN, 2.4)

text(10, 150, f"{len(X)} tokens, {len(W)} questions, {len(X[0])} features", bold=True)
text(156, 178, "W, (3 questions, 4 features)")
for o, weights in enumerate(W):
    text(148, 203 + 24 * o, QUESTIONS[o], "end")
    row(156, 186 + 24 * o, weights, AMBER if o == WHO else "#FFFFFF", 2 if o == WHO else 1)
arrow(216, 262, 240, 282)
text(60, 282, "x, (5, 4)")
text(252, 282, "y, (5, 3)")
for t, numbers in enumerate(X):
    text(52, 307 + 24 * t, TOKENS[t], "end")
    row(60, 290 + 24 * t, numbers, BLUE if t == CAT else "#FFFFFF", 2 if t == CAT else 1)
    row(252, 290 + 24 * t, Y[t], GREEN if t == CAT else "#FFFFFF")
cell(252, 290 + 24 * CAT, 30, 24, minus(Y[CAT][WHO]), GREEN, 2.6)
arrow(186, 350, 248, 350)
text(217, 343, "x Wᵀ", "middle")
save("03", 424,
     "The row of cat times the row of who? gives products that add up to 8; five tokens times three questions give y")
