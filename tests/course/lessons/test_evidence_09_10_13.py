"""What lessons 09, 10 and 13 quote: one seed of each table is run again and found there, at the rate that was best."""

import pytest

pytestmark = pytest.mark.usefixtures("one_thread")


def best(rows: list[dict], name: str, loss: str) -> dict[str, str]:
    """Each contestant's rate: it has all five seeds, and both of its neighbours, which have seed 0, are worse."""
    rates = {}
    for contestant in dict.fromkeys(row[name] for row in rows):
        own = [row for row in rows if row[name] == contestant]
        seeds = {row["rate"]: {r["seed"] for r in own if r["rate"] == row["rate"]} for row in own}
        [rate] = [rate for rate, found in seeds.items() if found == set("01234")]
        tried = sorted((float(row["rate"]), float(row[loss])) for row in own if row["seed"] == "0")
        at = [rate for rate, _ in tried].index(float(rate))
        if len(tried) > 1:
            assert 0 < at < len(tried) - 1, f"{contestant}: the best rate is at the edge of those tried"
            assert tried[at][1] == min(loss for _, loss in tried), contestant
        rates[contestant] = rate
    return rates


def test_one_head(evidence, recorded):
    """All rates have all seeds, so the lesson may take the best of each number of heads."""
    rows, script = recorded("09_heads"), evidence("09_heads")
    assert [(int(row["heads"]), float(row["rate"]), int(row["seed"])) for row in rows] == [
        (heads, rate, seed) for heads in (1, 2) for rate in script.RATES for seed in script.SEEDS]
    again = script.measure(1, 0.01, 0)
    [there] = [row for row in rows if [row["heads"], row["rate"], row["seed"]] == again[:3]]
    assert float(again[3]) == pytest.approx(float(there["step 300"]), rel=0.05)     # rounding grows on the way


def test_uptraining(evidence, recorded):
    rows, script = recorded("10_uptraining"), evidence("10_uptraining")
    rates = best(rows, "start", "step 300")
    assert list(rates) == list(script.STARTS)
    again = script.measure("mean", float(rates["mean"]), 0, at=(0, 10))
    [there] = [row for row in rows if [row["start"], row["rate"], row["seed"]] == again[:3]]
    assert [float(loss) for loss in again[3:]] == pytest.approx(
        [float(there["step 0"]), float(there["step 10"])], rel=0.1)


def test_a_step_of_the_walk(evidence, recorded):
    rows, script = recorded("13_walk"), evidence("13_walk")
    rates = best([row for row in rows if row["right"] == ""], "model", "last")
    assert list(script.configs()) == [*script.CHANGES, script.FUTURE] and set(rates) == set(script.configs())
    again = script.measure("GPT-2", float(rates["GPT-2"]), 0, steps=60)
    [there] = [row for row in rows if [row["model"], row["rate"], row["seed"]] == again[:3]]
    ours, theirs = ([float(loss) for loss in losses.split()[:3]] for losses in (again[5], there["losses"]))
    assert ours == pytest.approx(theirs, rel=0.02)
