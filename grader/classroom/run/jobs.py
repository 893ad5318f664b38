"""Processes that ask cells, each with one grader that is kept. One that dies is started anew.

As a program (`python -m grader.classroom.run.jobs`) this is such a process: each line of its standard
input is a request in JSON, each line of its standard output the reply.
"""

import contextlib
import dataclasses
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from grader.classroom.run import cells
from grader.course.chapters import ROOT, Chapter, CourseError
from grader.judge.engine import Grader
from grader.sandbox.setting import Setting

PATIENCE = 600.0            # seconds for a cell besides what its checks may take
FAREWELL = 10.0             # seconds that a job is given to end its own processes


class Died(Exception):
    """A job ended without a reply, or could not give one; the words say what it said last."""


class Job:
    """One process with one grader."""

    def __init__(self, setting: Setting, scratch: Path):
        self._setting, self._scratch, self._process, self._last_words = setting, scratch, None, ""

    def ask(self, do: str, limit: float, **arguments):
        """What comes of a request; Died where nothing does within `limit` seconds."""
        if self._process is None:
            self._said = tempfile.TemporaryFile()
            setting = json.dumps(dataclasses.asdict(self._setting))
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "grader.classroom.run.jobs", setting],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, text=True, start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(self._scratch)})
        clock = threading.Timer(limit, self._process.kill)
        clock.start()
        try:
            self._process.stdin.write(json.dumps({"do": do, "with": arguments}) + "\n")
            self._process.stdin.flush()
            reply = json.loads(self._process.stdout.readline())
        except (OSError, ValueError):
            status = self.close()
            raise Died(f"the process that asked it ended ({status}) {self._last_words}".strip()) from None
        finally:
            clock.cancel()
        if "failed" in reply:       # its grader is no longer to be trusted
            self.close()
            raise Died(reply["failed"])
        return reply["done"]

    def cell(self, cell: dict, folder: Path, checks: list[dict], stop: threading.Event) -> dict:
        """The blank cell with its verdicts. Where the process dies it is asked once more, by a new one; then
        its checks are "crashed". Died where it dies because of `stop`.
        """
        start, limit = time.monotonic(), PATIENCE + 2 * self._setting.timeout * (len(checks) + 2)
        for last in (False, True):
            try:
                verdicts = self.ask("answer", limit, chapter=cell["chapter"], folder=str(folder))
                break
            except Died as error:
                if stop.is_set():
                    raise
                if last:
                    verdicts = cells.crashed(checks, "the grader's own process ended twice while it asked this file")
                    cell = {**cell, "note": str(error)}
        return {**cell, "verdicts": verdicts, "seconds": round(time.monotonic() - start, 3)}

    def hang_up(self) -> None:
        """Tell the process that nothing more is wanted: it ends what it started, and then itself."""
        if process := self._process:
            with contextlib.suppress(OSError, ValueError):
                process.stdin.close()

    def close(self) -> int:
        """End the process and all that it started; returns its exit status."""
        if self._process is None:
            return 0
        self.hang_up()
        process, self._process = self._process, None
        try:
            status = process.wait(FAREWELL)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        process.stdout.close()
        self._said.seek(0)
        self._last_words = self._said.read()[-2000:].decode("utf-8", "replace")
        self._said.close()
        return status


class Jobs:
    """Several of them, which take cells from one queue."""

    def __init__(self, count: int, setting: Setting, scratch: Path):
        self._jobs = [Job(setting, scratch) for _ in range(count)]
        self._stop = threading.Event()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stop.set()
        for job in self._jobs:
            job.hang_up()
        for job in self._jobs:
            job.close()

    def plan(self, stems: list[str]) -> dict[str, dict]:
        """See cells.plan."""
        try:
            return self._jobs[0].ask("plan", PATIENCE, stems=stems)
        except Died as error:
            raise CourseError(str(error)) from None

    def run(self, todo: list[dict], folders: dict[str, Path], checks: dict[str, list[dict]]) -> Iterator[dict]:
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
                    ended.put(job.cell(cell, folders[cell["student"]], checks[cell["chapter"]], self._stop))
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
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)       # what anything here prints is no reply
    inbox: queue.Queue = queue.Queue()

    def listen() -> None:
        for line in sys.stdin:
            inbox.put(json.loads(line))
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
                reply = {"done": {"answer": cells.answer, "plan": cells.plan}[request["do"]](grader, **arguments)}
            except Exception as error:
                reply = {"failed": f"{type(error).__name__}: {error}"[:2000]}
            replies.write(json.dumps(reply) + "\n")


if __name__ == "__main__":
    _serve(Setting(**json.loads(sys.argv[1])))
