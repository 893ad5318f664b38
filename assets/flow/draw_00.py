"""Draws lesson 00's toy numbers on their way: a table, the line of memory, and two heads.

    python assets/flow/draw_00.py
"""

from pen import arrow, cell, save, text

COLOURS = ["#BFE3F7", "#F9D9A0", "#FBF6B8", "#EBCBDD"]
words = ["dogs", "chase", "small", "cats"]
heads, features = 2, 6
size = features // heads
x = [[10 * word + feature for feature in range(features)] for word in range(len(words))]
line = [number for row in x for number in row]
word, feature = 2, 3
place = word * features + feature


def table(left, top, rows, marked=None):
    for i, row in enumerate(rows):
        for j, number in enumerate(row):
            cell(left + 32 * j, top + 24 * i, 32, 24, number, COLOURS[number // 10],
                 2.6 if number == marked else 1)


text(10, 20, f"x: {len(words)} words of {features} features", bold=True)
for i, name in enumerate(words):
    text(62, 49 + 24 * i, name, "end")
table(70, 32, x, x[word][feature])
text(272, 97, f"x[{word}, {feature}] = {x[word][feature]}")

arrow(166, 132, 166, 152)
text(176, 147, "row after row")
text(10, 172, f"memory: one line of {len(line)} places", bold=True)
for i, number in enumerate(line):
    cell(12 + 14 * i, 182, 14, 24, "", COLOURS[number // 10])
cell(12 + 14 * place, 182, 14, 24, x[word][feature], COLOURS[word], 2.6, 11)
for i in range(0, len(line), features):
    text(12 + 14 * i + 7, 222, i, "middle", 12)
text(12 + 14 * place + 7, 242, f"place {word}·{features} + {feature}·1 = {place}", "middle")

arrow(166, 252, 166, 272)
text(176, 267, f"same line, strides {size, features, 1}")
text(10, 294, f"{heads} heads, {len(words)} words, {size} features", bold=True)
for head in range(heads):
    left = 70 + 140 * head
    text(left + 48, 314, f"head {head}", "middle")
    table(left, 322, [row[head * size:(head + 1) * size] for row in x], x[word][feature])
for i, name in enumerate(words):
    text(62, 339 + 24 * i, name, "end")
save("00", 430, "A table of four words and six features, its line of memory, and the two heads cut from it")
