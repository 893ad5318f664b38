"""Preferences: learning from choices between two answers, and from rewards.

An answer's log-probability is the sum of its tokens'. From pairs of answers, one of them preferred,
come a reward model's loss and DPO's; from rewards of answers that the model itself has written
comes GRPO. Everything is computed in at least float32 and left there, unlike in earlier lessons: a
difference of two log-probabilities follows, and bfloat16 knows 100.0 and 100.5 and nothing between.
"""

from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from given.sizes import at_least_one, widen

from .ex05_softmax import log_softmax
from .ex13_transformer import ModelConfig, Transformer
from .ex14_training import clip_grad_norm
from .ex15_generation import generate

# The model of this lesson, 84,000 parameters: ten digits, a sign that asks, a sign that ends.
SORTER = ModelConfig(vocab_size=12, d_model=64, layers=2, heads=4, d_ff=128, max_seq_len=16)


# -- log-probabilities

def token_log_probs(
    logits: Float[Tensor, "*batch seq vocab"], ids: Int[Tensor, "*batch seq"]
) -> Float[Tensor, "*batch seq-1"]:
    """log π(ids[t] | ids[:t]) of every token but the first: what the logits *before* it gave it.

    Entry t − 1 is the log-softmax of logits[t − 1] at ids[t]; the last logits speak of a token that
    is not there. In at least float32; ids of any integer dtype. A batch of no rows gives no
    numbers.

    Raises ValueError naming ids where seq is 0, or an id is not in 0 … vocab − 1.

    To be written here: torch's cross_entropy and Categorical are not used.
    """
    # BEGIN SOLUTION
    vocab = logits.shape[-1]
    if ids.shape[-1] < 1:
        raise ValueError(f"ids must hold at least one token, got shape {tuple(ids.shape)}")
    if ((ids < 0) | (ids >= vocab)).any():
        raise ValueError(f"ids must be in 0 … {vocab - 1}, got {ids.min()} … {ids.max()}")
    scores = log_softmax(widen(logits[..., :-1, :]))
    return scores.gather(-1, ids[..., 1:, None].long()).squeeze(-1)
    # END SOLUTION


def sequence_log_probs(
    logits: Float[Tensor, "*batch seq vocab"],
    ids: Int[Tensor, "*batch seq"],
    mask: Bool[Tensor, "*batch seq"],
) -> Float[Tensor, "*batch"]:
    """log π(answer | prompt): the sum of token_log_probs over the tokens where mask is True.

    mask stands beside ids: True on the answer's tokens, False on the prompt and on padding. What
    it leaves out does not count, not even a log-probability of −inf. The first token of all never
    counts: nothing stands before it. The sum, not the mean.

    Raises as token_log_probs does.

    To be written here: torch's cross_entropy and Categorical are not used.
    """
    # BEGIN SOLUTION
    return token_log_probs(logits, ids).masked_fill(~mask[..., 1:], 0).sum(-1)
    # END SOLUTION


# -- pairs

def reward_loss(
    chosen: Float[Tensor, "*batch"], rejected: Float[Tensor, "*batch"]
) -> Float[Tensor, ""]:
    """A reward model's loss: the mean of −log σ(chosen − rejected), in at least float32.

    chosen, rejected: the rewards that it gives to the better and to the worse answer of each pair.
    Finite, with a gradient, however far they are apart.

    Raises ValueError naming chosen where there is no pair.
    Bradley and Terry, 1952; Ouyang et al., 2022 (arXiv 2203.02155), equation 1.

    To be written here: torch's margin_ranking_loss is not used.
    """
    # BEGIN SOLUTION
    if not chosen.numel():
        raise ValueError(f"chosen must hold a reward, got shape {tuple(chosen.shape)}")
    return -F.logsigmoid(widen(chosen) - widen(rejected)).mean()
    # END SOLUTION


