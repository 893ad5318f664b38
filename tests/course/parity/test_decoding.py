"""Left-padded, chunked, windowed decoding equals one forward pass without a cache.

The chapters' own checks ask this of small parts. Here a whole model decodes a batch of prompts of
unequal lengths through the public signatures alone, and every logit of every row is held against
that row alone, without padding and without a cache.
"""

import copy
from dataclasses import replace

import pytest
import torch

from given.torch_kernels import use_torch_kernels
from solutions.ex13_transformer import ModelConfig, Transformer, make_caches
from tests.course.close import assert_as_near, assert_close

SEQ, LENGTHS = 24, (24, 17, 9)
BASE = ModelConfig(vocab_size=50, d_model=32, layers=3, heads=4, kv_heads=2, head_dim=12, d_ff=48,
                   max_seq_len=64, norm="rms", feed_forward="swiglu", positions="rope")
CONFIGS = {
    "full": BASE,
    "window of 5": replace(BASE, windows=(5, 5, 5)),
    "window on some layers": replace(BASE, windows=(5, None, 7)),
    "window of 1": replace(BASE, windows=(1, None, 1)),
    "QK-norm": replace(BASE, qk_norm=True, windows=(None, 6, None)),
    "learned positions": replace(BASE, positions="learned", norm="layer", feed_forward="mlp",
                                 activation="gelu_tanh", windows=(None, 6, None)),
}
CASES = {name: (config, False) for name, config in CONFIGS.items()} | {
    f"{name}, on torch's kernels": (CONFIGS[name], True) for name in ("QK-norm", "learned positions")}
EVERY_CASE = pytest.mark.parametrize("config, kernels", CASES.values(), ids=CASES)
CUTS = {
    "prefill, then one by one": (10,) + (1,) * 14,
    "one by one from the start": (1,) * 24,
    "chunks": (7, 1, 9, 3, 4),
    "a chunk wider than any window": (2, 20, 2),
    "all at once": (24,),
}


def a_model(config, dtype=torch.float32, kernels=False):
    torch.manual_seed(0)
    model = Transformer(config).to(dtype).eval()
    return use_torch_kernels(model) if kernels else model


def close(logits, model, ids):
    """Those of the model without a cache: in float64 up to rounding, or as near to these as without a cache."""
    exact, alone = (x[:, -logits.shape[1]:] for x in (copy.deepcopy(model).double()(ids), model(ids)))
    if logits.dtype == torch.bfloat16:
        assert_as_near(logits, alone, exact)
    else:
        assert_close(logits, exact)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
@EVERY_CASE
def test_a_padded_batch_in_chunks_equals_each_row_alone(config, cuts, dtype, kernels):
    model = a_model(config, dtype, kernels)
    ids = torch.randint(50, (len(LENGTHS), SEQ), generator=torch.Generator().manual_seed(1))
    padding = SEQ - torch.tensor(LENGTHS)
    positions = (torch.arange(SEQ) - padding[:, None]).clamp(min=0)
    real = torch.arange(SEQ) >= padding[:, None]                          # batch seq
    caches, logits, start = make_caches(config, len(LENGTHS), SEQ, dtype=dtype), [], 0
    for cut in cuts:
        end = start + cut
        logits.append(model(ids[:, start:end], mask=real[:, None, None, :end],
                            positions=positions[:, start:end], caches=caches))
        start = end
    logits = torch.cat(logits, dim=1)
    assert logits.isfinite().all()
    for row, length in enumerate(LENGTHS):
        close(logits[row:row + 1, -length:], model, ids[row:row + 1, -length:])


@torch.no_grad()
@EVERY_CASE
def test_a_padded_batch_without_a_cache_equals_each_row_alone(config, kernels):
    model = a_model(config, kernels=kernels)
    ids = torch.randint(50, (len(LENGTHS), SEQ), generator=torch.Generator().manual_seed(1))
    padding = SEQ - torch.tensor(LENGTHS)
    logits = model(ids, mask=(torch.arange(SEQ) >= padding[:, None])[:, None, None],
                   positions=(torch.arange(SEQ) - padding[:, None]).clamp(min=0))
    for row, length in enumerate(LENGTHS):
        close(logits[row:row + 1, -length:], model, ids[row:row + 1, -length:])


@torch.no_grad()
def test_caches_say_where_the_next_token_stands():
    """Without positions a model with caches goes on where they end, and a reset starts again."""
    model = a_model(CONFIGS["window on some layers"])
    ids = torch.randint(50, (2, SEQ), generator=torch.Generator().manual_seed(1))
    caches = make_caches(CONFIGS["window on some layers"], 2, SEQ)
    for _ in range(2):
        close(torch.cat([model(part, caches=caches) for part in ids.split(5, dim=1)], 1), model, ids)
        assert [cache.length for cache in caches] == [SEQ] * 3
        for cache in caches:
            cache.reset()


@torch.no_grad()
def test_a_rewound_token_never_was():
    """What a speculative decoder needs: drop the last tokens and go on with others."""
    model = a_model(BASE)
    ids = torch.randint(50, (1, SEQ), generator=torch.Generator().manual_seed(1))
    caches = make_caches(BASE, 1, SEQ)
    model(torch.cat([ids[:, :10], ids[:, :4]], 1), caches=caches)
    for cache in caches:
        cache.rewind(4)
    close(model(ids[:, 10:], caches=caches), model, ids)
