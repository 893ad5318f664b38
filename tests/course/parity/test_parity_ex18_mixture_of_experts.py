"""Chapter 18 against transformers: routers, layers, losses, and checkpoints of whole models that it wrote."""

import json
from pathlib import Path

import pytest
import torch
from transformers import (
    DeepseekV3Config,
    MixtralConfig,
    MixtralForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3MoE
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock, load_balancing_loss_func

from given.torch_kernels import use_torch_kernels
from solutions.ex13_transformer import ModelConfig, Transformer, count_parameters, make_caches
from solutions.ex15_generation import generate
from solutions.ex16_pretrained import load_pretrained
from solutions.ex18_mixture_of_experts import (
    MoE,
    convert_mixtral,
    convert_qwen3_moe,
    count_active,
    load_balancing_loss,
    load_moe,
    moe_from_hf,
    recorded,
    with_experts,
)
from tests.course.close import assert_close

POCKET = Path(__file__).resolve().parents[3] / "assets" / "pocket"
# "eager", as transformers' other experts take no float64
COMMON = {"vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4,
          "num_key_value_heads": 2, "intermediate_size": 40, "max_position_embeddings": 64,
          "bos_token_id": None, "eos_token_id": None, "experts_implementation": "eager"}
QWEN = {**COMMON, "moe_intermediate_size": 12, "num_experts": 7, "num_experts_per_tok": 3}
MODELS = {
    "qwen3-moe": lambda: Qwen3MoeForCausalLM(Qwen3MoeConfig(**QWEN, head_dim=8)),
    "qwen3-moe-normalized-tied": lambda: Qwen3MoeForCausalLM(Qwen3MoeConfig(
        **QWEN, norm_topk_prob=True, tie_word_embeddings=True)),
    "qwen3-moe-some-dense": lambda: Qwen3MoeForCausalLM(Qwen3MoeConfig(
        **{**QWEN, "num_hidden_layers": 5}, mlp_only_layers=[3], decoder_sparse_step=2, attention_bias=True)),
    "qwen3-moe-window": lambda: Qwen3MoeForCausalLM(Qwen3MoeConfig(
        **QWEN, use_sliding_window=True, sliding_window=5)),
    "mixtral": lambda: MixtralForCausalLM(MixtralConfig(**COMMON, num_local_experts=5)),
    "mixtral-window-one": lambda: MixtralForCausalLM(MixtralConfig(
        **COMMON, num_local_experts=4, num_experts_per_tok=1, sliding_window=4, head_dim=8)),
}
# All in float64 but the tables of RoPE and transformers' routers: so what is compared is compared as float32.
pytestmark = pytest.mark.usefixtures("one_thread", "float64_norms")
EVERY_MODEL = pytest.mark.parametrize("name", MODELS)


def shaken(module):
    """The module, with weights that are not where training would start them. (Lone layers have none yet.)"""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn_like(parameter) / parameter.shape[-1] ** 0.5
            parameter.copy_(noise if parameter.dim() > 1 else 1 + noise)
    return module.eval()


def ids(rows: int = 2, length: int = 17) -> torch.Tensor:
    return torch.randint(61, (rows, length), generator=torch.Generator().manual_seed(1))


# -- whole models

@EVERY_MODEL
@pytest.mark.parametrize("shards", [False, True], ids=["single", "sharded"])
def test_same_logits_and_gradients(name, shards, tmp_path):
    """Logits, and the gradient of every parameter, routers and experts too."""
    theirs = shaken(MODELS[name]())
    theirs.save_pretrained(tmp_path, **{"max_shard_size": "20KB"} if shards else {})
    assert (tmp_path / "model.safetensors").exists() != shards
    mine = load_moe(tmp_path)
    assert not mine.training
    assert_close(mine(ids()).float(), theirs(ids()).logits)
    for logits in (mine(ids()).float(), theirs(ids()).logits):
        logits.logsumexp(-1).mean().backward()

    folder = tmp_path / "gradients"         # written by transformers under the names in files
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
    theirs.save_pretrained(folder)
    expected, gradients = load_moe(folder).state_dict(), []
    for key, parameter in mine.named_parameters():
        grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        gradients.append((grad.float(), expected[key]))
    assert_close(*map(list, zip(*gradients)))


@EVERY_MODEL
def test_cached_greedy_text(name, tmp_path):
    theirs = shaken(MODELS[name]())
    theirs.save_pretrained(tmp_path)
    prompt = ids(1, 6)
    their_ids = theirs.generate(prompt, max_new_tokens=20, do_sample=False, pad_token_id=0)[0, 6:].tolist()
    assert generate(load_moe(tmp_path), prompt.tolist(), 20, temperature=0) == [their_ids]


def test_the_hubs_own_config(tmp_path):
    """Qwen3-30B-A3B's config.json says num_experts where transformers 5 writes num_local_experts."""
    theirs = shaken(MODELS["qwen3-moe"]())
    theirs.save_pretrained(tmp_path)
    said = json.loads((tmp_path / "config.json").read_text())
    said["num_experts"] = said.pop("num_local_experts")
    rope = said.pop("rope_parameters")
    (tmp_path / "config.json").write_text(json.dumps(said | {"rope_theta": rope["rope_theta"], "rope_scaling": None}))
    assert_close(load_moe(tmp_path)(ids()).float(), theirs(ids()).logits)


def test_what_a_config_leaves_out(tmp_path):
    """A missing key means to us what it means to transformers: Mixtral's base is 1,000,000."""
    theirs = shaken(MODELS["mixtral"]())
    theirs.save_pretrained(tmp_path)
    said = json.loads((tmp_path / "config.json").read_text())
    for key in ("rms_norm_eps", "rope_parameters", "sliding_window", "head_dim", "tie_word_embeddings"):
        said.pop(key)
    (tmp_path / "config.json").write_text(json.dumps(said))
    theirs = MixtralForCausalLM.from_pretrained(tmp_path, experts_implementation="eager")
    assert_close(load_moe(tmp_path)(ids()).float(), theirs(ids()).logits)


def test_bad_folders(tmp_path):
    theirs = MODELS["mixtral"]()
    theirs.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    said = json.loads(file.read_text())
    for change, named in (({"model_type": "llama"}, "model_type"), ({"num_local_experts": 6}, "experts.5"),
                          ({"num_local_experts": 4}, "experts.4"), ({"intermediate_size": 41}, "gate.weight"),
                          ({"num_experts_per_tok": 9}, "per_token"), ({"num_experts_per_tok": None}, "per_tok")):
        file.write_text(json.dumps(said | change))
        with pytest.raises(ValueError, match=named) as error:
            load_moe(tmp_path)
        assert str(tmp_path) in str(error.value)
    with pytest.raises(ValueError, match="model_type"):
        file.write_text(json.dumps(said))
        load_pretrained(tmp_path)               # chapter 16's loader knows no experts


def test_in_bfloat16(tmp_path):
    theirs = shaken(MODELS["qwen3-moe"]())
    theirs.to(torch.bfloat16).save_pretrained(tmp_path)
    assert {p.dtype for p in load_moe(tmp_path).parameters()} == {torch.bfloat16}
    wide = Qwen3MoeForCausalLM.from_pretrained(
        tmp_path, dtype=torch.float64, experts_implementation="eager")
    assert_close(load_moe(tmp_path, dtype=torch.float64)(ids()).float(), wide(ids()).logits)


def test_fused_names_are_left_alone():
    """In memory transformers 5 keeps all experts in one tensor; no file does, and no name is guessed."""
    for convert in (convert_mixtral, convert_qwen3_moe):
        state = {"model.layers.0.mlp.experts.gate_up_proj": torch.zeros(2, 4, 3)}
        assert list(convert(state)) != list(state) and "gate_up_proj" in next(iter(convert(state)))


# -- the layer

def copied(mine: MoE, theirs, bias: torch.Tensor | None = None) -> MoE:
    """mine with the weights of a layer of transformers, which keeps its experts in two tensors."""
    with torch.no_grad():
        mine.router.weight.copy_(theirs.gate.weight)
        if bias is not None:
            mine.router.bias.copy_(bias)
        for n, expert in enumerate(mine.experts):
            gate, up = theirs.experts.gate_up_proj[n].chunk(2)
            for ours, weight in ((expert.gate, gate), (expert.up, up), (expert.down, theirs.experts.down_proj[n])):
                ours.weight.copy_(weight)
        if mine.shared is not None:
            for ours in ("gate", "up", "down"):
                getattr(mine.shared, ours).weight.copy_(getattr(theirs.shared_experts, f"{ours}_proj").weight)
    return mine


def same_layer(mine: MoE, theirs, d_model: int):
    x = torch.randn(3, 11, d_model, generator=torch.Generator().manual_seed(2))
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    outputs = [layer(row) for layer, row in zip((mine, theirs), inputs)]
    assert_close(outputs[0].float(), outputs[1])
    for output in outputs:
        output.pow(2).sum().backward()
    assert_close(inputs[0].grad.float(), inputs[1].grad)
    assert_close(mine.router.weight.grad.float(), theirs.gate.weight.grad)
    expert = mine.experts[2]
    gradient = torch.cat([expert.gate.weight.grad, expert.up.weight.grad])
    assert_close(gradient.float(), theirs.experts.gate_up_proj.grad[2])


def test_mixtral_layer():
    theirs = shaken(MixtralSparseMoeBlock(MixtralConfig(**COMMON, num_local_experts=6)))
    same_layer(copied(MoE(24, 40, 6, 2), theirs), theirs, 24)


@pytest.mark.parametrize("normalize", [True, False])
def test_qwen3_moe_layer(normalize):
    theirs = shaken(Qwen3MoeSparseMoeBlock(Qwen3MoeConfig(**QWEN, norm_topk_prob=normalize)))
    same_layer(copied(MoE(24, 12, 7, 3, normalize=normalize), theirs), theirs, 24)


@pytest.mark.parametrize("groups,kept", [(1, 1), (4, 2), (2, 1)])
@pytest.mark.parametrize("normalize", [True, False])
def test_deepseek_v3_layer(groups, kept, normalize):
    """Sigmoid scores, a bias that chooses, groups, a scale of 2.5 and shared experts. Its topk is unsorted."""
    config = DeepseekV3Config(
        hidden_size=24, moe_intermediate_size=12, n_routed_experts=16, num_experts_per_tok=4, n_shared_experts=2,
        n_group=groups, topk_group=kept, norm_topk_prob=normalize, routed_scaling_factor=2.5)
    theirs = shaken(DeepseekV3MoE(config))
    bias = torch.randn(16, generator=torch.Generator().manual_seed(3))
    theirs.gate.e_score_correction_bias.copy_(bias)
    mine = MoE(24, 12, 16, 4, shared=2, score="sigmoid", normalize=normalize, scale=2.5, bias=True,
               groups=groups, kept_groups=kept)
    same_layer(copied(mine, theirs, bias), theirs, 24)
    x = torch.randn(40, 24)
    _, weights, chosen = theirs.gate(x)
    own_weights, own = mine.router(x)
    assert torch.equal(own.sort().values, chosen.sort().values)
    assert_close(own_weights.gather(1, own.argsort()).float(), weights.gather(1, chosen.argsort()))


# -- losses

@pytest.mark.parametrize("k", [1, 2, 6])
def test_load_balancing_loss(k):
    """Of one layer, and of several at once, which transformers counts as one row of tokens."""
    logits = torch.randn(3, 4, 10, 6, generator=torch.Generator().manual_seed(4))
    mask = torch.arange(10) >= torch.tensor([[0], [3], [9], [5]])
    for given in (None, mask):
        theirs = load_balancing_loss_func(tuple(layer.flatten(0, 1) for layer in logits), 6, k,
                                          None if given is None else given.int())
        assert_close(load_balancing_loss(logits, k, given).float(), theirs)
        one = load_balancing_loss_func((logits[0].flatten(0, 1),), 6, k, None if given is None else given.int())
        assert_close(load_balancing_loss(logits[0], k, given).float(), one)


def test_recorded_logits_are_theirs(tmp_path):
    theirs = shaken(MODELS["qwen3-moe-some-dense"]())
    theirs.save_pretrained(tmp_path)
    mine = load_moe(tmp_path)
    with recorded(mine) as routings:
        mine(ids())
    mine(ids())                                 # nothing is recorded after the `with`
    said = theirs(ids(), output_router_logits=True)
    assert len(routings) == len(said.router_logits) == 1
    assert_close(routings[0].logits.flatten(0, 1).float(), said.router_logits[0])
    assert_close(load_balancing_loss(routings[0].logits, 3).float(), said.aux_loss)


# -- counts

def on_meta(make):
    with torch.device("meta"):
        return sum(p.numel() for p in make().parameters())


def test_counts_of_real_models():
    """By their config.json, and by transformers' own models without numbers in them."""
    mixtral = MixtralConfig()
    qwen = Qwen3MoeConfig(
        hidden_size=2048, num_hidden_layers=48, num_attention_heads=32, num_key_value_heads=4, head_dim=128,
        moe_intermediate_size=768, num_experts=128, num_experts_per_tok=8, norm_topk_prob=True)
    for config, model, total, active in ((mixtral, MixtralForCausalLM, 46_702_792_704, 12_879_925_248),
                                         (qwen, Qwen3MoeForCausalLM, 30_532_122_624, 3_353_032_704)):
        ours, moe = moe_from_hf(config.to_dict())
        moe.pop("normalize", None)
        assert count_active(ours, **moe) == (active, total)
        assert on_meta(lambda: model(config)) == total


# -- any model of chapter 13

@pytest.mark.parametrize("kernels", [False, True])
def test_the_pocket_model_with_copies(kernels):
    """Upcycled, the pocket model says what it said, on torch's kernels too; its parameters are counted."""
    pocket = load_pretrained(POCKET, dtype=torch.float64)
    text = torch.randint(4096, (2, 40), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        before = pocket(text)
        model = with_experts(use_torch_kernels(pocket) if kernels else pocket, 4, 2)
        assert_close(model(text), before)
    assert sum(p.numel() for p in model.parameters()) == count_active(model.config, 4, 2)[1]
    assert not model.training
    assert generate(model, [[5, 6, 7]], 8, temperature=0) == generate(
        load_pretrained(POCKET, dtype=torch.float64), [[5, 6, 7]], 8, temperature=0)


@pytest.mark.parametrize("kind", [
    {}, {"norm": "layer", "feed_forward": "mlp", "positions": "learned", "mlp_bias": True},
    {"norm": "layer", "feed_forward": "mlp", "norm_position": "post", "positions": "sinusoidal", "qkv_bias": True,
     "o_bias": True, "mlp_bias": True}], ids=["llama", "gpt2", "2017"])
def test_experts_train_in_any_model(kind):
    """One step lowers the loss of its batch, and reaches routers and experts; the kernels agree."""
    torch.manual_seed(0)
    config = ModelConfig(vocab_size=31, d_model=16, layers=2, heads=2, d_ff=24, max_seq_len=12, **kind)
    model = with_experts(Transformer(config), 4, 2, d_ff=12, shared=1, score="sigmoid", bias=True)
    assert sum(p.numel() for p in model.parameters()) == count_active(config, 4, 2, 12, shared=1)[1]
    assert count_active(config, 4, 2, 12, shared=1)[0] != count_parameters(config)
    text = torch.randint(31, (4, 12))

    def loss():
        return torch.nn.functional.cross_entropy(model(text)[:, :-1].flatten(0, 1), text[:, 1:].flatten())

    first = loss()
    first.backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for n, p in model.named_parameters() if "router" in n)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
        assert loss() < first
        before = model(text)
        assert_close(use_torch_kernels(model)(text), before)
    if config.norm_position == "pre":
        assert len(make_caches(config, 1, 4)) == 2
