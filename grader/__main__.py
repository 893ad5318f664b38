"""The command line: check, watch, hint, reset, stubs; for an instructor handout, grade, new and without."""

import argparse
import importlib.util
import os
import secrets
import sys
from pathlib import Path

from grader import chapters
from grader.engine import FINE, TIMEOUT, Grader
from grader.submission import CourseError

CLASSROOM = Path(__file__).parent / "classroom"     # a students' edition has none
ACTIVATE = r".venv\Scripts\activate" if os.name == "nt" else "source .venv/bin/activate"


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns the exit code: 0 nothing is wrong, 1 something is, 2 bad usage."""
    options = _parser().parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")    # a console without these characters
    try:
        need_libraries()
        return options.run(options)
    except KeyboardInterrupt:
        return 130
    except (ValueError, OSError, CourseError) as error:
        print(f"grader: {error}", file=sys.stderr)
        return 2


def need_libraries() -> None:
    """Raise a CourseError where what the grader needs is not installed for this Python."""
    for name in ("torch", "rich"):
        if importlib.util.find_spec(name) is None:
            raise CourseError(f"{name} is not installed for {sys.executable}. If you have run `make check`, "
                              f"run `{ACTIVATE}` first; if not, the README says how to install.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m grader", description="Grades the exercises.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    check = commands.add_parser("check", help="grade chapters and show the board")
    check.add_argument("chapters", nargs="*", metavar="CHAPTER", help="7, 07, rope or ex07_rope; all without")
    check.add_argument("--submission", type=Path, metavar="DIR",
                       help="grade the files in DIR; earlier chapters are then the reference's")
    check.add_argument("--hidden", action="store_true", help="ask the hidden checks too")
    check.add_argument("--all", action="store_true", help="list every failure in short")
    check.add_argument("--json", type=Path, metavar="FILE", help="write every verdict to FILE")
    check.set_defaults(run=_check)

    watch = commands.add_parser("watch", help="grade at every save")
    watch.add_argument("chapters", nargs="*", metavar="CHAPTER", help="only these; all without")
    watch.set_defaults(run=_watch)

    graded = _for_instructors(commands) if CLASSROOM.is_dir() else None
    for command in filter(None, (check, watch, graded)):
        command.add_argument("--device", choices=("cpu", "cuda"), default=None if command is graded else "cpu")
        command.add_argument("--seed", type=int, metavar="N",
                             help="other inputs (default 0; for what was handed in, one that nobody has seen)")
        command.add_argument("--timeout", type=float, default=None if command is graded else TIMEOUT, metavar="S",
                             help=f"seconds that one check may take (default {TIMEOUT:g})")

    hint = commands.add_parser("hint", help="a hint from the lesson")
    hint.add_argument("chapter", metavar="CHAPTER")
    hint.add_argument("part", metavar="PART", help="a function, a class, or an exercise's number")
    hint.add_argument("number", type=int, nargs="?", default=1, metavar="1|2|3")
    hint.set_defaults(run=_hint)

    reset = commands.add_parser("reset", help="put a fresh stub in place; the old file is kept")
    reset.add_argument("chapter", metavar="CHAPTER")
    reset.set_defaults(run=_reset)

    stubs = commands.add_parser("stubs", help="write the stubs anew from the solutions")
    stubs.set_defaults(run=_stubs)
    return parser


def _for_instructors(commands):
    """The commands of classroom/; returns the parser of `grade`, which has options in common with `check`."""
    grade = commands.add_parser("grade", help="grade a class: a folder or an archive per student")
    grade.add_argument("submissions", type=Path, nargs="?", metavar="SUBMISSIONS",
                       help="a folder of folders or archives (.zip, .tar, .tar.gz), one per student")
    grade.add_argument("--out", type=Path, metavar="DIR", help="a new folder for all that comes out")
    grade.add_argument("--jobs", type=_count, default=1, metavar="N", help="submissions graded at once (default 1)")
    grade.add_argument("--chapters", nargs="+", metavar="CHAPTER", help="only these; all without")
    grade.add_argument("--hidden-from", type=Path, metavar="DIR",
                       help="ask hidden checks in DIR too, such as test_ex03_linear_mine.py")
    grade.add_argument("--resume", action="store_true", help="go on with the run in --out")
    grade.add_argument("--regrade", type=Path, metavar="MANIFEST", help="ask a run again, and show what changed")
    grade.add_argument("--grading", type=Path, metavar="FILE", help="how points are made (default grading.toml)")
    grade.add_argument("--canvas", type=Path, metavar="TEMPLATE", help="fill in a gradebook that Canvas has exported")
    grade.add_argument("--no-jail", action="store_true", help="go on without walls, and mark every result")
    grade.set_defaults(run=_grade)

    handout = commands.add_parser("handout", help="write the students' edition, without answers")
    handout.add_argument("folder", type=Path, metavar="DIR", help="a new or an empty folder")
    handout.add_argument("--chapters", metavar="0-9", help="leave out the others")
    handout.add_argument("--given", metavar="0-4", help="give the solutions of these")
    handout.set_defaults(run=_handout)

    new = commands.add_parser("new", help="write every file of a new chapter")
    new.add_argument("number", metavar="NUMBER", help="two digits, such as 28")
    new.add_argument("name", metavar="NAME", help="small letters and digits, with _ between words")
    new.set_defaults(run=_new)

    without = commands.add_parser("without", help="list what needs a chapter, to leave it out")
    without.add_argument("chapters", nargs="+", metavar="CHAPTER")
    without.set_defaults(run=_without)
    return grade


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"it must be a number from 1 to 1000, got {text!r}")
    return int(text)


def _chosen(options) -> list[chapters.Chapter]:
    return sorted({chapters.find(name) for name in options.chapters}) or chapters.chapters()


def _seed(options) -> int:
    """A student checks on the public seed; what is handed in is graded on one that nobody has seen."""
    if options.seed is not None:
        return options.seed
    return secrets.randbelow(1 << 31) if getattr(options, "submission", None) else 0


def _check(options) -> int:
    chosen, folder = _chosen(options), options.submission
    if folder and not folder.is_dir():
        raise ValueError(f"--submission {folder} is no folder")
    bare = chapters.without_hidden(chosen) if options.hidden else []
    with Grader(options.device, _seed(options), options.timeout) as grader:
        from grader import report, results, screen  # while the zygote imports torch
        found, show = {}, screen.Screen()
        for chapter in chosen:
            found[chapter] = list(grader.grade(
                chapter, folder, options.hidden, name_all=bool(options.json or options.all),
                progress=show.progress(report.title(chapter))))
            grader.mistakes.forget(chapter)
            show.text(report.row(chapter, found[chapter]))
        show.text("\n" + report.board(found, grader.setting, folder, options.all))
        if bare:
            show.text(f"\nNo hidden checks are there for {', '.join(chapter.number for chapter in bare)}.")
        if options.json:
            results.write_json(options.json, found, grader.setting, folder or chapters.EXERCISES)
    fine = all(verdict.word in FINE for verdicts in found.values() for verdict in verdicts)
    return 0 if fine else 1


def _grade(options) -> int:
    from grader.classroom import grade, regrade
    return (regrade if options.regrade else grade).run(options)


def _watch(options) -> int:
    from grader import watch
    with Grader(options.device, _seed(options), options.timeout) as grader:
        watch.run(grader, _chosen(options))
    return 0


def _hint(options) -> int:
    from grader import hints
    print(hints.hint(chapters.find(options.chapter), options.part, options.number))
    return 0


def _reset(options) -> int:
    chapter = chapters.find(options.chapter)
    kept = chapters.reset(chapter)
    print(f"{chapters.shown(chapter.exercise)} is a fresh stub.")
    if kept:
        print(f"Your file is kept as {chapters.shown(kept)}.")
    return 0


def _handout(options) -> int:
    from grader.classroom import handout
    chosen = chapters.several(options.chapters) if options.chapters else chapters.chapters()
    given = chapters.several(options.given) if options.given else []
    handout.run(options.folder, chosen, given, tell=lambda words: print(words, flush=True))
    print(f"{options.folder} holds the students' edition of {len(chosen)} chapters.")
    return 0


def _stubs(options) -> int:
    written, kept = chapters.write_stubs()
    print(f"{len(written)} stubs written, {len(kept)} kept because they are begun.")
    for chapter in kept:
        print(f"  kept {chapters.shown(chapter.exercise)} "
              f"(python -m grader reset {chapter.number} gives a fresh one and keeps yours)")
    return 0


def _new(options) -> int:
    from grader import report
    from grader.classroom.new import new
    for path in new(options.number, options.name):
        print(report.shown(path))
    print(f"\nNext: make pictures; make notebooks CHAPTER={options.number}; its row into the README's table.")
    return 0


def _without(options) -> int:
    from grader.classroom.without import without
    print(without(_chosen(options)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
