"""What experts cost: tokens per second against a dense model of the same active size, and transformers' layer.

All on one thread, in turn, on the same inputs; medians of several runs.
"""

import torch
from transformers import MixtralConfig
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

from given.torch_kernels import use_torch_kernels
from solutions.ex13_transformer import ModelConfig, Transformer
from solutions.ex18_mixture_of_experts import MoE, with_experts
from tests.course.bench.clock import in_turn

CONFIG = ModelConfig(vocab_size=1024, d_model=256, layers=2, heads=4, kv_heads=2, d_ff=1024, max_seq_len=256)


def bench_model():
    """A forward and backward pass of 4 x 256 tokens: 2 of 8 experts of width 512, against d_ff = 1024."""
    torch.manual_seed(0)
    dense, sparse = (use_torch_kernels(Transformer(CONFIG)) for _ in range(2))
    use_torch_kernels(with_experts(sparse, 8, 2, d_ff=512))
    ids = torch.randint(1024, (4, 256))
    ours, plain = in_turn(*(lambda model=model: model(ids).logsumexp(-1).mean().backward()
                            for model in (sparse, dense)), runs=5)
    return "a model with 8 experts, against a dense one of its active size", ours / plain, 2.0


def bench_decode():
    """One token through the layer of 8 experts and through a dense layer of the active size."""
    torch.manual_seed(0)
    dense, sparse = (use_torch_kernels(layer) for layer in (MoE(256, 1024, 1, 1), MoE(256, 512, 8, 2)))
    x = torch.randn(1, 256)
    with torch.no_grad():
        ours, plain = in_turn(lambda: sparse(x), lambda: dense.experts[0](x))
    return "one token through 8 experts, against the dense feed-forward", ours / plain, 12.0


def bench_layer():
    """A forward and backward pass of 1,024 tokens through Mixtral's layer, against transformers' own."""
    torch.manual_seed(0)
    ours = use_torch_kernels(MoE(256, 512, 8, 2))
    theirs = MixtralSparseMoeBlock(MixtralConfig(hidden_size=256, intermediate_size=512, num_local_experts=8))
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.02)
    x = torch.randn(4, 256, 256, requires_grad=True)
    mine, others = in_turn(*(lambda layer=layer: layer(x).sum().backward() for layer in (ours, theirs)), runs=7)
    return "MoE forward and backward, against transformers' Mixtral layer", mine / others, 2.0
