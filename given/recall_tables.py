"""Prints the tables of lesson 23's experiments (assets/evidence/23_*): a row for each contestant, a number a seed."""

from collections.abc import Iterable, Sequence
from statistics import mean, stdev

from given.evidence import Rows, read

NAMES = {"linear decay": "decayed sum", "linear": "sum", "gated delta fixed": "fixed",      # in the files: on the page
         " from 3": " α₀ 0.95", " from 1": " α₀ 0.73"}


def recall_rows(*tables: str) -> Rows:
    """The rows of tables of recall, with the page's names; each rule that forgets is named with its start."""
    rows = [row for table in tables for row in read(table, NAMES)]
    for row in rows:
        if row["rule"] in ("gated delta", "fixed", "decayed sum"):
            row["rule"] += " α₀ 0.993"
    return rows


def numbers(rows: Rows, column: str) -> list[list[float]]:
    """(rows, numbers): a column that holds several numbers, with blanks between them."""
    return [[float(n) for n in row[column].split()] for row in rows]


def share(row: dict[str, str]) -> float:
    """The share that is right."""
    return 1 - float(row["wrong"])


def spread(of: Sequence[float]) -> str:
    return f"{mean(of):.3f} ± {stdev(of):.3f}"


def each(of: Iterable[float], digits: int = 2) -> str:
    """A number for each seed."""
    return " ".join(f"{n:.{digits}f}" for n in of)


def trained(rows: Rows) -> dict[str, tuple[str, Rows]]:
    """{contestant: (its rate, its rows)} of seeds 0 to 4; seeds from 100 on have chosen the rate."""
    found: dict[str, tuple[str, Rows]] = {}
    for row in rows:
        if int(row["seed"]) < 5:
            found.setdefault(row["rule"], (row["rate"], []))[1].append(row)
    return found


def by_seed(runs: Iterable[tuple[str, Rows]]) -> None:
    """Told once and again, at the most pairs: each a number for each seed; a line for each name."""
    print(f"{'seed by seed':24} {'told once':24}   told again")
    for name, rows in runs:
        shares = [[of[-1] for of in numbers(rows, part)] for part in ("once", "again")]
        print(f"{name:24}", "   ".join(map(each, shares)))


def sweep(rows: Rows, rules: Iterable[str]) -> None:
    """The mean and the lowest of the tuning seeds, each contestant at each rate; a star where it was then trained."""
    rates, chosen = sorted({row["rate"] for row in rows}, key=float), trained(rows)
    print("mean / lowest of three  ", *[f"{rate:>12}" for rate in rates])
    for rule in rules:
        line = f"{rule:24}"
        for rate in rates:
            three = [share(row) for row in rows
                     if (row["rule"], row["rate"]) == (rule, rate) and int(row["seed"]) >= 100]
            star = "*" if rate == chosen[rule][0] else " "
            line += f" {mean(three):6.3f}/{min(three):.2f}{star}" if three else " " * 13
        print(line.rstrip())


def warmed(rows: Rows) -> dict[tuple[str, str], Rows]:
    """{(model, warm-up): its rows}, after a print of seed 100's bits: a line for each of these, a column for a rate."""
    found: dict[tuple[str, str], Rows] = {}
    for row in rows:
        found.setdefault((row["model"], row["warm-up"]), []).append(row)
    rates = sorted({row["rate"] for row in rows}, key=float)
    print("bits per byte, one seed  warm-up", "  ".join(f"{rate:>6}" for rate in rates))
    for (name, warmup), own in found.items():
        bits = {row["rate"]: f"{float(row['bits per byte']):6.2f}" for row in own if row["seed"] == "100"}
        chosen = {row["rate"] for row in own if row["seed"] != "100"}
        line = [bits.get(rate, "").rjust(6) + (" ", "*")[rate in chosen] for rate in rates]
        print(f"{name:24} {warmup:>7} {' '.join(line)}".rstrip())
    return {setting: five for setting, own in found.items() if (five := [row for row in own if row["seed"] != "100"])}
