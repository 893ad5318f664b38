"""The front end's handle on another process: ask it something, read what it printed, end it.

No torch is imported here. Each child has three pipes: requests, replies, and what it prints.
"""

import contextlib
import os
import queue
import re
import select
import sys
import threading
import time
from pathlib import Path

from grader.sandbox.frames import FrameError, read_frame, write_frame

MAX_OUTPUT = 64 << 10       # bytes of a submission's prints that are kept
GLANCE = 0.1                # seconds between looks at whether somebody has stopped waiting
CAN_TELL = sys.platform == "linux"      # how long a process has waited for a processor
BUSIEST = 20                # on a machine as busy as can be, so many seconds are one in which a process could run

# Windows cannot look whether a pipe holds something; there a print may be shown one check late.
POLLS = hasattr(select, "poll")


class Ended(Exception):
    """A process ended without an answer; `status` is its exit code, or a negative signal."""

    def __init__(self, status: int):
        super().__init__(f"ended with {status}")
        self.status = status


class TimedOut(Exception):
    """A process gave no answer in time."""


class Stopped(Exception):
    """Nobody waits for this answer any more."""


class Clock:
    """The seconds in which a process could run: that it waits for a processor is not held against it.

    Where the system does not tell, these are the seconds on the wall.
    """

    def __init__(self, pid: int | None):
        self._pid, self._start, self._before = pid, time.monotonic(), _scheduled(pid)

    def seconds(self) -> float:
        """Seconds since it was made. Threads that wait for each other win nothing: what all of them compute counts."""
        passed = time.monotonic() - self._start
        waited, computed = (now - before for now, before in zip(_scheduled(self._pid), self._before))
        return max(passed - max(waited, 0), computed, passed / BUSIEST)


def _scheduled(pid: int | None) -> tuple[float, float]:
    """(seconds that a process's main thread has waited for a processor, seconds that all its threads have computed)."""
    with contextlib.suppress(OSError, ValueError, IndexError, AttributeError):     # what only Linux has
        folder = Path("/proc", str(pid or "none"))
        waited = int((folder / "schedstat").read_text("utf-8").split()[1]) / 1e9
        user, system = (folder / "stat").read_text("utf-8").rpartition(")")[2].split()[11:13]
        return waited, (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return 0.0, 0.0


def pid_of(fd: int) -> int | None:
    """The number by which this process knows the process behind a pidfd, and close it."""
    try:
        found = re.search(r"(?m)^Pid:\s+(\d+)", Path(f"/proc/self/fdinfo/{fd}").read_text("utf-8"))
        return int(found[1]) if found else None
    except OSError:
        return None
    finally:
        os.close(fd)


class Child:
    """One process: `ask` it, read what it printed, `end` it."""

    def __init__(self, requests, replies, prints, pid: int, reap, known_as: int | None = None):
        """pid: as `reap` knows it. known_as: as this process does, if it does."""
        self.pid, self._reap = pid, reap
        self._known_as, self.spent = known_as, 0.0      # seconds in which it could run while it was waited for
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
        with contextlib.suppress(OSError, ValueError):      # `receive` will see that it has ended
            write_frame(self._requests, {"do": do, "with": arguments, "id": self._count}, body)
        return self._count

    def receive(self, number: int, timeout: float | None = None, stop=None) -> tuple[dict, bytes]:
        """The reply to a request; TimedOut, Ended or FrameError where there is none.

        timeout: seconds in which it can run. stop: looked at while waiting; Stopped once it is true.
        """
        clock = Clock(self._known_as)
        left = timeout or None
        while True:
            try:
                reply = self._inbox.get(timeout=left if stop is None else min(GLANCE, left or GLANCE))
                break
            except queue.Empty:
                if stop and stop():
                    self.end()
                    raise Stopped from None
                if timeout and (left := timeout - clock.seconds()) <= 0:
                    self.spent += clock.seconds()
                    self.end()
                    raise TimedOut from None
        self.spent += clock.seconds()
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

    def keep_to(self, half: int) -> None:
        """Keep to the first (0) or second half (1) of the processors, where the system can tell it so.

        Threads that take turns would else wake up on those of another busy process, and push it aside each time.
        """
        if self._known_as and hasattr(os, "sched_setaffinity"):
            mine = sorted(os.sched_getaffinity(0))
            with contextlib.suppress(OSError):      # it has ended; or there is one processor, whose first half is none
                os.sched_setaffinity(self._known_as, mine[:len(mine) // 2] if half == 0 else mine[len(mine) // 2:])

    def hang_up(self) -> None:
        """Tell it that nothing more is wanted; a process that serves ends by itself then."""
        with contextlib.suppress(OSError):
            self._requests.close()

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
        if POLLS:
            with contextlib.suppress(OSError):      # its last words
                self._take()
        for stream, reader in zip((self._requests, self._replies, self._prints), (None, *self._threads)):
            if reader is None or not reader.is_alive():     # Windows would wait for whoever holds the pipe
                with contextlib.suppress(OSError):
                    stream.close()
        return status

    def output(self) -> str:
        """What it printed since the last call, cut at 64 KB."""
        if POLLS:
            with contextlib.suppress(OSError, ValueError):      # what it printed before it replied
                self._take()
        else:
            time.sleep(GLANCE / 5)      # for the thread that reads it; nobody can ask whether there is more
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
