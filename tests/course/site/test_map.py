"""The map: a finger on any part comes to the lesson that builds it."""

import pytest

from docs import maps
from grader.course.chapters import chapters, find
from tests.course.site import browser

pytestmark = browser.needed
LESSONS = {chapter.number: chapter for chapter in chapters()}
MIDDLES = """where => where.map(([x, y]) => {
    const map = document.querySelector(".map svg"), box = map.getBoundingClientRect();
    map.closest(".map").scrollLeft = x * box.width - 100;
    const moved = map.getBoundingClientRect();
    const part = document.elementFromPoint(moved.x + x * moved.width, moved.y + y * moved.height);
    return part.closest("a")?.href.split("/").pop() ?? "";
})"""


def middles() -> list[tuple[str, list[float]]]:
    """(lesson, place as parts of the map's width and height) of each part; of what holds others, of its name."""
    names = {"12": (maps.draw_map.FEED_FORWARD, 136)} | {
        number: (x + width / 2, y + 18) for _, number, _, x, y, width, _ in maps.draw_map.FRAMES}
    places = [(number, names.get(number, (x + width / 2, y + height / 2)))
              for number, _, x, y, width, height in maps.places()]
    return [(number, [x / maps.draw_map.WIDTH, y / maps.draw_map.HEIGHT]) for number, (x, y) in places]


@pytest.mark.parametrize("page, here", [("index.html", ""), ("notebooks/07_rope.html", "07")])
@pytest.mark.parametrize("width", [1200, 360])
def test_every_part_of_the_map_leads_to_its_lesson(site, page, here, width):
    with browser.visit(site, width) as (reader, address, _):
        reader.goto(f"{address}/{page}")
        reader.evaluate("document.querySelector('.map').scrollIntoView({block: 'center', behavior: 'instant'})")
        met = reader.evaluate(MIDDLES, [place for _, place in middles()])
        for (number, _), name in zip(middles(), met):
            assert name == f"{LESSONS[number].notebook.stem}.html" or number == here, (number, name)


@pytest.mark.parametrize("page", ["index.html", "notebooks/07_rope.html"])
def test_its_links_are_large_enough_for_a_finger_and_none_is_empty(site, page):
    (sizes,), _ = browser.ask(site, [site / page], """
        return [...document.querySelectorAll(".map a")].map(a => a.getBoundingClientRect())
            .map(({width, height}) => Math.min(width, height));""", width=360)
    assert len(sizes) > 20 and min(sizes) >= 24


def test_a_click_opens_the_lesson(site):
    with browser.visit(site) as (reader, address, _):
        reader.goto(address)
        reader.get_by_role("link", name="Lesson 07: RoPE").click()
        assert reader.url == f"{address}/notebooks/{find('rope').notebook.stem}.html"
