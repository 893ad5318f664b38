"""Draws lesson 12's toy on its way: the stream of the word "that" through one block.

    python assets/flow/draw_12.py

The numbers are computed here from the lesson's x0 and its two hand-made sublayers, in plain Python.
"""

from pathlib import Path

X0 = {"cat": [0, 4, 0, 0], "that": [0, 0, 2, 0]}
FEATURES = ["article", "animal", "link", "act"]
INK, STREAM, COPY, PART = "#000000", "#E3E8EE", "#FFE3A3", "#CDE6F5"
FONT = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
WIDE, HIGH = 42, 26
LINE = 92                                       # the x of the stream's line: the middle of its rows


def norm(row):
    size = (sum(n * n for n in row) / len(row)) ** 0.5
    return [n / size for n in row]


def text(x, y, words, anchor="middle", bold=False):
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x}" y="{y}" font-size="12.5" text-anchor="{anchor}" fill="{INK}"{weight}>{words}</text>'


def numbers(row):
    return [f"{n:.2f}".rstrip("0").rstrip(".") for n in row]


def stream(y, row):
    out = []
    for i, number in enumerate(numbers(row)):
        x = LINE + (i - 2) * WIDE
        out.append(f'<rect x="{x}" y="{y}" width="{WIDE}" height="{HIGH}" fill="{STREAM}" '
                   f'stroke="{INK}" stroke-width="0.8"/>')
        out.append(text(x + WIDE / 2, y + 18, number))
    return "".join(out)


def box(y, lines, fill):
    out = [f'<rect x="196" y="{y}" width="156" height="{8 + 17 * len(lines)}" rx="6" fill="{fill}" '
           f'stroke="{INK}" stroke-width="1.2"/>']
    return "".join(out + [text(274, y + 18 + 17 * i, line) for i, line in enumerate(lines)])


def arrow(*points):
    path = " L".join(f"{x} {y}" for x, y in points)
    return f'<path d="M{path}" fill="none" stroke="{INK}" stroke-width="1.5" marker-end="url(#tip)"/>'


def plus(y):
    return (f'<circle cx="{LINE}" cy="{y}" r="11" fill="#FFFFFF" stroke="{INK}" stroke-width="1.6"/>'
            f'<path d="M{LINE - 6} {y} h12 M{LINE} {y - 6} v12" stroke="{INK}" stroke-width="1.6"/>')


def main() -> None:
    copied, that = norm(X0["cat"]), X0["that"]
    heard = [n / 2 for n in copied]
    middle = [a + b for a, b in zip(that, heard)]
    copy = norm(middle)
    excess = max(copy[2] + copy[1] - 2, 0)
    found = [0, 0, 0, 3 * excess]
    after = [a + b for a, b in zip(middle, found)]

    svg = [text(8, 18, "The stream of “that”, from top to bottom", "start", True)]
    svg += [text(LINE + (i - 1.5) * WIDE, 42, name) for i, name in enumerate(FEATURES)]
    svg += [f'<path d="M{LINE} 60 L{LINE} 514" stroke="{INK}" stroke-width="5"/>', stream(48, that),
            text(190, 66, "the word itself", "start")]
    svg += [box(80, ["stream of “cat”: " + ", ".join(numbers(X0["cat"]))], STREAM), arrow((274, 105), (274, 120)),
            box(122, ["norm 1 gives", ", ".join(numbers(copied))], COPY),
            box(182, ["attention (look_back):", "half of it"], PART),
            arrow((274, 164), (274, 180)), arrow((274, 224), (274, 257), (LINE + 14, 257)),
            text(190, 250, "adds " + ", ".join(numbers(heard))), plus(257),
            stream(284, middle), text(190, 302, "the sum so far", "start")]
    svg += [f'<circle cx="{LINE}" cy="331" r="5" fill="{INK}"/>', arrow((LINE, 331), (274, 331), (274, 344)),
            box(346, ["norm 2 gives", ", ".join(numbers(copy))], COPY),
            box(406, ["feed-forward (detect):", f"{copy[1]:.2f} + {copy[2]:.2f} − 2 = {excess:.3f}",
                      f"times 3 is {found[3]:.2f}"], PART),
            arrow((274, 388), (274, 404)), arrow((274, 465), (274, 489), (LINE + 14, 489)),
            text(190, 482, "adds " + ", ".join(numbers(found))), plus(489),
            stream(514, after), text(190, 532, "all three, side by side", "start")]
    high = 552
    (Path(__file__).parent / "12.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 360 {high}" width="360" height="{high}" '
        f'font-family="{FONT}">\n<title>One word through one block</title>\n'
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="9" markerHeight="9" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 L10 5 L0 10 z" fill="{INK}"/></marker></defs>\n'
        f'<rect width="360" height="{high}" fill="#FFFFFF"/>\n' + "\n".join(svg) + "\n</svg>\n", "utf-8")


if __name__ == "__main__":
    main()
