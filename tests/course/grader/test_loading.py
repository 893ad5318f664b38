"""Which file is used for each chapter, and that it is the one that was saved last."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from grader.course import chapters, checks, loader, stubs
from grader.course.chapters import ROOT, Chapter
from grader.course.lent import Lent
from grader.front import watch
from grader.judge.edits import _Parts
from grader.judge.engine import Grader
from grader.sandbox.setting import Setting, scan_request
from grader.sandbox.worker import LoadedChapter

FIRST, LAST = Chapter("ex01_first"), Chapter("ex02_last")
FIRST_SOLUTION = '''"""First."""


def one() -> int:
    """1."""
    # BEGIN SOLUTION
    return 1
    # END SOLUTION


def two() -> int:
    """2."""
    # BEGIN SOLUTION
    return 2
    # END SOLUTION
'''
LAST_SOLUTION = '''"""Last."""

from .ex01_first import one, two


def three() -> int:
    """3."""
    # BEGIN SOLUTION
    return one() + two()
    # END SOLUTION
'''
CHECKS = '''
def test_{name}(impl, draw):
    """A rule.

    A hint.
    """
    return impl.{name}()
'''


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A course of two chapters, the second of which uses the first."""
    for folder in ("exercises", "solutions", "tests/hidden", "tests/mistakes"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setattr(chapters, "SOLUTIONS", tmp_path / "solutions")
    monkeypatch.setattr(chapters, "EXERCISES", tmp_path / "exercises")
    monkeypatch.setattr(chapters, "TESTS", tmp_path / "tests")
    for module in ("grader.judge.answer_key", "grader.sandbox.submission"):
        monkeypatch.setattr(sys.modules[module], "SOLUTIONS", tmp_path / "solutions")
    for chapter, source, names in ((FIRST, FIRST_SOLUTION, ["one", "two"]), (LAST, LAST_SOLUTION, ["three"])):
        chapter.solution.write_text(source)
        chapter.exercise.write_text(chapters.make_stub(source))
        chapter.tests().write_text("".join(CHECKS.format(name=name) for name in names))
    chapters.prerequisites.cache_clear()
    yield tmp_path
    chapters.prerequisites.cache_clear()


def _words(chapter: Chapter, folder: Path | None = None) -> list[str]:
    with Grader() as grader:
        return [verdict.word for verdict in grader.grade(chapter, folder)]


def _write(chapter: Chapter, old: str, new: str) -> None:
    source = chapter.solution.read_text()
    assert old in source
    chapter.exercise.write_text(source.replace(old, new))


def test_fresh_course_is_to_do(course):
    assert _words(FIRST) == ["todo", "todo"] and _words(LAST) == ["todo"]


def test_a_student_who_did_only_the_last_chapter(course):
    """The first chapter is not begun, so the reference fills it in."""
    _write(LAST, "one() + two()", "two() + one()")
    assert _words(LAST) == ["passed"] and _words(FIRST) == ["todo", "todo"]


def test_a_student_who_half_began_a_prerequisite(course):
    """What is written is used; what is not is filled in, and its own checks stay to do."""
    stub = chapters.make_stub(FIRST_SOLUTION)
    FIRST.exercise.write_text(stub.replace("raise NotImplementedError", "return 1", 1))
    LAST.exercise.write_text(LAST_SOLUTION)
    assert _words(FIRST) == ["passed", "todo"] and _words(LAST) == ["passed"]
    FIRST.exercise.write_text(stub.replace("raise NotImplementedError", "return 7", 1))
    assert _words(FIRST) == ["wrong", "todo"] and _words(LAST) == ["wrong"]
    assert stubs.lent([FIRST, LAST]) == "Not written yet, so the reference stands in: ex01_first (two)."


def test_nothing_is_lent_where_something_is_handed_in(course):
    FIRST.exercise.write_text(chapters.make_stub(FIRST_SOLUTION).replace(
        "raise NotImplementedError", "return 1 if two() else 0", 1))
    assert _words(FIRST) == ["passed", "todo"]
    assert _words(FIRST, course / "exercises") == ["todo", "todo"]


def test_nothing_is_lent_where_there_is_no_reference(course):
    half = chapters.make_stub(FIRST_SOLUTION).replace("raise NotImplementedError", "return 1", 1)
    FIRST.exercise.write_text(half)
    FIRST.solution.unlink()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(chapters, "stub", lambda chapter: chapters.make_stub(FIRST_SOLUTION))
        assert stubs.lent([FIRST]) == ""


CLASS = '''class Layer:
    """Two methods."""

    LIMIT = 3

    def __init__(self):
        """Start."""
        # BEGIN SOLUTION
        self.size = two() + self.LIMIT
        # END SOLUTION

    def call(self) -> int:
        """Go."""
        # BEGIN SOLUTION
        return _twice(self.size)
        # END SOLUTION


# BEGIN SOLUTION
def _twice(n: int) -> int:
    return 2 * n


# END SOLUTION
def given() -> int:
    return Layer().call()
'''


def _unwritten(course, source: str, methods: bool = False) -> set[str]:
    stubs.parts.cache_clear()
    FIRST.solution.write_text(f"{FIRST_SOLUTION}\n\n{CLASS}")
    FIRST.exercise.write_text(source)
    return set(stubs.unwritten(FIRST, methods=methods))


def test_which_parts_are_not_written(course):
    """A part is unwritten where all of its bodies are the stub's; a class that is half written is the student's."""
    stub = chapters.make_stub(f"{FIRST_SOLUTION}\n\n{CLASS}")
    half = stub.replace('"""Go."""\n        raise NotImplementedError', '"""Go."""\n        return 3')
    for source, expected in (
            (stub, {"one", "two", "Layer"}), (stub.replace('"""Go."""', "# my notes"), {"one", "two", "Layer"}),
            (half, {"one", "two"}), (f"{stub}\n\ntwo = one\n", {"one", "Layer"}),
            (f"{stub}\n\nLayer.call = one\n", {"one", "two"}), (f"from x import one\n{stub}", {"two", "Layer"}),
            (stub.replace("    raise", "    x = 1\n    raise", 1), {"two", "Layer"}),
            (stub.replace("def call", "def helper(self):\n        return 1\n\n    def call"), {"one", "two"}),
            ("def broken(:", set())):
        assert half != stub and _unwritten(course, source) == expected, source
    assert _unwritten(course, half, methods=True) == {"one", "two", "Layer.__init__"}
    assert stubs.leaning_on(FIRST, frozenset({"Layer"})) == {"Layer", "given"}
    assert stubs.leaning_on(FIRST, frozenset({"two"})) == {"two"}
    stubs.parts.cache_clear()


@pytest.mark.parametrize("mine, answer", [
    ("", 10), ("def _twice(n):\n    return 1000\n", 10), ("def two() -> int:\n    return 4\n", 14)])
def test_what_is_lent_meets_what_is_mine(course, mine, answer):
    """It calls the student's other parts; a helper of theirs that bears the name of the reference's is left alone."""
    stub = chapters.make_stub(f"{FIRST_SOLUTION}\n\n{CLASS}")
    if "def two" in mine:
        stub, mine = stub.replace('"""2."""\n    raise NotImplementedError', "return 4"), ""
    source = stub + "\n\n" + mine
    missing = frozenset(_unwritten(course, source))
    tree = ast.parse(source)
    lent = Lent(missing, FIRST.solution)
    lent.fill_in(tree)
    space = {}
    exec(lent.located(compile(ast.fix_missing_locations(tree), str(FIRST.exercise), "exec")), space)
    assert space["given"]() == answer and space.get("_twice", lambda n: 1000)(1) in (1000, 2)
    call = space["Layer"].call.__code__
    assert (call.co_filename, call.co_firstlineno) == (
        str(FIRST.solution), FIRST.solution.read_text().splitlines().index("    def call(self) -> int:") + 1)
    stubs.parts.cache_clear()


def test_a_wrong_prerequisite_of_ones_own_counts(course):
    _write(FIRST, "return 2", "return 5")
    LAST.exercise.write_text(LAST_SOLUTION)
    assert _words(LAST) == ["wrong"]


def test_a_submission_uses_the_reference_for_earlier_chapters(course):
    """When grading, one early slip is not paid for twice."""
    _write(FIRST, "return 2", "return 5")
    LAST.exercise.write_text(LAST_SOLUTION)
    assert _words(LAST, course / "exercises") == ["passed"]
    assert _words(FIRST, course / "exercises") == ["passed", "wrong"]


def test_watch_sees_a_save_in_a_chapter_that_another_builds_on(course):
    before = watch.contents([FIRST, LAST])
    _write(FIRST, "return 2", "return 5")
    assert [c for c, seen in watch.contents([FIRST, LAST]).items() if seen != before[c]] == [FIRST]
    LAST.exercise.write_text(LAST_SOLUTION)
    before = watch.contents([FIRST, LAST])
    _write(FIRST, "return 2", "return 6")
    assert [c for c, seen in watch.contents([FIRST, LAST]).items() if seen != before[c]] == [FIRST, LAST]


def test_what_workers_are_forked_with_is_the_reference_s_alone(course):
    """A student's own prerequisite is loaded anew at each save, also where the reference stood in for it before."""
    LAST.exercise.write_text(LAST_SOLUTION)
    with Grader(many=True) as grader:
        assert [v.word for v in grader.grade(LAST)] == ["passed"]
        for answer, word in ((5, "wrong"), (2, "passed"), (6, "wrong")):
            _write(FIRST, "return 2", f"return {answer}")
            assert [v.word for v in grader.grade(LAST)] == [word]
        FIRST.exercise.write_text(chapters.make_stub(FIRST_SOLUTION))
        assert [v.word for v in grader.grade(LAST)] == ["passed"]


def test_comments_and_spacing_are_no_beginning(course):
    FIRST.exercise.write_text("# my notes\n" + chapters.make_stub(FIRST_SOLUTION).replace("int:", "int :"))
    assert not stubs.started(FIRST)
    FIRST.exercise.write_text("def broken(:\n")
    assert stubs.started(FIRST)


def test_two_saves_within_the_same_second(course):
    """Same size, same second: the second save's code runs."""
    with Grader() as grader:
        for answer, word in ((5, "wrong"), (2, "passed"), (6, "wrong")):
            _write(FIRST, "return 2", f"return {answer}")
            os.utime(FIRST.exercise, (1_700_000_000, 1_700_000_000))
            assert [v.word for v in grader.grade(FIRST)][1] == word


def test_bytecode_of_others_is_not_read(course):
    """A stale .pyc with the file's own time and size is passed over, and none is written."""
    import importlib.util
    import py_compile
    _write(FIRST, "return 2", "return 5")
    os.utime(FIRST.exercise, (1_700_000_000, 1_700_000_000))
    py_compile.compile(FIRST.exercise, importlib.util.cache_from_source(FIRST.exercise))
    _write(FIRST, "return 2", "return 2")
    os.utime(FIRST.exercise, (1_700_000_000, 1_700_000_000))
    before = set(course.rglob("*.pyc"))
    assert _words(FIRST) == ["passed", "passed"]
    assert set(course.rglob("*.pyc")) == before


def test_stubs_are_never_written_over_work(course):
    _write(FIRST, "return 2", "return 5")
    mine = FIRST.exercise.read_bytes()
    LAST.exercise.unlink()
    assert stubs.write_stubs() == ([LAST], [FIRST])
    assert FIRST.exercise.read_bytes() == mine


def test_stubs_follow_a_changed_solution(course):
    FIRST.solution.write_text(FIRST_SOLUTION.replace('"""2."""', '"""Two."""'))
    assert stubs.write_stubs() == ([FIRST], [])
    assert '"""Two."""' in FIRST.exercise.read_text()


def test_reset_keeps_the_old_file(course):
    for content in (b"mine, not even Python: \xe9\n", b"mine again\n"):
        FIRST.exercise.write_bytes(content)
        kept = stubs.reset(FIRST)
        assert kept.read_bytes() == content
        assert FIRST.exercise.read_text() == chapters.make_stub(FIRST_SOLUTION)
    assert stubs.reset(FIRST) is None
    assert len(list(course.glob("exercises/*.bak"))) == 2


def test_unpaired_solution_marks_are_refused():
    with pytest.raises(ValueError, match="twin"):
        chapters.make_stub("def f():\n    # BEGIN SOLUTION\n    return 1\n")


def test_a_helper_of_the_reference_alone_is_not_handed_out():
    helper = "# BEGIN SOLUTION\ndef helper():\n    return 1\n\n\n# END SOLUTION\n"
    start = FIRST_SOLUTION.index("def one")
    with_helper = FIRST_SOLUTION[:start] + helper + FIRST_SOLUTION[start:]
    assert chapters.make_stub(with_helper) == chapters.make_stub(FIRST_SOLUTION)


@pytest.mark.parametrize("name", ["3", "03", "linear", "ex03_linear", "03_linear", "LINEAR", "ex03_linear.py"])
def test_a_chapter_by_any_name(name):
    assert chapters.find(name) == Chapter("ex03_linear")


def test_an_unknown_chapter_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match="'99'.*03_linear"):
        chapters.find("99")


