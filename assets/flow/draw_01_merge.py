"""Draws one merge of lesson 01's toy text as the trainer does it: the words it visits, and the counts that change.

    python assets/flow/draw_01_merge.py
"""

import sys
from collections import Counter
from pathlib import Path

from pen import arrow, cell, save, text

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from solutions.ex01_tokens import merge_pair  # noqa: E402

TEXT = "the hen and then the other hen"
BEFORE, PAIR = ("h", "e"), ("t", "he")      # the merge that was made, and the one that is drawn
VISITED, UNTOUCHED, GONE, NEW = "#F9D9A0", "#EEEEEE", "#F9D9A0", "#D6EAF5"
LETTER, LINE = 17, 30


def counts(words):
    return Counter(pair for word, tokens in words.items()
                   for pair in zip(tokens, tokens[1:]) for _ in range(often[word]))


def shown(token):
    return token.replace(" ", "␣")


def row(left, y, tokens, fill):
    for token in tokens:
        width = LETTER * len(token)
        cell(left, y, width, 22, shown(token), NEW if token == "".join(PAIR) else fill)
        left += width


often = Counter(word if i == 0 else " " + word for i, word in enumerate(TEXT.split()))
before = {word: merge_pair(list(word), BEFORE) for word in often}
after = {word: merge_pair(tokens, PAIR) for word, tokens in before.items()}
there = {word for word in before if before[word] != after[word]}

text(10, 20, f"the pair {shown(PAIR[0])}, {shown(PAIR[1])} is joined", bold=True)
text(10, 42, "times")
text(52, 42, "word before")
text(222, 42, "and after")
top = 50
for word in sorted(before, key=lambda word: word not in there):
    text(22, top + 16, often[word])
    row(52, top, before[word], VISITED if word in there else UNTOUCHED)
    if word in there:
        arrow(180, top + 11, 214, top + 11)
        row(222, top, after[word], "#FFFFFF")
    else:
        text(222, top + 16, "not visited")
    top += LINE
top += 20
text(10, top, "what changes in the counts", bold=True)
text(170, top + 22, "before", "middle")
text(250, top + 22, "after", "middle")
top += 28
old, new = counts(before), counts(after)
changed = sorted((pair for pair in old | new if old[pair] != new[pair]), key=lambda pair: (not old[pair], -old[pair]))
for pair in changed:
    text(20, top + 16, f"{shown(pair[0])}, {shown(pair[1])}")
    cell(150, top, 40, 22, old[pair] or "–", GONE if old[pair] and not new[pair] else "#FFFFFF")
    arrow(194, top + 11, 226, top + 11)
    cell(230, top, 40, 22, new[pair] or "–", "#FFFFFF" if old[pair] else NEW)
    text(280, top + 16, "new" if not old[pair] else "gone" if not new[pair] else "")
    top += 26
same = len([pair for pair in old if old[pair] == new[pair]])
text(20, top + 16, f"{same} other pairs stay as they are")
save("01_merge", top + 30,
     f"One merge: {len(there)} of {len(often)} words are visited, and {len(changed)} counts change")
