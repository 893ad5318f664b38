"""What lesson 25 quotes: every run is recorded, at its contestant's own best setting, and comes out again."""

import pytest

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def script(evidence):
    return evidence("25_load")


@pytest.fixture(scope="module")
def rows(recorded):
    return recorded("25_load")


def test_what_a_step_takes(script, recorded):
    rows = recorded("25_steps")
    assert [(row["kind"], int(row["tokens"]), int(row["positions"])) for row in rows] == script.STEP_SETTINGS
    takes = {(row["kind"], int(row["tokens"]), int(row["positions"])): float(row["time"]) for row in rows}
    assert takes["decode", 1, 32] == pytest.approx(1, abs=0.2)
    assert takes["decode", 8, 96] < 4, "eight in one step take less than half as long as one after the other"
    assert script.step_time("decode", 8, 96) / script.unit() > 0        # how long it takes is the machine's


def test_each_runs_at_its_own_best_setting(script, rows):
    found = [(row["cost"], row["contestant"], *(int(row[name]) for name in ("most", "budget", "load", "seed")))
             for row in rows]
    assert len(set(found)) == len(found)
    assert {(cost, *setting, load, seed) for cost, load in script.COSTS for setting in script.SETTINGS
            for seed in script.TUNED_ON} <= set(found)
    shown = [run for run in found if run[-1] in script.SEEDS]
    most = script.best("measured", "continuous", script.REAL_LOAD)[0]
    assert sorted(shown) == sorted(
        [(cost, name, *script.best(cost, name, load), load, seed) for cost, load in script.COSTS
         for name in script.NAMES for seed in script.SEEDS]
        + [("measured", "continuous", most, script.NO_BUDGET, script.REAL_LOAD, seed)
           for seed in script.SEEDS])


@pytest.mark.parametrize("cost, load", [("measured", 60), ("roofline", 300)])
@pytest.mark.parametrize("name", ["batch", "reserved", "continuous"])
def test_a_run_comes_out_again(script, rows, name, cost, load):
    row = next(row for row in rows if (row["cost"], row["contestant"], row["load"], row["seed"])
               == (cost, name, str(load), "0"))
    [again] = script.measure(cost, name, int(row["most"]), int(row["budget"]), load, 0)
    again = dict(zip(script.COLUMNS, again, strict=True))
    for column in ("throughput", "p50", "p99", "first"):    # another processor may round a length otherwise
        assert float(again[column]) == pytest.approx(float(row[column]), rel=0.1)


def test_transformers_gives_the_same_texts(evidence, recorded):
    script, rows = evidence("25_transformers"), recorded("25_transformers")
    assert [(row["prompts"], int(row["seed"])) for row in rows
            ] == [(kind, seed) for kind in script.LENGTHS for seed in script.SEEDS]
    assert {int(row["same"]) for row in rows} == {script.REQUESTS}
    script.TURNS = 1
    for row in rows[::len(script.SEEDS)]:
        [[*_, engine, transformers, empty, same]] = script.measure(row["prompts"], 0)
        assert int(same) >= script.REQUESTS - 2         # rounding may decide between two tokens
        assert float(engine) > 0 and float(transformers) > float(empty) > 0      # how long it takes is the machine's


def test_the_model_takes_as_long_as_counted(script, recorded):
    rows = recorded("25_real")
    assert [(row["contestant"], int(row["load"]), int(row["seed"])) for row in rows
            ] == [(name, script.REAL_LOAD, seed) for name in ("batch", "continuous") for seed in script.SEEDS]
    for row in rows:
        assert float(row["measured"]) == pytest.approx(float(row["predicted"]), rel=0.1)


def test_a_batch_lets_nobody_in(script):
    made, _ = script.requests(0, 60, 12)
    engine = script.engine(script.Clock, script.nothing(), "batch", 4, 10**6)
    for request in made:
        engine.add(request)
    seen = set()
    while engine.unfinished:
        now = {output.id for output in engine.step()}
        assert now <= seen or not now & seen, "who begins, begins with nobody who is under way"
        seen |= now
