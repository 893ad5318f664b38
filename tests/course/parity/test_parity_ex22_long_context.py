"""Chapter 22 against transformers: attention of DeepSeek-V2, V3 and V3.2 and of gpt-oss, with caches and without."""

import pytest
import torch
from torch import nn
from transformers import (
    DeepseekV2Config,
    DeepseekV3Config,
    DeepseekV32Config,
    DynamicCache,
    Gemma3TextConfig,
    GptOssConfig,
    SmolLM3Config,
)
from transformers.models.deepseek_v2 import modeling_deepseek_v2
from transformers.models.deepseek_v3 import modeling_deepseek_v3
from transformers.models.deepseek_v32 import modeling_deepseek_v32
from transformers.models.gpt_oss import modeling_gpt_oss

from given.torch_kernels import use_torch_kernels
from grader.course.doubles import Operations
from solutions.ex07_rope import RoPE, rope_frequencies, yarn_frequencies
from solutions.ex10_grouped_query_attention import grouped_attention, sliding_window_mask
from solutions.ex11_kv_cache import CachedAttention, KVCache, RollingKVCache
from solutions.ex13_transformer import ModelConfig, Transformer, make_caches
from solutions.ex15_generation import generate
from solutions.ex22_long_context import (
    LatentCache,
    MultiHeadLatentAttention,
    SinkAttention,
    SinkCache,
    StreamingAttention,
    attention_with_sinks,
    cache_bytes,
    convert_deepseek,
    index_scores,
    layer_pattern,
    make_sink_caches,
    sparse_attention,
    streaming_attention,
    with_latent_attention,
    with_rope,
    with_streaming,
)
from tests.course.close import assert_close

SIZES = {"hidden_size": 24, "num_attention_heads": 4, "num_key_value_heads": 4, "kv_lora_rank": 10,
         "qk_nope_head_dim": 6, "qk_rope_head_dim": 8, "v_head_dim": 5, "max_position_embeddings": 64,
         "num_hidden_layers": 2, "attn_implementation": "eager"}
PLAIN = {"rope_type": "default", "rope_theta": 10_000.0}
YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 16,
        "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}
CUTS = {"token by token": [1] * 12, "in chunks": [5, 1, 1, 4, 1], "at once": [12]}


