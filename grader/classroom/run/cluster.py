"""The grid of cells on many machines, by Dask distributed; it stands where `jobs.Jobs` does.

Each machine has the course at the same commit, and nothing else of the instructor's: what a student
handed in travels with the cell, and an instructor's own hidden checks with the run. A worker of Dask
keeps as many grading processes as it has threads, each a child of its own behind the walls and with
its limit of time, as on one machine. Dask itself asks a cell again whose worker is lost.
"""

import collections
import contextlib
import dataclasses
import itertools
import logging
import re
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from distributed import Client, KilledWorker, LocalCluster, WorkerPlugin, as_completed, get_worker

from grader.classroom.run import cells
from grader.classroom.run.cells import Cell, Plan
from grader.classroom.run.jobs import Job
from grader.classroom.run.scope import Scopes
from grader.course import chapters
from grader.course.chapters import Chapter, CourseError
from grader.front.results import Asked
from grader.sandbox.setting import Setting

JOINING = 30.0      # seconds that the first worker is waited for
GLANCE = 0.05       # seconds between looks at whether something has ended
LOST = "the machines that asked this file were lost, one after the other"
AHEAD = 2           # cells for each thread that are under way at once


class Cluster:
    """Workers at an address, or "local" ones, which take cells from one scheduler."""

    def __init__(self, address: str, count: int, setting: Setting, scratch: Path):
        """count: how many workers to start where the address is "local"."""
        self._setting, self._end = setting, contextlib.ExitStack()
        for name in filter(re.compile(r"distributed\b").match, list(logging.root.manager.loggerDict)):
            logging.getLogger(name).setLevel(logging.CRITICAL)      # what goes wrong is said once, and here
        with contextlib.ExitStack() as begun, _said(f"--cluster {address}"):
            if address == "local":
                address = begun.enter_context(_local(count, scratch))
            self._client = begun.enter_context(Client(address, timeout=JOINING))
            self._client.wait_for_workers(1, timeout=JOINING)
            self._client.register_plugin(Machine(setting))
            begun.callback(self._client.unregister_worker_plugin, Machine.name)
            self._end = begun.pop_all()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(Exception):    # it may be gone
            self._end.close()

    def plan(self, stems: list[str]) -> Plan:
        """See cells.plan; a layer of the jail holds where it holds on every machine."""
        nowhere = Path(self._setting.hidden_from, "nothing handed in")
        hashes = {chapter: cells.hashes(chapter, nowhere, self._setting) for chapter in map(Chapter, stems)}
        with _said("the cluster"):
            self._machines = list(self._client.nthreads())
            asked = [self._client.submit(_plan, hashes, stems if number == 0 else [], workers=[worker], pure=False,
                                         allow_other_workers=True)
                     for number, worker in enumerate(self._client.nthreads())]
            said = self._client.gather(asked)
        layers = {layer: all(one.layers.get(layer) for one in said) for one in said for layer in one.layers}
        return Plan(said[0].checks, layers, "; ".join(dict.fromkeys(one.scope for one in said)))

    def lost(self) -> list[str]:
        """Machines that were there at the beginning, and are gone; none where nobody answers any more."""
        here = self._machines
        with contextlib.suppress(Exception):    # all has been asked by now: the run does not fail for this
            here = self._client.nthreads()
        return [f"the worker {machine}" for machine in self._machines if machine not in here]

    def run(self, todo: list[Cell], folders: dict[str, Path], checks: dict[str, Sequence[Asked]]) -> Iterator[Cell]:
        """Ask these blank cells; each is yielded as it ends, with its verdicts.

        Dask gives up what was with a worker that is lost again and again, whoever's fault that was: such cells are
        asked once more in the end, one after the other, and one that is lost again then is "crashed". A CourseError
        ends the run, and what has been yielded stays: a worker has another course, or the scheduler is gone.
        """
        try:
            suspects = []
            for cell, done in self._ask(todo, folders, checks):
                if isinstance(done, Cell):
                    yield done
                else:
                    suspects.append(cell)
            for suspect in suspects:
                for cell, done in self._ask([suspect], folders, checks):
                    yield done if isinstance(done, Cell) else dataclasses.replace(
                        cell, verdicts=cells.crashed(checks[cell.chapter.stem], LOST), note=str(done))
        except CourseError as error:
            raise CourseError(f"{error}. What was asked is kept: --resume goes on with it") from error

    def _ask(self, todo: list[Cell], folders: dict[str, Path], checks: dict[str, Sequence[Asked]],
             ) -> Iterator[tuple[Cell, Cell | KilledWorker]]:
        """Each of these cells, and it with its verdicts, or how its workers were lost."""
        waiting, under_way, of = iter(todo), as_completed(loop=self._client.loop), {}

        def fill() -> None:
            room = AHEAD * max(1, sum(self._client.nthreads().values())) - under_way.count()
            for cell in itertools.islice(waiting, max(0, room)):
                files = {path.name: path.read_bytes() for path in folders[cell.student].glob("*.py")}
                future = self._client.submit(_answer, cell, files, checks[cell.chapter.stem], pure=False)
                of[future.key] = cell
                under_way.add(future)
        with _said("the cluster"):
            fill()
            while not under_way.is_empty():
                self._wait_for(under_way)
                future = next(under_way)
                if future.cancelled():
                    raise CourseError("the scheduler is gone, or was started anew: start it once more, and the "
                                      "machines")
                try:
                    done = future.result()
                except KilledWorker as error:
                    done = error
                fill()
                yield of.pop(future.key), done

    def _wait_for(self, under_way: as_completed) -> None:
        """Until one of them has ended; CourseError where nobody is there who could end it."""
        seen = looked = time.monotonic()        # a machine at work
        while not under_way.has_ready():
            time.sleep(GLANCE)
            if time.monotonic() - looked < 1:
                continue
            looked = time.monotonic()
            if self._client.nthreads():
                seen = looked
            elif looked - seen > JOINING:
                raise CourseError(f"no machine has been at work for {JOINING:g} seconds")


