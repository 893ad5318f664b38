"""Figures that move: each stands under a figure of a lesson, and has sliders where that one is still.

What they show is computed by the lesson's own cells, on the solutions, while the site is built: `python -m docs.moving`
prints it, and each figure's page holds its own. static/moving/ draws it. Without a script nothing is added to a page.
"""

import contextlib
import html
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace

from grader.course import lesson
from grader.course.chapters import ROOT, Chapter, chapters

MODULES = Path(__file__).resolve().parent / "node_modules"
DRAWN_WITH = "d3-selection", "d3-scale", "d3-shape", "d3-axis"


@dataclass(frozen=True)
class Figure:
    """Where a figure stands, and what it shows."""

    lesson: str
    under: str                          # what is said in the code of the figure that it stands under
    runs: tuple[str, ...]               # what is said in the cells that are run for it, besides the first
    numbers: Callable[[SimpleNamespace], dict]      # what it shows, from what those cells leave behind


def _temperature(left: SimpleNamespace) -> dict:
    return {"words": left.words, "scores": left.scores.tolist()}


def _rope(left: SimpleNamespace) -> dict:
    """The angles are those by which the module turns place 1."""
    cos, sin = left.rope.cos[1], left.rope.sin[1]
    return {"query": left.q_man.tolist(), "key": left.k_the.tolist(), "angles": sin.atan2(cos).tolist(),
            "words": [left.sentence[4], left.sentence[0]]}


def _scale(left: SimpleNamespace) -> dict:
    """One query's scores when it and its keys have only their first d features, and means over all queries."""
    first, last, rows = left.sizes[0], left.sizes[-1], []
    for power in range(first.bit_length() - 1, last.bit_length()):
        d = 2 ** power
        scores = left.q[..., :d] @ left.k[..., :d].mT
        rows.append({"head_dim": d, "scores": scores[0, 0].tolist(), "mean largest": [
            each.softmax(-1).amax(-1).mean().item() for each in (scores, scores / d ** 0.5)]})
    return {"rows": rows, "queries": left.q[..., 0].numel()}


def _cache(left: SimpleNamespace) -> dict:
    names = "layers", "kv_heads", "head_dim", "full", "parameters"
    return {"models": {model: dict(zip(names, sizes)) for model, sizes in left.models.items()}}


def _filters(left: SimpleNamespace) -> dict:
    """All logits, the largest first, and the ten tokens that lead."""
    best, ids = left.logits.sort(descending=True)
    return {"prompt": left.PROMPT, "logits": best.tolist(),
            "tokens": [left.tokenizer.decode([i]) for i in ids[:10].tolist()]}


def _bits(left: SimpleNamespace) -> dict:
    """What is lost on each text; and a line of weights, from the smallest to the largest of section 2, read again."""
    line, lost = left.torch.linspace(min(left.row), max(left.row), 241), {}
    for bits, method in left.lost:
        lost.setdefault(bits, {})[method] = left.lost[bits, method]
    again = {bits: left.dequantize(*left.quantize(line, bits, len(line))).tolist() for bits in lost}
    return {"bits": sorted(lost), "lost": lost, "line": line.tolist(), "again": again, "wanted": left.wanted}


FIGURES = {
    "temperature": Figure("05", "The words' shares", ("words = [",), _temperature),
    "rope": Figure("07", "rad per place", ("q_man = ", "the_3 = ", "rope = RoPE("), _rope),
    "scale": Figure("09", "largest of 16 weights", ("sizes, rows = ",), _scale),
    "cache": Figure("11", "Cache of one sequence / weights of the model", ("models = {",), _cache),
    "filters": Figure("15", "Temperature tilts the line, filters cut it",
                      ("model = load_pretrained", "PROMPT = ", "prompt = ", "logits = model("), _filters),
    "bits": Figure("19", "What is lost, on five held-out texts", ("held_out = ", "row = [", "base, lost = "), _bits),
}


