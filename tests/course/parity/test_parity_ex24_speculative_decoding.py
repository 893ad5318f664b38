"""Chapter 24 against what it promises, the target's own distribution, and against transformers.

transformers' prompt lookup takes the first occurrence of the longest match, the chapter's the latest: they are compared
where there is one.
"""

import math

import pytest
import torch
from transformers.generation import utils as theirs
from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

from solutions.ex05_softmax import softmax
from solutions.ex13_transformer import ModelConfig, Transformer
from solutions.ex15_generation import Sampling, generate
from solutions.ex24_speculative_decoding import (
    accept,
    acceptance_rate,
    draft_tokens,
    expected_tokens,
    lookup_draft,
    new_reader,
    prompt_lookup,
    residual,
    sampling_probs,
    speculative_generate,
    speedup,
)
from tests.course.close import assert_close
from tests.course.parity.test_parity_ex15_generation import FLOAT64, PROMPTS, a_pair

TEXTS = [[id or 9 for id in prompt] for prompt in PROMPTS]       # transformers' draft takes 0 for padding
DRAWS = 200_000
# The chi-squared value that a sum of this many degrees of freedom exceeds once in a million.
CRITICAL = {4: 33.38, 8: 42.70, 24: 72.23}


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def chances(*shape: int, seed: int, spread: float = 1.0) -> torch.Tensor:
    return softmax(spread * torch.randn(shape, generator=rng(seed), dtype=torch.float64))


def chi_squared(ids: torch.Tensor, expected: torch.Tensor) -> float:
    """The sum of (seen − expected)² / expected over the ways in which it may come."""
    seen, expected = torch.bincount(ids, minlength=len(expected)), len(ids) * expected
    possible = expected > 0
    assert not seen[~possible].any(), "what has probability 0 was drawn"
    assert expected[possible].min() >= 5, "too few for a chi-squared test"
    return float(((seen - expected) ** 2 / expected)[possible].sum())


# -- the rule

@pytest.mark.parametrize("spread", [0.1, 1.0, 6.0])
def test_drafts_and_residual_make_up_the_target(spread):
    """q(x) min(1, p(x) / q(x)) + (1 − Σ min(p, q)) residual(x) is p(x)."""
    p, q = chances(50, 11, seed=0, spread=spread), chances(50, 11, seed=1, spread=spread)
    rejected = 1 - acceptance_rate(p, q)[:, None]
    assert_close(q * (p / q).clamp(max=1) + rejected * residual(p, q), p)
    assert_close(acceptance_rate(p, q), 1 - (p - q).abs().sum(-1) / 2)       # 1 − the total variation distance


