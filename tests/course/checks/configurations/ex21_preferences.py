"""What the parts of chapter 21 may be given."""

import torch
from hypothesis import strategies as st
from reference import ex13_transformer


def token_log_probs(impl, draw):
    logits = draw.tensor("logits", "*batch seq vocab", holes=True)
    ids = draw.ints("ids", "*batch seq", draw.size("vocab"), dtypes=(torch.int64, torch.int32, torch.uint8))
    draw.asked(impl.token_log_probs, logits, ids)
    draw.asked(impl.sequence_log_probs, logits, ids, draw.bools("mask", tuple(ids.shape)))


def pairs(impl, draw):
    chosen, rejected = draw.tensor("chosen", "*batch"), draw.tensor("rejected", "*batch")
    draw.asked(impl.reward_loss, chosen, rejected)
    refs = draw.tensor("ref_chosen", "*batch"), draw.tensor("ref_rejected", "*batch")
    draw.asked(impl.dpo_loss, chosen, rejected, *refs, *draw("beta", ((), (0.5,), (1e-3,))))


def kl_estimates(impl, draw):
    draw.asked(impl.kl_estimates, draw.tensor("log_probs", "*shape"), draw.tensor("ref_log_probs", "*shape"))


def group_advantages(impl, draw):
    rewards = draw.tensor("rewards", (*draw.shape("*groups"), draw("n", (2, 3, 5, 7))))
    if draw("equal", (False, True)):
        rewards = rewards[..., :1].expand(rewards.shape)
    draw.asked(impl.group_advantages, rewards)
    draw.asked(impl.group_advantages, rewards, draw("scale", (True, False)), draw("eps", (1e-4, 0.5, 0.0)))


def grpo_loss(impl, draw):
    now = draw.tensor("log_probs", "*rows tokens", kinds=("normal", "small", "zeros", "large", "whole"), holes=True)
    old, mask = (
        draw.tensor("old_log_probs", "*rows tokens", kinds=("normal", "small", "zeros", "whole")),
        draw.bools("mask", tuple(now.shape)),
    )
    if draw("nearly the old ones", (False, True)):
        now = (
            old.detach() + draw.tensor("by", tuple(old.shape), old.dtype, ("small", "zeros", "normal"), grad=False)
        ).requires_grad_()
    advantages, given = draw.tensor("advantages", "*rows", kinds=("normal", "zeros", "whole", "large")), {}
    if draw("with ref", (False, True)):
        given = {
            "ref_log_probs": draw.tensor("ref_log_probs", "*rows tokens", kinds=("normal", "small", "zeros")),
            "beta": draw("beta", (0.04, 1.0, 0.0)),
        }
    for name, values in {"clip_low": (0.1, 0.0, 0.9), "clip_high": (0.3, 0.0, 2.0)}.items():
        if draw(f"with {name}", (False, True)):
            given[name] = draw(name, values)
    if draw("with kind", (False, True)):
        given["kind"] = draw("kind", ("grpo", "dapo", "dr_grpo"))
        given["max_length"] = draw("max_length", (1, 7, None))
    draw.asked(impl.grpo_loss, now, old, advantages, mask, **given)


def a_model(draw):
    config = ex13_transformer.ModelConfig(
        vocab_size=draw("vocab_size", (3, 2, 5)),
        d_model=4,
        layers=1,
        heads=2,
        d_ff=3,
        max_seq_len=12,
        dropout=draw("dropout", (0.0, 0.3)),
    )
    return draw.module(ex13_transformer.Transformer, config, dtype=torch.float32)


def rolled_of(impl, draw, model):
    prompts = draw("prompts", st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=3), min_size=1, max_size=3))
    n, new, rng = (
        draw("n", (2, 1, 3)),
        draw("max_new_tokens", (2, 1, 4)),
        torch.Generator().manual_seed(draw("seed", (0, 1, 2, 3))),
    )
    rolled = impl.rollouts(model, prompts, n, new, draw("end", (1, 0)), rng)
    draw.see("rollouts", rolled)
    draw.see("afterwards", [prompts, rng.get_state(), model.training])
    return rolled, prompts, n


def rollouts(impl, draw):
    rolled, prompts, n = rolled_of(impl, draw, a_model(draw))
    targets = [draw("target", st.lists(st.integers(0, 1), max_size=2)) for _ in prompts]
    if draw("right", (False, True)):
        targets = [list(rolled.answers[n * i]) for i in range(len(prompts))]
    draw.asked(impl.exact_reward, rolled, targets)


def grpo_step(impl, draw):
    model = a_model(draw)
    rolled, prompts, n = rolled_of(impl, draw, model)
    given = {}
    if draw("with ref", (False, True)):
        given = {"ref_model": a_model(draw), "beta": draw("beta", (0.04, 1.0))}
        given["ref_model"].config = model.config
    for name, values in {"updates": (1, 2, 3), "max_norm": (0.01, 1.0, 100.0), "kind": ("dapo", "grpo")}.items():
        if draw(f"with {name}", (False, True)):
            given[name] = draw(name, values)
    if draw("old gradients", (False, True)):
        for p in model.parameters():
            p.grad = torch.ones_like(p)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    advantages = draw.tensor("advantages", (len(prompts), n), torch.float32)
    torch.default_generator.manual_seed(4)
    draw.see("losses", impl.grpo_step(model, optimizer, rolled, advantages, **given))
    draw.see("model", [model, given.get("ref_model")])
    draw.see("gradients", [p.grad for p in model.parameters()])
    draw.see("rollouts afterwards", [rolled, advantages])
