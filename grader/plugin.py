"""The pytest front end: `pytest tests` asks a student's visible checks.

tests/hidden is collected with --hidden or when named, tests/course only when named.
"""

from pathlib import Path

import pytest

from grader import checks, report
from grader.chapters import EXERCISES, TESTS, Chapter
from grader.engine import FINE, TIMEOUT, Grader, Verdict

GRADER = pytest.StashKey[Grader]()
CANDIDATE = pytest.StashKey()


def pytest_addoption(parser):
    group = parser.getgroup("grader")
    group.addoption("--submission", type=Path, metavar="DIR", help="grade the files in DIR")
    group.addoption("--hidden", action="store_true", help="ask the hidden checks too")
    group.addoption("--device", choices=("cpu", "cuda"), default="cpu", help="where checks run")
    group.addoption("--seed", type=int, default=0, metavar="N", help="other inputs (default 0)")
    group.addoption("--check-timeout", type=float, default=TIMEOUT, metavar="S",
                    help=f"seconds that one check may take (default {TIMEOUT:g})")
    group.addoption("--in-process", action="store_true",
                    help="run the student's code in this process, so that --pdb stops in their line")


def pytest_configure(config):
    folder = config.getoption("submission")
    if folder and not folder.is_dir():
        raise pytest.UsageError(f"--submission {folder} is no folder")


def pytest_ignore_collect(collection_path, config):
    """Leave out what was not asked for; None lets pytest decide."""
    asked = [Path(str(arg).partition("::")[0]).resolve() for arg in config.args]
    for folder, wanted in ((TESTS / "hidden", config.getoption("hidden")), (TESTS / "course", False)):
        if collection_path == folder and not wanted:
            if not any(arg == folder or folder in arg.parents for arg in asked):
                return True
    return None


def _is_check(function, path: Path) -> bool:
    return path.parent in (TESTS, TESTS / "hidden") and path.name.startswith("test_ex")


def pytest_generate_tests(metafunc):
    """One item per dtype, named as the grader names it."""
    dtypes = getattr(metafunc.function, "marks", {}).get("dtypes")
    if dtypes and _is_check(metafunc.function, metafunc.definition.path):
        metafunc.parametrize("dtype", dtypes)


@pytest.fixture
def impl():
    """The module under test; the grader supplies it."""


@pytest.fixture
def draw():
    """The inputs of a check; the grader supplies them."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Ask a check of the grader instead of calling it."""
    if not _is_check(pyfuncitem.function, pyfuncitem.path):
        return None
    config = pyfuncitem.config
    grader = config.stash.get(GRADER, None)
    if grader is None:
        grader = config.stash[GRADER] = Grader(
            config.getoption("device"), config.getoption("seed"), config.getoption("check_timeout"))
    chapter = Chapter(pyfuncitem.path.stem.removeprefix("test_"))
    hidden = pyfuncitem.path.parent.name == "hidden"
    dtype = getattr(pyfuncitem, "callspec", None) and pyfuncitem.callspec.params.get("dtype")
    check = next(check for check in checks.expand(pyfuncitem.function, chapter.stem, hidden)
                 if check.dtype == dtype)
    if grader.setting.device not in check.devices:
        pytest.skip(f"not asked on {grader.setting.device}")
    folder = config.getoption("submission")
    if config.getoption("in_process"):
        verdict = _here(grader, check, chapter, folder, pyfuncitem.function)
    else:
        verdict = grader.verdict(_candidate(config, grader, chapter, folder), check,
                                 grader.checks(chapter, hidden))
    if verdict.word in ("todo", "waiting"):
        pytest.skip(f"{verdict.word}: {verdict.facts[0]}")
    if verdict.word not in FINE:
        pytest.fail(report.failure(verdict, grader.setting, folder), pytrace=False)
    return True


def _candidate(config, grader: Grader, chapter: Chapter, folder):
    """The chapter's submission; one is open at a time."""
    candidate = config.stash.get(CANDIDATE, None)
    if candidate is None or candidate.chapter != chapter:
        if candidate:
            candidate.close()
            grader.forget_suspects(candidate.chapter)
        candidate = config.stash[CANDIDATE] = grader.submission(chapter, folder)
    return candidate


def _here(grader: Grader, check, chapter: Chapter, folder, function) -> Verdict:
    """Run the check in this process; what the student's code raises passes through."""
    from grader import wire
    from grader.submission import scan_request
    from grader.worker import Room

    room = Room()
    folders = grader.submission(chapter, folder).folders
    broken = room.scan(**scan_request(chapter, folders, folder or EXERCISES, grader.setting.device))
    if broken:
        line, name = broken["forbidden"][0]
        return Verdict(check, "forbidden", [f"line {line} uses {name}, which is yours to write here"])
    room.load_here()
    draw, dtype = room.prepare(check.function, check.dtype, grader.setting.seed)
    try:
        answer = function(room.impl, draw, *dtype)
    except NotImplementedError as error:
        if error.args:
            raise
        return Verdict(check, "todo", ["a part is not written yet"])
    tree, body = wire.encode(answer, draw.storages())
    facts = grader.judge_here(check, {"answer": tree, "changed": draw.changed()}, body)
    return Verdict(check, "wrong" if facts else "passed", facts)


def pytest_unconfigure(config):
    if candidate := config.stash.get(CANDIDATE, None):
        candidate.close()
    if grader := config.stash.get(GRADER, None):
        grader.close()