def test_exercises_import_as_a_package(tmp_path):
    """What a notebook does: the student's file if begun, the reference if not, shapes checked."""
    for chapter in chapters.chapters():
        (tmp_path / chapter.exercise.name).write_text(
            chapters.make_stub(chapter.solution.read_text("utf-8")), "utf-8")
    (tmp_path / "ex02_embedding.py").write_text("mine = True\n")
    script = ("from exercises import ex02_embedding as a, ex03_linear as b\n"
              "import torch\n"
              "assert a.mine and b.__file__.endswith('solutions/ex03_linear.py'), b.__file__\n"
              "try: b.linear_backward(torch.ones(2, 3), torch.ones(2, 4), torch.ones(2, 2))\n"
              "except TypeError as error: print(type(error).__name__)\n")
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True,
                          env={**os.environ, "COURSE_EXERCISES": str(tmp_path)})
    assert done.stdout == "TypeCheckError\n", done.stderr


def test_the_finder_leaves_other_packages_alone():
    finder = loader.ChapterFinder("exercises", lambda stem: None)
    assert finder.find_spec("os.path") is None
    assert finder.find_spec("exercises.ex99_nothing") is None


def test_where_an_edit_can_show():
    """A mistake is looked for only by checks that speak of a part that it may change."""
    source = ("import math\n\nLIMIT = 3\nTABLE = {'f': 1}\n\n\ndef helper():\n    return LIMIT\n\n\n"
              "def used():\n    return helper()\n\n\nclass Alone:\n    pass\n")
    parts = _Parts(source)

    def changed(text):
        return parts.using(parts.at(source.index(text), len(text)))
    assert changed("return LIMIT") == {"helper", "used"}
    assert changed("LIMIT = 3") == {"LIMIT", "helper", "used"}
    assert changed("pass") == {"Alone"}
    assert changed("import math") == {"LIMIT", "TABLE", "helper", "used", "Alone"}
    assert changed(source) == changed("import math")
    assert parts.at(source.index("return LIMIT"), 12) == {"helper"} and parts.used_by({"used"}) == {
        "LIMIT", "helper", "used"}