def drawn(p: torch.Tensor, q: torch.Tensor, start: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The first two tokens behind start of a Markov chain p, drafted by a chain q, k = 2: as numbers of pairs, and
    how many drafts were accepted in the first pass."""
    g, vocab = rng(seed), len(p)

    def a_pass(last):
        one = torch.multinomial(q[last], 1, generator=g).squeeze(-1)
        two = torch.multinomial(q[one], 1, generator=g).squeeze(-1)
        return accept(torch.stack([one, two], -1), torch.stack([q[last], q[one]], 1),
                      torch.stack([p[last], p[one], p[two]], 1), g)
    ids, count = a_pass(torch.full((DRAWS,), start))
    again, _ = a_pass(ids[:, 0])                        # where the first pass gave one token only
    second = torch.where(count > 0, ids[:, 1], again[:, 0])
    return vocab * ids[:, 0] + second, count


@pytest.mark.parametrize("seed", range(3))
def test_the_first_two_tokens_are_the_targets(seed):
    p, q = chances(5, 5, seed=10 + seed), chances(5, 5, seed=20 + seed)
    pairs, count = drawn(p, q, 0, seed)
    assert chi_squared(pairs, (p[0][:, None] * p).flatten()) < CRITICAL[24]
    # the first draft is accepted as often as acceptance_rate says
    rate = float(acceptance_rate(p[0], q[0]))
    error = (float((count > 0).double().mean()) - rate) / math.sqrt(rate * (1 - rate) / DRAWS)
    assert abs(error) < 5, error


def test_a_slightly_wrong_distribution_is_seen():
    """The test has teeth: drawn from p where a draft was rejected, the pairs are far beyond the critical value."""
    p, q = chances(5, 5, seed=10), chances(5, 5, seed=20)
    g, start = rng(), torch.zeros(DRAWS, dtype=torch.int64)
    draft = torch.multinomial(q[start], 1, generator=g)
    ids, count = accept(draft, q[start][:, None], p[start][:, None].expand(-1, 2, -1), g)
    careless = torch.where(count > 0, ids[:, 0], torch.multinomial(p[start], 1, generator=g).squeeze(-1))
    assert chi_squared(ids[:, 0], p[0]) < CRITICAL[4] < chi_squared(careless, p[0]) / 10


@pytest.mark.parametrize("k", [0, 1, 3, 8])
@pytest.mark.parametrize("rate", [0.0, 0.3, 0.9, 1.0])
def test_a_pass_yields_as_many_tokens_as_expected(rate, k):
    """With p = q but for one token of the target, every draft is accepted with the same probability."""
    vocab = 4
    q = torch.full((vocab,), 1 / vocab, dtype=torch.float64)
    p = torch.cat([rate * q, torch.tensor([1 - rate], dtype=torch.float64)])
    q = torch.cat([q, q.new_zeros(1)])
    drafts = torch.randint(vocab, (DRAWS, k), generator=rng(3))
    _, count = accept(drafts, q.expand(DRAWS, k, -1), p.expand(DRAWS, k + 1, -1), rng(4))
    tokens = count.double() + 1
    assert abs(float(tokens.mean()) - expected_tokens(rate, k)) <= 5 * float(tokens.std()) / math.sqrt(DRAWS)
    assert speedup(rate, k, 0) == expected_tokens(rate, k)


@pytest.mark.parametrize("seed", range(8))
def test_accept_is_transformers_speculative_sampling(seed, monkeypatch):
    """With the same random numbers: as many drafts accepted, and the last token drawn from the same probabilities."""
    k, vocab, g = 5, 13, rng(seed)
    p_logits = torch.randn(1, k + 1, vocab, generator=g, dtype=torch.float64)
    q_logits = p_logits[:, :k] + 0.5 * torch.randn(1, k, vocab, generator=g, dtype=torch.float64)
    drafts = torch.multinomial(softmax(q_logits[0]), 1, generator=g).T
    u = torch.rand(k + 1, generator=rng(seed), dtype=torch.float64)
    drawn_from = []
    monkeypatch.setattr(torch, "rand_like", lambda ratio: u[:k].expand_as(ratio))
    monkeypatch.setattr(torch, "multinomial",
                        lambda probs, **_: drawn_from.append(probs[0]) or probs.argmax(-1, keepdim=True))
    prompt = torch.zeros(1, 3, dtype=torch.int64)
    new, matches = theirs._speculative_sampling(torch.cat([prompt, drafts], 1), q_logits, k, p_logits)
    p, q = softmax(p_logits), softmax(q_logits)
    ids, count = accept(drafts[0], q[0], p[0], rng(seed))
    assert int(count) == int(matches)
    assert ids[:count].tolist() == new[0, :-1].tolist()
    row = p[0, k] if count == k else residual(p[0, count], q[0, count])
    assert_close(drawn_from[0], row)
    cumulative = row.cumsum(-1)
    assert cumulative[ids[count]] > u[k] >= cumulative[ids[count]] - row[ids[count]] - 1e-12


# -- drafts

def test_lookup_is_transformers_where_something_occurs_once():
    """Random texts over few letters, n up to 3: the longest match, and what stands behind it."""
    compared = 0
    for seed in range(400):
        text = torch.randint(9, (int(torch.randint(4, 25, (1,), generator=rng(seed))),), generator=rng(seed)).tolist()
        for n, k in ((1, 3), (2, 1), (3, 4)):
            ours = prompt_lookup(text, n, k)
            size = next((size for size in range(min(n, len(text) - 1), 0, -1) if _occurrences(text, size)), 0)
            if size and _occurrences(text, size) > 1:
                continue
            generator = PromptLookupCandidateGenerator(
                num_output_tokens=k, max_matching_ngram_size=n, max_length=1000)
            candidates, _ = generator.get_candidates(torch.tensor([text]))
            assert candidates[0, len(text):].tolist() == ours, (text, n, k)
            compared += bool(ours)
    assert compared > 300


def _occurrences(text: list[int], size: int) -> int:
    return sum(text[i:i + size] == text[-size:] for i in range(len(text) - size))


def test_probabilities_are_what_choose_chooses_by():
    """Of evenly spaced numbers u, each token gets its probability's share."""
    logits = 2 * torch.randn(1, 30, generator=rng(1))
    for how in ({}, {"temperature": 0.7, "top_k": 9}, {"top_p": 0.8, "repetition_penalty": 1.5}, {"min_p": 0.1},
                {"temperature": 0}):
        sampling, steps = Sampling(**how), 2_000
        u = (torch.arange(steps, dtype=torch.float64) + 0.5) / steps
        ids = sampling.choose(logits.expand(steps, -1), [[3, 4]] * steps, u)
        shares = torch.bincount(ids, minlength=30) / steps
        probs = sampling_probs(logits, [[3, 4]], sampling)[0]
        assert float((shares - probs).abs().max()) <= 1 / steps + 1e-9
        assert float(probs.sum()) == pytest.approx(1, abs=1e-12)


# -- whole models

def small(seed: int, vocab: int = 3, **changes) -> Transformer:
    torch.manual_seed(seed)
    model = Transformer(ModelConfig(**{"vocab_size": vocab, "d_model": 8, "layers": 1, "heads": 2, "d_ff": 8,
                                       "max_seq_len": 16, **changes}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(1.0 if parameter.ndim == 1 else 0.0, 0.5)
    return model


@pytest.mark.parametrize("how", [{"temperature": 2.0}, {"temperature": 1.4, "top_k": 2, "repetition_penalty": 1.2}],
                         ids=["all", "filtered"])
def test_models_draw_the_targets_pairs(how):
    """Chi-squared of the first two tokens of 700 texts against what the target's probabilities say of each pair."""
    target, draft, prompt, vocab = small(0), small(1), [2, 0], 3
    sampling, g = Sampling(**how), rng()
    new, statistics = speculative_generate(target, draft, [prompt] * 700, 3, rng=g, k=2, **how)
    pairs = torch.tensor([vocab * row[0] + row[1] for row in new])
    with torch.no_grad():
        first = sampling_probs(target(torch.tensor([prompt]))[:, -1], [prompt], sampling)[0]
        texts = [prompt + [id] for id in range(vocab)]
        second = sampling_probs(target(torch.tensor(texts))[:, -1], texts, sampling)
    expected = (first[:, None] * second).flatten()
    assert chi_squared(pairs, expected) < CRITICAL[8]
    assert 0 < statistics.accepted < statistics.judged <= statistics.drafted


def test_the_drafted_tokens_are_the_drafts():
    """A model's drafts have the probabilities that come with them."""
    draft, how = small(1), Sampling(temperature=1.3)
    reader, g = new_reader(draft, 8), rng(2)
    pairs = [draft_tokens([1, 2], 2, reader, how, g) for _ in range(700)]
    ids = torch.tensor([3 * one + two for (one, two), _ in pairs])
    first = pairs[0][1][0]
    assert all(torch.allclose(probs[0], first) for _, probs in pairs)
    second = {one: probs[1] for (one, _), probs in pairs}
    expected = torch.stack([first[one] * second[one] for one in range(3)]).flatten()
    assert chi_squared(ids, expected) < CRITICAL[8]


def said(model, prompt: list[int], new: int, **how) -> list[int]:
    """The new ids of transformers' generate."""
    ids = torch.tensor([prompt])
    return model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=new,
                          pad_token_id=0, **how)[0, len(prompt):].tolist()


@FLOAT64
@pytest.mark.parametrize("k", [1, 3, 7])
def test_greedy_text_and_passes_are_transformers(k):
    """Assisted generation with a second Llama: the text of the target alone, in as many passes."""
    ours, their_target = a_pair()
    drafter, their_draft = a_pair()
    with torch.no_grad():               # a draft that is nearly the target: some is accepted, some is not
        for mine, hers in zip(drafter.parameters(), _in_our_order(drafter, their_draft)):
            noise = 0.05 * torch.randn(mine.shape, generator=rng(mine.numel()), dtype=mine.dtype)
            mine.add_(noise)
            hers.add_(noise)
    config = their_draft.generation_config
    config.num_assistant_tokens, config.num_assistant_tokens_schedule = k, "constant"
    config.assistant_confidence_threshold = 0.0
    accepted = 0
    for prompt in TEXTS:
        passes = []
        hook = their_target.register_forward_hook(lambda *_, passes=passes: passes.append(1))
        expected = said(their_target, prompt, 30, assistant_model=their_draft)
        hook.remove()
        [new], statistics = speculative_generate(ours, drafter, [prompt], 30, k=k, temperature=0)
        assert new == expected == generate(ours, [prompt], 30, temperature=0)[0]
        assert statistics.passes == len(passes) and len(new) == statistics.passes + statistics.accepted
        accepted += statistics.accepted
    assert 0 < accepted < 30 * len(TEXTS) * k / (k + 1) - 5


def _in_our_order(ours: Transformer, theirs) -> list:
    """The parameters of transformers' Llama in the order of ours."""
    names = {"embedding": "model.embed_tokens", "blocks": "model.layers", "norm": "model.norm",
             "norm1": "input_layernorm", "norm2": "post_attention_layernorm", "attention": "self_attn",
             "feed_forward": "mlp", "gate": "gate_proj", "up": "up_proj", "down": "down_proj",
             "unembedding": "lm_head"}
    weights = dict(theirs.named_parameters())
    return [weights[".".join(names.get(part, part) for part in name.split("."))] for name, _ in ours.named_parameters()]


@FLOAT64
def test_lookup_leaves_greedy_text_as_it_is():
    """Ours and transformers' prompt lookup both give what the target alone says, in fewer passes."""
    ours, their_target = a_pair()
    for prompt in PROMPTS:
        expected = said(their_target, prompt, 40, prompt_lookup_num_tokens=4)
        [new], _ = speculative_generate(ours, lookup_draft(2), [prompt], 40, temperature=0)
        assert new == expected
    repeating = [3, 9, 27, 20, 1] * 6
    [new], statistics = speculative_generate(ours, lookup_draft(3), [repeating], 30, temperature=0)
    assert new == generate(ours, [repeating], 30, temperature=0)[0]


@FLOAT64
def test_stops_where_transformers_stops():
    ours, their_target = a_pair()
    drafter, their_draft = a_pair()             # the target itself: the stop token stands inside of a draft
    their_draft.generation_config.num_assistant_tokens = 6
    their_draft.generation_config.num_assistant_tokens_schedule = "constant"
    free = generate(ours, TEXTS, 30, temperature=0)
    for prompt, row in zip(TEXTS, free):
        stop = [row[9]]
        expected = said(their_target, prompt, 30, assistant_model=their_draft, eos_token_id=stop)
        [new], _ = speculative_generate(ours, drafter, [prompt], 30, stop, k=6, temperature=0)
        assert new + stop == expected and len(new) < 30
