"""The front end's handle on the other processes: start one, ask it something, end it.

No torch is imported here. Each worker has three pipes: requests, replies, and what it prints.
"""

import contextlib
import io
import json
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
import time

from grader import jail
from grader.chapters import ROOT
from grader.frames import FrameError, read_frame, write_frame
from grader.zygote import THREADS

MAX_OUTPUT = 64 << 10       # bytes of a submission's prints that are kept
GLANCE = 0.1                # seconds between looks at whether somebody has stopped waiting

# Forking a process that has torch in memory is safe on Linux only.
CAN_FORK = sys.platform == "linux"

# Windows cannot look whether a pipe holds something; there a print may be shown one check late.
POLLS = hasattr(select, "poll")


class Ended(Exception):
    """A worker ended without an answer; `status` is its exit code, or a negative signal."""

    def __init__(self, status: int):
        super().__init__(f"ended with {status}")
        self.status = status


class TimedOut(Exception):
    """A worker gave no answer in time."""


class Stopped(Exception):
    """Nobody waits for this answer any more."""


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


class Worker:
    """One process: `ask` it, read what it printed, `end` it."""

    def __init__(self, requests, replies, prints, pid: int, reap):
        self.pid, self._reap = pid, reap
        self._requests, self._replies, self._prints = requests, replies, prints
        self._inbox: queue.Queue = queue.Queue(4)    # a worker that floods it has to wait
        self._arrived = b""     # of its replies, and not read yet
        self._output, self._cut, self._count = bytearray(), 0, 0
        self._taking = threading.Lock()
        if POLLS:
            os.set_blocking(prints.fileno(), False)
        self._ended = False
        self._threads = [threading.Thread(target=work, daemon=True)
                         for work in (self._listen, self._drain)]
        for thread in self._threads:
            thread.start()

    def send(self, do: str, body: bytes = b"", **arguments) -> int:
        """Send a request and do not wait; returns its number, for `receive`."""
        self._count += 1
        with contextlib.suppress(OSError):      # `receive` will see that it has ended
            write_frame(self._requests, {"do": do, "with": arguments, "id": self._count}, body)
        return self._count

    def receive(self, number: int, timeout: float | None = None, stop=None) -> tuple[dict, bytes]:
        """The reply to a request; TimedOut, Ended or FrameError where there is none.

        stop: looked at while waiting; Stopped once it is true.
        """
        late = time.monotonic() + timeout if timeout else None
        while True:
            try:
                left = None if late is None else max(0.0, late - time.monotonic())
                reply = self._inbox.get(timeout=left if stop is None else min(GLANCE, left or GLANCE))
                break
            except queue.Empty:
                if stop and stop():
                    self.end()
                    raise Stopped from None
                if late is not None and time.monotonic() >= late:
                    self.end()
                    raise TimedOut from None
        if isinstance(reply, EOFError):
            raise Ended(self.end(kill=False))
        if isinstance(reply, Exception):
            self.end()
            raise reply
        if reply[0].get("id") != number:
            self.end()
            raise FrameError("an answer came that nobody had asked for")
        return reply

    def ask(self, do: str, timeout: float | None = None, stop=None, **arguments):
        return self.receive(self.send(do, **arguments), timeout, stop)

    def end(self, kill: bool = True) -> int:
        """End the process and all that it started; returns how it ended.

        With kill=False a process that is about to end by itself is given a moment to do so.
        """
        if self._ended:
            return 0
        self._ended = True
        status = self._reap(kill)
        for thread in self._threads:
            thread.join(1)
        for stream in (self._requests, self._replies, self._prints):
            with contextlib.suppress(OSError):
                stream.close()
        return status

    def output(self) -> str:
        """What it printed since the last call, cut at 64 KB."""
        if POLLS:
            with contextlib.suppress(OSError, ValueError):      # what it printed before it replied
                self._take()
        text, cut = bytes(self._output).decode("utf-8", "replace"), self._cut
        self._output.clear()
        self._cut = 0
        return text + (f"\n… and {cut:,} bytes more" if cut else "")

    def read(self, n: int) -> bytes:
        """Up to n bytes of its replies; none at their end."""
        if not self._arrived and self._wait_for(self._replies):
            self._arrived = os.read(self._replies.fileno(), 1 << 20)
        part, self._arrived = self._arrived[:n], self._arrived[n:]
        return part

    def _wait_for(self, stream) -> bool:
        """Until a pipe holds something or its other end is closed; False once this worker has ended.

        What a submission has started may hold a pipe open for as long as it lives.
        """
        poll = select.poll() if POLLS else None
        if poll:
            poll.register(stream.fileno(), select.POLLIN)
            while not self._ended and not poll.poll(GLANCE * 1000):
                pass
        return not self._ended

    def _listen(self) -> None:
        try:
            while True:
                self._inbox.put(read_frame(self))
        except (EOFError, OSError, ValueError) as error:
            self._inbox.put(error if isinstance(error, FrameError) else EOFError())

    def _drain(self) -> None:
        """Keep taking what it prints, so that it never waits for a full pipe."""
        with contextlib.suppress(OSError, ValueError):
            while self._wait_for(self._prints) and self._take():
                pass

    def _take(self) -> bool:
        """Take what has been printed; False at its end."""
        with self._taking:
            while True:
                try:
                    chunk = os.read(self._prints.fileno(), 1 << 16)
                except BlockingIOError:
                    return True
                keep = max(0, MAX_OUTPUT - len(self._output))
                self._output += chunk[:keep]
                self._cut += max(0, len(chunk) - keep)
                if not chunk or not POLLS:
                    return bool(chunk)
