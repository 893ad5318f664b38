"""Lesson 19 quotes a table of losses on five held-out texts; two of its settings are measured again and found in it."""

import csv
import importlib
import json
from statistics import mean

import pytest

from assets.evidence import table
from assets.pocket.text import LESSONS, shared
from solutions.ex16_pretrained import load_tokenizer

EVIDENCE = importlib.import_module("assets.evidence.19_quantization")
pytestmark = pytest.mark.usefixtures("one_thread")


def rows():
    with EVIDENCE.FILE.open() as file:
        return list(csv.DictReader(file))


def lost(bits: int, method: str) -> dict[str, float]:
    """For each text, the mean over the draws of the calibration text."""
    def of(bits, method, text):
        return mean(float(row["bits per byte"]) for row in rows()
                    if (int(row["bits"]), row["method"], row["text"]) == (bits, method, text))
    return {text: of(bits, method, text) - of(16, "plain", text) for text in EVIDENCE.HELD_OUT}


def test_the_table_is_whole():
    assert {row["model"] for row in rows()} == {table.mark(EVIDENCE.POCKET / "model.safetensors")}, \
        "the pocket model is another one since: make evidence"
    assert [(int(row["bits"]), row["method"], int(row["draw"]), row["text"]) for row in rows()] == [
        (*setting, text) for setting in EVIDENCE.SETTINGS for text in EVIDENCE.HELD_OUT]


@pytest.mark.parametrize("setting", [(16, "plain", 0), (4, "plain", 0)], ids=str)
def test_settings_are_in_the_table(setting):
    tokenizer = load_tokenizer(EVIDENCE.POCKET)
    found = EVIDENCE.measure(EVIDENCE.quantized(tokenizer, *setting), tokenizer)
    for row in rows():
        if (int(row["bits"]), row["method"], int(row["draw"])) == setting:
            assert found[row["text"]] == pytest.approx(float(row["bits per byte"]), abs=5e-4)


@pytest.mark.parametrize("bits", [4, 3, 2])
def test_gptq_loses_less_than_half_of_what_plain_rounding_loses(bits):
    plain, better = lost(bits, "plain"), lost(bits, "GPTQ")
    assert mean(better.values()) < mean(plain.values()) / 2
    assert all(better[text] < plain[text] for text in plain)


def test_texts_are_held_out_and_calibration_is_not_among_them():
    texts = json.loads(EVIDENCE.TEXTS.read_text("utf-8"))
    assert list(texts) == EVIDENCE.HELD_OUT and LESSONS <= set(texts)
    tokenizer = load_tokenizer(EVIDENCE.POCKET)
    known = [tokenizer.decode(window) for draw in EVIDENCE.DRAWS
             for window in EVIDENCE.calibration(tokenizer, draw).tolist()]
    assert shared(known, list(texts.values())) == 0
