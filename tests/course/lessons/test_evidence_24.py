"""What lesson 24 quotes: all runs are recorded, one comes out again, and the draft is what its script trains."""

import csv
import json

import pytest
import torch

from assets.draft import train as draft
from given.torch_kernels import use_torch_kernels
from solutions.ex13_transformer import count_parameters
from solutions.ex16_pretrained import config_from_hf, load_pretrained, load_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def script(evidence):
    return evidence("24_speculation")


@pytest.fixture(scope="module")
def rows(recorded):
    return recorded("24_speculation")


def test_every_run_is_recorded(script, rows):
    assert [(float(row["temperature"]), *(int(row[name]) for name in ("k", "seed", "draw"))) for row in rows
            ] == script.SETTINGS
    for row in rows:
        passes, accepted, judged, drafted = (int(row[name]) for name in ("passes", "accepted", "judged", "drafted"))
        assert int(row["tokens"]) == script.NEW == passes + accepted
        assert accepted <= judged <= drafted <= passes * int(row["k"])


@pytest.mark.parametrize("temperature, k, seed", [(0, 2, 1), (1, 4, 3)])
def test_a_run_comes_out_again(script, rows, temperature, k, seed):
    setting = (str(temperature), str(k), str(seed), "0")
    row = next(row for row in rows if tuple(row.values())[:4] == setting)
    again = dict(zip(script.COLUMNS, script.measure(temperature, k, seed, 0), strict=True))
    # another Python has another text, and another processor's rounding can choose another token
    assert int(again["passes"]) == pytest.approx(int(row["passes"]), rel=0.15)
    assert float(again["rate"]) == pytest.approx(float(row["rate"]), abs=0.05)


def test_the_draft_is_the_one_that_its_script_makes():
    config = json.loads((draft.HERE / "config.json").read_text())
    assert count_parameters(config_from_hf(config)) == count_parameters(draft.DRAFT)
    assert (draft.HERE / "model.safetensors").stat().st_size <= 2e6
    with (draft.HERE / "training.csv").open() as file:
        last = list(csv.DictReader(file))[-1]
    assert int(last["step"]) == draft.STEPS
    target, small = (use_torch_kernels(load_pretrained(folder, dtype=torch.float32)).eval()
                     for folder in (draft.TARGET, draft.HERE))
    ids = load_tokenizer(draft.TARGET).encode("".join(text + draft.END for text in draft.held_out_texts()))
    shared, _ = draft.agreement(target, small, torch.tensor(ids))
    assert shared == pytest.approx(float(last["held-out sum of min(p, q)"]), abs=0.03)


@pytest.fixture(scope="module")
def ratios(evidence):
    return evidence("24_ratios")


def test_every_ratio_is_recorded(ratios, recorded):
    rows = recorded("24_ratios")
    assert [(row["text"], int(row["seed"]), int(row["draw"]), row["draft"], int(row["k"])) for row in rows
            ] == [(*setting, draft, k) for setting in ratios.SETTINGS for draft in ratios.DRAFTS for k in ratios.KS]
    for row in rows:
        assert int(row["passes"]) + int(row["accepted"]) == ratios.NEW
        assert float(row["speedup"]) > 0


def test_a_round_is_taken_apart(ratios, recorded, monkeypatch):
    rows = recorded("24_round")
    assert [(int(row["seed"]), int(row["k"])) for row in rows
            ] == [(seed, k) for seed in ratios.SEEDS for k in (0, *ratios.KS)]
    monkeypatch.setattr(ratios, "TURNS", 1)
    monkeypatch.setattr(ratios, "KS", (2,))
    for row in [*rows, *(dict(zip(ratios.ROUND_COLUMNS, row, strict=True)) for row in ratios.parts(0))]:
        assert min(float(row["v"]), float(row["free"])) > 0 and float(row["lookup"]) >= 0   # how long is the machine's
        assert (float(row["c"]) > 0) == (row["k"] != "0")


def test_passes_come_out_again(ratios, recorded, monkeypatch):
    monkeypatch.setattr(ratios, "TURNS", 1)
    monkeypatch.setattr(ratios, "DRAFTS", ("lookup",))
    monkeypatch.setattr(ratios, "KS", (2,))
    row = next(row for row in recorded("24_ratios")
               if tuple(row.values())[:5] == ("repeats", "0", "0", "lookup", "2"))
    [again] = ratios.measure("repeats", 0, 0)
    assert int(dict(zip(ratios.COLUMNS, again, strict=True))["passes"]) == pytest.approx(int(row["passes"]), rel=0.15)


def test_larger_targets_are_recorded(ratios, recorded):
    rows, passes = recorded("24_large"), {}
    assert [tuple(int(row[name]) for name in ("blocks", "seed", "draw", "k")) for row in rows
            ] == [(*setting, k) for setting in ratios.LARGE_SETTINGS for k in ratios.KS]
    for row in rows:        # whatever it weighs, a target says the same
        same = passes.setdefault((row["seed"], row["draw"], row["k"]), row["passes"])
        assert row["passes"] == same and int(row["passes"]) + int(row["accepted"]) == ratios.NEW
    assert [(int(row["blocks"]), int(row["seed"]), int(row["k"])) for row in recorded("24_large_round")
            ] == [(blocks, seed, k) for seed in ratios.SEEDS for blocks in ratios.BLOCKS for k in (0, *ratios.KS)]


def test_a_larger_target_says_the_same(ratios, recorded, monkeypatch):
    monkeypatch.setattr(ratios, "KS", (2,))
    monkeypatch.setattr(ratios, "TURNS", 1)
    small, large = ratios.models()["target"], ratios.target_of(18)
    assert count_parameters(large.config) == sum(weight.numel() for weight in large.parameters())
    ids = torch.tensor([ratios.prompt("mixed at 1", 1)])
    with torch.no_grad():
        assert torch.equal(large(ids), small(ids))
    row = next(row for row in recorded("24_large") if tuple(row.values())[:4] == ("18", "1", "0", "2"))
    [again] = ratios.large(18, 1, 0)
    assert int(dict(zip(ratios.LARGE_COLUMNS, again, strict=True))["passes"]) == pytest.approx(int(row["passes"]),
                                                                                              rel=0.15)
    kept = [row["k"] for row in recorded("24_large_round") if (row["blocks"], row["seed"]) == ("18", "1")]
    for blocks, seed, k, v, c, *_ in ratios.large_parts(18, 1):     # how long it takes is the machine's
        assert (blocks, seed) == ("18", "1") and k in kept
        assert float(v) > 0 and (float(c) > 0) == (k != "0")


def test_the_models_distribution_was_asked(evidence, recorded):
    script, rows = evidence("24_distribution"), recorded("24_distribution")
    assert [(row["draft"], int(row["seed"])) for row in rows] == script.SETTINGS
    assert sum(script.chances().values()) == pytest.approx(1)
    for row in rows:
        assert row["draws"] == str(script.DRAWS)
        # of 33 degrees of freedom, above 70 is seen once in 5,000
        assert (float(row["chi squared"]) > 70) == (row["draft"] not in ("model", "lookup"))
