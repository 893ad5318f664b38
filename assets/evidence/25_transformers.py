"""Runs the experiment that lesson 25 quotes, its engine beside transformers' continuous batching: 25_transformers.csv.

    python assets/evidence/25_transformers.py        (or: make evidence)

Rows that are there are kept, so a run that was stopped goes on. Both serve the same REQUESTS requests with the pocket
model's weights in float32, on one thread, greedily: a prompt of a text and NEW new tokens, in blocks of 16 positions
and at most BUDGET tokens a step, no block shared. prompts: "equal", all of 32 tokens, or "mixed", each of 4 to 124.
seed: which prompts. engine, transformers: seconds of CPU time, the median of TURNS, in turn, after one that is not
counted. empty: of transformers' call with one prompt of one token and one new token: generate_batch makes a manager
anew in each call, where our engine stands already. same: how many texts are equal.
"""

import random
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import median
from time import process_time

import torch
from transformers import GenerationConfig, LlamaForCausalLM
from transformers.generation.configuration_utils import ContinuousBatchingConfig

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.evidence import table  # noqa: E402
from given.torch_kernels import use_torch_kernels  # noqa: E402
from solutions.ex15_generation import Sampling  # noqa: E402
from solutions.ex16_pretrained import load_pretrained, load_tokenizer  # noqa: E402
from solutions.ex25_serving import Engine, Request, serve  # noqa: E402

FILE, COLUMNS = HERE / "25_transformers.csv", ["prompts", "seed", "engine", "transformers", "empty", "same"]
POCKET, REQUESTS, NEW, BLOCK, BUDGET, TURNS, SEEDS = HERE.parent / "pocket", 32, 32, 16, 256, 3, range(5)
LENGTHS = {"equal": (32, 32), "mixed": (4, 124)}        # of prompts
BLOCKS = REQUESTS * -(-(124 + NEW) // BLOCK)


@cache
def text() -> list[int]:
    return load_tokenizer(POCKET).encode((HERE.parent / "passages.txt").read_text("utf-8"))


def prompts(kind: str, seed: int) -> list[list[int]]:
    rng, (short, long) = random.Random(seed), LENGTHS[kind]
    return [text()[at:at + rng.randint(short, long)] for at in rng.sample(range(len(text()) - long), REQUESTS)]


def ours() -> Callable[[list[list[int]]], list[list[int]]]:
    model = use_torch_kernels(load_pretrained(POCKET, dtype=torch.float32)).eval()
    engine = Engine(model, BLOCKS, BLOCK, BUDGET, REQUESTS, reuse=False)

    def run(ids: list[list[int]]) -> list[list[int]]:
        texts = serve(engine, [Request(id=id, prompt=row, max_new_tokens=NEW, sampling=Sampling(temperature=0))
                               for id, row in enumerate(ids)])
        return [texts[id] for id in range(len(ids))]
    return run


def theirs() -> Callable[..., list[list[int]]]:
    model = LlamaForCausalLM.from_pretrained(POCKET, dtype=torch.float32).eval()
    pages = ContinuousBatchingConfig(page_size=BLOCK, num_blocks=BLOCKS, max_batch_tokens=BUDGET,
                                     allow_block_sharing=False)

    def run(ids: list[list[int]], new: int = NEW) -> list[list[int]]:
        how = GenerationConfig(max_new_tokens=new, do_sample=False, eos_token_id=-1, pad_token_id=0)
        found = model.generate_batch(ids, generation_config=how, continuous_batching_config=pages, warmup=False)
        by_number = sorted(found.values(), key=lambda output: int(str(output.request_id).rpartition("_")[2]))
        return [output.generated_tokens for output in by_number]
    return run


@cache
def both() -> tuple[Callable, Callable]:
    return ours(), theirs()


def timed(run: Callable, *given: object) -> float:
    start = process_time()
    run(*given)
    return process_time() - start


def measure(kind: str, seed: int) -> list[list[str]]:
    ids, (engine, transformers) = prompts(kind, seed), both()
    same = sum(one == other for one, other in zip(engine(ids), transformers(ids), strict=True))
    transformers([[1]], 1)
    took = zip(*((timed(engine, ids), timed(transformers, ids), timed(transformers, [[1]], 1)) for _ in range(TURNS)),
               strict=True)
    return [[kind, str(seed), *(f"{median(times):.3f}" for times in took), str(same)]]


def main() -> None:
    torch.set_num_threads(1)
    table.resume(FILE, COLUMNS, [(kind, seed) for kind in LENGTHS for seed in SEEDS], measure)


if __name__ == "__main__":
    main()
