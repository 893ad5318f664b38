"""The pocket model in the browser: the same tokens and logits as Python's, and a page that stays usable."""

import base64

import pytest

pytest.importorskip("sphinx", reason="the site is built by requirements-site.txt")

import torch  # noqa: E402

from docs.pocket import BITS, FILES  # noqa: E402
from grader.course.chapters import ROOT  # noqa: E402
from solutions.ex16_pretrained import load_tokenizer  # noqa: E402
from solutions.ex19_quantization import load  # noqa: E402
from tests.course.site import browser  # noqa: E402

pytestmark = browser.needed

PROMPTS = ["The for statement", "Return a new array", "import os\n\n", "def f(x):\n    ", "class Model(",
           "A naïve café", "1234 5.67 ½", " ", "\n\n\t  x", "It's what we'll", "日本語のテキスト", "🙂🙂",
           "Parameters\n----------", ">>> x = [1, 2, 3]\n>>> ", "the the the the", "<|endoftext|>Lists", "a" * 50,
           "e\u0301 \u00a0\u2003\x85z", "See Also\n--------\n", "Raises ValueError if"]
NEW = 100
WRITTEN = """async ([bits, prompts, count]) => {
    const here = "/%s/";
    const [{ Transformer }, { Tokenizer }, { readModel }] = await Promise.all(
        ["model.js", "tokenizer.js", "weights.js"].map(name => import(here + name)));
    const tokenizer = new Tokenizer(await (await fetch(here + "tokenizer.json")).json());
    const model = new Transformer(readModel(await (await fetch(`${here}pocket-${bits}.safetensors`)).arrayBuffer()));
    const coded = logits => btoa(String.fromCharCode(...new Uint8Array(logits.buffer)));
    return prompts.map(prompt => {
        const read = tokenizer.encode(prompt), cache = model.emptyCache(), ids = [...read];
        let logits;
        for (const id of read) logits = model.step(id, cache);
        const first = coded(logits);
        for (let n = 0; n < count; n++) {
            ids.push(logits.indexOf(logits.reduce((a, b) => Math.max(a, b))));
            logits = model.step(ids.at(-1), cache);
        }
        return { read, ids, first, last: coded(logits), text: tokenizer.decode(read) };
    });
}""" % FILES


@torch.no_grad()
def logits_of(model, ids: list[int]) -> torch.Tensor:
    return model(torch.tensor([ids]))[0]


def numbers(coded: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(coded)), dtype=torch.float32)


@pytest.mark.parametrize("bits, prompts", [(BITS[0], PROMPTS), (BITS[1], PROMPTS[:3])])
def test_ids_and_logits_are_pythons(site, bits, prompts):
    with browser.visit(site) as (page, address, _):
        page.goto(f"{address}/genindex.html")
        found = page.evaluate(WRITTEN, [bits, prompts, NEW])
    tokenizer, model = load_tokenizer(ROOT / "assets" / "pocket"), load(site / FILES / f"pocket-{bits}.safetensors")
    model.float()                           # the scales too: the same weights, multiplied out in float32
    for prompt, said in zip(prompts, found):
        read = tokenizer.encode(prompt)
        assert said["read"] == read and said["text"] == tokenizer.decode(read) == prompt, prompt
        logits = logits_of(model, said["ids"])
        assert said["ids"][len(read):] == logits.argmax(-1)[len(read) - 1:-1].tolist(), prompt       # each next one
        for mine, place in (("first", len(read) - 1), ("last", -1)):
            assert (numbers(said[mine]) - logits[place]).abs().max() < 1e-3, (prompt, mine)


@pytest.mark.parametrize("temperature, top_k, top_p", [(0, 0, 1), (1, 0, 1), (0.7, 5, 1), (1.3, 0, 0.8), (2, 20, 0.3)])
def test_chances_are_those_of_lesson_15(site, temperature, top_k, top_p):
    from solutions.ex15_generation import Sampling, apply_temperature

    logits = torch.randn(300, generator=torch.Generator().manual_seed(0)) * 3
    logits[7] = logits[9] = logits.max()                # equals stay by their ids
    with browser.visit(site) as (page, address, _):
        page.goto(f"{address}/genindex.html")
        said = dict(page.evaluate(f"""async ([logits, settings]) => [...(await import("/{FILES}/sampling.js"))
            .chances(Float32Array.from(logits), settings)]""", [
                logits.tolist(), {"temperature": temperature, "topK": top_k, "topP": top_p}]))
    if temperature == 0:
        assert said == {7: 1}
        return
    kept = apply_temperature(logits, temperature)
    for keep, limit in Sampling(top_k=top_k or None, top_p=top_p).filters():
        kept = keep(kept, limit)
    right = torch.softmax(kept.double(), -1)
    assert set(said) == set(right.nonzero().flatten().tolist())
    assert all(abs(right[id] - chance) < 1e-6 for id, chance in said.items())


