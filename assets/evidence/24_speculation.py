"""Runs the experiment that lesson 24 quotes, tokens a pass against k and temperature, and writes 24_speculation.csv.

    python assets/evidence/24_speculation.py        (or: make evidence)

One row for each temperature, k, seed and draw; rows that are there are kept, so a run that was stopped goes on. The
target is the pocket model, the draft the model of assets/draft. A seed stands for a place of the two documents that
neither has read, help("formatstrings") and shutil (another Python has other texts, and so gives slightly other
numbers), whose LENGTH tokens are continued by NEW; a draw, for the random numbers (one is enough at temperature 0;
at 1, where they decide most, it takes 16).

passes, drafted, judged and accepted are those of Statistics; tokens: how many were written. rate is what predicts: the
mean of the sum of min(p, q) over the tokens that were written, with one pass of each model over them. LENGTH and NEW
are as many tokens as the draft was taught on at a time; farther on it guesses worse.
"""

import sys
from functools import cache
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.evidence import table  # noqa: E402
from assets.pocket.text import docstrings, plain  # noqa: E402
from given.torch_kernels import use_torch_kernels  # noqa: E402
from solutions.ex15_generation import Sampling  # noqa: E402
from solutions.ex16_pretrained import load_pretrained, load_tokenizer  # noqa: E402
from solutions.ex24_speculative_decoding import (  # noqa: E402
    acceptance_rate,
    sampling_probs,
    speculative_generate,
)

TABLE = HERE / "24_speculation.csv"
COLUMNS = ["temperature", "k", "seed", "draw", "tokens", "passes", "drafted", "judged", "accepted", "rate"]
KS, SEEDS, DRAWS = (1, 2, 4, 8), range(5), {0: 1, 0.5: 3, 1: 16}       # draws at each temperature
SETTINGS = [(temperature, k, seed, draw) for draw in range(max(DRAWS.values())) for seed in SEEDS
            for temperature, draws in DRAWS.items() for k in KS if draw < draws]
LENGTH, NEW = 48, 80


@cache
def models() -> dict:
    return {name: use_torch_kernels(load_pretrained(HERE.parent / folder, dtype=torch.float32)).eval()
            for name, folder in (("target", "pocket"), ("draft", "draft"))}


@cache
def held_out() -> list[int]:
    """The tokens of the two documents that neither model has read."""
    import shutil
    from pydoc_data.topics import topics
    texts = [plain(topics["formatstrings"]), *docstrings(Path(shutil.__file__).read_bytes())]
    return load_tokenizer(HERE.parent / "pocket").encode("\n\n".join(texts))


def prompt(seed: int) -> list[int]:
    """LENGTH tokens of the text; those of the seeds are spread evenly over it."""
    ids = held_out()
    start = seed * (len(ids) - LENGTH) // len(SEEDS)
    return ids[start:start + LENGTH]


@torch.no_grad()
def rate(temperature: float, seed: int, new: list[int]) -> float:
    """The chance that a guess is kept, over all places of what was written."""
    how, ids = Sampling(temperature=temperature), torch.tensor([prompt(seed) + new])[:, :-1]
    p, q = (sampling_probs(models()[name](ids)[0, LENGTH - 1:], [[]] * NEW, how) for name in ("target", "draft"))
    return acceptance_rate(p, q).mean().item()


def measure(temperature: float, k: int, seed: int, draw: int) -> list[str]:
    [new], found = speculative_generate(*models().values(), [prompt(seed)], NEW, k=k, temperature=temperature,
                                        rng=torch.Generator().manual_seed(seed + len(SEEDS) * draw))
    return [*map(str, (temperature, k, seed, draw, len(new), *found)), f"{rate(temperature, seed, new):.4f}"]


def main() -> None:
    torch.set_num_threads(1)
    table.resume(TABLE, COLUMNS, SETTINGS, lambda *setting: [measure(*setting)])


if __name__ == "__main__":
    main()
