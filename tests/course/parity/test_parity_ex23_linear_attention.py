"""Chapter 23 against transformers: Qwen3-Next's gated delta rule and layer, Kimi Linear's and Mamba-2's recurrences."""

import copy
import pickle

import pytest
import torch
from torch.nn import functional as F
from transformers import DynamicCache, Qwen3NextConfig
from transformers.models.kimi_linear.modeling_kimi_linear import (
    chunk_kimi_delta_attention,
    recurrent_kimi_delta_attention,
)
from transformers.models.mamba2.modeling_mamba2 import mamba2_chunk_scan, mamba2_selective_state_update
from transformers.models.qwen3_next import modeling_qwen3_next
from transformers.models.qwen3_next.modeling_qwen3_next import (
    Qwen3NextGatedDeltaNet,
    Qwen3NextRMSNormGated,
    torch_chunk_gated_delta_rule,
    torch_recurrent_gated_delta_rule,
)

from given.torch_kernels import use_torch_kernels
from solutions.ex08_feedforward import silu
from solutions.ex13_transformer import ModelConfig, Transformer, make_caches
from solutions.ex15_generation import generate
from solutions.ex23_linear_attention import (
    GatedDeltaNet,
    GatedRMSNorm,
    StateCache,
    chunk_delta_rule,
    chunk_gated_delta_rule,
    chunk_linear_attention,
    decayed_linear_attention,
    delta_rule,
    fit_caches,
    gated_delta_rule,
    kimi_delta_rule,
    l2_normalize,
    linear_attention,
    recurrent_linear_attention,
    short_convolution,
    with_linear_layers,
)
from tests.course.close import assert_close

pytestmark = pytest.mark.usefixtures("one_thread", "float64_norms")
SIZES = {"vocab_size": 61, "d_model": 24, "layers": 4, "heads": 4, "kv_heads": 2, "d_ff": 40, "max_seq_len": 96}
# batch, heads, seq, head_dim, value_dim
CASES = [(2, 3, 70, 8, 5), (1, 2, 64, 4, 8), (2, 1, 1, 4, 12)]
EVERY_CASE = pytest.mark.parametrize("case", CASES, ids=str)


def drawn(case, per_channel=False):
    """q, k, v, beta, log_decay and a state, in float64: keys of length 1, as every model of this kind has them."""
    torch.manual_seed(0)
    batch, heads, seq, head_dim, value_dim = case
    q, k = (l2_normalize(torch.randn(batch, heads, seq, head_dim, dtype=torch.float64)) for _ in range(2))
    v = torch.randn(batch, heads, seq, value_dim, dtype=torch.float64)
    beta = torch.rand(batch, heads, seq, dtype=torch.float64)
    log_decay = -0.1 - 0.5 * torch.rand(batch, heads, seq, *([head_dim] if per_channel else []), dtype=torch.float64)
    return [q, k, v, beta, log_decay, torch.randn(batch, heads, head_dim, value_dim, dtype=torch.float64)]


def swapped(x):
    """transformers has (batch, seq, heads, …)."""
    return x.transpose(1, 2)


def with_gradients(rule, inputs, dtype):
    """(out, state) of rule, and the gradients of a weighted sum of both to all inputs."""
    leaves = [x.to(dtype, copy=True).requires_grad_() for x in inputs]
    answer = rule(*leaves)
    rng = torch.Generator().manual_seed(1)
    pulls = [torch.randn(x.shape, generator=rng, dtype=torch.float64).to(x.dtype) for x in answer]
    return list(answer), torch.autograd.grad(answer, leaves, pulls)


def same(mine, theirs, inputs):
    """Both rules give the same, forward and backward: mine in float64, theirs in float32."""
    ours, others = with_gradients(mine, inputs, torch.float64), with_gradients(theirs, inputs, torch.float32)
    for a, b in zip([*ours[0], *ours[1]], [*others[0], *others[1]]):
        assert_close([a.float()], [b])


# -- the rules

