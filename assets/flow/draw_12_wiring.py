"""Draws how lesson 12's three blocks are wired: 12_orders.svg (pre- and post-norm) and 12_cross.svg.

    python assets/flow/draw_12_wiring.py
"""

from pathlib import Path

HERE = Path(__file__).parent
INK = "#000000"
FILLS = {"norm": "#FFE3A3", "feed_forward": "#D5EFE4", "attention": "#CDE6F5"}
FONT = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
ATTENTION, FEED_FORWARD, CROSS = "attention", "feed_forward", "cross_attention"


def text(x, y, words, bold=False, anchor="middle", size=13):
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" fill="{INK}"{weight}>{words}</text>'


def box(middle, y, label, wide):
    fill = next(fill for name, fill in FILLS.items() if name in label)
    return (f'<rect x="{middle - wide / 2}" y="{y}" width="{wide}" height="27" rx="6" fill="{fill}" stroke="{INK}" '
            f'stroke-width="1.2"/>' + text(middle, y + 18, label))


def arrow(*points, width=1.6):
    path = " L".join(f"{x} {y}" for x, y in points)
    return f'<path d="M{path}" fill="none" stroke="{INK}" stroke-width="{width}" marker-end="url(#tip)"/>'


def wiring(line, branch, wide, title, note, steps, thick=1.6, context=False):
    """One block: steps are branches (lists of parts) and norms on the line (their names)."""
    out = [text((line + branch) / 2, 20, title, True, size=14.5), text((line + branch) / 2, 39, note),
           text(line, 62, "x", True)]
    y, parts = 68, []
    for step in steps:
        if isinstance(step, str):               # a norm on the line
            parts.append(box(line, y, step, 64))
            y += 38
            continue
        parts.append(f'<circle cx="{line}" cy="{y + 10}" r="4" fill="{INK}"/>')
        parts.append(arrow((line, y + 10), (branch, y + 10), (branch, y + 24)))
        y += 26
        for i, part in enumerate(step):
            parts.append(box(branch, y, part, wide))
            if part == CROSS and context:
                parts += [arrow((branch + wide / 2 + 38, y + 13), (branch + wide / 2 + 2, y + 13)),
                          text(branch + wide / 2 + 42, y + 18, "context", anchor="start")]
            if i + 1 < len(step):
                parts.append(arrow((branch, y + 27), (branch, y + 40)))
            y += 42
        plus = y + 6
        parts += [arrow((branch, y - 15), (branch, plus), (line + 12, plus)),
                  f'<circle cx="{line}" cy="{plus}" r="10" fill="#FFFFFF" stroke="{INK}" stroke-width="1.6"/>'
                  f'<path d="M{line - 6} {plus} h12 M{line} {plus - 6} v12" stroke="{INK}" stroke-width="1.6"/>']
        y = plus + 18
    end = y + 20
    out += [f'<path d="M{line} 68 L{line} {end}" stroke="{INK}" stroke-width="{thick}"/>',
            f'<path d="M{line - 8} {end - 2} h16 l-8 14 z" fill="{INK}"/>', *parts, text(line, end + 28, "x", True)]
    return out, end + 38


def write(name, title, drawings):
    high = max(high for _, high in drawings)
    (HERE / name).write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 360 {high}" width="360" height="{high}" '
        f'font-family="{FONT}">\n<title>{title}</title>\n'
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="9" markerHeight="9" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 L10 5 L0 10 z" fill="{INK}"/></marker></defs>\n'
        f'<rect width="360" height="{high}" fill="#FFFFFF"/>\n'
        + "\n".join(part for drawing, _ in drawings for part in drawing) + "\n</svg>\n", "utf-8")


def main() -> None:
    write("12_orders.svg", "Pre-norm and post-norm", [
        wiring(30, 116, 98, "PreNormBlock", "sums alone on the line",
               [["norm1", ATTENTION], ["norm2", FEED_FORWARD]], thick=5),
        wiring(222, 302, 98, "PostNormBlock", "each sum is normed",
               [[ATTENTION], "norm1", [FEED_FORWARD], "norm2"])])
    write("12_cross.svg", "The block of a translator", [
        wiring(60, 180, 124, "CrossBlock", "post-norm, and a context",
               [[ATTENTION], "norm1", [CROSS], "norm2", [FEED_FORWARD], "norm3"], context=True)])


if __name__ == "__main__":
    main()
