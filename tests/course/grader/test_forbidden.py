"""Borrowed functions are found in the text under any alias, and at run time under none."""

import ast
import pkgutil
import re

import pytest
import torch

from grader.course import chapters, checks, stubs
from grader.judge.engine import Grader
from grader.sandbox import forbidden

LINEAR = chapters.find("linear")
NAMES = {"torch.nn.Linear", "torch.nn.functional.linear", "torch.Tensor.softmax"}
BANS = {"Linear": NAMES, "f": NAMES}
CALM = {"and", "are", "is", "modules", "peft's", "relatives", "their", "torch's", "transformers'", "twins"}


def read(source: str) -> forbidden.Text:
    return forbidden.Text(ast.parse(source))


@pytest.mark.parametrize("source, line", [
    ("import torch\nx = torch.nn.Linear(2, 3)", 2),
    ("import torch as t\nx = t.nn.Linear", 2),
    ("from torch import nn\nclass Linear(nn.Linear): pass", 2),
    ("from torch.nn import Linear as Mine", 1),
    ("import torch.nn.functional as F\ny = F.linear(1, 2)", 2),
    ("from torch.nn import functional\ny = functional.linear", 2),
    ("from torch.nn.functional import *\ny = linear(1, 2)", 2),
    ("import torch\nnn = torch.nn\nfun = nn.functional\ny = fun.linear(1)", 4),
    ("import torch\ny = getattr(torch.nn, 'Linear')", 2),
    ("def f():\n    import torch\n    return torch.nn.functional.linear", 3),
    ("import torch\ny = torch.ops.aten.linear(1)", 2),
    ("from torch._C import _nn", 1),
    ("import torch\ny = torch._VF.softmax(1)", 2),
    ("from torch.nn.modules.linear import Linear", 1),
    ("import torch.nn.modules.linear as m\ny = m.Linear(1, 2)", 2),
    ("from torch import Tensor\ny = Tensor.__mro__[1].softmax(1)", 2),
    ("from given.torch_kernels import F\ny = F.linear(1, 2)", 2),
    ("import given.torch_kernels\ny = given.torch_kernels.nn.Linear(1, 2)", 2),
])
def test_found_in_the_text(source, line):
    assert line in [number for number, *_ in forbidden.uses(read(source), BANS)]


@pytest.mark.parametrize("source", [
    "from torch import nn\nx = nn.Module",
    "class Linear: pass\nLinear()",
    "def linear(x): return x\nlinear(1)",
    "import torch\nx = torch.nn.init.trunc_normal_",
    "# torch.nn.Linear\nx = 'torch.nn.Linear'",
])
def test_innocent_text(source):
    assert forbidden.uses(read(source), BANS) == []


TWO = {"one": {"torch.softmax", "torch.logsumexp"}, "two": {"torch.softmax"}}


@pytest.mark.parametrize("source, parts", [
    ("def one(x):\n    return torch.softmax(x, 0)", "one"),
    ("def two(x):\n    return one(x)\ndef one(x):\n    return torch.softmax(x, 0)", "one"),
    ("def two(x):\n    return torch.logsumexp(x, 0)", ""),
    ("def two(x):\n    return torch.logsumexp(x, 0)\ndef one(x):\n    return two(x)", "one"),
    ("def help(x):\n    return torch.softmax(x, 0)\ndef two(x):\n    return help(x)", "two"),
    ("def a(x):\n    return torch.softmax(x, 0)\ndef b(x):\n    return a(x)\ndef two(x):\n    return b(x)", "two"),
    ("class A:\n    def f(x):\n        return torch.softmax(x, 0)\nh = A()\ndef two(x):\n    return h.f(x)", "two"),
    ("def help(x):\n    return torch.softmax(x, 0)\ndef two(x):\n    return globals()['help'](x)", "two"),
    ("def help(x):\n    return torch.softmax(x, 0)\ntwo = help", "two"),
    ("def help(x):\n    return torch.softmax(x, 0)\nglobals()['two'] = help", "one two"),
    ("def alone(x):\n    return torch.softmax(x, 0)", ""),
    ("if 1:\n    def two(x):\n        return torch.softmax(x, 0)", "two"),
    ("class one:\n    def two(x):\n        return torch.softmax(x, 0)", "one"),
    ("help = torch.softmax", "one two"),
    ("from torch import softmax", "one two"),
    ("from torch import logsumexp", "one"),
    ("torch._C", "-"),
    ("def two(x):\n    return torch.ops.aten.softmax(x)", "-"),
])
def test_whose_a_use_is(source, parts):
    """A part's own, or the parts' that get at a helper; outside of all, every part's; a back door is the file's."""
    found = {part or "-" for _, _, part in forbidden.uses(read(f"import torch\n{source}"), TWO)}
    assert " ".join(sorted(found)) == parts


