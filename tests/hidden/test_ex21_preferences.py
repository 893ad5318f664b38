"""Lesson 21 on other shapes, dtypes and extremes."""

import math

import torch

from grader import accepts, dtypes, points, raises
from grader.course.doubles import Descent

SIZES = {"vocab_size": 8, "d_model": 8, "layers": 1, "heads": 2, "d_ff": 10, "max_seq_len": 12}


def _model(impl, draw, **changes):
    return draw.fill(impl.Transformer(impl.ModelConfig(**{**SIZES, **changes})))


def _rng(seed=0):
    return torch.Generator().manual_seed(seed)


@dtypes("float64", "float16")
def test_log_probs_of_any_shape(impl, draw, dtype):
    """Log-probabilities take any batch rank and any layout in memory, in at least float32; float64 stays."""
    seq = 3 + draw.ints(3, 1).item()
    logits, ids = draw(seq, 2, 3, 5).to(dtype).permute(1, 2, 0, 3), draw.ints(5, 2, seq, 3).transpose(1, 2)
    mask = draw.ints(2, 2, 3, seq).bool()
    return {"tokens": impl.token_log_probs(logits, ids), "sequences": impl.sequence_log_probs(logits, ids, mask),
            "one row": impl.sequence_log_probs(logits[0, 0], ids[0, 0], mask[0, 0]),
            "sizes of 1": impl.token_log_probs(logits[:1, :, :2], ids[:1, :, :2])}


def test_log_probs_of_one_token(impl, draw):
    """A text of one token has no log-probabilities, and 0 in all; a batch of nothing has none."""
    logits, ids = draw(2, 1, 5), draw.ints(5, 2, 1)
    return {"tokens": impl.token_log_probs(logits, ids), "sum": impl.sequence_log_probs(logits, ids, ids >= 0),
            "no rows": impl.sequence_log_probs(logits[:0], ids[:0], ids[:0] >= 0)}


def test_ids_of_other_dtypes(impl, draw):
    """Ids may be int32 or int16."""
    logits, ids = draw(2, 4, 6), draw.ints(6, 2, 4)
    return [impl.token_log_probs(logits, ids.to(dtype)) for dtype in (torch.int32, torch.int16)]


def test_log_probs_far_out(impl, draw):
    """Logits of 10,000 overflow nothing, and a vocabulary of one token has log-probability 0."""
    return [impl.token_log_probs(draw(2, 4, 6, scale=1e4), draw.ints(6, 2, 4)),
            impl.token_log_probs(draw(2, 4, 1), draw.ints(1, 2, 4))]


@points(2)
def test_log_probs_pass_gradients(impl, draw):
    """The gradient reaches the logits that stand before the answer's tokens, and no others."""
    logits, ids = draw(2, 5, 4).requires_grad_(), draw.ints(4, 2, 5)
    mask = torch.tensor([[True, False, True, False, True], [True] * 5], device=draw.device)
    (impl.sequence_log_probs(logits, ids, mask) * draw(2)).sum().backward()
    return logits.grad


@dtypes("float64", "bfloat16")
def test_losses_of_pairs_in_other_dtypes(impl, draw, dtype):
    """Pairs of any shape: bfloat16 is widened before the difference is taken, float64 stays."""
    sizes = (2, 512, 64, 2)                             # bfloat16 has these numbers, and not their differences
    values = [(-draw.ints(128, 2, 3, 2) / size).to(dtype).transpose(0, 1) for size in sizes]
    single = [value[0, 0, 0] for value in values]
    return {"rewards": impl.reward_loss(values[0], values[1]), "dpo": impl.dpo_loss(*values, 2),
            "one pair": impl.dpo_loss(*single, 0.3)}


def test_dpo_far_out(impl, draw):
    """Answers that the model has left far behind still have a slope, and no loss is ∞ or NaN."""
    chosen, rejected = (-3000 * draw.uniform(4)).requires_grad_(), -10 * draw.uniform(4)
    loss, *_ = impl.dpo_loss(chosen, rejected, -draw.uniform(4), -draw.uniform(4), 1)
    loss.backward()
    return [loss, chosen.grad]


@dtypes("bfloat16", "float64")
def test_kl_estimates_in_other_dtypes(impl, draw, dtype):
    """Estimates are taken in at least float32, of any shape; equal models have 0."""
    x, y = (-draw(3, 2, 4).abs().to(dtype) for _ in range(2))
    return {"any": impl.kl_estimates(x.transpose(0, 1), y.transpose(0, 1)), "equal": impl.kl_estimates(x, x),
            "single": impl.kl_estimates(x[0, 0, 0], y[0, 0, 0]), "nothing": impl.kl_estimates(x[:0], y[:0])}


def test_kl_estimates_pass_gradients(impl, draw):
    """All three have a gradient, through both of their arguments."""
    said = []
    for which in range(3):
        x, y = draw(4).requires_grad_(), draw(4).requires_grad_()
        impl.kl_estimates(x, y)[which].sum().backward()
        said.append([x.grad, y.grad])
    return said


