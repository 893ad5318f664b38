"""How long chapter 01 takes, as a multiple of what Hugging Face's tokenizers (Rust) takes.

Both sides run on one thread, in turn, on the documentation that ships with Python, and start
without a cache; medians of seven runs.
"""

import os

os.environ["TOKENIZERS_PARALLELISM"] = "false"   # before tokenizers is imported
os.environ["RAYON_NUM_THREADS"] = "1"

from pydoc_data.topics import topics  # noqa: E402
from statistics import median  # noqa: E402
from time import perf_counter  # noqa: E402

from tokenizers import Tokenizer as RustTokenizer  # noqa: E402
from tokenizers import models, pre_tokenizers, trainers  # noqa: E402

from solutions import ex01_tokens  # noqa: E402

VOCAB_SIZE = 2048
TEXT = "\n".join(topics[name] for name in sorted(topics))


def rust_trained() -> RustTokenizer:
    tokenizer = RustTokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([TEXT], trainer)
    return tokenizer


def ratio(ours, theirs, prepare=lambda: (None, None), runs: int = 7) -> float:
    """The median time of ours as a multiple of the median time of theirs."""
    mine, rust = [], []
    for _ in range(runs):
        one, other = prepare()
        for times, function, argument in (mine, ours, one), (rust, theirs, other):
            start = perf_counter()
            function(argument)
            times.append(perf_counter() - start)
    return median(mine) / median(rust)


def bench_train_bpe():
    """Training to 2,048 tokens on 0.47 MB of text."""
    times = ratio(lambda _: ex01_tokens.train_bpe(TEXT, VOCAB_SIZE), lambda _: rust_trained())
    return "train_bpe: 2,048 tokens from 0.47 MB, against tokenizers", times, 15.0


def bench_encode():
    """Encoding the same text with a vocabulary of 2,048 tokens."""
    trained, rust = ex01_tokens.train_bpe(TEXT, VOCAB_SIZE), rust_trained().to_str()
    times = ratio(lambda tokenizer: tokenizer.encode(TEXT), lambda tokenizer: tokenizer.encode(TEXT),
                  prepare=lambda: (ex01_tokens.Tokenizer(*trained), RustTokenizer.from_str(rust)))
    return "encode: 0.47 MB, against tokenizers", times, 15.0