@EVERY_CASE
@pytest.mark.parametrize("theirs", [torch_chunk_gated_delta_rule, torch_recurrent_gated_delta_rule])
@pytest.mark.parametrize("mine", [gated_delta_rule, chunk_gated_delta_rule])
def test_gated_delta_rule_is_qwens(case, mine, theirs):
    """transformers divides q by √head_dim in the rule; here the layer does."""
    def qwens(q, k, v, beta, log_decay, state):
        q, k, v, beta, g = (swapped(x) for x in (q * q.shape[-1] ** 0.5, k, v, beta, log_decay))
        out, state = theirs(q, k, v, g, beta, initial_state=state, output_final_state=True)
        return swapped(out), state

    same(mine, qwens, drawn(case))


@EVERY_CASE
@pytest.mark.parametrize("theirs", [chunk_kimi_delta_attention, recurrent_kimi_delta_attention])
def test_kimi_delta_rule_is_kimis(case, theirs):
    def kimis(q, k, v, beta, log_decay, state):
        q, k, v, beta, g = (swapped(x) for x in (q * q.shape[-1] ** 0.5, k, v, beta, log_decay))
        out, state = theirs(q, k, v, g, beta, initial_state=state, output_final_state=True)
        return swapped(out), state

    same(kimi_delta_rule, kimis, drawn(case, per_channel=True))


@EVERY_CASE
def test_decayed_linear_attention_is_mamba_2s_scan(case):
    """C is q, B is k, Δ x is v, Δ A is log_decay; its state is the other way round."""
    q, k, v, _, log_decay, state = drawn(case)
    a = -torch.rand(case[1]) - 0.5

    def mambas(q, k, v, log_decay, state):
        dt = swapped(log_decay) / a
        out, state = mamba2_chunk_scan(swapped(v) / dt[..., None], dt, a, swapped(k), swapped(q), chunk_size=16,
                                       initial_states=state.mT, return_final_states=True)
        return swapped(out), state.mT

    same(decayed_linear_attention, mambas, (q, k, v, log_decay, state))


def test_decayed_linear_attention_is_mamba_2s_step():
    q, k, v, _, log_decay, state = (x.float() for x in drawn((2, 3, 5, 4, 6)))
    a, theirs = -torch.rand(3).float() - 0.5, state.mT.contiguous()
    out, last = decayed_linear_attention(q, k, v, log_decay, state)
    for t in range(5):
        dt = (log_decay[:, :, t] / a)[..., None].expand_as(v[:, :, t])
        y = mamba2_selective_state_update(theirs, v[:, :, t] / dt, dt, a[:, None, None], k[:, :, t], q[:, :, t])
        assert_close(out[:, :, t], y)
    assert_close(last, theirs.mT)


@EVERY_CASE
@pytest.mark.parametrize("chunk", [1, 16, 500])
def test_the_ways_of_one_rule_agree(case, chunk):
    """All at once, token by token and in chunks, to 1e-6 in float32, and exactly but for rounding in float64."""
    q, k, v, beta, log_decay, state = drawn(case)
    families = [
        ((q, k, v / case[2] ** 0.5, state), linear_attention, recurrent_linear_attention, chunk_linear_attention),
        ((q, k, v, beta, state), delta_rule, chunk_delta_rule),
        ((q, k, v, beta, log_decay, state), gated_delta_rule, chunk_gated_delta_rule)]
    for inputs, first, *others in families:
        right, _ = with_gradients(first, inputs, torch.float64)
        for rule in others:
            def chunked(*x, rule=rule):
                return rule(*x, chunk=chunk) if rule.__name__.startswith("chunk") else rule(*x)
            (out, last), gradients = with_gradients(chunked, inputs, torch.float64)
            for a, b in zip((out, last, *gradients), (*right, *with_gradients(first, inputs, torch.float64)[1])):
                assert (a - b).abs().max() < 1e-11 * (1 + b.abs().max())
            for a, b in zip(chunked(*(x.float() for x in inputs)), right):
                assert (a - b).abs().max() < 1e-6 * (1 + b.abs().max())


@pytest.mark.parametrize("rule", [delta_rule, chunk_delta_rule, gated_delta_rule, chunk_gated_delta_rule,
                                  kimi_delta_rule, decayed_linear_attention])
