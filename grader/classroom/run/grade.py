"""`python -m grader grade`: a class's submissions → cells → what is handed back, and regrading."""

import contextlib
import dataclasses
import json
import secrets
import shutil
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from grader.classroom.intake import collect, sources
from grader.classroom.intake.reading import ENDINGS, shown
from grader.classroom.intake.roster import Roster
from grader.classroom.output import canvas, exports, grading, pages
from grader.classroom.output.gradebook import Gradebook
from grader.classroom.run import cells, folder
from grader.classroom.run.cells import Cell
from grader.classroom.run.jobs import Jobs
from grader.classroom.run.options import checks_of, manifest, need_walls, rules_of, setting_of, settle, template_of
from grader.classroom.term import arrivals, semester
from grader.course import chapters
from grader.course.chapters import Chapter, CourseError
from grader.front import provenance, report, results
from grader.front.results import Asked
from grader.sandbox.setting import Setting

SCRATCH = "scratch"         # in OUT, while a run lasts


def run(options) -> int:
    """Grade a class. 0: all that was handed in has been graded; 1: something could not be."""
    if not options.submissions and not options.resume:
        raise ValueError("grade takes SUBMISSIONS, a folder of folders or archives, one per student")
    if not options.out:
        raise ValueError("grade takes --out DIR, the folder for what comes out")
    before = folder.before(options.out, options.resume, options.term)
    settled = settle(options, before.get("options", {}))
    submissions = Path(settled["submissions"])
    out = options.out.resolve()
    if out == submissions or out in submissions.parents or submissions in out.parents:
        raise ValueError(f"--out {options.out} and SUBMISSIONS must not lie in each other")
    seed = before.get("seed", options.seed)
    if options.seed not in (None, seed):
        raise ValueError(f"--seed {options.seed}: this run was begun with {seed}; --resume keeps it")
    if "ended" in before and options.seed is None:      # its pages were given out, and may tell the seed
        seed = None
    rules = rules_of(options, settled, before)      # a mistake in it is said before anything is asked
    template = template_of(options, settled)
    if rules.term:
        settled["chapters"] = semester.chapters_of(rules.term, before, options)
    elif options.dry_run:
        raise ValueError("--dry-run goes with --term FILE")
    if not options.dry_run:
        need_walls(settled, options.cluster)
    shard = (1, 1)
    if settled["shard"]:
        shard = collect.parse_shard(settled["shard"])
        if seed is None:
            raise ValueError("--shard needs --seed N, the same for all shards")
    roster = Roster.read(Path(settled["roster"])) if settled["roster"] else None
    with collect.Reader() as reader:        # what is no class is refused before anything is written
        named = collect.whose(submissions, reader, roster)[0]
    if settled["shard"]:
        settled["class"] = sorted(named)
    with folder.copied(out) if options.dry_run else folder.locked(out) as where:
        if rules.term:
            came = arrivals.take_in(submissions, where, rules, before, roster, options.chapters)
            students, refused = came.students, came.refused
        else:
            students, refused = collect.collect(submissions, out / "submissions", shard, roster)
        this = Run(where, settled, secrets.randbelow(1 << 31) if seed is None else seed, students, refused, rules,
                   template)
        this.checks = checks_of(before)
        for line in came.said if rules.term else ():
            this.say(line)
        this.ask(options)
        return 0 if options.dry_run else this.finish()


