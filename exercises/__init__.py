"""Your code. A chapter that you have not begun is filled in with the reference.

So you can begin anywhere, and every notebook runs on a fresh clone. From your first edit on,
your own file is used. In a notebook, run the import cell again after a save.
"""

import sys

from grader.course import chapters, loader, stubs

_STEMS = {chapter.stem: chapter for chapter in chapters.chapters()}

loader.install(__name__, lambda stem: (
    stubs.source_folder(_STEMS[stem], chapters.EXERCISES) if stem in _STEMS else None))


def _saves() -> list[int]:
    return [path.stat().st_mtime_ns for path in sorted(chapters.EXERCISES.glob("ex*.py"))]


def _forget(*_):
    """Before a notebook cell, after a save: forget the chapters, so that an import reads anew."""
    global _seen
    if _seen != (_seen := _saves()):
        for name in [name for name in sys.modules if name.startswith(__name__ + ".ex")]:
            del sys.modules[name]


_seen = _saves()
if "IPython" in sys.modules and (_shell := sys.modules["IPython"].get_ipython()):
    _shell.events.register("pre_run_cell", _forget)
