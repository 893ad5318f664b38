"""What lesson 21 asks of log-probabilities, the losses of pairs and of rewards, rollouts and a step of GRPO."""

import math

import torch

from grader import accepts, dtypes, points, raises
from grader.course.doubles import Descent

CHOICES = {"torch.distributions.Categorical", "torch.distributions.categorical.Categorical"}
LOG_PROBS = CHOICES | {"torch.nn.functional.cross_entropy", "torch.nn.CrossEntropyLoss"}
DIVERGENCES = {"torch.nn.functional.kl_div", "torch.nn.KLDivLoss"}
RANKING = {"torch.nn.functional.margin_ranking_loss"}
FORBIDDEN = {"token_log_probs": LOG_PROBS, "sequence_log_probs": LOG_PROBS, "reward_loss": RANKING, "dpo_loss": RANKING,
             "kl_estimates": DIVERGENCES, "grpo_loss": DIVERGENCES,
             "rollouts": CHOICES | {"torch.multinomial", "torch.Tensor.multinomial"}}

PROMPTS, END = [[3, 1, 4], [2], [0, 5]], 9
SIZES = {"vocab_size": 10, "d_model": 8, "layers": 1, "heads": 2, "d_ff": 12, "max_seq_len": 16}


def _model(impl, draw, **changes):
    return draw.fill(impl.Transformer(impl.ModelConfig(**{**SIZES, **changes})))


def _writer(impl, draw, end=1.5):
    """A model that ends some of its answers, and not others."""
    model, more = _model(impl, draw), torch.zeros(10, dtype=draw.float, device=draw.device)
    more[END] = end
    model.register_forward_hook(lambda *passed: passed[-1] / 2 + more)
    return model


def _rng(seed=0):
    return torch.Generator().manual_seed(seed)


def _size(draw, low, high):
    """A whole number from low to high."""
    return low + int(draw.ints(high - low + 1))


def _mask(draw, *lengths):
    """True on the first so many tokens of each row."""
    places = torch.arange(max(lengths), device=draw.device)
    return places < torch.tensor(lengths, device=draw.device)[:, None]


def _policy(draw, rows, tokens):
    """Log-probabilities now, when the answers were written, and of the reference."""
    now = -draw(rows, tokens).abs()
    return now, now + 0.3 * draw(rows, tokens), now + 0.3 * draw(rows, tokens)


def _with_gradient(loss, *leaves):
    loss.backward()
    return {"loss": loss, "gradients": [leaf.grad for leaf in leaves]}


# -- log-probabilities

@points(2)
@dtypes("float32", "float64", "bfloat16")
def test_token_log_probs(impl, draw, dtype):
    """token_log_probs gives each token but the first the log-softmax of the logits *before* it.

    Logits t speak of token t + 1: drop the last logits and the first id, and gather. In at least
    float32, whatever the logits' dtype: the difference of two such numbers follows.
    """
    seq = 2 + draw.ints(4, 1).item()
    return impl.token_log_probs(draw(3, seq, 7, scale=3.0).to(dtype), draw.ints(7, 3, seq))


def test_token_log_probs_refuses(impl, draw):
    """Ids outside the vocabulary, or none at all, are a ValueError that names ids.

    A negative id would read from the end of the vocabulary. 0 and vocab − 1 are ids.
    """
    logits = draw(4, 6)
    low, high = -_size(draw, 2, 9), _size(draw, 7, 99)
    ids = {name: torch.tensor(row, device=draw.device) for name, row in {
        "-1": [0, 1, -1, 3], f"{low}": [0, low, 2, 3], "vocab": [0, 1, 6, 3],
        f"{high}, the first": [high, 1, 2, 3]}.items()}
    said = {name: raises(ValueError, lambda: impl.token_log_probs(logits, row), names="ids")
            for name, row in ids.items()}
    none = raises(ValueError, lambda: impl.token_log_probs(logits[:0], ids["vocab"][:0]), names="ids")
    ends = torch.tensor([5, 0, 5, 0], device=draw.device)
    return {**said, "none": none, "both ends": accepts(lambda: impl.token_log_probs(logits, ends))}


