"""What several of the course's own tests stand on."""

import pytest
import torch


@pytest.fixture
def one_thread():
    """With tensors this small a second thread only waits; evidence's scripts take one, too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
