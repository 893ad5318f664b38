"""What lesson 20 quotes: one seed of what is recorded is run again here, and found in its table."""


import pytest
import torch

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_run_of_lora(evidence, recorded):
    rows = recorded("20_fine_tuning")
    [there] = [row for row in rows if (row["setting"], row["rate"], row["seed"]) == ("LoRA", "0.002", "0")]
    again = evidence("20_fine_tuning").measure("LoRA", 0.002, 0, there["model"])
    # another processor's rounding grows on the way
    ours, theirs = (torch.tensor([float(loss) for loss in row["losses"].split()]) for row in (again, there))
    torch.testing.assert_close(ours[:3], theirs[:3], rtol=0.01, atol=0)
    torch.testing.assert_close(ours[-10:].mean(), theirs[-10:].mean(), rtol=0.1, atol=0)
    assert again["trained"] == there["trained"]
    assert abs(float(again["bits per byte"]) - float(there["bits per byte"])) < 0.2


def test_what_was_tuned_is_in_the_table(evidence, recorded):
    """Seeds 0 and 1 at every rate of every setting, five seeds at those that the lesson shows, and no other row."""
    rows = recorded("20_fine_tuning")
    assert [(row["setting"], row["rate"], row["seed"]) for row in rows] == [
        tuple(map(str, run)) for run in evidence("20_fine_tuning").runs()]
