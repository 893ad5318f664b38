"""Every check meant for CUDA answers alike on a device that is not the CPU, which needs no GPU."""

import os
import subprocess
import sys

import pytest

from grader.course import chapters
from tests.course.checks import second_device

pytestmark = pytest.mark.skipif(bool(second_device.missing()), reason=second_device.missing())

REFUSED = {     # what CUDA refuses as well
    "a matrix left on the CPU": "x @ torch.ones(3, 3)",
    "one part of several left on the CPU": "torch.cat([x, torch.ones(3, 3)])",
    "indices of rows left on the CPU": "torch.nn.functional.embedding(torch.tensor([0]), x)",
    "a generator of the CPU": "torch.rand(3, generator=torch.Generator(), device=x.device)",
    "values left on the CPU": "x.index_put_((torch.tensor([0]),), torch.ones(1, 3))",
    "a NumPy array of its memory": "x.numpy()",
}
TAKEN = {
    "a single number of the CPU": "x * torch.tensor(2.0)",
    "indices in brackets": "x[torch.tensor([0, 2])]",
    "copying": "x.copy_(torch.ones(3, 3)).cpu()",
}
PROGRAM = """
import torch
from tests.course.checks import second_device
second_device.install()
x = torch.ones(3, 3, device=second_device.NAME)
fresh = torch.empty(3, device=second_device.NAME)
assert fresh.isnan().all(), fresh
tied = torch.nn.Sequential(torch.nn.Embedding(3, 3), torch.nn.Linear(3, 3, bias=False))
tied[1].weight = tied[0].weight
assert tied.to(x.device)[0].weight is tied[1].weight
view = torch.zeros(2, 4, device=second_device.NAME)
view[:, 2:] += 1
assert view.cpu().tolist() == [[0, 0, 1, 1]] * 2, view
"""
CLIPPED = """
import torch
from solutions.ex14_training import clip_grad_norm
from tests.course.checks import second_device
second_device.install()
here, there = (torch.nn.Parameter(torch.zeros(2, device=device)) for device in ("cpu", second_device.NAME))
here.grad, there.grad = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 4.0]).to(second_device.NAME)
assert clip_grad_norm([here, there], 1).item() == 5
torch.testing.assert_close(torch.cat([here.grad, there.grad.cpu()]), torch.tensor([0.6, 0.0, 0.0, 0.8]))
"""


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, *arguments], cwd=chapters.ROOT, text=True, capture_output=True,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})


def test_the_device_refuses_what_cuda_refuses():
    program = PROGRAM
    for what, expression in REFUSED.items():
        program += f"try:\n    {expression}\nexcept (RuntimeError, TypeError):\n    pass\n" \
                   f"else:\n    raise AssertionError('it takes {what}')\n"
    said = run("-c", program + "\n".join(TAKEN.values()))
    assert said.returncode == 0, said.stderr


def test_gradients_on_two_devices_are_clipped_as_one():
    said = run("-c", CLIPPED)
    assert said.returncode == 0, said.stderr


@pytest.mark.parametrize("chapter", chapters.chapters(), ids=lambda chapter: chapter.stem)
def test_every_check_answers_alike(chapter):
    """The reference and its alternatives are right there too; and every week, every known mistake is caught there."""
    said = run("-m", "tests.course.checks.second_device", chapter.stem)
    assert said.returncode == 0, f"{said.stdout}\n{said.stderr[-2000:]}"
