"""The pytest front end: `pytest tests` asks a student's visible checks.

tests/hidden is collected with --hidden or when named, tests/course only when named.
"""

import secrets
import types
from pathlib import Path

import pytest

from grader.course import chapters
from grader.course.chapters import EXERCISES, HIDDEN, TESTS, Chapter, CourseError, shown, tested
from grader.course.packages import need_libraries
from grader.front import report
from grader.judge.engine import Grader
from grader.judge.verdict import Verdict
from grader.sandbox.setting import TIMEOUT, Setting, scan_request

GRADER = pytest.StashKey[Grader]()
CANDIDATES = pytest.StashKey[dict]()
BROKEN = pytest.StashKey[set]()     # chapters whose file as a whole has failed, once


def pytest_addoption(parser):
    group = parser.getgroup("grader")
    group.addoption("--submission", type=Path, metavar="DIR", help="grade the files in DIR")
    group.addoption("--hidden", action="store_true", help="ask the hidden checks too")
    group.addoption("--device", choices=("cpu", "cuda"), default="cpu", help="where checks run")
    group.addoption("--seed", type=int, metavar="N",
                    help="other inputs (default 0; with --submission ones that nobody has seen)")
    group.addoption("--check-timeout", type=float, default=TIMEOUT, metavar="S",
                    help=f"seconds that one check may take (default {TIMEOUT:g})")
    group.addoption("--in-process", action="store_true",
                    help="run the student's code in this process, so that --pdb stops in their line")


def pytest_configure(config):
    folder = config.getoption("submission")
    if folder and not folder.is_dir():
        raise pytest.UsageError(f"--submission {folder} is no folder")
    if config.option.seed is None:      # set once, so that xdist's workers get the same
        config.option.seed = secrets.randbelow(1 << 31) if folder else 0
    try:
        need_libraries()
        if config.getoption("hidden"):
            chapters.without_hidden(chapters.chapters())
    except (CourseError, ValueError) as error:
        raise pytest.UsageError(str(error)) from None


def pytest_report_header(config):
    if config.getoption("submission"):
        return f"these inputs again: --seed {config.option.seed}"
    return None


def pytest_ignore_collect(collection_path, config):
    """Leave out what was not asked for; None lets pytest decide."""
    asked = [Path(str(arg).partition("::")[0]).resolve() for arg in config.args]
    for folder, wanted in ((HIDDEN, config.getoption("hidden")), (TESTS / "course", False)):
        if collection_path == folder and not wanted:
            if not any(arg == folder or folder in arg.parents for arg in asked):
                return True
    return None


def _is_check(function, path: Path) -> bool:
    return path.parent in (TESTS, HIDDEN) and tested(path) is not None


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
        grader = config.stash[GRADER] = Grader(Setting(
            config.getoption("device"), config.getoption("seed"), config.getoption("check_timeout")))
    chapter, hidden = tested(pyfuncitem.path), pyfuncitem.path.parent == HIDDEN
    dtype = getattr(pyfuncitem, "callspec", None) and pyfuncitem.callspec.params.get("dtype")
    check = next((check for check in grader.checks(chapter, hidden) if check.dtype == dtype and
                  (check.file, check.function) == (shown(pyfuncitem.path), pyfuncitem.function.__name__)), None)
    if check is None:
        pytest.skip(f"not asked on {grader.setting.device}")
    folder = config.getoption("submission")
    if config.getoption("in_process") and check.lacking:
        pytest.skip(f"waiting: {check.lacking}")
    if config.getoption("in_process"):
        return _here(config, grader, check, chapter, folder, pyfuncitem.function)
    else:
        verdict = _verdict(config, grader, check, chapter, folder)
    pyfuncitem.user_properties += [("points", verdict.points), ("of_points", check.points), ("verdict", verdict.word),
                                   ("mistake", verdict.mistake), ("hidden", str(check.hidden).lower())]
    if verdict.word in ("todo", "waiting"):
        pytest.skip(f"{verdict.word}: {verdict.facts[0]}")
    if verdict.whole:
        broken = config.stash.setdefault(BROKEN, set())
        if chapter in broken:
            pytest.skip(f"{verdict.word}: no check was asked of {chapter.stem}.py, as said once")
        broken.add(chapter)
    if not verdict.word.fine:
        pytest.fail(report.failure(verdict, grader.setting, folder), pytrace=False)
    return True


def _verdict(config, grader: Grader, check, chapter: Chapter, folder) -> Verdict:
    """What the grader says of a check; one chapter's submissions are open at a time."""
    open_ = config.stash.setdefault(CANDIDATES, {})
    if any(candidate.chapter != chapter for candidate in open_.values()):
        _close(open_)
        for other in [*open_]:
            grader.mistakes.forget(open_.pop(other).chapter)
    if check.hidden not in open_:
        open_[check.hidden] = grader.submission(chapter, folder, check.hidden)
    return grader.verdict(open_[check.hidden], check, grader.checks(chapter, check.hidden))


def _close(candidates: dict) -> None:
    for candidate in candidates.values():
        candidate.close()


def _here(config, grader: Grader, check, chapter: Chapter, folder, function) -> bool:
    """Run the check in this process, so that a debugger stops in the student's own line."""
    from grader.sandbox import wire
    from grader.sandbox.worker import LoadedChapter

    candidate = grader.submission(chapter, folder)
    if candidate.is_to_do(check):
        pytest.skip("todo: this part is not written yet")
    here = LoadedChapter(**scan_request(chapter, candidate.folders, folder or EXERCISES, grader.setting,
                                        lent=candidate.lent))
    for line, name, part in here.scan().get("forbidden", ()):
        if not part or part in check.names:
            pytest.fail(f"line {line} uses {name}, which is yours to write here", pytrace=False)
    here.load_here()
    draw, dtype = here.prepare(check.function, check.dtype, grader.setting.seed)
    try:
        answer = function(here.impl, draw, *dtype)
    except NotImplementedError as error:
        if not error.args:
            pytest.skip("todo: a part is not written yet")
        raise _from_own_line(error, candidate) from None
    except Exception as error:
        raise _from_own_line(error, candidate) from None
    tree, body = wire.encode(answer, draw.storages())
    if grader.key.judge(check, {"answer": tree, "changed": draw.changed()}, body):
        said = report.failure(_verdict(config, grader, check, chapter, folder), grader.setting, folder)
        header, content = grader.key.right_answer(check)
        _look(said, answer, wire.plain(wire.decode(header["answer"], content)))
    return True


def _look(said: str, answer, expected):
    """Here a debugger stops: `answer` is what your code gave, `expected` what the reference gives.

    To stop in your own code, write breakpoint() there and run the command again.
    """
    raise AssertionError(f"{said}\n\n{_look.__doc__.strip()}")


def _from_own_line(error: Exception, candidate) -> Exception:
    """The error, with its traceback ending in the last line that is the student's."""
    steps, trace = [], error.__traceback__
    while trace is not None:
        steps.append(trace)
        trace = trace.tb_next
    own = [i for i, step in enumerate(steps) if Path(step.tb_frame.f_code.co_filename).parent == candidate.folder]
    if own:
        short = None
        for step in reversed(steps[:own[-1] + 1]):
            short = types.TracebackType(short, step.tb_frame, step.tb_lasti, step.tb_lineno)
        error = error.with_traceback(short)
    return error


def pytest_unconfigure(config):
    _close(config.stash.get(CANDIDATES, {}))
    if grader := config.stash.get(GRADER, None):
        grader.close()
