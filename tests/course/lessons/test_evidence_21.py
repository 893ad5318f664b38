"""Lesson 21 quotes two tables of training runs; the beginning of a seed is made again here and found in them."""

import itertools

import pytest
import torch

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_seed_of_the_sorter_is_in_the_tables(evidence, recorded):
    script = evidence("21_rewards")
    every = script.EVERY
    tables = {"REWARDS": recorded("21_rewards"), "PAIRS": recorded("21_pairs")}
    assert sorted((row["run"], row["rate"], int(row["seed"]), int(row["step"])) for row in tables["REWARDS"]) == sorted(
        (run, str(rate), seed, step)
        for run, rate, seed in script.runs({name: rates for name, (*_, rates, _) in script.RUNS.items()})
        for step in range(0, script.RUNS[run][1] + 1, every))
    assert sorted((row["pairs"], row["rate"], int(row["seed"]), int(row["step"])) for row in tables["PAIRS"]) == sorted(
        (kind, str(rate), seed, step)
        for kind, rate, seed in script.runs(dict.fromkeys(script.PAIRS_OF, script.PAIR_RATES))
        for step in range(0, script.PAIR_STEPS + 1, every))

    base = script.base_model(0)
    again = {("REWARDS", "true reward", "0.001"): script.train(base, script.true_reward, 0, 10, 1e-3, {}),
             ("PAIRS", "opposites", "0.0005"): script.train_pairs(base, "opposites", 5e-4, 0, 10)}
    for (name, *run), found in again.items():
        rows = [list(row.values()) for row in tables[name] if list(row.values())[:3] == [*run, "0"]]
        for (step, *numbers), row in itertools.zip_longest(found, rows[:3]):
            assert int(row[3]) == step
            # rounding grows on the way: another answer is drawn here and there, and another step taken
            torch.testing.assert_close(torch.tensor(numbers), torch.tensor([float(x) for x in row[4:]]),
                                       rtol=0.15 * (step > 0) + 0.02, atol=0.1 * (step > 0) + 0.02)
