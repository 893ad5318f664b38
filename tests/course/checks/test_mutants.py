"""The tool that makes small faults makes those it says, in solution blocks and nowhere else; and it tells an edit
that differs from one that means the same.
"""

from grader.course import chapters
from tests.course.checks.holes import names_used
from tests.course.checks.mutants import Mutant, compared, fates, mutants

SOLUTION = '''\
def head(x, n, dim=-1):
    """The first n of x where n is below 9, scaled."""
    # BEGIN SOLUTION
    if n < 9 and dim:
        raise ValueError(f"n is {n + 1}")
    return scale(x[:n].detach(), by=-n * 2)
    # END SOLUTION


LIMIT = 9 - 1
'''


def test_faults_of_a_small_solution():
    found = {mutant.becomes for mutant in mutants(SOLUTION)}
    assert found == {
        "if (n < 9 or dim):", "if (dim):", "if (n < 9):", "if (not (n < 9 and dim)):", "pass",
        "if (n <= 9) and dim:", "if (n >= 9) and dim:",
        "if n < 10 and dim:", "if n < 8 and dim:", "if n < 18 and dim:", "if n < 0 and dim:",
        "return x[:n].detach()", "return scale(x[:n].detach())", "return scale(x[:n], by=-n * 2)",
        "return scale(x[1:n].detach(), by=-n * 2)", "return scale(x[:n + 1].detach(), by=-n * 2)",
        "return scale(x[:n - 1].detach(), by=-n * 2)", "return scale(x[:n].detach(), by=(-n / 2))",
        "return scale(x[:n].detach(), by=n * 2)", "return scale(x[:n].detach(), by=-n * 3)",
        "return scale(x[:n].detach(), by=-n * 1)", "return scale(x[:n].detach(), by=-n * 4)",
        "return scale(x[:n].detach(), by=-n * 0)"}
    assert {mutant.part for mutant in mutants(SOLUTION)} == {"head"}


def test_an_unchanged_solution_is_caught_by_nothing():
    """Else the tool would call every mutant caught."""
    chapter = chapters.find("00_shapes")
    same = Mutant(chapter.solution.read_text("utf-8"), "", 1, "", "")
    assert fates(chapter, [same]) == {same: ""}


def test_a_planted_hole_is_found_with_the_smallest_input_and_an_equal_edit_is_none():
    chapter = chapters.find("03_linear")
    source = chapter.solution.read_text("utf-8")

    def edited(part, was, becomes):
        assert source.count(was) == 1
        return Mutant(source.replace(was, becomes), part, 1, was, becomes)

    equal = edited("Linear.forward", "y = x @ self.weight.T", "y = x.matmul(self.weight.transpose(0, 1))")
    detached = edited("Linear.forward", "y = x @ self.weight.T", "y = x @ self.weight.detach().T")
    rare = edited("Linear.forward", "return y if self.bias is None",
                  "y = y + 1 if self.training and y.shape[:1] == (3,) else y\n        return y if self.bias is None")
    endless = edited("linear_flops", "return 2 * batch", "while batch > 3: pass\n    return 2 * batch")
    found = compared(chapter, [equal, detached, rare, endless], 100)
    assert not found[equal].differs and found[equal].tried > 50
    assert found[detached].differs.startswith("the gradients of Linear")
    assert "numbers differ" in found[rare].differs and any("float32 (3, 1)" in line for line in found[rare].told)
    assert found[endless].differs == "does not end" and "batch = 4" in found[endless].told


SCENARIOS = """\
def block(impl, draw):
    draw.asked(impl.block, config(impl))

def config(impl):
    return impl.Config(block)
"""


def test_a_scenario_may_have_the_name_of_the_part_that_it_asks():
    exec(SCENARIOS, written := {})
    assert names_used(written["block"].__code__, written) == {"asked", "block", "config", "Config"}
