"""A run's folder: what lies there, and who works in it."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from grader.classroom.run.cells import HASHES
from grader.classroom.run.options import manifest


def before(out: Path, resume: bool, term: Path | None) -> dict:
    """The manifest of the run to go on with; {} for a new one. A term has one folder, and always goes on."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is no folder")
    if resume or term and (out / "manifest.json").exists():
        return manifest(out / "manifest.json")
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"--out {out} is not empty: --resume goes on with the run that lies there")
    return {}


@contextlib.contextmanager
def locked(out: Path):
    """No other run works in this folder meanwhile; a ValueError where one does."""
    import fcntl
    out.mkdir(parents=True, exist_ok=True)
    folder = os.open(out, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield out
    except BlockingIOError:
        raise ValueError(f"another run is at work in {out}") from None
    finally:
        os.close(folder)


@contextlib.contextmanager
def copied(out: Path) -> Iterator[Path]:
    """A copy of a run's folder, for a run that must leave no trace."""
    with tempfile.TemporaryDirectory() as place:
        for name in ("cells", "submissions"):
            if (out / name).is_dir():
                shutil.copytree(out / name, Path(place) / name)
        if (out / HASHES).is_file():
            shutil.copyfile(out / HASHES, Path(place) / HASHES)
        yield Path(place)
