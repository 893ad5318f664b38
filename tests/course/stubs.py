"""A folder of fresh stubs, to stand in for exercises/ whatever it holds."""

from pathlib import Path

from grader.course import chapters


def fresh(folder: Path) -> Path:
    """Write every chapter's stub into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for chapter in chapters.chapters():
        stub = chapters.make_stub(chapter.solution.read_text("utf-8"))
        (folder / chapter.exercise.name).write_text(stub, "utf-8")
    return folder
