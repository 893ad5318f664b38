"""What chapter 23's experiments recorded: each contestant at its own best rate; some runs start so again."""

import pytest
import torch

from grader.course import chapters

pytestmark = pytest.mark.usefixtures("one_thread")
TABLES = {"23_recall": "RULES", "23_recall_long": "RULES", "23_recall_start": "STARTS",
          "23_recall_boundary": "BOUNDARY", "23_recall_two": "TWO", "23_hybrid": "MODELS"}
TASKS = {"23_recall_boundary": "draw_boundary", "23_recall_two": "draw_twice"}
COMPLETE = [pytest.param(name, contestants, marks=pytest.mark.skipif(
    not (chapters.ROOT / "assets" / "evidence" / f"{name}.csv").exists(), reason=f"run evidence/{name}.py first"))
    for name, contestants in TABLES.items()]


def script_of(evidence, name):
    """The script that writes a table: 23_recall.py writes five."""
    return evidence("23_recall" if name.startswith("23_recall") else name)


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
            length = script.STEPS if name == "23_recall" else script.LONG
            task = getattr(script, TASKS.get(name, "draw"))
            _, losses, _ = script.train(contestant, float(row["rate"]), 0, steps=31, length=length, task=task)
            assert losses[::10] == pytest.approx(said, rel=0.01)
        else:
            _, losses = script.train(contestant, float(row["rate"]), 0, script.texts()[0], steps=20)
            assert sum(losses) / 20 == pytest.approx(said[0], rel=0.02)      # the text differs between Pythons


def test_only_the_new_document_is_asked_for(evidence):
    script, rng = evidence("23_recall"), torch.Generator().manual_seed(0)
    for keys, said, wanted, in_old in zip(*script.draw_boundary(8, 4, rng), strict=True):
        old, (separator, *new), asked = keys[:script.OLD].tolist(), keys[script.OLD:-4].tolist(), keys[-4:].tolist()
        told = dict(zip(new, said[script.OLD + 1:-4].tolist(), strict=True))
        assert separator == script.SEPARATOR and len({*old}) == script.OLD and len(told) == 4
        assert said[-4:].tolist() == 4 * [script.NOTHING]
        assert [told[key] for key in asked] == wanted.tolist()
        assert [key in old for key in asked] == in_old.tolist() and in_old.sum() == 2


def test_plain_and_hybrid_are_equally_large(evidence):
    script = evidence("23_hybrid")
    plain, hybrid = (script.count(script.make(name)) for name in ("plain", "hybrid"))
    assert abs(plain - hybrid) <= 3 * script.CONFIG.d_model * script.CONFIG.layers
