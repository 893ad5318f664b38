"""What several of the course's own tests stand on."""

import csv
import importlib
import os

import pytest
import torch

from grader import chapters

os.environ.setdefault("TRITON_INTERPRET", "0" if torch.cuda.is_available() else "1")    # before anything imports Triton


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