def shaken(module: nn.Module) -> nn.Module:
    """A module of transformers with numbers of useful size in every parameter, in float64."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.normal_(generator=generator)
            if parameter.ndim > 1:
                parameter.div_(parameter.shape[-1] ** 0.5)
            elif name.endswith("weight"):
                parameter.mul_(0.1).add_(1)
    return module.double().eval()


def numbers(*shape, seed=0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def theirs_mask(q_len: int, k_len: int, window: int | None = None) -> torch.Tensor:
    """The additive mask that their eager attention takes."""
    mask = sliding_window_mask(q_len, k_len, window or k_len)
    return torch.zeros(1, 1, q_len, k_len, dtype=torch.float64).masked_fill(~mask, -torch.inf)


def theirs_in_pieces(attention, rotary, x, cuts, cache, window=None, **more):
    out, start = [], 0
    with torch.no_grad():
        for size in cuts:
            places = torch.arange(start, start + size)[None]
            out.append(attention(
                x[:, start:start + size], position_embeddings=rotary(x, places), past_key_values=cache,
                attention_mask=theirs_mask(size, start + size, window), **more)[0])
            start += size
    return torch.cat(out, dim=1)


def ours_in_pieces(attention, x, cuts, cache):
    with torch.no_grad():
        return torch.cat([attention(piece, cache=cache) for piece in x.split(cuts, dim=1)], dim=1)


# -- latent attention

def deepseek_v3(q_rank, rope_parameters):
    config = DeepseekV3Config(**SIZES, q_lora_rank=q_rank, rope_parameters=dict(rope_parameters))
    config.head_dim = config.qk_rope_head_dim
    attention = shaken(modeling_deepseek_v3.DeepseekV3Attention(config, 0))
    rotary = modeling_deepseek_v3.DeepseekV3RotaryEmbedding(config)
    return config, attention, lambda x, places: rotary(x, places)


def ours_of(theirs, q_rank, rope_parameters, **options):
    frequencies, scale = rope_frequencies(8), 1.0
    if rope_parameters["rope_type"] == "yarn":
        frequencies, scale = yarn_frequencies(8, 4.0, 16)
    # mscale equals mscale_all_dim, so cosines keep their size, and the scores are multiplied instead
    mine = MultiHeadLatentAttention(24, 4, 10, 6, 8, 5, q_rank, RoPE(8, 64, frequencies=frequencies.double()),
                                    score_scale=scale**2, **options).double()
    mine.load_state_dict(convert_deepseek(theirs.state_dict(), 4, 8))
    return mine


@pytest.mark.parametrize("absorb", [False, True])
@pytest.mark.parametrize("rope_parameters", [PLAIN, YARN], ids=["plain", "yarn"])
@pytest.mark.parametrize("q_rank", [9, None])
def test_deepseek_v3(q_rank, rope_parameters, absorb):
    """Outputs and gradients, on both roads."""
    _, theirs, rotary = deepseek_v3(q_rank, rope_parameters)
    mine, x = ours_of(theirs, q_rank, rope_parameters, absorb=absorb), numbers(2, 12, 24)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    ours = mine(inputs[0])
    right = theirs(inputs[1], position_embeddings=rotary(x, torch.arange(12)[None]),
                   attention_mask=theirs_mask(12, 12))[0]
    # their tables are cast to the dtype of x only after the cosine in float32
    assert_close(ours.float(), right.float())
    for out in (ours, right):
        out.pow(2).sum().backward()
    assert_close(inputs[0].grad.float(), inputs[1].grad.float())
    for name, gradient in convert_deepseek({n: p.grad for n, p in theirs.named_parameters()}, 4, 8).items():
        assert_close(mine.get_parameter(name).grad.float(), gradient.float())


@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("absorb", [False, True])
def test_deepseek_v3_with_caches(absorb, cuts):
    config, theirs, rotary = deepseek_v3(9, PLAIN)
    mine, x = ours_of(theirs, 9, PLAIN, absorb=absorb), numbers(2, 12, 24)
    kept = DynamicCache(config=config)
    right = theirs_in_pieces(theirs, rotary, x, cuts, kept)
    cache = LatentCache(2, 12, 10, 8, torch.float64)
    assert_close(ours_in_pieces(mine, x, cuts, cache).float(), right.float())
    assert_close(cache.latents.float(), kept.layers[0].keys[:, 0].float())
    # and as many bytes as theirs
    model = ModelConfig(vocab_size=1, d_model=24, layers=1, heads=4, d_ff=1, max_seq_len=12)
    assert cache_bytes(model, 12, 2, 8, latent=18) == sum(x.nbytes for x in (cache.latents, cache.turned)) \
        == sum(x.nbytes for x in (kept.layers[0].keys, kept.layers[0].values))
    assert_close(ours_in_pieces(mine, x, cuts, KVCache(2, 1, 12, 10, torch.float64)).float(), right.float())


@pytest.mark.parametrize("q_rank", [9, None])
def test_deepseek_v2(q_rank):
    config = DeepseekV2Config(**SIZES, q_lora_rank=q_rank, rope_parameters=dict(PLAIN))
    config.head_dim = 8
    theirs = shaken(modeling_deepseek_v2.DeepseekV2Attention(config, 0))
    rotary = modeling_deepseek_v2.DeepseekV2RotaryEmbedding(config)
    x = numbers(2, 12, 24)
    right = theirs(x, position_embeddings=rotary(x, torch.arange(12)[None]), attention_mask=theirs_mask(12, 12))[0]
    for absorb in (False, True):
        mine = ours_of(theirs, q_rank, PLAIN, absorb=absorb)
        assert_close(mine(x).float(), right.float())


def test_both_roads_are_one():
    """In float64 to rounding, in float32 to 1e-6 of the largest number."""
    torch.manual_seed(0)
    for dtype, most in ((torch.float64, 1e-14), (torch.float32, 1e-6)):
        attention = MultiHeadLatentAttention(64, 8, 32, 16, 8, 24, 48, RoPE(8, 300)).to(dtype)
        x = torch.randn(2, 300, 64, dtype=dtype)
        roads = []
        for attention.absorb in (False, True):
            roads.append(attention(x))
        assert (roads[0] - roads[1]).abs().max() <= most * roads[0].abs().max()


def test_no_key_is_made():
    """One token after 1,000: no tensor of seq × heads × head_dim numbers, the weights aside."""
    attention = MultiHeadLatentAttention(32, 8, 16, 12, 4, 10, rope=RoPE(4, 1001)).eval()
    x, largest = numbers(1, 1001, 32).float(), {}
    for attention.absorb in (False, True):
        cache = LatentCache(1, 1001, 16, 4)
        with torch.no_grad():
            attention(x[:, :1000], cache=cache)
            token = x[:, 1000:].clone()
            with Operations() as operations:
                attention(token, cache=cache)
        largest[attention.absorb] = operations.largest
    assert largest[False] >= 1001 * 8 * 12
    assert largest[True] <= 1001 * 20           # the cache itself, whose views are returned


LLAMA = {"vocab_size": 31, "d_model": 24, "layers": 3, "heads": 4, "kv_heads": 2, "d_ff": 20, "max_seq_len": 64}


def filled(model):
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=parameter.shape[-1] ** -0.5, generator=generator)
    return model.double().eval()


@pytest.mark.parametrize("kv_rank", [12, 9])
def test_a_latent_model(kv_rank):
    """generate, make_caches, padding, chunks and torch's kernels go on working, in the memory that latents take."""
    model = filled(with_latent_attention(Transformer(ModelConfig(**LLAMA)), kv_rank, 6, 4, 5, q_rank=10))
    ids = torch.randint(31, (2, 20), generator=torch.Generator().manual_seed(3))
    right = model(ids)
    prompts, said = [[1, 2, 3], [4, 5, 6, 7, 8], [9]], []
    for absorb in (False, True):
        for block in model.blocks:
            block.attention.absorb = absorb
        for caches in (make_caches(model.config, 2, 20, torch.float64),
                       [LatentCache(2, 20, kv_rank, 4, torch.float64) for _ in range(3)]):
            with torch.no_grad():
                parts = [model(part, caches=caches) for part in ids.split([7, 1, 1, 11], dim=1)]
            assert_close(torch.cat(parts, dim=1).float(), right.float())
        said += [generate(model, prompts, 9, temperature=0, use_cache=use_cache) for use_cache in (True, False)]
        said.append([generate(model, [prompt], 9, temperature=0)[0] for prompt in prompts])
    assert all(one == said[0] for one in said)
    kept = make_caches(model.config, 2, 20)
    rounded = 4 * -(-(kv_rank + 4) // 4)
    assert sum(cache.keys.nbytes + cache.values.nbytes for cache in kept) == 3 * 2 * 20 * rounded * 4
    assert_close(use_torch_kernels(model)(ids).float(), right.float())


def test_a_latent_model_starts_and_learns():
    """The start of chapter 13, the config's RoPE with its scaling, and gradients in every parameter."""
    torch.manual_seed(0)
    scaling = {"rope_type": "linear", "factor": 2.0}
    model = Transformer(ModelConfig(**LLAMA | {"d_model": 64}, rope_scaling=scaling)).train()
    with_latent_attention(model, 32, 16, 8, 16, 40)
    attention = model.blocks[1].attention
    assert attention.training and abs(attention.kv_up.weight.std() / 0.02 - 1) < 0.1
    assert abs(attention.o_proj.weight.std() * 6**0.5 / 0.02 - 1) < 0.1
    assert torch.allclose(attention.rope.cos[2], rope_frequencies(8).cos())
    model(torch.randint(31, (2, 9))).logsumexp(-1).mean().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in model.parameters())


