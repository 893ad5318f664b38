"""Lesson 12 quotes a table of training runs; one of them is made again here and found in it."""

import csv
import runpy

import torch

from grader.course import chapters

SCRIPT = chapters.ROOT / "assets" / "evidence" / "12_pre_post.py"


def test_a_seed_of_the_rhyme_is_in_the_table():
    evidence = runpy.run_path(str(SCRIPT))
    with evidence["TABLE"].open() as file:
        header, *rows = csv.reader(file)
    assert header == evidence["COLUMNS"]
    assert [row[:3] for row in rows] == [[kind, str(layers), str(seed)] for kind, layers in evidence["SETTINGS"]
                                         for seed in evidence["SEEDS"]]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    again = evidence["measure"]("post", 2, 0)
    torch.set_num_threads(threads)
    [there] = [row for row in rows if row[:3] == again[:3]]
    ours, theirs = (torch.tensor([float(loss) for loss in row[-1].split()]) for row in (again, there))
    torch.testing.assert_close(ours[:5], theirs[:5], rtol=0.01, atol=0)
    torch.testing.assert_close(ours[-10:].mean(), theirs[-10:].mean(), rtol=0.1, atol=0)   # rounding grows on the way
