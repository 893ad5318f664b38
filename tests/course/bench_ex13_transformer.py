"""The whole model against `transformers`' Llama: same weights, same inputs, same two threads.

Both sides run in turn in one process; medians. The model is the POCKET preset with room for 1,024
positions.
"""

import re
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from assets.pocket.train import hf_names
from solutions.ex05_softmax import cross_entropy
from solutions.ex13_transformer import POCKET, Transformer, make_caches
from tests.course.bench import in_turn

CONFIG = replace(POCKET, max_seq_len=1024, fused=True)
PROMPT, NEW = 64, 200
BATCH, SEQ = 8, 256


def ours(config=CONFIG) -> Transformer:
    torch.manual_seed(0)
    return Transformer(config)


def theirs(model: Transformer) -> LlamaForCausalLM:
    """The same weights in `transformers`' Llama."""
    llama = LlamaForCausalLM(LlamaConfig(
        vocab_size=CONFIG.vocab_size, hidden_size=CONFIG.d_model, num_hidden_layers=CONFIG.layers,
        num_attention_heads=CONFIG.heads, num_key_value_heads=CONFIG.kv_heads,
        head_dim=CONFIG.d_model // CONFIG.heads, intermediate_size=CONFIG.d_ff,
        max_position_embeddings=CONFIG.max_seq_len, rms_norm_eps=CONFIG.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": CONFIG.rope_base},
        tie_word_embeddings=True, bos_token_id=None, eos_token_id=None, pad_token_id=None))
    llama.load_state_dict(hf_names(model.state_dict()))
    return llama


@torch.inference_mode()
def greedy(model: Transformer, ids: torch.Tensor, new: int, use_cache: bool = True) -> torch.Tensor:
    """The prompt and `new` most likely ids."""
    caches = make_caches(CONFIG, len(ids), ids.shape[1] + new) if use_cache else None
    fed = ids
    for _ in range(new):
        chosen = model(fed, caches=caches)[:, -1:].argmax(-1)
        ids = torch.cat([ids, chosen], 1)
        fed = chosen if use_cache else ids
    return ids


def bench_decoding():
    """200 greedy tokens after a prompt of 64, with the cache."""
    model = ours().eval()
    llama, ids = theirs(model).eval(), torch.randint(CONFIG.vocab_size, (1, PROMPT))
    asked = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False}
    assert torch.equal(greedy(model, ids, NEW), llama.generate(ids, **asked))
    mine, hf = in_turn(lambda: greedy(model, ids, NEW), lambda: llama.generate(ids, **asked), threads=2)
    print(f"greedy tokens per second: {NEW / mine:.0f}, generate {NEW / hf:.0f}")
    return "greedy decoding, time against transformers' generate", mine / hf, 1 / 1.5


def bench_cache():
    """8 tokens after a prompt of 960 with the cache, against without."""
    model, ids = ours().eval(), torch.randint(CONFIG.vocab_size, (1, 960))
    cached, uncached = in_turn(*(lambda use=use: greedy(model, ids, 8, use) for use in (True, False)),
                               runs=1, threads=2)
    return "decoding at 960 tokens, with the cache against without", cached / uncached, 0.5


def step(optimizer, loss) -> None:
    optimizer.zero_grad(set_to_none=True)
    loss().backward()
    optimizer.step()


def train_step(name: str):
    """A training step of "transformers", or of the course's model with "fused" or "own attention"."""
    model = ours(replace(CONFIG, fused=name != "own attention"))
    ids = torch.randint(CONFIG.vocab_size, (BATCH, SEQ + 1))    # the same for all: ours() has seeded
    inputs, targets = ids[:, :-1], ids[:, 1:].contiguous()
    if name == "transformers":
        model = theirs(model)
        loss = lambda: model(inputs, labels=inputs, shift_labels=targets).loss  # noqa: E731
    else:
        loss = lambda: cross_entropy(model(inputs), targets)                    # noqa: E731
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    return lambda: step(optimizer, loss)


def against_transformers(name: str) -> float:
    """The median time of a training step, as a multiple of `transformers`'."""
    mine, hf = in_turn(train_step(name), train_step("transformers"), threads=2)
    print(f"training tokens per second: {name} {BATCH * SEQ / mine:,.0f}, "
          f"transformers {BATCH * SEQ / hf:,.0f}")
    return mine / hf


def bench_training_step():
    """Forward, backward and AdamW on 8 x 256 tokens."""
    return "training step (fused), time against transformers", against_transformers("fused"), 1.0


def bench_training_step_own_attention():
    """The same with this course's own attention."""
    return ("training step (own attention), time against transformers",
            against_transformers("own attention"), None)


def _peak(name: str) -> int:
    """Bytes that three training steps take at their peak, weights and optimizer included."""
    torch.set_num_threads(2)
    Path("/proc/self/clear_refs").write_text("5")       # the peak so far counts no longer
    before = _status("VmRSS")
    call = train_step(name)
    for _ in range(3):
        call()
    return _status("VmHWM") - before


def _status(field: str) -> int:
    return int(re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) << 10


def bench_training_memory():
    """What training takes at its peak, each in a process of its own, beyond what is imported."""
    names = "fused", "own attention", "transformers"
    with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        peaks = dict(zip(names, pool.map(_peak, names, chunksize=1)))
    print("peak memory of training:", ", ".join(f"{name} {peak / 1e6:,.0f} MB" for name, peak in peaks.items()))
    return "training (fused), peak memory against transformers", peaks["fused"] / peaks["transformers"], None
