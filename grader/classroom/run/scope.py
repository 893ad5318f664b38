"""A cgroup for each grading job, where there is somebody to make one: what one job takes, the others do not lack.

systemd makes one for whoever asks it (the user's own, or as root the system's). Without it, a cgroup (v2) that was
delegated to this process is divided. Where there is neither, the limits of single processes are all there is (see
sandbox.jail), and it is said.
"""

import contextlib
import itertools
import os
import shutil
import subprocess
import time
from pathlib import Path

LEAST = 2 << 30             # bytes of memory that a job may take at least; else an even share of what there is
TASKS = 512                 # processes and threads of a job
WEIGHT = 100                # each job's claim on the processors, the same for all
CONTROLLERS = {"memory": "memory", "pids": "processes", "cpu": "processors"}


class Scopes:
    """Makes a cgroup for each job, or says why it cannot; `close` it at the end."""

    def __init__(self, jobs: int, proc: Path = Path("/proc")):
        """jobs: how many share the machine. proc: where processes are described."""
        self._proc, self._numbers = proc, itertools.count(1)
        self._divided: Path | None = None
        self._limits: dict[str, str] = {}
        try:
            own = _folder(proc / "self")
        except (OSError, ValueError) as error:
            self.by, self._why = "", str(error)
            return
        memory = min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_most(own / "memory.max")])
        memory = max(LEAST, memory // (jobs + 1)) >> 20 << 20       # one share is for everything else
        self._limits = {"memory.max": str(memory), "pids.max": str(TASKS), "cpu.weight": str(WEIGHT)}
        self.by, self._why = "systemd", _systemd_refuses(self._limits)
        if self._why:
            try:
                self._divide(own)
                self.by, self._why = "this cgroup", ""
            except (OSError, ValueError) as error:
                self.by, self._why = "", f"{self._why}; {error}"

    def _divide(self, own: Path) -> None:
        """Make this cgroup one of cgroups; OSError or ValueError where that is not allowed, and all is as it was."""
        here = (own / "cgroup.controllers").read_text().split()
        if missing := [CONTROLLERS[name] for name in CONTROLLERS if name not in here]:
            raise ValueError(f"the cgroup {own} cannot limit {', '.join(missing)}")
        self._leaf = own / f"grader-{os.getpid()}"
        self._leaf.mkdir()
        self._divided = own
        try:        # a cgroup that is divided has no process of its own
            _write(self._leaf / "cgroup.procs", str(os.getpid()))
            _write(own / "cgroup.subtree_control", " ".join(f"+{name}" for name in CONTROLLERS))
        except OSError as error:
            self.close()
            raise ValueError(f"the cgroup {own} cannot be divided: {error.strerror}") from None

    def around(self, command: list[str]) -> list[str]:
        """The command, run in a new cgroup of its own; as it is, where there is none."""
        if self.by == "systemd":
            return [*_systemd_run(self._limits), *command]
        if not self._divided:
            return command
        scope = self._divided / f"{self._leaf.name}-{next(self._numbers)}"
        scope.mkdir()
        for name, value in self._limits.items():
            _write(scope / name, value)
        with contextlib.suppress(OSError):      # a kernel that does not count it
            _write(scope / "memory.swap.max", "0")
        return ["/bin/sh", "-c", 'echo 0 > "$0" && exec "$@"', str(scope / "cgroup.procs"), *command]

    def said(self, pid: int | None) -> str:
        """What the cgroup of a job limits, as it stands there, or why it has none."""
        if self.by:
            with contextlib.suppress(OSError, ValueError):
                folder = _folder(self._proc / str(pid))
                held = [name.partition(".")[0] for name, value in self._limits.items()
                        if (folder / name).exists() and (folder / name).read_text().strip() == value]
                if held:
                    most = {"memory": f"{int(self._limits['memory.max']) / (1 << 30):.1f} GB of memory",
                            "pids": f"{TASKS} processes and threads", "cpu": "an even share of the processors"}
                    words = ", ".join(most[name] for name in held)
                    lacking = " and ".join(CONTROLLERS[name] for name in CONTROLLERS if name not in held)
                    return (f"each job has a cgroup of its own, by {self.by}: {words}"
                            + (f"; {lacking} cannot be limited here" if lacking else ""))
            self._why = f"{self.by} made one that limits nothing"
        return (f"jobs have no cgroup of their own ({self._why}): what one takes of memory and processors, "
                "the others lack")

    def close(self) -> None:
        """End whatever is left in the jobs' cgroups, and make this one as it was."""
        own, self._divided = self._divided, None
        if not own:
            return
        for scope in own.glob(f"{self._leaf.name}-*"):
            with contextlib.suppress(OSError):
                _write(scope / "cgroup.kill", "1")
            _remove(scope)
        for file, words in ((own / "cgroup.subtree_control", " ".join(f"-{name}" for name in CONTROLLERS)),
                            (own / "cgroup.procs", str(os.getpid()))):
            with contextlib.suppress(OSError):
                _write(file, words)
        _remove(self._leaf)


def _systemd_run(limits: dict[str, str]) -> list[str]:
    asked = {"MemoryMax": limits["memory.max"], "MemorySwapMax": "0", "TasksMax": limits["pids.max"],
             "CPUWeight": limits["cpu.weight"]}
    return ["systemd-run", *["--user"] * (os.getuid() != 0), "--scope", "--quiet", "--collect",
            *(word for name, value in asked.items() for word in ("-p", f"{name}={value}")), "--"]


def _systemd_refuses(limits: dict[str, str]) -> str:
    """Why systemd makes no scopes here, or ""."""
    if not shutil.which("systemd-run"):
        return "systemd is not here"
    try:
        tried = subprocess.run([*_systemd_run(limits), "/bin/true"], capture_output=True, text=True, timeout=10,
                               stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return "systemd does not answer"
    lines = tried.stderr.strip().splitlines() or [f"exit code {tried.returncode}"]
    return f"systemd: {lines[0][:200].rstrip('.')}" if tried.returncode else ""


def _folder(process: Path) -> Path:
    """Where a process's cgroup (v2) is mounted; ValueError where none is."""
    lines = (process / "cgroup").read_text().splitlines()
    inside = next((line[3:] for line in lines if line.startswith("0::")), None)
    for line in (process / "mountinfo").read_text().splitlines():
        fields, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 ") and inside is not None:
            root, mounted = fields.split()[3:5]
            return Path(mounted, inside.removeprefix(root.rstrip("/")).lstrip("/"))
    raise ValueError("no cgroup (v2) is mounted")


def _most(file: Path) -> list[int]:
    """The number in a file, where it has one."""
    with contextlib.suppress(OSError, ValueError):
        return [int(file.read_text())]
    return []


def _write(file: Path, words: str) -> None:
    with file.open("w") as opened:
        opened.write(words)


def _remove(folder: Path) -> None:
    """Remove a cgroup once what was ended in it is gone."""
    for wait in (0, 0.05, 0.2, 1):
        with contextlib.suppress(OSError):
            time.sleep(wait)
            folder.rmdir()
            return
