"""Whose Gradescope's folders are, and when they came: its export says so in a file beside them."""

import os
from datetime import datetime
from pathlib import Path

METADATA = "submission_metadata.yml"
MAX_BYTES = 8 << 20         # bytes of it


def people(path: Path) -> dict[str, dict]:
    """Of each folder the address, ID and name of the first who handed it in ("keys"), and when it came ("at")."""
    import yaml
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        said = yaml.safe_load(file.read(MAX_BYTES))
    found = {}
    for folder, entry in said.items() if isinstance(said, dict) else ():
        persons = _get(entry, "submitters")
        if isinstance(persons, list) and persons:
            keys = [str(_get(persons[0], key) or "") for key in ("email", "sid", "name")]
            found[str(folder)] = {"keys": [key for key in keys if key], "at": _time(_get(entry, "created_at"))}
    return found


def _time(said) -> float | None:
    """A time with its zone, in seconds since 1970; None where it is none, or has no zone."""
    try:
        when = said if isinstance(said, datetime) else datetime.fromisoformat("".join(str(said).rsplit(" ", 1)))
        return when.timestamp() if when.tzinfo else None
    except (ValueError, OverflowError):
        return None


def _get(entry, key: str):
    """A value by its key, which is written as ":name" or as "name"."""
    return entry.get(f":{key}", entry.get(key)) if isinstance(entry, dict) else None
