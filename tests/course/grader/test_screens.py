"""What a student reads when something is wrong: screens that once failed a student, and what they must say."""

import os
import re
import subprocess
import sys

import pytest

from grader.course import chapters, hints, lesson
from grader.course.chapters import ROOT
from grader.front import report
from grader.judge.engine import Grader
from grader.judge.verdict import Verdict
from tests.course.stubs import fresh


@pytest.fixture(scope="module")
def grader():
    with Grader() as grader:
        yield grader


def edited(stem: str, *edits: tuple[str, str]) -> str:
    """A chapter's solution with these texts replaced."""
    source = (chapters.SOLUTIONS / f"{stem}.py").read_text("utf-8")
    for old, new in edits:
        assert source.count(old) >= 1, f"{stem} no longer holds {old!r}"
        source = source.replace(old, new, 1)
    return source


def screens(grader, folder, stem: str, source: str, **options) -> dict[str, str]:
    """The screen of every failing check, by the check's name, on one line each."""
    (folder / f"{stem}.py").write_text(source, "utf-8")
    failed = [v for v in grader.grade(chapters.Chapter(stem), folder, **options) if v.word not in ("passed",)]
    shown = {}
    for verdict in report.failures(failed):
        text = report.failure(verdict, grader.setting, folder)
        assert len(text.splitlines()) <= report.LINES
        shown[verdict.check.name] = " ".join(text.split())
    return shown


def test_the_line_is_that_of_the_file_as_it_is_now(grader, tmp_path):
    for name in ("wieght", "weigth"):
        said = screens(grader, tmp_path, "ex03_linear", edited(
            "ex03_linear", ("y = x @ self.weight.T", f"y = x @ self.{name}.T")))["test_forward[float32]"]
        assert f"y = x @ self.{name}.T" in said


def test_a_long_name_leaves_room_for_the_line(grader, tmp_path):
    source = edited("ex10_grouped_query_attention", (
        "self.q_proj(x)", "self.q_projection_of_a_longer_name(x)"))
    said = screens(grader, tmp_path, "ex10_grouped_query_attention", source)
    assert any("self.q_projection_of_a_longer_name(x)" in text and "in GroupedQueryAttention.project" in text
               for text in said.values())


def test_a_mask_may_be_fitted_to_a_tuple(grader, tmp_path):
    source = edited("ex09_attention", ("mask_must_fit(mask, scores.shape)", "mask_must_fit(mask, (*scores.shape,))"))
    assert not screens(grader, tmp_path, "ex09_attention", source, hidden=True)


@pytest.mark.parametrize("name", ["p", "dropout"])
def test_chapter_12_takes_the_name_that_chapter_08_asks_for(grader, tmp_path, name):
    """A chapter that passes its own checks fails no later one by the words of its errors."""
    source = edited("ex12_block", ("self.dropout = Dropout(dropout)",
                                   "if not 0 <= dropout < 1:\n"
                                   f"            raise ValueError(f'{name} must be in [0, 1), got {{dropout}}')\n"
                                   "        self.dropout = Dropout(dropout)"))
    assert not screens(grader, tmp_path, "ex12_block", source, only=lambda check: "dropout" in check.name)


def test_a_setting_is_named_whatever_its_function_says(grader, tmp_path):
    """Sampling, which is given, adds the field's name: chapter 15 does not ask top_k for it."""
    source = edited("ex15_generation", (
        "    at_least_one(k=k)\n", "    if k < 1:\n        raise ValueError(f'must be at least 1, got {k}')\n"))
    assert not screens(grader, tmp_path, "ex15_generation", source, hidden=True,
                       only=lambda check: "refuse" in check.name)


def test_a_gradient_through_the_maximum_is_named(grader, tmp_path):
    source = edited("ex05_softmax", (
        "shifted, top = _shifted(wide, dim)\n    total",
        "top = wide.amax(dim, keepdim=True)\n    shifted = wide - top.masked_fill(top.isinf(), 0)\n    total"))
    said = " ".join(screens(grader, tmp_path, "ex05_softmax", source).values())
    assert "likely" in said and "detach" in said


def test_another_constructor_is_told_what_the_course_calls(grader, tmp_path):
    source = edited("ex09_attention", ("        bias: bool = False,\n        rope", "        rope"),
                    *[("bias=bias", "bias=False")] * 4)
    said = " ".join(screens(grader, tmp_path, "ex09_attention", source).values())
    assert "MultiHeadAttention.__init__ got an unexpected keyword argument 'bias'" in said
    assert "yours takes d_model, heads, rope, dropout, causal" in said
    assert "the course calls it with d_model, heads, bias, rope, dropout, causal" in said