@points(2)
def test_sequence_log_probs(impl, draw):
    """sequence_log_probs is the sum over the tokens where mask is True: the answer's, not the prompt's.

    mask stands beside ids, and token_log_probs has no entry for the first id: mask[..., 1:] fits.
    The sum and not the mean: an answer's probability is the product of its tokens'.
    """
    logits, ids = draw(4, 6, 7), draw.ints(7, 4, 6)
    prompt, text = _mask(draw, 2, 1, 4, 6), _mask(draw, 6, 4, 5, 6)
    return {"answers": impl.sequence_log_probs(logits, ids, text & ~prompt),
            "all": impl.sequence_log_probs(logits, ids, text),
            "one row": impl.sequence_log_probs(logits[0], ids[0], text[0] & ~prompt[0])}


def test_padding_does_not_count(impl, draw):
    """What mask leaves out does not count, not even a log-probability of −inf: masked_fill, not a product.

    −inf · 0 is NaN. Logits of −inf are what filters and constrained decoding leave behind.
    """
    logits, ids = draw(2, 5, 6), draw.ints(6, 2, 5)
    logits[:, -2].scatter_(-1, ids[:, -1:], -math.inf)          # what came last was impossible
    mask = _mask(draw, 3, 5) & ~_mask(draw, 1, 5)
    mask[1, 1:4] = True
    logits = logits.clone().requires_grad_()
    return _with_gradient(impl.sequence_log_probs(logits, ids, mask).sum(), logits)


# -- pairs

@points(2)
@dtypes("float32", "float16", "bfloat16")
def test_reward_loss(impl, draw, dtype):
    """reward_loss is the mean of −log σ(chosen − rejected), in at least float32.

    σ(chosen − rejected) is the probability that the first is preferred (Bradley–Terry). Rewards of
    equal size cost log 2. Widen both before one is subtracted from the other: −100 − 0.3 is −100.5 in bfloat16.
    """
    pairs = 2 + draw.ints(4, 1).item()
    chosen, rejected = (draw(pairs, scale=2.0).to(dtype).requires_grad_() for _ in range(2))
    far, near = -100 - draw.ints(20, 5) / 2, -draw.ints(64, 5) / 64     # half precision has both, not their difference
    return {"equal": impl.reward_loss(chosen, chosen).detach(),
            "of unlike sizes": impl.reward_loss(far.to(dtype), near.to(dtype)),
            **_with_gradient(impl.reward_loss(chosen, rejected), chosen, rejected)}


def test_reward_loss_far_apart(impl, draw):
    """Rewards that are 1,000 apart the wrong way cost 1,000, with a gradient, and not ∞.

    In float32 σ(−1,000) is 0, and its logarithm −∞. logsigmoid never makes that number.
    """
    chosen = (draw(5) - 1000).requires_grad_()
    return {**_with_gradient(impl.reward_loss(chosen, draw(5)), chosen),
            "the right way": impl.reward_loss(draw(5) + 1000, draw(5))}


@points(2)
def test_dpo_loss(impl, draw):
    """dpo_loss is reward_loss of the rewards β (log π − log π_ref), and returns them too.

    Loss, chosen answers' rewards, rejected ones' rewards. The rewards are to look at: detached.
    """
    beta = 0.05 + draw.uniform(1).item()
    values = [draw(4, scale=3.0) for _ in range(4)]
    chosen, rejected = (x.requires_grad_() for x in values[:2])
    loss, *rewards = impl.dpo_loss(*values, beta)
    return {"rewards": rewards, **_with_gradient(loss, chosen, rejected),
            "beta 0.1 where left out": impl.dpo_loss(*values)[0].detach()}


def test_dpo_reference_is_still(impl, draw):
    """No gradient passes through the reference's log-probabilities.

    It is where training started from, not what is trained: detach them, whatever comes in.
    """
    values = [draw(4).requires_grad_() for _ in range(4)]
    impl.dpo_loss(*values, 0.5)[0].backward()
    return {"no gradient": [value.grad is None for value in values], "gradient": values[0].grad}


def test_pairs_refuse(impl, draw):
    """A beta that is not above 0 is a ValueError that names it, and so are no pairs, which name chosen.

    `not beta > 0` is true of NaN as well. The mean of nothing is NaN.
    """
    values, nothing, below = [draw(3) for _ in range(4)], draw(3)[:0], -_size(draw, 1, 99) / 10
    return {f"beta 0, {below}, NaN": [raises(ValueError, lambda: impl.dpo_loss(*values, beta), names="beta")
                                      for beta in (0, below, math.nan)],
            "no pairs": [raises(ValueError, lambda: impl.reward_loss(nothing, nothing), names="chosen"),
                         raises(ValueError, lambda: impl.dpo_loss(*[nothing] * 4), names="chosen")],
            "fine": accepts(lambda: impl.dpo_loss(*values, 1))}


