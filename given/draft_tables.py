"""What the experiments of lesson 24 wrote under assets/evidence, and how long a run takes by the times of its parts."""

from collections.abc import Sequence
from statistics import mean, median, stdev

from given.evidence import Rows

KS, TEMPERATURES, SEEDS = (1, 2, 4, 8), ("0", "0.5", "1"), range(5)
Cost = dict[int, dict[str, float]]


def column(name: str, rows: Rows, **where: object) -> list[float]:
    """The numbers of a column, of those rows that hold what where says."""
    return [float(row[name]) for row in rows if all(row[key] == str(value) for key, value in where.items())]


def by_text(name: str, rows: Rows, **where: object) -> list[float]:
    """A number for each of five texts: the mean over its draws."""
    return [mean(column(name, rows, seed=seed, **where)) for seed in SEEDS]


def error(values: Sequence[float]) -> float:
    """The standard error of the mean."""
    return stdev(values) / len(values) ** 0.5


def shown(values: Sequence[float], sign: str = "") -> str:
    """The mean and its standard error."""
    return f"{mean(values):{sign}.2f} ± {error(values):.2f}"


def seen(runs: Rows, temperature: str, k: int) -> tuple[list[float], list[float], list[float]]:
    """α, the share of the judged guesses that was kept, and tokens a pass: each a number a prompt."""
    share, gives = [], []
    for seed in SEEDS:
        tokens, passes, accepted, judged = (
            sum(column(name, runs, temperature=temperature, k=k, seed=seed))
            for name in ("tokens", "passes", "accepted", "judged"))
        share.append(accepted / judged)
        gives.append(tokens / passes)
    return by_text("rate", runs, temperature=temperature, k=k), share, gives


def costs(rows: Rows, **where: object) -> Cost:
    """{k: the times of a round with k guesses}: medians over the texts. free: v + o."""
    return {k: {name: median(column(name, rows, k=k, **where)) for name in ("v", "c", "free", "lookup", "prompt")}
            for k in (0, *KS)}


def predict(new: int, passes: int, drafted: int, k: int, draft: str, cost: Cost) -> float:
    """How many times as fast new tokens come, by the times of the parts. draft: "model" or "lookup"."""
    guesses = cost[k]["lookup"] if draft == "lookup" else k * cost[k]["c"]
    full = drafted / k              # rounds with k guesses; the others have none
    took = full * (cost[k]["free"] + guesses) + (passes - full) * cost[0]["free"]
    start = cost[0]["prompt"]       # the first pass reads the prompt, too
    return (new - 1 + start) / (start - 1 + took)


def to_the_end(rate: float, k: int, new: int) -> float:
    """Tokens a pass of a text of so many new ones, if each guess is kept at this rate: its last passes have no room
    for k guesses.
    """
    passes = [0.0]                      # that so many tokens take
    for left in range(1, new + 1):
        room = min(k, left - 1)
        kept = [rate ** count * (1 - rate) for count in range(room)] + [rate ** room]
        passes.append(1 + sum(chance * passes[left - 1 - count] for count, chance in enumerate(kept)))
    return new / passes[new]


def predicted(rows: Rows, cost: Cost, new: int = 64) -> Rows:
    """The rows with two columns more: tokens a pass, and the speedup that predict gives for the run."""
    more = []
    for row in rows:
        passes, drafted, k = (int(row[name]) for name in ("passes", "drafted", "k"))
        says = predict(new, passes, drafted, k, row.get("draft", "model"), cost)
        more.append(row | {"tokens a pass": str(new / passes), "predicted": str(says)})
    return more


def best(rows: Rows, draft: str, texts: Sequence[str]) -> str:
    """Of each kind of text: the k whose mean speedup over the five texts is the largest, and this speedup."""
    words = []
    for text in texts:
        all_ = {k: by_text("speedup", rows, text=text, draft=draft, k=k) for k in KS}
        k = max(all_, key=lambda k: mean(all_[k]))
        words.append(f"\n  {text:>10}  k = {k}  {shown(all_[k])}")
    return "".join(words)