@dataclass
class Run:
    """One run, in its folder."""

    out: Path
    options: dict
    seed: int
    students: list[collect.Handed]
    refused: dict[str, str]
    grading: grading.Grading
    template: canvas.Template | None = None

    def __post_init__(self):
        self.chapters = [Chapter(stem) for stem in self.options["chapters"]]
        self.setting = setting_of(self.options, self.seed)
        self.begun, self.console = time.time(), Console(highlight=False)
        self.checks: dict[str, tuple[Asked, ...]] = {}
        self.layers: dict[str, bool] = {}
        self.scope = ""

    def say(self, words: str) -> None:
        """A line on the screen. Names are strangers' words: no markup is read in them, and they move no cursor."""
        words = "".join(c if c.isprintable() or c == "\n" else "?" for c in words)
        self.console.print(words, markup=False, soft_wrap=True)

    def ask(self, options, again: Collection[str] = ()) -> None:
        """Ask what has not been asked, or all that is there of the chapters in `again`, on its old seed, and no other.

        Each cell is written as it ends. What was graded stays where the file is no longer there.
        """
        if strange := set(options.students or ()) - {student.name for student in self.students}:
            raise ValueError(f"--students {', '.join(sorted(strange))}: nobody here is called that")
        only = chapters.several(*options.chapters) if self.grading.term and options.chapters else self.chapters
        wanted = [chapter for chapter in self.chapters if chapter in only and (not again or chapter.stem in again)]
        scratch = self.out / SCRATCH
        shutil.rmtree(scratch, ignore_errors=True)      # of a run that was killed
        scratch.mkdir(parents=True)
        if not options.dry_run:
            seed = "each cell on the seed that it had" if again else f"seed {self.seed}"
            self.say(f"{len(self.students)} students × {len(wanted)} chapters, {seed}.")
        self._warn()
        students = [student for student in self.students if not options.students or student.name in options.students]
        blank = [Cell.blank(student, chapter, self.setting) for chapter in wanted for student in students
                 if self.grading.is_due(student.name, chapter)]
        self._write_manifest()
        todo = self._todo(blank, bool(again))
        looked_at = chapters.several(*options.chapters) if options.chapters else chapters.chapters()
        for line in semester.lines(self.grading, self.students, todo, looked_at):
            self.say(line)
        if options.dry_run:
            self._say_strangers()
            self.say("Nothing was asked, and nothing was written.")
            return
        folders = {student.name: student.folder for student in self.students}
        try:
            for seed in dict.fromkeys(cell.seed for cell in todo) or [self.seed]:
                with self._pool(options, scratch, dataclasses.replace(self.setting, seed=seed)) as pool:
                    self._plan(pool, wanted)
                    now = [cell for cell in todo if cell.seed == seed]
                    with self._bar(len(now)) as step:
                        for cell in pool.run(now, folders, self.checks):
                            cells.write(self.out, cell)
                            step(f"{cell.student[:20]} {cell.chapter.stem[2:]}")
                    for machine in pool.lost():
                        self.say(f"{machine} was lost on the way; what it had under way was asked again")
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _todo(self, blank: list[Cell], again: bool) -> list[Cell]:
        """Of these blank cells, those to be asked; what is missing is written as it is."""
        todo, edited = [], cells.edited(self.out)
        for cell in blank:
            old, where = cells.read(self.out, cell.student, cell.chapter), f"{cell.student} {cell.chapter.stem}"
            if old and not again and cells.path(self.out, cell.student, cell.chapter) in edited:
                self.say(f"{where}: its verdicts were changed by another hand, and are asked again")
                old = None
            if cell.missing and not old:
                cells.write(self.out, cell)
            elif cell.missing:
                if not again and old.missing:       # again: what else was handed in is no longer here
                    cells.write(self.out, cell)
                elif not again:
                    self.say(f"{where} is no longer there; what was graded stays, until "
                             f"{cells.path(self.out, cell.student, cell.chapter).relative_to(self.out)} is deleted")
            elif again or not old or not cell.same(old):
                todo.append(dataclasses.replace(cell, seed=old.seed) if again and old else cell)
        if reused := len(blank) - len(todo) - sum(cell.missing for cell in blank):
            self.say(f"{reused} are as they were graded, {len(todo)} are to be asked.")
        return todo

    def _say_strangers(self) -> None:
        """Whom the instructor's own files name, and nobody is called."""
        for what, named in self.grading.named().items():
            if nobody := named - {student.name for student in self.students}:
                self.say(f"{what} names nobody here: {', '.join(sorted(nobody))}")

    def _plan(self, pool, wanted: list[Chapter]) -> None:
        """Have the reference answer, and see that the walls hold."""
        plan = pool.plan([chapter.stem for chapter in wanted])
        self.checks, self.layers, self.scope = {**self.checks, **plan.checks}, plan.layers, plan.scope
        self._write_manifest()
        if holes := [layer for layer, holds in self.layers.items() if not holds]:
            raise CourseError(f"the jail does not hold: {', '.join(holes)}. --no-jail goes on all the same, "
                              "and marks every result.")
        self.say(f"Behind walls: {', '.join(self.layers)}." if self.layers else
                 "WITHOUT WALLS: what was handed in can read this disk and write to it.")
        self.say(f"{self.scope[:1].upper()}{self.scope[1:]}.")

    def _pool(self, options, scratch: Path, setting: Setting):
        """What asks cells: processes here, or machines."""
        if not options.cluster:
            return Jobs(options.jobs, setting, scratch)
        try:
            from grader.classroom.run.cluster import Cluster
        except ModuleNotFoundError as error:
            raise CourseError(f"--cluster needs {error.name}: pip install -r requirements-cluster.txt") from None
        return Cluster(options.cluster, options.jobs, setting, scratch)

    @contextlib.contextmanager
    def _bar(self, total: int):
        """A progress bar with the time to go, where there is a terminal; yields what moves it."""
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
                   TimeRemainingColumn())
        with Progress(*columns, console=self.console, disable=not self.console.is_terminal) as progress:
            task = progress.add_task("", total=total)
            yield lambda words: progress.update(task, advance=1, description=words)

    def _warn(self) -> None:
        """Say what will not be graded, and what will not be asked."""
        for name, why in self.refused.items():
            self.say(f"refused: {shown(name)}: {why}")
        for student in self.students:
            for why in student.refused:
                self.say(f"left out: {student.name}: {why}")
            if mixed := sources.scripts(student.name):
                self.say(f"look at the name {student.name}: one word has {' and '.join(sorted(mixed)).lower()} letters")
        bare = [c.number for c in self.chapters if not any(cells.files(c, self.setting).values())]
        if bare:
            self.say(f"No hidden checks are there for {', '.join(bare)}: only what students see is asked.")
        for name in cells.not_asked(self.setting):
            self.say(f"not asked: {name} in --hidden-from is named for no chapter (test_ex03_linear.py, "
                     "test_ex03_linear_mine.py)")

    def _write_manifest(self, **more) -> None:
        content = {
            **provenance.made_with(), "seed": self.seed, "options": self.options, "layers": self.layers,
            "scope": self.scope,
            "begun": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(self.begun)), **more,
            "rules": results.to_json(self.grading), "checks": results.to_json(self.checks),
            "students": {s.name: {"source": s.source, "refused": s.refused, "names": s.names} for s in self.students},
            "refused": {shown(name): why for name, why in self.refused.items()},
            "gone": self.gone(), "not_asked": cells.not_asked(self.setting)}
        results.write_whole(self.out / "manifest.json", json.dumps(content, indent=1) + "\n")

    def gone(self) -> list[str]:
        """Who has cells here of an earlier run, and is neither among the students now nor refused."""
        here = {student.name for student in self.students}
        return sorted(folder.name for folder in (self.out / "cells").glob("*") if folder.name not in here and not any(
            folder.name + ending in self.refused for ending in ("", *ENDINGS)))

    def cells(self) -> list[Cell]:
        """All cells of the run, by chapter and student."""
        return [cell for chapter in self.chapters for student in self.students
                if (cell := cells.read(self.out, student.name, chapter))
                and (not cell.missing or self.grading.is_due(student.name, chapter))]

    def book(self) -> Gradebook:
        return Gradebook(self.cells(), self.checks, self.grading)

    def finish(self) -> int:
        """Write what is handed back, and say how it went."""
        book = self.book()
        self._write_manifest(ended=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                             hashes={cell.chapter.stem: {name: value for name, value in cell.hashes.items()
                                                         if name != "submission"} for cell in book.cells})
        exports.write(self.out, book)
        if self.template:
            for line in self.template.fill(self.out / "canvas.csv", book):
                self.say(f"canvas: {line}")
        elif (old := self.out / "canvas.csv").exists():     # with the points of before
            old.replace(self.out / "canvas.csv.old")
            self.say(f"canvas: {self.options.get('canvas') or 'the gradebook'} is gone, so what was filled in before "
                     "is now canvas.csv.old; --canvas TEMPLATE fills in another")
        pages.write(self.out, book, manifest(self.out / "manifest.json"))
        for chapter in self.chapters:
            self.say(_row(chapter, book))
        lost = [cell for cell in book.cells if cell.note and not cell.missing]
        for cell in lost:
            self.say(f"could not be graded: {cell.student} {cell.chapter.stem}: {cell.note[-300:]}")
        for student in sorted(name for name, own in book.students.items() if all(cell.missing for cell in own)):
            notes = [cell.note for cell in book.students[student] if cell.note]
            instead = dict.fromkeys(words for note in notes for words in note.split("; "))
            self.say(f"missing: {student} handed in none of these chapters"
                     f"{': ' if instead else ''}{'; '.join(instead)}")
        if gone := self.gone():
            self.say(f"no longer handed in: {', '.join(gone)}; the files of before stay, and count nowhere")
        self._say_strangers()
        self.say(f"Written to {chapters.shown(self.out)}: grades.csv, class.html, feedback/, results/, junit.xml, "
                 f"manifest.json{', canvas.csv' if self.template else ''}.")
        return 1 if lost or self.refused or any(student.refused for student in self.students) else 0


def _row(chapter: Chapter, book: Gradebook) -> str:
    found = [cell for cell in book.cells if cell.chapter == chapter]
    graded = [cell for cell in found if not cell.missing]
    mean = book.sum(graded).points / max(1, len(graded))
    missing = len(found) - len(graded)
    return f"{report.title(chapter):<28} {len(graded):>4} graded, mean {mean:.1f} of {book.most(chapter):g} points" + (
        f", {missing} missing" if missing else "")
