"""What people get wrong is caught, told by its name, and never called something else."""

import pytest

from grader.course import chapters
from grader.front import report
from grader.judge.engine import Grader
from tests.course.checks.people import FOLDER, faults, screen

AT_LEAST = 0.8


@pytest.mark.parametrize("chapter", [c for c in chapters.chapters() if (FOLDER / f"{c.stem}.toml").exists()],
                         ids=lambda chapter: chapter.stem)
def test_people_are_told(chapter, tmp_path, record_property, asked_by_name, one_thread):
    with Grader() as grader:
        screens = [screen(grader, chapter, fault, tmp_path / str(number))
                   for number, fault in enumerate(faults(chapter))]
        for seen in screens:
            assert seen.first, f"no visible check sees: {seen.fault.habit}"
            assert not seen.wrong, f"{seen.fault.habit} is called: {seen.wrong}"
        silent = [f"{seen.fault.habit}\n{report.failure(seen.first, grader.setting)}"
                  for seen in screens if not seen.told]
    record_property("people", f"{chapter.stem} {len(screens) - len(silent)} {len(screens)}")
    assert len(silent) <= (1 - AT_LEAST) * len(screens), "\n\n".join(silent)


def test_every_file_is_a_chapter_s():
    assert {path.stem for path in FOLDER.glob("*.toml")} <= {chapter.stem for chapter in chapters.chapters()}
