"""Which file a chapter is imported from: the student's, or the reference where none is begun; and what is lent to it.

One finder serves `exercises/__init__.py` and the grader's workers, so that a chapter's types and shapes are checked
alike in both, and tracebacks and debuggers see the real file. No bytecode is read or written.
"""

import importlib.util
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path

from grader.course.shapes import CheckedLoader

PACKAGE = "exercises"       # the name that a student's own imports and tracebacks show


class ChapterFinder(MetaPathFinder):
    """Finds `package.exNN_name` in the folder that `folder_of(stem)` names (None: not found).

    lent_to(stem): the parts that are filled in, a `Lent`, or None.
    """

    def __init__(self, package: str, folder_of, lent_to=lambda stem: None):
        self.package, self.folder_of, self.lent_to = package, folder_of, lent_to

    def find_spec(self, fullname, path=None, target=None):
        package, _, stem = fullname.rpartition(".")
        folder = self.folder_of(stem) if package == self.package else None
        file = Path(folder or "", f"{stem}.py")
        if folder is None or not file.is_file():
            return None
        return importlib.util.spec_from_file_location(
            fullname, file, loader=CheckedLoader(fullname, str(file), self.lent_to(stem)))


def install(package: str, folder_of, lent_to=lambda stem: None) -> ChapterFinder:
    """Load a package's chapters through a finder, with types and shapes checked."""
    finder = ChapterFinder(package, folder_of, lent_to)
    sys.meta_path.insert(0, finder)
    return finder
