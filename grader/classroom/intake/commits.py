"""When a student's files were last committed, where what was handed in is a clone.

No setting, hook or alias of theirs is read: git looks at their objects alone, from an empty repository of ours. The
time of a commit is the word of whoever made it.
"""

import contextlib
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

SECONDS = 5.0               # that asking for all files of one student may take
MAX_REFS = 1 << 20          # bytes of a file that names commits
_COMMIT = re.compile(r"[0-9a-f]{40}")


def times(top: Path, folder: str, names: list[str]) -> dict[str, tuple[float, str]]:
    """When each of these files of `folder`, "" or "a/b/", was last committed; nothing where `top` is no clone."""
    found: dict[str, tuple[float, str]] = {}
    until = time.monotonic() + SECONDS
    place = os.environ.get("TMPDIR", "/tmp")        # tempfile would try to write there, which this process may not
    with (contextlib.suppress(OSError, ValueError, subprocess.SubprocessError),
          tempfile.TemporaryDirectory(dir=place) as empty):
        head = _head(top / ".git")
        for inner in ("objects", "refs"):
            os.mkdir(f"{empty}/{inner}")
        os.symlink("refs/heads/none", f"{empty}/HEAD")      # a link, for the same reason
        environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "GIT_DIR": empty, "GIT_CONFIG_NOSYSTEM": "1",
                       "GIT_CONFIG_GLOBAL": os.devnull, "GIT_NO_REPLACE_OBJECTS": "1",
                       "GIT_OBJECT_DIRECTORY": str(top / ".git" / "objects")}
        for name in names:
            said = subprocess.run(["git", "log", "-1", "--format=%ct", head, "--", f":(top,literal){folder}{name}"],
                                  env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=True, cwd=empty,
                                  timeout=max(0.0, until - time.monotonic())).stdout
            if said.strip():
                found[name] = float(said), "git"
    return found


def _head(git: Path) -> str:
    """The commit that is checked out."""
    if git.is_symlink():
        raise ValueError("a link is not followed")
    said = _read(git / "HEAD").strip()
    if reference := re.fullmatch(r"ref: (refs/[\w./-]+)", said):
        name = reference[1]
        try:
            said = _read(git / name).strip() if ".." not in name else ""
        except FileNotFoundError:
            lines = _read(git / "packed-refs").splitlines()
            said = next((line[:40] for line in lines if line[40:].strip() == name), "")
    if not _COMMIT.fullmatch(said):
        raise ValueError("HEAD names no commit")
    return said


def _read(path: Path) -> str:
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        return file.read(MAX_REFS).decode("utf-8", "replace")
