"""`python -m grader grade`: a class's submissions → cells → what is handed back, and regrading."""

import contextlib
import json
import secrets
import shutil
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from grader.classroom.intake import collect
from grader.classroom.output import canvas, exports, grading, pages
from grader.classroom.output.gradebook import Gradebook
from grader.classroom.run import cells
from grader.classroom.run.cells import Cell
from grader.classroom.run.jobs import Jobs
from grader.course import chapters
from grader.course.chapters import Chapter, CourseError
from grader.front import provenance, report, results
from grader.front.results import Asked
from grader.sandbox import jail
from grader.sandbox.setting import TIMEOUT, Setting

SCRATCH = "scratch"         # in OUT, while a run lasts
# The options that a run keeps, as they are where nothing is said.
WITHOUT = {"submissions": None, "chapters": [], "hidden_from": "", "timeout": TIMEOUT, "device": "cpu", "walls": True,
           "shard": "", "grading": "", "canvas": ""}


def run(options) -> int:
    """Grade a class. 0: all that was handed in has been graded; 1: something could not be."""
    if not options.submissions and not options.resume:
        raise ValueError("grade takes SUBMISSIONS, a folder of folders or archives, one per student")
    if not options.out:
        raise ValueError("grade takes --out DIR, the folder for what comes out")
    before = _before(options.out, options.resume)
    settled = _settle(options, before.get("options", {}))
    submissions = Path(settled["submissions"])
    out = options.out.resolve()
    if out == submissions or out in submissions.parents or submissions in out.parents:
        raise ValueError(f"--out {options.out} and SUBMISSIONS must not lie in each other")
    seed = before.get("seed", options.seed)
    if options.seed not in (None, seed):
        raise ValueError(f"--seed {options.seed}: this run was begun with {seed}; --resume keeps it")
    rules = rules_of(options, settled)      # a mistake in it is said before anything is asked
    template = template_of(options, settled)
    need_walls(settled, options.cluster)
    shard = (1, 1)
    if settled["shard"]:
        shard = collect.parse_shard(settled["shard"])
        if seed is None:
            raise ValueError("--shard needs --seed N, the same for all shards")
        settled["class"] = sorted(collect.sources_of(submissions)[0])
    students, refused = collect.collect(submissions, out / "submissions", shard)
    this = Run(out, settled, secrets.randbelow(1 << 31) if seed is None else seed, students, refused, rules, template)
    this.checks = checks_of(before)
    this.ask(options)
    return this.finish()


def _before(out: Path, resume: bool) -> dict:
    """The manifest of the run to go on with; {} for a new one."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is no folder")
    if not out.exists() or not any(out.iterdir()):
        return {}
    if not resume:
        raise ValueError(f"--out {out} is not empty: --resume goes on with the run that lies there")
    return manifest(out / "manifest.json")


def manifest(path: Path) -> dict:
    """A run's manifest; a ValueError where it is none."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is no manifest of a run: {error}") from None


