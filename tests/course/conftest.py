"""What several of the course's own tests stand on, and which of them concern a chapter."""

import csv
import importlib
import inspect
import os
import re
from pathlib import Path

import pytest

# Before torch is imported: its threads, which are as many as there are cores in each of several workers, do not spin
# while they wait, so that a core is left to those who work. Three workers on two cores take a third of the time.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
import torch  # noqa: E402

from grader.course import chapters  # noqa: E402
from tests.course import close  # noqa: E402

os.environ.setdefault("TRITON_INTERPRET", "0" if torch.cuda.is_available() else "1")    # before anything imports Triton

ASKED = pytest.StashKey[set[str]]()     # numbers of the chapters asked for; none: everything
COURSE = Path(__file__).parent
SCREENS = COURSE / "grader" / "test_screens.py"
ABOUT_CHAPTERS = {COURSE, COURSE / "checks", COURSE / "parity", COURSE / "lessons", SCREENS.parent, SCREENS}


def pytest_addoption(parser):
    parser.addoption("--chapter", default="", metavar="NAMES", help="only what concerns these chapters: '09 rope'")


def pytest_configure(config):
    try:
        found = [chapters.find(word) for word in config.getoption("chapter").split()]
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    config.stash[ASKED] = {chapter.number for chapter in found}


def pytest_ignore_collect(collection_path, config):
    """Leave out, before anything is imported, the rooms and files that concern no chapter asked for."""
    asked = config.stash[ASKED]
    if not asked:
        return None
    if collection_path.is_dir() or collection_path.parent == SCREENS.parent:
        return collection_path not in ABOUT_CHAPTERS or None
    named = numbers_of(collection_path)
    return bool(named) and not named & asked or None


def pytest_collection_modifyitems(config, items):
    if asked := config.stash[ASKED]:
        left_out = [item for item in items if not asked & numbers_of_item(item)]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


def numbers_of(path: Path) -> set[str]:
    """The chapters that a file is about, by its name (test_evidence_13_14.py), or by what a parity test imports."""
    if named := re.findall(r"_(?:ex)?(\d\d)(?=_|\.)", path.name):
        return set(named)
    if path.parent.name == "parity":
        return set(re.findall(r"(?m)^from solutions\.ex(\d\d)", path.read_text("utf-8")))
    return set()


def numbers_of_item(item) -> set[str]:
    """The chapters that a test is about: its file's, those among its parameters, those that a screen is shown for."""
    said = inspect.getsource(item.function) if item.path == SCREENS else item.name
    return numbers_of(item.path) | set(re.findall(r"\bex(\d\d)_", said))


@pytest.fixture(autouse=True)
def margin(record_property):
    """Random numbers that depend on no other test, and how near to its limit a comparison came."""
    torch.manual_seed(0)
    close.measured.clear()
    yield
    if close.measured:
        record_property("margin", max(close.measured))


def pytest_xdist_auto_num_workers(config):
    """One more than there are cores: many tests wait for a limit of time."""
    return (os.cpu_count() or 1) + 1


def pytest_terminal_summary(terminalreporter):
    """The comparisons that rounding brings nearest to their limit: on another processor they may pass it."""
    margins = sorted(((value, report.nodeid) for report in terminalreporter.getreports("")
                      for name, value in report.user_properties if name == "margin"), reverse=True)
    for value, test in margins[:10]:
        terminalreporter.write_line(f"rounds to {value:.3f} of the tolerance: {test}")
    told = sorted({value for report in terminalreporter.getreports("") for name, value in report.user_properties
                   if name == "people"})
    if told:
        named, of = (sum(int(line.split()[place]) for line in told) for place in (1, 2))
        terminalreporter.write_line(f"people's faults told by their names: {named} of {of}")


@pytest.fixture
def asked_by_name(pytestconfig):
    """For what takes long and changes with a chapter's own files: asked where chapters are named, and every week."""
    if not pytestconfig.stash[ASKED] and int(os.environ.get("SEEDS", 1)) == 1:
        pytest.skip("asked with CHAPTER=…, and every week with SEEDS=5")


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