def test_every_forbidden_name_exists():
    """A misspelt name would forbid nothing."""
    for chapter in chapters.chapters():
        for part, names in _bans(chapter).items():
            assert part in stubs.parts(chapter), f"{chapter.stem}: {part} is nothing that a student writes"
            for name in names:
                assert pkgutil.resolve_name(name) is not None, f"{chapter.stem}: {name}"


def _bans(chapter) -> dict[str, set[str]]:
    found = {}
    for hidden in (False, True):
        for part, names in getattr(checks.load(chapter.tests(hidden)), "FORBIDDEN", {}).items():
            found[part] = found.get(part, set()) | names
    return found


def _plain(name: str) -> str:
    """The last part of a name, however it is written: nll_loss and NLLLoss are one."""
    return name.rpartition(".")[2].replace("_", "").lower()


@pytest.mark.parametrize("chapter", chapters.chapters(), ids=lambda chapter: chapter.stem)
def test_bans_are_said_where_they_hold(chapter):
    """The docstring of a part names what it may not borrow: every ban, by its name or a piece of it, and no more."""
    bans = _bans(chapter)
    for node in ast.parse(chapters.stub(chapter)).body:
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            continue
        doc = " ".join((ast.get_docstring(node) or "").split())
        said = re.findall(r"To be written here: ([^:]+?) (?:is|are) not used\.", doc)
        assert len(said) == doc.count("To be written here") == (node.name in bans), f"{chapter.stem}, {node.name}"
        if said:
            words = [word for word in re.split(r",? ", said[0]) if word not in CALM]
            names = {name: _plain(name) for name in bans[node.name]}
            for word in words:
                assert any(_plain(word) in name for name in names.values()), f"{node.name}: {word} is not forbidden"
            for name, plain in names.items():
                assert any(_plain(word) in plain for word in words), f"{node.name}: {name} is forbidden, and not said"


def _grade(tmp_path, forward: str) -> dict[str, str]:
    source = LINEAR.solution.read_text("utf-8").replace("y = x @ self.weight.T", forward)
    (tmp_path / "ex03_linear.py").write_text(source, "utf-8")
    with Grader() as grader:
        return {v.check.name: (v.word, " ".join(v.facts)) for v in grader.grade(LINEAR, tmp_path)}


def test_seen_at_run_time(tmp_path):
    """No text shows this name; the call itself does."""
    found = _grade(tmp_path, 'y = getattr(nn.functional, "lin" + "ear")(x, self.weight)')
    word, facts = found["test_forward[float32]"]
    assert word == "forbidden" and "torch.nn.functional.linear" in facts
    assert found["test_flops"][0] == "passed"


@pytest.mark.parametrize("forward", [
    "nn.functional.conv1d(x.reshape(-1, x.shape[-1], 1), self.weight[..., None]).reshape(*x.shape[:-1], -1)",
    "nn.functional.bilinear(x, torch.ones_like(x[..., :1]), self.weight[..., None])"])
def test_layers_that_hold_a_linear_one(forward, tmp_path):
    words = {name: word for name, (word, _) in _grade(tmp_path, f"y = {forward}").items()}
    assert words["test_forward[float32]"] == "forbidden" and words["test_flops"] == "passed"


def test_a_caught_use_is_still_seen(tmp_path):
    found = _grade(tmp_path, 'y = x @ self.weight.T\n        try:\n'
                             '            getattr(nn.functional, "lin" + "ear")(x, self.weight)\n'
                             '        except BaseException:\n            pass')
    assert found["test_forward[float32]"][0] == "forbidden"


def test_a_borrowed_class_voids_its_part_alone(tmp_path):
    """All checks that speak of Linear, and no others."""
    found = _grade(tmp_path, "y = nn.Linear(2, 3)(x)")
    with Grader() as grader:
        for check in grader.checks(LINEAR):
            assert found[check.name][0] == ("forbidden" if "Linear" in check.names else "passed"), check.name
    assert "torch.nn.Linear" in found["test_forward[float32]"][1]


def test_a_back_door_voids_the_whole_file(tmp_path):
    assert {word for word, _ in _grade(tmp_path, "y = torch.ops.aten.linear(x, self.weight)").values()} == {"forbidden"}


SOFTMAX = chapters.find("softmax")


def _softmax(tmp_path, *edits: tuple[str, str]) -> dict[str, str]:
    source = SOFTMAX.solution.read_text("utf-8")
    for old, new in edits:
        assert source.count(old) == 1
        source = source.replace(old, new)
    (tmp_path / SOFTMAX.exercise.name).write_text(source, "utf-8")
    with Grader() as grader:
        return {v.check: v.word for v in grader.grade(SOFTMAX, tmp_path)}


