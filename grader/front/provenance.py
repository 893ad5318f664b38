"""What verdicts were made with (version, commit, torch, processor), and hashes of files."""

import hashlib
import importlib.metadata
import platform
import subprocess
import tomllib
from pathlib import Path

from grader.course.chapters import ROOT


def made_with() -> dict:
    """Which course, Python, torch and processor these verdicts come from."""
    project = ROOT / "pyproject.toml"
    version = tomllib.loads(project.read_text("utf-8"))["project"]["version"] if project.exists() else None
    commit, changed = _git("rev-parse", "HEAD"), _git("status", "--porcelain")
    return {"version": version, "commit": commit or None, "clean": None if changed is None else not changed,
            "torch": importlib.metadata.version("torch"), "python": platform.python_version(), "cpu": processor()}


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, encoding="utf-8", timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def processor() -> str:
    """Its name: what a time is true of."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def digest(*paths: Path) -> str:
    """A hash of these files' names and bytes; a file that is not there is part of it."""
    total = hashlib.sha256()
    for path in paths:
        total.update(path.name.encode() + b"\0")
        if path.is_file():
            with path.open("rb") as file:
                total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()