@pytest.mark.parametrize("call", [
    "ask(impl)", "[ask(impl) for _ in range(2)]", "raises(ValueError, lambda: ask(impl))"])
def test_a_check_knows_what_its_helpers_use(call, tmp_path):
    """Wherever a helper is called, in a comprehension or a lambda too, mistakes in it are named."""
    path = tmp_path / "test_ex01_first.py"
    path.write_text("from grader import raises\n\ndef ask(impl):\n    return impl.one()\n\n"
                    f'def test_one(impl, draw):\n    """One."""\n    return {call}\n', "utf-8")
    [check] = checks.collect(path, "ex01_first", hidden=False)
    assert {"ask", "one"} <= check.names


def test_rooms_of_one_worker_share_what_is_the_same(tmp_path):
    """Each imports its own chapter; earlier ones are imported again only from another folder."""
    chapter, earlier = chapters.find("feedforward"), chapters.find("linear")
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(earlier.solution, other)

    def room(name: str, linear: Path) -> LoadedChapter:
        own = tmp_path / name
        own.mkdir()
        shutil.copy(chapter.solution, own)
        folders = {c.stem: str(own if c >= chapter else chapters.SOLUTIONS) for c in chapters.chapters()}
        opened = LoadedChapter(**scan_request(chapter, {**folders, earlier.stem: str(linear)}, own, Setting()))
        opened.scan()
        assert opened.load() == {}
        return opened

    one, two, three = (room(*place) for place in (
        ("one", chapters.SOLUTIONS), ("two", chapters.SOLUTIONS), ("three", other)))
    assert len({one.impl, two.impl, three.impl}) == 3
    assert one.impl.Linear is two.impl.Linear and two.impl.Linear is not three.impl.Linear