@dtypes("float16", "float64")
def test_advantages_of_any_shape(impl, draw, dtype):
    """Groups may be a single one, or stand in a batch of batches; half precision is widened first."""
    apart = torch.arange(3, device=draw.device)[:, None, None]      # equal but for rounding, a group has no digits
    rewards = (20 + 4 * apart + draw.ints(64, 3, 4, 2) / 16).to(dtype).transpose(0, 2)     # float16 has them all
    return {"batch": impl.group_advantages(rewards), "single": impl.group_advantages(rewards[0, 0], scale=False),
            "two": impl.group_advantages(rewards[..., :2], eps=0.01), "none": impl.group_advantages(rewards[:0])}


def test_advantages_of_far_rewards(impl, draw):
    """Half precision is widened before a difference is taken: bfloat16 has no 255.5."""
    far = 128 + draw.ints(100, 3, 1)
    rewards = torch.cat([far, (1 + draw.ints(100, 3, 3)) / 64], dim=1).to(torch.bfloat16)
    return impl.group_advantages(rewards, scale=False)[:, 1:]


def test_a_lonely_success(impl, draw):
    """One right answer in n has an advantage of about √n: the rarer, the larger."""
    return [impl.group_advantages(torch.eye(n, dtype=draw.float, device=draw.device)[int(draw.ints(n))])
            for n in (2, 8, 64)]


@points(2)
@dtypes("float32", "bfloat16")
def test_grpo_loss_of_any_shape(impl, draw, dtype):
    """grpo_loss takes rows in groups, and a single row, in at least float32."""
    now, old, ref = ((-draw.ints(192, 5, 2, 3) / 64).to(dtype).permute(1, 2, 0) for _ in range(3))
    mask, advantages = draw.ints(3, 2, 3, 5) > 0, draw(2, 3).to(dtype)
    mask[..., 0] = True
    said = {kind: impl.grpo_loss(now, old, advantages, mask.clone(), ref, beta=0.2, kind=kind, max_length=7)
            for kind in ("grpo", "dapo", "dr_grpo")}
    return {**said, "one row": impl.grpo_loss(now[0, 0], old[0, 0], advantages[0, 0], mask[0, 0].clone())}


def test_kinds_with_an_empty_answer(impl, draw):
    """An answer without a token counts as an answer under "grpo" and "dr_grpo", and not under "dapo"."""
    now, old = -draw.uniform(3, 4), -draw.uniform(3, 4)
    mask = torch.tensor([[True] * 4, [False] * 4, [True, False, False, False]], device=draw.device)
    return [impl.grpo_loss(now, old, draw(3), mask, kind=kind, max_length=4) for kind in ("grpo", "dapo", "dr_grpo")]


def test_a_mask_with_holes(impl, draw):
    """Answer tokens need not stand side by side: a tool's output in between is left out."""
    now, old = (-draw.uniform(2, 6)).requires_grad_(), -draw.uniform(2, 6)
    mask = torch.tensor([[True, False, True, True, False, False], [False, True, False, False, False, True]],
                        device=draw.device)
    loss = impl.grpo_loss(now, old, draw(2), mask, clip_low=0.1, clip_high=0.1)
    loss.backward()
    return [loss, now.grad]


def test_no_clipping_inside(impl, draw):
    """Without a step in between the ratio is 1, nothing is clipped, and the gradient is the policy gradient."""
    now, advantages = (-draw.uniform(3, 4)).requires_grad_(), draw(3)
    mask = torch.ones(3, 4, dtype=torch.bool, device=draw.device)
    loss = impl.grpo_loss(now, now, advantages, mask, clip_low=0, clip_high=1)
    loss.backward()
    return [loss, now.grad]


def test_grpo_loss_of_float64(impl, draw):
    """float64 stays float64: one answer of one token, which any weighing leaves as it is."""
    now, mask = -draw.uniform(1, 1).double(), torch.ones(1, 1, dtype=torch.bool, device=draw.device)
    advantages = draw(1).double()
    return [impl.grpo_loss(now, now - 0.1 * draw(1, 1).double(), advantages, mask, kind=kind, max_length=1)
            for kind in ("grpo", "dapo", "dr_grpo")]


def test_beta_zero_needs_no_reference(impl, draw):
    """With beta = 0 a reference that is given does not count, whatever it holds."""
    now, mask = -draw.uniform(2, 3), torch.ones(2, 3, dtype=torch.bool, device=draw.device)
    return impl.grpo_loss(now, now - 0.1, draw(2), mask, now - math.inf)


def test_answers_that_end_at_once(impl, draw):
    """A model that only ever ends: empty answers, finished, with the end token alone under the mask."""
    model, ever = _model(impl, draw), 1 + draw.ints(7, 1).item()
    best = torch.zeros(8, dtype=draw.float, device=draw.device)
    best[ever] = 1000.0
    model.register_forward_hook(lambda *passed: passed[-1] + best)
    said = {}
    for name, end in {"at once": ever, "never": ever - 1}.items():
        rolled = impl.rollouts(model, [[3, 2], [1]], 2, 3, end, _rng())
        said[name] = [rolled.ids, rolled.mask, rolled.answers, rolled.finished]
        said[f"{name}, rewards"] = impl.exact_reward(rolled, [[], [ever] * 3])
    return said


