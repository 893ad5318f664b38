"""Drawn tokens have the frequencies that their probabilities promise.

Chapter 15's checks hold `sample` to exact ids. Here it is asked what those ids are for: chi-squared
of 10,000 draws against the probabilities. A right `sample` fails one such test in a million
(critical values for p = 10⁻⁶ below); as the seeds are fixed, it fails always or never.
"""

import pytest
import torch

from solutions.ex05_softmax import softmax
from solutions.ex15_generation import apply_temperature, min_p, sample, top_k, top_p

DRAWS = 10_000
# The chi-squared value that a sum of this many degrees of freedom exceeds once in a million.
CRITICAL = {1: 23.93, 2: 27.63, 3: 30.66, 7: 40.52, 19: 63.68}
FILTERS = {
    "all": lambda x: x,
    "temperature 0.5": lambda x: apply_temperature(x, 0.5),
    "top_k": lambda x: top_k(x, 4),
    "top_p": lambda x: top_p(x, 0.6),
    "min_p": lambda x: min_p(x, 0.6),
}


def chi_squared(ids, probabilities):
    """The sum of (seen − expected)² / expected over tokens that can come, and how many there are."""
    seen, expected = torch.bincount(ids, minlength=len(probabilities)), DRAWS * probabilities
    possible = probabilities > 0
    assert not seen[~possible].any(), "a token of probability 0 was drawn"
    assert expected[possible].min() >= 5, "too few for a chi-squared test"
    return float(((seen - expected) ** 2 / expected)[possible].sum()), int(possible.sum()) - 1


def draws(logits, seed):
    return sample(logits.expand(DRAWS, -1), torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("keep", FILTERS.values(), ids=FILTERS)
def test_frequencies(keep, seed):
    logits = keep(torch.linspace(1, -1.5, 20).roll(7) if keep is FILTERS["all"]
                  else torch.linspace(1, -1, 8).roll(3))
    value, freedom = chi_squared(draws(logits, seed), softmax(logits.double()))
    assert value < CRITICAL[freedom], (value, freedom)


def test_a_slightly_wrong_distribution_is_seen():
    """The test has teeth: a temperature of 1.2 in place of 1 is far beyond the critical value."""
    logits = torch.linspace(1, -1, 8)
    value, freedom = chi_squared(draws(logits / 1.2, 0), softmax(logits.double()))
    assert value > 2 * CRITICAL[freedom]


def test_rows_are_drawn_independently():
    """Pairs of neighbouring rows fill the square evenly: 16 kinds of pairs, 5,000 of them."""
    ids = sample(torch.zeros(DRAWS, 4), torch.Generator().manual_seed(0)).view(-1, 2)
    seen = torch.bincount(4 * ids[:, 0] + ids[:, 1], minlength=16)
    assert float(((seen - DRAWS / 32) ** 2 / (DRAWS / 32)).sum()) < 56.49       # 15 degrees
