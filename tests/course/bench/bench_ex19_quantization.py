"""What quantized weights and an int8 cache cost and save, as ratios within one run, on the pocket model.

The bytes are exact. The times are those of layers that make their weight anew in torch: no kernel unpacks codes here,
so they are above 1, and the limits say that they do not grow.
"""

import torch

from given.torch_kernels import use_torch_kernels
from grader.course import chapters
from solutions.ex11_kv_cache import KVCache
from solutions.ex16_pretrained import load_pretrained
from solutions.ex19_quantization import Int8KVCache, QuantizedLinear, quantize_model
from tests.course.bench.clock import in_turn

POCKET = chapters.ROOT / "assets" / "pocket"


def pocket():
    return use_torch_kernels(load_pretrained(POCKET, dtype=torch.float32))


@torch.no_grad()
def time_of(bits: int, tokens: int) -> float:
    plain, small, ids = pocket(), quantize_model(pocket(), bits, 64), torch.arange(tokens)[None]
    mine, theirs = in_turn(lambda: small(ids), lambda: plain(ids), runs=9)
    return mine / theirs


def bench_one_token_8_bits():
    """One token: the weights are read, multiplied by scales, and read again."""
    return "quantization: one token, 8 bits / float32", time_of(8, 1), 5


def bench_one_token_4_bits():
    """The codes are unpacked besides."""
    return "quantization: one token, 4 bits / float32", time_of(4, 1), 6


def bench_prompt_4_bits():
    """A prompt: the products weigh more, and making the weight is done once for all tokens."""
    return "quantization: 256 tokens, 4 bits / float32", time_of(4, 256), 2


def bench_bytes():
    """Of the layers' weights, in 4 bits with groups of 64, against bfloat16: 4.375 / 16."""
    model = load_pretrained(POCKET)
    before = sum(p.nbytes for block in model.blocks for p in block.parameters() if p.dim() == 2)
    quantize_model(model, 4, 64)
    after = sum(b.nbytes for part in model.modules() if isinstance(part, QuantizedLinear) for b in part.buffers())
    return "quantization: bytes of the layers, 4 bits / bfloat16", after / before, 0.274


@torch.no_grad()
def bench_int8_cache():
    """One position more after 500: all of them are multiplied by their scales again."""
    one, other = Int8KVCache(1, 4, 512, 32), KVCache(1, 4, 512, 32)
    new, old = torch.randn(1, 4, 1, 32), torch.randn(1, 4, 500, 32)
    for cache in (one, other):
        cache.update(old, old)

    def step(cache):
        cache.update(new, new)
        cache.rewind(1)
    mine, theirs = in_turn(lambda: step(one), lambda: step(other), runs=99)
    return "int8 cache: update of one position / KVCache's", mine / theirs, 20
