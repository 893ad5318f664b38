"""Where the other processes come from: workers and the key, forked from a zygote where that is safe.

No torch is imported here.
"""

import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading

from grader import jail
from grader.chapters import ROOT
from grader.process import Worker
from grader.zygote import THREADS

START = 120.0               # seconds that a GPU may take to be ready

# Forking a process that has torch in memory is safe on Linux only.
CAN_FORK = sys.platform == "linux"


def _python(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", f"grader.{module}", *arguments]


def _environment() -> dict:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, **THREADS, "PYTHONPATH": os.pathsep.join(paths)}


class Nursery:
    """Starts workers: forked from a zygote where that is safe, fresh processes elsewhere.

    limit: let none of them take more memory than jail.MEMORY.
    many: it will serve a class, so its zygote imports what only some checks need, and forks one more
    for each chapter, which has loaded what that chapter's submissions share.
    walls: shut them in (see jail); each is then given desks, and sees nothing else.
    """

    def __init__(self, fork: bool = CAN_FORK, limit: bool = True, many: bool = False, walls: bool = False):
        self.fork, self.many, self._limit, self._lock = fork, many and fork, limit, threading.RLock()
        self.desks = jail.Desks() if walls else None
        self._zygote = None
        self._lines: dict[str, socket.socket] = {}      # to the zygote, "", and those that it forked, by what they load
        self._pids: dict[str, int] = {}                 # of the latter
        if fork:
            self._start_zygote()

    def _start_zygote(self) -> None:
        self._lines[""], theirs = socket.socketpair()
        command = _python("zygote", str(theirs.fileno()), *["--many"] * self.many)
        self._zygote = subprocess.Popen(
            jail.around(command, self.desks.path) if self.desks else command, pass_fds=[theirs.fileno()],
            env=self._environment(), stdin=subprocess.DEVNULL)
        theirs.close()

    def _environment(self) -> dict:
        """As here; without a GPU, Triton is to interpret its kernels, which it decides as it is imported."""
        return {**_environment(), **({"TRITON_INTERPRET": "1"} if self._limit else {})}

    def start(self, role: str, desks: list[str] = (), ahead: dict | None = None) -> "Worker":
        """A new process in the role of "worker" or "key".

        desks: what it may read, behind walls. ahead: what it has loaded already (see worker.load_ahead).
        """
        if not self.fork:
            process = subprocess.Popen(
                _python(role, *["--limit"] * self._limit), env=self._environment(), start_new_session=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
            return Worker(io.BufferedWriter(process.stdin), process.stdout, process.stderr,
                          process.pid, lambda kill: _wait(process, kill))
        pipes = [os.pipe() for _ in range(3)]
        theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
        line = json.dumps(ahead) if ahead else ""
        try:
            pid = self._request({"do": "fork", "role": role, "limit": self._limit, "desks": list(desks)}, theirs, line)
        finally:
            for fd in theirs:
                os.close(fd)
        replies, prints = (open(pipe[0], "rb", buffering=0) for pipe in pipes[1:])
        return Worker(open(pipes[0][1], "wb"), replies, prints, pid, lambda kill: self._reap(pid, kill, line))

    def _reap(self, pid: int, kill: bool, line: str) -> int:
        """How a worker ended. Behind walls its number means something else out here: the zygote kills it."""
        if kill and not self.desks:
            _kill(pid)
        return self._request({"do": "reap", "pid": pid, "kill": kill}, line=line)

    def _request(self, message: dict, fds=(), line: str = "") -> int:
        """One exchange with a zygote; one that a submission has killed is started anew."""
        with self._lock:
            for _ in range(2):
                with contextlib.suppress(OSError):
                    if line not in self._lines and message["do"] == "fork":
                        self._fork_zygote(line)
                    if line in self._lines:
                        socket.send_fds(self._lines[line], [json.dumps(message).encode()], list(fds))
                        if answer := self._lines[line].recv(64):
                            return int(answer)
                if line in self._lines:
                    self._lines.pop(line).close()
                    if not line:
                        self._zygote.wait()
                        self._start_zygote()
                if message["do"] == "reap":
                    return -signal.SIGKILL
            raise RuntimeError("the grader's zygote does not start; see the messages above")

    def _fork_zygote(self, line: str) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._pids[line] = self._request(
                {"do": "fork", "role": "zygote", "ahead": json.loads(line)}, [theirs.fileno()])
        self._lines[line] = ours

    def forget(self) -> None:
        """End the zygotes that have loaded what only some workers need, and these workers."""
        with self._lock:
            for line in list(filter(None, self._lines)):
                self._lines.pop(line).close()
                self._request({"do": "reap", "pid": self._pids.pop(line), "kill": False})

    def close(self) -> None:
        for line in self._lines.values():
            line.close()
        if self._zygote:
            self._zygote.wait()
            self._zygote = None
        if self.desks:
            self.desks.close()


def _wait(process, kill: bool) -> int:
    if kill:
        _kill(process.pid)
    try:
        return process.wait(0.3)
    except subprocess.TimeoutExpired:
        _kill(process.pid)
        return process.wait()


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGTERM)


class Place:
    """Where submissions run: a worker that is started when needed, anew when it has ended."""

    def __init__(self, nursery: Nursery, device: str = "cpu"):
        self._nursery, self._device = nursery, device
        self.desks = nursery.desks                          # where there are walls
        self.many = nursery.many
        self.laid: list[jail.Desk] = []                     # all that a worker may read behind them
        self.ahead: dict | None = None                      # what it has loaded already
        self.worker: Worker | None = None

    def open(self) -> Worker:
        if self.worker is None:
            self.worker = self._nursery.start("worker", [str(desk.path) for desk in self.laid], self.ahead)
            if self._device != "cpu":       # its context takes seconds, which no check shall pay for
                self.worker.ask("start", START, room="", device=self._device)
        return self.worker

    def close(self) -> str:
        """End the worker; returns what it printed last."""
        if self.worker is None:
            return ""
        self.worker.end()
        said, self.worker = self.worker.output(), None
        return said
