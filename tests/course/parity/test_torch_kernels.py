"""use_torch_kernels changes the time and no number: logits, gradients, caches, names and ties."""

import copy
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from given.torch_kernels import use_torch_kernels
from grader.course.chapters import ROOT
from solutions.ex03_linear import Linear
from solutions.ex13_transformer import (
    BASE_2017,
    ENCODER,
    EncoderDecoder,
    Transformer,
    make_caches,
)
from tests.course.close import assert_close
from tests.course.parity.test_parity_ex13_transformer import CONFIGS, SIZES, close_gradients, gradients

pytestmark = pytest.mark.usefixtures("float64")
SMALL = {"heads": 4, "kv_heads": 4, "head_dim": 6, **SIZES}
POST = {"an encoder": replace(ENCODER, **SMALL), "2017": replace(BASE_2017, **SMALL),
        "a decoder with ReLU": replace(ENCODER, **SMALL, activation="relu", causal=True)}
EVERY_CONFIG = pytest.mark.parametrize(
    "config", [config for _, config in CONFIGS.values()] + list(POST.values()), ids=[*CONFIGS, *POST])


def twins(config, make=Transformer):
    """A model with every parameter random, and its copy on torch's kernels."""
    torch.manual_seed(0)
    plain = make(config).eval()
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return plain, use_torch_kernels(copy.deepcopy(plain))


def same(plain, swapped, *given, **named) -> None:
    """Equal outputs, and equal gradients of a loss."""
    outputs = [model(*given, **named) for model in (plain, swapped)]
    assert_close(outputs[1], outputs[0])
    targets = torch.randint(outputs[0].shape[-1], outputs[0].shape[:-1])
    for output in outputs:
        F.cross_entropy(output.flatten(0, 1), targets.flatten()).backward()
    close_gradients(gradients(swapped), gradients(plain))


@EVERY_CONFIG
def test_logits_and_gradients(config):
    same(*twins(config), torch.randint(config.vocab_size, (2, 21)))


@EVERY_CONFIG
def test_left_padding_and_a_row_that_sees_nothing(config):
    padding = torch.tensor([0, 5, 14])                              # the third row is padding alone
    real = torch.arange(14) >= padding[:, None]
    same(*twins(config), torch.randint(config.vocab_size, (3, 14)), mask=real[:, None, None],
         positions=(torch.arange(14) - padding[:, None]).clamp(min=0))


@pytest.mark.parametrize("_, config", CONFIGS.values(), ids=CONFIGS)
@torch.no_grad()
def test_through_caches(_, config):
    plain, swapped = twins(config)
    ids, caches = torch.randint(config.vocab_size, (2, 20)), make_caches(config, 2, 20)
    parts = [swapped(part, caches=caches) for part in ids.split((9, 6, 1, 1, 1, 1, 1), dim=1)]
    assert_close(torch.cat(parts, 1), plain(ids))


def test_an_encoder_decoder():
    plain, swapped = twins(replace(BASE_2017, **SMALL), EncoderDecoder)
    same(plain, swapped, torch.randint(61, (2, 9)), torch.randint(61, (2, 7)))


@EVERY_CONFIG
def test_parameters_names_and_ties_stay(config):
    model = Transformer(config)
    before, state = dict(model.named_parameters()), model.state_dict()
    assert use_torch_kernels(model) is model and use_torch_kernels(model) is model
    after = dict(model.named_parameters())
    assert before.keys() == after.keys() and all(before[name] is after[name] for name in after)
    assert list(model.state_dict()) == list(state)
    assert (model.unembedding.weight is model.embedding.weight) == config.tie_embeddings
    assert isinstance(model, Transformer) and isinstance(model.unembedding, type(Transformer(config).unembedding))


@pytest.mark.parametrize("_, config", CONFIGS.values(), ids=CONFIGS)
def test_a_position_is_looked_at_once_and_refused(_, config):
    _, model = twins(config)
    ids = torch.zeros(1, config.max_seq_len + 1, dtype=torch.int64)
    with torch.no_grad():
        model(ids[:, 1:])
        caches = make_caches(config, 1, 2 * config.max_seq_len)
        model(ids[:, 1:], caches=caches)
        for bad in ({}, {"positions": torch.full((1,), -1)}, {"positions": torch.tensor([[99]])},
                    {"caches": caches}):
            with pytest.raises(ValueError, match="positions"):
                model(ids if not bad else ids[:, :1], **bad)
        assert [cache.length for cache in caches] == [config.max_seq_len] * config.layers


@pytest.mark.parametrize("_, config", CONFIGS.values(), ids=CONFIGS)
@torch.no_grad()
def test_a_step_of_decoding_looks_at_two_numbers_at_most(_, config):
    """The ids and the positions, each once a forward: on a GPU every look waits for the device."""
    _, model = twins(config)
    caches = make_caches(config, 1, 20)
    model(torch.zeros(1, 5, dtype=torch.int64), caches=caches)
    looks = []

    class Looks(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if function is torch.ops.aten._local_scalar_dense.default:
                looks.append(function)
            return function(*args, **(kwargs or {}))
    with Looks():
        model(torch.zeros(1, 1, dtype=torch.int64), caches=caches)
    assert len(looks) <= 4              # a lowest and a highest number of each


def test_what_it_cannot_recognize_it_leaves_alone():
    class Own(Linear):
        def forward(self, x):
            return super().forward(x) + 1

    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.own, self.ours, self.torchs = Own(2, 3), Linear(2, 3), nn.Linear(2, 3)
            self.lost = Linear(2, 3)
            del self.lost.bias
    odd, x = Odd(), torch.randn(4, 2)
    expected = odd.own(x)
    use_torch_kernels(odd)
    assert type(odd.own) is Own and type(odd.torchs) is nn.Linear and type(odd.lost) is Linear
    assert type(odd.ours) is not Linear
    assert torch.equal(odd.own(x), expected)


def test_students_own_modules_are_swapped_too(tmp_path):
    """In the package of exercises, whose annotations are checked at run time."""
    script = ("import copy, torch\n"
              "from dataclasses import replace\n"
              "from exercises.ex13_transformer import POCKET, Transformer\n"
              "from given.torch_kernels import use_torch_kernels\n"
              "config = replace(POCKET, layers=1)\n"
              "plain = Transformer(config).eval()\n"
              "swapped = use_torch_kernels(copy.deepcopy(plain))\n"
              "ids = torch.randint(4096, (2, 9))\n"
              "error = (swapped(ids) - plain(ids)).abs().max()\n"
              "print(type(swapped).__name__, bool(error < 1e-5))\n")
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "TorchTransformer True\n", done.stderr
