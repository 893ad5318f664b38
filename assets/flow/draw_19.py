"""Draws 19.svg: eight weights, their two groups' scales and zeros, their codes, the bytes, and the weights again.

    python assets/flow/draw_19.py
"""

from pen import arrow, cell, save, text

WEIGHTS, GROUP, BITS = [0.9, -0.3, 0.1, 0.5, 0.04, -0.02, 0.08, -0.06], 4, 4
LEFT, CELL, TALL = 12, 42, 28
BLUE, ORANGE = "#DCEBF7", "#FBD9BF"
FILLS = [BLUE] * GROUP + [ORANGE] * GROUP


def signed(value, digits):
    return f"{value:.{digits}f}".replace("-", "−")


def row(y, title, words, width=CELL, fills=FILLS):
    text(LEFT, y - 8, title)
    for i, word in enumerate(words):
        cell(LEFT + width * i, y, width, TALL, word, fills[i * len(fills) // len(words)], size=12)


groups = [WEIGHTS[:GROUP], WEIGHTS[GROUP:]]
scales = [(max(*g, 0) - min(*g, 0)) / (2**BITS - 1) for g in groups]
zeros = [round(-min(*g, 0) / scale) for g, scale in zip(groups, scales)]
codes = [round(w / scales[i // GROUP]) + zeros[i // GROUP] for i, w in enumerate(WEIGHTS)]
packed = [codes[2 * j] | codes[2 * j + 1] << 4 for j in range(len(codes) // 2)]
back = [scales[i // GROUP] * (code - zeros[i // GROUP]) for i, code in enumerate(codes)]

row(34, "eight weights, two groups of four", [signed(w, 2) for w in WEIGHTS])
for i in range(2):
    middle = LEFT + CELL * GROUP * (i + 0.5)
    arrow(middle, 66, middle, 84)
    text(middle, 102, f"scale {scales[i]:.4f}", "middle")
    text(middle, 120, f"zero {zeros[i]}", "middle")
    arrow(middle, 128, middle, 144)
row(172, "codes of 4 bits: round(weight / scale) + zero", codes)
for j in range(4):
    arrow(LEFT + CELL * (2 * j + 1), 204, LEFT + CELL * (2 * j + 1), 222)
row(250, "bytes, in hexadecimal: second code, first code", [f"{byte:02X}" for byte in packed],
    2 * CELL)
arrow(LEFT + 4 * CELL, 282, LEFT + 4 * CELL, 300)
row(328, "weights again: scale · (code − zero)", [signed(w, 3) for w in back])
text(LEFT, 380, f"16 bytes in bfloat16; here {len(packed)} bytes of codes,")
text(LEFT, 398, "and for each group a scale (2 bytes) and a zero (1 byte)")

said = ", ".join(f"{signed(w, 2)} has code {code}" for w, code in zip(WEIGHTS, codes))
save("19", 410, f"Eight weights in two groups become codes of four bits: {said}. Two codes share a byte.")
