"""What lessons 04 and 06 quote: one seed of each recorded experiment is run again and finds its row."""

import csv
import importlib.util

import pytest
import torch

from grader.course import chapters

EVIDENCE = chapters.ROOT / "assets" / "evidence"
pytestmark = pytest.mark.usefixtures("one_thread")


def _script(name: str):
    spec = importlib.util.spec_from_file_location("evidence_" + name, EVIDENCE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, list(csv.DictReader((EVIDENCE / f"{name}.csv").open()))


def test_learning_rates():
    script, rows = _script("04_learning_rates")
    assert len(rows) == 65 and len({(row["norm"], row["rate"], row["seed"]) for row in rows}) == 65
    recorded = {(row["norm"], row["rate"]): row for row in rows if row["seed"] == "0"}
    for norm, rate in ("no norm", "1e-8"), ("RMSNorm", "1e-1"):
        losses = script.train(script.NORMS[norm], float(rate), 0)
        row = recorded[norm, rate]
        assert (losses[0], losses[-1]) == pytest.approx((float(row["first"]), float(row["last"])), rel=0.02)


def test_leak():
    script, rows = _script("04_leak")
    recorded = {row["norm"]: row for row in rows if row["seed"] == "0"}
    row = recorded["over the sequence"]
    found = script.losses(script.over_sequence, 0)
    assert found == pytest.approx((float(row["training"]), float(row["generation"])), rel=0.05)
    assert found[0] < torch.tensor(10.0).log() < found[1], "better than possible in training, worse than blind alone"


def test_copier():
    script, rows = _script("06_copier")
    row = next(row for row in rows if (row["positions"], row["seed"], row["length"]) == ("clipped", "0", "48"))
    found = {n: float(share) for name, _, n, share in script.rows_of("clipped", 0)}
    assert found[48] == pytest.approx(float(row["accuracy"]), abs=0.02)
