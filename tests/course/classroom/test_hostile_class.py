"""Hostile submissions: none buys a verdict, hurts another, or leaves anything behind.

What must come of each file in hostile/ stands in its head (see handed_in.py). Those that only a
jail stops are run behind the walls alone.
"""

import contextlib
import dataclasses
import json
import socket
import threading
import time

import pytest

from grader.course import chapters
from grader.front import results
from grader.judge.engine import Grader
from grader.sandbox import jail
from grader.sandbox.setting import Setting
from tests.course.classroom.handed_in import MARK, clean, every, left_behind

HOSTILE = every("hostile")
SEED = 20_261_122               # not the public one
LIMIT, PATIENCE = 2.0, 20.0     # seconds for a check that is to hang, and for one that is not
PORT = 47_113                   # where asks_a_server_of_the_machine.py knocks
LINEAR = chapters.find("linear")
behind_walls = pytest.mark.skipif(bool(jail.missing()), reason=jail.missing() or "the jail is here")


@pytest.fixture(scope="module")
def grader():
    with Grader(Setting(seed=SEED)) as grader:
        yield grader


@pytest.fixture(scope="module")
def walled(tmp_path_factory, servers):
    """A Grader behind walls, as an instructor runs it: with a secret in the environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOSTILE_SECRET", "known to who grades alone")
        with Grader(Setting(seed=SEED, walls=True)) as grader:
            yield grader


@pytest.fixture(scope="module")
def servers():
    """What listens on the machine: at a port, and at a nameless socket. Another test may have them."""
    with contextlib.ExitStack() as stack:
        for family, address in ((socket.AF_INET, ("127.0.0.1", PORT)), (socket.AF_UNIX, f"\0{MARK}")):
            server = stack.enter_context(socket.socket(family))
            with contextlib.suppress(OSError):
                server.bind(address)
                server.listen()
                threading.Thread(target=_serve, args=(server,), daemon=True).start()
        yield


def _serve(server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = server.accept()
            with connection:
                connection.sendall(MARK.encode())


def _grade(grader: Grader, handed_in, folder) -> None:
    """Hand it in, grade it, and look at every verdict and at the file that is written of them."""
    handed_in.write(folder)
    grader.setting = dataclasses.replace(
        grader.setting, timeout=LIMIT if "timeout" in handed_in.expected else PATIENCE)
    start = time.monotonic()
    verdicts = list(grader.grade(handed_in.chapter, folder))
    assert time.monotonic() - start < 2 * grader.setting.timeout * len(verdicts)
    handed_in.holds(verdicts, grader.setting, folder)
    results.write_json(folder / "verdicts.json", {handed_in.chapter: verdicts}, grader.setting, folder)
    said = (folder / "verdicts.json").read_text("utf-8")
    assert json.loads(said) and len(said) < 100_000 + 70_000 * len(verdicts)


def test_the_class_is_large_and_each_file_short():
    assert len(HOSTILE) >= 90
    assert max(len(handed_in.content.splitlines()) for handed_in in HOSTILE) <= 40
    assert {handed_in.chapter.number for handed_in in HOSTILE} >= {"00", "03", "04", "05"}


@pytest.mark.parametrize("handed_in", [file for file in HOSTILE if not file.wall], ids=str)
def test_stopped_without_a_wall(handed_in, grader, tmp_path):
    """The grader's own design is enough for these."""
    _grade(grader, handed_in, tmp_path)


@behind_walls
@pytest.mark.parametrize("handed_in", [file for file in HOSTILE if file.wall], ids=str)
def test_stopped_by_the_walls(handed_in, walled, tmp_path):
    """A neighbour is at work meanwhile, and its file lies beside; afterwards all is as it was."""
    beside, folder = tmp_path / "beside", tmp_path / "hostile"
    beside.mkdir()
    (beside / LINEAR.exercise.name).write_bytes(LINEAR.solution.read_bytes())
    neighbour = walled.submission(LINEAR, beside)
    *asked, last = walled.checks(LINEAR)
    try:
        assert {walled.verdict(neighbour, check).word for check in asked} == {"passed"}
        at_work = neighbour.pid
        _grade(walled, handed_in, folder)
        assert walled.verdict(neighbour, last).word == "passed" and neighbour.pid == at_work
        assert sorted(path.name for path in folder.iterdir()) == [handed_in.chapter.exercise.name, "verdicts.json"]
        assert (folder / handed_in.chapter.exercise.name).read_bytes().endswith(handed_in.content)
        assert [path.read_bytes() for path in beside.iterdir()] == [LINEAR.solution.read_bytes()]
        assert not left_behind()
    finally:
        neighbour.close()
        clean()
