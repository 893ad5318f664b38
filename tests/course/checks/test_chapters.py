"""Every chapter holds what a chapter promises: the course's own tests of its checks."""

import ast
import contextlib
import inspect
import tomllib
from itertools import islice

import pytest
import torch

import grader as grader_package
from grader.author.fixed import fixed
from grader.course import chapters, checks, lesson, stubs
from grader.front import report
from grader.judge.edits import edits
from grader.judge.engine import Grader
from grader.judge.referee import Referee
from grader.sandbox.setting import TIMEOUT, Setting, scan_request
from grader.sandbox.submission import Submission
from grader.sandbox.worker import LoadedChapter
from tests.course.checks.touched import ASK_ALL, SEEDS, Edited, changed_by, lines_of_checks, right_reply

CHAPTERS = chapters.chapters()
EVERY_CHAPTER = pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.stem)


@pytest.fixture(scope="module", params=SEEDS, ids=lambda seed: f"seed{seed}")
def grader(request):
    with Grader(Setting(seed=request.param)) as grader:
        yield grader


def asked(verdicts) -> list:
    """The verdicts on what can be asked here: all of them, where every package that a check needs is installed."""
    return [verdict for verdict in verdicts if not verdict.check.lacking]


@EVERY_CHAPTER
def test_solution_passes_every_check(chapter, grader):
    verdicts = list(grader.grade(chapter, chapters.SOLUTIONS, hidden=True))
    for verdict in asked(verdicts):
        assert verdict.word == "passed", report.failure(verdict, grader.setting)
    if waiting := [verdict for verdict in verdicts if verdict.check.lacking]:
        assert {verdict.word for verdict in waiting} == {"waiting"}
        pytest.skip(f"the others pass, and {len(waiting)} checks wait: {waiting[0].facts[0]}")


@EVERY_CHAPTER
@pytest.mark.parametrize("grader", SEEDS[:1], indirect=True, ids=lambda seed: f"seed{seed}")
def test_stub_is_all_to_do(chapter, grader, tmp_path):
    (tmp_path / chapter.exercise.name).write_text(
        chapters.make_stub(chapter.solution.read_text("utf-8")), "utf-8")
    for verdict in asked(grader.grade(chapter, tmp_path, hidden=True)):
        assert verdict.word == "todo", f"{verdict.check.name}: {verdict}"


@EVERY_CHAPTER
def test_every_mistake_is_caught_and_named(chapter, one_thread):
    """At the first check that a mistake breaks, which is the one shown, a student reads its own sentence and no other.

    A known mistake is a submission like any other, so it can be graded as one. With SEEDS above 1, as every week, it is
    asked every check, also the hidden ones, and named at each that it breaks.
    """
    lines = lines_of_checks(chapter)
    with Grader() as grader:
        everything, visible = ([check for check in grader.checks(chapter, hidden) if not check.lacking]
                               for hidden in (ASK_ALL, False))
        suspects = grader.mistakes.suspects(chapter)
        changed = [changed_by(suspect.edit.source, chapter, lines) for suspect in suspects]
        if not ASK_ALL:
            right = {check: right_reply(grader.key, check) for check in everything}
            for suspect, may in zip(suspects, changed):
                suspect.submission = Edited(suspect.submission, grader.setting, may, right)
        for suspect, may in zip(suspects, changed):
            verdicts = (grader.verdict(suspect.submission, check, everything) for check in everything
                        if ASK_ALL or check in may)
            broken = [*islice((verdict for verdict in verdicts if verdict.word != "passed"), None if ASK_ALL else 1)]
            for verdict in broken:
                assert verdict.word in ("wrong", "error"), (suspect.edit.words, verdict)
                assert verdict.mistake == suspect.edit.words, report.failure(verdict, grader.setting)
                assert verdict.check in may, f"it was taken to change nothing here: {suspect.edit.words}"
            seen = next((verdict.check for verdict in broken if not verdict.check.hidden), None)
            assert seen, f"no visible check catches: {suspect.edit.words}"
            if ASK_ALL:
                shown = grader.verdict(suspect.submission, seen, visible)
                assert shown.mistake == suspect.edit.words, "without the hidden checks another is named"


@EVERY_CHAPTER
def test_every_mistake_is_caught_on_every_seed(chapter, tmp_path):
    """By a visible check, on the seeds that the test above leaves out. Asked in this process,
    which is faster than a worker.
    """
    if len(SEEDS) == 1:
        pytest.skip("one seed only; more with SEEDS=5")
    torch.set_num_threads(1)
    folders = {other.stem: str(chapters.SOLUTIONS) for other in CHAPTERS}
    scan = scan_request(chapter, folders, chapters.SOLUTIONS, Setting())
    visible = [check for check in checks.collect(chapter.tests(), chapter.stem, hidden=False)
               if "cpu" in check.devices and not check.lacking]
    key, prepared = Referee(), set()

    def catches(check, loaded, failed, seed) -> bool:
        question = Setting("cpu", seed, TIMEOUT).question(check)
        if (check, seed) not in prepared:
            assert key.prepare(scan, [question]) == {"broken": None}
            prepared.add((check, seed))
        reply, body = (failed, b"") if failed else loaded.ask(**question)
        return "answer" not in reply or bool(
            key.judge(chapter.stem, question, reply, check.rtol, body)["facts"])

    for number, mistake in enumerate(edits(chapter, "mistake")):
        folder = str(mistake.write(chapter, tmp_path / str(number)))
        loaded = LoadedChapter(**{**scan, "folders": {**folders, chapter.stem: folder}})
        loaded.scan()
        failed = loaded.load()
        for seed in SEEDS[1:]:
            caught = next((check for check in visible if catches(check, loaded, failed, seed)), None)
            assert caught, f"seed {seed}: no visible check catches: {mistake.words}"
            visible.sort(key=lambda check: check != caught)     # asked first the next time


