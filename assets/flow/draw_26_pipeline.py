"""Draws lesson 26's smallest pipeline: two stages, three micro-batches, 1F1B, every time computed here.

    python assets/flow/draw_26_pipeline.py
"""

from pen import cell, save, text

STAGES, MICRO = 2, 3
LEFT, UNIT = 62, 36
FILLS = {"F": "#D6EAF5", "B": "#F5C9A8"}

plans = [["F0", "F1", "B0", "F2", "B1", "B2"], ["F0", "B0", "F1", "B1", "F2", "B2"]]
ends, now = {}, [0] * STAGES        # (stage, what): when it is done
while any(plans):
    for stage in range(STAGES):
        if not plans[stage]:
            continue
        what = plans[stage][0]
        other = 1 - stage
        needs = (other, what) if (what[0] == "F") == (stage == 1) else (stage, f"F{what[1]}") if stage == 1 else None
        if needs is None or needs in ends:
            now[stage] = ends[stage, what] = max(now[stage], ends.get(needs, 0)) + 1
            plans[stage].pop(0)
length = max(ends.values())
assert length == 2 * MICRO + 2 * (STAGES - 1)

text(8, 20, "1F1B: two stages, three micro-batches", bold=True, size=12.5)
for unit in range(length):
    text(LEFT + UNIT * unit + UNIT / 2, 42, unit + 1, "middle", 12)
text(8, 42, "time", size=12)
for stage in range(STAGES):
    y = 50 + 40 * stage
    text(8, y + 22, f"stage {stage}", size=12)
    cell(LEFT, y, UNIT * length, 34, fill="#FFFFFF")
    for (where, what), end in ends.items():
        if where == stage:
            cell(LEFT + UNIT * (end - 1), y, UNIT, 34, what, FILLS[what[0]])
text(8, 148, "F: forward, B: backward, white: the stage waits.", size=12)
text(8, 166, "Stage 0: F0 is its warm-up; pairs F1 B0, F2 B1; then B2.", size=12)
text(8, 184, "Stage 1: no warm-up; pairs F0 B0, F1 B1, F2 B2.", size=12)
save("26_pipeline", 196, "Two stages over eight units of time. Stage 0: F0, F1, waits, B0, F2, B1, waits, B2. Stage 1: "
     "waits, F0, B0, F1, B1, F2, B2, waits")
