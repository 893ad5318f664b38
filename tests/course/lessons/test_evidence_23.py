"""What chapter 23's experiments recorded: each contestant at its own best rate; some runs start so again."""

import pytest

from grader.course import chapters

pytestmark = pytest.mark.usefixtures("one_thread")
TABLES = {"23_recall": "RULES", "23_recall_long": "RULES", "23_hybrid": "MODELS"}
COMPLETE = [pytest.param(name, contestants, marks=pytest.mark.skipif(
    not (chapters.ROOT / "assets" / "evidence" / f"{name}.csv").exists(), reason=f"run evidence/{name}.py first"))
    for name, contestants in TABLES.items()]


def script_of(evidence, name):
    """The script that writes a table: 23_recall.py writes two."""
    return evidence(name.removesuffix("_long"))


def by_setting(rows: list[dict], column: str, seeds) -> dict[tuple[str, float], float]:
    """{(contestant, rate): the mean over these seeds}, where all of them are there."""
    found: dict[tuple[str, float], dict[int, float]] = {}
    for row in rows:
        name, rate, seed = list(row.values())[:3]
        found.setdefault((name, float(rate)), {})[int(seed)] = float(row[column])
    return {key: sum(them[seed] for seed in seeds) / len(seeds)
            for key, them in found.items() if set(seeds) <= them.keys()}


@pytest.mark.parametrize("name, contestants", COMPLETE)
def test_each_is_trained_from_all_seeds_at_its_own_best_rate(evidence, recorded, name, contestants):
    script, rows = script_of(evidence, name), recorded(name)
    column = list(rows[0])[3]
    tried, trained = (by_setting(rows, column, seeds) for seeds in (script.TUNED_ON, script.SEEDS))
    for contestant in getattr(script, contestants):
        [rate] = [rate for other, rate in trained if other == contestant]
        at = script.RATES.index(rate)
        near = [tried[contestant, script.RATES[n]] for n in (at - 1, at, at + 1) if 0 <= n < len(script.RATES)]
        assert min(near) == tried[contestant, rate]


@pytest.mark.parametrize("name, contestants", COMPLETE)
def test_runs_start_as_recorded(evidence, recorded, name, contestants):
    script, rows = script_of(evidence, name), recorded(name)
    for contestant in getattr(script, contestants):
        row = next(row for row in rows if (list(row.values())[0], row["seed"]) == (contestant, "0"))
        said = [float(loss) for loss in row["losses"].split()]
        if name.startswith("23_recall"):
            length = script.LONG if name.endswith("long") else script.STEPS
            _, losses, _ = script.train(contestant, float(row["rate"]), 0, steps=31, length=length)
            assert losses[::10] == pytest.approx(said, rel=0.01)
        else:
            _, losses = script.train(contestant, float(row["rate"]), 0, script.texts()[0], steps=20)
            assert sum(losses) / 20 == pytest.approx(said[0], rel=0.02)      # the text differs between Pythons


def test_plain_and_hybrid_are_equally_large(evidence):
    script = evidence("23_hybrid")
    plain, hybrid = (script.count(script.make(name)) for name in ("plain", "hybrid"))
    assert abs(plain - hybrid) <= 3 * script.CONFIG.d_model * script.CONFIG.layers
