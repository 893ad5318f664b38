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
    assert sorted((row["pairs"], row["rate"], int(row["seed"]), int(row["step"])) for row in tables["PAIRS"]) == sorted(
        (kind, str(rate), seed, step) for kind, rate, seed in script.runs()
        for step in range(0, script.PAIR_STEPS + 1, every))

    base = script.base_model(0)
    again = {("REWARDS", "true reward", "0"): script.train(base, script.true_reward, 0, 10),
             ("PAIRS", "opposites", "0.0005", "0"): script.train_pairs(base, "opposites", 5e-4, 0, 10),
             ("PAIRS", "by the model", "0.0005", "0"): script.train_pairs(base, "by the model", 5e-4, 0, 10)}
    for (name, *run), found in again.items():
        rows = [row[len(run):] for row in map(list, map(dict.values, tables[name])) if row[:len(run)] == run]
        for (step, *numbers), (there, *row) in itertools.zip_longest(found, rows[:3]):
            assert int(there) == step
            # rounding grows on the way: another answer is drawn here and there, and another step taken
            torch.testing.assert_close(torch.tensor(numbers), torch.tensor([float(x) for x in row]),
                                       rtol=0.15 * (step > 0) + 0.02, atol=0.1 * (step > 0) + 0.02)
