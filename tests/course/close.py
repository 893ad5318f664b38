"""How the course's own tests compare numbers that are equal but for rounding: in the grader's unit, by its table.

Rounding may take a quarter of what the table allows, as in test_tolerances.py: then a test is green on every
processor. What says more is mended by better conditioned inputs, by float64, or by comparing with float64. Other
processors' rounding is asked for by ATEN_CPU_CAPABILITY=default (or avx2) and MKL_CBWR=COMPATIBLE in the environment.
"""

import torch

from grader.judge import compare
from grader.sandbox import wire

QUARTER = 1 / 4
measured: list[float] = []          # what each comparison of the test now running took of the tolerance


def assert_close(mine, right) -> None:
    """mine equals right, of mine's dtype or of float64; a list of tensors is compared as one row."""
    mine, right = (torch.cat([x.detach().flatten() for x in given]) if isinstance(given, list) else given.detach()
                   for given in (mine, right))
    assert mine.shape == right.shape and right.dtype in (mine.dtype, torch.float64), (mine, right)
    for finite in (torch.isnan, torch.isposinf, torch.isneginf):
        assert torch.equal(finite(mine), finite(right)), (mine, right)
    error = compare.error(*(wire.Leaf("tensor", x) for x in (mine, right)))
    measured.append(error / compare.TOLERANCE[mine.device.type][mine.dtype])
    assert measured[-1] <= QUARTER, \
        f"off by {error:.1e} of the row's size, {measured[-1]:.2g} of the tolerance: rounding may take a quarter of it"


def assert_as_near(mine, theirs, exact) -> None:
    """Of several roundings in half precision: mine errs as theirs does, within a factor of 2.

    The norms of both errors are compared. They hardly differ from processor to processor, as single errors do.
    """
    assert mine.dtype == theirs.dtype and mine.shape == theirs.shape == exact.shape and exact.dtype == torch.float64
    errors = [float((x.detach() - exact.detach()).norm()) for x in (mine, theirs)]
    print(f"errs {errors[0] / errors[1]:.2f} times as much")
    assert errors[0] <= 2 * errors[1], errors
