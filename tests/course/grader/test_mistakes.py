"""How a known mistake is recognized: errors by what raised them, two mistakes together, names defined twice."""

import pytest

from grader.course import chapters
from grader.judge import definitions
from grader.judge.edits import edits, joined
from grader.judge.referee import Referee, _same_exception, _telling
from grader.sandbox import wire
from grader.sandbox.setting import Setting, scan_request
from grader.sandbox.worker import LoadedChapter
from tests.course.grader.test_screens import edited


def raised(kind: str, message: str, part: str = "f", operation: str = "Div", named=()) -> dict:
    return {"raised": kind, "message": message, "place": [part, operation], "named": list(named)}


SIZES = "The size of tensor a (4) must match the size of tensor b (8) at non-singleton dimension 1"


@pytest.mark.parametrize("mine, theirs, same", [
    # Python's words for it differ from version to version
    (raised("ZeroDivisionError", "division by zero"), raised("ZeroDivisionError", "float division by zero"), True),
    (raised("ZeroDivisionError", "division by zero"), raised("ZeroDivisionError", "division by zero", "g"), False),
    (raised("ZeroDivisionError", "division by zero"), raised("ZeroDivisionError", "division by zero", "f", "Mod"),
     False),
    (raised("ValueError", "math domain error", "f", "math.log"),
     raised("ValueError", "expected a positive input, got 0.0", "f", "math.log"), True),
    (raised("ValueError", "math domain error", "f", "math.log"),
     raised("ValueError", "math domain error", "f", "math.sqrt"), False),
    # one refusal is another's where both name the same argument
    (raised("ValueError", "k must be positive", "f", "Raise", ["k"]),
     raised("ValueError", "bad k: 0", "g", "Raise", ["k"]), True),
    (raised("ValueError", "k must be positive", "f", "Raise", ["k"]),
     raised("ValueError", "p must be positive", "f", "Raise", ["p"]), False),
    # words that speak of this input may come from another operation of that part
    (raised("RuntimeError", SIZES, "f", "Add"), raised("RuntimeError", SIZES, "f", "Mult"), True),
    (raised("RuntimeError", SIZES, "f", "Add"), raised("RuntimeError", SIZES, "g", "Add"), False),
    (raised("IndexError", "list index out of range", "f", "Subscript"),
     raised("IndexError", "list index out of range", "f", ".pop"), False),
    (raised("TypeError", "no len() of <A at 0x7f01aa20>", "f", "len"),
     raised("TypeError", "no len() of <A at 0x7f01bb20>", "f", "len"), True),
    (raised("TypeError", "a"), raised("KeyError", "a"), False),
    # as an older record has it
    ({"raised": "TypeError", "message": "a", "named": []}, raised("TypeError", "a"), True),
])
def test_an_error_is_told_by_what_raised_it(mine, theirs, same):
    assert _same_exception(mine, theirs) == _same_exception(theirs, mine) == same


@pytest.mark.parametrize("line, operation", [
    ("x = 1 / zero", "Div"), ("x = zero\n    x %= zero", "Mod"), ("x = torch.stack([])", "torch.stack"),
    ("x = torch.ones(2).view(3)", ".view"), ("x = [].nothing", ".nothing"), ("x = [][zero]", "Subscript"),
    ("raise KeyError(zero)", "Raise"), ("x = len(zero)", "len"), ("a, b = [zero]", "Tuple"),
])
def test_where_an_error_was_raised(line, operation, tmp_path):
    """In the file, in a helper that only this file has: the part is the course's that called it."""
    chapter = chapters.find("linear")
    source = edited(chapter.stem, ("return 2 * batch", "return _helper(0) * batch"))
    source += f"\n\ndef _helper(zero):\n    {line}\n    return x\n"
    (tmp_path / f"{chapter.stem}.py").write_text(source, "utf-8")
    folders = {other.stem: str(chapters.SOLUTIONS) for other in chapters.chapters()} | {chapter.stem: str(tmp_path)}
    loaded = LoadedChapter(**scan_request(chapter, folders, tmp_path, Setting()))
    assert not loaded.scan() and not loaded.load()
    reply, _ = loaded.ask(chapter.tests().relative_to(chapters.ROOT).as_posix(), "test_flops", None, 0)
    assert reply["operation"] == operation
    assert [frame["function"] for frame in reply["frames"]][-1] == "_helper"


# -- two together ------------------------------------------------------------------------------------

