"""The tool that makes small faults makes those it says, in solution blocks and nowhere else."""

from grader.course import chapters
from tests.course.checks.mutants import Mutant, fates, mutants

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
