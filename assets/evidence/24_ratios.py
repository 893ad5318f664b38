"""Runs the experiments that lesson 24 quotes, time with a draft against time without: 24_ratios.csv and 24_round.csv,
and the same for larger targets: 24_large.csv and 24_large_round.csv.

    python assets/evidence/24_ratios.py        (or: make evidence)

One row for each text, seed, draw, draft and k; rows that are there are kept, so a run that was stopped goes on. The
target is the pocket model, at the temperature of the text, and writes NEW tokens. A seed stands for a prompt:
"repeats", a table of three rows that ends in the third, made to repeat itself; "table", the LENGTH tokens in front of
a row of a table in help("formatstrings"), one of the two documents that neither model has read; "mixed", LENGTH tokens
from anywhere in the two, prose, tables and a session; "mixed at 1", the same prompts at temperature 1. A draw stands
for the random numbers. draft: the model of assets/draft, or lookup_draft(3).

passes, drafted, judged, accepted are those of Statistics. speedup: generate's time divided by speculative_generate's.
Times are CPU times, medians of TURNS, in which generate and the two drafts with each k take turns.

24_round.csv tells what a round is made of, for each prompt of "mixed" and each k; 0 is a draft that never guesses. Its
unit is the time in which generate writes a token. v: a pass over k + 1 tokens; c: a guess of the model, between passes
of the target; lookup: what lookup_draft takes in a round; prompt: the pass over the prompt; free: a round whose draft
takes no time, as it always gives the same k tokens. What it takes besides v is bookkeeping.

The larger targets have the pocket model's probabilities: its six blocks, and behind them blocks whose two output
matrices are zero, so that each adds nothing, but is read and computed. blocks: how many in all. The draft is the model
of assets/draft, the text "mixed at 1", with the random numbers of 24_ratios.csv: the passes are the same for each
target, only the times are others. In 24_large.csv a draw is one turn.
"""

import re
import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
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
COLUMNS = ["text", "seed", "draw", "draft", "k", "passes", "drafted", "judged", "accepted", "speedup"]
ROUND, ROUND_COLUMNS = HERE / "24_round.csv", ["seed", "k", "v", "c", "lookup", "prompt", "free"]
LARGE, LARGE_ROUND = HERE / "24_large.csv", HERE / "24_large_round.csv"
LARGE_COLUMNS = ["blocks", "seed", "draw", "k", "passes", "drafted", "judged", "accepted", "speedup"]
DRAFTS, KS, SEEDS, DRAWS, TURNS = ("model", "lookup"), (1, 2, 4, 8), range(5), range(3), 3
TEMPERATURES = {"repeats": 0.7, "table": 0.7, "mixed": 0.7, "mixed at 1": 1.0}
LENGTH, NEW, TIMES, BLOCKS = 64, 64, 16, (6, 18, 66)
SETTINGS = [(text, seed, draw) for draw in DRAWS for seed in SEEDS for text in TEMPERATURES]
LARGE_SETTINGS = [(blocks, seed, draw) for draw in DRAWS for seed in SEEDS for blocks in BLOCKS]
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
def target_of(blocks: int) -> torch.nn.Module:
    """The pocket model, with blocks behind its own that add nothing until there are so many."""
    small = models()["target"]
    target = deepcopy(small)
    with torch.no_grad():
        for n in range(len(small.blocks), blocks):
            block = deepcopy(small.blocks[n % len(small.blocks)])
            block.attention.o_proj.weight.zero_()
            block.feed_forward.down.weight.zero_()
            target.blocks.append(block)
    target.config = replace(small.config, layers=blocks)
    return target


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


def in_turn(*calls: Callable, turns: int) -> list[float]:
    """The median CPU time of each call."""
    took = [[] for _ in calls]
    for _ in range(turns):
        for call, times in zip(calls, took, strict=True):
            start = process_time()
            call()
            times.append(process_time() - start)
    return list(map(median, took))


def reading(model: torch.nn.Module, ids: list[int], new: int) -> Callable:
    """A pass over the last so many of these tokens, the others being in the cache."""
    reader = new_reader(model, len(ids))
    reader(ids, len(ids))
    return lambda: reader(ids, new)


def parts(seed: int) -> list[list[str]]:
    """The rows of 24_round.csv."""
    return parts_of(models()["target"], "mixed", seed, TURNS)


