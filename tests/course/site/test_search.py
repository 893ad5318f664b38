"""Search, as readers ask: the page that answers stands among the first three results, and opens where it answers."""

from urllib.parse import unquote

import pytest

from grader.course.chapters import ROOT
from tests.course.site import browser

pytestmark = browser.needed
AXE = ROOT / "docs" / "node_modules" / "axe-core" / "axe.min.js"

# What a student types, and the pages that answer it. Written before the search was; not to be fitted to it.
QUESTIONS = {
    "why do we divide by the square root of d": "09",
    "what is a KV cache": "11",
    "how to install": "README",
    "loss is nan": "05 14",
    "how do I load GPT-2 weights": "16",
    "difference between LayerNorm and RMSNorm": "04",
    "what does byte pair encoding do": "01",
    "why is softmax unstable for large numbers": "05",
    "how does rotary position embedding work": "07",
    "causal mask": "09",
    "what is grouped query attention": "10",
    "residual connection why": "12",
    "learning rate warmup": "14",
    "what temperature should I use": "15",
    "top-p sampling": "15",
    "how does flash attention save memory": "17",
    "how do experts get chosen": "18",
    "int8 quantization error": "19",
    "what is LoRA": "20",
    "how does DPO work": "21",
    "how many parameters does a linear layer have": "03",
    "pre-norm or post-norm": "12",
    "what is SwiGLU": "08",
    "einops rearrange": "00",
    "tied embeddings": "02",
    "sinusoidal positions formula": "06",
    "gradient clipping": "14",
    "how do I run the tests": "README CONTRIBUTING",
    "how to see a hint": "README",
    "encoder vs decoder": "13",
}


@pytest.fixture(scope="module")
def answered(site) -> dict[str, list[str]]:
    """The addresses of the first three answers to each question."""
    with browser.visit(site) as (page, address, _):
        page.goto(f"{address}/search.html")
        return {question: [answer["url"] for answer in page.evaluate("asked => answers(asked)", question)[:3]]
                for question in QUESTIONS}


def test_the_page_that_answers_is_among_the_first_three(answered):
    missed = {question: answered[question] for question, expected in QUESTIONS.items() if not any(
        url.startswith((f"/notebooks/{page}_", f"/{page}.html"))
        for page in expected.split() for url in answered[question])}
    assert len(missed) <= 2, missed


def test_an_answer_is_a_place_in_a_page(site, pages, answered):
    for url in {url for urls in answered.values() for url in urls}:
        path, _, anchor = url.partition("#")
        assert anchor and unquote(anchor) in pages[site / path.lstrip("/")].ids, url


def test_the_box_of_every_page_leads_to_the_answer(site):
    with browser.visit(site, width=1200) as (page, address, said):
        page.goto(f"{address}/notebooks/07_rope.html")
        page.fill(".sidebar-search", "KV cache")
        page.press(".sidebar-search", "Enter")
        page.click('#search-results a[href*="/notebooks/11_kv_cache.html#"]')
        assert "/notebooks/11_kv_cache.html#" in page.url and said == []
        page.goto(f"{address}/search.html?q=€")
        page.wait_for_function("document.getElementById('search-said').textContent.startsWith('Nothing')")


def test_on_a_disk_pages_are_found_and_a_sentence_says_so(site):
    with browser.visit(site) as (page, _, _):
        page.goto(f"{(site / 'search.html').as_uri()}?q=RoPE")
        page.wait_for_selector('#search-results a[href*="notebooks/07_rope.html"]')
        assert "only whole pages" in page.inner_text("#search-said")


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not there: npm ci --prefix docs")
@pytest.mark.parametrize("dark", [False, True])
def test_its_results_are_for_everyone(site, dark):
    with browser.visit(site, width=360, dark=dark) as (page, address, _):
        page.goto(f"{address}/search.html?q=cache")
        page.wait_for_selector("#search-results mark")
        page.add_script_tag(path=AXE)
        assert page.evaluate("axe.run().then(said => said.violations.map(rule => [rule.id, rule.nodes[0].html]))") == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