def test_the_line_is_in_the_graded_file(grader, tmp_path):
    """RMSNorm before the heads are cut: the error lies in chapter 04, the slip in chapter 10."""
    source = edited("ex10_grouped_query_attention", ("self.q_proj(x)", "self.q_norm(self.q_proj(x))"))
    said = screens(grader, tmp_path, "ex10_grouped_query_attention", source)
    wide = [text for text in said.values() if "features, expected" in text]
    assert wide and all("ex10_grouped_query_attention.py:" in text and "in GroupedQueryAttention.project" in text
                        and "solutions/ex04" not in text for text in wide)


def test_a_long_return_value_is_cut(grader, tmp_path):
    source = edited("ex01_tokens", ("return dict(enumerate(tokens)), merges", "return merges, dict(enumerate(tokens))"))
    said = screens(grader, tmp_path, "ex01_tokens", source)
    swapped = [text for text in said.values() if "train_bpe returned" in text]
    assert swapped and all("but its signature says tuple[" in text and len(text) < 900 for text in swapped)


def test_a_borrowed_function_is_said_where_its_part_is_asked(grader, tmp_path):
    source = edited("ex09_attention", ("return softmax(scores).to(q.dtype)",
                                       "return torch.nn.functional.scaled_dot_product_attention(q, k, k)"))
    said = screens(grader, tmp_path, "ex09_attention", source)
    borrowed = {name: text for name, text in said.items() if "· forbidden" in text}
    assert "test_attention_weights[float32]" in borrowed and "test_flops" not in borrowed
    for text in borrowed.values():
        assert "return torch.nn.functional.scaled_dot_product_attention(q, k, k)" in text and " hint " not in text


def test_a_syntax_error_is_said_once_and_shown(grader, tmp_path):
    source = edited("ex00_shapes")
    line = next(line for line in source.splitlines() if line.strip().startswith("if "))
    said = screens(grader, tmp_path, "ex00_shapes", source.replace(line, line.rstrip(":")))
    assert len(said) == 1
    text = said.popitem()[1]
    assert "ex00_shapes · the whole file · error" in text and "SyntaxError: expected ':'" in text
    assert f"ex00_shapes.py:{source.splitlines().index(line) + 1}" in text and line.strip().rstrip(":") in text
    assert " rule " not in text and " hint " not in text


@pytest.mark.parametrize("old, new, stops_at", [
    ("return 2 * batch", "return 3 * batch", "expected"),                   # a wrong answer
    ("return 2 * batch", "return nn.Module().missing * batch", "-> return nn.Module().missing"),
])
def test_the_debugger_stops_where_there_is_something_to_see(old, new, stops_at, tmp_path):
    """At the student's own line; for a wrong answer where `answer` and `expected` are at hand."""
    folder = fresh(tmp_path)
    (folder / "ex03_linear.py").write_text(edited("ex03_linear", (old, new)), "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/test_ex03_linear.py::test_flops",
         "--in-process", "--pdb"], cwd=ROOT, input="p answer, expected\nq\n", capture_output=True, text=True,
        env={**os.environ, "COURSE_EXERCISES": str(folder)})
    assert stops_at in done.stdout, done.stdout
    if stops_at == "expected":
        mine, _, expected, _ = map(int, re.search(r"\(\[(\d+), (\d+)\], \[(\d+), (\d+)\]\)", done.stdout).groups())
        assert 2 * mine == 3 * expected
        assert "write breakpoint() there" in done.stdout


def test_what_is_not_installed_is_said_in_a_sentence():
    """The README's next command in a shell where the environment is not active."""
    done = subprocess.run([sys.executable, "-S", "-m", "grader", "check", "3"], cwd=ROOT,
                          capture_output=True, text=True)
    assert done.returncode == 2
    assert "torch is not installed for" in done.stderr and "activate" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_hanging_line_is_shown_and_the_rest_does_not_wait_as_long(tmp_path):
    folder = fresh(tmp_path)
    (folder / "ex05_softmax.py").write_text(edited("ex05_softmax", (
        "    if not temperature > 0:", "    while True:\n        pass\n    if not temperature > 0:")), "utf-8")
    done = subprocess.run([sys.executable, "-m", "grader", "check", "5", "--timeout", "4"], cwd=ROOT,
                          capture_output=True, text=True, env={**os.environ, "COURSE_EXERCISES": str(folder)})
    assert "no answer within 4 seconds" in done.stdout and "in softmax" in done.stdout
    assert "while True:" in done.stdout or "    pass" in done.stdout
    assert " 0 / " not in done.stdout, "the other functions have passed"