# -- rewards

@points(2)
@dtypes("float32", "bfloat16")
def test_kl_estimates(impl, draw, dtype):
    """kl_estimates: −d, d² / 2 and e^d − 1 − d, where d is log π_ref − log π, in at least float32.

    The samples come from π, so π_ref stands above: turned round, it is the other KL. Nothing is held within bounds:
    where d is 5 or 30, k3 is e^5 − 6 or about 10¹³.
    """
    far = torch.tensor([[-5.0, -30.0, 0.0]], dtype=draw.float, device=draw.device).to(dtype)
    return {"near": impl.kl_estimates(-draw(2, 5).abs().to(dtype), -draw(2, 5).abs().to(dtype)),
            "far": [x.flatten()[at] for x in impl.kl_estimates(far, 0 * far) for at in range(3)]}


def test_k3_of_nearly_equal(impl, draw):
    """k3 is right where the two models are nearly equal: expm1(d) − d, not exp(d) − 1 − d.

    In float32, e^0.00003 is 1.00003 with seven digits; subtract 1 and two are left. Asked is k3 + d, that is e^d − 1.
    """
    d = (1 + draw(4, 6).abs()) / 2**15
    return impl.kl_estimates(-d, torch.zeros_like(d))[2] + d


@points(2)
@dtypes("float32", "float16")
def test_group_advantages(impl, draw, dtype):
    """group_advantages: (r − mean) / (std + eps) within each group, that is along the last axis.

    std is torch's own, with n − 1 below; eps is 1e-4 where it is left out. In at least float32.
    """
    prompts, n = 2 + draw.ints(3, 1).item(), 3 + draw.ints(4, 1).item()
    rewards = (draw.ints(96, prompts, n) / 16 + draw.ints(12, prompts, 1)).to(dtype)    # float16 has them all
    return {"scaled": impl.group_advantages(rewards), "eps": impl.group_advantages(rewards, eps=0.5),
            "not scaled": impl.group_advantages(rewards, scale=False)}


def test_equal_rewards_teach_nothing(impl, draw):
    """A group of equal rewards has advantages of 0, not NaN: all right and all wrong are alike.

    Its std is 0. That is what eps is for.
    """
    rewards = torch.tensor([[1.0] * 4, [0.0] * 4, [0.0, 0.0, 0.0, 1.0]], dtype=draw.float, device=draw.device)
    return impl.group_advantages(rewards * _size(draw, 1, 9))


def test_equal_rewards_are_exactly_0(impl, draw):
    """Equal rewards have advantages of exactly 0, whatever their size is, divided or not.

    In float32 the mean of seven times 0.1 is not 0.1, and what is left is divided by a std of almost nothing. Subtract
    the group's first reward from all of them before: the mean of zeros is 0.
    """
    rewards = torch.cat([draw.uniform(5, 1) + 0.1, torch.full_like(draw.uniform(1, 1), 0.1)]).expand(6, 7)
    found = {f"scale={scale}": impl.group_advantages(rewards, scale=scale) for scale in (True, False)}
    apart = rewards + draw.ints(9, 6, 7) / 8
    return {**{name: int(x.count_nonzero()) for name, x in found.items()}, "not equal": impl.group_advantages(apart)}


def test_group_advantages_refuses(impl, draw):
    """A group of one, or of none, is a ValueError that names rewards: there is nothing to compare.

    The standard deviation of one number is NaN, which would go on into every weight.
    """
    return {"one": raises(ValueError, lambda: impl.group_advantages(draw(3, 1)), names="rewards"),
            "none": raises(ValueError, lambda: impl.group_advantages(draw(3, 2)[:, :0]), names="rewards"),
            "two": impl.group_advantages(draw(1, 2))}