def _settle(options, before: dict) -> dict:
    """The options that a run keeps: as given now, else as it was begun, else as they are without."""
    given = {"submissions": options.submissions and str(options.submissions.resolve()),
             "hidden_from": options.hidden_from and str(options.hidden_from.resolve()),
             "timeout": options.timeout, "device": options.device, "shard": options.shard,
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
    return canvas.Template.read(path) if path and (options.canvas or path.is_file()) else None


def need_walls(settled: dict, cluster: str | None) -> None:
    """A CourseError where walls are wanted and cannot be built. The machines of a cluster say so themselves."""
    if settled["walls"] and cluster in (None, "local") and (why := jail.missing()):
        raise CourseError(f"{why}. --no-jail goes on without walls, and marks every result.")


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

    def say(self, words: str) -> None:
        """A line on the screen. Names are strangers' words: no markup is read in them."""
        self.console.print(words, markup=False, soft_wrap=True)

    def ask(self, options, again: Collection[str] = ()) -> None:
        """Ask what has not been asked, or all that is there of the chapters in `again` and of no other.

        Each cell is written as it ends.
        """
        wanted = [chapter for chapter in self.chapters if not again or chapter.stem in again]
        scratch = self.out / SCRATCH
        shutil.rmtree(scratch, ignore_errors=True)      # of a run that was killed
        scratch.mkdir(parents=True)
        self.say(f"{len(self.students)} students × {len(wanted)} chapters, seed {self.seed}.")
        self._warn()
        blank = [Cell.blank(student, chapter, self.setting) for chapter in wanted for student in self.students]
        self._write_manifest()
        try:
            with self._pool(options, scratch) as pool:
                plan = pool.plan([chapter.stem for chapter in wanted])
                self.checks, self.layers = {**self.checks, **plan.checks}, plan.layers
                self._write_manifest()
                if holes := [layer for layer, holds in self.layers.items() if not holds]:
                    raise CourseError(f"the jail does not hold: {', '.join(holes)}. --no-jail goes on all the same, "
                                      "and marks every result.")
                self.say(f"Behind walls: {', '.join(self.layers)}." if self.layers else
                         "WITHOUT WALLS: what was handed in can read this disk and write to it.")
                todo = []
                for cell in blank:
                    old = cells.read(self.out, cell.student, cell.chapter)
                    if cell.missing:
                        if not (old and again):         # again: what else was handed in is no longer here
                            cells.write(self.out, cell)
                    elif again or not old or not cell.same(old):
                        todo.append(cell)
                if reused := len(blank) - len(todo) - sum(cell.missing for cell in blank):
                    self.say(f"{reused} are as they were graded, {len(todo)} are to be asked.")
                folders = {student.name: student.folder for student in self.students}
                with self._bar(len(todo)) as step:
                    for cell in pool.run(todo, folders, self.checks):
                        cells.write(self.out, cell)
                        step(f"{cell.student[:20]} {cell.chapter.stem[2:]}")
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _pool(self, options, scratch: Path):
        """What asks cells: processes here, or machines."""
        if not options.cluster:
            return Jobs(options.jobs, self.setting, scratch)
        try:
            from grader.classroom.run.cluster import Cluster
        except ModuleNotFoundError as error:
            raise CourseError(f"--cluster needs {error.name}: pip install -r requirements-cluster.txt") from None
        return Cluster(options.cluster, options.jobs, self.setting, scratch)

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
            self.say(f"refused: {collect.shown(name)}: {why}")
        for student in self.students:
            for why in student.refused:
                self.say(f"left out: {student.name}: {why}")
        bare = [c.number for c in self.chapters if not any(cells.files(c, self.setting).values())]
        if bare:
            self.say(f"No hidden checks are there for {', '.join(bare)}: only what students see is asked.")
        for name in cells.not_asked(self.setting):
            self.say(f"not asked: {name} in --hidden-from is named for no chapter (test_ex03_linear.py, "
                     "test_ex03_linear_mine.py)")

    def _write_manifest(self, **more) -> None:
        content = {
            **provenance.made_with(), "seed": self.seed, "options": self.options, "layers": self.layers,
            "begun": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(self.begun)), **more,
            "rules": results.to_json(self.grading), "checks": results.to_json(self.checks),
            "students": {s.name: {"source": s.source, "refused": s.refused} for s in self.students},
            "refused": {collect.shown(name): why for name, why in self.refused.items()},
            "gone": self.gone(), "not_asked": cells.not_asked(self.setting)}
        results.write_whole(self.out / "manifest.json", json.dumps(content, indent=1) + "\n")

    def gone(self) -> list[str]:
        """Who has cells here of an earlier run, and is neither among the students now nor refused."""
        here = {student.name for student in self.students}
        return sorted(folder.name for folder in (self.out / "cells").glob("*") if folder.name not in here and not any(
            folder.name + ending in self.refused for ending in ("", *collect.ENDINGS)))

    def cells(self) -> list[Cell]:
        """All cells of the run, by chapter and student."""
        return [cell for chapter in self.chapters for student in self.students
                if (cell := cells.read(self.out, student.name, chapter))]

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
        late = self.grading.days.keys() - {student.name for student in self.students}
        if late:
            self.say(f"late.days names nobody here: {', '.join(sorted(late))}")
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
