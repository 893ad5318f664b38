"""Draws lesson 22's layer on the absorbed road: what one new token is made into, what is kept, and how it is read.

    python assets/flow/draw_22_layer.py
"""

from pen import along, arrow, cell, down, save, text

HEADS, NOPE, ROPE, RANK, VALUE = 128, 128, 64, 512, 128         # DeepSeek-V3's
KEPT, MADE, ASKED = "#D6EAF5", "#FBE3D2", "#D9EFDF"


def box(x, y, width, words, size="", fill="#FFFFFF"):
    """38 high: what is done, and the numbers that come out."""
    cell(x, y, width, 38, fill=fill)
    text(x + width / 2, y + 16, words, "middle", 12)
    text(x + width / 2, y + 31, size, "middle", 11)


text(10, 18, "One token through the layer, absorbed", bold=True)
text(10, 36, f"(numbers of DeepSeek-V3: {HEADS} heads)", size=11)
text(180, 58, "x", "middle", 13)
for x in (90, 275):
    arrow(180 + (8 if x > 180 else -8), 58, x, 70)
cell(10, 72, 160, 26, "q_down, norm, q_up", size=12)
cell(190, 72, 160, 26, "kv_down", size=12)
for x in (50, 132, 222, 306):
    down(x, 98, 112)
box(10, 114, 80, "q", f"{HEADS} · {NOPE}", ASKED)
box(96, 114, 74, "RoPE", f"{HEADS} · {ROPE}", ASKED)
box(190, 114, 66, "RoPE", f"{ROPE}", MADE)
box(262, 114, 88, "RMSNorm", f"{RANK}", MADE)
for x in (222, 306):
    down(x, 152, 178)
down(50, 152, 178)
box(10, 180, 80, "times W_K", f"{HEADS} · {RANK}", ASKED)
text(264, 170, "written", "middle", 11)
for x, width, name, size in ((190, 66, "kᴿ", ROPE), (262, 88, "c", RANK)):
    box(x, 180, width, name, f"tokens · {size}", KEPT)
text(270, 233, f"{RANK + ROPE} a token", size=11)
down(50, 218, 250)
down(132, 152, 250)
down(206, 218, 250)
along("M264 218 V244 H226 V250")
box(10, 252, 246, "scores: brought q · c  +  turned q · kᴿ", f"{HEADS} · tokens")
down(133, 290, 304)
box(10, 306, 246, f"over √({NOPE} + {ROPE}), mask, softmax", f"{HEADS} · tokens")
down(133, 344, 358)
box(10, 360, 246, "weights · c", f"{HEADS} · {RANK}")
along("M340 218 V379 H259")
text(334, 300, "c again,", "end", 11)
text(334, 314, "as values", "end", 11)
down(133, 398, 412)
box(10, 414, 246, "times W_V, each head its own", f"{HEADS} · {VALUE}")
down(133, 452, 466)
cell(10, 468, 246, 26, "o_proj", size=12)
down(133, 494, 508)
text(133, 522, "y", "middle", 13)
save("22_layer", 532, "The layer, absorbed: the query in two parts, one multiplied by W_K, one turned; a latent and a "
     "turned key are written to the cache; scores are the sum of two products; the weights mix the latents, and W_V "
     "comes last")
