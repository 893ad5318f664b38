"""Chapter 15 against transformers: its logits processors, and Llama's generate.

Where definitions differ: transformers' top-k keeps every token that ties with the k-th, and its
top-p adds up from the unlikely end, with ties in sort's order. Random floats have no ties.
"""

import math

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from solutions.ex13_transformer import ModelConfig, Transformer
from solutions.ex15_generation import (
    Sampling,
    apply_temperature,
    generate,
    inverse_cdf,
    min_p,
    repetition_penalty,
    top_k,
    top_p,
)

# Two tokens may be about as likely; in float64 rounding does not choose between them.
FLOAT64 = pytest.mark.usefixtures("float64_norms")
PROMPTS = [[5, 17, 3], [41], [8, 0, 2, 2, 30, 19, 7], [50, 1]]


def random_logits(seed: int, spread: float, vocab: int = 500) -> torch.Tensor:
    return spread * torch.randn(8, vocab, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("spread", [0.1, 2.0, 10.0])
@pytest.mark.parametrize("mine, theirs, limits", [
    (apply_temperature, TemperatureLogitsWarper, [0.1, 0.7, 1.0, 3.0]),
    (top_k, TopKLogitsWarper, [1, 7, 499, 500, 1000]),
    (top_p, TopPLogitsWarper, [1e-6, 0.3, 0.9, 0.999]),
    (min_p, MinPLogitsWarper, [0.0, 1e-4, 0.1, 0.9]),
], ids=["temperature", "top_k", "top_p", "min_p"])
def test_filters_are_transformers(mine, theirs, limits, spread):
    for seed, limit in enumerate(limits):
        logits = random_logits(seed, spread)
        torch.testing.assert_close(mine(logits, limit), theirs(limit)(None, logits.clone()),
                                   rtol=0, atol=0)


@pytest.mark.parametrize("penalty", [1.0, 1.3, 5.0, 0.5])
def test_repetition_penalty_is_transformers(penalty):
    logits = random_logits(0, 2.0)
    ids = torch.randint(500, (8, 40), generator=torch.Generator().manual_seed(1))
    ids[:, 20:] = ids[:, :20]
    expected = RepetitionPenaltyLogitsProcessor(penalty)(ids, logits.clone())
    torch.testing.assert_close(repetition_penalty(logits, ids.tolist(), penalty), expected, rtol=0, atol=0)


def test_ties_are_where_transformers_differs():
    """Five equal logits: k = 2 keeps two here, five there."""
    equal = torch.zeros(1, 5)
    assert (top_k(equal, 2) == 0).tolist() == [[True, True, False, False, False]]
    assert (TopKLogitsWarper(2)(None, equal.clone()) == 0).sum() == 5
    assert (top_p(equal, 0.39) == 0).sum() == (TopPLogitsWarper(0.39)(None, equal.clone()) == 0).sum() == 2


def test_choose_is_transformers_chain():
    """All settings at once, in transformers' order: what is left has the same probabilities."""
    logits = random_logits(3, 3.0)
    ids = torch.randint(500, (8, 10), generator=torch.Generator().manual_seed(4))
    expected = logits.clone()
    for step in (RepetitionPenaltyLogitsProcessor(1.2), TemperatureLogitsWarper(1.7), TopKLogitsWarper(60),
                 TopPLogitsWarper(0.8), MinPLogitsWarper(0.05)):
        expected = step(ids, expected)
    sampling = Sampling(temperature=1.7, top_k=60, top_p=0.8, min_p=0.05, repetition_penalty=1.2)
    for u in torch.linspace(0, 1 - 1e-6, 40).tolist():
        numbers = torch.full((8,), u)
        assert torch.equal(sampling.choose(logits, ids.tolist(), numbers), inverse_cdf(expected, numbers))
    assert (expected == -math.inf).any()


@pytest.mark.parametrize("field, bad", [("temperature", -1), ("top_k", 0), ("top_p", 0), ("min_p", 2),
                                        ("repetition_penalty", 0), ("repetition_penalty", math.nan)])
def test_a_bad_setting_is_named_as_the_field_it_is(field, bad):
    with pytest.raises(ValueError, match=rf"^{field}: .* got {bad}"):
        Sampling(**{field: bad})


def a_pair() -> tuple[Transformer, LlamaForCausalLM]:
    """A small Llama with random weights, ours and theirs."""
    torch.manual_seed(0)
    theirs = LlamaForCausalLM(LlamaConfig(
        vocab_size=61, hidden_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=40, max_position_embeddings=64, rms_norm_eps=1e-5,
        bos_token_id=None, eos_token_id=None, pad_token_id=0)).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(1.0 if parameter.ndim == 1 else 0.0, 0.3)
    ours = Transformer(ModelConfig(vocab_size=61, d_model=24, layers=2, heads=4, kv_heads=2, d_ff=40,
                                   max_seq_len=64))
    names = {"embedding": "model.embed_tokens", "blocks": "model.layers", "norm": "model.norm",
             "norm1": "input_layernorm", "norm2": "post_attention_layernorm", "attention": "self_attn",
             "feed_forward": "mlp", "gate": "gate_proj", "up": "up_proj", "down": "down_proj",
             "unembedding": "lm_head"}
    weights = theirs.state_dict()
    ours.load_state_dict({name: weights[".".join(names.get(part, part) for part in name.split("."))]
                          for name in ours.state_dict()})
    return ours, theirs


def their_text(model, prompts, **how) -> list[list[int]]:
    """transformers' generate on prompts padded on the left: the new ids, cut before a stop."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(row)) + row for row in prompts])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in prompts])
    new = model.generate(ids, attention_mask=mask, do_sample=False, pad_token_id=0, **how)[:, longest:].tolist()
    stop = how.get("eos_token_id") or []
    return [row[:next((i for i, id in enumerate(row) if id in stop), len(row))] for row in new]


@FLOAT64
@pytest.mark.parametrize("use_cache", [True, False])
def test_greedy_text_is_llamas(use_cache):
    ours, theirs = a_pair()
    expected = their_text(theirs, PROMPTS, max_new_tokens=30)
    assert generate(ours, PROMPTS, 30, temperature=0, use_cache=use_cache) == expected
    assert len({id for row in expected for id in row}) > 10, "a text that says something"
    for prompt, row in zip(PROMPTS, expected):
        assert generate(ours, [prompt], 30, temperature=0, use_cache=use_cache) == [row]


@FLOAT64
def test_stops_where_llama_stops():
    ours, theirs = a_pair()
    free = generate(ours, PROMPTS, 30, temperature=0)
    stop = [free[0][4], free[2][9]]
    expected = their_text(theirs, PROMPTS, max_new_tokens=30, eos_token_id=stop)
    assert generate(ours, PROMPTS, 30, stop, temperature=0) == expected
    assert len({len(row) for row in expected}) > 1


@FLOAT64
def test_penalized_text_is_llamas():
    """One prompt at a time: transformers penalizes the padding of a batch as well."""
    ours, theirs = a_pair()
    for prompt in PROMPTS:
        expected = their_text(theirs, [prompt], max_new_tokens=20, repetition_penalty=1.4)
        assert generate(ours, [prompt], 20, temperature=0, repetition_penalty=1.4) == expected
