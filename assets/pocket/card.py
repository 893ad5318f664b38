"""Writes the pocket model's card, README.md, and draws how its training went, training.png.

    python assets/pocket/card.py        once train.py has ended (make pocket runs one after the other)
"""

import csv
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
    GLANCE,
    PEAK,
    RUN,
    STAGES,
    induction,
    joined,
)
from given.torch_kernels import use_torch_kernels  # noqa: E402
from solutions.ex13_transformer import POCKET, Transformer, count_parameters  # noqa: E402
from solutions.ex14_training import bits_per_byte, evaluate  # noqa: E402
from solutions.ex15_generation import generate  # noqa: E402
from solutions.ex16_pretrained import load_pretrained, load_tokenizer  # noqa: E402


def n_gram_bits(known: bytes, read: bytes, longest: int) -> list[float]:
    """Bits per byte of models that know how often each byte followed the 0, 1 … longest before it.

    Each model's counts are mixed with those of the one before, by Witten and Bell's weights (1991).
    """
    known, read = (np.frombuffer(text, np.uint8).astype(np.int64) for text in (known, read))
    chance, bits = np.full(len(read) - longest, 1 / 256), []
    for before in range(longest + 1):
        def number(text):                        # of each byte with those before it, from number `longest` on
            return sum(text[longest - i:len(text) - i] * 256**i for i in range(before + 1))

        def found(numbers, counts, asked):
            at = np.searchsorted(numbers, asked).clip(max=len(numbers) - 1)
            return np.where(numbers[at] == asked, counts[at], 0)
        followed, times = np.unique(number(known), return_counts=True)
        contexts, first, kinds = np.unique(followed // 256, return_index=True, return_counts=True)
        asked = number(read)
        total, kinds = (found(contexts, counts, asked // 256)
                        for counts in (np.add.reduceat(times, first), kinds))
        mixed = (found(followed, times, asked) + kinds * chance) / np.maximum(total + kinds, 1)
        chance = np.where(total > 0, mixed, chance)
        bits.append(-np.log2(chance).mean().item())
    return bits


def xz_bits(known: bytes, read: bytes) -> float:
    """Bits per byte of one text for xz that has just packed the other, and can look back over all of it."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 1 << 26}]
    alone, both = (len(lzma.compress(text, filters=filters)) for text in (known, known + read))
    return 8 * (both - alone) / len(read)


def measured_induction(model: Transformer) -> dict[str, float]:
    """The head with the best score on one seed, and on five others its score and the losses of both copies."""
    found = induction(model, copies=16)[2].argmax().item()
    runs = [(first, second, scores.flatten()[found].item())
            for first, second, scores in (induction(model, copies=16, seed=seed) for seed in range(2, 7))]
    names = ("first", "second", "score")
    return {"layer": found // POCKET.heads, "head": found % POCKET.heads,
            **dict(zip(names, np.mean(runs, axis=0).tolist(), strict=True)),
            **dict(zip((f"{name}_sd" for name in names), np.std(runs, axis=0, ddof=1).tolist(), strict=True))}


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

    known, read = (joined(part).encode() for part in (texts, held_out))
    guess, loss = math.log(POCKET.vocab_size), evaluate(model, held_out_tokens, POCKET.max_seq_len)
    guess_bits, own_bits = (bits_per_byte(nats, len(held_out_tokens), len(read))
                            for nats in (guess, loss))
    xz, n_grams = xz_bits(known, read), n_gram_bits(known, read, longest=6)
    torch.manual_seed(0)
    untrained = measured_induction(Transformer(POCKET))["score"]
    samples, end = [], tokenizer.encode(END)
    for seed, prompt in enumerate(["The for statement", "Return ", "class "]):
        [new] = generate(model, [tokenizer.encode(prompt)], 80, stop=end, temperature=0.8, top_p=0.95,
                         rng=torch.Generator().manual_seed(seed))
        samples.append("```text\n" + prompt + tokenizer.decode(new).rstrip() + "\n```\n")
    (HERE / "README.md").write_text(CARD.format(
        parameters=count_parameters(POCKET), shape=POCKET, glance=GLANCE,
        version=".".join(map(str, sys.version_info[:3])),
        packages="\n".join(f"| {package.replace('==', ' ')} | {licence} |"
                           for package, licence in PACKAGES.items()),
        texts=len(texts), characters=sum(map(len, texts)) / 1e6, tokens=len(tokens),
        held_out=len(held_out), held_out_tokens=len(held_out_tokens), vocab=POCKET.vocab_size,
        stages="\n".join(
            f"| {steps:,} | {batch} x {seq} | {steps * batch * seq / 1e6:.2f} million | {100 * share:g} % |"
            for steps, batch, seq, share in STAGES),
        read=rows[-1]["tokens"] / 1e6, share=100 * rows[-1]["tokens"] / len(tokens), peak=PEAK, floor=FLOOR,
        guess=guess, guess_bits=guess_bits, loss=loss, own_bits=own_bits, xz=xz, n_grams=n_grams,
        verdict=f"xz needs {'fewer' if xz < own_bits else 'more'} bits than this model.",
        **measured_induction(model), untrained=untrained, samples="\n".join(samples)), "utf-8")


CARD = """\
# The pocket model

A Llama of {parameters:,} parameters, made by this course's own code: lesson 01's tokenizer,
lesson 13's `Transformer(POCKET)`, lesson 14's training. It has {shape.layers} layers of {shape.d_model} features,
{shape.heads} heads that share {shape.kv_heads} key/value heads, and reads at most {shape.max_seq_len} tokens. It writes
in the manner of Python's documentation, and makes up what it says: see the samples below. It is for looking into,
not for relying on.

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

Together {read:.2f} million tokens with the repeats, {share:.0f} % of what the text holds. AdamW; the learning rate
rises to {peak:g}, stays, and falls to {floor:g} at the end; no dropout; seed 0; products in bfloat16 where the machine
is faster at them.

A sequence that is *made to repeat* is one short piece, again and again, until it is full. The piece has from 4
tokens up to half of the sequence. Half of these pieces are the beginning of a stretch of the text; the others are
tokens drawn one by one from all over the text, and their first copy, which nobody could guess, is not learned from.
Such sequences are there to teach the model to look up how something went on the last time (*induction*). Larger models
learn it from ordinary text, after some billions of tokens
([Olsson et al., 2022](https://arxiv.org/abs/2209.11895)); this one read {read:.0f} million.

`training.csv` has what this picture shows; grey lines part the stages. *Held out* is measured there on {glance:,}
tokens, {shape.max_seq_len} at a time: more than the model had ever seen together before the last stage. The random
tokens are 4 times 64, the same for every row; the best head is the best on these.

![Three curves over the tokens read: the losses in training and on held-out text; by how much the second copy of random
tokens is easier than the first; the best induction score of 48 heads](training.png)

## What it was measured at

| on the held-out text | nats per token | bits per byte |
|---|---|---|
| a guess, ln {vocab:,} | {guess:.2f} | {guess_bits:.2f} |
| a model that guesses each byte from the two before it | | {n_grams[2]:.2f} |
| the same, from the five before it | | {n_grams[5]:.2f} |
| xz, after it has packed the training text | | {xz:.2f} |
| this model, weights in bfloat16 | {loss:.2f} | {own_bits:.2f} |

The model reads the held-out text in pieces of {shape.max_seq_len} tokens; it has read {share:.0f} % as many tokens as
the training text has. xz and those that guess bytes have read all of that text once. The latter have counted how often
each byte followed, and mix this with the counts after fewer bytes (Witten and Bell, 1991); from six bytes it is
{n_grams[6]:.2f}. xz (LZMA, its strongest preset, a window of 64 MiB) can look back over all of the text: what counts is
by how much its file grows when the held-out text is appended. zlib could not be asked this; its window is 32 KiB.
{verdict}

**Induction.** 16 times 64 random tokens, each 64 read twice, for each of five seeds, mean ± standard deviation over
the seeds: {first:.2f} ± {first_sd:.2f} nats per token the first time, {second:.2f} ± {second_sd:.2f} the second. The
first time nobody could guess them, and a model that expects text does worse than the guess above. The second time
they are far easier than a guess, and far from certain. The head with the best *induction score* on another seed
(layer {layer}, head {head}, counted from 0) has {score:.2f} ± {score_sd:.2f} on these: so much of its weight goes, in
the second copy, to the token that followed in the first. The best head of an untrained model, found likewise, has
{untrained:.2f}.

`make pocket` trains it again. A run that is stopped goes on from its last checkpoint. Another version of Python
has other documentation, and so gives another model.

## What it says

The first sample for each prompt (seeds 0, 1, 2; temperature 0.8, top-p 0.95, at most 80 tokens):

{samples}"""


if __name__ == "__main__":
    write_card(torch.load(RUN / "tokens.pt"))
