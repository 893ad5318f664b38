"""Draws the map of the model: one SVG per chapter, with the chapter's parts lit.

    python assets/map/draw_map.py [CHAPTER …]

The map is one list of parts, each with the chapter that builds it. Every chapter NN gets a picture,
NN.svg; one that has no part here lights what it changes, or else the parts that it builds on. Text runs in at
the upper left, down and through the blocks along the residual stream, and out at the upper right as next-token
probabilities.
"""

import sys
import textwrap
from pathlib import Path
from xml.sax.saxutils import escape

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from grader.course import chapters  # noqa: E402

WIDTH, HEIGHT = 728, 524

# Pale is for where you are not. Amber with a black edge is for where you are: the edge, the
# bold letters and the pin say it without the colour.
INK, AMBER, PALE_INK, PALE_EDGE, PALE_WIRE = "#000000", "#FFB800", "#56616E", "#C3CCD6", "#A9B5C1"
FILLS = {"model": "#F3F6F9", "block": "#E9EEF4", "inside": "#F6F8FB", "part": "#FFFFFF"}
FONT = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"

STREAM = 386                                    # the height of the residual stream
LEFT, RIGHT = 70, 651                           # the middles of the outer columns
ATTENTION, FEED_FORWARD = 264, 479              # the middles of the two sublayers
PLUS_1, PLUS_2 = 394, 561                       # where each is added to the stream

# Frames and parts: (chapters, label, x, y, width, height), from the back to the front.
FRAMES = [
    ("inside", "09", "attention", 152, 106, 226, 212),
    ("inside", "08", "feed-forward", 407, 194, 144, 124),
]
PARTS = [
    ("01", "tokens", 15, 163, 110, 36),
    ("02", "embed", 15, 234, 110, 36),
    ("06", "positions", 15, 294, 110, 36),
    ("10", "grouped queries", 162, 186, 206, 34),
    ("05", "softmax", 162, 142, 110, 34),
    ("03", "Linear", 282, 142, 86, 34),
    ("07", "RoPE", 162, 230, 86, 34),
    ("11", "KV cache", 258, 230, 110, 34),
    ("03", "Linear", 162, 274, 206, 34),
    ("03", "Linear", 422, 232, 114, 34),
    ("03", "Linear", 422, 274, 114, 34),
    ("04", "norm", ATTENTION - 40, 336, 80, 32),
    ("04", "norm", FEED_FORWARD - 40, 336, 80, 32),
    ("04", "norm", RIGHT - 55, 326, 110, 34),
    ("02", "unembed", RIGHT - 55, 272, 110, 34),
    ("05", "softmax", RIGHT - 55, 204, 110, 36),
    ("15", "generation", 285, 46, 150, 34),
    ("16", "pretrained weights", 54, 434, 216, 34),
    ("14", "training", 420, 434, 130, 34),
    ("17", "flash attention", 15, 482, 158, 34),
    ("18", "experts", 189, 482, 94, 34),
    ("19", "quantization", 297, 482, 134, 34),
    ("20", "fine-tuning", 445, 482, 122, 34),
    ("21", "preferences", 581, 482, 140, 34),
]
# What a later chapter puts something else in place of, or works on: lit with it, without a pin.
CHANGES = {"17": {"09"}, "18": {"08"}, "19": {"03"}, "20": {"03", "14"}, "21": {"14", "15"},
           "23": {"09", "11"}, "25": {"11", "15"}, "26": {"13", "14"}, "27": {"14"}}
# Wires: (chapters that light them, beside 00 which lights all, points, arrow at the end).
WIRES = [
    ("01", [(LEFT, 138), (LEFT, 163)], True),
    ("", [(LEFT, 199), (LEFT, 234)], True),
    ("", [(LEFT, 270), (LEFT, 294)], True),
    ("", [(LEFT, 330), (LEFT, STREAM), (142, STREAM)], False),
    ("12", [(142, STREAM), (574, STREAM)], False),
    ("", [(574, STREAM), (RIGHT, STREAM), (RIGHT, 360)], True),
    ("12", [(ATTENTION, STREAM), (ATTENTION, 368)], False),
    ("12", [(ATTENTION, 336), (ATTENTION, 318)], True),
    ("12", [(378, 159), (PLUS_1, 159), (PLUS_1, STREAM - 11)], True),
    ("12", [(FEED_FORWARD, STREAM), (FEED_FORWARD, 368)], False),
    ("12", [(FEED_FORWARD, 336), (FEED_FORWARD, 318)], True),
    ("12", [(551, 256), (PLUS_2, 256), (PLUS_2, STREAM - 11)], True),
    ("", [(205, 274), (205, 264)], False),
    ("", [(313, 274), (313, 264)], False),
    ("", [(248, 247), (258, 247)], False),
    ("", [(205, 230), (205, 220)], False),
    ("", [(313, 230), (313, 220)], False),
    ("", [(217, 186), (217, 176)], False),
    ("", [(272, 159), (282, 159)], False),
    ("", [(FEED_FORWARD, 274), (FEED_FORWARD, 266)], False),
    ("", [(RIGHT, 326), (RIGHT, 306)], True),
    ("", [(RIGHT, 272), (RIGHT, 240)], True),
    ("", [(RIGHT, 204), (RIGHT, 180)], True),
    ("15", [(RIGHT, 92), (RIGHT, 63), (435, 63)], False),
    ("15", [(285, 63), (LEFT, 63), (LEFT, 92)], True),
    ("14", [(706, 222), (720, 222), (720, 451), (550, 451)], True),
    ("14", [(485, 434), (485, 417)], True),
    ("16", [(162, 434), (162, 417)], True),
]
MODEL = [(5, 417), (5, 216), (136, 216), (136, 86), (588, 86), (588, 256), (712, 256), (712, 417)]
BLOCK = (143, 98, 430, 304)
# The parts' chapters, and those that the code below draws: all wires, and the whole model.
ON_THE_MAP = {"00", "13", *(part[0] for part in PARTS + WIRES), *(frame[1] for frame in FRAMES)}


