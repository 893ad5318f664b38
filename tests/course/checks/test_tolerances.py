"""The table of tolerances against a float64 oracle.

Each check is asked of the reference twice: in its own dtype, and in float64 on the same rounded
inputs. What lies between is rounding error, and no right answer has much more of it.
"""

import pytest
import torch

from grader.course import chapters, checks
from grader.judge import compare
from grader.sandbox import wire
from grader.sandbox.setting import Setting, scan_request
from grader.sandbox.worker import LoadedChapter
from tests.course import close
from tests.course.checks.touched import SEEDS

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no GPU"))]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("chapter", chapters.chapters(), ids=lambda chapter: chapter.stem)
def test_rounding_takes_a_quarter_of_the_tolerance_at_most(chapter, device):
    for dtype, (error, where) in _measured(chapter, device).items():
        close.measured.append(error / compare.TOLERANCE[device][dtype])
        assert close.measured[-1] <= close.QUARTER, (dtype, error, where)


@pytest.mark.parametrize("chapter", chapters.chapters(), ids=lambda chapter: chapter.stem)
def test_of_other_inputs_it_takes_half(chapter):
    """A grader draws its inputs anew. Two right answers, each half of the tolerance off, still agree."""
    if len(SEEDS) == 1:
        pytest.skip("one seed only; more with SEEDS=5")
    for seed in SEEDS[1:]:
        for dtype, (error, where) in _measured(chapter, "cpu", seed).items():
            assert error <= compare.TOLERANCE["cpu"][dtype] / 2, (seed, dtype, error, where)


def test_an_oracle_is_measured_in_two_precisions():
    assert {torch.float32, torch.bfloat16} <= _measured(chapters.find("linear"), "cpu").keys()


def _measured(chapter, device: str, seed: int = 0) -> dict[torch.dtype, tuple[float, str]]:
    """The largest error of each dtype in a chapter's checks, and where it was seen."""
    worst, loaded = {}, _reference(chapter, device)
    for hidden in (False, True):
        for check in checks.collect(chapter.tests(hidden), chapter.stem, hidden):
            if check.rtol is None and device in check.devices and not check.lacking:
                _measure(loaded, check, Setting(device, seed), worst)
    return worst


def _reference(chapter, device: str) -> LoadedChapter:
    folders = {other.stem: str(chapters.SOLUTIONS) for other in chapters.chapters()}
    loaded = LoadedChapter(**scan_request(chapter, folders, chapters.SOLUTIONS, Setting(device)))
    assert loaded.scan() == {}
    loaded.load_here()
    return loaded


def _measure(loaded: LoadedChapter, check, setting: Setting, worst: dict) -> None:
    """Keep the largest error of each dtype, and where it was seen."""
    question = setting.question(check)
    answer, exact = (wire.decode(reply["answer"], body) for reply, body in
                     (loaded.ask(**question), loaded.ask(**question, exact=True)))
    right = compare.leaves(exact)
    for path, leaf in compare.leaves(answer).items():
        if leaf.kind == "tensor" and leaf.value.is_floating_point() and path in right:
            if leaf.value.dtype == torch.float64 or leaf.value.shape != right[path].value.shape:
                continue
            error = compare.error(leaf, right[path])
            if error > worst.get(leaf.value.dtype, (0.0, ""))[0]:
                worst[leaf.value.dtype] = error, f"{check.chapter} {check.name} {path}"


def test_an_error_above_the_tolerance_is_seen():
    right = torch.linspace(1, 2, 8)
    for dtype, rtol in compare.TOLERANCE["cpu"].items():
        b = right.to(dtype)
        for factor, seen in ((0.3, False), (4.0, True)):
            a = (b.to(torch.complex128) * (1 + factor * rtol)).to(torch.complex128)
            a = a.to(dtype) if dtype.is_complex else a.real.to(dtype)
            leaf = [wire.Leaf("tensor", x, "cpu") for x in (a, b)]
            assert bool(compare.differences(*leaf, "cpu")) == seen, (dtype, factor)
