"""`grade --regrade MANIFEST`: chapters of a run again, and what that changed. The old cells are kept."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from grader.classroom.intake.collect import Handed, shown
from grader.classroom.output.gradebook import Gradebook
from grader.classroom.output.grading import Grading
from grader.classroom.run import cells
from grader.classroom.run.folder import locked
from grader.classroom.run.grade import Run
from grader.classroom.run.options import checks_of, manifest, need_walls, rules_of, settle, template_of
from grader.course.chapters import several
from grader.front.results import from_json, to_json


def run(options) -> int:
    """Ask chapters again, with the run's own seed and what was handed in then; returns the exit code."""
    before = manifest(options.regrade)
    out = options.regrade.resolve().parent
    if options.seed not in (None, before["seed"]):
        raise ValueError(f"--seed {options.seed}: the run's own seed is {before['seed']}, and a regrade keeps it")
    if options.submissions or options.out:
        raise ValueError("--regrade takes what was handed in, and where results go, from its manifest")
    if options.dry_run:
        raise ValueError("--dry-run does not go with --regrade")
    begun = before["options"]["chapters"]
    again = [chapter.stem for chapter in several(*options.chapters or begun)]
    if other := [stem for stem in again if stem not in begun]:
        raise ValueError(f"{other[0]} is not in this run; its chapters are {', '.join(begun)}")
    students = [Handed(name, said["source"], out / "submissions" / name, refused=said["refused"],
                       names=said.get("names", []))
                for name, said in before["students"].items()]
    settled = {**before["options"], **settle(options, before["options"])}
    rules, template = rules_of(options, settled, before), template_of(options, settled)
    need_walls(settled, options.cluster)
    this = Run(out, settled, before["seed"], students, before["refused"], rules, template)
    this.checks = checks_of(before)
    said = {**to_json(Grading()), **before.get("rules", {})}       # an earlier version knew fewer rules
    was = Gradebook(this.cells(), this.checks, from_json(Grading, said) if "rules" in before else rules)
    for student in students:
        for cell in was.students.get(student.name, ()):
            now = cells.hashes(cell.chapter, student.folder, this.setting)["submission"]
            if cell.chapter.stem in again and cell.hashes["submission"] != now:
                this.say(f"{student.name}: {cell.chapter.stem} in {shown(str(student.folder))} is not what was graded "
                         "before")
    with locked(out):
        kept = keep(out)
        this.ask(options, again)
        code = this.finish()
    lines = list(changes(was, this.book()))     # by other rules, points change in chapters that were not asked too
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


def changes(was: Gradebook, now: Gradebook) -> Iterator[str]:
    """What is different, cell by cell: points, and each check whose verdict changed."""
    before = {(cell.student, cell.chapter): cell for cell in was.cells}
    for cell in now.cells:
        where, old = f"{cell.student} {cell.chapter.stem}", before.get((cell.student, cell.chapter))
        if old is None:
            yield f"{where}: asked for the first time, {now.cell(cell)} points"
            continue
        one, other = ({(result.file, result.check): result.verdict for result in of.verdicts} for of in (old, cell))
        lines = [f"  {file}::{check}: {one.get((file, check), 'not asked')} → {other.get((file, check), 'not asked')}"
                 for file, check in {**one, **other} if one.get((file, check)) != other.get((file, check))]
        if lines or str(was.cell(old)) != str(now.cell(cell)):
            yield f"{where}: {was.cell(old)} → {now.cell(cell)} points"
            yield from lines
