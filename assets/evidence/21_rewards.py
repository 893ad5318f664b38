"""A small model that learns to sort: from examples, from rewards, from a reward that can be fooled, from pairs.

    python assets/evidence/21_rewards.py        writes 21_rewards.csv and 21_pairs.csv, resumable

Five seeds; each trains a base model of its own, then starts every run from it.

What was tuned: of the pairs the learning rate alone, over PAIR_RATES for each kind of pairs, by the share of held-out
questions that is right at the last step, from all five seeds. The rewards are compared at one rate.
"""

import copy
import functools
import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.evidence import table  # noqa: E402
from solutions.ex13_transformer import Transformer  # noqa: E402
from solutions.ex14_training import AdamW, clip_grad_norm, learning_rate, train_step  # noqa: E402
from solutions.ex21_preferences import (  # noqa: E402
    SORTER,
    Rollouts,
    dpo_loss,
    exact_reward,
    group_advantages,
    grpo_step,
    kl_estimates,
    rollouts,
    sequence_log_probs,
    token_log_probs,
)

REWARDS, PAIRS = HERE / "21_rewards.csv", HERE / "21_pairs.csv"
REWARD_COLUMNS = ["run", "seed", "step", "reward", "right", "kl", "length"]
PAIR_COLUMNS = ["pairs", "rate", "seed", "step", "chosen", "rejected", "right"]
SEEDS = range(5)
ASK, END, DIGITS, LONGEST = 10, 11, 4, 10       # "3 1 2 1 ? 1 1 2 3 ." and room for longer answers
EXAMPLE_STEPS, PROMPTS, GROUP, EVERY = 400, 32, 8, 5
PAIR_STEPS, PAIR_BATCH, OWN_BATCH = 40, 64, 32
PAIR_RATES = {"opposites": (5e-5, 1e-4, 2e-4, 5e-4), "by base": (5e-5, 1e-4, 2e-4),
              "by the model": (2e-4, 5e-4, 1e-3)}


ALL = torch.cartesian_prod(*[torch.arange(10)] * DIGITS)
HELD = ALL.sum(-1) % 5 == 0                     # no order of these digits is ever trained on


def questions(count: int, rng: torch.Generator, held: bool = False) -> torch.Tensor:
    """count of the 10,000 questions; those whose digits add up to a multiple of 5 are held out."""
    pool = ALL[HELD] if held else ALL[~HELD]
    return pool[torch.randint(len(pool), (count,), generator=rng)]


def prompts_of(asked: torch.Tensor) -> list[list[int]]:
    return [row + [ASK] for row in asked.tolist()]


