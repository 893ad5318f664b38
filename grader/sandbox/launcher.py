"""Where the other processes come from: forked from a zygote where that is safe, fresh elsewhere.

No torch is imported here.
"""

import contextlib
import dataclasses
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from grader.course.chapters import ROOT
from grader.sandbox import jail
from grader.sandbox.process import Child, pid_of
from grader.sandbox.zygote import THREADS

WORKER = "grader.sandbox.worker"
ZYGOTE = "grader.sandbox.zygote"
START = 120.0               # seconds that a fresh process, or a GPU, may take to be ready

# Forking a process that has torch in memory is safe on Linux only. COURSE_FORK=no is for the course's own tests
# alone: with it, processes start on Linux as they do on macOS and Windows.
CAN_FORK = sys.platform == "linux" and os.environ.get("COURSE_FORK") != "no"


@dataclass(frozen=True)
class Preload:
    """What a worker is forked with: files of checks, and the folders of the chapters that come before."""

    tests: tuple[str, ...]
    folders: tuple[tuple[str, str], ...]


class _Zygote:
    """The line to a process that forks others. `ended` waits until it is gone."""

    def __init__(self, line: socket.socket, ended):
        self._line, self._ended = line, ended

    def ask(self, message: dict, fds=()) -> tuple[int, int | None] | None:
        """(its answer, what the process that it has forked is known as out here); None where it is gone."""
        with contextlib.suppress(OSError):
            socket.send_fds(self._line, [json.dumps(message).encode()], list(fds))
            answer, handles, _, _ = socket.recv_fds(self._line, 64, 1)
            if answer:
                return int(answer), pid_of(handles[0]) if handles else None
        return None

    def close(self) -> None:
        self._line.close()
        self._ended()


class Launcher:
    """Starts processes that serve one of `modules`, such as WORKER: by a fork where that is safe.

    limit: let none of them take more memory than jail.MEMORY.
    many: they will serve a class, or every save, so the zygote forks one more for each chapter, which has loaded
    what that chapter's submissions share.
    Without a fork the next worker is started ahead: it imports torch while others work.
    walls: shut them in (see jail); each is then given stages, and sees nothing else.
    """

    def __init__(self, *modules: str, fork: bool = CAN_FORK, limit: bool = True, many: bool = False,
                 walls: bool = False):
        self._modules, self.fork, self.many, self._limit = modules, fork, many and fork, limit
        self.stages = jail.Stages() if walls else None
        self._lock = threading.RLock()
        self._first: _Zygote | None = self._start_zygote() if fork else None
        self._preloaded: dict[Preload, _Zygote] = {}
        self._ahead = {} if fork else {module: self._start_fresh(module) for module in modules}

    def _start_zygote(self) -> _Zygote:
        ours, theirs = socket.socketpair()
        command = _python(ZYGOTE, str(theirs.fileno()), *self._modules)
        with theirs:
            process = subprocess.Popen(
                jail.around(command, self.stages.path) if self.stages else command, pass_fds=[theirs.fileno()],
                env=self._environment(), stdin=subprocess.DEVNULL)
        return _Zygote(ours, process.wait)

    def _environment(self) -> dict:
        """As here; without a GPU, Triton is to interpret its kernels, which it decides as it is imported."""
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {**os.environ, **THREADS, "PYTHONPATH": os.pathsep.join(paths),
                **({"TRITON_INTERPRET": "1"} if self._limit else {})}

    def start(self, module: str, stages: Iterable[str] = (), preload: Preload | None = None) -> Child:
        """A new process that serves a module. stages: what it may read, behind walls."""
        if not self.fork:
            with self._lock:
                child = self._ahead.pop(module, None) or self._start_fresh(module)
                if module == WORKER:
                    self._ahead[module] = self._start_fresh(module)
            return child
        pipes = [os.pipe() for _ in range(3)]
        theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
        request = {"do": "fork", "module": module, "limit": self._limit, "stages": list(stages)}
        try:
            pid, known_as, zygote = self._fork(request, theirs, preload)
        finally:
            for fd in theirs:
                os.close(fd)
        replies, prints = (open(pipe[0], "rb", buffering=0) for pipe in pipes[1:])
        return Child(open(pipes[0][1], "wb"), replies, prints, pid, partial(self._reap, zygote, pid), known_as)

    def _start_fresh(self, module: str) -> Child:
        return fresh(ZYGOTE, "fresh", module, *["--limit"] * self._limit, environment=self._environment())

    def _fork(self, request: dict, fds, preload: Preload | None = None) -> tuple[int, int | None, _Zygote]:
        """(a new process, what it is known as here, the zygote that it is a child of).

        A zygote that a submission has killed is started anew.
        """
        with self._lock:
            for _ in range(2):
                if preload and preload not in self._preloaded:
                    self._preloaded[preload] = self._fork_zygote(preload)
                zygote = self._preloaded[preload] if preload else self._first
                if answer := zygote.ask(request, fds):
                    return *answer, zygote
                if preload:
                    self._preloaded.pop(preload).close()
                else:
                    zygote.close()
                    self._first = self._start_zygote()
        raise RuntimeError("the grader's zygote does not start; see the messages above")

    def _fork_zygote(self, preload: Preload) -> _Zygote:
        ours, theirs = socket.socketpair()
        with theirs:
            pid, _, parent = self._fork({"do": "fork", "preload": dataclasses.asdict(preload)}, [theirs.fileno()])
        return _Zygote(ours, lambda: parent.ask({"do": "reap", "pid": pid, "kill": False}))

    def _reap(self, zygote: _Zygote, pid: int, kill: bool) -> int:
        """How a process ended. Behind walls its number means something else out here: the zygote kills it."""
        if kill and not self.stages:
            _kill(pid)
        with self._lock:
            answer = zygote.ask({"do": "reap", "pid": pid, "kill": kill})
        return answer[0] if answer else -signal.SIGKILL

    def forget(self) -> None:
        """End the zygotes that have loaded what only some workers need, and these workers."""
        with self._lock:
            while self._preloaded:
                self._preloaded.popitem()[1].close()

    def close(self) -> None:
        self.forget()
        if self._first:
            self._first.close()
        while self._ahead:
            self._ahead.popitem()[1].end()
        if self.stages:
            self.stages.close()


