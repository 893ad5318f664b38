"""What several of the course's own tests stand on."""

import csv
import importlib
import os

import pytest
import torch

from grader.course import chapters
from tests.course import close

os.environ.setdefault("TRITON_INTERPRET", "0" if torch.cuda.is_available() else "1")    # before anything imports Triton


@pytest.fixture(autouse=True)
def margin(record_property):
    """Random numbers that depend on no other test, and how near to its limit a comparison came."""
    torch.manual_seed(0)
    close.measured.clear()
    yield
    if close.measured:
        record_property("margin", max(close.measured))


def pytest_terminal_summary(terminalreporter):
    """The comparisons that rounding brings nearest to their limit: on another processor they may pass it."""
    margins = sorted(((value, report.nodeid) for report in terminalreporter.getreports("")
                      for name, value in report.user_properties if name == "margin"), reverse=True)
    for value, test in margins[:10]:
        terminalreporter.write_line(f"rounds to {value:.3f} of the tolerance: {test}")


@pytest.fixture
def float64():
    """New tensors and layers are float64: what is compared is the formula, which leaves rounding no room."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def float64_norms(float64, monkeypatch):
    """transformers' RMSNorms compute in float32, which chapter 04 compares bit by bit: here in what they are given."""
    from transformers.models.llama.modeling_llama import LlamaRMSNorm
    from transformers.models.mistral.modeling_mistral import MistralRMSNorm
    from transformers.models.mixtral.modeling_mixtral import MixtralRMSNorm
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeRMSNorm

    def forward(norm, x):
        return torch.nn.functional.rms_norm(x, norm.weight.shape, norm.weight, norm.variance_epsilon)
    for kind in (LlamaRMSNorm, MistralRMSNorm, MixtralRMSNorm, Qwen3RMSNorm, Qwen3MoeRMSNorm):
        monkeypatch.setattr(kind, "forward", forward)


@pytest.fixture(scope="session")
def evidence():
    """A script of assets/evidence by its name: a module, whose main is not run."""
    return lambda name: importlib.import_module(f"assets.evidence.{name}")


@pytest.fixture(scope="session")
def recorded():
    """The rows of a table of assets/evidence by its name, each a dict."""
    return lambda name: list(csv.DictReader((chapters.ROOT / "assets" / "evidence" / f"{name}.csv").open()))


@pytest.fixture
def one_thread():
    """With tensors this small a second thread only waits; evidence's scripts take one, too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
