"""Pages that are handed back."""

from pathlib import Path


def write(out: Path, cells: list[dict], manifest: dict) -> None:
    """Write feedback/NAME.html and class.html."""
