"""What chapter 27's experiments recorded: each at its own best rate, and a prediction that is older than its run."""

import json
import subprocess

import pytest
import torch

from grader.course import chapters
from solutions.ex13_transformer import count_parameters
from solutions.ex27_scaling import ScalingLaw, hidden_matrices, training_flops

pytestmark = pytest.mark.usefixtures("one_thread")
EVIDENCE = chapters.ROOT / "assets" / "evidence"


def mean_by(rows: list[dict], names: tuple[str, ...], column: str, seeds) -> dict[tuple, float]:
    """{these columns: the mean of another over these seeds}, where all of them are there."""
    found: dict[tuple, dict[int, float]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), {})[int(row["seed"])] = float(row[column])
    return {key: sum(them[seed] for seed in seeds) / len(seeds)
            for key, them in found.items() if set(seeds) <= them.keys()}


# -- AdamW and Muon

def test_each_optimizer_is_trained_from_all_seeds_at_its_own_best_rate(evidence, recorded):
    """The best rate has a worse one on either side."""
    script, rows = evidence("27_muon"), recorded("27_muon_scaled")
    tried = mean_by(rows, ("optimizer", "rate"), "bits per byte", [script.TUNED_ON])
    trained = mean_by(rows, ("optimizer", "rate"), "bits per byte", script.SEEDS)
    for optimizer, rates in script.RATES.items():
        best = script.best(optimizer)
        assert rates[0] < best < rates[-1] and (optimizer, str(best)) in trained
        assert tried[optimizer, str(best)] == min(tried[optimizer, str(rate)] for rate in rates)


def test_a_run_of_each_optimizer_starts_as_recorded(evidence, recorded):
    """The text differs between Pythons: within 2 %."""
    script, rows = evidence("27_muon"), recorded("27_muon_scaled")
    adamw_rate = script.best("AdamW")
    for optimizer in ("AdamW", "Muon", "Muon, 0 steps"):
        rate = script.best(optimizer)
        row = next(row for row in rows if (row["optimizer"], row["rate"], row["seed"]) == (optimizer, str(rate), "0"))
        _, losses = script.train(optimizer, rate, 0, adamw_rate, stop=20)
        assert sum(losses) / 20 == pytest.approx(float(row["losses"].split()[0]), rel=0.02)


def test_adamw_with_two_rates_is_trained_at_its_best_pair(evidence, recorded):
    script, rows = evidence("27_muon"), recorded("27_muon_two")
    tried = mean_by(rows, ("matrices", "rest"), "bits per byte", [script.TUNED_ON])
    assert tried.keys() == {(str(matrices), str(rest)) for matrices in script.MATRICES for rest in script.REST}
    pair = script.best_pair()
    assert pair[0] == script.MATRICES[1] and script.REST[0] < pair[1] < script.REST[-1]
    assert tuple(map(str, pair)) in mean_by(rows, ("matrices", "rest"), "bits per byte", script.SEEDS)
    one = next(row for row in recorded("27_muon_scaled") if (row["optimizer"], row["rate"]) == ("AdamW", "0.004"))
    same = next(row for row in rows if (row["matrices"], row["rest"]) == ("0.004", "0.004"))
    assert float(same["bits per byte"]) == pytest.approx(float(one["bits per byte"]), abs=0.002)


def test_the_piece_held_out_is_easier_than_the_rest(recorded):
    texts = {row["text"]: float(row["bits per byte"]) for row in recorded("27_muon_texts")}
    assert texts["held out"] == min(texts.values()) and len(texts) == 7
    one = next(row for row in recorded("27_muon_scaled")
               if (row["optimizer"], row["rate"], row["seed"]) == ("AdamW", "0.004", "0"))
    assert float(one["bits per byte"]) == pytest.approx(texts["held out"], abs=0.002)


def test_a_step_without_newton_schulz_has_the_size_of_one_with_all_strengths_1(evidence):
    script = evidence("27_muon")
    config = script.scaling.config(script.WIDTH, script.LAYERS, tied=False)
    moved = {}
    for name in ("Muon", "Muon, 0 steps"):
        model = script.scaling.new(config, 0)
        hidden = hidden_matrices(model)
        for p in model.parameters():
            p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel()))
        before = {name: p.detach().clone() for name, p in hidden.items()}
        script.optimizer_of(name, model, 0.01, 0.004).step()
        moved[name] = {at: (p.detach() - (1 - 0.01 * script.DECAY) * before[at]).norm() for at, p in hidden.items()}
    for at, size in moved["Muon, 0 steps"].items():
        rows_, columns = hidden[at].shape
        assert size == pytest.approx(0.01 * 0.2 * (max(rows_, columns) * min(rows_, columns)) ** 0.5, rel=1e-3)
        assert 0.6 * size < moved["Muon"][at] < 1.2 * size


# -- widths

def test_both_parametrizations_start_from_one_model(evidence, recorded):
    """At the width of BASE they are the same, so their rows agree; the rest has all its rates and seeds."""
    script, rows = evidence("27_widths"), recorded("27_widths")
    found = {(row["parametrization"], int(row["width"]), float(row["rate"]), int(row["seed"])):
             float(row["bits per byte"]) for row in rows}
    assert found.keys() == {(name, width, rate, seed) for name in script.PARAMETRIZATIONS for width in script.WIDTHS
                            for rate in script.RATES for seed in range(script.SEEDS[width])} | {
        (name, width, rate, seed) for name, of in script.OTHERS.items() for width, seeds in of.items()
        for rate in script.FEW_RATES for seed in range(seeds)}
    for rate in script.RATES:
        for seed in range(script.SEEDS[script.BASE]):
            assert found["standard", script.BASE, rate, seed] == pytest.approx(found["muP", script.BASE, rate, seed],
                                                                               abs=0.01)


