"""The options of a run: as given now, as it was begun, and what they name."""

import json
from pathlib import Path

from grader.classroom.intake.roster import Roster
from grader.classroom.output import canvas, grading
from grader.course import chapters
from grader.course.chapters import CourseError
from grader.front import results
from grader.front.results import Asked
from grader.sandbox import jail
from grader.sandbox.setting import TIMEOUT, Setting

# The options that a run keeps, as they are where nothing is said.
WITHOUT = {"submissions": None, "chapters": [], "hidden_from": "", "timeout": TIMEOUT, "device": "cpu", "walls": True,
           "shard": "", "grading": "", "canvas": "", "roster": ""}


def manifest(path: Path) -> dict:
    """A run's manifest; a ValueError where it is none."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is no manifest of a run: {error}") from None


def settle(options, before: dict) -> dict:
    """The options that a run keeps: as given now, else as it was begun, else as they are without."""
    given = {"submissions": options.submissions and str(options.submissions.resolve()),
             "hidden_from": options.hidden_from and str(options.hidden_from.resolve()),
             "timeout": options.timeout, "device": options.device, "shard": options.shard,
             "roster": options.roster and str(options.roster.resolve()),
             "walls": False if options.no_jail else None}
    if options.chapters:        # a run that goes on keeps those that it has
        stems = {chapter.stem for chapter in chapters.several(*options.chapters)}
        given["chapters"] = sorted(stems.union(before.get("chapters", ())))
    begun = {name: before[name] for name in WITHOUT if name in before}
    without = {**WITHOUT, "chapters": [chapter.stem for chapter in chapters.chapters()]}
    settled = {**without, **begun, **{name: value for name, value in given.items() if value is not None}}
    if settled["hidden_from"] and not Path(settled["hidden_from"]).is_dir():
        raise ValueError(f"--hidden-from {options.hidden_from or settled['hidden_from']} is no folder")
    setting_of(settled)         # refuses what means nothing, before anything is written
    return settled


def setting_of(settled: dict, seed: int = 0) -> Setting:
    """How a run with these options asks."""
    return Setting(seed=seed, **{name: settled[name] for name in ("device", "timeout", "walls", "hidden_from")})


def checks_of(before: dict) -> dict[str, tuple[Asked, ...]]:
    """What a run has asked, by a chapter's stem."""
    return results.from_json(dict[str, tuple[Asked, ...]], before.get("checks", {}))


def rules_of(options, settled: dict) -> grading.Grading:
    """The rules of a run: those that --grading names now, else those it was begun with. `settled` keeps the path."""
    if options.grading:
        settled["grading"] = str(options.grading.resolve())
    path = Path(settled["grading"]) if settled.get("grading") else None
    if path and not path.is_file():
        raise ValueError(f"--grading {options.grading}: there is no such file" if options.grading else
                         f"{path}, by which this run was graded, is gone: name its rules with --grading FILE")
    return grading.read(path)


def template_of(options, settled: dict) -> canvas.Template | None:
    """Canvas' gradebook: as --canvas names it now, else as the run was begun, None where that is gone."""
    if options.canvas:
        settled["canvas"] = str(options.canvas.resolve())
    path = Path(settled["canvas"]) if settled.get("canvas") else None
    roster = Path(settled["roster"]) if settled.get("roster") else None
    return canvas.Template.read(path, Roster.read(roster) if roster and roster.is_file() else None) \
        if path and (options.canvas or path.is_file()) else None


def need_walls(settled: dict, cluster: str | None) -> None:
    """A CourseError where walls are wanted and cannot be built. The machines of a cluster say so themselves."""
    if settled["walls"] and cluster in (None, "local") and (why := jail.missing()):
        raise CourseError(f"{why}. --no-jail goes on without walls, and marks every result.")
