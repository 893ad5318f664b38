"""Lesson 15 quotes a table of texts that the pocket model wrote; three rows are made again here and found in it."""

import csv
import hashlib
import runpy

import torch

from grader.course import chapters

SCRIPT = chapters.ROOT / "assets" / "evidence" / "15_settings.py"


def test_a_seed_of_the_settings_is_in_the_table():
    evidence = runpy.run_path(str(SCRIPT))
    with evidence["FILE"].open() as file:
        rows = list(csv.DictReader(file))
    weights = (evidence["POCKET"] / "model.safetensors").read_bytes()
    assert {row["model"] for row in rows} == {hashlib.sha256(weights).hexdigest()[:8]}, \
        "the pocket model is another one since: make evidence"
    names = [evidence["PASSAGES"], *map(evidence["name_of"], evidence["SETTINGS"])]
    assert sorted((row["setting"], row["seed"]) for row in rows) == sorted(
        (name, str(seed)) for name in names for seed in range(5))
    model = evidence["load_pretrained"](evidence["POCKET"], dtype=torch.float32)
    tokenizer = evidence["load_tokenizer"](evidence["POCKET"])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for setting in (None, {"temperature": 0}, {"top_k": 10}):
        name = evidence["PASSAGES"] if setting is None else evidence["name_of"](setting)
        [row] = [row for row in rows if (row["setting"], row["seed"]) == (name, "0")]
        again = torch.tensor(evidence["row_of"](model, tokenizer, setting, 0))
        there = torch.tensor([float(row[column]) for column in evidence["COLUMNS"][3:]])
        # rounding may change a token of a text, and what follows it
        torch.testing.assert_close(again, there, rtol=0.01 if setting is None else 0.2, atol=0.03)
    torch.set_num_threads(threads)