def test_every_failure_in_short(tmp_path):
    folder = fresh(tmp_path)
    (folder / "ex03_linear.py").write_text(edited(
        "ex03_linear", ("return 2 * batch", "return batch"), ("y = x @ self.weight.T", "y = -x @ self.weight.T")))
    environment = {**os.environ, "COURSE_EXERCISES": str(folder)}
    few, every = (subprocess.run([sys.executable, "-m", "grader", "check", "3", *more], cwd=ROOT,
                                 capture_output=True, text=True, env=environment).stdout for more in ([], ["--all"]))
    assert "check --all lists them" in few and "test_flops" not in few
    short = every.split("\n\nex03_linear\n")[1].partition("\n\n")[0]
    assert "multiply-adds (MACs)" in short and "      test_flops" in short and "test_batch_ranks" in short


def test_one_part_alone_is_told_as_much_as_the_whole_chapter(grader, tmp_path):
    """The other checks may tell mistakes apart, also where only one is asked for."""
    source = edited("ex03_linear", ('y = x @ self.weight.T', 'y = x @ self.weight.reshape(x.shape[-1], -1)'))
    whole = screens(grader, tmp_path, "ex03_linear", source)["test_forward[float32]"]
    part = screens(grader, tmp_path, "ex03_linear", source, only=lambda check: check.name == "test_forward[float32]")
    assert "likely" in whole and part == {"test_forward[float32]": whole}


@pytest.mark.parametrize("name, meant", [
    ("soft max", "05_softmax"), ("atention", "09_attention"), ("ropee", "07_rope")])
def test_did_you_mean_a_chapter(name, meant):
    with pytest.raises(ValueError, match=f"did you mean {meant}"):
        chapters.find(name)


# -- hints ---------------------------------------------------------------------------------------

def test_hints_are_the_lessons_own():
    softmax = chapters.find("softmax")
    text = lesson.prose(softmax)
    for number in (1, 2, 3):
        said = hints.hint(softmax, "logsumexp", number).split("\n\n")
        assert "logsumexp" in said[0] and said[1] in text


@pytest.mark.parametrize("chapter, part", [("12", "CrossBlock"), ("11", "RollingKVCache"), ("15", "decode_steps"),
                                           ("04", "rms_norm_backward"), ("09", "causal_mask")])
def test_a_hint_is_about_the_part_that_was_asked_for(chapter, part):
    first, asked = (hints.hint(chapters.find(chapter), name) for name in ("1", part))
    assert asked != first or part in first


def test_every_part_that_is_to_be_written_has_hints():
    for chapter in chapters.chapters():
        for part in [name for name, _ in parts(chapter)] + [
                part for exercise in lesson.exercises(chapter) for part in exercise.parts]:
            assert hints.hint(chapter, part), (chapter, part)


def parts(chapter):
    """The functions and classes of a stub that hold something to write."""
    import ast
    for node in ast.parse(chapters.make_stub(chapter.solution.read_text("utf-8"))).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and "raise NotImplementedError" in ast.unparse(node):
            yield node.name, node


@pytest.mark.parametrize("part, number, words", [
    ("logsumexq", 1, "did you mean logsumexp"), ("logsumexp", 9, "1, 2, 3"), ("banana", 1, "there are")])
def test_a_hint_that_is_not_there(part, number, words):
    with pytest.raises(ValueError, match=words):
        hints.hint(chapters.find("softmax"), part, number)


def test_a_wrong_return_speaks_of_the_return_alone(grader, tmp_path):
    """Where the parameters are the course's own, listing them twice says nothing."""
    source = edited("ex17_flash_attention", (
        "return (weight1 * out1 + weight2 * out2).to(out1.dtype), lse",
        "return (weight1 * out1 + weight2 * out2).to(out1.dtype)"))
    said = screens(grader, tmp_path, "ex17_flash_attention", source, only=lambda check: "merge" in check.name)
    assert "TypeCheckError: merge returned" in " ".join(said.values())
    assert "yours takes" not in " ".join(said.values())


# -- what it looks like ------------------------------------------------------------------------------

def one(grader, folder, stem: str, source: str, *names: str) -> str:
    """The screens of these checks alone, one behind the other."""
    return " ".join(screens(grader, folder, stem, source, only=lambda check: check.name in names).values())


def test_two_habits_at_once_are_both_said(grader, tmp_path):
    """An AdamW without bias correction that decays after its step."""
    source = edited("ex14_training", (
        '                p.mul_(1 - lr * group["weight_decay"])\n', ""), (
        'm_scale = 1 - beta1 ** state["step"]', "m_scale = 1"), (
        'v_scale = 1 - beta2 ** state["step"]', "v_scale = 1"), (
        '                p.addcdiv_(state["m"], root, value=-lr / m_scale)\n',
        '                p.sub_(lr * state["m"] / root)\n                p.sub_(lr * group["weight_decay"] * p)\n'))
    said = one(grader, tmp_path, "ex14_training", source, "test_adamw_small_gradients")
    assert "There is no bias correction" in said and "The decay comes after the step" in said and " and " in said


