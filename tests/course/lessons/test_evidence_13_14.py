"""What lesson 14 quotes: one seed of what is recorded is run again here, and found in its table."""

import sys

import pytest
import torch

pytestmark = pytest.mark.usefixtures("one_thread")
OTHER_TEXT = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="recorded on the manual of Python 3.11")


def compare(rows: list[dict], name: str, again: dict) -> None:
    """The same row, as far as another processor's rounding lets it be: it grows on the way."""
    assert len(rows) == len({(row[name], row["seed"]) for row in rows}), "each setting and seed stands once"
    [there] = [row for row in rows if (row[name], row["seed"]) == (again[name], again["seed"])]
    ours, theirs = (torch.tensor([float(loss) for loss in row["losses"].split()]) for row in (again, there))
    torch.testing.assert_close(ours[:3], theirs[:3], rtol=0.01, atol=0)
    torch.testing.assert_close(ours[-3:].mean(), theirs[-3:].mean(), rtol=0.1, atol=0)


@OTHER_TEXT
def test_a_run_of_the_small_model(evidence, recorded):
    script = evidence("14_training")
    again = script.measure("AdamW", 0.002, 200, 0, *script.split())
    compare([row for row in recorded("14_training") if row["rate"] == again["rate"]], "setting", again)


def test_what_was_tuned_is_in_the_table(evidence, recorded):
    """Seed 0 at every rate of every grid, five seeds at those that the lesson shows, and no other row."""
    assert [(row["setting"], row["rate"], row["steps"], row["seed"]) for row in recorded("14_training")] == [
        tuple(map(str, run)) for run in evidence("14_training").runs()]
