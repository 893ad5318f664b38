"""Writes the pocket model's card, README.md, and draws how its training went, training.png.

    python assets/pocket/card.py        once train.py has ended, which does this too
"""

import csv
import json
import lzma
import math
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.pocket.text import PACKAGES  # noqa: E402
from assets.pocket.train import (  # noqa: E402
    END,
    FLOOR,
    PEAK,
    RUN,
    STAGES,
    induction,
    joined,
)
from solutions.ex13_transformer import POCKET, Transformer, count_parameters, use_torch_kernels  # noqa: E402
from solutions.ex14_training import bits_per_byte, evaluate  # noqa: E402
from solutions.ex15_generation import generate  # noqa: E402
from solutions.ex16_pretrained import load_pretrained, load_tokenizer  # noqa: E402


def three_byte_bits(known: bytes, read: bytes) -> float:
    """Bits per byte of a model that knows how often each byte followed each two, and one, and none.

    Each of the three counts is mixed with the next shorter one, by Witten and Bell's weights (1991).
    """
    known, read = (np.frombuffer(text, np.uint8).astype(np.int64) for text in (known, read))
    chance = np.full(len(read) - 2, 1 / 256)
    for before in range(3):
        def number(text):                        # of each byte with those before it, from the third on
            return sum(text[2 - i:len(text) - i] * 256**i for i in range(before + 1))
        counts = np.bincount(number(known), minlength=256 ** (before + 1)).reshape(-1, 256)
        context, byte = divmod(number(read), 256)
        total, kinds = counts.sum(1)[context], (counts > 0).sum(1)[context]
        mixed = (counts[context, byte] + kinds * chance) / np.maximum(total + kinds, 1)
        chance = np.where(total > 0, mixed, chance)
    return -np.log2(chance).mean().item()


def xz_bits(known: bytes, read: bytes) -> float:
    """Bits per byte of one text for xz that has just packed the other, and can look back over all of it."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 1 << 26}]
    alone, both = (len(lzma.compress(text, filters=filters)) for text in (known, known + read))
    return 8 * (both - alone) / len(read)


def baselines(texts: list[str], held_out: list[str]) -> dict[str, float]:
    """Both, kept in RUN: xz takes a minute."""
    if not (RUN / "baselines.json").exists():
        known, read = joined(texts).encode(), joined(held_out).encode()
        (RUN / "baselines.json").write_text(json.dumps(
            {"three": three_byte_bits(known, read), "xz": xz_bits(known, read)}))
    return json.loads((RUN / "baselines.json").read_text())


def draw(rows: list[dict[str, float]]) -> None:
    """training.png: the losses, the second copy's gap and the best induction score, by tokens read."""
    plt.style.use(HERE.parent / "course.mplstyle")
    tokens = [row["tokens"] / 1e6 for row in rows]
    figure, (losses, gap, score) = plt.subplots(3, 1, figsize=(5.2, 7.2), sharex=True)
    losses.plot(tokens, [row["training loss"] for row in rows], "--", label="training, repeats too")
    losses.plot(tokens, [row["held-out loss"] for row in rows], label="held out")
    losses.set(title="Loss", ylabel="nats per token")
    losses.legend()
    gap.plot(tokens, [row["gap of the second copy"] for row in rows], color="C2")
    gap.set(title="Random tokens, read twice:\nwhat the second copy saves", ylabel="nats per token")
    score.plot(tokens, [row["best induction score"] for row in rows], color="C3")
    score.set(title="Best induction score of 48 heads", ylabel="weight, 0 … 1", xlabel="million tokens read",
              ylim=(0, 1))
    for axes in (losses, gap, score):
        at = 0
        for steps, batch, seq, _ in STAGES[:-1]:
            at += steps * batch * seq / 1e6
            axes.axvline(at, color="0.6", linewidth=1)
    figure.savefig(HERE / "training.png", dpi=150)


