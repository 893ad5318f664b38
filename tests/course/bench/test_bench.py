"""Every bench can be run: what it imports is there. What it measures is looked at, not tested."""

import importlib
from pathlib import Path

import pytest

BENCHES = sorted(path.stem for path in Path(__file__).parent.glob("bench_*.py"))


@pytest.mark.parametrize("bench", BENCHES)
def test_bench_has_rows_to_print(bench):
    module = importlib.import_module(f"tests.course.bench.{bench}")
    assert any(name.startswith("bench_") and callable(call) for name, call in vars(module).items())
