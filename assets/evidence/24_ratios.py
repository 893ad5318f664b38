"""Runs the experiment that lesson 24 quotes, time with a draft against time without, and writes 24_ratios.csv.

    python assets/evidence/24_ratios.py        (or: make evidence)

One row for each text, seed, draw, draft and k; rows that are there are kept, so a run that was stopped goes on. The
target is the pocket model, at the temperature of the text, and writes NEW tokens. A seed stands for a prompt:
"repeats", a table of three rows that ends in the third, made to repeat itself; "table", the LENGTH tokens in front of
a row of a table in help("formatstrings"), one of the two documents that neither model has read; "prose", LENGTH tokens
of these two; "prose at 1", the same prompts at temperature 1. A draw stands for the random numbers. draft: the model of
assets/draft, or lookup_draft(3).

passes, drafted, judged, accepted are those of Statistics. Times are CPU times, medians of TURNS, in which generate and
the two drafts with each k take turns: speedup, generate's time divided by speculative_generate's; v, a pass over k + 1
tokens, c, a drafted token, and prompt, the pass over the prompt, each divided by a pass over one token.
"""

import re
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from statistics import median
from time import process_time

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.evidence import table  # noqa: E402
from assets.pocket.text import docstrings, plain  # noqa: E402
from given.torch_kernels import use_torch_kernels  # noqa: E402
from solutions.ex15_generation import Sampling, generate  # noqa: E402
from solutions.ex16_pretrained import load_pretrained, load_tokenizer  # noqa: E402
from solutions.ex24_speculative_decoding import (  # noqa: E402
    draft_tokens,
    lookup_draft,
    new_reader,
    speculative_generate,
)

TABLE = HERE / "24_ratios.csv"
COLUMNS = ["text", "seed", "draw", "draft", "k", "passes", "drafted", "judged", "accepted", "speedup", "v", "c",
           "prompt"]
DRAFTS, KS, SEEDS, DRAWS, TURNS = ("model", "lookup"), (1, 2, 4, 8), range(5), range(3), 3
TEMPERATURES = {"repeats": 0.7, "table": 0.7, "prose": 0.7, "prose at 1": 1.0}
LENGTH, NEW = 64, 64
SETTINGS = [(text, seed, draw) for draw in DRAWS for seed in SEEDS for text in TEMPERATURES]
TABLES = ['''\
| "d" | Decimal integer. Outputs the number in base 10. |
| "o" | Octal format. Outputs the number in base 8. |
| "x" | Hex format. Out''', '''\
| "%d" | The day of the month, as a decimal number. |
| "%m" | The month of the year, as a decimal number. |
| "%y" | The year''', '''\
| -a | List all entries. Includes those that are hidden. |
| -l | List the size of all entries. Includes the owner. |
| -r | List all''', '''\
| int | A whole number. The default value is 0. |
| float | A floating point number. The default value is 0.0. |
| str | A str''', '''\
| "r" | Open for reading. Raises an error if the file does not exist. |
| "w" | Open for writing. The file is created if it does not exist. |
| "a" | Open for''']


@cache
def models() -> dict:
    return {name: use_torch_kernels(load_pretrained(HERE.parent / folder, dtype=torch.float32)).eval()
            for name, folder in (("target", "pocket"), ("model", "draft"))}


@cache
def prompt(text: str, seed: int) -> list[int]:
    encode = load_tokenizer(HERE.parent / "pocket").encode
    if text == "repeats":
        return encode(TABLES[seed])
    import shutil
    from pydoc_data.topics import topics
    manual = plain(topics["formatstrings"])
    if text == "table":
        rows = [row.start() for row in re.finditer(r'^ *\| *(?="|space|None)', manual, re.MULTILINE)]
        return encode(manual[:rows[len(rows) * (2 * seed + 1) // (2 * len(SEEDS))]])[-LENGTH:]
    ids = encode("\n\n".join([manual, *docstrings(Path(shutil.__file__).read_bytes())]))
    start = seed * (len(ids) - LENGTH) // len(SEEDS)
    return ids[start:start + LENGTH]


def in_turn(*calls: Callable) -> list[float]:
    """The median CPU time of each call."""
    took = [[] for _ in calls]
    for _ in range(TURNS):
        for call, times in zip(calls, took, strict=True):
            start = process_time()
            call()
            times.append(process_time() - start)
    return list(map(median, took))


def reading(model: str, ids: list[int], new: int) -> Callable:
    """A pass over the last so many of these tokens, the others being in the cache."""
    reader = new_reader(models()[model], len(ids))
    reader(ids, len(ids))
    return lambda: reader(ids, new)


def parts(text: str, k: int, seed: int) -> list[str]:
    """v, c and prompt: how long they take, in passes over one token."""
    how, rng, ids = Sampling(temperature=TEMPERATURES[text]), torch.Generator().manual_seed(0), prompt(text, seed) * 2
    reader = new_reader(models()["model"], len(ids) + k)
    one, several, drafting, whole = in_turn(
        reading("target", ids, 1), reading("target", ids, k + 1), partial(draft_tokens, ids, k, reader, how, rng),
        reading("target", prompt(text, seed), len(prompt(text, seed))))
    return [f"{part / one:.4f}" for part in (several, drafting / k, whole)]


def measure(text: str, seed: int, draw: int) -> list[list[str]]:
    """The rows of both drafts with each k."""
    target, ids, found = models()["target"], prompt(text, seed), {}
    how = {"max_new_tokens": NEW, "temperature": TEMPERATURES[text]}

    def rng():
        return torch.Generator().manual_seed(seed + len(SEEDS) * draw)

    def drafted(draft, k):
        guesser = models()["model"] if draft == "model" else lookup_draft(3)
        found[draft, k] = speculative_generate(target, guesser, [ids], k=k, rng=rng(), **how)[1]
    pairs = [(draft, k) for draft in DRAFTS for k in KS]
    alone, *times = in_turn(lambda: generate(target, [ids], rng=rng(), **how),
                            *(partial(drafted, *pair) for pair in pairs))
    several = {k: parts(text, k, seed) for k in KS}
    return [[text, str(seed), str(draw), draft, str(k), *map(str, found[draft, k]), f"{alone / time:.4f}", *several[k]]
            for (draft, k), time in zip(pairs, times, strict=True)]


def main() -> None:
    torch.set_num_threads(1)
    table.resume(TABLE, COLUMNS, SETTINGS, measure)


if __name__ == "__main__":
    main()
