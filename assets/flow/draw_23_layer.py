"""Draws lesson 23's layer: what stands around the rule, and what is kept from call to call.

    python assets/flow/draw_23_layer.py
"""

from pen import along, cell, down, save, text

KEEPS = "#FBE3D2"


def into_the_side(x, top, y, edge):
    """From (x, top) down to y, then left to edge."""
    along(f"M{x} {top} V{y} H{edge}")


text(10, 20, "GatedDeltaNet", bold=True)
text(180, 44, "x: (batch, tokens, d_model)", "middle", 12)
for x, width, name in ((10, 58, "q_proj"), (74, 58, "k_proj"), (138, 58, "v_proj"),
                       (206, 68, "beta_proj\ndecay_proj"), (284, 66, "gate_proj")):
    down(x + width / 2, 50, 68)
    cell(x, 70, width, 28, "" if "\n" in name else name, size=11.5)
    for line, part in enumerate(name.split("\n") if "\n" in name else ()):
        text(x + width / 2, 81 + 13 * line, part, "middle", 11)
for x in (39, 103, 167):
    down(x, 98, 114)
    down(x, 154, 170 if x < 167 else 214)
cell(10, 116, 186, 38, fill=KEEPS)
text(103, 132, "short convolution, silu", "middle", 12)
text(103, 147, "keeps the last inputs", "middle", 11)
cell(10, 172, 122, 28, "to length 1", size=12)
for x in (39, 103):
    down(x, 200, 214)
cell(10, 216, 186, 52, fill=KEEPS)
text(103, 237, "the rule, in chunks", "middle", 12.5, True)
text(103, 256, "keeps the state", "middle", 11)
down(240, 98, 114)
cell(206, 116, 68, 28, "gates", size=12)
into_the_side(240, 144, 242, 198)
text(234, 200, "β", "end", 12)
text(246, 200, "log_decay", "start", 12)
down(103, 268, 286)
cell(10, 288, 186, 30, "RMSNorm, head by head", size=12)
down(103, 318, 334)
cell(10, 336, 186, 30, "times silu of the gate", size=12)
into_the_side(317, 98, 351, 198)
down(103, 366, 382)
cell(10, 384, 186, 28, "o_proj", size=12)
down(103, 412, 430)
text(103, 446, "y: (batch, tokens, d_model)", "middle", 12)
for y, words in ((396, "Orange: kept from"), (411, "call to call, in a"), (426, "StateCache.")):
    text(212, y, words, size=11)
save("23_layer", 458, "The layer: q, k and v are projections of x, go through the short convolution, q and k to length "
     "1, and into the rule; its answer is normalized, gated and projected")
