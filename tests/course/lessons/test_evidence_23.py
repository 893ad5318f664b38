"""What lesson 23 quotes: each contestant stands at its own best rate, and the start of some runs comes out again."""

import pytest

pytestmark = pytest.mark.usefixtures("one_thread")
BOTH = pytest.mark.parametrize("name, contestants", [("23_recall", "RULES"), ("23_hybrid", "MODELS")])


def by_setting(rows: list[dict], column: str, seeds) -> dict[tuple[str, float], float]:
    """{(contestant, rate): the mean over these seeds}, where all of them are there."""
    found: dict[tuple[str, float], dict[int, float]] = {}
    for row in rows:
        name, rate, seed = list(row.values())[:3]
        found.setdefault((name, float(rate)), {})[int(seed)] = float(row[column])
    return {key: sum(them[seed] for seed in seeds) / len(seeds)
            for key, them in found.items() if set(seeds) <= them.keys()}


@BOTH
def test_each_is_trained_from_all_seeds_at_its_own_best_rate(evidence, recorded, name, contestants):
    script, rows = evidence(name), recorded(name)
    column = list(rows[0])[3]
    tried, trained = (by_setting(rows, column, seeds) for seeds in (script.TUNED_ON, script.SEEDS))
    for contestant in getattr(script, contestants):
        [rate] = [rate for other, rate in trained if other == contestant]
        at = script.RATES.index(rate)
        near = [tried[contestant, script.RATES[n]] for n in (at - 1, at, at + 1) if 0 <= n < len(script.RATES)]
        assert min(near) == tried[contestant, rate]


@pytest.mark.parametrize("rule", ["softmax", "linear", "delta", "gated delta"])
def test_recall_starts_as_recorded(evidence, recorded, rule):
    row = next(row for row in recorded("23_recall") if (row["rule"], row["seed"]) == (rule, "0"))
    _, losses, _ = evidence("23_recall").train(rule, float(row["rate"]), 0, steps=31)
    assert losses[::10] == pytest.approx([float(loss) for loss in row["losses"].split()], rel=0.01)


@pytest.mark.parametrize("name", ["plain", "hybrid"])
def test_the_hybrid_starts_as_recorded(evidence, recorded, name):
    script, row = evidence("23_hybrid"), next(
        row for row in recorded("23_hybrid") if (row["model"], row["seed"]) == (name, "0"))
    _, losses = script.train(name, float(row["rate"]), 0, script.texts()[0], steps=20)
    assert sum(losses) / 20 == pytest.approx(float(row["losses"].split()[0]), rel=0.02)     # the text differs by Python


def test_plain_and_hybrid_are_equally_large(evidence):
    script = evidence("23_hybrid")
    plain, hybrid = (script.count(script.make(name)) for name in script.MODELS)
    assert abs(plain - hybrid) <= 3 * script.CONFIG.d_model * script.CONFIG.layers
