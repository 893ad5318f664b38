"""What lessons 04 and 06 quote: one seed of each recorded experiment is run again and finds its row."""

from collections import Counter

import pytest
import torch

pytestmark = pytest.mark.usefixtures("one_thread")


def test_learning_rates(evidence, recorded):
    script, rows = evidence("04_learning_rates"), recorded("04_learning_rates")
    there = {(row["kind"], row["rate"], row["seed"]): row for row in rows}
    assert len(rows) == len(there) == 145
    for kind, rate in ("no norm", "1e-8"), ("no norm, small start", "1e-1"), ("RMSNorm, small start", "1e-1"):
        losses = script.train(kind, float(rate), 0, 40)
        assert losses[40] == pytest.approx(float(there[kind, rate, "0"]["loss 40"]), rel=0.02)
    assert len(script.train("no norm", 1e-4, 0)) < 40, "ends where the loss is not finite"
    for seed in "01234":        # the start is most of it; the norm adds the rest
        usual, control, norm = (float(there[kind, rate, seed]["loss 160"]) for kind, rate in (
            ("no norm", "1e-6"), ("no norm, small start", "1e-1"), ("RMSNorm", "1e0")))
        assert usual > 30 > 0.2 > control > 2 * norm


def test_leak(evidence, recorded):
    script, rows = evidence("04_leak"), recorded("04_leak")
    row = next(row for row in rows if (row["norm"], row["seed"]) == ("over the sequence", "0"))
    found = script.losses(script.over_sequence, 0)
    assert found == pytest.approx((float(row["training"]), float(row["generation"])), rel=0.05)
    assert found[0] < torch.tensor(10.0).log() < found[1], "better than possible in training, worse than blind alone"


def test_copier(evidence, recorded, monkeypatch):
    script, rows = evidence("06_copier"), recorded("06_copier")
    there = {tuple(row[name] for name in ("task", "positions", "rate", "seed", "step")): row for row in rows}
    assert len(rows) == len(there)
    for contestant in {(row["task"], row["positions"]) for row in rows}:
        seeds = Counter(float(row["rate"]) for row in rows if (row["task"], row["positions"]) == contestant)
        best = [rate for rate, count in seeds.items() if count == 2 * 5]        # two steps each
        assert len(best) == 1 and min(seeds) < best[0] < max(seeds), contestant
        assert {count for rate, count in seeds.items() if rate not in best} == {2 * len(script.GRID)}
    monkeypatch.setattr(script, "STOPS", (200,))
    for task, kind in ("copy", "clipped"), ("recall", "ALiBi"):
        (found,) = script.ways(task, kind, "0.01", 0)
        row = there[task, kind, "0.01", "0", "200"]
        assert [float(share) for share in found[5:]] == pytest.approx(
            [float(row[str(n)]) for n in script.LENGTHS], abs=0.02)


def test_what_is_asked_of_the_copier(evidence):
    script = evidence("06_copier")
    ids = torch.tensor([[7, 2, 9, 11, 0, 5]])
    assert script.answers("copy", ids).tolist() == [[-100, -100, -100, 7, 2, 9]]
    assert script.answers("recall", ids).tolist() == [[-100, 2, 2, 2, 0, 0]]


def test_wrong_sinusoids(evidence, recorded):
    script, rows = evidence("06_copier"), recorded("06_wrong")
    found = {name: float(share) for _, name, share in script.wrong(0)}
    assert len(rows) == 25 and set(found) == {row["table"] for row in rows}
    for row in rows[:5]:
        assert found[row["table"]] == pytest.approx(float(row["accuracy"]), abs=0.03)


def test_filled_buckets(evidence, recorded, monkeypatch):
    """What T5 lost on longer texts came from buckets that were never trained, as far as a fill brings it back."""
    script, rows = evidence("06_copier"), recorded("06_filled")
    assert len(rows) == 10
    row = next(row for row in rows if (row["task"], row["seed"]) == ("copy", "0"))
    ((*_, before, after),) = script.filled("copy", row["rate"], 0)
    assert (float(before), float(after)) == pytest.approx((float(row["as trained"]), float(row["filled"])), abs=0.03)
    assert all(float(row["filled"]) > float(row["as trained"]) for row in rows)
