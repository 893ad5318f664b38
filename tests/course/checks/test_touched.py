"""Which lines an edit changes, and which checks come to one."""

import pytest

from grader.course import chapters
from tests.course.checks.touched import changed_lines, lines_of_checks

SOURCE = '''\
"""A file."""
LIMIT = 3


def first(x, n=1):
    """The first n."""
    if n > LIMIT:
        raise ValueError(
            "too many")
    for i in range(n):
        print(x[i])
    return x[:n]


class Box:
    size: int

    def take(self, n):
        n: int
        return [
            self.size + i for i in range(n)]
'''


@pytest.mark.parametrize("find, replace, lines", [
    ("LIMIT = 3", "LIMIT = 4", {2}),
    ('"too many"', '"many"', {8, 9}),
    ("n > LIMIT", "n >= LIMIT", {7, 8, 9}),
    ("        print(x[i])\n", "        pass\n", {11}),
    ("        print(x[i])\n", "        print(x[i])\n        print(i)\n", {11}),
    ("    for i in range(n):\n        print(x[i])\n", "", {10, 11}),
    ("    return x[:n]\n", "", {12}),
    ("    if n >", "    y = 1\n    if n >", {7, 8, 9}),
    ("n=1", "n=2", set(range(5, 13))),
    ("range(n)]", "range(n + 1)]", {20, 21}),
    ("    size: int\n", "    size: int = 0\n", {16}),
    ("    def take", "    def give(self):\n        pass\n\n    def take", {18, 19, 20, 21}),
    ("print(x[i])", "LIMIT = i", {5, 7, 8, 10, 11, 12}),      # the name is local in all of the function now
    ("print(x[i])", "yield x[i]", {5, 7, 8, 10, 11, 12}),     # nothing of it runs when it is called
])
def test_an_edit_is_seen_by_who_comes_to_it(find, replace, lines):
    assert SOURCE.count(find) == 1
    found = changed_lines(SOURCE, SOURCE.replace(find, replace)) - {None}
    assert found >= lines and found - lines <= {9}


def test_what_never_runs_is_seen_by_all():
    """A bare annotation leaves nothing that a trace could show."""
    assert changed_lines(SOURCE, SOURCE.replace("        n: int\n", "        n: str\n")) >= {2, 5, 7, 20}


def test_a_check_runs_its_own_part_and_no_other():
    chapter = chapters.find("linear")
    source = chapter.solution.read_text("utf-8").splitlines()
    lines = {check.name: {source[line - 1].strip() for line in run} for check, run in lines_of_checks(chapter).items()}
    assert "y = x @ self.weight.T" in lines["test_forward[float32]"]
    assert "y = x @ self.weight.T" not in lines["test_flops"]
    assert all("class Linear(nn.Module):" in run for run in lines.values())
