"""Runs the experiment that lesson 24 quotes, tokens a pass against k and temperature, and writes 24_speculation.csv.

    python assets/evidence/24_speculation.py        (or: make evidence)

One row for each draft, temperature, k and seed; rows that are there are kept, so a run that was stopped goes on. The
target is the pocket model; the drafts are the model of assets/draft, and prompt lookup with n = 3. A seed stands for
PROMPTS places of the two documents that neither model has read, help("formatstrings") and shutil (another Python has
other texts, and so gives slightly other numbers), and for the random numbers. A prompt is continued by NEW tokens.

passes, drafted, judged and accepted are those of Statistics; tokens: how many were written. rate is what predicts:
the mean of the sum of min(p, q) over NEW tokens that the target alone wrote behind the same prompts, with one pass of
each model over them. by place: 1 + a₁ + a₁a₂ + … + a₁…a_k with the rates that follow each other in that text, its mean.
Prompt lookup has no q: there rate is the chance of its guess, and by place is left empty.
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
    lookup_draft,
    prompt_lookup,
    sampling_probs,
    speculative_generate,
)

TABLE = HERE / "24_speculation.csv"
COLUMNS = ["draft", "temperature", "k", "seed", "tokens", "passes", "drafted", "judged", "accepted", "rate", "by place"]
TEMPERATURES, KS, SEEDS = {"model": (0, 0.5, 1), "lookup": (0, 1)}, (1, 2, 4, 8), range(5)
SETTINGS = [(name, temperature, k, seed) for name, chosen in TEMPERATURES.items() for seed in SEEDS
            for temperature in chosen for k in KS]
PROMPTS, LENGTH, NEW = 1, 48, 64


@cache
def models() -> dict:
    return {name: use_torch_kernels(load_pretrained(HERE.parent / folder, dtype=torch.float32)).eval()
            for name, folder in (("target", "pocket"), ("model", "draft"))}


@cache
def held_out() -> list[int]:
    """The tokens of the two documents that neither model has read."""
    import shutil
    from pydoc_data.topics import topics
    texts = [plain(topics["formatstrings"]), *docstrings(Path(shutil.__file__).read_bytes())]
    return load_tokenizer(HERE.parent / "pocket").encode("\n\n".join(texts))


def prompts(seed: int) -> list[list[int]]:
    """PROMPTS prompts of LENGTH tokens, those of the seeds spread evenly over the text."""
    ids, count = held_out(), PROMPTS * len(SEEDS)
    starts = [(seed + len(SEEDS) * i) * (len(ids) - LENGTH) // count for i in range(PROMPTS)]
    return [ids[start:start + LENGTH] for start in starts]


@cache
@torch.no_grad()
def rates(name: str, temperature: float, seed: int) -> torch.Tensor:
    """The chance that a draft is accepted in each place of what the target alone writes: (PROMPTS, NEW)."""
    target, how, given = models()["target"], Sampling(temperature=temperature), prompts(seed)
    new = generate(target, given, NEW, rng=torch.Generator().manual_seed(100 + seed), temperature=temperature)
    texts = [prompt + more for prompt, more in zip(given, new, strict=True)]
    ids = torch.tensor(texts)[:, :-1]

    def probs(model):
        logits = model(ids)[:, LENGTH - 1:]
        return sampling_probs(logits.flatten(0, 1), [[]] * logits[..., 0].numel(), how).view(PROMPTS, NEW, -1)

    p = probs(target)
    if name == "model":
        return acceptance_rate(p, probs(models()[name]))
    guesses = [[prompt_lookup(text[:LENGTH + i], 3, 1) for i in range(NEW)] for text in texts]
    return torch.tensor([[p[row, i, guess[0]].item() if guess else 0.0 for i, guess in enumerate(those)]
                         for row, those in enumerate(guesses)])


def by_place(rate: torch.Tensor, k: int) -> float:
    """The mean of 1 + a₁ + a₁a₂ + … over all places with k more behind them."""
    return 1 + rate.unfold(-1, k, 1).cumprod(-1).sum(-1).mean().item()


def measure(name: str, temperature: float, k: int, seed: int) -> list[str]:
    draft = models()[name] if name == "model" else lookup_draft(3)
    new, found = speculative_generate(models()["target"], draft, prompts(seed), NEW, k=k, temperature=temperature,
                                      rng=torch.Generator().manual_seed(seed))
    rate = rates(name, temperature, seed)
    return [name, str(temperature), str(k), str(seed), str(sum(map(len, new))), *map(str, found),
            f"{rate.mean():.4f}", f"{by_place(rate, k):.4f}" if name == "model" else ""]


def main() -> None:
    torch.set_num_threads(1)
    table.resume(TABLE, COLUMNS, SETTINGS, lambda *setting: [measure(*setting)])


if __name__ == "__main__":
    main()
