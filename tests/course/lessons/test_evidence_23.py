"""What chapter 23's experiments recorded: each contestant at its own best rate; some runs start so again."""

import pytest
import torch

from grader.course import chapters

pytestmark = pytest.mark.usefixtures("one_thread")
TABLES = {"23_recall": "RULES", "23_recall_start": "STARTS",
          "23_recall_boundary": "BOUNDARY", "23_hybrid": "CONTESTANTS"}
COMPLETE = [pytest.param(name, contestants, marks=pytest.mark.skipif(
    not (chapters.ROOT / "assets" / "evidence" / f"{name}.csv").exists(), reason=f"run evidence/{name}.py first"))
    for name, contestants in TABLES.items()]


def script_of(evidence, name):
    """The script that writes a table: 23_recall.py writes three."""
    return evidence("23_recall" if name.startswith("23_recall") else name)


def by_setting(rows: list[dict], column: str, seeds) -> dict[tuple[str, float, int], float]:
    """{(contestant, rate, warm-up, or 0): the mean over these seeds}, where all of them are there."""
    found: dict[tuple[str, float, int], dict[int, float]] = {}
    for row in rows:
        setting = next(iter(row.values())), float(row["rate"]), int(row.get("warm-up", 0))
        found.setdefault(setting, {})[int(row["seed"])] = float(row[column])
    return {key: sum(them[seed] for seed in seeds) / len(seeds)
            for key, them in found.items() if set(seeds) <= them.keys()}


@pytest.mark.parametrize("name, contestants", COMPLETE)
def test_each_is_trained_from_all_seeds_at_its_own_best_setting(evidence, recorded, name, contestants):
    script, rows = script_of(evidence, name), recorded(name)
    column, warmups = "bits per byte" if name == "23_hybrid" else "wrong", getattr(script, "WARMUPS", (0,))
    tried, trained = (by_setting(rows, column, seeds) for seeds in (script.TUNED_ON, script.SEEDS))
    for contestant in getattr(script, contestants):
        settings = [setting for other, *setting in trained if other == contestant]
        [(rate, warmup)] = settings
        i, j = script.RATES.index(rate), warmups.index(warmup)
        near = [(other, warmup) for other in script.RATES[max(i - 1, 0):i + 2]]
        of = getattr(script, "CONTROLS", {}).get(contestant)
        if of:                                          # a control has the warm-up of its model
            assert warmup in [later for other, _, later in trained if other == of]
        else:
            near += [(rate, other) for other in warmups[max(j - 1, 0):j + 2]]
        assert min(tried[contestant, *setting] for setting in near) == tried[contestant, rate, warmup]


@pytest.mark.parametrize("name, contestants", COMPLETE)
def test_runs_start_as_recorded(evidence, recorded, name, contestants):
    script, rows = script_of(evidence, name), recorded(name)
    for contestant in getattr(script, contestants):
        row = next(row for row in rows if (list(row.values())[0], row["seed"]) == (contestant, "0"))
        said = [float(loss) for loss in row["losses"].split()]
        if name.startswith("23_recall"):
            task = script.draw_boundary if name == "23_recall_boundary" else script.draw
            _, losses, _ = script.train(contestant, float(row["rate"]), 0, steps=31, task=task)
            # At the highest rates, rounding of another processor has grown to over a hundredth by step 30.
            assert losses[:30:10] == pytest.approx(said[:3], rel=0.01)
            assert losses[30] == pytest.approx(said[3], rel=0.03)
        else:
            warmup, (text, _) = int(row["warm-up"]), script.texts()
            _, losses = script.train(contestant, float(row["rate"]), warmup, 0, text, steps=20)
            assert sum(losses) / 20 == pytest.approx(said[0], rel=0.02)      # the text differs between Pythons


def test_counts_are_of_the_bytes_that_a_seed_draws(evidence, recorded):
    """The text differs between Pythons."""
    script, said = evidence("23_hybrid"), {int(row["seed"]): float(row["bits per byte"])
                                           for row in recorded("23_hybrid_count")}
    assert [*said] == [*script.SEEDS]
    assert script.counted(*script.texts(), 0) == pytest.approx(said[0], rel=0.02)


def test_only_the_new_document_is_asked_for(evidence):
    script, rng = evidence("23_recall"), torch.Generator().manual_seed(0)
    for keys, said, wanted, in_old in zip(*script.draw_boundary(8, 4, rng), strict=True):
        old, (separator, *new), asked = keys[:script.OLD].tolist(), keys[script.OLD:-4].tolist(), keys[-4:].tolist()
        told = dict(zip(new, said[script.OLD + 1:-4].tolist(), strict=True))
        assert separator == script.SEPARATOR and len({*old}) == script.OLD and len(told) == 4
        assert said[-4:].tolist() == 4 * [script.NOTHING]
        assert [told[key] for key in asked] == wanted.tolist()
        assert [key in old for key in asked] == in_old.tolist() and in_old.sum() == 2


def test_longer_runs_start_as_recorded(evidence, recorded):
    script, rows = evidence("23_hybrid"), recorded("23_hybrid_long")
    settings = [(row["model"], float(row["rate"]), int(row["seed"])) for row in rows]
    assert len(settings) == len(set(settings)) and set(settings) == {
        *((name, rate, 0) for rate in script.LONG_RATES for name in script.WARMED),
        *((name, script.best_of_long(name), seed) for seed in script.SEEDS for name in script.WARMED)}
    for row in rows[:2]:
        losses = [float(loss) for loss in row["losses"].split()]
        _, again = script.train(row["model"], float(row["rate"]), int(row["warm-up"]), int(row["seed"]),
                                script.texts()[0], steps=20, length=script.LONG)
        assert len(losses) == script.LONG // 20
        assert sum(again) / 20 == pytest.approx(losses[0], rel=0.02)             # the text differs between Pythons


def test_models_are_equally_large(evidence):
    script = evidence("23_hybrid")
    plain, hybrid, convolved = (script.count(script.make(name)) for name in ("plain", "hybrid", script.CONVOLVED))
    assert max(abs(n - hybrid) for n in (plain, convolved)) <= 3 * script.CONFIG.d_model * script.CONFIG.layers
