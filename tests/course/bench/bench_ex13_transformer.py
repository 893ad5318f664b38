"""The whole model, plain and on torch's kernels, against `transformers`' Llama.

Same weights, same inputs, same two threads; both sides run in turn in one process; medians. The small
model is the POCKET preset with room for 1,024 positions, the large one has 150 million parameters.
"""

import re
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import torch
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from assets.pocket.train import hf_names
from given.torch_kernels import use_torch_kernels
from solutions.ex05_softmax import cross_entropy
from solutions.ex13_transformer import (
    POCKET,
    ModelConfig,
    Transformer,
    count_parameters,
    make_caches,
)
from tests.course.bench.clock import in_turn

CONFIG = replace(POCKET, max_seq_len=1024)
LARGE = ModelConfig(vocab_size=32_000, d_model=768, layers=20, heads=12, kv_heads=4, d_ff=2048,
                    max_seq_len=256, tie_embeddings=True)
PROMPT, NEW = 64, 200
BATCH, SEQ = 8, 256
KINDS = {"plain": lambda model: model, "on torch's kernels": use_torch_kernels}


def ours(kind: str, config: ModelConfig = CONFIG) -> Transformer:
    torch.manual_seed(0)
    return KINDS[kind](Transformer(config))


def theirs(config: ModelConfig = CONFIG) -> LlamaForCausalLM:
    """The same weights in `transformers`' Llama."""
    llama = LlamaForCausalLM(LlamaConfig(
        vocab_size=config.vocab_size, hidden_size=config.d_model, num_hidden_layers=config.layers,
        num_attention_heads=config.heads, num_key_value_heads=config.kv_heads,
        head_dim=config.head_dim, intermediate_size=config.d_ff,
        max_position_embeddings=config.max_seq_len, rms_norm_eps=config.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_base},
        tie_word_embeddings=True, bos_token_id=None, eos_token_id=None, pad_token_id=None))
    llama.load_state_dict(hf_names(ours("plain", config).state_dict()))
    return llama


@torch.inference_mode()
def greedy(model: Transformer, ids: torch.Tensor, new: int, use_cache: bool = True) -> torch.Tensor:
    """The prompt and `new` most likely ids."""
    caches = make_caches(model.config, len(ids), ids.shape[1] + new) if use_cache else None
    fed = ids
    for _ in range(new):
        chosen = model(fed, caches=caches)[:, -1:].argmax(-1)
        ids = torch.cat([ids, chosen], 1)
        fed = chosen if use_cache else ids
    return ids


def decoding(config: ModelConfig, new: int, runs: int) -> dict[str, float]:
    """Seconds for each of `new` greedy tokens, and for one pass over the weights."""
    models = {kind: ours(kind, config).eval() for kind in KINDS}
    llama, ids = theirs(config).eval(), torch.randint(config.vocab_size, (1, PROMPT))
    asked = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False}
    expected = llama.generate(ids, **asked)
    assert all(torch.equal(greedy(model, ids, new), expected) for model in models.values())
    weights = torch.cat([p.detach().flatten() for p in models["plain"].parameters()])
    calls = {**{kind: lambda model=model: greedy(model, ids, new) for kind, model in models.items()},
             "generate": lambda: llama.generate(ids, **asked),
             "one pass over the weights": lambda: [weights.sum() for _ in range(new)]}
    took = dict(zip(calls, (s / new for s in in_turn(*calls.values(), runs=runs, threads=2))))
    print(f"{count_parameters(config) / 1e6:,.1f} M parameters, ms per greedy token:",
          ", ".join(f"{name} {1000 * s:.2f}" for name, s in took.items()))
    return took


def bench_decoding():
    """200 greedy tokens after a prompt of 64, with the cache."""
    took = decoding(CONFIG, NEW, runs=5)
    yield "greedy decoding, plain, time against generate", took["plain"] / took["generate"], None
    yield "greedy decoding on torch's kernels, against generate", took["on torch's kernels"] / took["generate"], 0.8


def bench_decoding_of_a_large_model():
    """Here reading the weights takes the time: what is above one pass over them is BLAS's and Python's."""
    took = decoding(LARGE, 8, runs=3)
    fast = took["on torch's kernels"]
    yield "150 M parameters: decoding, plain, against generate", took["plain"] / took["generate"], None
    yield "150 M parameters: on torch's kernels, against generate", fast / took["generate"], 1.0
    yield "150 M parameters: against one pass over the weights", fast / took["one pass over the weights"], None


def bench_cache():
    """8 tokens after a prompt of 960 with the cache, against without."""
    model, ids = ours("on torch's kernels").eval(), torch.randint(CONFIG.vocab_size, (1, 960))
    cached, uncached = in_turn(*(lambda use=use: greedy(model, ids, 8, use) for use in (True, False)),
                               runs=1, threads=2)
    yield "decoding at 960 tokens, with the cache against without", cached / uncached, 0.5


def train_step(kind: str):
    """A training step of "transformers", of the plain model, or of the one on torch's kernels and loss."""
    model = theirs() if kind == "transformers" else ours(kind)
    torch.manual_seed(1)
    ids = torch.randint(CONFIG.vocab_size, (BATCH, SEQ + 1))
    inputs, targets = ids[:, :-1], ids[:, 1:].contiguous()
    loss = {"transformers": lambda: model(inputs, labels=inputs, shift_labels=targets).loss,
            "plain": lambda: cross_entropy(model(inputs), targets),
            "on torch's kernels": lambda: F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())}
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss[kind]().backward()
        optimizer.step()
    return step


def bench_training_step():
    """Forward, backward and AdamW on 8 x 256 tokens."""
    kinds = *KINDS, "transformers"
    took = dict(zip(kinds, in_turn(*map(train_step, kinds), runs=5, threads=2)))
    print("training tokens per second:",
          ", ".join(f"{kind} {BATCH * SEQ / seconds:,.0f}" for kind, seconds in took.items()))
    yield "training step, plain, time against transformers", took["plain"] / took["transformers"], None
    yield ("training step on torch's kernels, against transformers",
           took["on torch's kernels"] / took["transformers"], 1.0)


def _peak(kind: str) -> int:
    """Bytes that three training steps take at their peak, weights and optimizer included."""
    torch.set_num_threads(2)
    Path("/proc/self/clear_refs").write_text("5")       # the peak so far counts no longer
    before = _status("VmRSS")
    call = train_step(kind)
    for _ in range(3):
        call()
    return _status("VmHWM") - before


def _status(field: str) -> int:
    return int(re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) << 10


def bench_training_memory():
    """What training takes at its peak, each in a process of its own, beyond what is imported."""
    kinds = *KINDS, "transformers"
    with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        peaks = dict(zip(kinds, pool.map(_peak, kinds, chunksize=1)))
    print("peak memory of training:", ", ".join(f"{kind} {peak / 1e6:,.0f} MB" for kind, peak in peaks.items()))
    yield "training, plain, peak memory against transformers", peaks["plain"] / peaks["transformers"], None
    yield ("training on torch's kernels, peak memory, the same",
           peaks["on torch's kernels"] / peaks["transformers"], None)
