"""The command line: check, watch, hint, reset, update, assemble, stubs; instructors and authors have their rooms."""

import argparse
import secrets
import sys
from pathlib import Path

from grader.course import chapters, stubs
from grader.course.chapters import CourseError
from grader.course.packages import need_libraries
from grader.judge.engine import Grader
from grader.sandbox.setting import TIMEOUT, Setting

HERE = Path(__file__).parent


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m grader", description="Grades the exercises.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    how = _how("cpu", TIMEOUT)
    check = commands.add_parser("check", help="grade chapters and show the board", parents=[how])
    check.add_argument("chapters", nargs="*", metavar="CHAPTER", help="7, 07, rope or ex07_rope; all without")
    check.add_argument("--submission", type=Path, metavar="DIR",
                       help="grade the files in DIR; earlier chapters are then the reference's")
    check.add_argument("--hidden", action="store_true", help="ask the hidden checks too")
    check.add_argument("--all", action="store_true", help="list every failure in short")
    check.add_argument("--json", type=Path, metavar="FILE", help="write every verdict to FILE")
    check.set_defaults(run=_check)

    watch = commands.add_parser("watch", help="grade at every save", parents=[how])
    watch.add_argument("chapters", nargs="*", metavar="CHAPTER", help="only these; all without")
    watch.set_defaults(run=_watch)

    hint = commands.add_parser("hint", help="a hint from the lesson")
    hint.add_argument("chapter", metavar="CHAPTER")
    hint.add_argument("part", metavar="PART", help="a function, a class, or an exercise's number")
    hint.add_argument("number", type=int, nargs="?", default=1, metavar="1|2|3")
    hint.set_defaults(run=_hint)

    reset = commands.add_parser("reset", help="put a fresh stub in place; the old file is kept")
    reset.add_argument("chapter", metavar="CHAPTER")
    reset.set_defaults(run=_reset)

    one = commands.add_parser("assemble", help="put the model that you built into one file that needs torch alone")
    one.add_argument("out", type=Path, metavar="OUT.py")
    one.set_defaults(run=_assemble)

    update = commands.add_parser("update", help="bring what is new in an edition; what you began stays")
    update.add_argument("edition", type=Path, metavar="EDITION", help="the folder or the zip of the new edition")
    update.set_defaults(run=_update)

    anew = commands.add_parser("stubs", help="write the stubs anew from the solutions")
    anew.set_defaults(run=_stubs)

    if (HERE / "author").is_dir():          # a students' edition has neither of these
        from grader.author.commands import add
        add(commands)
    if (HERE / "classroom").is_dir():
        from grader.classroom.commands import add
        add(commands, _how(None, None))     # a run that goes on keeps what it was begun with
    return parser


def _how(device: str | None, timeout: float | None) -> argparse.ArgumentParser:
    """The options that say how checks are asked, with these defaults."""
    how = argparse.ArgumentParser(add_help=False)
    how.add_argument("--device", choices=("cpu", "cuda"), default=device)
    how.add_argument("--seed", type=int, metavar="N",
                     help="other inputs (default 0; for what was handed in, one that nobody has seen)")
    how.add_argument("--timeout", type=float, default=timeout, metavar="S",
                     help=f"seconds that one check may take (default {TIMEOUT:g})")
    return how


def _chosen(options) -> list[chapters.Chapter]:
    return sorted({chapters.find(name) for name in options.chapters}) or chapters.chapters()


def _setting(options) -> Setting:
    """A student checks on the public seed; what is handed in is graded on one that nobody has seen."""
    seed = options.seed
    if seed is None:
        seed = secrets.randbelow(1 << 31) if getattr(options, "submission", None) else 0
    return Setting(options.device, seed, options.timeout)


def _check(options) -> int:
    chosen, folder = _chosen(options), options.submission
    if folder and not folder.is_dir():
        raise ValueError(f"--submission {folder} is no folder")
    bare = chapters.without_hidden(chosen) if options.hidden else []
    with Grader(_setting(options)) as grader:
        from grader.front import report, results, screen  # while the zygote imports torch
        found, show = {}, screen.Screen()
        for chapter in chosen:
            found[chapter] = list(grader.grade(
                chapter, folder, options.hidden, waited_for=not (options.json or options.all),
                progress=show.progress(report.title(chapter))))
            grader.mistakes.forget(chapter)
            show.text(report.row(chapter, found[chapter]))
        show.text("\n" + report.board(found, grader.setting, folder, options.all))
        if bare:
            show.text(f"\nNo hidden checks are there for {', '.join(chapter.number for chapter in bare)}.")
        if options.json:
            results.write_json(options.json, found, grader.setting, folder or chapters.EXERCISES)
    fine = all(verdict.word.fine for verdicts in found.values() for verdict in verdicts)
    return 0 if fine else 1


def _watch(options) -> int:
    from grader.front import watch
    with Grader(_setting(options), many=True) as grader:
        watch.run(grader, _chosen(options))
    return 0


def _hint(options) -> int:
    from grader.course import hints
    print(hints.hint(chapters.find(options.chapter), options.part, options.number))
    return 0


def _reset(options) -> int:
    chapter = chapters.find(options.chapter)
    kept = stubs.reset(chapter)
    print(f"{chapters.shown(chapter.exercise)} is a fresh stub.")
    if kept:
        print(f"Your file is kept as {chapters.shown(kept)}.")
    return 0


def _assemble(options) -> int:
    from grader.front.assembly.assemble import assemble
    print(assemble(options.out))
    return 0


def _update(options) -> int:
    from grader.front import update
    try:
        update.run(options.edition)
    except KeyboardInterrupt:
        print("\ngrader: interrupted. Nothing is lost; the same command goes on.", file=sys.stderr)
        raise
    return 0


def _stubs(options) -> int:
    written, kept = stubs.write_stubs()
    print(f"{len(written)} stubs written, {len(kept)} kept because they are begun.")
    for chapter in kept:
        print(f"  kept {chapters.shown(chapter.exercise)} "
              f"(python -m grader reset {chapter.number} gives a fresh one and keeps yours)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