@points(3)
@dtypes("float32", "bfloat16")
def test_grpo_loss(impl, draw, dtype):
    """grpo_loss: −min(ρ A, clip(ρ) A) per token; the mean over each answer's tokens, then over answers.

    ρ = π / π_old = exp(log π − log π_old). The gradient is asked too: a clipped token has none. Subtract before the
    exponential: in float32 e^−105 is 0.
    """
    now = -draw.ints(128, 4, 6) / 4096                  # bfloat16 has these and the old ones, not the difference
    now, old = now.to(dtype).requires_grad_(), ((draw.ints(128, 4, 6) - 64) / 64).to(dtype)
    found = _with_gradient(impl.grpo_loss(now, old, draw(4).to(dtype), _mask(draw, 6, 2, 5, 1)), now)
    rare = -105 - draw.ints(16, 2, 3) / 2
    old = (rare + draw.ints(3, 2, 3) / 2 - 0.5).to(dtype)
    rare = rare.to(dtype).requires_grad_()
    return {**found, "rare tokens": _with_gradient(
        impl.grpo_loss(rare, old, draw(2).to(dtype), _mask(draw, 3, 3)), rare)}


@points(2)
def test_clipping(impl, draw):
    """A ratio that has moved far enough in the direction that pays is held; one that moved back is not.

    With A > 0 only what is above 1 + clip_high is held, with A < 0 only what is below 1 − clip_low.
    The smaller of ρ A and clip(ρ) A does both, if each is multiplied by A before they are compared. Nothing else holds
    ρ: with A < 0 it may be e^5 or e^25, which costs as much, and its logarithm is not clamped either.
    """
    now = torch.log(torch.tensor([[0.5, 0.85, 1.0, 1.15, 1.9]] * 2, dtype=draw.float, device=draw.device))
    now = now.clone().requires_grad_()
    advantages = torch.tensor([2.0, -2.0], dtype=draw.float, device=draw.device) * _size(draw, 1, 9)
    loss = impl.grpo_loss(now, torch.zeros_like(now), advantages, _mask(draw, 5, 5), clip_low=0.1, clip_high=0.3)
    said = _with_gradient(loss, now)
    for far in (5.0, 25.0):
        leaf = torch.full_like(now[1:, :1], far).requires_grad_()
        loss = impl.grpo_loss(leaf, torch.zeros_like(leaf), advantages[1:], _mask(draw, 1))
        said[f"A < 0 and ρ = e^{far:g}"] = _with_gradient(loss, leaf)
    return said


@points(2)
def test_kinds(impl, draw):
    """kind: "grpo" averages over answers, "dapo" over tokens, "dr_grpo" divides by answers · max_length.

    Under "grpo" each token of a long answer weighs less; under the two others all tokens weigh alike.
    """
    now, old, _ = _policy(draw, 3, 5)
    advantages, mask = draw(3), _mask(draw, 5, 1, 3)
    return {kind: impl.grpo_loss(now, old, advantages, mask, kind=kind, max_length=8)
            for kind in ("grpo", "dapo", "dr_grpo")}


@points(2)
def test_kl_penalty(impl, draw):
    """beta adds β k3(π, π_ref) to every token's loss, with its gradient through π alone.

    Neither the reference nor the old log-probabilities are trained, nor are advantages: no gradient.
    """
    leaves = [x.detach().requires_grad_() for x in _policy(draw, 3, 4)]
    advantages = draw(3).requires_grad_()
    now, old, ref = leaves
    loss = impl.grpo_loss(now, old, advantages, _mask(draw, 4, 2, 3), ref, beta=0.3)
    loss.backward()
    said = {"loss": loss, "gradient": now.grad, "others have none": [x.grad is None for x in (old, ref, advantages)]}
    for far in (5.0, 30.0):
        leaf = torch.full_like(now[:1, :1], -far).requires_grad_()
        loss = impl.grpo_loss(leaf, leaf.detach(), advantages[:1], _mask(draw, 1), torch.zeros_like(leaf), beta=0.3)
        said[f"π_ref is e^{far:g} times π"] = _with_gradient(loss, leaf)
    return said


def test_grpo_padding_does_not_count(impl, draw):
    """What stands under a False of mask changes neither loss nor gradient, be it −inf.

    −inf − (−inf) is NaN, and 0 · NaN is NaN, in the gradient too: put 0 there before anything is subtracted. An
    answer without a token costs 0 and is still counted.
    """
    now, old, ref = _policy(draw, 3, 5)
    mask, advantages = _mask(draw, 5, 2, 0), draw(3)
    said = {}
    for kind in ("grpo", "dapo"):
        for what in (-math.inf, 50.0):
            leaf = now.masked_fill(~mask, what).requires_grad_()
            loss = impl.grpo_loss(leaf, old.masked_fill(~mask, what), advantages, mask,
                                  ref.masked_fill(~mask, -math.inf), beta=0.1, kind=kind)
            said[f"{kind}, {what}"] = _with_gradient(loss, leaf)
    return said


