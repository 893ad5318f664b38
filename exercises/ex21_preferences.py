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
    raise NotImplementedError


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
    raise NotImplementedError


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
    raise NotImplementedError


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
    raise NotImplementedError


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
    raise NotImplementedError


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
    raise NotImplementedError


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
    raise NotImplementedError


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
    raise NotImplementedError


def exact_reward(rolled: Rollouts, targets: list[list[int]]) -> Float[Tensor, "prompts n"]:
    """A reward that can be verified: 1 for a prompt's target, where it was ended, else 0.

    targets: one per prompt, without the end token. float32, on the device of rolled.ids.

    Raises ValueError naming targets where they do not divide the answers into groups.
    """
    raise NotImplementedError


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
    raise NotImplementedError
