"""What lesson 18 quotes: all runs of the experiment are recorded, and the start of some comes out again."""


import pytest

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def script(evidence):
    return evidence("18_experts")


@pytest.fixture(scope="module")
def rows(recorded):
    return recorded("18_experts")


def test_every_run_is_recorded(script, rows):
    assert [(row["model"], int(row["seed"])) for row in rows] == [
        (name, seed) for name in script.MODELS for seed in script.SEEDS]
    for row in rows:
        if not row["model"].startswith("dense"):
            loads = [float(load) for load in row["loads"].split()]
            assert len(loads) == script.EXPERTS
            assert sum(loads) == pytest.approx(script.EXPERTS, abs=0.01)


@pytest.mark.parametrize("name, seed", [("dense", 0), ("no balance", 1), ("balancing loss", 2), ("balancing bias", 3)])
def test_runs_start_as_recorded(script, rows, name, seed):
    row = next(row for row in rows if (row["model"], row["seed"]) == (name, str(seed)))
    _, losses = script.train(name, seed, script.texts()[0], steps=40)
    means = [sum(losses[i:i + 20]) / 20 for i in (0, 20)]
    recorded = [float(mean) for mean in row["losses"].split()[:2]]
    assert means == pytest.approx(recorded, rel=0.02)       # the text differs between Pythons


def test_every_rate_is_recorded_with_every_seed(script, recorded):
    assert [(float(row["peak"]), row["model"], int(row["seed"])) for row in recorded("18_rates")] == [
        (peak, name, seed) for seed in script.SEEDS for peak in script.RATES for name in script.TUNED]


@pytest.mark.parametrize("name, peak", [("dense, wide", 0.0025), ("balancing bias", 0.02)])
def test_a_rate_starts_as_recorded(script, recorded, name, peak):
    row = next(row for row in recorded("18_rates") if (float(row["peak"]), row["model"]) == (peak, name))
    _, losses = script.train(name, int(row["seed"]), script.texts()[0], steps=20, peak=peak)
    assert sum(losses) / 20 == pytest.approx(float(row["start"]), rel=0.005)
