"""Figures that move: by the keyboard, with the numbers of the course's own Python, and nowhere without a script."""

import csv
import json
import math
import re
from statistics import mean

import pytest
import torch

from grader.course.chapters import ROOT
from solutions.ex05_softmax import softmax
from solutions.ex07_rope import RoPE
from solutions.ex09_attention import attention_weights
from solutions.ex11_kv_cache import cache_bytes
from solutions.ex15_generation import Sampling, apply_temperature
from solutions.ex16_pretrained import load_pretrained, load_tokenizer

pytest.importorskip("sphinx", reason="the site is built by requirements-site.txt")

from docs import moving  # noqa: E402
from tests.course.site import browser  # noqa: E402

NUMBER = re.compile(r"−?\d[\d,]*(?:\.\d+)?")
DATA = re.compile(r'<div class="moving" data-figure="(\w+)"[^>]*><script type="application/json">(.*?)</script></div>')


def temperature(data, at):
    shares = softmax(torch.tensor(data["scores"]), temperature=at["temperature"])
    entropy = -torch.special.xlogy(shares, shares).sum()
    return at["temperature"], shares.max(), shares.min(), entropy, math.log(len(shares))


def rope(data, at):
    turn, query, key = RoPE(4, 200, base=100, layout="interleaved"), at["place"] + at["distance"], at["place"]
    q, k = (turn(torch.tensor([data[name]]), torch.tensor([place]))[0]
            for name, place in (("query", query), ("key", key)))
    return query, key, at["distance"], 0, (q * k)[:2].sum(), 1, (q * k)[2:].sum(), q @ k


def scale(data, at):
    """On the draws of the lesson's cell."""
    torch.manual_seed(0)
    for d in (4, 16, 64, 256, 1024):
        q, k = torch.randn(2, 500, 16, d)
    q, k = (x[..., :at["head_dim"]] for x in (q, k))
    raw, scaled = softmax(q @ k.mT), attention_weights(q, k)
    return at["head_dim"], raw[0, 0].max(), scaled[0, 0].max(), 8000, raw.amax(-1).mean(), scaled.amax(-1).mean()


def cache(data, at):
    model = data["models"][at["model"]]
    tokens, weights = model["full"] * at["part"] // 128, 2 * model["parameters"] / 1e9
    took = cache_bytes(model["layers"], model["kv_heads"], model["head_dim"], tokens, 1, 2) / 1e9
    return *map(float, re.findall(r"\d+(?:\.\d+)?", at["model"])), tokens, took, took / weights, weights


def filters(data, at):
    """On the pocket model's own logits, by the filters in their order."""
    model, ids = load_pretrained(ROOT / "assets" / "pocket", dtype=torch.float32), load_tokenizer(
        ROOT / "assets" / "pocket").encode(data["prompt"])
    with torch.no_grad():
        logits = model(torch.tensor([ids]))[0, -1].float()
    row = apply_temperature(logits, at["temperature"])
    for keep, limit in Sampling(top_k=at["k"], top_p=at["p"]).filters():
        row = keep(row, limit)
    return 4096, row.isfinite().sum(), softmax(logits).max(), softmax(row).max()


def bits(data, at):
    with open(ROOT / "assets" / "evidence" / "19_quantization.csv") as file:
        rows = list(csv.DictReader(file))
    found = {key: mean(float(row["bits per byte"]) for row in rows if (int(row["bits"]), row["method"]) == key)
             for key in ((16, "plain"), (at["bits"], "plain"), (at["bits"], "GPTQ"))}
    plain, gptq = (found[at["bits"], method] - found[16, "plain"] for method in ("plain", "GPTQ"))
    return at["bits"], 2 ** at["bits"], plain, gptq, 0.01


SETTINGS = {
    temperature: [{"temperature": 0.5}, {"temperature": 5}, {"temperature": 0.05}],
    rope: [{"place": 0, "distance": 4}, {"place": 100, "distance": 1}, {"place": 7, "distance": 63}],
    scale: [{"head_dim": 4}, {"head_dim": 256}, {"head_dim": 1024}],
    cache: [{"model": "GPT-2", "part": 128}, {"model": "Llama 3.1 70B", "part": 1},
            {"model": "Qwen3 0.6B", "part": 128}],
    filters: [{"temperature": 0.7, "k": 4096, "p": 0.9}, {"temperature": 1.5, "k": 40, "p": 1},
              {"temperature": 1, "k": 10, "p": 0.5}],
    bits: [{"bits": 2}, {"bits": 3}, {"bits": 8}],
}


def places(site) -> dict:
    """The page of each figure, and the numbers that it holds."""
    return {name: (path, json.loads(data)) for path in sorted(site.glob("notebooks/*.html"))
            for name, data in DATA.findall(path.read_text("utf-8"))}


def turn(page, name: str, at: dict) -> None:
    """Set the controls by the keyboard alone."""
    for control, value in at.items():
        steps = page.evaluate("""([name, control, value]) => {
            const {figure, data} = moving.figures[name];
            return figure.controls(data).find(one => one.name === control).values.indexOf(value);}""",
                              [name, control, value])
        assert steps >= 0, (name, control, value)
        page.focus(f"#moving-{name}-{control}")
        page.keyboard.press("Home")
        for _ in range(steps):
            page.keyboard.press("ArrowDown" if control == "model" else "ArrowRight")