def as_text(asked: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
    """Question, the sign that asks, answer, end: a row each."""
    count = len(asked)
    return torch.cat([asked, torch.full((count, 1), ASK), answers, torch.full((count, 1), END)], dim=1)


def examples(count: int, rng: torch.Generator) -> torch.Tensor:
    """Worked examples by people of three habits: of four, one sorts upward, one downward, two repeat."""
    asked, habit = questions(count, rng), torch.rand(count, 1, generator=rng)
    downward = asked.sort(-1, descending=True).values
    answers = torch.where(habit < 0.25, asked.sort(-1).values, torch.where(habit < 0.5, downward, asked))
    return as_text(asked, answers)


def base_model(seed: int) -> Transformer:
    """Trained on examples of all three habits."""
    torch.manual_seed(seed)
    model, rng = Transformer(SORTER), torch.Generator().manual_seed(seed)
    optimizer = AdamW(model.parameters(), lr=0.0, betas=(0.9, 0.95), weight_decay=0.0)
    for step in range(EXAMPLE_STEPS):
        optimizer.param_groups[0]["lr"] = learning_rate(step, 20, EXAMPLE_STEPS, 4e-3, 4e-4)
        ids = examples(64, rng)
        targets = ids[:, 1:].clone()
        targets[:, :DIGITS] = -100              # the question is given, not learnt
        train_step(model, optimizer, [(ids[:, :-1], targets)])
    return model


def right(model: Transformer, count: int = 300) -> float:
    """The share of held-out questions whose drawn answer is sorted upward."""
    rng = torch.Generator().manual_seed(1000)
    asked = questions(count, rng, held=True)
    rolled = rollouts(model, prompts_of(asked), 1, LONGEST, END, rng)
    return exact_reward(rolled, asked.sort(-1).values.tolist()).mean().item()


def true_reward(rolled: Rollouts, asked: torch.Tensor) -> torch.Tensor:
    return exact_reward(rolled, asked.sort(-1).values.tolist())


def proxy_reward(rolled: Rollouts, asked: torch.Tensor) -> torch.Tensor:
    """A point for each neighbouring pair in order: the right answer gets 3. It never looks at the question."""
    points = [sum(a <= b for a, b in zip(answer, answer[1:])) for answer in rolled.answers]
    return torch.tensor(points, dtype=torch.float32).reshape(len(asked), -1)


RUNS = {"true reward": (true_reward, 60, 0.0), "proxy": (proxy_reward, 40, 0.0),               # reward, steps, beta
        "proxy, beta 0.3": (proxy_reward, 40, 0.3), "proxy, beta 1": (proxy_reward, 40, 1.0)}


def train(base: Transformer, reward, seed: int, steps: int, beta: float = 0.0):
    """GRPO from base. Yields (step, mean reward, share right on held-out, KL an answer, length) every EVERY."""
    model, rng = copy.deepcopy(base), torch.Generator().manual_seed(seed)
    optimizer = AdamW(model.parameters(), lr=0.0, betas=(0.9, 0.95), weight_decay=0.0)
    for step in range(steps + 1):
        optimizer.param_groups[0]["lr"] = learning_rate(step, 5, 60, 1e-3, 1e-4)
        asked = questions(PROMPTS, rng)
        rolled = rollouts(model, prompts_of(asked), GROUP, LONGEST, END, rng)
        rewards = reward(rolled, asked)
        if step % EVERY == 0:
            with torch.no_grad():
                now, start = (token_log_probs(m(rolled.ids), rolled.ids) for m in (model, base))
            k1 = kl_estimates(now, start)[0].masked_fill(~rolled.mask[:, 1:], 0).sum(-1).mean().item()
            length = sum(map(len, rolled.answers)) / len(rolled.answers)
            yield step, rewards.mean().item(), right(model), k1, length
        if step < steps:
            grpo_step(model, optimizer, rolled, group_advantages(rewards), base if beta else None, beta=beta)


def opposites(count: int, rng: torch.Generator, held: bool):
    """Questions with a better answer, sorted upward, and a worse one, sorted downward: ids of both, a row each."""
    asked = questions(count, rng, held)
    better = asked.sort(-1).values
    worse = better.flip(-1)
    differ = (better != worse).any(-1)
    return as_text(asked, better)[differ], as_text(asked, worse)[differ]


def own_pairs(model: Transformer, count: int, rng: torch.Generator):
    """Of count questions a right and a wrong answer that the model wrote: ids of both, a row each."""
    asked = questions(2 * count, rng)
    rolled = rollouts(model, prompts_of(asked), GROUP, DIGITS + 1, END, rng)
    good = true_reward(rolled, asked).bool()
    whole = torch.tensor([len(answer) == DIGITS for answer in rolled.answers])
    bad = ~good & whole.view(good.shape)
    rows = (good.any(-1) & bad.any(-1)).nonzero().flatten()[:count]
    ids = rolled.ids.view(2 * count, GROUP, -1)[..., :2 * DIGITS + 2]
    return [ids[rows, which[rows].int().argmax(-1)] for which in (good, bad)]


def scores(model: Transformer, ids: torch.Tensor) -> torch.Tensor:
    mask = torch.zeros_like(ids, dtype=torch.bool)
    mask[:, DIGITS + 1:] = True
    return sequence_log_probs(model(ids), ids, mask)


def train_pairs(base: Transformer, kind: str, rate: float, seed: int, steps: int = PAIR_STEPS):
    """DPO from base on pairs of a kind. Yields (step, log-probability of better and worse held-out answers, right)."""
    model, rng = copy.deepcopy(base), torch.Generator().manual_seed(seed)
    optimizer = AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.0)
    held = opposites(200, torch.Generator().manual_seed(1000 + seed), held=True)
    for step in range(steps + 1):
        if step % EVERY == 0:
            with torch.no_grad():
                yield step, *(scores(model, ids).mean().item() for ids in held), right(model)
        if kind == "opposites":
            pair = opposites(PAIR_BATCH, rng, held=False)
        else:
            pair = own_pairs(base if kind == "by base" else model, OWN_BATCH, rng)
        with torch.no_grad():
            before = [scores(base, ids) for ids in pair]
        loss, *_ = dpo_loss(*(scores(model, ids) for ids in pair), *before)
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm(model.parameters(), 1.0)
        optimizer.step()


def runs() -> list[tuple]:
    """Pairs, rate and seed of every run on pairs."""
    return [(kind, rate, seed) for kind, rates in PAIR_RATES.items() for rate in rates for seed in SEEDS]


def main() -> None:
    torch.set_num_threads(1)
    bases = functools.cache(base_model)

    def rewards(name, seed):
        reward, steps, beta = RUNS[name]
        return [(name, seed, *row) for row in rows(train(bases(seed), reward, seed, steps, beta))]

    def pairs(kind, rate, seed):
        return [(kind, rate, seed, *row) for row in rows(train_pairs(bases(seed), kind, rate, seed))]

    def rows(found):
        return [(step, *(f"{x:.4f}" for x in numbers)) for step, *numbers in found]

    table.resume(REWARDS, REWARD_COLUMNS, [(name, seed) for seed in SEEDS for name in RUNS], rewards)
    table.resume(PAIRS, PAIR_COLUMNS, runs(), pairs)


if __name__ == "__main__":
    main()
