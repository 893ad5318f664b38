"""The pages that are handed back: what stands on them, and what never may; and which submissions look alike."""

import ast
import random
import re
import xml.etree.ElementTree as xml
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from grader.classroom.output import exports, pages, similar
from grader.classroom.output.gradebook import Gradebook
from grader.classroom.output.grading import Grading
from grader.classroom.run.cells import Cell
from grader.course.chapters import TESTS, Chapter
from grader.front.results import Asked, Line, Result
from grader.judge import mistakes
from grader.judge.verdict import Word

ANSWERS = Path(__file__).parent / "alike"       # written on their own, in three styles; all pass every check
STEMS = ("ex00_shapes", "ex03_linear", "ex05_softmax", "ex09_attention")
SECRET = "SECRET-OF-A-HIDDEN-CHECK"
HOSTILE = ('<script>alert(1)</script><img src="https://evil.example/x.png" onerror=alert(1)>'
           "\x1b[2J\x00\u202e{{ 7 * 7 }}\ud800 '\"><b>bold</b> </pre></style>")
WORDS = ("passed", "passed", "passed", "wrong", "error", "todo")
MANIFEST = {"version": "0.1.0", "commit": "8e6a443f00", "clean": True, "torch": "2.13.0", "python": "3.11.7",
            "seed": 1234567, "options": {"walls": True}, "begun": "2026-11-22T08:00:00+0000",
            "layers": {"no network": True, "only its own files": True, "no new process": True},
            "students": {}, "refused": {"<b>link</b>": "a link is not followed"}, "not_asked": []}


