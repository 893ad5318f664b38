"""The map of the model, with each part a link to the lesson that builds it."""

import importlib.util
import re
from html import escape

from grader.course.chapters import ROOT, Chapter, chapters

_spec = importlib.util.spec_from_file_location("draw_map", ROOT / "assets" / "map" / "draw_map.py")
draw_map = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(draw_map)


def linked(words: str, folder: str, here: Chapter | None = None) -> str:
    """The map as one block of HTML, with links over its parts.

    words: what it shows, for who cannot see it; folder: the way to the lessons; here: the lesson shown.
    The links lie over the picture, so that it stays one, and need no script. Each lesson is one stop of the tab key.
    """
    names, links, seen = {chapter.number: chapter for chapter in chapters()}, [], set()
    for number, label, x, y, width, height in places():
        if (chapter := names.get(number)) and chapter != here:
            again = ' tabindex="-1"' if number in seen else ""
            seen.add(number)
            place = ";".join(f"{side}:{100 * value / whole:.2f}%" for side, value, whole in (
                ("left", x + width / 2, draw_map.WIDTH), ("top", y + height / 2, draw_map.HEIGHT),
                ("width", width, draw_map.WIDTH), ("height", height, draw_map.HEIGHT)))
            links.append(f'<a href="{folder}{chapter.notebook.stem}.html" style="{place}"'
                         f' aria-label="Lesson {number}: {label}" title="Lesson {number}: {label}"{again}></a>')
    drawing = re.sub(r"<title>.*</title>\n", "", draw_map.picture(here)).strip()
    drawing = drawing.replace("<svg ", f'<svg aria-label="{escape(words)}" ', 1)
    return f'<div class="map"><div>{drawing}\n{"".join(links)}</div></div>'


def places() -> list[tuple]:
    """(chapter, label, x, y, width, height) of what can be followed, from the back to the front."""
    x, y, width, height = draw_map.BLOCK
    return [("12", "the block", x, y, width, height), ("13", "the whole model", 305, 398, 110, 34),
            *(frame[1:] for frame in draw_map.FRAMES), *draw_map.PARTS]