def text(x, y, words, size=20, color=PALE_INK, bold=False, anchor="middle"):
    weight = ' font-weight="700"' if bold else ""
    return (f'<text x="{x}" y="{y}" font-size="{size}" fill="{color}" text-anchor="{anchor}"'
            f'{weight}>{escape(words)}</text>')


def rectangle(x, y, width, height, fill, lit, radius=8, edge=PALE_EDGE):
    stroke = f'stroke="{INK}" stroke-width="3.5"' if lit else f'stroke="{edge}" stroke-width="1.5"'
    return (f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}" '
            f'fill="{AMBER if lit else fill}" {stroke}/>')


def part(label, x, y, width, height, lit, pinned):
    color = INK if lit else PALE_INK
    middle = x + width / 2 + (5 if pinned else 0)
    return (rectangle(x, y, width, height, FILLS["part"], lit)
            + text(middle, y + height / 2 + 7, label, color=color, bold=lit)
            + (pin(x, y + height / 2 + 12) if pinned else ""))


def wire(points, arrow, lit):
    """A line with rounded corners, and a head at its end; lit, amber with a black edge."""
    (x1, y1), (x2, y2) = points[-2:]
    length = abs(x2 - x1) + abs(y2 - y1)
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    size = 12 if lit else 9
    end = (x2 - dx * size * 0.8, y2 - dy * size * 0.8) if arrow else (x2, y2)
    line = path([*points[:-1], end], radius=9)
    tip = (f"M{x2:g} {y2:g}L{x2 - dx * size - dy * size * .6:g} {y2 - dy * size + dx * size * .6:g}"
           f"L{x2 - dx * size + dy * size * .6:g} {y2 - dy * size - dx * size * .6:g}Z")
    if not lit:
        head = f'<path d="{tip}" fill="{PALE_WIRE}"/>' if arrow else ""
        return f'<path d="{line}" fill="none" stroke="{PALE_WIRE}" stroke-width="2.5"/>{head}'
    head = f'<path d="{tip}" fill="{INK}" stroke="{INK}" stroke-width="2"/>' if arrow else ""
    return (f'<path d="{line}" fill="none" stroke="{INK}" stroke-width="8"/>{head}'
            f'<path d="{line}" fill="none" stroke="{AMBER}" stroke-width="3.5"/>')


def path(points, radius=0.0, closed=False):
    """An SVG path through right-angled corners, each rounded."""
    points = [points[-1], *points, points[0]] if closed else points
    out = "" if closed else f"M{points[0][0]:g} {points[0][1]:g}"
    for (ax, ay), (bx, by), (cx, cy) in zip(points, points[1:], points[2:]):
        before, after = abs(ax - bx) + abs(ay - by), abs(cx - bx) + abs(cy - by)
        r = min(radius, before / 2, after / 2)
        into = (bx + (ax - bx) * r / before, by + (ay - by) * r / before)
        away = (bx + (cx - bx) * r / after, by + (cy - by) * r / after)
        out += (f"{'L' if out else 'M'}{into[0]:g} {into[1]:g}"
                f"Q{bx:g} {by:g} {away[0]:g} {away[1]:g}")
    return out + ("Z" if closed else f"L{points[-1][0]:g} {points[-1][1]:g}")


def plus(x, lit):
    edge, fill = (INK, AMBER) if lit else (PALE_WIRE, FILLS["part"])
    width = 3 if lit else 2
    return (f'<circle cx="{x}" cy="{STREAM}" r="11" fill="{fill}" stroke="{edge}" '
            f'stroke-width="{width}"/><path d="M{x - 6} {STREAM}h12M{x} {STREAM - 6}v12" '
            f'stroke="{INK if lit else PALE_INK}" stroke-width="{width}"/>')


