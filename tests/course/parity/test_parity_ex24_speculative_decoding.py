"""Chapter 24 against torch's own softplus."""

import pytest
import torch
from torch.nn import functional as F

from solutions import ex24_speculative_decoding
from tests.course.close import assert_close


@pytest.mark.parametrize("beta", [0.5, 1, 3.0])
def test_values_and_slopes_equal_torchs(beta):
    torch.manual_seed(0)
    x = 30 * torch.randn(200, dtype=torch.float64)
    one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    ours, theirs = ex24_speculative_decoding.softplus(one, beta), F.softplus(other, beta, threshold=50)
    assert_close(ours, theirs)
    ours.sum().backward()
    theirs.sum().backward()
    assert_close(one.grad, other.grad)
