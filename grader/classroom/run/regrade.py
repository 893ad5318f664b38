"""`grade --regrade MANIFEST`: chapters of a run again, and what that changed. The old cells are kept."""

import shutil
import time
from pathlib import Path

from grader.classroom.intake.collect import Handed, shown
from grader.classroom.run import cells
from grader.classroom.run.grade import Run, manifest, need_walls, rules_of, template_of
from grader.course.chapters import find, several


def run(options) -> int:
    """Ask chapters again, with the run's own seed and what was handed in then; returns the exit code."""
    before = manifest(options.regrade)
    out = options.regrade.resolve().parent
    if options.seed not in (None, before["seed"]):
        raise ValueError(f"--seed {options.seed}: the run's own seed is {before['seed']}, and a regrade keeps it")
    if options.submissions or options.out:
        raise ValueError("--regrade takes what was handed in, and where results go, from its manifest")
    begun = before["options"]["chapters"]
    again = [chapter.stem for chapter in several(*options.chapters or begun)]
    if other := [stem for stem in again if stem not in begun]:
        raise ValueError(f"{other[0]} is not in this run; its chapters are {', '.join(begun)}")
    students = [Handed(name, said["source"], out / "submissions" / name, refused=said["refused"])
                for name, said in before["students"].items()]
    settled = {**before["options"], "walls": before["options"]["walls"] and not options.no_jail}
    rules, template = rules_of(options, settled), template_of(options, settled)
    need_walls(settled, options.cluster)
    this = Run(out, settled, before["seed"], students, before["refused"], rules, template)
    this.checks = before["checks"]
    was = {(cell["student"], cell["chapter"]): cell for cell in this.cells()}
    for student in students:
        for stem in again:
            old = was.get((student.name, stem))
            now = cells.hashes(find(stem), student.folder, this.setting)["submission"]
            if old and old["hashes"]["submission"] != now:
                this.say(f"{student.name}: {stem} in {shown(str(student.folder))} is not what was graded before")
    kept = keep(out)
    this.ask(options, again)
    code = this.finish()
    lines = [line for cell in this.cells()      # by other rules, points change in chapters that were not asked too
             for line in changes(was.get((cell["student"], cell["chapter"])), cell)]
    (kept / "changes.txt").write_text("\n".join(lines) + "\n", "utf-8")
    this.say("\n".join(["", "What changed:", *(lines or ["nothing"])]))
    this.say(f"The cells of before are kept in {kept}.")
    return code


def keep(out: Path) -> Path:
    """Copy a run's cells, manifest and grades to a folder beside them."""
    stamp, count = time.strftime("before-%Y%m%d-%H%M%S"), 1
    kept = out / "kept" / stamp
    while kept.exists():
        count += 1
        kept = out / "kept" / f"{stamp}-{count}"
    shutil.copytree(out / "cells", kept / "cells")
    for name in ("manifest.json", "grades.csv"):
        if (out / name).exists():
            shutil.copy2(out / name, kept / name)
    return kept


def changes(old: dict | None, new: dict) -> list[str]:
    """What is different in a cell: points, and each check whose verdict changed; nothing where nothing is."""
    def verdicts(cell: dict) -> dict:
        return {(one["file"], one["check"]): one["verdict"] for one in cell["verdicts"]}
    where = f"{new['student']} {new['chapter']}"
    if old is None:
        return [f"{where}: asked for the first time, {new['points']:g} of {new['of_points']:g} points"]
    one, other = verdicts(old), verdicts(new)
    lines = [f"  {key[0]}::{key[1]}: {one.get(key, 'not asked')} → {other.get(key, 'not asked')}"
             for key in dict.fromkeys([*one, *other]) if one.get(key) != other.get(key)]
    points = [f"{cell['points']:g} of {cell['of_points']:g}" for cell in (old, new)]
    if lines or points[0] != points[1]:
        return [f"{where}: {points[0]} → {points[1]} points", *lines]
    return []