def test_two_mistakes_are_made_in_one_file():
    """Also where one of them is written down with lines of the other's around it, which it does not change."""
    chapter = chapters.find("training")
    eps, late, rate = (next(edit for edit in edits(chapter, "mistake") if words in edit.words)
                       for words in ("eps is added to √v before", "The decay comes after", "Step 0 has"))
    both = joined(chapter, eps, late)
    assert 'root = state["v"].sqrt().add_(group["eps"]) / v_scale ** 0.5' in both
    assert both.index("p.mul_(1 - lr") > both.index("p.addcdiv_(")
    assert joined(chapter, late, eps) == both
    assert not joined(chapter, eps, rate), "they lie in two parts"
    clash = [edit for edit in edits(chapter, "mistake") if edit.words.startswith("eps is")]
    assert not joined(chapter, *clash[:2]), "they change one line"


def test_an_edit_knows_where_it_lies():
    late = next(edit for edit in edits(chapters.find("18"), "mistake") if "What MoE is told" in edit.words)
    assert late.own == {"MoE"} and "MoE" in late.parts and "Router" in late.leans and not late.leans & late.parts


def test_two_that_share_out_the_wrong_parts(tmp_path):
    """Each gives some of an answer's wrong parts, and both give all."""
    chapter, referee = chapters.find("linear"), Referee()
    folders = {other.stem: str(chapters.SOLUTIONS) for other in chapters.chapters()}
    question = {"file": "tests/test_ex03_linear.py", "function": "test_flops", "dtype": None, "seed": 0}
    assert not referee.prepare(scan_request(chapter, folders, chapters.SOLUTIONS, Setting()), [question])["broken"]
    right = wire.plain(referee.right[chapter.stem, *sorted(question.items())].answer)

    def wrong(**changes) -> dict:
        answer = [changes.get(f"at{i}", value) for i, value in enumerate(right)]
        tree, body = wire.encode(answer)
        return {"chapter": chapter.stem, "question": question, "rtol": None, "body": body,
                "reply": {"answer": tree, "changed": []}}
    assert len(right) >= 2
    for number, changes in enumerate(({"at0": 1}, {"at1": 2}, {"at0": 3})):
        assert referee.learn(**wrong(**changes), mistake=number, by_size=False) == {"wrong": True}
    assert referee.liken(**wrong(at0=1))["whole"] == [0]
    found = referee.liken(**wrong(at0=1, at1=2))
    assert not found["whole"] and found["part"] == [0, 1] and found["both"] == [(0, 1)]
    found = referee.liken(**wrong(at0=1, at1=5))
    assert not found["whole"] and not found["both"], "part of it stays unexplained"


def test_yes_for_no_does_not_speak_for_two():
    right = wire.decode(*wire.encode({"even": True, "near": True, "mean": 1.5}))
    assert not _telling(right, ["even", "near"]) and not _telling(right, [])
    assert _telling(right, ["even", "mean"]) and _telling(right, [""]) and _telling(right, ["inputs"])


# -- defined twice -----------------------------------------------------------------------------------

TWICE = b'''
class A:
    x = 1

    def f(self):
        def inner(): pass
        def inner(): pass

    @property
    def p(self): pass

    @p.setter
    def p(self, value): pass

    def f(self): pass

if A:
    def h(): pass
else:
    def h(): pass

def k(): pass

class B:
    def f(self): pass

def k(): pass

async def k(): pass
'''


def test_what_is_defined_twice():
    assert definitions.several_times(TWICE) == {"A.f": [5, 15], "k": [22, 27, 29]}
    assert definitions.said(TWICE, {"A"}, []) == ["A.f is defined twice, lines 5 and 15: the second one counts"]
    assert definitions.said(TWICE, (), ["a call of k"]) == [
        "k is defined 3 times, lines 22, 27 and 29: the last one counts"]
    assert not definitions.said(TWICE, {"B", "f"}, ["f"])


@pytest.mark.parametrize("source", [b"\xff\xfe\0", b"", b"class", b"(" * 100_000, b"def f(" * 1000])
def test_any_text_may_be_looked_through(source):
    assert not definitions.said(source, {"f"}, [])


@pytest.mark.parametrize("chapter", chapters.chapters(), ids=lambda chapter: chapter.stem)
def test_no_solution_defines_a_name_twice(chapter):
    assert not definitions.several_times(chapter.solution.read_bytes())
