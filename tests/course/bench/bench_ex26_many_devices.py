"""What the parts of chapter 26 cost on one thread, as multiples of what torch, or the plain way, takes.

Ranks as threads run one at a time, so these are ratios of work, not of waiting; medians of runs by turns.
"""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from given.ranks import run_threads
from solutions.ex13_transformer import ModelConfig, Transformer
from solutions.ex26_many_devices import Sharded, checkpointed, ring_all_reduce
from tests.course.bench.clock import in_turn

CONFIG = ModelConfig(vocab_size=512, d_model=256, layers=4, heads=8, kv_heads=4, d_ff=768, max_seq_len=128)


def bench_ring():
    """An all-reduce of 4 million numbers over 4 ranks, against adding them up where they lie."""
    xs = [torch.randn(1 << 22) for _ in range(4)]
    ours, plain = in_turn(lambda: run_threads(4, lambda group: ring_all_reduce(xs[group.rank], group)),
                          lambda: [sum(xs).clone() for _ in range(4)], runs=7)
    return "ring_all_reduce: 4 ranks as threads, against 4 sums in one memory", ours / plain, 5.0


def bench_handing_on():
    """1,000 exchanges of one number between 2 ranks, as multiples of 1,000 small sums."""
    def exchange(group):
        x = torch.ones(1)
        for _ in range(1000):
            x = group.exchange(x, 1 - group.rank, 1 - group.rank)

    def sums():
        x = torch.ones(1)
        for _ in range(1000):
            x = x + 1
    ours, plain = in_turn(lambda: run_threads(2, exchange), sums, runs=5)
    return "run_threads: an exchange of one number, in sums of one number", ours / plain, 40.0


def bench_checkpointed():
    """Forward and backward of a block that is recomputed, against torch's checkpoint."""
    torch.manual_seed(0)
    blocks = Transformer(CONFIG).blocks
    x = torch.randn(4, 128, 256, requires_grad=True)
    mine = nn.ModuleList(map(checkpointed, blocks))

    def run(call):
        y = x
        for n in range(len(blocks)):
            y = call(n, y)
        y.sum().backward()
    ours, torchs = in_turn(lambda: run(lambda n, y: mine[n](y)),
                           lambda: run(lambda n, y: checkpoint(blocks[n], y, use_reentrant=False)), runs=5)
    return "checkpointed: 4 blocks forward and backward, against torch's checkpoint", ours / torchs, 1.4


def bench_sharded():
    """Forward and backward of a sharded model on one rank, which gathers but need not send, against the model."""
    torch.manual_seed(0)
    layers = [nn.Sequential(*(nn.Linear(512, 512) for _ in range(4))) for _ in range(2)]
    x = torch.randn(256, 512)

    def step(group):
        unit = Sharded(layers[0], group)

        def run():
            unit(x).sum().backward()
        return in_turn(run, lambda: layers[1](x).sum().backward(), runs=9)
    ours, plain = run_threads(1, step)[0]
    return "Sharded: forward and backward on one rank, against the module", ours / plain, 1.8
