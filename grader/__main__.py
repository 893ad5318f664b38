"""The command line: check, watch, reset, stubs."""

import argparse
import sys
from pathlib import Path

from grader import chapters
from grader.engine import FINE, TIMEOUT, Grader
from grader.submission import CourseError


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns the exit code: 0 nothing is wrong, 1 something is, 2 bad usage."""
    options = _parser().parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")    # a console without these characters
    try:
        return options.run(options)
    except KeyboardInterrupt:
        return 130
    except (ValueError, OSError, CourseError) as error:
        print(f"grader: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m grader", description="Grades the exercises.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    check = commands.add_parser("check", help="grade chapters and show the board")
    check.add_argument("chapters", nargs="*", metavar="CHAPTER", help="7, 07, rope or ex07_rope; all without")
    check.add_argument("--submission", type=Path, metavar="DIR",
                       help="grade the files in DIR; earlier chapters are then the reference's")
    check.add_argument("--hidden", action="store_true", help="ask the hidden checks too")
    check.add_argument("--json", type=Path, metavar="FILE", help="write every verdict to FILE")
    check.set_defaults(run=_check)

    watch = commands.add_parser("watch", help="grade at every save")
    watch.add_argument("chapters", nargs="*", metavar="CHAPTER", help="only these; all without")
    watch.set_defaults(run=_watch)

    for command in (check, watch):
        command.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
        command.add_argument("--seed", type=int, default=0, metavar="N", help="other inputs (default 0)")
        command.add_argument("--timeout", type=float, default=TIMEOUT, metavar="S",
                             help=f"seconds that one check may take (default {TIMEOUT:g})")

    reset = commands.add_parser("reset", help="put a fresh stub in place; the old file is kept")
    reset.add_argument("chapter", metavar="CHAPTER")
    reset.set_defaults(run=_reset)

    stubs = commands.add_parser("stubs", help="write the stubs anew from the solutions")
    stubs.set_defaults(run=_stubs)
    return parser


def _chosen(options) -> list[chapters.Chapter]:
    return sorted({chapters.find(name) for name in options.chapters}) or chapters.chapters()


def _check(options) -> int:
    chosen, folder = _chosen(options), options.submission
    if folder and not folder.is_dir():
        raise ValueError(f"--submission {folder} is no folder")
    with Grader(options.device, options.seed, options.timeout) as grader:
        from grader import report, screen  # while the zygote imports torch
        results, show = {}, screen.Screen()
        for chapter in chosen:
            results[chapter] = list(grader.grade(chapter, folder, options.hidden,
                                                 name_all=bool(options.json)))
            grader.forget_suspects(chapter)
            show.text(report.row(chapter, results[chapter]))
        show.text("\n" + report.board(results, grader.setting, folder))
        if options.json:
            report.write_json(options.json, results, grader.setting)
    fine = all(verdict.word in FINE for verdicts in results.values() for verdict in verdicts)
    return 0 if fine else 1


def _watch(options) -> int:
    from grader import watch
    with Grader(options.device, options.seed, options.timeout) as grader:
        watch.run(grader, _chosen(options))
    return 0


def _reset(options) -> int:
    from grader import report
    chapter = chapters.find(options.chapter)
    kept = chapters.reset(chapter)
    print(f"{report.shown(chapter.exercise)} is a fresh stub.")
    if kept:
        print(f"Your file is kept as {report.shown(kept)}.")
    return 0


def _stubs(options) -> int:
    from grader import report
    written, kept = chapters.write_stubs()
    print(f"{len(written)} stubs written, {len(kept)} kept because they are begun.")
    for chapter in kept:
        print(f"  kept {report.shown(chapter.exercise)} "
              f"(python -m grader reset {chapter.number} gives a fresh one and keeps yours)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