def said(page) -> list[str]:
    return [found.replace("−", "-").replace(",", "") for found in NUMBER.findall(
        page.inner_text(".moving-words").replace("GPT-2", "GPT 2"))]


@browser.needed
@pytest.mark.parametrize("expected", SETTINGS, ids=lambda figure: figure.__name__)
def test_a_figure_says_by_keyboard_what_python_computes(site, expected):
    path, data = places(site)[expected.__name__]
    with browser.visit(site) as (page, address, console):
        page.goto(f"{address}/{path.relative_to(site).as_posix()}")
        drawn = {page.inner_html(".moving-drawing")}
        for at in SETTINGS[expected]:
            turn(page, expected.__name__, at)
            right = [float(number) for number in expected(data, at)]
            shown = said(page)
            assert len(shown) == len(right), (shown, right)
            for words, number in zip(shown, right):
                half = 0.51 * 10 ** -len(words.partition(".")[2]) if "." in words else 0        # of the last digit
                assert abs(float(words) - number) <= half, (at, shown, right)
            drawn.add(page.inner_html(".moving-drawing"))
        assert len(drawn) == 1 + len(SETTINGS[expected]) and console == []


@browser.needed
def test_each_stands_under_its_picture_and_its_words_and_is_labelled(site):
    assert list(places(site)) == list(moving.FIGURES)
    for name, (path, _) in places(site).items():
        assert path.read_text("utf-8").count('class="moving"') == 1
        with browser.visit(site) as (page, address, _):
            page.goto(f"{address}/{path.relative_to(site).as_posix()}")
            found = page.evaluate("""() => {
                const place = document.querySelector(".moving");
                let above = place.previousElementSibling;
                while (above.matches("p")) above = above.previousElementSibling;
                return {picture: above.querySelector(".cell_output img") !== null,
                        group: document.getElementById(place.getAttribute("aria-labelledby")).textContent,
                        labels: [...place.querySelectorAll("input, select")].map(one => one.labels[0].textContent),
                        values: [...place.querySelectorAll("input")].map(one => one.getAttribute("aria-valuetext")),
                        live: place.querySelector(".moving-words").ariaLive};}""")
        assert found["picture"] and len(found["group"]) > 10 and all(found["labels"]) and all(found["values"]), name
        assert found["live"] == "polite"


@browser.needed
def test_without_a_script_the_picture_alone_is_there(site):
    for path, _ in places(site).values():
        with browser.visit(site, scripts=False) as (page, address, _):
            page.goto(f"{address}/{path.relative_to(site).as_posix()}")
            assert not page.locator(".moving").is_visible()
            picture = page.locator(".cell:has(~ .moving) .cell_output img").last
            picture.scroll_into_view_if_needed()
            assert picture.bounding_box()["height"] > 100


@browser.needed
@pytest.mark.parametrize("dark", [False, True])
def test_on_a_phone_all_of_it_fits_and_a_finger_moves_it(site, dark):
    for name, (path, _) in places(site).items():
        with browser.visit(site, width=360, touch=True, dark=dark) as (page, address, console):
            page.goto(f"{address}/{path.relative_to(site).as_posix()}")
            slider = page.locator(".moving input").first
            before, box = page.inner_text(".moving-words"), slider.bounding_box()
            slider.tap(position={"x": box["width"] * 0.1, "y": box["height"] / 2})
            assert page.inner_text(".moving-words") != before, name
            assert page.evaluate("document.documentElement.scrollWidth") <= 360 and box["height"] >= 24
            lost = page.evaluate("""() => {
                const svg = document.querySelector(".moving svg").getBoundingClientRect();
                return [...document.querySelectorAll(".moving svg text")].filter(text => {
                    const {width, left, right, top, bottom} = text.getBoundingClientRect();
                    return width && (left < svg.left - 1 || right > svg.right + 1 || top < svg.top - 1
                                     || bottom > svg.bottom + 1);
                }).map(text => text.textContent);}""")
            assert lost == [] and console == [], name


@browser.needed
def test_it_moves_from_the_disk_too(site):
    path, _ = places(site)["rope"]
    with browser.visit(site) as (page, _, console):
        page.goto(path.as_uri())
        turn(page, "rope", {"place": 20})
        assert "at place 21" in page.inner_text(".moving-words") and console == []


def test_other_pages_load_nothing_for_it(site, pages):
    loading = {path for path, page in pages.items()
               if any("/d3.min.js" in address or "/moving" in address for address in page.loads)}
    assert loading == {path for path, _ in places(site).values()}


def test_a_figure_whose_cell_is_gone_says_so():
    chapter = moving.chapters()[0]
    figure = moving.Figure(chapter.number, "no figure says this", (), dict)
    with pytest.raises(ValueError, match="no figure says this"):
        moving._ran(figure, chapter)
