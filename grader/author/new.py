"""A new chapter: every file of one, written from those in chapter/, where NN_name stands for its own."""

import re
from pathlib import Path

from grader.author import links
from grader.course import chapters

FILES = Path(__file__).parent / "chapter"


def new(number: str, name: str) -> list[Path]:
    """Write the files of a chapter that passes the course's tests, for its author to fill; returns them.

    Nothing is written unless everything can be: raises ValueError where the number has not two digits, the name
    is more than small letters, digits and _, or one of the two, or one of the files, is there already.
    """
    if not re.fullmatch(r"[0-9]{2}", number):
        raise ValueError(f"number must have two digits, such as 28, got {number!r}")
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        raise ValueError(f"name must be words of small letters and digits with _ between them, got {name!r}")
    for other in chapters.chapters():
        if number == other.number or name == other.name:
            raise ValueError(f"{'number' if number == other.number else 'name'} is taken: "
                             f"there is a chapter {other.stem[2:]}")
    stands_for = {"NN_name": f"{number}_{name}", "NN": number, "NAME": name.replace("_", " ").capitalize()}

    def filled(text: str) -> str:
        return re.sub("NN_name|NN|NAME", lambda found: stands_for[found[0]], text)

    chapter = chapters.Chapter(f"ex{number}_{name}")
    texts = {chapters.ROOT / filled(path.relative_to(FILES).as_posix()): filled(path.read_text("utf-8"))
             for path in sorted(FILES.rglob("*.*")) if "__pycache__" not in path.parts}
    texts[chapter.notebook] = links.put(texts[chapter.notebook], chapter.notebook.name, links.address())
    texts[chapter.exercise] = chapters.make_stub(texts[chapter.solution])
    for path in texts:
        if path.exists():
            raise ValueError(f"{path} is there already")
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    return list(texts)
