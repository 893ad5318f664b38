"""What several of the course's own tests stand on."""

import os

import pytest
import torch

os.environ.setdefault("TRITON_INTERPRET", "0" if torch.cuda.is_available() else "1")    # before anything imports Triton


@pytest.fixture
def one_thread():
    """With tensors this small a second thread only waits; evidence's scripts take one, too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
