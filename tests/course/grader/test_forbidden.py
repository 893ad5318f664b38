"""Borrowed functions are found in the text under any alias, and at run time under none."""

import ast
import pkgutil

import pytest
import torch

from grader.course import chapters
from grader.judge.engine import Grader
from grader.sandbox import forbidden

LINEAR = chapters.find("linear")
NAMES = {"torch.nn.Linear", "torch.nn.functional.linear", "torch.Tensor.softmax"}


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
    assert line in [number for number, _ in forbidden.uses(list(ast.walk(ast.parse(source))), NAMES)]


@pytest.mark.parametrize("source", [
    "from torch import nn\nx = nn.Module",
    "class Linear: pass\nLinear()",
    "def linear(x): return x\nlinear(1)",
    "import torch\nx = torch.nn.init.trunc_normal_",
    "# torch.nn.Linear\nx = 'torch.nn.Linear'",
])
def test_innocent_text(source):
    assert forbidden.uses(list(ast.walk(ast.parse(source))), NAMES) == []


def test_every_forbidden_name_exists():
    """A misspelt name would forbid nothing."""
    from grader.course import checks
    for chapter in chapters.chapters():
        for hidden in (False, True):
            for name in getattr(checks.load(chapter.tests(hidden)), "FORBIDDEN", ()):
                assert pkgutil.resolve_name(name) is not None, f"{chapter.stem}: {name}"


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
    assert {word for word, _ in _grade(tmp_path, f"y = {forward}").values()} == {"forbidden"}


def test_a_caught_use_is_still_seen(tmp_path):
    found = _grade(tmp_path, 'y = x @ self.weight.T\n        try:\n'
                             '            getattr(nn.functional, "lin" + "ear")(x, self.weight)\n'
                             '        except BaseException:\n            pass')
    assert found["test_forward[float32]"][0] == "forbidden"


def test_a_borrowed_class_fails_the_chapter(tmp_path):
    found = _grade(tmp_path, "y = nn.Linear(2, 3)(x)")
    assert {word for word, _ in found.values()} == {"forbidden"}
    assert "torch.nn.Linear" in found["test_flops"][1]


def test_methods_are_seen_and_torch_itself_may_call_them():
    watch = forbidden.Watch({"torch.Tensor.softmax"}, __file__)
    x = torch.ones(3)
    with watch, pytest.raises(forbidden.ForbiddenUse):
        x.softmax(-1)
    assert watch.seen[0][1] == "torch.Tensor.softmax"
    with forbidden.Watch({"torch.nn.functional.linear"}, "another file.py", [__file__]) as elsewhere:
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
    with forbidden.Watch(NAMES, __file__):
        assert torch.nn.functional.linear is not before[0]
    assert (torch.nn.functional.linear, vars(torch.Tensor).get("softmax")) == before
