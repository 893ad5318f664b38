"""What speculation saves on a CPU: greedy text of the pocket model's size, as a multiple of generate's time.

Both on torch's kernels, on one thread; medians of five runs. The text repeats itself: the pocket model goes on with a
table whose rows it has seen.
"""

from pathlib import Path

import torch

from given.torch_kernels import use_torch_kernels
from solutions.ex13_transformer import POCKET, Transformer
from solutions.ex15_generation import generate
from solutions.ex16_pretrained import load_pretrained, load_tokenizer
from solutions.ex24_speculative_decoding import POCKET_DRAFT, lookup_draft, speculative_generate
from tests.course.bench.clock import in_turn

FOLDER = Path(__file__).parents[3] / "assets" / "pocket"
TEXT = """\
The following table lists the operators:

| operator | meaning | method |
| a + b | addition | __add__ |
| a - b | subtraction | __sub__ |
| a * b | multiplication | __mul__ |
| a / b | division | __truediv__ |
"""
NEW = 96


def bench_lookup():
    """96 new tokens behind a table, drafted by prompt lookup, 8 at a time."""
    target = use_torch_kernels(load_pretrained(FOLDER, dtype=torch.float32))
    prompt = [load_tokenizer(FOLDER).encode(TEXT)]
    ours, plain = in_turn(
        lambda: speculative_generate(target, lookup_draft(3), prompt, NEW, k=8, temperature=0),
        lambda: generate(target, prompt, NEW, temperature=0), runs=5)
    return "speculative_generate: prompt lookup on a text that repeats itself, against generate", ours / plain, 0.6


def bench_draft():
    """64 new tokens, drafted by a model of one narrow layer, 4 at a time; all of them are accepted.

    Random weights, with the logits of both models led to one token, as if the draft were always right: what the draft
    and the passes over five tokens cost.
    """
    torch.manual_seed(0)
    models = [use_torch_kernels(Transformer(config)) for config in (POCKET, POCKET_DRAFT)]
    sure = torch.zeros(POCKET.vocab_size)
    sure[5] = 1000.0
    for model in models:
        model.register_forward_hook(lambda module, args, logits: logits + sure)
    target, draft = models
    prompt = [list(range(1, 65))]
    ours, plain = in_turn(
        lambda: speculative_generate(target, draft, prompt, 64, k=4, temperature=0),
        lambda: generate(target, prompt, 64, temperature=0), runs=5)
    return "speculative_generate: a small draft model that is always right, against generate", ours / plain, 0.9