def test_what_cannot_be_latent():
    for changes, named in (({"windows": (4, None, 4)}, "model"), ({"causal": False}, "model")):
        model = Transformer(ModelConfig(**LLAMA, **changes))
        before = [block.attention for block in model.blocks]
        with pytest.raises(ValueError, match=named):
            with_latent_attention(model, 12, 6, 4, 5)
        assert [block.attention for block in model.blocks] == before
    model = Transformer(ModelConfig(**LLAMA))
    with pytest.raises(ValueError, match="kv_rank"):
        with_latent_attention(model, 0, 6, 4, 5)
    assert isinstance(model.blocks[0].attention, CachedAttention) and model.config.kv_heads == 2
    latent = with_latent_attention(model, 12, 6, 4, 5).eval()
    with torch.no_grad(), pytest.raises(ValueError, match="cache"):
        latent(torch.tensor([[1]]), caches=[RollingKVCache(1, 1, 4, 8)] * 3)
    with torch.no_grad(), pytest.raises(ValueError, match="cache"):
        latent(torch.tensor([[1]]), caches=[KVCache(1, 2, 4, 8)] * 3)


# -- sinks that are learned

def gpt_oss(layer, **changes):
    config = GptOssConfig(
        hidden_size=24, num_attention_heads=6, num_key_value_heads=2, head_dim=8, sliding_window=4,
        num_hidden_layers=2, max_position_embeddings=64, rope_parameters=dict(PLAIN),
        attn_implementation="eager", **changes)
    return config, shaken(modeling_gpt_oss.GptOssAttention(config, layer)), \
        modeling_gpt_oss.GptOssRotaryEmbedding(config)