def test_gradients_by_differences(rule):
    q, k, v, beta, log_decay, state = drawn((1, 2, 5, 3, 2), per_channel=rule is kimi_delta_rule)
    gates = {"delta_rule": [beta], "chunk_delta_rule": [beta], "decayed_linear_attention": [log_decay]}
    inputs = [q, k, v, *gates.get(rule.__name__, [beta, log_decay]), state]
    options = {"chunk": 3} if rule.__name__.startswith("chunk") else {}
    assert torch.autograd.gradcheck(lambda *x: rule(*x, **options), [x.requires_grad_() for x in inputs])


# -- what the rules say of themselves

def test_linear_attention_is_attention_without_its_softmax():
    q, k, v, *_ = drawn(CASES[0])
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * torch.ones(70, 70).tril()
    assert_close(linear_attention(q, k, v)[0], scores @ v)


@pytest.mark.parametrize("rule", [delta_rule, chunk_delta_rule])
def test_the_delta_rule_is_a_gradient_step(rule):
    """S − β · ∂ ½ |Sᵀ k − v|² / ∂S; with β = 1 and |k| = 1, the state then says v of k."""
    q, k, v, beta, _, state = drawn((1, 1, 1, 4, 3))
    leaf = state.clone().requires_grad_()
    (0.5 * (k @ leaf - v).square().sum()).backward()
    assert_close(rule(q, k, v, beta, state)[1], state - beta * leaf.grad)
    k = F.normalize(k, dim=-1)
    assert_close(rule(k, k, v, torch.ones_like(beta), state)[0], v)


