"""What one reads before the lessons: four pages, how to cite the course, and the list of what make can do."""

import re
import shutil
import subprocess
import tomllib

import pytest

from grader.course.chapters import ROOT

PAGES = ("README.md", "INSTRUCTORS.md", "CONTRIBUTING.md", "CHANGELOG.md")


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES)
def test_its_links_lead_to_files(page):
    text = re.sub(r"(?ms)^```.*?^```", "", (ROOT / page).read_text("utf-8"))
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        assert (ROOT / target).is_file(), target        # and no anchor: GitHub's are not those of the site


def test_every_page_is_linked_from_the_readme():
    readme = (ROOT / "README.md").read_text("utf-8")
    for name in (*PAGES[1:], "LICENSE", "CITATION.cff", "assets/pocket/README.md"):
        assert f"]({name})" in readme, name


def test_what_is_cited_is_this_version():
    course = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    cited = dict(re.findall(r"(?m)^([a-z-]+): (.+)$", (ROOT / "CITATION.cff").read_text("utf-8")))
    assert (cited["version"], cited["license"]) == (course["version"], course["license"])
    assert f"\n## {course['version']} - {cited['date-released']}\n" in (ROOT / "CHANGELOG.md").read_text("utf-8")


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
def test_make_help_lists_every_target():
    targets = re.search(r"(?m)^\.PHONY: (.+)$", (ROOT / "Makefile").read_text("utf-8"))[1].split()
    said = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert sorted(re.findall(r"(?m)^make (\w+) ", said)) == sorted(targets)
