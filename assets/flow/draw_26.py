"""Draws lesson 26's reduce-scatter: three ranks, six numbers on each, two rounds, every number computed here.

    python assets/flow/draw_26.py
"""

from pen import cell, save, text

SIZE = 3
FILLS = {0: "#FFFFFF", 1: "#D6EAF5", 2: "#D9EFDF"}      # by how many ranks' numbers were added
pieces = [[[10**rank * (2 * piece + n) for n in (1, 2)] for piece in range(SIZE)] for rank in range(SIZE)]
added = [[0] * SIZE for _ in range(SIZE)]

text(10, 20, "Three ranks, six numbers each, three pieces", bold=True, size=12.5)
TOPS, HIGH = (52, 188, 372), (28, 44, 44)               # from round 1 on a second line says where a piece came from
for round_ in range(SIZE):
    top, high = TOPS[round_], HIGH[round_]
    if round_:
        sent = [(pieces[rank][(rank - round_) % SIZE], added[rank][(rank - round_) % SIZE]) for rank in range(SIZE)]
        for rank in range(SIZE):
            mine = (rank - round_ - 1) % SIZE
            numbers, before = sent[rank - 1]
            pieces[rank][mine] = [a + b for a, b in zip(pieces[rank][mine], numbers)]
            added[rank][mine] = before + 1
        text(10, top - 12, f"Round {round_}: each sends a piece to the next rank", bold=True, size=12)
    else:
        for piece in range(SIZE):
            text(112 + 98 * piece, top - 6, f"piece {piece}", "middle", 12)
    for rank in range(SIZE):
        y = top + (high + 4) * rank
        text(10, y + high / 2 + 5, f"rank {rank}", size=12)
        for piece in range(SIZE):
            new = round_ and added[rank][piece] == round_
            cell(64 + 98 * piece, y, 96, high - 14 if new else high, " ".join(map(str, pieces[rank][piece])),
                 FILLS[added[rank][piece]], 1.8 if new else 1)
            if new:
                text(112 + 98 * piece, y + high - 2, f"+ from rank {(rank - 1) % SIZE}", "middle", 11)
text(10, 536, "Blue: the sum of two ranks. Green: of all three.", size=12)
save("26", 550, "A reduce-scatter among three ranks: after two rounds rank 0 has the sum of piece 0, 111 and 222, rank "
     "1 that of piece 1, 333 and 444, and rank 2 that of piece 2, 555 and 666")