def written(page) -> str:
    """What the page says at the end, once the buttons can be pressed again."""
    page.wait_for_function("document.querySelector('#pocket').ariaBusy === 'false'", timeout=120_000)
    return page.inner_text("#pocket .said")


@pytest.mark.parametrize("width, dark", [(1440, False), (360, True)])
def test_a_reader_makes_it_write(site, width, dark):
    """By keyboard alone; nothing is loaded before it is asked for; a stop stops it."""
    with browser.visit(site, width, dark=dark, touch=width < 500) as (page, address, said):
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{address}/index.html")
        page.wait_for_load_state("networkidle")
        assert not page.is_visible("#pocket .boxes")
        assert not [url for url in asked if "safetensors" in url or "tokenizer" in url]
        page.focus("#pocket [name=temperature]")
        for _ in range(8):
            page.keyboard.press("ArrowLeft")
        assert page.inner_text("#pocket .sliders label:first-child output") == "0"
        page.focus("#pocket [name=one]")
        page.keyboard.press("Enter")
        assert "1 token written" in written(page) and page.evaluate("document.activeElement.name") == "one"
        tokenizer = load_tokenizer(ROOT / "assets" / "pocket")
        model = load(site / FILES / f"pocket-{BITS[0]}.safetensors").float()
        best = torch.softmax(logits_of(model, tokenizer.encode("The for statement"))[-1], -1).max(-1)
        rows = page.locator("#pocket .depths tbody tr")
        assert rows.count() == 1 + model.config.layers
        assert rows.last.inner_text().endswith(f"{100 * best.values.item():.0f} %")
        assert page.text_content("#pocket .text") == "The for statement" + tokenizer.decode([best.indices.item()])
        assert {"·statement", tokenizer.decode([best.indices.item()]).replace(" ", "·")[:5]} <= set(
            page.locator(".map text").all_text_contents())
        before = page.inner_html("#pocket .chips")
        page.select_option("#pocket [name=head]", "3")
        assert page.inner_html("#pocket .chips") != before

        page.focus("#pocket-prompt")
        page.keyboard.press("Enter")
        assert "120 tokens written" in written(page)
        assert page.text_content("#pocket .text") == "The for statement" + page.text_content("#pocket .heard")
        assert page.evaluate("document.documentElement.scrollWidth") == width and said == []
        left = page.locator("#pocket .next tbody").inner_text()
        page.fill("#pocket [name=temperature]", "2")        # what the sliders leave follows them
        page.wait_for_function("before => document.querySelector('#pocket .next tbody').innerText !== before", arg=left)
        page.evaluate("""() => {            // whoever stops it at once, however busy the machine is
            const stop = document.querySelector("#pocket [name=stop]");
            new MutationObserver((_, watch) => {
                if (stop.getAttribute("aria-disabled") !== "false") return;
                watch.disconnect();
                stop.click();
            }).observe(stop, {attributes: true});
        }""")
        page.click("#pocket [type=submit]")
        assert int(written(page).split()[0]) < 120
        page.click("#pocket [type=submit]")
        page.check(f"#pocket [name=bits][value='{BITS[1]}']")
        assert "press Write" in written(page)
        page.click("#pocket [type=submit]")
        page.wait_for_function("document.querySelector('#pocket .written').textContent.length > 20", timeout=60_000)


@pytest.mark.parametrize("prompt, words", [("", "a word or two"), ("word " * 600, "reads at most 512 tokens")])
def test_what_it_cannot_go_on_from_is_said(site, prompt, words):
    with browser.visit(site) as (page, address, said):
        page.goto(f"{address}/index.html")
        page.fill("#pocket-prompt", prompt)
        page.click("#pocket [type=submit]")
        assert words in written(page)
        page.fill("#pocket-prompt", "import")
        page.click("#pocket [name=one]")
        page.wait_for_function("document.querySelector('#pocket .said').textContent.startsWith('1 token written')")
        assert said == []


def test_a_failure_leaves_the_page_usable(site):
    with browser.visit(site) as (page, address, _):
        page.route("**/*.safetensors", lambda route: route.abort())
        page.goto(f"{address}/index.html")
        page.click("#pocket [type=submit]")
        assert "did not work" in written(page)
        page.unroute("**/*.safetensors")
        page.click("#pocket [type=submit]")
        assert "written" in written(page)
    with browser.visit(site) as (page, _, said):
        page.goto((site / "index.html").as_uri())
        page.click("#pocket [type=submit]")
        assert "http.server" in written(page) and said == []


def test_without_a_script_nothing_waits(site):
    with browser.visit(site, scripts=False) as (page, address, _):
        page.goto(f"{address}/index.html")
        assert not page.is_visible("#pocket form")
        assert page.is_visible("#pocket noscript") and page.is_visible(".map svg")
