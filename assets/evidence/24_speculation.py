"""Runs the experiment that lesson 24 quotes, tokens a pass against k and temperature, and writes 24_speculation.csv.

    python assets/evidence/24_speculation.py        (or: make evidence)

One row for each temperature, k and seed; rows that are there are kept, so a run that was stopped goes on. The target
is the pocket model, the draft the model of assets/draft. A seed stands for a place of the two documents that neither
has read, help("formatstrings") and shutil (another Python has other texts, and so gives slightly other numbers), and
for the random numbers. The LENGTH tokens there are continued by NEW.

passes, drafted, judged and accepted are those of Statistics; tokens: how many were written. rate is what predicts:
the mean of the sum of min(p, q) over NEW tokens that the target alone wrote behind the same prompt, with one pass of
each model over them. by place: 1 + a₁ + a₁a₂ + … + a₁…a_k with the rates that follow each other in that text, its mean.
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
from solutions.ex15_generation import Sampling, generate  # noqa: E402
from solutions.ex16_pretrained import load_pretrained, load_tokenizer  # noqa: E402
from solutions.ex24_speculative_decoding import (  # noqa: E402
    acceptance_rate,
    sampling_probs,
    speculative_generate,
)

TABLE = HERE / "24_speculation.csv"
COLUMNS = ["temperature", "k", "seed", "tokens", "passes", "drafted", "judged", "accepted", "rate", "by place"]
TEMPERATURES, KS, SEEDS = (0, 0.5, 1), (1, 2, 4, 8), range(5)
SETTINGS = [(temperature, k, seed) for seed in SEEDS for temperature in TEMPERATURES for k in KS]
LENGTH, NEW = 48, 64


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


@cache
@torch.no_grad()
def rates(temperature: float, seed: int) -> torch.Tensor:
    """The chance that a draft is accepted in each place of what the target alone writes: (NEW,)."""
    how, rng = Sampling(temperature=temperature), torch.Generator().manual_seed(100 + seed)
    [new] = generate(models()["target"], [prompt(seed)], NEW, rng=rng, temperature=temperature)
    ids = torch.tensor([prompt(seed) + new])[:, :-1]
    p, q = (sampling_probs(models()[name](ids)[0, LENGTH - 1:], [[]] * NEW, how) for name in ("target", "draft"))
    return acceptance_rate(p, q)


def by_place(rate: torch.Tensor, k: int) -> float:
    """The mean of 1 + a₁ + a₁a₂ + … over all places with k more behind them."""
    return 1 + rate.unfold(-1, k, 1).cumprod(-1).sum(-1).mean().item()


def measure(temperature: float, k: int, seed: int) -> list[str]:
    target, draft = models().values()
    [new], found = speculative_generate(target, draft, [prompt(seed)], NEW, k=k, temperature=temperature,
                                        rng=torch.Generator().manual_seed(seed))
    rate = rates(temperature, seed)
    return [str(temperature), str(k), str(seed), str(len(new)), *map(str, found), f"{rate.mean():.4f}",
            f"{by_place(rate, k):.4f}"]


def main() -> None:
    torch.set_num_threads(1)
    table.resume(TABLE, COLUMNS, SETTINGS, lambda *setting: [measure(*setting)])


if __name__ == "__main__":
    main()