def test_an_end_token_in_the_prompt(impl, draw):
    """An end token that stands in the prompt ends nothing and does not count; end may be id 0, like padding."""
    rolled = impl.rollouts(_model(impl, draw), [[0, 3, 0], [5]], 3, 4, 0, _rng(draw.seed))
    return [rolled.ids, rolled.mask, rolled.answers, rolled.finished]


def test_rollouts_of_one_token(impl, draw):
    """One answer of one token each, and a context that is filled to its last place."""
    model = _model(impl, draw)
    said = [impl.rollouts(model, prompts, n, new, 7, _rng(1)) for prompts, n, new in (
        ([[1], [2, 3]], 1, 1), ([[1] * 11], 2, 1), ([[4]], 1, 11))]
    return [[rolled.ids, rolled.mask, rolled.answers] for rolled in said]


def test_rollouts_leave_things_alone(impl, draw):
    """The caller's prompts stay as they were, and so does the model's mode; the same rng, the same answers."""
    model, prompts = _model(impl, draw, dropout=0.5).train(), [[1, 2], [3]]
    said = [impl.rollouts(model, prompts, 2, 3, 7, _rng(2)).answers for _ in range(2)]
    return {"answers": said, "prompts": prompts, "training": model.training,
            "without an rng": impl.rollouts(model, prompts, 2, 3, 7).ids.shape[0]}


def test_rewards_are_float32(impl, draw):
    """exact_reward gives float32 zeros and ones, also where all or none are right."""
    ids = torch.ones(4, 2, dtype=torch.int64, device=draw.device)
    rolled = impl.Rollouts(ids, ids > 0, [[1], [2], [1], [2]], [True] * 4)
    return [impl.exact_reward(rolled, targets) for targets in ([[1], [1]], [[3], [3]], [[1], [2], [1], [2]])]


@points(2)
def test_step_with_another_model(impl, draw):
    """A step with tied embeddings and learned positions: every weight moves as it should."""
    model = _model(impl, draw, tie_embeddings=True, positions="learned")
    rolled = impl.rollouts(model, [[1], [2, 3, 4]], 4, 5, 7, _rng(draw.seed))
    optimizer = Descent(model.parameters(), lr=0.3)
    losses = impl.grpo_step(model, optimizer, rolled, draw(2, 4), updates=2, kind="dr_grpo", max_length=5)
    return {"losses": losses, **{name: weight.detach() for name, weight in model.named_parameters()}}


def test_old_gradients_are_dropped(impl, draw):
    """A gradient that was left from before does not count, and no step leaves one of the step before."""
    said = []
    for left in (0.0, 5.0):
        model = _model(impl, draw)
        rolled = impl.rollouts(model, [[1], [2]], 2, 4, 7, _rng(3))
        for weight in model.parameters():
            weight.grad = torch.full_like(weight, left)
        impl.grpo_step(model, Descent(model.parameters(), lr=0.3), rolled, draw(2, 2), updates=2)
        said.append([model.unembedding.weight.detach(), model.unembedding.weight.grad.flatten()])
    return said


def test_equal_rewards_move_nothing(impl, draw):
    """With advantages of 0 and no penalty the weights stay where they are."""
    model = _model(impl, draw)
    rolled = impl.rollouts(model, [[1], [2]], 2, 4, 7, _rng(4))
    before = model.unembedding.weight.detach().clone()
    losses = impl.grpo_step(model, Descent(model.parameters(), lr=0.3), rolled, draw(2, 2) * 0, updates=2)
    return [losses, torch.equal(model.unembedding.weight, before)]


def test_how_often_models_are_asked(impl, draw):
    """One forward pass of the reference for all updates, and no gradient is kept in it."""
    model, reference, seen = _model(impl, draw), _model(impl, draw), []
    rolled = impl.rollouts(model, [[1], [2]], 2, 4, 7, _rng(5))
    reference.register_forward_hook(lambda *passed: seen.append(passed[-1].requires_grad))
    optimizer = Descent(model.parameters(), lr=0.3)
    losses = impl.grpo_step(model, optimizer, rolled, draw(2, 2), reference, 3, beta=0.5)
    return {"losses": losses, "passes": seen}


def test_extreme_settings(impl, draw):
    """Bounds are bounds: scale=False with eps=0, updates of −1, a huge clip, NaN."""
    now, mask = -draw.uniform(2, 3), torch.ones(2, 3, dtype=torch.bool, device=draw.device)
    def loss(**how):
        return impl.grpo_loss(now, now - 0.5, draw(2), mask, **how)
    return {"huge": loss(clip_low=1, clip_high=1000), "eps 0": impl.group_advantages(draw(2, 3), True, 0),
            "NaN": [raises(ValueError, lambda: loss(**{name: math.nan}), names=name)
                    for name in ("clip_low", "clip_high")],
            "max_length elsewhere": accepts(lambda: loss(kind="dapo", max_length=0))}
