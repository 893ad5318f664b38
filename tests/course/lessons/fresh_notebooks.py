"""A pytest plugin for `pytest --nbval notebooks -p tests.course.lessons.fresh_notebooks`.

Notebooks run on fresh stubs, so on the reference, whatever exercises/ holds. Their outputs must
equal the committed ones: text and integers exactly, floats within RTOL and ATOL (another
processor rounds differently). What goes to stderr, and pictures, are not compared.
"""

import os
import re
import tempfile
from pathlib import Path

import nbval.kernel
from jupyter_client.manager import KernelManager
from nbval.plugin import IPyNbCell

from tests.course.stubs import fresh

pytest_plugins = ["nbval.plugin"]       # pyproject.toml leaves it out: importing it takes a second
RTOL, ATOL = 2e-3, 2e-4

FLOAT = re.compile(r"([-+]?(?:\d+\.\d*(?:[eE][-+]?\d+)?|\.\d+|\d+[eE][-+]?\d+|\bnan\b|\binf\b))")
_compare = IPyNbCell.compare_outputs
_folder = tempfile.TemporaryDirectory(prefix="stubs-")


def pytest_configure(config):
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")     # see tests/course/conftest.py; kernels inherit it
    os.environ["COURSE_EXERCISES"] = str(fresh(Path(_folder.name)))
    IPyNbCell.compare_outputs = compare_outputs
    if os.name == "posix":
        nbval.kernel.KernelManager = kernel_manager


def kernel_manager(**options) -> KernelManager:
    """A kernel reached by sockets that are files of its own.

    TCP ports are picked before the kernel binds them: kernels that start together may pick the same, and one dies.
    """
    return KernelManager(transport="ipc", ip=str(Path(tempfile.mkdtemp(dir=_folder.name)) / "kernel"), **options)


def compare_outputs(cell, test, ref, skip_compare=None):
    """nbval's own comparison, after texts that say the same have been made equal."""
    skip = (*(skip_compare or cell.parent.skip_compare), "image/svg+xml", "image/png")
    test, ref = ([output for output in outputs if output.get("name") != "stderr"]
                 for outputs in (test, ref))
    if len(test) == len(ref):
        for mine, theirs in zip(test, ref):
            _settle(mine, theirs, "text")
            _settle(mine.get("data", {}), theirs.get("data", {}), "text/plain")
    return _compare(cell, test, ref, skip)


def _settle(mine: dict, theirs: dict, key: str) -> None:
    if isinstance(mine.get(key), str) and isinstance(theirs.get(key), str):
        if same_text(mine[key], theirs[key]):
            mine[key] = theirs[key]


def same_text(one: str, other: str) -> bool:
    """Whether two texts are equal but for the last digits of floats and for spacing."""
    a, b = FLOAT.split(one), FLOAT.split(other)
    return (len(a) == len(b)
            and all(x.split() == y.split() for x, y in zip(a[::2], b[::2]))
            and all(_close(float(x), float(y)) for x, y in zip(a[1::2], b[1::2])))


def _close(x: float, y: float) -> bool:
    return x == y or (x != x and y != y) or abs(x - y) <= ATOL + RTOL * abs(y)