def large_parts(blocks: int, seed: int) -> list[list[str]]:
    """The rows of 24_large_round.csv."""
    return [[str(blocks), *row] for row in parts_of(target_of(blocks), "mixed at 1", seed, TURNS)]


def parts_of(target: torch.nn.Module, name: str, seed: int, turns: int) -> list[list[str]]:
    """What a round with each k is made of."""
    ids, rng, heat = prompt(name, seed), torch.Generator(), TEMPERATURES[name]
    text, reader, rounds = ids + ids[:NEW // 2], new_reader(models()["model"], LENGTH + NEW), {}
    how = Sampling(temperature=heat)
    calls = {"generate": lambda: generate(target, [ids], NEW, rng=rng.manual_seed(0), temperature=heat),
             "prompt": reading(target, ids, LENGTH)}

    def free(k):
        rounds[k] = speculative_generate(target, lambda _, room: (ids[:min(k, room)], None), [ids], NEW, k=max(k, 1),
                                         rng=rng.manual_seed(0), temperature=heat)[1].passes - 1
    for k in (0, *KS):
        calls["free", k] = partial(free, k)
        calls["v", k] = partial(times, reading(target, text, k + 1))
        calls["lookup", k] = partial(times, partial(lookup_draft(3), text, k))
    took = dict(zip(calls, in_turn(*calls.values(), turns=turns), strict=True))
    guesses = {k: between(reading(target, text, k + 1), partial(draft_tokens, text, k, reader, how, rng),
                          turns * TIMES) / k for k in KS} | {0: 0}
    unit = (took["generate"] - took["prompt"]) / (NEW - 1)
    return [[str(seed), str(k), *(f"{part / unit:.4f}" for part in (
        took["v", k] / TIMES, guesses[k], took["lookup", k] / TIMES, took["prompt"],
        (took["free", k] - took["prompt"]) / rounds[k]))] for k in (0, *KS)]


def between(one: Callable, call: Callable, turns: int) -> float:
    """The median CPU time of a call, with one of the others in front of each."""
    took = []
    for _ in range(turns):
        one()
        start = process_time()
        call()
        took.append(process_time() - start)
    return median(took)


def times(call: Callable) -> None:
    for _ in range(TIMES):
        call()


def measure(text: str, seed: int, draw: int) -> list[list[str]]:
    """The rows of both drafts with each k."""
    pairs = [(draft, k) for draft in DRAFTS for k in KS]
    return [[text, str(seed), str(draw), *row] for row in compare(models()["target"], text, seed, draw, pairs, TURNS)]


def large(blocks: int, seed: int, draw: int) -> list[list[str]]:
    """The rows of the draft model with each k, for a target of so many blocks."""
    pairs = [("model", k) for k in KS]
    return [[str(blocks), str(seed), str(draw), *row]
            for _, *row in compare(target_of(blocks), "mixed at 1", seed, draw, pairs, 1)]


def compare(target: torch.nn.Module, text: str, seed: int, draw: int, pairs: list, turns: int) -> list[list[str]]:
    """draft, k, the Statistics and the speedup of each pair of a draft and a k."""
    ids, found = prompt(text, seed), {}
    how = {"max_new_tokens": NEW, "temperature": TEMPERATURES[text]}

    def rng():
        return torch.Generator().manual_seed(seed + len(SEEDS) * draw)

    def drafted(draft, k):
        guesser = models()["model"] if draft == "model" else lookup_draft(3)
        found[draft, k] = speculative_generate(target, guesser, [ids], k=k, rng=rng(), **how)[1]
    alone, *took = in_turn(lambda: generate(target, [ids], rng=rng(), **how),
                           *(partial(drafted, *pair) for pair in pairs), turns=turns)
    return [[draft, str(k), *map(str, found[draft, k]), f"{alone / time:.4f}"]
            for (draft, k), time in zip(pairs, took, strict=True)]


def main() -> None:
    torch.set_num_threads(1)
    table.resume(TABLE, COLUMNS, SETTINGS, measure)
    table.resume(ROUND, ROUND_COLUMNS, [(seed,) for seed in SEEDS], parts)
    table.resume(LARGE, LARGE_COLUMNS, LARGE_SETTINGS, large)
    table.resume(LARGE_ROUND, ["blocks", *ROUND_COLUMNS], [(blocks, seed) for seed in SEEDS for blocks in BLOCKS],
                 large_parts)


if __name__ == "__main__":
    main()
