"""Runs the experiment that lesson 24 quotes, time with a draft against time without, and writes 24_ratios.csv.

    python assets/evidence/24_ratios.py        (or: make evidence)

One row for each text, draft, k and seed; rows that are there are kept, so a run that was stopped goes on. The target is
the pocket model, at the temperature of the text, and writes NEW tokens. A seed stands for the random numbers and for a
prompt: "table", a table of three rows that ends in the third, as manuals have them; "prose", LENGTH tokens of the
documents that neither model has read; "prose at 1", the same prompts at temperature 1. draft: the model of
assets/draft, or lookup_draft(3).

passes, drafted, judged, accepted are those of Statistics. Times are CPU times, medians of TURNS, in which the three
take turns: speedup, generate's time divided by speculative_generate's; v, a pass over k + 1 tokens, c, a drafted token,
and prompt, the pass over the prompt, each divided by a pass over one token.
"""

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
COLUMNS = ["text", "draft", "k", "seed", "passes", "drafted", "judged", "accepted", "speedup", "v", "c", "prompt"]
KS, SEEDS, TURNS = (1, 2, 4, 8), range(5), 3
TEMPERATURES = {"table": 0.7, "prose": 0.7, "prose at 1": 1.0}
LENGTH, NEW = 64, 64
SETTINGS = [(text, draft, k, seed) for texts in (("table", "prose"), ("prose at 1",)) for seed in SEEDS
            for text in texts for draft in ("model", "lookup") for k in KS]
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
    if text == "table":
        return encode(TABLES[seed])
    import shutil
    from pydoc_data.topics import topics
    ids = encode("\n\n".join([plain(topics["formatstrings"]), *docstrings(Path(shutil.__file__).read_bytes())]))
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


def measure(text: str, draft: str, k: int, seed: int) -> list[str]:
    target, ids, found = models()["target"], prompt(text, seed), []
    guesser = models()["model"] if draft == "model" else lookup_draft(3)

    def alone():
        generate(target, [ids], NEW, rng=torch.Generator().manual_seed(seed), temperature=TEMPERATURES[text])

    def drafted():
        found.append(speculative_generate(target, guesser, [ids], NEW, k=k, temperature=TEMPERATURES[text],
                                          rng=torch.Generator().manual_seed(seed))[1])
    slow, fast = in_turn(alone, drafted)
    return [text, draft, str(k), str(seed), *map(str, found[0]), f"{slow / fast:.4f}", *parts(text, k, seed)]


def main() -> None:
    torch.set_num_threads(1)
    table.resume(TABLE, COLUMNS, SETTINGS, lambda *setting: [measure(*setting)])


if __name__ == "__main__":
    main()
