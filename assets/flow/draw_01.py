"""Draws lesson 01's toy text on its way: a text, its pre-tokens, the bytes of one, merges, ids.

    python assets/flow/draw_01.py
"""

import sys
from collections import Counter
from pathlib import Path

from pen import arrow, cell, save, text

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from solutions.ex01_tokens import merge_pair  # noqa: E402

TEXT = "the hen and then the other hen"
WATCHED, MERGES = 3, 6                      # the pre-token " then", and how many merges are learned
words = [word if i == 0 else " " + word for i, word in enumerate(TEXT.split())]


def shown(token):
    return token.replace(" ", "␣")


split, merges, seen = [list(word) for word in words], [], [list(words[WATCHED])]
for _ in range(MERGES):
    counts = Counter(pair for word in split for pair in zip(word, word[1:]))
    merges.append(max(counts, key=lambda pair: (counts[pair], pair)))
    split = [merge_pair(word, merges[-1]) for word in split]
    seen.append(split[WATCHED])

text(10, 20, f"a text of {len(TEXT)} bytes", bold=True)
text(10, 42, TEXT)
arrow(180, 52, 180, 72)
text(190, 67, "cut by the pattern")
text(10, 92, f"{len(words)} pre-tokens", bold=True)
left = 10
for i, word in enumerate(words):
    width = 8.2 * len(word) + 10
    cell(left, 102, width, 26, shown(word), "#F9D9A0" if i == WATCHED else "#FFFFFF",
         2.4 if i == WATCHED else 1)
    if i == WATCHED:
        middle = left + width / 2
    left += width + 4
arrow(middle, 130, middle, 152)
text(middle + 10, 146, "its bytes")


def row(top, tokens, label, numbers=None):
    left = 110
    text(10, top + 18, label)
    for i, token in enumerate(tokens):
        width = 44 * len(token)
        cell(left, top, width, 26, shown(token), "#D6EAF5" if len(token) > 1 else "#FFFFFF")
        if numbers:
            text(left + width / 2, top + 42, numbers[i], "middle", 12)
        left += width


row(160, seen[0], f"{len(seen[0])} bytes", [ord(letter) for letter in seen[0]])
top = 212
for rank, (left_token, right_token) in enumerate(merges):
    if seen[rank + 1] != seen[rank]:
        last = seen[rank + 1]
        number = {a + b: 256 + k for k, (a, b) in enumerate(merges)}
        row(top, last, f"merge {rank + 1}: {shown(left_token + right_token)}")
        top += 36
for token, middle in zip(last, (110 + 22 * len(last[0]), 110 + 44 * len(last[0]) + 22 * len(last[1]))):
    arrow(middle, top - 8, middle, top + 14)
    text(middle, top + 30, number.get(token, ord(token[0])), "middle", bold=True)
text(10, top + 30, f"{len(last)} ids", bold=True)
save("01", top + 44, "A text, its seven pre-tokens, the five bytes of one of them, its merges, and two ids")
