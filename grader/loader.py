"""Which file a chapter is imported from: the student's, or the reference where none is begun.

One finder serves `exercises/__init__.py` and the grader's workers. It picks the folder and
hands it as `path` to the finders behind it, so that jaxtyping's hook, tracebacks and debuggers
see the real file. No bytecode is read or written: two saves within a second would otherwise
run the first one's code.
"""

import sys
from importlib.abc import MetaPathFinder

from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))     # where a float is asked for, an int will do
PACKAGE = "exercises"       # the name that a student's own imports and tracebacks show


class ChapterFinder(MetaPathFinder):
    """Finds `package.exNN_name` in the folder that `folder_of(stem)` names (None: not found)."""

    def __init__(self, package: str, folder_of):
        self.package, self.folder_of = package, folder_of

    def find_spec(self, fullname, path=None, target=None):
        package, _, stem = fullname.rpartition(".")
        if package != self.package:
            return None
        folder = self.folder_of(stem)
        if folder is None:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1:]:
            spec = finder.find_spec(fullname, [str(folder)], target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader.path_stats = _no_stats
                return spec
        return None


def _no_stats(path):
    raise OSError("no bytecode")


def install(package: str, folder_of) -> ChapterFinder:
    """Load a package's chapters through a finder, with shapes checked by jaxtyping and beartype."""
    install_import_hook(package, f"{__name__}.checked")
    finder = ChapterFinder(package, folder_of)
    sys.meta_path.insert(0, finder)
    return finder
