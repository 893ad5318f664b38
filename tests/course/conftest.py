"""What several of the course's own tests stand on, and which of them concern a chapter."""

import inspect
import os
import re
from pathlib import Path

import pytest
import torch

from grader.course import chapters

os.environ.setdefault("TRITON_INTERPRET", "0" if torch.cuda.is_available() else "1")    # before anything imports Triton

ASKED = pytest.StashKey[set[str]]()     # numbers of the chapters asked for; none: everything
COURSE = Path(__file__).parent
SCREENS = COURSE / "grader" / "test_screens.py"
ABOUT_CHAPTERS = {COURSE, COURSE / "checks", COURSE / "parity", COURSE / "lessons", SCREENS.parent, SCREENS}


def pytest_addoption(parser):
    parser.addoption("--chapter", default="", metavar="NAMES", help="only what concerns these chapters: '09 rope'")


def pytest_configure(config):
    try:
        found = [chapters.find(word) for word in config.getoption("chapter").split()]
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    config.stash[ASKED] = {chapter.number for chapter in found}


def pytest_ignore_collect(collection_path, config):
    """Leave out, before anything is imported, the rooms and files that concern no chapter asked for."""
    asked = config.stash[ASKED]
    if not asked:
        return None
    if collection_path.is_dir() or collection_path.parent == SCREENS.parent:
        return collection_path not in ABOUT_CHAPTERS or None
    named = numbers_of(collection_path)
    return bool(named) and not named & asked or None


def pytest_collection_modifyitems(config, items):
    if asked := config.stash[ASKED]:
        left_out = [item for item in items if not asked & numbers_of_item(item)]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


def numbers_of(path: Path) -> set[str]:
    """The chapters that a file is about, by its name (test_evidence_13_14.py), or by what a parity test imports."""
    if named := re.findall(r"_(?:ex)?(\d\d)(?=_|\.)", path.name):
        return set(named)
    if path.parent.name == "parity":
        return set(re.findall(r"(?m)^from solutions\.ex(\d\d)", path.read_text("utf-8")))
    return set()


def numbers_of_item(item) -> set[str]:
    """The chapters that a test is about: its file's, those among its parameters, those that a screen is shown for."""
    said = inspect.getsource(item.function) if item.path == SCREENS else item.name
    return numbers_of(item.path) | set(re.findall(r"\bex(\d\d)_", said))


@pytest.fixture
def one_thread():
    """With tensors this small a second thread only waits; evidence's scripts take one, too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