def below(chapter: Chapter, cell: dict) -> list[dict]:
    """The cells that stand under this one and its text: one for the figure that moves, if it has one."""
    return [{"cell_type": "markdown", "metadata": {}, "id": f"moving-{name}", "source": _place(name)}
            for name, figure in FIGURES.items() if figure.lesson == chapter.number
            and cell["cell_type"] == "code" and figure.under in cell["source"]]


def _place(name: str) -> str:
    """Where the script puts the figure: its numbers, and the colours of the course's figures."""
    cycle = re.search(r"'color', \[(.*?)\]", (ROOT / "assets" / "course.mplstyle").read_text("utf-8"))[1]
    colours = "; ".join(f"--c{i}: #{colour}" for i, colour in enumerate(re.findall(r"\w{6}", cycle)))
    numbers = json.dumps(all_numbers()[name]).replace("<", r"\u003c")
    return (f'<div class="moving" data-figure="{html.escape(name)}" style="{colours}">'
            f'<script type="application/json">{numbers}</script></div>')


@cache
def all_numbers() -> dict[str, dict]:
    """What each figure shows. Lessons set torch and the folder as they like, so they run in a process of their own."""
    done = subprocess.run([sys.executable, "-m", "docs.moving"], cwd=ROOT, capture_output=True, text=True,
                          encoding="utf-8")
    if done.returncode:
        raise ValueError(f"the figures that move have no numbers (is requirements.txt installed?):\n{done.stderr}")
    return json.loads(done.stdout)


def _ran(figure: Figure, chapter: Chapter) -> SimpleNamespace:
    """What the figure's cells leave behind."""
    code, left = [cell["source"] for cell in lesson.cells(chapter, "code")], {}
    for words in (figure.under, *figure.runs):
        if not any(words in source for source in code):
            raise ValueError(f"a figure of docs/moving.py needs a cell of {chapter.notebook.name} that says {words!r}")
    for source in [code[0], *(next(source for source in code if words in source) for words in figure.runs)]:
        exec(source.replace("from exercises.", "from solutions."), left)
    goal = re.search(r"for less than ([\d.]+) bits per byte lost", lesson.prose(chapter))
    return SimpleNamespace(**left, wanted=goal and float(goal[1]))


def main() -> None:
    numbers, by_number = {}, {chapter.number: chapter for chapter in chapters()}
    for name, figure in FIGURES.items():
        if chapter := by_number.get(figure.lesson):
            with contextlib.redirect_stdout(io.StringIO()):
                numbers[name] = figure.numbers(_ran(figure, chapter))
    # A float32 has seven digits; those of a float64 that follow would only make the pages larger.
    print(json.dumps(json.loads(json.dumps(numbers), parse_float=lambda digits: float(f"{float(digits):.7g}"))))


def _needs(module: str) -> list[str]:
    """A module of d3 and those that it is built on, each after what it needs."""
    needed = json.loads((MODULES / module / "package.json").read_text("utf-8")).get("dependencies", {})
    return [*(inner for other in needed if other.startswith("d3-") for inner in _needs(other)), module]


def _load(app, page, template, context, tree) -> None:
    """Pages with a figure that moves load what draws it, and no others do."""
    for name, figure in FIGURES.items():
        if page.startswith(f"notebooks/{figure.lesson}_"):
            app.add_css_file("moving.css")
            for script in ("d3.min.js", "moving/shared.js", f"moving/{name}.js"):
                app.add_js_file(script, loading_method="defer")


def _write_d3(app, exception) -> None:
    """The parts of d3 that are used, as their makers publish them, in one file."""
    if exception is None:
        parts = dict.fromkeys(part for module in DRAWN_WITH for part in _needs(module))
        Path(app.outdir, "_static", "d3.min.js").write_text("\n".join(
            (MODULES / part / "dist" / f"{part}.min.js").read_text("utf-8") for part in parts), "utf-8")


def setup(app) -> dict:
    app.connect("html-page-context", _load)
    app.connect("build-finished", _write_d3)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    main()
