"""Writes trl_losses.json: what trl's own trainers answer on small random numbers, and those numbers.

    pip install trl==1.16.0 && python -m tests.course.parity.record_trl

trl brings 300 MB of packages that nothing else here needs, so that it is no requirement; its answers are kept instead.
The methods that compute a loss are called as they are, on a stand-in for the trainer that holds their settings.
"""

import json
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import torch

FILE = Path(__file__).with_name("trl_losses.json")
GRPO_CASES = [
    {}, {"beta": 0.04}, {"beta": 1.0}, {"clip_high": 0.28}, {"clip_low": 0.1, "clip_high": 0.05}, {"kind": "dapo"},
    {"kind": "dapo", "clip_high": 0.28, "beta": 0.1}, {"kind": "dr_grpo", "max_length": 12},
    {"kind": "dr_grpo", "max_length": 5, "beta": 0.04}]


def numbers(*shape: int, rng: torch.Generator, scale: float = 1.0) -> torch.Tensor:
    """Normal numbers of four decimals, so that the file says all of them."""
    return (scale * torch.randn(shape, generator=rng, dtype=torch.float64)).round(decimals=4)


def stand_in(**settings) -> SimpleNamespace:
    same = lambda x, **_: x                                                 # noqa: E731  one process: nothing to gather
    accelerator = SimpleNamespace(gather=same, gather_for_metrics=same, reduce=same, num_processes=1, device="cpu")
    return SimpleNamespace(
        accelerator=accelerator, model=torch.nn.Module(), _metrics=defaultdict(lambda: defaultdict(list)),
        _total_train_tokens=0, _tp_size=1, aux_loss_enabled=False, **settings)


def pairs(rng: torch.Generator) -> dict:
    """DPO and the reward model on 3 pairs: per-token log-probabilities of rows chosen, chosen, …, rejected, …"""
    from trl.trainer.dpo_trainer import DPOTrainer
    from trl.trainer.reward_trainer import RewardTrainer

    pairs, tokens = 3, 6
    completion = torch.ones(2 * pairs, tokens, dtype=torch.long)
    completion[:, :2], completion[1, 5:], completion[3, 4:] = 0, 0, 0       # two tokens of prompt; padding
    now, before = (-numbers(2 * pairs, tokens - 1, rng=rng).abs() * completion[:, 1:] for _ in range(2))
    said = {"now": now.tolist(), "before": before.tolist(), "mask": completion[:, 1:].tolist(), "loss": {}}
    for beta in (0.1, 0.5, 2.0):
        zeros = torch.zeros(2 * pairs, tokens - 1, dtype=torch.float64)
        model, ref = (lambda lp=lp, **_: SimpleNamespace(
            log_probs=lp, entropy=zeros, mean_logits=zeros, is_top1=zeros.bool()) for lp in (now, before))
        trainer = stand_in(
            ld_alpha=None, precompute_ref_logps=False, ref_model=ref, f_divergence_type="reverse_kl",
            use_weighting=False, loss_types=["sigmoid"], loss_weights=[1.0], beta=beta, label_smoothing=0.0,
            args=SimpleNamespace(gradient_checkpointing_kwargs=None))
        trainer.model.is_gradient_checkpointing = False
        inputs = {"input_ids": torch.zeros_like(completion), "attention_mask": torch.ones_like(completion),
                  "completion_mask": completion}
        loss = DPOTrainer._compute_loss(trainer, model, inputs, return_outputs=False)
        kept = trainer._metrics["train"]
        said["loss"][str(beta)] = [loss.item(), kept["rewards/chosen"][0], kept["rewards/rejected"][0]]
    rewards = numbers(2 * 4, 1, rng=rng, scale=3.0)
    loss = RewardTrainer.compute_loss(
        stand_in(args=SimpleNamespace(center_rewards_coefficient=None)), lambda **_: SimpleNamespace(logits=rewards),
        {"attention_mask": torch.ones(8, 3)})
    said["rewards"], said["reward loss"] = rewards.flatten().tolist(), loss.item()
    return said


def grpo(rng: torch.Generator) -> dict:
    """GRPO's loss and its gradient, on 5 answers of at most 6 tokens, one of them without any."""
    from trl.trainer.grpo_trainer import GRPOTrainer

    mask = torch.arange(6) < torch.tensor([[6], [1], [4], [0], [3]])
    now = -numbers(5, 6, rng=rng).abs()
    old, ref = now + numbers(5, 6, rng=rng, scale=0.3), now + numbers(5, 6, rng=rng, scale=0.5)
    advantages = numbers(5, rng=rng)
    said = {"now": now.tolist(), "old": old.tolist(), "ref": ref.tolist(), "mask": mask.tolist(),
            "advantages": advantages.tolist(), "cases": []}
    for case in GRPO_CASES:
        leaf = now.clone().requires_grad_()
        trainer = stand_in(
            top_entropy_quantile=1.0, off_policy_mask_threshold=None, importance_sampling_level="token", use_vllm=False,
            beta=case.get("beta", 0.0), epsilon_low=case.get("clip_low", 0.2), epsilon_high=case.get("clip_high", 0.2),
            loss_type=case.get("kind", "grpo"), max_completion_length=case.get("max_length"),
            _entropy_bonus_enabled=False, current_gradient_accumulation_steps=1,
            _get_per_token_logps_and_entropies=lambda *_, x=leaf, **__: (x, torch.zeros_like(x), None),
            args=SimpleNamespace(use_bias_correction_kl=False, delta=None, steps_per_generation=1))
        ids = torch.zeros(5, 6, dtype=torch.long)
        loss = GRPOTrainer._compute_loss(trainer, None, {
            "prompt_ids": ids[:, :1], "prompt_mask": ids[:, :1], "completion_ids": ids, "completion_mask": mask.long(),
            "advantages": advantages, "old_per_token_logps": old, "ref_per_token_logps": ref,
            "num_items_in_batch": mask.sum()})
        loss.backward()
        said["cases"].append({"options": case, "loss": loss.item(), "gradient": leaf.grad.tolist()})
    return said


def log_probs(rng: torch.Generator) -> dict:
    from trl.trainer.utils import selective_log_softmax

    logits, ids = numbers(2, 4, 5, rng=rng, scale=2.0), torch.randint(5, (2, 4), generator=rng)
    return {"logits": logits.tolist(), "ids": ids.tolist(),
            "log_probs": selective_log_softmax(logits[:, :-1], ids[:, 1:]).tolist()}


def deviations(rng: torch.Generator) -> dict:
    """The standard deviation that GRPOTrainer divides by (it adds 1e-4 to it in a method of 500 lines)."""
    from trl.trainer.utils import nanstd

    rewards = numbers(3, 4, rng=rng)
    rewards[1] = rewards[1, 0]
    return {"rewards": rewards.tolist(), "std": nanstd(rewards, dim=1).tolist()}


def main() -> None:
    import trl

    rng = torch.Generator().manual_seed(0)
    said = {"trl": trl.__version__, "log_probs": log_probs(rng), "pairs": pairs(rng), "grpo": grpo(rng),
            "deviations": deviations(rng)}
    FILE.write_text(json.dumps(said) + "\n", "utf-8")


if __name__ == "__main__":
    main()