def dpo_loss(
    chosen: Float[Tensor, "*batch"],
    rejected: Float[Tensor, "*batch"],
    ref_chosen: Float[Tensor, "*batch"],
    ref_rejected: Float[Tensor, "*batch"],
    beta: float = 0.1,
) -> tuple[Float[Tensor, ""], Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
    """Direct preference optimization: reward_loss of the rewards β (log π − log π_ref).

    chosen, rejected: sequence_log_probs of the two answers under the model; ref_…: under the
    model that it started from, through which no gradient passes. Returns (loss, the chosen
    answers' rewards, the rejected ones' rewards); the rewards are there to look at, so they carry
    no gradient.

    Raises ValueError naming beta where it is not above 0, chosen where there is no pair.
    Rafailov et al., 2023 (arXiv 2305.18290), equation 7.

    To be written here: torch's margin_ranking_loss is not used.
    """
    # BEGIN SOLUTION
    if not beta > 0:
        raise ValueError(f"beta must be above 0, got {beta}")
    chosen_rewards = beta * (widen(chosen) - widen(ref_chosen).detach())
    rejected_rewards = beta * (widen(rejected) - widen(ref_rejected).detach())
    loss = reward_loss(chosen_rewards, rejected_rewards)
    return loss, chosen_rewards.detach(), rejected_rewards.detach()
    # END SOLUTION


# -- rewards

def kl_estimates(
    log_probs: Float[Tensor, "*shape"], ref_log_probs: Float[Tensor, "*shape"]
) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    """Three estimates of KL(π ‖ π_ref) from samples of π, one of each kind per sample.

    With d = log π_ref − log π:    k1 = −d    k2 = d² / 2    k3 = e^d − 1 − d
    The mean of k1 is the KL, but single ones may be negative. k2 and k3 never are; the mean of k3
    is the KL too. In at least float32, k3 exact for small d (torch.expm1).

    Schulman, 2020 (http://joschu.net/blog/kl-approx.html).

    To be written here: torch's kl_div is not used.
    """
    # BEGIN SOLUTION
    d = widen(ref_log_probs) - widen(log_probs)
    return -d, d.square() / 2, d.expm1() - d
    # END SOLUTION


def group_advantages(
    rewards: Float[Tensor, "*groups n"], scale: bool = True, eps: float = 1e-4
) -> Float[Tensor, "*groups n"]:
    """How much better than its group an answer is: (r − mean) / (std + eps) over the last axis.

    A group is the n answers to one prompt. std: with n − 1 in the denominator. scale=False: r −
    mean, not divided (Dr. GRPO). In at least float32. A group of equal rewards has advantages of
    exactly 0: a mean of seven times 0.1 is not 0.1, but a mean of zeros is 0, so that it helps to
    subtract the group's first reward from all of them before.

    Raises ValueError naming rewards where a group holds fewer than 2.
    Shao et al., 2024 (arXiv 2402.03300); Liu et al., 2025 (arXiv 2503.20783).
    """
    # BEGIN SOLUTION
    if rewards.shape[-1] < 2:
        raise ValueError(f"rewards must hold 2 or more per group, got shape {tuple(rewards.shape)}")
    rewards = widen(rewards)
    rewards = rewards - rewards[..., :1]                # equal ones are zeros now, and so is their mean
    advantages = rewards - rewards.mean(-1, keepdim=True)
    if scale:
        advantages = advantages / (rewards.std(-1, keepdim=True) + eps)
    return advantages
    # END SOLUTION


def grpo_loss(
    log_probs: Float[Tensor, "*rows tokens"],
    old_log_probs: Float[Tensor, "*rows tokens"],
    advantages: Float[Tensor, "*rows"],
    mask: Bool[Tensor, "*rows tokens"],
    ref_log_probs: Float[Tensor, "*rows tokens"] | None = None,
    beta: float = 0.0,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    kind: str = "grpo",
    max_length: int | None = None,
) -> Float[Tensor, ""]:
    """GRPO's loss: minus the clipped gain of every answer token, and β times a penalty for its KL.

        ρ = π / π_old
        token loss = −min(ρ A, clip(ρ, 1 − clip_low, 1 + clip_high) A) + β k3(π, π_ref)

    log_probs: token_log_probs now; old_log_probs: when the answers were written; ref_log_probs: of
    the model that training started from, needed where β is not 0. Only the first passes a gradient.
    A: the advantage of the row's answer. mask: True on the answer's tokens; it stands beside
    log_probs. What it leaves out does not count, not even −inf or NaN.

    kind says what a token weighs:
        "grpo"     the mean over an answer's tokens, then over the answers (0 for one without any)
        "dapo"     the mean over all tokens of all answers
        "dr_grpo"  the sum over all tokens, divided by the number of answers times max_length

    In at least float32. Raises ValueError naming the argument: beta, clip_low or clip_high unless
    at least 0 (NaN is not), ref_log_probs missing where beta is not 0, an unknown kind, max_length
    not at least 1 for "dr_grpo", a mask that leaves no token. Shao et al., 2024 (arXiv 2402.03300);
    Yu et al., 2025 (arXiv 2503.14476); Liu et al., 2025 (arXiv 2503.20783).

    To be written here: torch's kl_div is not used.
    """
    # BEGIN SOLUTION
    for name, value in {"beta": beta, "clip_low": clip_low, "clip_high": clip_high}.items():
        if not value >= 0:
            raise ValueError(f"{name} must be at least 0, got {value}")
    if beta and ref_log_probs is None:
        raise ValueError(f"ref_log_probs must be given where beta is {beta}, got None")
    if kind not in ("grpo", "dapo", "dr_grpo"):
        raise ValueError(f"kind must be 'grpo', 'dapo' or 'dr_grpo', got {kind!r}")
    if kind == "dr_grpo" and (max_length is None or max_length < 1):
        raise ValueError(f"max_length must be at least 1 with kind 'dr_grpo', got {max_length}")
    if not mask.any():
        raise ValueError("mask must leave a token to learn from, got none")

    gain = widen(advantages).detach().unsqueeze(-1)
    now = widen(log_probs).masked_fill(~mask, 0)        # before anything can become NaN
    old = widen(old_log_probs).detach().masked_fill(~mask, 0)
    ratio = (now - old).exp()
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    losses = -torch.minimum(ratio * gain, clipped * gain)
    if beta:
        ref = widen(ref_log_probs).detach().masked_fill(~mask, 0)
        k3 = kl_estimates(now, ref)[2]
        losses = losses + beta * k3
    losses = losses.masked_fill(~mask, 0)
    if kind == "grpo":
        return (losses.sum(-1) / mask.sum(-1).clamp(min=1)).mean()
    if kind == "dapo":
        return losses.sum() / mask.sum()
    return losses.sum() / (advantages.numel() * max_length)
    # END SOLUTION


@dataclass(frozen=True)
class Rollouts:
    """Given: answers that a model wrote. Row i · n + j is the j-th of n answers to prompt i.

    ids: prompt, answer, and the end token where the answer was ended; 0 behind that. mask: True on
    the answer and its end token. answers: the same as lists, without the end token. finished:
    whether the model ended the answer itself.
    """

    ids: Int[Tensor, "rows seq"]
    mask: Bool[Tensor, "rows seq"]
    answers: list[list[int]]
    finished: list[bool]


def rollouts(
    model: Transformer,
    prompts: list[list[int]],
    n: int,
    max_new_tokens: int,
    end: int,
    rng: torch.Generator | None = None,
) -> Rollouts:
    """n answers to each prompt, drawn by lesson 15's generate from the model's own distribution.

    That is temperature 1 and no filter: log-probabilities of another distribution would not be
    those of the answers. One call of generate, the n rows of a prompt one after the other, end as
    the only stop. An answer that was ended has its end token put back: ending is a choice that is
    learnt like any other. An answer of max_new_tokens was cut off. On the model's device, no
    longer than the longest row.

    Raises ValueError naming prompts where there is none or an empty one, n or max_new_tokens below
    1, end outside the vocabulary; and what generate raises. Nothing is drawn then.

    To be written here: torch's multinomial and Categorical are not used.
    """
    # BEGIN SOLUTION
    if not prompts or not all(prompts):
        raise ValueError(f"prompts must hold a prompt of at least one token, got {prompts}")
    at_least_one(n=n, max_new_tokens=max_new_tokens)
    if not 0 <= end < model.config.vocab_size:
        raise ValueError(f"end must be in 0 … {model.config.vocab_size - 1}, got {end}")
    starts = [prompt for prompt in prompts for _ in range(n)]
    answers = generate(model, starts, max_new_tokens, stop=[end], rng=rng)
    finished = [len(answer) < max_new_tokens for answer in answers]
    texts = [start + answer + [end] * done
             for start, answer, done in zip(starts, answers, finished)]
    longest = max(map(len, texts))
    device = next(model.parameters()).device
    ids = torch.tensor([text + [0] * (longest - len(text)) for text in texts], device=device)
    mask = torch.tensor([[len(start) <= place < len(text) for place in range(longest)]
                         for start, text in zip(starts, texts)], device=device)
    return Rollouts(ids, mask, answers, finished)
    # END SOLUTION


def exact_reward(rolled: Rollouts, targets: list[list[int]]) -> Float[Tensor, "prompts n"]:
    """A reward that can be verified: 1 for a prompt's target, where it was ended, else 0.

    targets: one per prompt, without the end token. float32, on the device of rolled.ids.

    Raises ValueError naming targets where they do not divide the answers into groups.
    """
    # BEGIN SOLUTION
    rows = len(rolled.answers)
    if not targets or rows % len(targets):
        raise ValueError(f"targets must be one per prompt of {rows} answers, got {len(targets)}")
    n = rows // len(targets)
    right = [done and answer == targets[row // n]
             for row, (answer, done) in enumerate(zip(rolled.answers, rolled.finished))]
    rewards = torch.tensor(right, dtype=torch.float32, device=rolled.ids.device)
    return rearrange(rewards, "(prompts n) -> prompts n", n=n)
    # END SOLUTION


def grpo_step(
    model: Transformer,
    optimizer: torch.optim.Optimizer,
    rolled: Rollouts,
    advantages: Float[Tensor, "prompts n"],
    ref_model: Transformer | None = None,
    updates: int = 1,
    max_norm: float = 1.0,
    **loss: float | str | None,
) -> list[float]:
    """`updates` steps of the optimizer on one set of answers; returns the loss before each.

    advantages: of each answer, as group_advantages gives them. The old log-probabilities, and
    those of ref_model where there is one, are computed once, before the first step, without a
    gradient. Each step: grpo_loss (loss: its options, such as beta=0.04), backward, the gradient
    of model clipped to max_norm by lesson 14's clip_grad_norm, the optimizer's step. Old gradients
    are dropped first. The prompt and the padding do not count.

    Raises ValueError naming updates where it is below 1, max_norm where it is not above 0,
    advantages where they are not one per answer, ref_model where beta is not 0 and there is none;
    and what grpo_loss raises. Nothing has changed then.
    """
    # BEGIN SOLUTION
    at_least_one(updates=updates)
    if not max_norm > 0:
        raise ValueError(f"max_norm must be above 0, got {max_norm}")
    if loss.get("beta") and ref_model is None:
        raise ValueError(f"ref_model must be given where beta is {loss['beta']}, got None")
    if advantages.numel() != len(rolled.ids):
        raise ValueError(f"advantages must be {len(rolled.ids)}, one per answer, "
                         f"got {advantages.numel()}")
    ids, mask = rolled.ids, rolled.mask[:, 1:]
    advantages = rearrange(advantages, "prompts n -> (prompts n)")
    with torch.no_grad():
        old = token_log_probs(model(ids), ids)
        ref = None if ref_model is None else token_log_probs(ref_model(ids), ids)
    losses = []
    for _ in range(updates):
        now = token_log_probs(model(ids), ids)
        value = grpo_loss(now, old, advantages, mask, ref, **loss)
        optimizer.zero_grad()
        value.backward()
        clip_grad_norm(model.parameters(), max_norm)
        optimizer.step()
        losses.append(value.item())
    return losses
    # END SOLUTION