def test_the_widest_model_is_trained_at_its_own_rate_and_at_the_small_one_s(evidence, recorded):
    script = evidence("27_widths")
    trained = mean_by(recorded("27_transfer"), ("parametrization", "width", "rate"), "bits per byte", script.FINAL)
    for name in (*script.PARAMETRIZATIONS, *script.OTHERS):
        for width in (script.BASE, script.WIDTHS[-1]):
            assert (name, str(script.WIDTHS[-1]), str(script.best(name, width))) in trained


def test_a_run_of_the_smallest_width_comes_out_as_recorded(evidence, recorded):
    """Whole, held-out text and all: the text differs between Pythons, so within 3 %."""
    script, (init, output) = evidence("27_widths"), evidence("27_widths").constants()
    row = next(row for row in recorded("27_widths") if list(row.values())[:4] == ["muP", "32", "0.008", "0"])
    assert float(script.bits("muP", 32, 0.008, 0, init, output)) == pytest.approx(float(row["bits per byte"]), rel=0.03)


def test_the_fan_in_start_has_one_size_of_output_at_every_width(evidence):
    """Rows of the blocks' matrices and of the unembedding have one norm; at BASE it is the standard start."""
    script, norms = evidence("27_widths"), {}
    for width in script.WIDTHS:
        model, _ = script.train("fan-in", width, 0.001, 0, 1, 16, stop=0)
        starts = {**hidden_matrices(model), "unembedding": model.unembedding.weight}
        norms[width] = {name: p.detach().norm(dim=1).mean().item() for name, p in starts.items()}
        assert model.unembedding.scale == 16
    for width in script.WIDTHS[1:]:
        assert norms[width] == pytest.approx(norms[script.BASE], rel=0.05)


def test_smaller_logits_alone_are_those_of_mup(evidence):
    script, width = evidence("27_widths"), evidence("27_widths").WIDTHS[-1]
    scales = [script.train(name, width, 0.001, 0, 1, 16, stop=0)[0].unembedding.scale for name in ("logits", "muP")]
    assert scales[0] == scales[1] == 16 * script.BASE / width


# -- the ladder

def test_each_rung_is_trained_at_its_own_best_rate(evidence, recorded):
    script, rows = evidence("27_ladder"), recorded("27_ladder")
    for width in script.WIDTHS:
        for d in script.TOKENS:
            of = [row for row in rows if (row["width"], row["d"]) == (str(width), str(d))]
            tried = {float(row["rate"]): float(row["loss"]) for row in of if int(row["seed"]) == script.TUNED_ON}
            [rate] = {float(row["rate"]) for row in of if int(row["seed"]) in script.SEEDS}
            at = script.RATES.index(rate)
            assert tried[rate] == min(tried[near] for near in script.RATES[max(at - 1, 0):at + 2])
            assert {int(row["n"]) for row in of} == {count_parameters(script.config_of(width))}
            assert sorted(int(row["seed"]) for row in of if int(row["seed"]) in script.SEEDS) == [*script.SEEDS]


def test_the_prediction_is_what_the_ladder_gives(evidence):
    """Anew from the table: the law, the rate, and what is predicted, for more than 5 times the compute of any rung."""
    script, said = evidence("27_ladder"), json.loads((EVIDENCE / "27_prediction.json").read_text())
    anew = script.fit(script.pairs())
    assert anew.loss(said["n"], said["d"]) == pytest.approx(said["loss"], rel=1e-3)
    assert ScalingLaw(**said["law"]).loss(said["n"], said["d"]) == pytest.approx(said["loss"])
    assert script.rate_for(script.pairs(), said["n"], said["d"]) == said["rate"]
    most = max(training_flops(*pair) for pair in script.pairs())
    assert training_flops(said["n"], said["d"]) > 5 * most and said["low"] < said["loss"] < said["high"]


def test_the_large_run_is_the_one_that_was_predicted(evidence, recorded):
    script, said = evidence("27_ladder"), json.loads((EVIDENCE / "27_prediction.json").read_text())
    rows = recorded("27_largest")
    of = [row for row in rows if int(row["seed"]) in script.SEEDS]
    assert len(of) == len(script.SEEDS)
    for row in of:
        assert (int(row["n"]), int(row["d"]), float(row["rate"])) == (said["n"], said["d"], said["rate"])
    assert said["low"] < sum(float(row["loss"]) for row in of) / len(of) < said["high"]


def test_the_prediction_was_committed_before_the_large_run():
    """As far as the history reaches: an archive of the course has none."""
    def commits(name):
        said = subprocess.run(["git", "log", "--format=%H", "--", f"assets/evidence/{name}"], cwd=chapters.ROOT,
                              capture_output=True, text=True)
        return said.stdout.split() if said.returncode == 0 else []
    prediction, largest = commits("27_prediction.json"), commits("27_largest.csv")
    if not prediction or not largest or prediction[-1] == largest[-1]:
        pytest.skip("no history of these files")
    assert len(prediction) == 1, "a prediction is not written anew"
    older = subprocess.run(["git", "merge-base", "--is-ancestor", prediction[-1], largest[-1]], cwd=chapters.ROOT)
    assert older.returncode == 0