def _python(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", module, *arguments]


def fresh(module: str, *arguments: str, environment: dict, patience: float = 0.3,
          around=lambda command: command) -> Child:
    """A process that is no fork and serves a module. patience: seconds that it may take to end by itself.

    around(command): the command that runs this one somewhere.
    """
    process = subprocess.Popen(
        around(_python(module, *arguments)), env=environment, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    return Child(io.BufferedWriter(process.stdin), process.stdout, process.stderr, process.pid,
                 lambda kill: _wait(process, kill, patience), process.pid)


def _wait(process, kill: bool, patience: float) -> int:
    if kill:
        _kill(process.pid)
    try:
        return process.wait(patience)
    except subprocess.TimeoutExpired:
        _kill(process.pid)
        return process.wait()


def _kill(pid: int) -> None:
    """End a process and what it has started."""
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(pid, signal.SIGKILL)
        else:       # Windows, where os.kill ends one process alone
            with contextlib.suppress(OSError):
                subprocess.run(["taskkill", "/F", "/T", "/PID", str(pid)], capture_output=True)
            os.kill(pid, signal.SIGTERM)


class Slot:
    """Where submissions run: a worker that is started when needed, anew when it has ended."""

    def __init__(self, launcher: Launcher, device: str = "cpu"):
        self._launcher, self._device = launcher, device
        self.stages, self.many = launcher.stages, launcher.many
        self.worker: Child | None = None
        self.half: int | None = None    # of the processors, which its workers keep to
        self._spent = 0.0

    @property
    def spent(self) -> float:
        """Seconds in which its workers could run while they were waited for."""
        return self._spent + (self.worker.spent if self.worker else 0)

    def open(self, stages: Iterable[jail.Stage] = (), preload: Preload | None = None) -> Child:
        """The worker; a new one may read these stages, behind walls, and has loaded this already."""
        if self.worker is None:
            self.worker = self._launcher.start(WORKER, [str(stage.path) for stage in stages], preload)
            if self.half is not None:
                self.worker.keep_to(self.half)
            if not self._launcher.fork or self._device != "cpu":    # this takes seconds, which no check shall pay for
                self.worker.ask("start", START, name="", device=self._device)
        return self.worker

    def close(self) -> str:
        """End the worker; returns what it printed last."""
        if self.worker is None:
            return ""
        self.worker.end()
        self._spent += self.worker.spent
        said, self.worker = self.worker.output(), None
        return said