@EVERY_CHAPTER
@pytest.mark.parametrize("grader", SEEDS[:2], indirect=True, ids=lambda seed: f"seed{seed}")
def test_every_alternative_passes(chapter, grader, tmp_path, one_thread):
    lines = lines_of_checks(chapter)
    every = [check for check in grader.checks(chapter, hidden=True) if not check.lacking]
    grader.key.prepare(every)
    slot = grader.submission(chapter, chapters.SOLUTIONS).slot     # one process for all, as known mistakes have
    with contextlib.closing(slot):
        for number, alternative in enumerate(edits(chapter, "alternative")):
            folder = alternative.write(chapter, tmp_path / str(number))
            may = changed_by(alternative.source, chapter, lines)
            candidate = Submission(slot, grader.setting, chapter, folder, hidden=True)
            for check in (check for check in every if ASK_ALL or check in may):
                verdict = grader.verdict(candidate, check)
                assert verdict.word == "passed", (
                    f"{alternative.words}\n{report.failure(verdict, grader.setting)}")


@EVERY_CHAPTER
def test_stub_matches_solution(chapter):
    """A stub that holds no work is the one that the solution gives; a begun one is left alone."""
    if chapter.exercise.exists() and not stubs.untouched(chapter):
        pytest.skip(f"{chapter.stem} is begun")
    stub = chapters.make_stub(chapter.solution.read_text("utf-8"))
    assert chapter.exercise.read_text("utf-8") == stub, "run: python -m grader stubs"


@EVERY_CHAPTER
def test_a_chapter_is_complete(chapter):
    """Every file is there, with at least as many checks and mistakes as a chapter must have."""
    visible = checks.collect(chapter.tests(), chapter.stem, hidden=False)
    hidden = checks.collect(chapter.tests(hidden=True), chapter.stem, hidden=True)
    assert len({check.function for check in visible}) >= 6
    assert len({check.function for check in hidden}) >= 4
    assert not {check.name for check in visible} & {check.name for check in hidden}
    assert all(check.hint for check in visible), "a visible check has a rule and a hint"
    table = tomllib.loads(chapter.mistakes.read_text("utf-8"))
    assert table.keys() == {"mistake", "alternative"}
    assert len(table["mistake"]) >= 6 and len(table["alternative"]) >= 2
    assert chapter.notebook.exists()
    assert chapter.title


@EVERY_CHAPTER
def test_few_answers_can_be_known_by_heart(chapter, asked_by_name):
    """At most 15 % of the points are for answers that no seed changes."""
    same, share = fixed([chapter])[chapter]
    assert share <= 0.15, f"{share:.0%}: " + ", ".join(check.name for check in same)


@EVERY_CHAPTER
def test_every_public_name_is_documented(chapter):
    """Functions, classes and methods of a solution say what they do, and annotate arguments."""
    for node in ast.walk(ast.parse(chapter.solution.read_text("utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            if node.name not in ("forward", "backward"):
                assert ast.get_docstring(node), f"{node.name} has no docstring"
        if isinstance(node, ast.FunctionDef):
            for argument in [*node.args.args, *node.args.kwonlyargs]:
                assert argument.arg in ("self", "ctx") or argument.annotation, f"{node.name}({argument.arg})"


@EVERY_CHAPTER
def test_checks_assert_nothing(chapter):
    """A check returns an answer; only the trusted side compares."""
    for hidden in (False, True):
        for name, function in vars(checks.load(chapter.tests(hidden))).items():
            if name.startswith("test_"):
                tree = ast.parse(inspect.getsource(function))
                assert not any(isinstance(node, ast.Assert) for node in ast.walk(tree)), name
                assert any(isinstance(node, ast.Return) for node in ast.walk(tree)), name


@EVERY_CHAPTER
def test_the_reference_refuses_what_a_check_wants_refused(chapter, monkeypatch):
    """A `raises` that the reference does not raise as asked would fail the better student.

    What must *not* be refused is asked with `accepts`.
    """
    found, now, asked = [], None, 0

    def raises(exception, call, names=""):
        nonlocal asked
        asked += 1
        said = checks.raises(exception, call, names)
        if said != exception.__name__ + f" that names {names!r}" * bool(names):
            found.append(f"{now.name}: {said}, asked for {exception.__name__} {names}")
        return said

    monkeypatch.setattr(grader_package, "raises", raises)       # what the checks import, once they are loaded
    folders = {other.stem: str(chapters.SOLUTIONS) for other in CHAPTERS}
    loaded = LoadedChapter(**scan_request(chapter, folders, chapters.SOLUTIONS, Setting()))
    assert not loaded.scan()
    assert not loaded.load()
    for hidden in (False, True):
        for now in checks.collect(chapter.tests(hidden), chapter.stem, hidden):
            if now.lacking:
                continue
            assert "answer" in loaded.ask(**Setting().question(now))[0], now.name
    assert not found, "\n".join(found)
    assert asked, "nothing is asked to be refused"


def test_readme_table_is_generated():
    assert lesson.table() in (chapters.ROOT / "README.md").read_text("utf-8"), (
        "run: python -m grader table")
