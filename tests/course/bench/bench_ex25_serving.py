"""What continuous batching saves, and how the engine stands beside `transformers`' continuous batching, which runs on a
CPU with torch's attention over pages.

Greedy text on torch's kernels, on one thread; medians of runs that take turns. Both sides have the same weights, pages
of 16 positions and a budget of 256 tokens a step, and their texts are compared first.
"""

import random

from transformers import GenerationConfig
from transformers.generation.configuration_utils import ContinuousBatchingConfig

from given.torch_kernels import use_torch_kernels
from solutions.ex13_transformer import POCKET, ModelConfig, Transformer, count_parameters
from solutions.ex15_generation import Sampling, generate
from solutions.ex25_serving import Engine, Request, serve
from tests.course.bench.bench_ex13_transformer import ours, theirs
from tests.course.bench.clock import in_turn

# About 150 million parameters.
MEDIUM = ModelConfig(vocab_size=8192, d_model=896, layers=16, heads=14, kv_heads=7, d_ff=2560, max_seq_len=256,
                     tie_embeddings=True)
REQUESTS, BLOCK, BUDGET = 32, 16, 256
GREEDY = Sampling(temperature=0)


def prompts(config: ModelConfig, size: int) -> list[list[int]]:
    rng = random.Random(0)
    return [[rng.randrange(config.vocab_size) for _ in range(size)] for _ in range(REQUESTS)]


def against_transformers(config: ModelConfig, prompt: int, new: int, runs: int) -> float:
    """Seconds of the engine for 32 requests at once, as a multiple of generate_batch's."""
    ids, blocks = prompts(config, prompt), REQUESTS * -(-(prompt + new) // BLOCK)
    mine, llama = ours("on torch's kernels", config), theirs(config).eval()
    engine = Engine(mine, blocks, BLOCK, BUDGET, REQUESTS, reuse=False)
    how = GenerationConfig(max_new_tokens=new, do_sample=False, eos_token_id=-1, pad_token_id=0)
    pages = ContinuousBatchingConfig(page_size=BLOCK, num_blocks=blocks, max_batch_tokens=BUDGET,
                                     allow_block_sharing=False)

    def engines() -> list[list[int]]:
        texts = serve(engine, [Request(id=id, prompt=row, max_new_tokens=new, sampling=GREEDY)
                               for id, row in enumerate(ids)])
        return [texts[id] for id in range(REQUESTS)]

    def transformers() -> list[list[int]]:
        found = llama.generate_batch(ids, generation_config=how, continuous_batching_config=pages, warmup=False)
        by_number = sorted(found.values(), key=lambda output: int(str(output.request_id).rpartition("_")[2]))
        return [output.generated_tokens for output in by_number]

    same = sum(one == other for one, other in zip(engines(), transformers()))
    assert same >= REQUESTS - 2, f"{same} texts of {REQUESTS} are the same"        # rounding may decide between two
    one, other = in_turn(engines, transformers, runs=runs)
    return one / other


def bench_pocket():
    """32 requests at the pocket model's size."""
    return ("Engine: 32 requests, the pocket model's size, against transformers' continuous batching, time a token",
            against_transformers(POCKET, 32, 32, 3), 1.0)


def bench_medium():
    """32 requests at 150 million parameters, where nearly all of the time is spent in matrix products."""
    millions = round(count_parameters(MEDIUM) / 1e6)
    return (f"Engine: 32 requests, {millions} million weights, against transformers' continuous batching, time a token",
            against_transformers(MEDIUM, 8, 8, 1), 1.0)


def bench_batch_by_batch():
    """64 requests of 4 to 64 new tokens: eight at a time until the last of them is done, or one in for each one out."""
    model = use_torch_kernels(Transformer(POCKET))
    rng = random.Random(1)
    ids = prompts(POCKET, 16) + prompts(POCKET, 16)
    new = [rng.choice([4, 8, 16, 64]) for _ in ids]

    def batches() -> None:
        for start in range(0, len(ids), 8):
            generate(model, ids[start:start + 8], max(new[start:start + 8]), temperature=0)

    def continuous() -> None:
        serve(Engine(model, 64, BLOCK, BUDGET, 8, reuse=False), [
            Request(id=id, prompt=row, max_new_tokens=n, sampling=GREEDY) for id, (row, n) in enumerate(zip(ids, new))])

    one, other = in_turn(continuous, batches, runs=3)
    return "Engine: 64 requests of unequal lengths, eight at a time, against batch by batch, time", one / other, 0.8