def test_a_key_written_again_says_the_new_value():
    """Where linear attention says the sum of both."""
    basis = torch.eye(4, dtype=torch.float64)
    k, v, ones = basis[[0, 1, 0]], torch.randn(3, 5, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    assert_close(delta_rule(k, k, v, ones)[0], v)
    assert_close(linear_attention(k, k, v)[0][2], v[0] + v[2])


def test_gates_that_do_nothing():
    q, k, v, beta, log_decay, state = drawn(CASES[1])
    never = torch.zeros_like(log_decay)
    pairs = [(gated_delta_rule(q, k, v, beta, never, state), delta_rule(q, k, v, beta, state)),
             (chunk_gated_delta_rule(q, k, v, beta, never, state), chunk_delta_rule(q, k, v, beta, state)),
             (decayed_linear_attention(q, k, v, never, state), recurrent_linear_attention(q, k, v, state)),
             (kimi_delta_rule(q, k, v, beta, log_decay[..., None].expand_as(k), state),
              gated_delta_rule(q, k, v, beta, log_decay, state))]
    for mine, right in pairs:
        for a, b in zip(mine, right):
            assert_close(a, b)


@pytest.mark.parametrize("log_decay", [-1e-4, -30.0, -300.0])
def test_decays_far_from_one(log_decay):
    """A decay that is next to none, or that leaves nothing: finite, forward and backward, and chunks agree."""
    q, k, v, beta, _, state = drawn(CASES[0])
    inputs = q, k, v, beta, torch.full_like(beta, log_decay), state
    right, gradients = with_gradients(gated_delta_rule, inputs, torch.float64)
    mine, own = with_gradients(chunk_gated_delta_rule, inputs, torch.float32)
    for a, b in zip((*mine, *own), (*right, *gradients)):
        assert (a - b).abs().max() < 1e-4 * (1 + b.abs().max())


# -- the layer

@pytest.mark.parametrize("width", [1, 2, 4])
def test_short_convolution_is_torchs(width):
    torch.manual_seed(0)
    x, weight = torch.randn(2, 9, 6, dtype=torch.float64), torch.randn(6, width, dtype=torch.float64)
    right = F.conv1d(F.pad(x.mT, (width - 1, 0)), weight[:, None], groups=6).mT
    assert_close(short_convolution(x, weight)[0], right)
    out, inputs = [], None
    for part in x.split((4, 1, 1, 3), dim=1):
        y, inputs = short_convolution(part, weight, inputs)
        out.append(y)
    assert_close(torch.cat(out, dim=1), right)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_gated_norm_is_qwens_bit_for_bit(dtype):
    torch.manual_seed(0)
    x, gate = torch.randn(2, 50, 8).to(dtype), torch.randn(2, 50, 8).to(dtype)
    theirs, mine = Qwen3NextRMSNormGated(8, eps=1e-6).to(dtype), GatedRMSNorm(8, 1e-6).to(dtype)
    with torch.no_grad():
        mine.weight.copy_(torch.rand(8) + 0.5)
        theirs.weight.copy_(mine.weight)
    if dtype == torch.float32:      # torch's silu and lesson 08's differ in the last bit
        assert_close(mine(x, gate), theirs(x, gate))
    else:
        differs = (mine(x, gate) != theirs(x, gate)).float().mean()
        assert differs < 0.01, differs


class Wide:
    """torch, for a module that shall compute in float64 where it says float32."""

    float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@pytest.fixture
def wide_qwen(monkeypatch):
    monkeypatch.setattr(modeling_qwen3_next, "torch", Wide())


def qwen_config(heads, value_heads, head_dim, value_dim):
    return Qwen3NextConfig(
        hidden_size=24, num_hidden_layers=2, linear_num_key_heads=heads, linear_num_value_heads=value_heads,
        linear_key_head_dim=head_dim, linear_value_head_dim=value_dim, linear_conv_kernel_dim=4,
        layer_types=["linear_attention", "full_attention"], rms_norm_eps=1e-6)


def copied(theirs, heads, value_heads, head_dim, value_dim):
    """A GatedDeltaNet with the weights of transformers' layer, which keeps a key head's rows side by side."""
    mine = GatedDeltaNet(24, heads, head_dim, value_heads, value_dim)
    groups = value_heads // heads
    with torch.no_grad():
        rows = theirs.in_proj_qkvz.weight.unflatten(0, (heads, -1))
        parts = rows.split([head_dim, head_dim, groups * value_dim, groups * value_dim], dim=1)
        for linear, part in zip((mine.q_proj, mine.k_proj, mine.v_proj, mine.gate_proj), parts):
            linear.weight.copy_(part.flatten(0, 1))
        beta, decay = theirs.in_proj_ba.weight.unflatten(0, (heads, -1)).chunk(2, dim=1)
        mine.beta_proj.weight.copy_(beta.flatten(0, 1))
        mine.decay_proj.weight.copy_(decay.flatten(0, 1))
        mine.conv.copy_(theirs.conv1d.weight[:, 0])
        for a, b in ((mine.A_log, theirs.A_log), (mine.dt_bias, theirs.dt_bias), (mine.norm.weight, theirs.norm.weight),
                     (mine.o_proj.weight, theirs.out_proj.weight)):
            a.copy_(b)
    return mine.double()


def of_every_size(test):
    sizes = pytest.mark.parametrize("sizes", [(2, 4, 8, 6), (3, 3, 4, 8), (1, 2, 8, 8)], ids=str)
    return pytest.mark.usefixtures("wide_qwen")(sizes(test))


def both_layers(sizes):
    torch.manual_seed(0)
    config = qwen_config(*sizes)
    theirs = Qwen3NextGatedDeltaNet(config, 0).eval()
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            near = 1.0 if name == "norm.weight" else 0.0
            parameter.copy_(near + torch.randn_like(parameter) / max(1.0, parameter.shape[-1] ** 0.5))
    return config, theirs, copied(theirs, *sizes).eval()


@of_every_size
@pytest.mark.parametrize("length", [1, 5, 20])
def test_layer_forward_and_gradients(sizes, length):
    _, theirs, mine = both_layers(sizes)
    mine.chunk = 8                      # where theirs is 64
    x = torch.randn(2, length, 24)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    outputs = [layer(row) for layer, row in zip((mine, theirs), inputs)]
    assert_close(outputs[0].float(), outputs[1])
    for output in outputs:
        output.square().sum().backward()
    assert_close([inputs[0].grad.float()], [inputs[1].grad])
    for a, b in ((mine.A_log, theirs.A_log), (mine.dt_bias, theirs.dt_bias), (mine.conv, theirs.conv1d.weight),
                 (mine.o_proj.weight, theirs.out_proj.weight), (mine.norm.weight, theirs.norm.weight)):
        assert_close([a.grad.float()], [b.grad])


@of_every_size
def test_layer_over_several_of_their_chunks(sizes):
    _, theirs, mine = both_layers(sizes)
    x = torch.randn(2, 150, 24)
    assert_close(mine(x).float(), theirs(x).float())


@of_every_size
@pytest.mark.parametrize("cuts", [(6, 1, 1, 1), (1, 1, 1, 6), (3, 5, 1)], ids=str)
def test_layer_with_a_cache(sizes, cuts):
    """Token by token and in chunks, states and convolutions compared after every piece."""
    config, theirs, mine = both_layers(sizes)
    x, their_cache, cache = torch.randn(2, 9, 24), DynamicCache(config=config), mine.make_cache(2)
    with torch.no_grad():
        for part in x.split(cuts, dim=1):
            assert_close(mine(part.double(), cache=cache).float(), theirs(part, cache_params=their_cache))
            assert_close(cache.state.float(), their_cache.get_recurrent_state(0, state_idx=0))
            assert_close(cache.inputs.mT.float(), their_cache.get_conv_state(0, state_idx=0)[..., -3:])
    assert cache.length == 9


@pytest.mark.usefixtures("wide_qwen")
def test_layer_with_left_padding():
    config, theirs, mine = both_layers((2, 4, 8, 6))
    x, padding = torch.randn(3, 8, 24), torch.tensor([[0], [3], [7]])
    real = torch.arange(8) >= padding
    cache, their_cache = mine.make_cache(3), DynamicCache(config=config)
    with torch.no_grad():
        out = mine(x.double(), real[:, None, None], cache=cache).float()
        right = theirs(x, cache_params=their_cache, attention_mask=real)
        for row in range(3):
            start = int(padding[row])
            assert_close(out[row, start:], right[row, start:])
            alone = mine.make_cache(1)
            assert_close(out[row:row + 1, start:], mine(x[row:row + 1, start:].double(), cache=alone).float())
            assert_close(cache.state[row:row + 1], alone.state)
    assert_close(cache.state.float(), their_cache.get_recurrent_state(0, state_idx=0))


def test_padding_leaves_the_state_alone_wherever_it_stands():
    _, _, mine = both_layers((2, 4, 8, 6))
    x = torch.randn(2, 9, 24, dtype=torch.float64)
    real = torch.arange(9) < torch.tensor([[9], [4]])
    cache, alone = mine.make_cache(2), mine.make_cache(1)
    with torch.no_grad():
        mine(x, real[:, None, None], cache=cache)
        mine(x[1:, :4], cache=alone)
    assert_close(cache.state[1:], alone.state)


def test_a_state_stays_wide():
    """A thousand tokens in bfloat16: the state is float32, and as good as one of float32 inputs."""
    torch.manual_seed(0)
    mine = GatedDeltaNet(16, 2, 8).to(torch.bfloat16)
    cache, x = mine.make_cache(1), torch.randn(1, 1000, 16).to(torch.bfloat16)
    with torch.no_grad():
        for part in x.split(100, dim=1):
            assert mine(part, cache=cache).dtype == torch.bfloat16
    assert cache.state.dtype == torch.float32 and cache.inputs.dtype == torch.bfloat16


# -- whole models

def hybrid(every=4, **changes):
    torch.manual_seed(0)
    return with_linear_layers(Transformer(ModelConfig(**SIZES | changes)).double(), every)


MODELS = pytest.mark.parametrize("changes", [
    {}, {"windows": (3, 3, 3, 5)}, {"positions": "none"},
    {"norm": "layer", "feed_forward": "mlp", "positions": "learned", "mlp_bias": True}],
    ids=["llama", "windows", "no positions", "gpt2"])


@MODELS
@pytest.mark.parametrize("every", [1, 2, 4, 9])
@pytest.mark.parametrize("kernels", [False, True])
def test_a_hybrid_decodes_as_it_reads(changes, every, kernels):
    """In chunks and token by token, with chapter 13's caches, and on torch's kernels, too."""
    model, ids = hybrid(every, **changes), torch.randint(61, (2, 30))
    with torch.no_grad():
        right = model(ids)
        if kernels:
            use_torch_kernels(model)
        caches = make_caches(model.config, 2, 30, torch.float64)
        out = [model(part, caches=caches) for part in ids.split((11, 1, 1, 17), dim=1)]
    assert_close(torch.cat(out, dim=1), right)
    assert [isinstance(cache, StateCache) for cache in caches] == [(n + 1) % every != 0 for n in range(4)]
    assert {cache.length for cache in caches} == {30}


@MODELS
@pytest.mark.parametrize("every", [4, 9])
def test_a_hybrid_generates(changes, every):
    """A left-padded batch says what each row says alone, with caches and without."""
    model, prompts = hybrid(every, **changes), [[5, 6, 7, 8, 9], [12, 13], [14]]
    together = generate(model, prompts, 6, temperature=0)
    assert together == [generate(model, [prompt], 6, temperature=0)[0] for prompt in prompts]
    assert together == generate(model, prompts, 6, temperature=0, use_cache=False)


def test_a_copy_goes_back():
    """What rewind cannot do: after wrong tokens, a copy from before them goes on as if they had not been."""
    model, ids = hybrid(), torch.randint(61, (1, 20))
    caches = make_caches(model.config, 1, 40, torch.float64)
    with torch.no_grad():
        model(ids[:, :12], caches=caches)
        kept = [cache.copy() if isinstance(cache, StateCache) else cache for cache in caches]
        model(ids[:, :5], caches=caches)
        for cache in caches:
            if isinstance(cache, StateCache):
                with pytest.raises(ValueError, match="copy"):
                    cache.rewind(5)
            else:
                cache.rewind(5)
        assert_close(model(ids[:, 12:], caches=kept), model(ids)[:, 12:])


def test_a_hybrid_can_be_copied_and_pickled():
    model, prompts = hybrid(), [[1, 2, 3], [4]]
    right = generate(model, prompts, 6, temperature=0)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert generate(other, prompts, 6, temperature=0) == right


@MODELS
def test_a_hybrid_trains(changes):
    """A step lowers the loss of its batch, and every parameter of the linear layers has a gradient."""
    model, ids = hybrid(**changes), torch.randint(61, (4, 20))

    def loss():
        return F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())

    first = loss()
    first.backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.blocks[0].attention.parameters())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
        assert loss() < first