def _local(count: int, scratch: Path) -> LocalCluster:
    """Workers on this machine. Ctrl-C in a terminal reaches all its processes; these leave it to the run."""
    heard = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return LocalCluster(n_workers=count, threads_per_worker=1, memory_limit=None, dashboard_address=None,
                            local_directory=str(scratch), silence_logs=logging.CRITICAL)
    finally:
        signal.signal(signal.SIGINT, heard)


@contextlib.contextmanager
def _said(where: str):
    """Whatever goes wrong with the cluster, in one line."""
    try:
        yield
    except CourseError:
        raise
    except Exception as error:
        words = str(error) or "no answer"
        if "No module named" in words:
            words += " on a worker: start each one in the course's folder, with PYTHONPATH=."
        elif not isinstance(error, (OSError, TimeoutError)):
            words += " (does each machine have the course at the same commit?)"
        raise CourseError(f"{where}: {type(error).__name__}: {words}") from error


# -- on each machine ------------------------------------------------------------------------------

class Machine(WorkerPlugin):
    """What a worker of Dask keeps while a run lasts: its grading processes."""

    name = "grader"

    def __init__(self, setting: Setting):
        self.setting = setting
        own = list(Path(setting.hidden_from).glob("*.py")) if setting.hidden_from else []
        self._own = {path.name: path.read_bytes() for path in own}
        self._shown = {path.name: chapters.shown(path) for path in own}

    def setup(self, worker) -> None:
        self._address = worker.address
        self.folder = Path(tempfile.mkdtemp(prefix="grading-", dir=worker.local_directory))
        self._copied = {}       # how an instructor's own files are called here, and how there
        if self.setting.hidden_from:
            copy = _write(self.folder / "own", self._own)
            self._copied = {chapters.shown(copy / name): shown for name, shown in self._shown.items()}
            self.setting = dataclasses.replace(self.setting, hidden_from=str(copy))
        self._jobs, self._idle, self._stop = [], collections.deque(), threading.Event()
        self._scopes = Scopes(worker.state.nthreads)

    def teardown(self, worker) -> None:
        self._stop.set()
        for job in self._jobs:
            job.hang_up()
        for job in self._jobs:
            job.close()
        self._scopes.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextlib.contextmanager
    def job(self):
        """A process for this thread alone."""
        try:
            job = self._idle.pop()
        except IndexError:
            job = Job(self.setting, self.folder, self._scopes)
            self._jobs.append(job)
        try:
            yield job
        finally:
            self._idle.append(job)

    def same(self, chapter: Chapter, folder: Path, hashes: dict[str, str]) -> None:
        """Raise a CourseError where this machine has other checks, another reference or another grader."""
        here = cells.hashes(chapter, folder, self.setting)
        if other := [name for name in hashes if here[name] != hashes[name]]:
            raise CourseError(f"the worker {self._address} does not have this course's {' and '.join(other)} "
                              f"of {chapter.stem}: each machine needs the course at the same commit")

    def called(self, checks: Sequence[Asked]) -> tuple:
        """Checks or verdicts, with their files called as they are where the run was begun."""
        return tuple(dataclasses.replace(check, file=self._copied.get(check.file, check.file)) for check in checks)

    def cell(self, cell: Cell, files: dict[str, bytes], checks: Sequence[Asked]) -> Cell:
        with tempfile.TemporaryDirectory(dir=self.folder) as folder, self.job() as job:
            handed = _write(Path(folder, "handed in"), files)
            self.same(cell.chapter, handed, cell.hashes)
            done = job.cell(cell, handed, checks, self._stop)
        return dataclasses.replace(done, verdicts=self.called(done.verdicts))


def _plan(hashes: dict[Chapter, dict], stems: list[str]) -> Plan:
    machine = get_worker().plugins[Machine.name]
    for chapter, wanted in hashes.items():
        machine.same(chapter, machine.folder / "nothing handed in", wanted)
    with machine.job() as job:
        plan = job.plan(stems)
    return Plan({stem: machine.called(checks) for stem, checks in plan.checks.items()}, plan.layers,
                plan.scope)


def _answer(cell: Cell, files: dict[str, bytes], checks: Sequence[Asked]) -> Cell:
    return get_worker().plugins[Machine.name].cell(cell, files, checks)


def _write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder
