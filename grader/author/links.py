"""The lessons opened from where the course lies: `python -m grader.author.links`, or `make links`.

The address of its repository is the only setting: `Repository` in pyproject.toml. Where it has one, each lesson says
where to open it without installing anything, and its first cell fetches the course if it is not there. Where it is
empty, lessons hold neither.
"""

import re
import tomllib

from grader.course import lesson
from grader.course.chapters import ROOT, chapters

WORDS = " **Nothing to install:** open it in [Colab]({}) or [Codespaces]({})."
OPENED = re.compile(re.escape(WORDS).replace(r"\{\}", r"[^)\s]*") + r"\Z")
FETCH = """\
if not any((p / "grader").is_dir() for p in Path("_").absolute().parents):
    os.system("git clone -q {} course; pip install -qr course/requirements-colab.txt"); os.chdir("course")
"""
FETCHED = re.compile(re.escape(FETCH).replace(r"\{\}", r"\S*"))
FOUND = "from pathlib import Path\n"        # what stands above the two lines


def address(of: str = "Repository") -> str:
    """The address of the course's repository, or of its site ("Documentation"); "" where it has none yet."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return settings["project"]["urls"].get(of, "").removesuffix("/").removesuffix(".git")


def put(text: str, name: str, url: str) -> str:
    """A lesson's notebook, given and returned as text, with the links that belong to an address, and no others.

    name: the notebook's. Colab and Codespaces open what lies on GitHub; a course from elsewhere can be fetched alone.
    """
    notebook = lesson.loads(text)
    opening, code = (next(cell for cell in notebook["cells"] if cell["cell_type"] == kind)
                     for kind in ("markdown", "code"))
    said, found = OPENED.sub("", opening["source"]), FETCHED.sub("", code["source"])
    if url:
        found = found.replace(FOUND, FOUND + FETCH.format(url), 1)
    opening["source"], code["source"] = said + words(name, url), found
    return lesson.dumps(notebook)


def words(name: str, url: str) -> str:
    """Where a lesson can be opened without installing anything; "" for a course that does not lie on GitHub."""
    owner = url.partition("https://github.com/")[2]
    return WORDS.format(f"https://colab.research.google.com/github/{owner}/blob/main/notebooks/{name}",
                        f"https://codespaces.new/{owner}") if owner else ""


if __name__ == "__main__":
    for chapter in chapters():
        chapter.notebook.write_text(
            put(chapter.notebook.read_text("utf-8"), chapter.notebook.name, address()), "utf-8")
