"""Draws lesson 02's toy numbers on their way: ids, rows of a table, vectors, and scores back.

    python assets/flow/draw_02.py
"""

from pen import arrow, cell, save, text

WORDS = ["the", "dog", "bites", "man", "a", "cat"]
TABLE = [[0.0, 0.0, 0.0, 0.9], [0.9, 0.2, 0.3, 0.0], [0.3, 0.1, 0.9, 0.0],
         [0.2, 0.9, 0.3, 0.0], [0.0, 0.0, 0.0, 0.8], [0.8, 0.1, 0.2, 0.0]]
COLOURS = ["#D6EAF5", "#F9D9A0", "#D9EFDF", "#EBCBDD", "#FFFFFF", "#FFFFFF"]
TEXT = ["the", "dog", "bites", "the", "man"]
ids = [WORDS.index(word) for word in TEXT]
scores = [sum(a * b for a, b in zip(TABLE[1], row)) for row in TABLE]


def brief(number):
    return f"{number:.1f}".lstrip("0") if number else "0"


text(8, 20, f"{len(ids)} ids", bold=True)
text(106, 20, f"table ({len(TABLE)}, {len(TABLE[0])})", bold=True)
text(250, 20, f"vectors ({len(ids)}, {len(TABLE[0])})", bold=True)
for v, row in enumerate(TABLE):
    for j, number in enumerate(row):
        cell(110 + 25 * j, 34 + 26 * v, 25, 26, brief(number), COLOURS[v], size=12)
for v in set(range(len(WORDS))) - set(ids):                 # the rows that are not read
    text(105, 51 + 26 * v, WORDS[v], "end", 12)
for p, i in enumerate(ids):
    top = 47 + 26 * p
    text(44, top + 18, TEXT[p], "end", 12)
    cell(48, top, 22, 26, i, COLOURS[i])
    row = 47 + 26 * i + (7 if i in ids[:p] else -4 if i in ids[p + 1:] else 0)     # two arrows at one row
    arrow(71, top + 13, 108, row)
    arrow(211, row, 248, top + 13)
    for j, number in enumerate(TABLE[i]):
        cell(250 + 25 * j, top, 25, 26, brief(number), COLOURS[i], size=12)

text(8, 226, "At the end: one vector, all rows", bold=True)
for j, number in enumerate(TABLE[1]):
    cell(8 + 25 * j, 238, 25, 26, brief(number), COLOURS[1], size=12)
text(120, 256, "· each row of the table =")
for v, (word, score) in enumerate(zip(WORDS, scores)):
    cell(8 + 56 * v, 276, 56, 26, f"{score:.2f}", COLOURS[v])
    text(36 + 56 * v, 318, word, "middle")
save("02", 330, "Five ids fetch five rows of a table of six; one vector is scored against all six rows")
