"""Draws 21.svg: four answers to one question, their rewards, their advantages, and which becomes likelier.

    python assets/flow/draw_21.py
"""

from pathlib import Path
from statistics import mean, stdev

FONT = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
BLUE, ORANGE, GREY, INK = "#DCEBF7", "#FBD9BF", "#E6E6E6", "#000000"
ANSWERS, TARGET = ["1 1 3 4", "3 1 4 1", "4 3 1 1", "1 3 1 4"], "1 1 3 4"
LEFT, TOP, HIGH, HEIGHT = 10, 66, 46, 330

rewards = [float(answer == TARGET) for answer in ANSWERS]
centre, spread = mean(rewards), stdev(rewards)
advantages = [(reward - centre) / spread for reward in rewards]


def text(x, y, words, size=13, anchor="middle", weight="normal") -> str:
    return f'<text x="{x:.1f}" y="{y}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}">{words}</text>'


def box(x, y, width, words, fill) -> str:
    return (f'<rect x="{x}" y="{y}" width="{width}" height="32" stroke="{INK}" fill="{fill}"/>'
            + text(x + width / 2, y + 21, words, 14))


def arrow(x1, y1, x2, y2, width=1.6) -> str:
    return (f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{INK}" stroke-width="{width}" '
            'marker-end="url(#tip)"/>')


def signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


parts = [text(LEFT, 20, "question 3 1 4 1", 14, "start", "bold"),
         text(LEFT + 42, 52, "answer"), text(LEFT + 146, 52, "reward r"), text(LEFT + 234, 52, "A"),
         text(LEFT + 308, 52, "log π")]
for number, (answer, reward, advantage) in enumerate(zip(ANSWERS, rewards, advantages, strict=True)):
    y = TOP + HIGH * number
    fill = BLUE if reward else ORANGE
    parts += [box(LEFT, y, 84, answer, GREY), arrow(LEFT + 86, y + 16, LEFT + 116, y + 16),
              box(LEFT + 120, y, 52, f"{reward:.0f}", fill), arrow(LEFT + 174, y + 16, LEFT + 202, y + 16),
              box(LEFT + 206, y, 56, signed(advantage), fill)]
    middle, reach = y + 16, 10 * abs(advantage)
    up = -1 if advantage > 0 else 1
    parts.append(arrow(LEFT + 308, middle - up * reach, LEFT + 308, middle + up * reach, 1 + 0.7 * abs(advantage)))
    parts.append(text(LEFT + 338, middle + 5, "up" if advantage > 0 else "down", 12))
y = TOP + HIGH * len(ANSWERS) + 16
said = (f"{centre:.2f}", f"{spread:.1f}")
parts += [text(LEFT, y, f"mean of the group {said[0]}, deviation {said[1]}", 13, "start"),
          text(LEFT, y + 24, f"A = (r − {said[0]}) / {said[1]}", 14, "start", "bold"),
          text(LEFT, y + 48, f"{' '.join(signed(a) for a in advantages)}: together 0", 13, "start")]
(Path(__file__).parent / "21.svg").write_text(
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 372 {HEIGHT}" width="372" height="{HEIGHT}" '
    f'font-family="{FONT}" fill="{INK}"><defs><marker id="tip" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" '
    f'markerHeight="7" orient="auto" markerUnits="userSpaceOnUse"><path d="M0 0 L8 4 L0 8 Z" fill="{INK}"/></marker>'
    f'</defs><rect width="372" height="{HEIGHT}" fill="#FFFFFF"/>' + "\n".join(parts) + "</svg>\n", "utf-8")
