"""What lesson 08 quotes: one seed of each recorded experiment is run again, as far as a test may take."""


import pytest

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def script(evidence):
    return evidence("08_networks")


@pytest.fixture(scope="module")
def texts(script):
    return script.text_windows()


def test_budgets(script, texts, recorded, monkeypatch):
    rows = recorded("08_budgets")
    assert len({(row["network"], row["rate"], row["seed"]) for row in rows}) == len(rows) == 36
    row = next(row for row in rows if (row["network"], row["rate"], row["seed"]) == ("SwiGLU", "0.01", "0"))
    monkeypatch.setattr(script, "STOPS", (100,))
    loss, *_ = script.budgets("SwiGLU", "0.01", 0, *texts)
    assert float(loss) == pytest.approx(float(row["loss 100"]), rel=0.03)     # the text differs between Pythons


def test_dead_units(script, texts, recorded):
    rows = recorded("08_dead")
    assert len({(row["activation"], row["rate"], row["seed"]) for row in rows}) == len(rows) == 45
    assert all(row["slope 0"] == "0" for row in rows if row["activation"] != "relu" or row["rate"] == "0.003")
    there = next(int(row["slope 0"]) for row in rows
                 if (row["activation"], row["rate"], row["seed"]) == ("relu", "0.05", "0"))
    dead = int(script.dead("relu", 0.05, 0, *texts)[0])
    assert dead == pytest.approx(there, abs=50)        # rounding grows at a rate this high
    assert script.dead("gelu", 0.05, 0, *texts)[0] == "0"


def test_dropout(script, texts, recorded, monkeypatch):
    """In each seed dropout is better on other text, each at its best rate and stopped where it is best."""
    rows = recorded("08_dropout")
    assert len({(row["p"], row["rate"], row["seed"]) for row in rows}) == len(rows) == 18
    rates = [(row["p"], row["rate"]) for row in rows]
    best = {(row["p"], row["seed"]): min(float(row[f"held out {step}"]) for step in script.DROPOUT_STOPS)
            for row in rows if rates.count((row["p"], row["rate"])) == 5}
    assert len(best) == 10
    for seed in "01234":
        assert best["0.5", seed] < best["0.0", seed]
    monkeypatch.setattr(script, "DROPOUT_STOPS", (50,))
    there = next(row for row in rows if (row["p"], row["rate"], row["seed"]) == ("0.5", "0.001", "0"))
    _, loss = script.dropout("0.5", "0.001", 0, *texts)
    assert float(loss) == pytest.approx(float(there["held out 50"]), rel=0.03)