def test_a_part_that_builds_on_a_broken_one_is_not_blamed(grader, tmp_path):
    """A router that ignores what it is told looks as if MoE had not told it."""
    source = edited("ex18_mixture_of_experts", (
        'scores = softmax(self.logits(x)) if self.score == "softmax" else sigmoid(self.logits(x))',
        "scores = softmax(self.logits(x))"), (
        "choice = scores if self.bias is None else scores + self.bias", "choice = scores"))
    said = one(grader, tmp_path, "ex18_mixture_of_experts", source, "test_router_with_sigmoid", "test_moe_options")
    assert "The router looks at neither score nor bias" in said
    assert "does not reach the router" not in said


def test_what_the_checks_of_its_part_refute_is_not_said(grader, tmp_path):
    """Where scores are divided with a mask and not without one, it is not that they are never divided."""
    source = edited("ex09_attention", (
        "/ q.shape[-1] ** 0.5", "/ (q.shape[-1] ** 0.5 if mask is not None else 1)"))
    said = screens(grader, tmp_path, "ex09_attention", source,
                   only=lambda check: check.name == "test_attention_weights[float32]")
    assert "not divided by √head_dim" not in " ".join(said.values()) and len(said) == 1


def test_an_error_in_a_helper_of_one_s_own_is_the_part_s(grader, tmp_path):
    source = edited("ex14_training", ("    if step >= total:\n        return floor\n", ""), (
        "done = (step - warmup) / (total - warmup)", "done = _share(step, warmup, total)"))
    source += "\n\ndef _share(step, warmup, total):\n    return (step - warmup) / (total - warmup)\n"
    assert "the cosine is followed further" in one(grader, tmp_path, "ex14_training", source, "test_after_the_end")


@pytest.mark.parametrize("stem, edits, check, words", [
    ("ex09_attention", [("return softmax(scores).to(q.dtype)", "return torch.softmax(scores, -1).to(q.dtype)")],
     "test_query_that_sees_nothing", "NaN stands in just the rows in which all 0 is expected, as where a whole row is "
                                     "masked; every other number is right"),
    ("ex03_linear", [("y = x @ self.weight.T", "y = -x @ self.weight.T")], "test_batch_ranks",
     "every number is right but for its sign"),
    ("ex03_linear", [("y = x @ self.weight.T", "y = x @ self.weight.T * (1 + (x.dtype == torch.float16))")],
     "test_forward[float16]", "every number is 2 times what is expected right in float32 and float64 and bfloat16, "
                              "wrong in float16"),
    ("ex06_positions", [("return 2.0 ** -torch.tensor(exponents[:heads], dtype=torch.float32)",
                         "return 3 * nn.Parameter(2.0 ** -torch.tensor(exponents[:heads], dtype=torch.float32))")],
     "test_slopes", "your result requires a gradient where none is due"),
    ("ex06_positions", [("return 2.0 ** -torch.tensor(exponents[:heads], dtype=torch.float32)",
                         "return 3 * nn.Parameter(2.0 ** -torch.tensor(exponents[:heads], dtype=torch.float32))")],
     "test_slopes", "every number is 3 times what is expected"),
])
def test_what_an_answer_shows(grader, tmp_path, stem, edits, check, words):
    assert words in one(grader, tmp_path, stem, edited(stem, *edits), check)


def test_a_class_that_is_pasted_twice(grader, tmp_path):
    source = edited("ex20_fine_tuning")
    start = source.index("class LoRALinear")
    pasted = source[start:source.index("\n\n\n", start)]
    said = one(grader, tmp_path, "ex20_fine_tuning", f"{source}\n\n{pasted}\n", "test_add_lora")
    assert "LoRALinear is defined twice, lines" in said and "the second one counts" in said


def test_what_is_likely_is_read_whatever_else_there_is_to_say(grader):
    check = grader.checks(chapters.Chapter("ex03_linear"))[0]
    facts = [f"{number} {'word ' * 40}" for number in range(9)]
    verdict = Verdict(check, "wrong", facts, mistake="A. " * 90 + "\nB. Z")
    lines = report.failure(verdict, grader.setting).splitlines()
    assert len(lines) <= report.LINES and "  and     B. Z" in lines
    assert any(line.startswith("  wrong   0 word") for line in lines) and lines[-1].startswith("  again")
