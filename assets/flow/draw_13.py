"""Draws lesson 13's toy model: five tokens on their way through it, with the numbers of a trained one.

    python assets/flow/draw_13.py
"""

import sys
from pathlib import Path
from xml.sax.saxutils import escape

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from solutions.ex05_softmax import cross_entropy  # noqa: E402
from solutions.ex13_transformer import ModelConfig, Transformer  # noqa: E402

FONT = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
WIDTH, BLUE, AMBER, GREEN = 360, "#D6EAF5", "#F9D9A0", "#D9EFDF"
WORDS = ["the", "dog", "bites", "man"]
SENTENCES = torch.tensor([[0, 1, 2, 0, 3], [0, 3, 2, 0, 1]])
parts: list[str] = []


def toy() -> Transformer:
    """The lesson's model, trained on its two sentences."""
    torch.manual_seed(0)
    model = Transformer(ModelConfig(vocab_size=4, d_model=6, layers=2, heads=3, d_ff=8, max_seq_len=8))
    for weight in model.parameters():
        if weight.dim() == 2:
            torch.nn.init.normal_(weight, std=0.5)
    adam = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(100):
        loss = cross_entropy(model(SENTENCES), SENTENCES.roll(-1, 1))
        adam.zero_grad()
        loss.backward()
        adam.step()
    return model


def text(x, y, words, anchor="start", size=13, bold=False):
    weight = ' font-weight="bold"' if bold else ""
    parts.append(f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}"{weight}>{escape(words)}</text>')


def cell(x, y, width, height, words, fill="#FFFFFF", edge=1):
    parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}" '
                 f'stroke="#000000" stroke-width="{edge:g}"/>')
    text(x + width / 2, y + height / 2 + 4.5, words, "middle", 12)


def arrow(top, words):
    parts.append(f'<line x1="78" y1="{top}" x2="78" y2="{top + 30}" stroke="#000000" stroke-width="1.6" '
                 'marker-end="url(#tip)"/>')
    text(92, top + 20, words)


def table(top, numbers, form, fill):
    wide = 282 / len(numbers[0])
    for t, row in enumerate(numbers):
        text(60, top + 16 + 22 * t, WORDS[SENTENCES[0, t]], "end")
        for j, value in enumerate(row):
            cell(68 + wide * j, top + 22 * t, wide, 22, form(value), fill(t, value), 2 if t == 3 else 1)


def signed(value):
    return f"{round(value, 1) + 0.0:.1f}".replace("-", "−")          # no −0.0


model, steps = toy(), []
for part in (model.embedding, *model.blocks):
    part.register_forward_hook(lambda _, __, y: steps.append(y[0].tolist()))
with torch.no_grad():
    chances = model(SENTENCES[:1])[0].softmax(-1).tolist()

text(10, 20, "Five tokens, four words, six features", bold=True)
for t, word in enumerate(SENTENCES[0]):
    cell(10 + 68 * t, 32, 68, 24, f"{WORDS[word]}: {word}", AMBER if t in (0, 3) else "#FFFFFF")
arrow(60, "their rows of E: the stream x, (5, 6)")
table(96, steps[0], signed, lambda t, _: AMBER if t in (0, 3) else "#FFFFFF")
arrow(210, "2 blocks; each adds twice: still (5, 6)")
table(246, steps[-1], signed, lambda t, _: AMBER if t in (0, 3) else "#FFFFFF")
arrow(360, "the last norm, then Uᵀ: logits, (5, 4)")
text(92, 410, "softmax: chances of the next word, in %")
for j, word in enumerate(WORDS):
    text(68 + 70.5 * (j + 0.5), 432, word, "middle", bold=True)
table(438, chances, lambda p: f"{100 * p:.0f}", lambda t, p: GREEN if p > 0.3 else "#FFFFFF")
height = 438 + 5 * 22 + 12
(HERE / "13.svg").write_text(
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
    f'font-family="{FONT}" role="img">\n<title>Five tokens become rows of six features, two blocks add to them, '
    'and a norm, a product and a softmax make a chance for each of four words</title>\n'
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    f'<path d="M0 0 8 4 0 8z"/></marker></defs>\n<rect width="{WIDTH}" height="{height}" fill="#FFFFFF"/>\n'
    + "\n".join(parts) + "\n</svg>\n", "utf-8")
