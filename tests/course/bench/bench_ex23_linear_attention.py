"""What a state costs: the gated delta rule in chunks and its layer, against transformers' torch path; one more token.

All on one thread, in turn, on the same inputs; medians of several runs.
"""

import torch
from transformers import Qwen3NextConfig
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet, torch_chunk_gated_delta_rule

from given.torch_kernels import use_torch_kernels
from solutions.ex11_kv_cache import CachedAttention, KVCache
from solutions.ex23_linear_attention import GatedDeltaNet, chunk_gated_delta_rule, gated_delta_rule, l2_normalize
from tests.course.bench.clock import in_turn


def _inputs(seq, heads=8, head_dim=64):
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, heads, seq, head_dim) for _ in range(3))
    beta, log_decay = torch.rand(1, heads, seq), -0.1 * torch.rand(1, heads, seq)
    return [x.requires_grad_() for x in (l2_normalize(q), l2_normalize(k), v, beta, log_decay)]


def _theirs(q, k, v, beta, log_decay):
    q, k, v, beta, g = (x.transpose(1, 2) for x in (q, k, v, beta, log_decay))
    return torch_chunk_gated_delta_rule(q, k, v, g, beta, output_final_state=True)


def bench_chunks():
    """Forward and backward of 2,048 tokens, 8 heads of 64, in chunks of 64."""
    inputs = _inputs(2048)
    mine, theirs = in_turn(*(lambda rule=rule: rule(*inputs)[0].sum().backward()
                             for rule in (chunk_gated_delta_rule, _theirs)), runs=5)
    return "the chunked gated delta rule, forward and backward, against transformers' torch path", mine / theirs, 1.5


def bench_chunks_forward():
    """The same, forward alone."""
    inputs = _inputs(2048)
    with torch.no_grad():
        mine, theirs = in_turn(lambda: chunk_gated_delta_rule(*inputs), lambda: _theirs(*inputs), runs=7)
    return "the chunked gated delta rule, forward, against transformers' torch path", mine / theirs, 1.5


def bench_layer():
    """Forward and backward of 1,024 tokens through the layer."""
    torch.manual_seed(0)
    config = Qwen3NextConfig(
        hidden_size=256, num_hidden_layers=1, linear_num_key_heads=4, linear_num_value_heads=8, linear_key_head_dim=32,
        linear_value_head_dim=32, layer_types=["linear_attention"])
    theirs, ours = Qwen3NextGatedDeltaNet(config, 0), use_torch_kernels(GatedDeltaNet(256, 4, 32, 8))
    x = torch.randn(1, 1024, 256, requires_grad=True)
    mine, others = in_turn(*(lambda layer=layer: layer(x).sum().backward() for layer in (ours, theirs)), runs=5)
    return "GatedDeltaNet forward and backward, against transformers' Qwen3-Next layer", mine / others, 1.5


def bench_chunks_against_tokens():
    """512 tokens in chunks, against token by token: what the triangular solve is for."""
    inputs = _inputs(512)
    with torch.no_grad():
        chunks, tokens = in_turn(lambda: chunk_gated_delta_rule(*inputs), lambda: gated_delta_rule(*inputs), runs=5)
    return "the gated delta rule in chunks, against token by token", chunks / tokens, 0.5


def bench_one_more_token():
    """One token after 16,384: the linear layer with its state, against attention of equal sizes with its cache."""
    torch.manual_seed(0)
    linear = use_torch_kernels(GatedDeltaNet(256, 4, 32, 8)).eval()
    attention = use_torch_kernels(torch.nn.ModuleList([CachedAttention(256, 8, 4, 32)]))[0].eval()
    x, states, keys = torch.randn(1, 1, 256), linear.make_cache(1), KVCache(1, 4, 16_385, 32)
    with torch.no_grad():
        keys.update(*torch.randn(2, 1, 4, 16_384, 32))

        def attend():
            attention(x, cache=keys)
            keys.rewind(1)

        mine, theirs = in_turn(lambda: linear(x, cache=states), attend)
    return "one token through a linear layer, against attention over 16,384", mine / theirs, 0.5
