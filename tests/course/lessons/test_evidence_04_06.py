"""What lessons 04 and 06 quote: one seed of each recorded experiment is run again and finds its row."""


import pytest
import torch

pytestmark = pytest.mark.usefixtures("one_thread")


def test_learning_rates(evidence, recorded):
    script, rows = evidence("04_learning_rates"), recorded("04_learning_rates")
    assert len(rows) == 65 and len({(row["norm"], row["rate"], row["seed"]) for row in rows}) == 65
    first = {(row["norm"], row["rate"]): row for row in rows if row["seed"] == "0"}
    for norm, rate in ("no norm", "1e-8"), ("RMSNorm", "1e-1"):
        losses = script.train(script.NORMS[norm], float(rate), 0)
        row = first[norm, rate]
        assert (losses[0], losses[-1]) == pytest.approx((float(row["first"]), float(row["last"])), rel=0.02)


def test_leak(evidence, recorded):
    script, rows = evidence("04_leak"), recorded("04_leak")
    row = next(row for row in rows if (row["norm"], row["seed"]) == ("over the sequence", "0"))
    found = script.losses(script.over_sequence, 0)
    assert found == pytest.approx((float(row["training"]), float(row["generation"])), rel=0.05)
    assert found[0] < torch.tensor(10.0).log() < found[1], "better than possible in training, worse than blind alone"


def test_copier(evidence, recorded):
    script, rows = evidence("06_copier"), recorded("06_copier")
    row = next(row for row in rows if (row["positions"], row["seed"], row["length"]) == ("clipped", "0", "48"))
    found = {n: float(share) for name, _, n, share in script.rows_of("clipped", 0)}
    assert found[48] == pytest.approx(float(row["accuracy"]), abs=0.02)
