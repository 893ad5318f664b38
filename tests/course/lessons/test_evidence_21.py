"""Lesson 21 quotes two tables of training runs; the beginning of a seed is made again here and found in them."""

import itertools

import pytest
import torch

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_seed_of_the_sorter_is_in_the_tables(evidence, recorded):
    script = evidence("21_rewards")
    every = script.EVERY
    tables = {"REWARDS": recorded("21_rewards"), "PAIRS": recorded("21_pairs")}
    assert sorted((row["run"], int(row["seed"]), int(row["step"])) for row in tables["REWARDS"]) == sorted(
        (run, seed, step) for run, (_, steps, _) in script.RUNS.items() for seed in script.SEEDS
        for step in range(0, steps + 1, every))
    assert sorted((row["pairs"], int(row["seed"]), int(row["step"])) for row in tables["PAIRS"]) == sorted(
        (kind, seed, step) for kind in ("opposites", "near misses") for seed in script.SEEDS
        for step in range(0, script.PAIR_STEPS + 1, every))

    base = script.base_model(0)
    again = {("REWARDS", "true reward"): script.train(base, script.true_reward, 0, 10),
             ("PAIRS", "opposites"): script.train_pairs(base, "opposites", 0, 10)}
    for (name, kind), found in again.items():
        rows = [list(row.values()) for row in tables[name] if list(row.values())[:2] == [kind, "0"]]
        for (step, *numbers), row in itertools.zip_longest(found, rows[:3]):
            assert int(row[2]) == step
            # rounding grows on the way: another answer is drawn here and there, and another step taken
            torch.testing.assert_close(torch.tensor(numbers), torch.tensor([float(x) for x in row[3:]]),
                                       rtol=0.15 * (step > 0) + 0.02, atol=0.1 * (step > 0) + 0.02)