@pytest.mark.parametrize("layer,window", [(0, 4), (1, None)])
def test_gpt_oss(layer, window):
    _, theirs, rotary = gpt_oss(layer)
    mine = SinkAttention(24, 6, 2, 8, qkv_bias=True, o_bias=True, rope=RoPE(8, 64), window=window).double()
    mine.load_state_dict(theirs.state_dict())
    x = numbers(2, 12, 24)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    ours = mine(inputs[0])
    right = theirs(inputs[1], position_embeddings=rotary(x, torch.arange(12)[None]),
                   attention_mask=theirs_mask(12, 12, window))[0]
    assert_close(ours.float(), right.float())
    for out in (ours, right):
        out.pow(2).sum().backward()
    assert_close(inputs[0].grad.float(), inputs[1].grad.float())
    assert_close(mine.sinks.grad.float(), theirs.sinks.grad.float())
    for cuts in CUTS.values():
        cache = KVCache(2, 2, 12, 8, torch.float64) if window is None else RollingKVCache(2, 2, 4, 8, torch.float64)
        right = theirs_in_pieces(theirs, rotary, x, cuts, DynamicCache(), window)
        assert_close(ours_in_pieces(mine, x, cuts, cache).float(), right.float())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_sinks_of_nothing_and_one_more_key(dtype):
    """A sink of −∞ is attention without; a sink is a key of that score whose value is zero."""
    q, k, v = (numbers(2, heads, n, d, seed=heads + n).to(dtype) for heads, n, d in ((6, 5, 4), (2, 9, 4), (2, 9, 3)))
    mask = sliding_window_mask(5, 9, 4)
    assert_close(attention_with_sinks(q, k, v, torch.full((6,), -torch.inf), mask), grouped_attention(q, k, v, mask))
    q, k, v = (x.double() for x in (q, k, v))
    # with a 1 behind every query, the sink · √d behind an extra key and zeros behind the others
    sink = 0.7
    wide = torch.cat([q, torch.ones_like(q[..., :1])], -1) * (5 / 4) ** 0.5
    keys = torch.cat([torch.cat([k, torch.zeros_like(k[..., :1])], -1), torch.zeros(2, 2, 1, 5).double()], -2)
    keys[..., -1, -1] = sink * 4**0.5
    values = torch.cat([v, torch.zeros_like(v[..., :1, :])], -2)
    seen = torch.cat([mask, torch.ones(5, 1, dtype=torch.bool)], -1)
    sinks = torch.full((6,), sink, dtype=torch.float64)
    assert_close(attention_with_sinks(q, k, v, sinks, mask), grouped_attention(wide, keys, values, seen))