def test_caches_that_do_not_fit():
    model = hybrid()
    caches = make_caches(model.config, 1, 10, torch.float64)
    caches[1].update(torch.zeros(1, 2, 1, 6, dtype=torch.float64), torch.zeros(1, 2, 1, 6, dtype=torch.float64))
    before = list(caches)
    with pytest.raises(ValueError, match="caches"):
        fit_caches(model, caches, 1)
    assert caches == before
    with pytest.raises(ValueError, match="caches"):
        model(torch.zeros(1, 2, dtype=torch.long), caches=caches[:2])


def test_start():
    """Decays at the start: some heads forget within tens of tokens, some within thousands."""
    torch.manual_seed(0)
    layer = GatedDeltaNet(8, 4000, 1)
    rate = (layer.A_log.exp() * F.softplus(layer.dt_bias)).detach()
    assert 1 <= layer.A_log.exp().min() < 1.1 and 15.9 < layer.A_log.exp().max() <= 16.001
    dt = F.softplus(layer.dt_bias).detach()
    assert 0.001 <= dt.min() * 1.001 and dt.max() <= 0.1001
    assert abs(dt.log().mean() - torch.tensor([0.001, 0.1]).log().mean()) < 0.1
    assert rate.min() < 0.003 and rate.max() > 1
    assert silu(torch.zeros(1)) == 0            # what padding's keys are made of
