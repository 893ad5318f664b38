"""The pocket model's text and training: what is held out stays out, what repeats repeats."""

import csv
import re

import numpy as np
import pytest
import torch

from assets.pocket.card import measured_induction, n_gram_bits, xz_bits
from assets.pocket.text import PASSAGE, hashes, plain, shared, unseen, without
from assets.pocket.train import FALL, HERE, IGNORED, STAGES, STEPS, WARMUP, repeating_batch, stage
from given.torch_kernels import use_torch_kernels
from solutions.ex16_pretrained import load_pretrained

LONG = "It is an error to call this method when the queue is empty."


def test_equal_windows_have_equal_hashes_and_others_have_not():
    row = np.random.RandomState(0).randint(97, 100, 500).astype(np.uint8)
    row[300:400] = row[100:200]
    windows = [row[i:i + PASSAGE].tobytes() for i in range(len(row) - PASSAGE + 1)]
    found = hashes(row)
    assert len(found) == len(windows)
    same = [found[i] == found[j] for i in range(len(windows)) for j in range(i)]
    assert same == [windows[i] == windows[j] for i in range(len(windows)) for j in range(i)]
    assert sum(same) >= 51


def test_no_line_that_shares_a_passage_is_left():
    texts = [f"One line.\n{LONG.upper()}\nAnother line.", "Nothing of it.",
             "It is an error to call\n  this method when the queue is empty: so do not."]
    assert shared(texts, [LONG]) > 0
    passages = np.unique(hashes(np.frombuffer(LONG.lower().encode(), np.uint8)))
    kept = list(without(texts, passages))
    assert kept == ["One line.\nAnother line.", "Nothing of it.", ""]
    assert shared(kept, [LONG]) == 0


def test_a_paragraph_stands_once():
    seen = set()
    assert list(unseen([f"{LONG}\n\nReturn a list of names.", f"{LONG}\n\nA second text, of another method."],
                       seen)) == [f"{LONG}\n\nReturn a list of names."]
    assert list(unseen([LONG], seen)) == []


def test_marks_of_restructured_text_go():
    assert plain("See :class:`~decimal.Decimal` and :meth:`the text <x.y>`, ``None``.") == (
        "See decimal.Decimal and the text, None.")
    assert plain(".. note::\n   Beware.") == "   Beware."


def test_stages():
    assert [stage(0), stage(STEPS - 1)] == [list(STAGES[0][1:]), list(STAGES[-1][1:])]
    assert WARMUP + FALL < STEPS


@pytest.mark.parametrize("share", [0, 1])
def test_repeating_batch(share):
    tokens = torch.arange(4000, dtype=torch.int16)
    inputs, targets = repeating_batch(tokens, 8, 64, share, torch.Generator().manual_seed(0))
    assert torch.equal(inputs[:, 1:][targets[:, :-1] != IGNORED], targets[:, :-1][targets[:, :-1] != IGNORED])
    for row, (x, y) in enumerate(zip(inputs, targets)):
        kinds = len(x.unique())
        if not share:
            assert kinds == 64 and (y != IGNORED).all()
            continue
        assert 4 <= kinds <= 32 and torch.equal(x[kinds:], x[:-kinds])
        first = y[:kinds - 1]                    # the last of the first copy is followed by a second copy
        assert (first == IGNORED).all() if row % 2 == 0 else (first == x[1:kinds]).all()
        assert (y[kinds - 1:] != IGNORED).all()


def test_baselines():
    """Of text that repeats, all know all; of bytes nobody could guess, nothing."""
    known = b"abcdefgh" * 2000
    noise = np.random.RandomState(0).bytes(4000)
    assert max(n_gram_bits(known, known[:4000], 5)[1:]) < 0.01 and xz_bits(known, known[:4000]) < 0.2
    assert min(n_gram_bits(known, noise, 5)) > 7.9 and xz_bits(known, noise) > 7.9


def test_n_grams_are_mixed_as_by_hand():
    """Counted are b, a and c behind the first a: 3 kinds in 3 bytes; after an a came b and c, once each."""
    one = (1 + 3 / 256) / 6
    assert n_gram_bits(b"abac", b"ac", 1) == pytest.approx([-np.log2(one), -np.log2((1 + 2 * one) / 4)])
    assert n_gram_bits(b"abac", b"ba", 1) == pytest.approx([-np.log2(one), -np.log2((1 + one) / 2)])
    assert n_gram_bits(b"abac", b"ca", 1) == pytest.approx([-np.log2(one)] * 2)     # c was the last


def test_what_the_card_says_of_induction():
    card = " ".join((HERE / "README.md").read_text("utf-8").split())
    found = measured_induction(use_torch_kernels(load_pretrained(HERE, dtype=torch.float32)))
    assert f"layer {found['layer']}, head {found['head']}," in card
    said = [tuple(map(float, pair)) for pair in re.findall(r"(\d+\.\d+) ± (\d+\.\d+)", card)]
    measured = [(found[name], found[f"{name}_sd"]) for name in ("first", "second", "score")]
    np.testing.assert_allclose(said, measured, atol=0.02)     # rounding differs between machines
    with (HERE / "training.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert int(rows[-1]["step"]) == STEPS
    assert int(rows[-1]["tokens"]) == sum(steps * batch * seq for steps, batch, seq, _ in STAGES)