def write_card(found: dict) -> None:
    """README.md: what the model is, what it was measured at, and what it says, unselected."""
    model = use_torch_kernels(load_pretrained(HERE, dtype=torch.float32))
    tokenizer = load_tokenizer(HERE)
    texts, held_out = found["texts"].values()
    tokens, held_out_tokens = found["tokens"].values()
    with (HERE / "training.csv").open() as file:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    draw(rows)

    guess, loss = math.log(POCKET.vocab_size), evaluate(model, held_out_tokens, POCKET.max_seq_len)
    guess_bits, own_bits = (bits_per_byte(nats, len(held_out_tokens), len(joined(held_out).encode()))
                            for nats in (guess, loss))
    others = baselines(texts, held_out)
    first, second, scores = induction(model, copies=16)
    layer, head = divmod(scores.argmax().item(), POCKET.heads)
    torch.manual_seed(0)
    untrained = induction(Transformer(POCKET), copies=16)[2].max()
    samples, end = [], tokenizer.encode(END)
    for seed, prompt in enumerate(["The for statement", "Return ", "class "]):
        [new] = generate(model, [tokenizer.encode(prompt)], 80, stop=end, temperature=0.8, top_p=0.95,
                         rng=torch.Generator().manual_seed(seed))
        samples.append("```text\n" + prompt + tokenizer.decode(new).rstrip() + "\n```\n")
    (HERE / "README.md").write_text(CARD.format(
        parameters=count_parameters(POCKET), version=".".join(map(str, sys.version_info[:3])),
        packages="\n".join(f"| {package.replace('==', ' ')} | {licence} |"
                           for package, licence in PACKAGES.items()),
        texts=len(texts), characters=sum(map(len, texts)) / 1e6, tokens=len(tokens),
        held_out=len(held_out), held_out_tokens=len(held_out_tokens), vocab=POCKET.vocab_size,
        stages="\n".join(
            f"| {steps:,} | {batch} x {seq} | {steps * batch * seq / 1e6:.2f} million | {100 * share:g} % |"
            for steps, batch, seq, share in STAGES),
        read=rows[-1]["tokens"] / 1e6, share=100 * rows[-1]["tokens"] / len(tokens), peak=PEAK, floor=FLOOR,
        guess=guess, guess_bits=guess_bits, loss=loss, own_bits=own_bits, **others,
        verdict=f"xz needs {'fewer' if others['xz'] < own_bits else 'more'} bits than this model.",
        first=first, second=second, gap=first - second, best=scores.max(), layer=layer, head=head,
        untrained=untrained, scored=16 * 63, samples="\n".join(samples)), "utf-8")


CARD = """\
# The pocket model

A Llama of {parameters:,} parameters, made by this course's own code: chapter 01's tokenizer,
chapter 13's `Transformer(POCKET)`, chapter 14's training. It knows the documentation of Python and of
some packages a little. It is for looking into, not for relying on: what it says about Python is often wrong.

- **Files.** `config.json`, `model.safetensors` (bfloat16), `tokenizer.json`: laid out as Hugging Face
  lays out a Llama, so `transformers` loads this folder too.
- **Data.** Docstrings, and the topics of `help()`, of Python {version} (PSF License) and of the packages
  below, without most marks of reStructuredText: {texts:,} texts of {characters:.1f} million characters, which
  are {tokens:,} tokens of {vocab:,} kinds. `text.py` fetches them with pip.
- **Held out.** One document in 50 and two that the lessons read, `help("formatstrings")` and `shutil`: {held_out:,}
  texts, {held_out_tokens:,} tokens. A document is a module with all its docstrings, or a topic. A paragraph that
  stood before was dropped, and so was each line of the training text that shares 50 characters with what is held out,
  whatever their case and line breaks.

| package | licence |
|---|---|
{packages}

## How it was trained

| steps | sequences x tokens | together | made to repeat |
|---|---|---|---|
{stages}

Together {read:.2f} million tokens, {share:.0f} % of what the text holds. AdamW; the learning rate rises to {peak:g},
stays, and falls to {floor:g} at the end; no dropout; seed 0; products in bfloat16 where the machine is faster at them.

A sequence that is *made to repeat* is one short piece, again and again, until it is full. The piece has from 4
tokens up to half of the sequence. Half of these pieces are the beginning of a stretch of the text; the others are
tokens drawn one by one from all over the text, and their first copy, which nobody could guess, is not learned from.
Such sequences teach a model early what it would learn much later from ordinary text: to look up how something went on
the last time. `training.csv` has what this picture shows; grey lines part the stages. *Held out* is measured there
on 8,192 tokens, 512 at a time: more than the model had ever seen together before the last stage.

![Three curves over the tokens read: the losses in training and on held-out text; by how much the second copy of random
tokens is easier than the first; the best induction score of 48 heads](training.png)

## What it was measured at

| on the held-out text | nats per token | bits per byte |
|---|---|---|
| a guess, ln {vocab:,} | {guess:.2f} | {guess_bits:.2f} |
| a model that guesses each byte from the two before it | | {three:.2f} |
| xz, after it has packed the training text | | {xz:.2f} |
| this model, weights in bfloat16 | {loss:.2f} | {own_bits:.2f} |

Both others have read all of the training text, the model {share:.0f} % as many tokens. xz (LZMA with a window of
64 MiB) can look back over all of it: what counts is by how much its file grows when the held-out text is appended.
zlib could not be asked this; its window is 32 KiB. {verdict}

**Induction.** 16 times 64 random tokens, each 64 read twice: {first:.2f} nats per token the first time,
{second:.2f} the second, {gap:.2f} less. The best head (layer {layer}, head {head}) has an induction score of
{best:.2f} on {scored:,} tokens: so much of its weight goes to the token that followed when its token stood there
before. The best of an untrained model has {untrained:.2f}.

`make pocket` trains it again. A run that is stopped goes on from its last checkpoint. Another version of Python
has other documentation, and so gives another model.

## What it says

The first sample for each prompt (seeds 0, 1, 2; temperature 0.8, top-p 0.95, at most 80 tokens):

{samples}"""


if __name__ == "__main__":
    write_card(torch.load(RUN / "tokens.pt"))
