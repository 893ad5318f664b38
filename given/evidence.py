"""Reads the tables that the experiments under assets/evidence have written."""

import csv
from collections.abc import Mapping
from pathlib import Path

EVIDENCE = Path(__file__).resolve().parent.parent / "assets" / "evidence"
Rows = list[dict[str, str]]


def read(name: str, names: Mapping[str, str] | None = None) -> Rows:
    """The rows of a table; names: what a contestant is called on the page, by (part of) its name in the file."""
    with (EVIDENCE / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        first = next(iter(row))
        for theirs, ours in (names or {}).items():
            row[first] = row[first].replace(theirs, ours)
    return rows