@pytest.mark.parametrize("borrowed", ["torch.logsumexp(x, dim)", 'getattr(torch, "logsum" + "exp")(x, dim)'])
def test_what_builds_on_a_borrowed_part_is_asked(borrowed, tmp_path):
    """log_softmax and cross_entropy call the logsumexp that was borrowed, and are judged by their own answers."""
    found = _softmax(tmp_path, ("""    \"\"\"log Σⱼ e^xⱼ along dim""", f"""    return {borrowed}
    \"\"\"log Σⱼ e^xⱼ along dim"""))
    words = {part: {word for check, word in found.items() if part in check.names and "logsumexp" not in check.names}
             for part in ("softmax", "cross_entropy", "perplexity")}
    assert "forbidden" not in set().union(*words.values()) and words["softmax"] == {"passed"}
    mine = {word for check, word in found.items() if "logsumexp" in check.names}
    assert "forbidden" in mine and "passed" not in mine


def test_a_helper_that_no_text_names_belongs_to_what_is_asked(tmp_path):
    """A part that was swapped for a helper: its frames lie in no part, so the check's own parts answer."""
    found = _softmax(tmp_path, ("def perplexity(", """def _helper(x, dim=-1, temperature=1.0):
    return getattr(torch, "soft" + "max")(x, dim)


vars()["soft" + "max"] = vars()["_hel" + "per"]


def perplexity("""))
    assert {word for check, word in found.items() if check.function == "test_softmax"} == {"forbidden"}


def test_compile_leaves_code_as_it_is(tmp_path):
    """torch.compile does not get on with checked types, and takes longer than all checks: here it does nothing."""
    found = _grade(tmp_path, """@torch.compile(dynamic=True)
        def product(a: Float[Tensor, "*batch n"], b: Float[Tensor, "m n"]) -> Float[Tensor, "*batch m"]:
            return a @ b.T
        y = torch.compile(product)(x, self.weight)""")
    assert {word for word, _ in found.values()} == {"passed"}


def test_methods_are_seen_and_torch_itself_may_call_them():
    watch = forbidden.Watch({"part": {"torch.Tensor.softmax"}}, __file__, asked=lambda: {"part"})
    x = torch.ones(3)
    with watch, pytest.raises(forbidden.ForbiddenUse):
        x.softmax(-1)
    assert watch.seen[0][1] == "torch.Tensor.softmax"
    with forbidden.Watch({"part": {"torch.nn.functional.linear"}}, "another file.py", innocent=[__file__]) as elsewhere:
        torch.nn.functional.linear(x, x[None])
    assert elsewhere.seen == []


def test_a_use_at_import_is_seen(tmp_path):
    """Called or only kept: a function fetched before any check runs is watched as well."""
    source = LINEAR.solution.read_text("utf-8")
    kept = source.replace("y = x @ self.weight.T", "y = KEPT(x, self.weight)")
    assert kept != source
    kept += '\n\nKEPT = getattr(nn.functional, "lin" + "ear")\n'
    for text in (kept, source + '\n\ngetattr(nn.functional, "lin" + "ear")(torch.ones(1), torch.ones(1, 1))\n'):
        (tmp_path / "ex03_linear.py").write_text(text, "utf-8")
        with Grader() as grader:
            found = {v.check.name: v.word for v in grader.grade(LINEAR, tmp_path)}
        assert found["test_forward[float32]"] == "forbidden"


def test_a_helper_beside_the_file_may_not_borrow_either(tmp_path):
    source = LINEAR.solution.read_text("utf-8")
    (tmp_path / "ex03_linear.py").write_text(
        source.replace("y = x @ self.weight.T", "y = product(x, self.weight)") + "\n\nfrom .helper import product\n")
    (tmp_path / "helper.py").write_text(
        'from torch import nn\n\n\ndef product(x, weight):\n'
        '    return getattr(nn.functional, "lin" + "ear")(x, weight)\n')
    with Grader() as grader:
        found = {v.check.name: v.word for v in grader.grade(LINEAR, tmp_path)}
    assert found["test_forward[float32]"] == "forbidden" and found["test_flops"] == "passed"


def test_torch_is_left_as_it_was():
    before = torch.nn.functional.linear, vars(torch.Tensor).get("softmax")
    with forbidden.Watch(BANS, __file__):
        assert torch.nn.functional.linear is not before[0]
    assert (torch.nn.functional.linear, vars(torch.Tensor).get("softmax")) == before
