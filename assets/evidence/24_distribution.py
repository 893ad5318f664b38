"""Runs the test that lesson 24 quotes, of the distribution of drafted text, and writes 24_distribution.csv.

    python assets/evidence/24_distribution.py        (or: make evidence)

One row for each draft and seed; rows that are there are kept, so a run that was stopped goes on. The target is the
pocket model, by HOW after PROMPT; it writes three tokens DRAWS times. With k = 2 the first pass guesses two, and the
third may be its bonus token. draft: the model of assets/draft, lookup_draft(3), and the model with one mistake: "drawn
from p", where after a rejection the target's whole row is drawn from; "no filter", where the draft draws by the filter
but tells the row without it; "draft's bonus", where the bonus token is drawn from the draft's last row.

chi squared: Pearson's, over the triples of tokens that the target can say, with their exact chances; cells: how many
triples, those of fewer than 5 expected taken together. accepted and judged are those of Statistics.
"""

import sys
from collections import Counter
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from unittest import mock

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.evidence import table  # noqa: E402
from given.torch_kernels import use_torch_kernels  # noqa: E402
from solutions import ex24_speculative_decoding as ex24  # noqa: E402
from solutions.ex15_generation import Sampling  # noqa: E402
from solutions.ex16_pretrained import load_pretrained, load_tokenizer  # noqa: E402

TABLE = HERE / "24_distribution.csv"
COLUMNS = ["draft", "seed", "draws", "cells", "chi squared", "accepted", "judged"]
DRAFTS, SEEDS, DRAWS = ("model", "lookup", "drawn from p", "no filter", "draft's bonus"), range(5), 1000
PROMPT = "The for statement is used to iterate over the elements of a sequence. The for statement"
HOW = {"temperature": 0.8, "top_k": 4}
SETTINGS = [(draft, seed) for draft in DRAFTS for seed in SEEDS if not seed or draft in ("model", "lookup")]


@cache
def models() -> tuple:
    return tuple(use_torch_kernels(load_pretrained(HERE.parent / folder, dtype=torch.float32)).eval()
                 for folder in ("pocket", "draft"))


@cache
def prompt() -> list[int]:
    return load_tokenizer(HERE.parent / "pocket").encode(PROMPT)


@cache
@torch.no_grad()
def chances() -> dict[tuple[int, ...], float]:
    """The chance of each triple of tokens that the target alone can say."""
    found = {(): 1.0}
    for _ in range(3):
        rows = {new: ex24.sampling_probs(models()[0](torch.tensor([[*prompt(), *new]]))[0, -1:], [[]],
                                         Sampling(**HOW))[0] for new in found}
        found = {(*new, one): found[new] * row[one].item() for new, row in rows.items()
                 for one in row.nonzero()[:, 0].tolist()}
    return found


def chi_squared(seen: Counter) -> tuple[int, float]:
    """(cells, Pearson's chi-squared); a triple that cannot come is an infinity."""
    rare = {new for new, chance in chances().items() if DRAWS * chance < 5}
    cells = [(seen[new], DRAWS * chance) for new, chance in chances().items() if new not in rare]
    cells.append((sum(seen[new] for new in rare), DRAWS * sum(chances()[new] for new in rare)))
    if set(seen) - set(chances()):
        return len(cells), float("inf")
    return len(cells), sum((count - expected) ** 2 / expected for count, expected in cells)


@contextmanager
def mistake(name: str):
    """With one line of the chapter wrong."""
    right = ex24.draft_tokens

    def told_without_filter(ids, k, reader, sampling, rng=None):
        tokens, _ = right(ids, k, reader, sampling, rng)
        bare = Sampling(temperature=sampling.temperature)
        texts = [ids + tokens[:i] for i in range(k)]
        return tokens, ex24.sampling_probs(reader(ids + tokens[:-1], k), texts, bare)

    def draws_the_bonus(draft_ids, draft_probs, target_probs, rng=None):
        last = draft_probs if len(draft_probs) else target_probs
        return accept(draft_ids, draft_probs, torch.cat([target_probs[:-1], last[-1:]]), rng)
    accept = ex24.accept
    wrong = {"drawn from p": ("residual", lambda target_probs, draft_probs: target_probs),
             "no filter": ("draft_tokens", told_without_filter), "draft's bonus": ("accept", draws_the_bonus)}
    if name in wrong:
        with mock.patch.object(ex24, *wrong[name]):
            yield
    else:
        yield


def measure(draft: str, seed: int) -> list[str]:
    (target, small), rng = models(), torch.Generator().manual_seed(seed)
    guesser = ex24.lookup_draft(3) if draft == "lookup" else small
    with mistake(draft):
        new, found = ex24.speculative_generate(target, guesser, [prompt()] * DRAWS, 3, k=2, rng=rng, **HOW)
    cells, found_chi = chi_squared(Counter(tuple(text) for text in new))
    return [draft, str(seed), str(DRAWS), str(cells), f"{found_chi:.2f}", str(found.accepted), str(found.judged)]


def main() -> None:
    torch.set_num_threads(1)
    table.resume(TABLE, COLUMNS, SETTINGS, lambda *setting: [measure(*setting)])


if __name__ == "__main__":
    main()