def questions(stem: str) -> list[Asked]:
    """Plausible checks of a chapter: its real rules and hints, and two hidden ones."""
    file, found = TESTS / f"test_{stem}.py", []
    for node in ast.parse(file.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            rule, _, hint = ast.get_docstring(node).partition("\n")
            for kind in ("[float32]", "[float64]") if "forward" in node.name else ("",):
                found.append(Asked(node.name + kind, f"tests/{file.name}", False, 1.0, rule, hint.strip()))
    return found + [Asked(f"test_{SECRET}_{n}", f"tests/hidden/{file.name}", True, 1.0, f"Sizes of one work ({n}).",
                          SECRET) for n in range(2)]


FACTS = {"wrong": ("24 of 24 numbers differ; the first is [0, 0, 0]: you gave 0.105253, expected 1.84463",
                   "the largest error is 2.5 of its row's size; 2e-05 is allowed for float32"),
         "error": ("AttributeError: 'Linear' object has no attribute 'wieght'",),
         "todo": ("this part is not written yet",)}


def cell(student: str, stem: str, rng: random.Random) -> Cell:
    """A cell as grading writes it."""
    known = [edit.words for edit in mistakes.edits(Chapter(stem), "mistake")[:4]]
    line = Line(f"{stem}.py", 41, "Linear.forward",
                "return x @ self.wieght.T + self.bias_with_a_rather_long_name_that_wraps")
    verdicts, luck = [], rng.random()
    for check in questions(stem):
        word = Word("passed" if rng.random() < luck else rng.choice(WORDS))
        mistake = rng.choice(known) if word == "wrong" and rng.random() < 0.6 else ""
        result = Result(**vars(check), verdict=word, mistake=mistake, facts=FACTS.get(word, ()),
                        lines=(line,) * (word == "error"), seconds=0.01)
        if check.hidden:
            result = replace(result, facts=(SECRET,), output=SECRET, mistake=SECRET if word == "wrong" else "",
                             lines=(Line(f"{stem}.py", 4, SECRET, SECRET),))
        verdicts.append(result)
    return graded(student, stem, *verdicts)


def graded(student: str, stem: str, *verdicts: Result) -> Cell:
    return Cell(student, Chapter(stem), "graded", "", {}, 0, "cpu", 10.0, True, 0.0, verdicts)


def every(cell: Cell, **changed) -> Cell:
    """The cell with all its verdicts changed."""
    return replace(cell, verdicts=tuple(replace(result, **changed) for result in cell.verdicts))


def book(*cells: Cell) -> Gradebook:
    """What they are worth: a point for each check."""
    checks = {one.chapter.stem: questions(one.chapter.stem) for one in cells}
    return Gradebook(cells, checks, Grading())


def a_class() -> list[Cell]:
    """20 students × 4 chapters: most are ordinary; some hand in nothing, or what cannot be loaded, or attacks."""
    rng = random.Random(0)
    names = ("ada", "alan", "barbara", "claude", "dennis", "donald", "edsger", "frances", "grace", "hedy", "ida",
             "jean", "joan", "ken", "linus", "margaret", "mary ann o'neill-fitzgerald@example.org", "niklaus",
             "sophie", "tim")
    by = {(name, stem): cell(name, stem, rng) for name in names for stem in STEMS}

    def change(name: str, stem: str, how) -> None:
        by[name, stem] = how(by[name, stem])
    change("alan", "ex00_shapes", lambda one: replace(
        one, state="missing", note="there is my_ex00_shapes.py", verdicts=()))
    change("tim", "ex09_attention", lambda one: replace(one, state="missing", verdicts=()))
    change("hedy", "ex03_linear", lambda one: every(
        one, verdict=Word.ERROR, whole=True, mistake="", output="", facts=("SyntaxError: '(' was never closed",),
        lines=(Line("ex03_linear.py", 31, "", "std = math.sqrt(2 / ("),)))
    change("ken", "ex05_softmax", lambda one: every(
        one, verdict=Word.ERROR, facts=(HOSTILE,), output=HOSTILE * 400, mistake="",
        lines=(Line("ex05_softmax.py", 3, HOSTILE, HOSTILE),)))
    return [*by.values()]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run's folder with its pages: ada, alan and barbara wrote on their own, ken renamed what ada has."""
    out = tmp_path_factory.mktemp("run")
    for stem in ("ex03_linear", "ex09_attention"):
        sources = {"ada": "plain", "alan": "einops", "barbara": "verbose"}
        texts = {name: (ANSWERS / f"{stem}_{style}.py").read_text("utf-8") for name, style in sources.items()}
        for name, text in {**texts, "ken": renamed(texts["ada"])}.items():
            (out / "submissions" / name).mkdir(parents=True, exist_ok=True)
            (out / "submissions" / name / f"{stem}.py").write_text(text, "utf-8")
    pages.write(out, book(*a_class()), MANIFEST)
    return out


def renamed(source: str) -> str:
    """The same program with every variable called otherwise, functions in another order, comments gone."""
    tree = ast.parse(source)
    arguments = {arg.arg for node in ast.walk(tree) if isinstance(node, ast.arguments) for arg in node.args}
    stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in stored - arguments:
            node.id = f"my_{node.id[::-1]}"
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    tree.body = imports + [node for node in tree.body if node not in imports][::-1]
    return ast.unparse(tree)


class Seen(HTMLParser):
    """What a browser would make of a page: its tags, and the text that a reader sees."""

    def __init__(self, page: Path):
        super().__init__()
        self.tags, self.attributes, self.text = set(), [], ""
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


def every_page(run: Path) -> list[Path]:
    return [run / "class.html", *sorted((run / "feedback").iterdir())]


def test_every_student_has_a_page_and_nothing_else_is_written(run):
    names = {path.name for path in (run / "feedback").iterdir()}
    assert len(names) == 20 and "ada.html" in names
    assert {path.name for path in run.iterdir()} == {"feedback", "class.html", "submissions"}


def test_a_student_sees_of_a_hidden_check_its_rule_and_whether_it_passed(run):
    for page in (run / "feedback").iterdir():
        assert SECRET not in page.read_text("utf-8")
    text = " ".join(Seen(run / "feedback" / "ken.html").text.split())
    assert "Sizes of one work (0)." in text.partition("Hidden checks that did not pass")[2]


@pytest.mark.parametrize("word", [word for word in Word if word != Word.PASSED])
@pytest.mark.parametrize("whole", [False, True])
def test_how_a_hidden_check_failed_is_not_said(word, whole, tmp_path):
    """Whichever way a submission that knows it is asked a hidden check fails it, its page is the same."""
    ada, pages_of = cell("ada", STEMS[0], random.Random(1)), []
    for number, verdict in enumerate((Word.WRONG, word)):
        now = replace(ada, verdicts=tuple(
            replace(result, verdict=verdict, whole=whole and number == 1, facts=(SECRET,)) if result.hidden else result
            for result in ada.verdicts))
        pages.write(tmp_path / str(number), book(now), MANIFEST)
        exports.write(tmp_path / str(number), book(now))
        pages_of.append([(tmp_path / str(number) / name).read_text("utf-8")
                         for name in ("feedback/ada.html", "results/ada.json")])
    assert pages_of[0] == pages_of[1]


def test_a_page_asks_for_nothing_and_runs_nothing(run):
    for page in every_page(run):
        seen = Seen(page)
        assert not seen.tags & {"script", "img", "link", "iframe", "object", "embed", "form", "svg", "base", "video"}
        for name, value in seen.attributes:
            assert not name.startswith("on")
            assert name not in ("src", "srcset", "action", "data", "background")
            if name == "href":
                assert re.fullmatch(r"#ch\d\d|feedback/[^/:]+\.html(#ch\d\d)?|class\.html", value), value
        style = page.read_text("utf-8").partition("<style>")[2].partition("</style>")[0]
        assert style and "url(" not in style and "@import" not in style and "//" not in style


def test_what_a_stranger_wrote_is_shown_and_not_obeyed(run):
    for page in (run / "feedback" / "ken.html", run / "class.html"):
        raw = page.read_text("utf-8")
        assert "<b>bold" not in raw and "<b>link" not in raw and "\x1b" not in raw and "\u202e" not in raw
    text = Seen(run / "feedback" / "ken.html").text
    assert "<script>alert(1)</script>" in text and "{{ 7 * 7 }}" in text
    assert r"\x1b[2J\x00\u202e" in text and r"\ud800" in text
    assert len(text) < 60_000           # of one text as long as it likes, a little is shown
    assert "<b>link</b>" in Seen(run / "class.html").text


def test_a_file_that_cannot_be_loaded_is_one_failure_with_its_line(run):
    text = " ".join(Seen(run / "feedback" / "hedy.html").text.split())
    assert text.count("'(' was never closed") == 1 and "std = math.sqrt(2 / (" in text
    assert text.count("No check could be asked of this file.") == 1
    # Nor has she failed each check: 19 of 20 are counted, and her row says why.
    text = Seen(run / "class.html").text
    assert "20 handed in" in text and text.count("hedyno check could be asked") == 1
    counts = re.findall(r"(\d+) passed", text.partition("03 linear")[2].partition("05 softmax")[0])
    assert counts and max(map(int, counts)) <= 19


def test_a_file_that_only_hidden_checks_cannot_be_asked_of_says_no_more_than_that(tmp_path):
    one = next(one for one in a_class() if one.student == "ada")
    one = replace(one, verdicts=tuple(
        replace(result, verdict=Word.CRASHED, whole=True, facts=(SECRET,)) if result.hidden else result
        for result in one.verdicts))
    pages.write(tmp_path, book(one), MANIFEST)
    text = Seen(tmp_path / "feedback" / "ada.html").text
    passed = sum(result.verdict == "passed" for result in one.verdicts)
    assert f"{passed} passed" in text and "0 of 2 hidden ones passed" in text
    assert "could not be checked" not in text and SECRET not in text
    # Among the instructor's failures it is one, beside those of visible checks.
    failures = xml.fromstring(exports.junit(book(one))).iter("failure")
    assert [failure.text for failure in failures].count(f"crashed\n{SECRET}") == 1
    assert "adano check could be asked" not in Seen(tmp_path / "class.html").text


def test_a_file_padded_beyond_comparing_is_named(tmp_path):
    source = (ANSWERS / "ex03_linear_plain.py").read_text("utf-8")
    for name in ("ada", "ken"):
        (tmp_path / "submissions" / name).mkdir(parents=True)
        (tmp_path / "submissions" / name / "ex03_linear.py").write_text(source + "x = 1\n" * 20_000 * (name == "ken"))
    both = [one for one in a_class() if one.student in ("ada", "ken") and one.chapter.stem == "ex03_linear"]
    pages.write(tmp_path, book(*both), MANIFEST)
    text = Seen(tmp_path / "class.html").text
    assert "Not compared, because" in text and "ken (03 linear)" in text and "ada (03 linear)" not in text


def test_a_missing_file_says_what_was_looked_for_and_what_was_there(run):
    text = " ".join(Seen(run / "feedback" / "alan.html").text.split())
    assert "No file called ex00_shapes.py was found: there is my_ex00_shapes.py." in text
    assert "there is my_ex00_shapes.py" in Seen(run / "class.html").text


def test_one_failure_in_several_precisions_is_told_once(tmp_path):
    one = Result("test_forward[float32]", "", False, 1.0, "Linear computes `x @ W.T`, if in<out.", "Transpose.",
                 Word.WRONG, facts=("it differs",))
    both = graded("ada", "ex03_linear", one, replace(one, check="test_forward[float64]"))
    pages.write(tmp_path, book(both), MANIFEST)
    raw = (tmp_path / "feedback" / "ada.html").read_text("utf-8")
    assert raw.count("it differs") == 1 and "float32, float64" in raw
    assert "Linear computes <code>x @ W.T</code>, if in&lt;out." in raw and "Transpose." in raw
    # For the instructor it is one check, that one student of one did not pass.
    assert "100 % (1)" in Seen(tmp_path / "class.html").text


def test_what_has_the_same_cause_stands_in_one_card():
    line = Line("ex03_linear.py", 4, "f", "x @ w")
    one = Result("test_a", "", False, 1.0, "", "", Word.ERROR, facts=("RuntimeError: (6x6 and 4x6)",), lines=(line,))
    elsewhere = replace(one, check="test_c", lines=(replace(line, line=5),))
    named = replace(elsewhere, check="test_d", mistake="Transpose it.")
    cards = pages._cards([one, replace(one, check="test_b", facts=("RuntimeError: (1x6 and 4x6)",)), elsewhere,
                          named, replace(named, check="test_e", verdict=Word.WRONG, lines=())], Chapter("ex03_linear"))
    assert [[card.result.function, *(other.result.function for other in card.alike)] for card in cards] == [
        ["test_a", "test_b"], ["test_c"], ["test_d", "test_e"]]


def test_a_run_without_walls_says_so_on_top(tmp_path):
    ada = [one for one in a_class() if one.student == "ada"]
    for number, (change, said) in enumerate((({}, False), ({"options": {"walls": False}}, True),
                                             ({"layers": {"no network": False}}, True))):
        pages.write(tmp_path / str(number), book(*ada), {**MANIFEST, **change})
        text = Seen(tmp_path / str(number) / "class.html").text
        assert ("Not every wall was up." in text) is said


def test_a_pages_name_stays_in_its_folder_and_is_nobody_elses():
    names = exports.file_names(["ada", "Ada", "../x", "a/b", "a\\b", "a\0b", "é" * 100, "con: <x>", "\ud800"])
    assert names["ada"] == "ada" and len({name.casefold() for name in names.values()}) == len(names)
    for name in names.values():
        assert re.fullmatch(r"[^/\\:<>\0\ud800]+", name) and not name.startswith(".") and len(name.encode()) < 200


# -- which submissions look alike -------------------------------------------------------------------

def answers(stem: str) -> dict[str, Path]:
    return {path.stem: path for path in ANSWERS.glob(f"{stem}_*.py")}


@pytest.mark.parametrize("stem", ["ex03_linear", "ex09_attention"])
def test_answers_written_independently_do_not_look_alike(stem, monkeypatch):
    monkeypatch.setattr(similar, "SHARE", 0.15)     # far below what is listed
    assert len(answers(stem)) == 3
    assert similar.similar(answers(stem), Chapter(stem)) == []


@pytest.mark.parametrize("stem", ["ex03_linear", "ex09_attention"])
def test_a_copy_with_other_names_in_another_order_looks_alike(stem, tmp_path):
    for name, path in answers(stem).items():
        (tmp_path / "copy.py").write_text(renamed(path.read_text("utf-8")), "utf-8")
        [(one, other, share)] = similar.similar({**answers(stem), "copy": tmp_path / "copy.py"}, Chapter(stem))
        assert {one, other} == {name, "copy"} and 0.8 < share <= 1.0


def test_what_the_course_itself_knows_makes_no_pair(tmp_path):
    chapter, files = Chapter("ex03_linear"), {}
    edits = [*mistakes.edits(chapter, "mistake"), *mistakes.edits(chapter, "alternative")]
    for number, edit in enumerate(edits):
        files[str(number)] = edit.write(chapter, tmp_path / str(number)) / "ex03_linear.py"
    assert len(files) > 30
    assert similar.similar({**files, "stub": Chapter("ex03_linear").exercise}, chapter) == []


def test_files_that_cannot_be_compared_are_in_no_pair(tmp_path):
    odd = {"nul": b"\0", "latin": b"# \xe9\nx = 1", "syntax": b"def f(:", "deep": b"x = " + b"(" * 5000,
           "chain": b"x = " + b"+".join([b"1"] * 50_000),
           "long": b"".join(b"x = f(%d, g(1, 2))\n" % n for n in range(5000))}
    for name, content in odd.items():
        (tmp_path / name).write_bytes(content)
    files = {f"{name}{n}": tmp_path / name for name in odd for n in (1, 2)}
    assert similar.similar({**files, "gone": tmp_path / "gone"}, Chapter("ex03_linear")) == []


def test_the_class_page_shows_the_pair_with_what_both_have_marked(run):
    raw = (run / "class.html").read_text("utf-8")
    assert "ada and ken" in raw and "ada and barbara" not in raw and "alan and ken" not in raw
    assert re.search(r"<mark>[^<]*sigma = math\.sqrt", raw) and re.search(r"<mark>[^<]*my_amgis = math\.sqrt", raw)
