"""Tables of measurements in CSV files: a run that was stopped goes on with the rows that are missing."""

import csv
import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path


def resume(file: Path, columns: Sequence[str], settings: Iterable[tuple], rows_of: Callable, model: str = "") -> None:
    """Measure each setting that has no row in the file, and write the file after each.

    A setting is what the first columns of its rows hold; rows_of(*setting) gives these rows, whole.
    model: where each row begins with the mark of a model, that of the model measured: settings stand behind it, and
    rows of another model are dropped.
    """
    settings, skipped = list(settings), int(bool(model))
    rows = [row for row in read(file) if not model or row[0] == model]
    there = {tuple(row[skipped:skipped + len(settings[0])]) for row in rows}
    for done, setting in enumerate(settings, 1):
        if tuple(map(str, setting)) not in there:
            rows += rows_of(*setting)
            with file.open("w", newline="") as out:
                csv.writer(out, lineterminator="\n").writerows([columns, *rows])
        print(f"\r{file.stem}: {done} of {len(settings)}", end="", flush=True)
    print()


def read(file: Path) -> list[list[str]]:
    """The rows below the header; none where there is no file yet."""
    if not file.exists():
        return []
    with file.open(newline="") as table:
        return list(csv.reader(table))[1:]


def mean_loss(file: Path, columns: Sequence[str], name: str, rate: float, seeds: Sequence[int], measure: Callable,
              column: int) -> float:
    """The mean of a column over these seeds: measured, by measure(name, rate, seed), or read where it has been."""
    resume(file, columns, [(name, rate, seed) for seed in seeds], lambda *setting: [measure(*setting)])
    found = {tuple(row[:3]): float(row[column]) for row in read(file)}
    return sum(found[name, str(rate), str(seed)] for seed in seeds) / len(seeds)


def downhill(values: Sequence[float], start: float, loss: Callable[[float], float]) -> float:
    """The value that is better than its neighbours, found step by step from a start."""
    at = values.index(start)
    while True:
        near = range(max(at - 1, 0), min(at + 2, len(values)))
        best = min(near, key=lambda n: loss(values[n]))
        if best == at:
            return values[at]
        at = best


def mark(file: Path) -> str:
    """What tells a file from its later versions: eight hex digits of its SHA-256."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:8]
