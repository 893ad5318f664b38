"""Processes that ask cells, each with one grader that is kept. One that dies is started anew.

As a program (`python -m grader.classroom.run.jobs`) this is such a process, which serves `cells.answer`
and `cells.plan`. It ends as soon as nobody is left who could ask.
"""

import contextlib
import dataclasses
import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from grader.classroom.run import cells
from grader.classroom.run.cells import Cell, Plan
from grader.classroom.run.scope import Scopes
from grader.course.chapters import ROOT, Chapter, CourseError
from grader.front.results import Asked, Result, from_json, to_json
from grader.judge.engine import Grader
from grader.sandbox.frames import FrameError, channel, read_frame, write_frame
from grader.sandbox.launcher import fresh
from grader.sandbox.process import Child, Ended, TimedOut
from grader.sandbox.setting import Setting

PATIENCE = 600.0            # seconds for a cell besides what its checks may take
FAREWELL = 10.0             # seconds that a job is given to end its own processes


class Died(Exception):
    """A job ended without a reply, or could not give one; the words say what it said last."""


class Job:
    """One process with one grader, in a cgroup of its own where there is somebody to make it."""

    def __init__(self, setting: Setting, scratch: Path, scopes: Scopes):
        self._setting, self._scratch, self._scopes = setting, scratch, scopes
        self._child: Child | None = None

    def ask(self, do: str, limit: float, **arguments):
        """What comes of a request, as JSON has it; Died where nothing does within `limit` seconds."""
        if self._child is None:
            self._child = fresh("grader.classroom.run.jobs", json.dumps(dataclasses.asdict(self._setting)),
                                environment={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(self._scratch)},
                                patience=FAREWELL, around=self._scopes.around)
        self._child.output()        # what it said before is of no matter
        try:
            reply, body = self._child.ask(do, limit, **arguments)
        except (Ended, TimedOut, FrameError) as error:
            why = "took too long" if isinstance(error, TimedOut) else str(error)
            raise Died(f"the process that asked it {why} {self.close()}".strip()) from None
        if "failed" in reply:       # its grader is no longer to be trusted
            self.close()
            raise Died(reply["failed"])
        return json.loads(body)

    def plan(self, stems: list[str]) -> Plan:
        """See cells.plan."""
        plan = from_json(Plan, self.ask("plan", PATIENCE, stems=stems))
        return dataclasses.replace(plan, scope=self._scopes.said(self._child and self._child.pid))

    def cell(self, cell: Cell, folder: Path, checks: Sequence[Asked], stop: threading.Event) -> Cell:
        """The blank cell with its verdicts. Where the process dies it is asked once more, by a new one; then
        its checks are "crashed". Died where it dies because of `stop`.
        """
        start, limit, note = time.monotonic(), PATIENCE + 2 * self._setting.timeout * (len(checks) + 2), cell.note
        for last in (False, True):
            try:
                said = self.ask("answer", limit, chapter=cell.chapter.stem, folder=str(folder))
                verdicts = from_json(tuple[Result, ...], said)
                break
            except Died as error:
                if stop.is_set():
                    raise
                if last:
                    note = str(error)
                    verdicts = cells.crashed(checks, "the grader's own process ended twice while it asked this file")
        return dataclasses.replace(cell, verdicts=verdicts, note=note, seconds=round(time.monotonic() - start, 3))

    def hang_up(self) -> None:
        """Tell the process that nothing more is wanted: it ends what it started, and then itself."""
        if child := self._child:
            child.hang_up()

    def close(self) -> str:
        """End the process and all that it started; returns what it said last."""
        if self._child is None:
            return ""
        child, self._child = self._child, None
        child.hang_up()
        child.end(kill=False)
        return child.output()[-2000:]


class Jobs:
    """Several of them, which take cells from one queue."""

    def __init__(self, count: int, setting: Setting, scratch: Path):
        self._scopes = Scopes(count)
        self._jobs = [Job(setting, scratch, self._scopes) for _ in range(count)]
        self._stop = threading.Event()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stop.set()
        for job in self._jobs:
            job.hang_up()
        for job in self._jobs:
            job.close()
        self._scopes.close()

    def plan(self, stems: list[str]) -> Plan:
        """See cells.plan."""
        try:
            return self._jobs[0].plan(stems)
        except Died as error:
            raise CourseError(str(error)) from None

    def lost(self) -> list[str]:
        """Machines that were lost; there is but this one."""
        return []

    def run(self, todo: list[Cell], folders: dict[str, Path], checks: dict[str, Sequence[Asked]]) -> Iterator[Cell]:
        """Ask these blank cells; each is yielded as it ends, with its verdicts.

        Cells of one chapter stand together in `todo`, so that a job loads the chapter's known mistakes
        once.
        """
        waiting, ended = queue.Queue(), queue.Queue()
        for cell in todo:
            waiting.put(cell)

        def work(job: Job) -> None:
            try:
                while not self._stop.is_set():
                    cell = waiting.get_nowait()
                    ended.put(job.cell(cell, folders[cell.student], checks[cell.chapter.stem], self._stop))
            except queue.Empty:
                pass
            except BaseException as error:
                ended.put(error)
            finally:
                job.close()
        threads = [threading.Thread(target=work, args=(job,), daemon=True) for job in self._jobs]
        for thread in threads:
            thread.start()
        try:
            for _ in todo:
                cell = ended.get()
                if isinstance(cell, BaseException):
                    raise cell
                yield cell
        finally:
            self._stop.set()
            for job in self._jobs:
                job.hang_up()
            for thread in threads:
                thread.join()


# -- the process itself ----------------------------------------------------------------------------

def _serve(setting: Setting) -> None:
    requests, replies = channel()
    inbox: queue.Queue = queue.Queue()

    def listen() -> None:
        with contextlib.suppress(EOFError):
            while True:
                inbox.put(read_frame(requests)[0])
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)      # whatever it is doing
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=listen, daemon=True).start()
    chapter = None
    with contextlib.suppress(KeyboardInterrupt), Grader(setting, many=True) as grader:
        while True:
            request = inbox.get()
            arguments = request["with"]
            if chapter and arguments.get("chapter") != chapter:
                grader.forget(Chapter(chapter))
            chapter = arguments.get("chapter")
            try:
                done = {"answer": cells.answer, "plan": cells.plan}[request["do"]](grader, **arguments)
                reply, body = {}, json.dumps(to_json(done)).encode()
            except Exception as error:
                reply, body = {"failed": f"{type(error).__name__}: {error}"[:2000]}, b""
            write_frame(replies, {**reply, "id": request["id"]}, body)


if __name__ == "__main__":
    _serve(Setting(**json.loads(sys.argv[1])))
