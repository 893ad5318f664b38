"""Chapter 21 against trl 1.16.0, the library that people use, and against sums that are exact.

trl brings 300 MB of packages that nothing else here needs. So its own trainers' methods were called once, on small
random numbers in float64, by `python -m tests.course.parity.record_trl`, which needs it; trl_losses.json holds the
numbers and what trl answered: losses, gradients, rewards, log-probabilities and deviations.
"""

import json
from pathlib import Path

import pytest
import torch

from solutions.ex13_transformer import ModelConfig, Transformer
from solutions.ex21_preferences import (
    dpo_loss,
    group_advantages,
    grpo_loss,
    kl_estimates,
    reward_loss,
    rollouts,
    sequence_log_probs,
    token_log_probs,
)
from tests.course.close import assert_close

TRL = json.loads(Path(__file__).with_name("trl_losses.json").read_text("utf-8"))


def numbers(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_token_log_probs_are_trls():
    said = TRL["log_probs"]
    assert_close(token_log_probs(numbers(said["logits"]), torch.tensor(said["ids"])), numbers(said["log_probs"]))


@pytest.mark.parametrize("beta", TRL["pairs"]["loss"])
def test_dpo_is_trls(beta):
    """Loss and both rewards of DPOTrainer. Its batch is all chosen answers, then all rejected ones."""
    said = TRL["pairs"]
    sums = [numbers(said[name]).masked_fill(~torch.tensor(said["mask"]).bool(), 0).sum(-1).chunk(2)
            for name in ("now", "before")]
    loss, *rewards = dpo_loss(*sums[0], *sums[1], float(beta))
    assert_close(torch.stack([loss, *(reward.mean() for reward in rewards)]), numbers(said["loss"][beta]))


def test_reward_loss_is_trls():
    chosen, rejected = numbers(TRL["pairs"]["rewards"]).chunk(2)
    assert_close(reward_loss(chosen, rejected), numbers(TRL["pairs"]["reward loss"]))


@pytest.mark.parametrize("case", TRL["grpo"]["cases"], ids=lambda case: str(case["options"]))
def test_grpo_is_trls(case):
    """Loss and gradient of GRPOTrainer, whose "bnpo" and (on one device) "dapo" are the token mean."""
    said = TRL["grpo"]
    now = numbers(said["now"]).requires_grad_()
    loss = grpo_loss(now, numbers(said["old"]), numbers(said["advantages"]), torch.tensor(said["mask"]),
                     numbers(said["ref"]), **case["options"])
    loss.backward()
    assert_close(loss.detach(), numbers(case["loss"]))
    assert_close(now.grad, numbers(case["gradient"]))


def test_advantages_have_trls_deviation():
    """One group is of equal rewards: 0 / (0 + 1e-4). trl rounds n / (n − 1) to float32."""
    rewards, std = numbers(TRL["deviations"]["rewards"]), numbers(TRL["deviations"]["std"])
    centred = rewards - rewards.mean(-1, keepdim=True)
    assert_close(group_advantages(rewards).float(), (centred / (std[:, None] + 1e-4)).float())
    assert_close(group_advantages(rewards, scale=False), centred)


def test_estimates_have_the_mean_that_they_claim():
    """Over every outcome of a small distribution, weighed by its probability: k1 and k3 are the KL, k2 is not."""
    rng = torch.Generator().manual_seed(0)
    p, q = (torch.randn(7, generator=rng, dtype=torch.float64).log_softmax(-1) for _ in range(2))
    exact = torch.nn.functional.kl_div(q, p, reduction="sum", log_target=True)
    k1, k2, k3 = ((p.exp() * k).sum() for k in kl_estimates(p, q))
    assert_close(torch.stack([k1, k3]), exact.expand(2))
    assert (k2 - exact).abs() > 0.01


def test_dpo_and_the_reward_model_are_one_loss():
    """A reward model whose reward is β (log π − log π_ref) has DPO's loss, and DPO's gradient is that of the paper.

    ∇ = −β σ(r_rejected − r_chosen) (∇ log π(chosen) − ∇ log π(rejected)), section 4 of arXiv 2305.18290.
    """
    rng = torch.Generator().manual_seed(1)
    chosen, rejected, ref_chosen, ref_rejected = torch.randn(4, 9, generator=rng, dtype=torch.float64)
    chosen.requires_grad_()
    loss, r_chosen, r_rejected = dpo_loss(chosen, rejected, ref_chosen, ref_rejected, 0.3)
    loss.backward()
    assert_close(chosen.grad, -0.3 * torch.sigmoid(r_rejected - r_chosen) / 9)


def test_gradient_of_grpo_is_the_policy_gradient():
    """At the first step π is π_old: the gradient is that of −A log π, averaged as kind says."""
    rng = torch.Generator().manual_seed(2)
    now = -torch.rand(4, 5, generator=rng, dtype=torch.float64)
    mask = torch.arange(5) < torch.tensor([[5], [2], [3], [1]])
    advantages = group_advantages(torch.rand(1, 4, generator=rng, dtype=torch.float64)).flatten()
    one, other = now.clone().requires_grad_(), now.clone().requires_grad_()
    grpo_loss(one, now, advantages, mask, kind="dapo").backward()
    (-(advantages[:, None] * other)[mask].mean()).backward()
    assert_close(one.grad, other.grad)


def test_rollouts_come_from_the_distribution_whose_log_probs_they_have():
    """Answers of up to two tokens out of three: how often each was drawn, against e to its log-probability."""
    torch.manual_seed(0)
    model = Transformer(ModelConfig(vocab_size=3, d_model=8, layers=1, heads=2, d_ff=8, max_seq_len=8))
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape) * 0.7)
    rolled = rollouts(model, [[0, 1]], 4000, 2, end=2, rng=torch.Generator().manual_seed(3))
    with torch.no_grad():
        chances = sequence_log_probs(model(rolled.ids), rolled.ids, rolled.mask).exp()
    kinds = {}
    for answer, done, chance in zip(rolled.answers, rolled.finished, chances.tolist(), strict=True):
        kinds.setdefault((*answer, done), []).append(chance)
    assert len(kinds) == 7                     # ended at once; 0 or 1 and ended; two of 0 and 1, cut off
    assert sum(found[0] for found in kinds.values()) == pytest.approx(1, abs=1e-5)
    squared = sum((len(found) - 4000 * found[0])**2 / (4000 * found[0]) for found in kinds.values())
    assert squared < 22.5                      # chi-squared with 6 degrees of freedom: 1 in 1,000