def test_a_row_that_sees_nothing():
    q, k, v = (numbers(1, 2, 3, 4, seed=n).requires_grad_() for n in range(3))
    out = attention_with_sinks(q, k, v, torch.zeros(2, dtype=torch.float64), torch.eye(3, dtype=torch.bool) & False)
    out.sum().backward()
    assert out.abs().max() == 0 and all(x.grad.isfinite().all() for x in (q, k, v))


# -- sinks that are kept

def streamed_slowly(q, k, v, rope, sinks, window):
    """Token by token, with a list for a cache: what the paper's Figure 4 draws."""
    heads, kv_heads, out = q.shape[1], k.shape[1], []
    for t in range(k.shape[2] - q.shape[2], k.shape[2]):
        seen = [p for p in range(t + 1) if p < sinks or p > t - window]
        places = torch.arange(len(seen))
        mine = rope(q[:, :, [t - k.shape[2]]], places[-1:])
        keys = rope(k[:, :, seen], places).repeat_interleave(heads // kv_heads, 1)
        weights = (mine @ keys.mT / q.shape[-1] ** 0.5).softmax(-1)
        out.append(weights @ v[:, :, seen].repeat_interleave(heads // kv_heads, 1))
    return torch.cat(out, dim=2)


@pytest.mark.parametrize("sinks,window", [(0, 3), (2, 1), (2, 4), (3, 20), (20, 3), (1, 7)])
@pytest.mark.parametrize("q_len", [1, 5, 15])
def test_streaming_attention(sinks, window, q_len):
    q, k, v = (numbers(2, heads, 15, 6, seed=heads) for heads in (4, 2, 2))
    rope = RoPE(6, 40, frequencies=rope_frequencies(6).double())
    q = q[:, :, 15 - q_len:]
    assert_close(streaming_attention(q, k, v, rope, sinks, window), streamed_slowly(q, k, v, rope, sinks, window))


@pytest.mark.parametrize("cuts", [[1] * 23, [23], [3, 1, 1, 9, 9], [11, 12]])
@pytest.mark.parametrize("sinks,window", [(0, 3), (2, 1), (2, 4), (3, 30)])
def test_sink_cache(sinks, window, cuts):
    """What it returns, against a list of all that ever was."""
    cache = SinkCache(2, 3, sinks, window, 4)
    k, v = numbers(2, 3, 23, 4).float(), numbers(2, 3, 23, 4, seed=1).float()
    for _ in range(2):
        start = 0
        for size in cuts:
            end = start + size
            seen = [p for p in range(end) if p < sinks or p > start - window]
            keys, values = cache.update(k[:, :, start:end], v[:, :, start:end])
            assert torch.equal(keys, k[:, :, seen]) and torch.equal(values, v[:, :, seen])
            start = end
            assert cache.length == end
        assert cache.keys.shape[2] == sinks + window
        cache.reset()


def test_a_streaming_model():
    """It goes on past its tables: at once, token by token, in chunks, from either cache, by generate: the same."""
    model = filled(Transformer(ModelConfig(**LLAMA | {"max_seq_len": 16}, qk_norm=True, qkv_bias=True)))
    ids = torch.randint(31, (2, 60), generator=torch.Generator().manual_seed(3))
    short, names = model(ids[:, :9]), list(model.state_dict())
    with_streaming(model, 2, 7)
    assert list(model.state_dict()) == names
    with torch.no_grad():
        whole = model(ids)
        assert_close(whole[:, :9].float(), short.float())           # nothing has been dropped yet
        for cuts in ([1] * 60, [5, 1, 1, 40, 13]):
            for caches in (make_sink_caches(model, 2, torch.float64), make_caches(model.config, 2, 60, torch.float64)):
                parts = [model(part, caches=caches) for part in ids.split(cuts, dim=1)]
                assert_close(torch.cat(parts, dim=1).float(), whole.float())
    said = [generate(model, ids.tolist(), 20, temperature=0, use_cache=use_cache) for use_cache in (True, False)]
    assert said[0] == said[1]
    with torch.no_grad():
        assert_close(use_torch_kernels(model)(ids[:, :30]).float(), whole[:, :30].float())


def test_no_sinks_is_a_window():
    """With RoPE only distances count: without sinks, a streaming layer is one with a sliding window."""
    torch.manual_seed(0)
    rope = RoPE(6, 80, frequencies=rope_frequencies(6).double())
    plain = CachedAttention(24, 4, 2, 6, rope=rope, window=5).double()
    other = StreamingAttention(24, 4, 2, 6, rope=rope, sinks=0, window=5).double()
    other.load_state_dict(plain.state_dict())
    x = numbers(2, 40, 24)
    with torch.no_grad():
        assert_close(other(x), plain(x))


def test_what_cannot_stream():
    config = ModelConfig(**LLAMA | {"max_seq_len": 16})
    for options, named in (((-1, 4), "sinks"), ((2, 0), "window"), ((2, 15), "window")):
        model = Transformer(config)
        with pytest.raises(ValueError, match=named):
            with_streaming(model, *options)
        assert model.config is config and type(model.blocks[0].attention) is CachedAttention
    with pytest.raises(ValueError, match="model"):
        with_streaming(Transformer(ModelConfig(**LLAMA, positions="learned")), 2, 3)
    model, ids = with_streaming(Transformer(config), 2, 7).eval(), torch.tensor([[1, 2]])
    with torch.no_grad():
        for caches, mask, named in (([SinkCache(1, 2, 2, 6, 6)] * 3, None, "cache"),
                                    ([RollingKVCache(1, 2, 9, 6)] * 3, None, "cache"),
                                    (None, torch.ones(1, 1, 1, 2, dtype=torch.bool), "mask")):
            with pytest.raises(ValueError, match=named):
                model(ids, mask, caches=caches)
        assert model(ids, caches=make_sink_caches(model, 1)).shape == (1, 2, 31)


# -- which layers see how far

def test_layer_patterns():
    gemma = Gemma3TextConfig(num_hidden_layers=26, sliding_window=512)
    ours = layer_pattern(26, (512,) * 5 + (None,))
    assert [window is not None for window in ours] == [kind == "sliding_attention" for kind in gemma.layer_types]
    oss = GptOssConfig(num_hidden_layers=24)
    ours = layer_pattern(24, (128, None))
    assert [window is not None for window in ours] == [kind == "sliding_attention" for kind in oss.layer_types]
    smol = SmolLM3Config(num_hidden_layers=36)
    assert [int(turned) for turned in layer_pattern(36, (True, True, True, False))] == smol.no_rope_layers


def test_layers_without_rope():
    model = filled(Transformer(ModelConfig(**LLAMA)))
    before, ids = model(torch.arange(9)[None]), torch.arange(9)[None]
    assert with_rope(model, layer_pattern(3, (True, False))) is model
    assert [block.attention.rope is not None for block in model.blocks] == [True, False, True]
    assert not torch.allclose(model(ids), before)
    # all without: the order of what came before no longer matters to the last token
    with_rope(model, [False] * 3)
    flipped = ids.clone()
    flipped[0, :8] = ids[0, :8].flip(0)
    shallow = filled(Transformer(ModelConfig(**LLAMA | {"layers": 1})))
    with_rope(shallow, [False])
    assert_close(shallow(ids)[:, -1].float(), shallow(flipped)[:, -1].float())
    for turned in ([True] * 3, [False] * 2):
        with pytest.raises(ValueError, match="turned"):
            with_rope(model, turned)


@pytest.mark.parametrize("windows", [None, (4, None, 4), (4, 30, 50)])
def test_bytes_are_those_of_the_caches(windows):
    config = ModelConfig(**LLAMA, windows=windows)
    caches = make_caches(config, 3, 40, torch.bfloat16)
    kept = sum(x[:, :, :40].nbytes for cache in caches for x in (cache.keys, cache.values))
    assert cache_bytes(config, 40, 3) == kept
    assert cache_bytes(config, 40, 3, 0.5) == kept / 4


# -- sparse attention

def test_sparse_is_full_at_all_keys():
    q, k, v = (numbers(2, heads, n, d, seed=heads + n) for heads, n, d in ((6, 5, 4), (2, 9, 4), (2, 9, 3)))
    for mask in (None, sliding_window_mask(5, 9, 9), sliding_window_mask(5, 9, 3),
                 torch.rand(2, 1, 5, 9, generator=torch.Generator().manual_seed(0)) < 0.6):
        for top_k in (9, 10**9):
            out = sparse_attention(q, k, v, numbers(2, 5, 9, seed=9), top_k, mask)
            assert_close(out, grouped_attention(q, k, v, mask))


def test_deepseek_v32():
    """The indexer's scores, the choice, and what the layer makes of it, at every top k; with their cache too."""
    # with few heads ReLU leaves many scores at 0, and any of these may be chosen
    x = numbers(2, 12, 24)
    for top_k in (1, 3, 12):
        config = DeepseekV32Config(**SIZES, q_lora_rank=9, rope_parameters=dict(PLAIN), index_topk=top_k,
                                   index_head_dim=12, index_n_heads=16)
        theirs = shaken(modeling_deepseek_v32.DeepseekV32Attention(config, 0))
        rotary = modeling_deepseek_v32.DeepseekV32RotaryEmbedding(config)
        angles = rotary(x, torch.arange(12)[None])
        right = theirs(x, position_embeddings=angles, attention_mask=theirs_mask(12, 12))[0]

        state = theirs.state_dict()
        mine = MultiHeadLatentAttention(24, 4, 10, 6, 8, 5, 9, RoPE(8, 64)).double()
        mine.load_state_dict(convert_deepseek(
            {name: tensor for name, tensor in state.items() if not name.startswith("indexer.")}, 4, 8))
        rope, indexer = RoPE(8, 64), theirs.indexer     # half-split here, with the turned features first
        turn = lambda y: torch.cat([rope(y[..., :8]), y[..., 8:]], dim=-1)     # noqa: E731
        q = indexer.wq_b(mine.q_norm(mine.q_down(x))).unflatten(-1, (16, 12)).transpose(1, 2)
        k = indexer.k_norm(indexer.wk(x))
        scores = index_scores(turn(q), turn(k), indexer.weights_proj(x)) * 12**-0.5 * 16**-0.5
        mask = sliding_window_mask(12, 12, 12)

        q_nope, q_rope = mine.queries(x)
        latents, turned = mine.compress(x)
        # absorbed, it is attention over one head, whose values are its keys' first kv_rank features
        up = mine.kv_up.weight.unflatten(0, (4, 11))
        asked = torch.einsum("bhqd,hdr->bhqr", q_nope, up[:, :6])
        asked = torch.cat([asked, q_rope], dim=-1) * (18 / 14) ** 0.5           # it divides by √18, we by √14
        keys = torch.cat([latents, turned], dim=-1)[:, None]
        mix = sparse_attention(asked, keys, latents[:, None], scores, top_k, mask)
        out = mine.o_proj(torch.einsum("bhqr,hvr->bhqv", mix, up[:, 6:]).transpose(1, 2).flatten(2))
        assert_close(out.float(), right.float())
        kept = DynamicCache(config=config)
        right = theirs_in_pieces(theirs, rotary, x, [5, 1, 1, 5], kept)
        assert_close(out.float(), right.float())


def test_the_work_of_sparse_attention():
    """As many products for 2,000 keys as for 200."""
    products = []
    for n in (200, 2000):
        q, k, v = numbers(1, 4, 3, 8), numbers(1, 2, n, 8), numbers(1, 2, n, 8)
        with Operations() as operations:
            sparse_attention(q, k, v, numbers(1, 3, n), 16)
        products.append(operations.multiply_adds)
    assert products[0] == products[1] == 2 * 4 * 3 * 16 * 8