def test_grpo_loss_refuses(impl, draw):
    """Settings that make no sense are ValueErrors that name the argument.

    NaN is not below 0 and not at least 0 either: ask for what must hold. beta without a reference
    names ref_log_probs; "dr_grpo" needs a max_length of at least 1; a mask without a token leaves
    nothing to learn from.
    """
    (now, old, ref), advantages, mask = _policy(draw, 2, 3), draw(2), _mask(draw, 3, 2)
    below = -_size(draw, 1, 99)
    bad = {name: [{name: value} for value in (below / 10, below / 100, math.nan)]
           for name in ("beta", "clip_low", "clip_high")}
    bad |= {"kind": [{"kind": "ppo"}],
            "max_length": [{"kind": "dr_grpo"}, *({"kind": "dr_grpo", "max_length": n} for n in (0, below))]}
    said = {name: [raises(ValueError, lambda: impl.grpo_loss(now, old, advantages, mask, ref, **how), names=name)
                   for how in hows] for name, hows in bad.items()}
    said["ref_log_probs"] = raises(
        ValueError, lambda: impl.grpo_loss(now, old, advantages, mask, beta=0.1), names="ref_log_probs")
    said["mask"] = raises(
        ValueError, lambda: impl.grpo_loss(now, old, advantages, mask & False, kind="dapo"), names="mask")
    return {**said, "zeros": impl.grpo_loss(now, old, advantages, mask, beta=0, clip_low=0, clip_high=0)}


# -- answers of the model's own

@points(3)
def test_rollouts(impl, draw):
    """rollouts: n answers to each prompt, one row after the other, end token put back, zeros behind.

    generate leaves the end token out; whoever never learns it never learns to stop. An answer that
    was cut off at max_new_tokens has none. mask: True on the answer and its end.
    """
    rolled = impl.rollouts(_writer(impl, draw), PROMPTS, 4, 5, END, _rng(draw.seed))
    return {"ids": rolled.ids, "mask": rolled.mask, "answers": rolled.answers, "finished": rolled.finished}


def test_rollouts_are_the_models_own(impl, draw):
    """The answers are drawn at temperature 1 without a filter, by one call of generate with rng.

    Their log-probabilities are those of the model; of a sharpened one they would be others.
    """
    rng = _rng(draw.seed)
    rolled = impl.rollouts(_writer(impl, draw), PROMPTS[:2], 8, 3, END, rng)
    return {"answers": rolled.answers, "rng went on": torch.rand(1, generator=rng).item()}


def test_rollouts_refuse(impl, draw):
    """No prompt, an empty one, n or max_new_tokens below 1, an end that is no id: ValueErrors that name it.

    Look before anything is drawn: rng must be where it was.
    """
    model, rng = _model(impl, draw), _rng(draw.seed)
    calls = {"prompts": [([], 2, 3, END), ([[1], []], 2, 3, END)], "n": [(PROMPTS, 0, 3, END)],
             "max_new_tokens": [(PROMPTS, 2, 0, END), (PROMPTS, 2, 14, END)],
             "end": [(PROMPTS, 2, 3, 10), (PROMPTS, 2, 3, -1)]}
    said = {name: [raises(ValueError, lambda: impl.rollouts(model, *call, rng), names=name) for call in given]
            for name, given in calls.items()}
    return {**said, "rng": torch.rand(1, generator=rng).item()}


@points(2)
def test_exact_reward(impl, draw):
    """exact_reward is 1 where the answer is its prompt's target and was ended, else 0; a row per prompt.

    "1 2 3" and then cut off is not "1 2 3": nobody knows whether the model would have stopped.
    """
    answers = [[1, 2], [1, 2], [2, 1], [1, 2, 0], [], [7], [7], [1, 2]]
    finished = [True, False, True, True, True, True, False, True]
    more = draw.ints(3, 3, 12).tolist()                 # 12 answers more, which of 3, and whether they ended
    answers += [[[1, 2], [7], []][kind] for kind in more[0]]
    finished += [bool(done) for done in more[1]]
    ids = torch.zeros(20, 3, dtype=torch.int64, device=draw.device)
    rolled = impl.Rollouts(ids, ids > 0, answers, finished)
    return {"two prompts": impl.exact_reward(rolled, [[1, 2], [7]]),
            "one prompt": impl.exact_reward(rolled, [[]]),
            "four prompts": impl.exact_reward(rolled, [[1, 2], [7], [], [1, 2]]),
            "ten prompts": impl.exact_reward(rolled, [[1, 2], [2, 1], [], [7], *[[1, 2], [7], []] * 2])}


