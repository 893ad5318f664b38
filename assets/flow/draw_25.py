"""Draws lesson 25's three texts, their block tables and the six blocks, every number counted here.

    python assets/flow/draw_25.py
"""

from pen import cell, save, text

SIZE, BLOCKS = 4, 6
FILLS = ["#D6EAF5", "#FBE3D2", "#D9EFDF", "#F3E3F1", "#FFFFFF", "#FFFFFF"]
PROMPT = "the dog bites the man and".split()

pool: list[list[str]] = [[] for _ in range(BLOCKS)]
counts, tables, texts = [0] * BLOCKS, {}, {}


def take() -> int:
    block = counts.index(0)
    counts[block] = 1
    return block


def put(name: str, word: str) -> None:
    table = tables[name]
    if len(texts[name]) % SIZE == 0:
        table.append(take())
    elif counts[table[-1]] > 1:                     # copy on write
        old, table[-1] = table[-1], take()
        counts[old] -= 1
        pool[table[-1]] = list(pool[old])
    pool[table[-1]].append(word)
    texts[name].append(word)


def begin(name: str, like: str | None = None, blocks: int = BLOCKS) -> None:
    tables[name] = tables[like][:blocks] if like else []
    texts[name] = texts[like][:SIZE * blocks] if like else []
    for block in tables[name]:
        counts[block] += 1


begin("A")
for word in PROMPT:
    put("A", word)
begin("B", "A")
put("A", "runs")
put("B", "barks")
begin("C", "A", 1)
put("C", "cat")

text(10, 20, "Three texts and their block tables", bold=True)
for n, (name, table) in enumerate(tables.items()):
    top = 32 + 32 * n
    text(10, top + 17, name, bold=True)
    for entry, block in enumerate(table):
        cell(28 + 32 * entry, top, 32, 24, block, FILLS[block], 1.6)
    text(102, top + 17, " ".join(texts[name]), size=12)
last = len(texts["A"]) - 1
block, place = tables["A"][last // SIZE], last % SIZE
text(10, 148, f"A's {texts['A'][last]}: position {last}, so entry {last // SIZE}: block {block}, place {place}",
     size=12)
text(10, 178, "The six blocks", bold=True)
top = 182
for where in range(SIZE):
    text(56 + 56 * where, top + 16, f"place {where}", "middle", 11)
for number, words in enumerate(pool):
    y = top + 24 + 27 * number
    text(10, y + 17, number, bold=True)
    for where in range(SIZE):
        cell(28 + 56 * where, y, 56, 24, words[where] if where < len(words) else "", FILLS[number],
             2.6 if (number, where) == (block, place) else 1, size=12)
    text(260, y + 17, f"held by {counts[number]}" if counts[number] else "free", size=12)
save("25", top + 24 + 27 * BLOCKS + 8, "Texts A, B and C share block 0; A's second block is a copy of B's, "
     "made before A wrote runs; six blocks of four places, two of them free")
