"""An instructor's commands: handout, grade, merge, giveback, platform."""

import argparse
import sys
from pathlib import Path

from grader.course import chapters


def add(commands, how: argparse.ArgumentParser) -> None:
    """Add them to the command line. how: the options that `grade` has in common with `check`."""
    worth = argparse.ArgumentParser(add_help=False)
    worth.add_argument("--grading", type=Path, metavar="FILE", help="how points are made (default grading.toml)")
    worth.add_argument("--canvas", type=Path, metavar="TEMPLATE", help="fill in a gradebook that Canvas has exported")

    grade = commands.add_parser("grade", help="grade a class: a folder or an archive per student",
                                parents=[how, worth])
    grade.add_argument("submissions", type=Path, nargs="?", metavar="SUBMISSIONS",
                       help="a folder of folders or archives (.zip, .tar, .tar.gz), one per student")
    grade.add_argument("--out", type=Path, metavar="DIR", help="a new folder for all that comes out")
    grade.add_argument("--jobs", type=_count, default=1, metavar="N", help="submissions graded at once (default 1)")
    grade.add_argument("--cluster", metavar="local|ADDRESS",
                       help="ask on the workers of a Dask scheduler, such as tcp://host:8786; local starts --jobs")
    grade.add_argument("--shard", metavar="I/N",
                       help="only every N-th student, from the I-th on; merge puts the shards together")
    grade.add_argument("--chapters", nargs="+", metavar="CHAPTER", help="only these, such as 0,3-5; all without")
    grade.add_argument("--roster", type=Path, metavar="FILE",
                       help="who is in the class: a CSV file with name, login, id, email, section")
    grade.add_argument("--students", nargs="+", metavar="NAME", help="ask of these alone; all others stay as they are")
    grade.add_argument("--hidden-from", type=Path, metavar="DIR",
                       help="ask hidden checks in DIR too, such as test_ex03_linear_mine.py")
    grade.add_argument("--resume", action="store_true", help="go on with the run in --out")
    grade.add_argument("--regrade", type=Path, metavar="MANIFEST", help="ask a run again, and show what changed")
    grade.add_argument("--no-jail", action="store_true", help="go on without walls, and mark every result")
    grade.set_defaults(run=_grade)

    merge = commands.add_parser("merge", help="put the shards of a run together", parents=[worth])
    merge.add_argument("out", type=Path, metavar="OUT", help="a new folder for all that comes out")
    merge.add_argument("shards", type=Path, nargs="+", metavar="SHARD", help="the folders of all shards")
    merge.set_defaults(run=_merge)

    giveback = commands.add_parser("giveback", help="pages as Canvas and Moodle take them back, and as letters, unsent")
    giveback.add_argument("out", type=Path, metavar="OUT", help="the folder of a run that has ended")
    giveback.add_argument("--roster", type=Path, metavar="FILE", help="with addresses (default: that of the run)")
    giveback.set_defaults(run=_giveback)

    platform = commands.add_parser("platform", help="write what a place where students hand in needs")
    platform.add_argument("name", metavar="NAME", help="folder, github or gradescope")
    platform.add_argument("where", type=Path, metavar="WHERE",
                          help="the students' edition; for gradescope the zip to be written")
    platform.add_argument("--chapters", nargs="+", metavar="CHAPTER",
                          help="gradescope: only these, such as 0,3-5; all without")
    platform.add_argument("--no-jail", action="store_true",
                          help="gradescope: grade where no jail can be built, and leave hidden checks out")
    platform.set_defaults(run=_platform)

    handout = commands.add_parser("handout", help="write the students' edition, without answers")
    handout.add_argument("folder", type=Path, metavar="DIR", help="a new or an empty folder")
    handout.add_argument("--chapters", nargs="+", metavar="CHAPTER", help="only these, such as 0-9; all without")
    handout.add_argument("--given", nargs="+", metavar="CHAPTER", help="give the solutions of these, such as 0-4")
    handout.set_defaults(run=_handout)


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"it must be a number from 1 to 1000, got {text!r}")
    return int(text)


def _handout(options) -> int:
    from grader.classroom.edition import handout
    chosen = chapters.several(*options.chapters) if options.chapters else chapters.chapters()
    given = chapters.several(*options.given) if options.given else []
    handout.run(options.folder, chosen, given, tell=lambda words: print(words, flush=True))
    print(f"{options.folder} holds the students' edition of {len(chosen)} chapters.")
    return 0


def _grade(options) -> int:
    from grader.classroom.run import grade, regrade
    try:
        return (regrade if options.regrade else grade).run(options)
    except KeyboardInterrupt:
        print("\ngrader: interrupted. What was asked is kept"
              + (f"; grade --resume --out {options.out} goes on." if options.out else "."), file=sys.stderr)
        raise


def _merge(options) -> int:
    from grader.classroom.run import shards
    return shards.run(options)


def _giveback(options) -> int:
    from grader.classroom.output import giveback
    return giveback.run(options)


def _platform(options) -> int:
    from grader.classroom.platforms import platform
    return platform.run(options)