def pin(x, y, size=0.8):
    """A map pin whose tip is at (x, y)."""
    return (f'<g transform="translate({x:g} {y:g}) scale({size:g})"><path d="M0 0C-3 -9 -11 -12 '
            f'-11 -21A11 11 0 0 1 11 -21C11 -12 3 -9 0 0Z" fill="{INK}" stroke="#FFFFFF" '
            f'stroke-width="2"/><circle cy="-21" r="4.5" fill="{AMBER}"/></g>')


def picture(chapter: chapters.Chapter | None) -> str:
    """The whole map as SVG, with the chapter's parts lit, or those of the chapters that it imports.

    None is for who has not set out yet: nothing is lit.
    """
    shown, changed, title, top = set(), set(), "Map of a transformer", []
    if chapter:
        here, name = chapter.number, textwrap.shorten(chapter.title.partition(":")[0], 36, placeholder=" …")
        placed = here in ON_THE_MAP or here in CHANGES
        shown = {here} if placed else {other.number for other in chapters.prerequisites(chapter)}
        changed = CHANGES.get(here, changed)
        title, top = f"Map of a transformer. You are here: {here} {name}", header(f"{here}  {name}")

    def lit(chapter):
        return chapter in shown | changed

    out, pins = [], []
    frame = path(MODEL, radius=14, closed=True)
    stroke = (f'stroke="{INK}" stroke-width="4"' if lit("13")
              else f'stroke="{PALE_EDGE}" stroke-width="1.5"')
    out.append(f'<path d="{frame}" fill="{AMBER if lit("13") else FILLS["model"]}" {stroke}/>')
    x, y, width, height = BLOCK
    for shift in (7, 3.5):                      # N of them: two more behind the first
        out.append(rectangle(x + shift, y - shift, width, height, FILLS["block"], False, 12))
    out.append(rectangle(*BLOCK, FILLS["block"], lit("12"), 12))
    strong = {"color": INK, "bold": True} if lit("12") else {"bold": True}
    out.append(text(FEED_FORWARD + 4, 136, "block", 22, **strong))
    out.append(text(FEED_FORWARD + 4, 164, "× N", 22, **strong))
    for kind, chapter, label, x, y, width, height in FRAMES:
        color = INK if lit(chapter) else PALE_INK
        out.append(rectangle(x, y, width, height, FILLS[kind], lit(chapter), 10))
        middle = x + width / 2 + (5 if chapter in shown else 0)
        out.append(text(middle, y + 26, label, 20, color, bold=True))
        pins += [(x, y + 31)] * (chapter in shown)
    for chapter, points, arrow in sorted(WIRES, key=lambda w: lit(w[0])):
        out.append(wire(points, arrow, lit(chapter) or lit("00")))
    out += [plus(PLUS_1, lit("12") or lit("00")), plus(PLUS_2, lit("12") or lit("00"))]
    for chapter, label, x, y, width, height in PARTS:
        out.append(part(label, x, y, width, height, lit(chapter), chapter in shown))
    out += ends() + [model_label(lit("13"))]
    pins += [(312, 430)] * lit("13")
    pins += [(208, STREAM - 2)] * lit("00") + [(FEED_FORWARD - 38, 140)] * lit("12")
    out += [pin(*place) for place in pins] + top
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" role="img" font-family="{FONT}">\n'
            f"<title>{escape(title)}</title>\n"
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#FFFFFF"/>\n'
            + "\n".join(out) + "\n</svg>\n")


def header(words):
    return [rectangle(4, 4, 174, 34, INK, False, 17, INK), pin(24, 33),
            text(104, 28, "you are here", 20, "#FFFFFF", bold=True),
            text(192, 29, words, 24, INK, bold=True, anchor="start")]


def ends():
    """What goes in and what comes out: a text, and a probability for each next token."""
    out = [rectangle(15, 92, 110, 46, "#FFFFFF", False, 4), text(LEFT, 122, "“the cat”", 20)]
    for row, (word, chance) in enumerate([("sat", 56), ("ran", 30), ("is", 9)]):
        y = 96 + 29 * row
        out.append(text(RIGHT - 16, y + 18, word, 20, anchor="end"))
        out.append(f'<rect x="{RIGHT - 8}" y="{y + 2}" width="{chance}" height="19" rx="2" '
                   f'fill="{PALE_WIRE}"/>')
    return out


def model_label(lit):
    words = rectangle(305, 402, 110, 30, "#FFFFFF", lit, 15)
    return words + text(365 if lit else 360, 424, "model", 20, INK if lit else PALE_INK, bold=True)


def main():
    for chapter in [chapters.find(name) for name in sys.argv[1:]] or chapters.chapters():
        (HERE / f"{chapter.number}.svg").write_text(picture(chapter), "utf-8")
        print(f"{chapter.number}.svg")


if __name__ == "__main__":
    main()
