"""Packages that may not be there, and how to install them."""

import importlib.util
import os
import sys

from grader.course.chapters import CourseError

ACTIVATE = r".venv\Scripts\activate" if os.name == "nt" else "source .venv/bin/activate"


def lacking(package: str | None) -> str:
    """How to install a package that is not there, or "" where it is; it has a requirements file of its name."""
    if not package or importlib.util.find_spec(package):
        return ""
    return f"this needs {package}: pip install -r requirements-{package}.txt"


def need_libraries() -> None:
    """Raise a CourseError where what the grader needs is not installed for this Python."""
    for name in ("torch", "rich"):
        if importlib.util.find_spec(name) is None:
            raise CourseError(f"{name} is not installed for {sys.executable}. If you have run `make check`, "
                              f"run `{ACTIVATE}` first; if not, the README says how to install.")
