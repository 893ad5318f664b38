"""Verdicts as data, for programs, and what they were made with: version, commit, torch, processor."""

import hashlib
import importlib.metadata
import json
import linecache
import os
import platform
import subprocess
import tomllib
from pathlib import Path

from grader.chapters import ROOT, SOLUTIONS, Chapter
from grader.checks import Check
from grader.engine import Verdict
from grader.submission import Setting

MAX_TEXT = 10_000           # characters of one text, such as what a submission printed
MAX_FACTS = 20


def of_check(check: Check) -> dict:
    """A check, as data."""
    return {"check": check.name, "file": check.file, "hidden": check.hidden, "of_points": float(check.points),
            "rule": check.rule, "hint": " ".join(check.hint.split())}


def of_verdict(verdict: Verdict) -> dict:
    """A verdict, as data. Nothing of the reference's text is in it, and no text is endless."""
    lines = []
    for frame in verdict.frames:
        if frame.file.parent != SOLUTIONS:
            linecache.checkcache(str(frame.file))
            lines.append({"file": frame.file.name, "line": frame.line, "function": clean(frame.function, 200),
                          "text": clean(linecache.getline(str(frame.file), frame.line).strip(), 300)})
    return {**of_check(verdict.check), "verdict": verdict.word, "points": float(verdict.points),
            "mistake": verdict.mistake, "facts": [clean(fact) for fact in verdict.facts[:MAX_FACTS]],
            "lines": lines, "whole": verdict.whole, "output": clean(verdict.output),
            "seconds": round(verdict.seconds, 3)}


def clean(text: str, most: int = MAX_TEXT) -> str:
    """A stranger's text, cut, with no half of a character that cannot be written."""
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= most else text[:most] + " …"


def made_with() -> dict:
    """Which course, Python, torch and processor these verdicts come from."""
    project = ROOT / "pyproject.toml"
    version = tomllib.loads(project.read_text("utf-8"))["project"]["version"] if project.exists() else None
    commit, changed = _git("rev-parse", "HEAD"), _git("status", "--porcelain")
    return {"version": version, "commit": commit or None, "clean": None if changed is None else not changed,
            "torch": importlib.metadata.version("torch"), "python": platform.python_version(), "cpu": _cpu()}


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
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


def write_whole(path: Path, text: str) -> None:
    """Write a file that appears whole or not at all."""
    draft = path.with_name(path.name + ".part")
    draft.write_text(text, "utf-8")
    os.replace(draft, path)


def write_json(path: Path, results: dict[Chapter, list[Verdict]], setting: Setting, folder: Path) -> None:
    """Every verdict of a run of `check` on the files in a folder, and what it was made with."""
    every = [verdict for verdicts in results.values() for verdict in verdicts]
    content = {
        **made_with(), "device": setting.device, "seed": setting.seed, "timeout": setting.timeout,
        "submission": str(folder), "hashes": {c.stem: digest(folder / f"{c.stem}.py") for c in results},
        "seconds": round(sum(v.seconds for v in every), 3),
        "points": sum(v.points for v in every), "of_points": sum(v.check.points for v in every),
        "chapters": {chapter.stem: {"points": sum(v.points for v in verdicts),
                                    "of_points": sum(v.check.points for v in verdicts),
                                    "passed": sum(v.word == "passed" for v in verdicts),
                                    "checks": len(verdicts)} for chapter, verdicts in results.items()},
        "verdicts": [{"chapter": v.check.chapter, **of_verdict(v)} for v in every]}
    write_whole(path, json.dumps(content, indent=1) + "\n")