def test_exact_reward_refuses(impl, draw):
    """Targets that do not divide the answers into groups are a ValueError that names targets.

    Three targets for eight answers: some answers would be held to another prompt's target.
    """
    ids = torch.zeros(8, 3, dtype=torch.int64, device=draw.device)
    rolled = impl.Rollouts(ids, ids > 0, [[1]] * 8, [True] * 8)
    return [raises(ValueError, lambda: impl.exact_reward(rolled, targets), names="targets")
            for targets in ([[1]] * 3, [], [[1]] * 16)]


def _step(impl, draw, updates, ref=False, **loss):
    """One grpo_step, with plain gradient descent: its losses, and what became of the weights."""
    model = _writer(impl, draw)
    reference = _model(impl, draw, layers=2) if ref else None
    rolled = impl.rollouts(model, PROMPTS, 3, 4, END, _rng(draw.seed))
    optimizer = Descent(model.parameters(), lr=0.5)
    losses = impl.grpo_step(model, optimizer, rolled, draw(3, 3), reference, updates, **loss)
    return {"losses": losses, "unembedding": model.unembedding.weight.detach(),
            "grad": model.blocks[0].attention.o_proj.weight.grad.flatten(),     # as one row: some are nearly 0
            "reference has gradients": ref and any(p.grad is not None for p in reference.parameters())}


@points(2)
def test_grpo_step(impl, draw):
    """grpo_step: grpo_loss of the answers' tokens, backward, clipping to max_norm, a step; the loss comes back.

    Prompt and padding do not count: the mask is rolled.mask without its first column, as
    token_log_probs has none for the first token.
    """
    return {"plain": _step(impl, draw, 1), "clipped": _step(impl, draw, 1, max_norm=0.01)}


@points(2)
def test_several_updates(impl, draw):
    """The old log-probabilities are those before the first step, however many steps follow.

    Computed again after a step they are the new ones: the ratio is 1 for ever, and nothing is clipped.
    """
    return _step(impl, draw, 3, clip_low=0.05, clip_high=0.05, kind="dapo", max_norm=3)


def test_step_with_reference(impl, draw):
    """With a ref_model, β k3 of its log-probabilities is added; it gets no gradient.

    torch.no_grad() around the reference's forward pass, and one pass for all updates.
    """
    return _step(impl, draw, 2, ref=True, beta=0.2)


def test_grpo_step_refuses(impl, draw):
    """Bad settings of a step are ValueErrors that name the argument; weights and gradients stay as they were.

    Also the gradients that were there before: zero_grad comes when nothing can be refused any more.
    updates below 1, max_norm not above 0, advantages that are not one per answer, beta without a ref_model.
    """
    model = _model(impl, draw)
    rolled = impl.rollouts(model, PROMPTS[:2], 2, 3, END, _rng())
    optimizer, advantages = Descent(model.parameters(), lr=0.5), draw(2, 2)
    before, grad = model.unembedding.weight.detach().clone(), draw(10, 8).clone()
    model.unembedding.weight.grad = grad
    below = -_size(draw, 1, 99)
    calls = {"updates": [{"updates": 0}, {"updates": below}],
             "max_norm": [{"max_norm": value} for value in (0, below / 100, math.nan)],
             "advantages": [{"advantages": draw(2, 3)}], "ref_model": [{"beta": 0.1}], "kind": [{"kind": "ppo"}]}
    said = {name: [raises(ValueError, lambda: impl.grpo_step(
        model, optimizer, rolled, **{"advantages": advantages, **how}), names=name) for how in hows]
        for name, hows in calls.items()}
    return {**said, "as they were": torch.equal(model.unembedding.weight, before),
            "gradient": model.unembedding.weight.grad, "the same one": model.unembedding.weight.grad is grad}
