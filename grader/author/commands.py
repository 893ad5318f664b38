"""An author's commands: new, table, without, fixed."""

import re

from grader.course import chapters, lesson


def add(commands) -> None:
    """Add them to the command line."""
    new = commands.add_parser("new", help="write every file of a new chapter")
    new.add_argument("number", metavar="NUMBER", help="two digits, such as 28")
    new.add_argument("name", metavar="NAME", help="small letters and digits, with _ between words")
    new.set_defaults(run=_new)

    table = commands.add_parser("table", help="write the README's tables of lessons anew")
    table.set_defaults(run=_table)

    without = commands.add_parser("without", help="list what needs a chapter, to leave it out")
    without.add_argument("chapters", nargs="+", metavar="CHAPTER")
    without.set_defaults(run=_without)

    fixed = commands.add_parser("fixed", help="list the checks whose answer no seed changes, and their share of points")
    fixed.add_argument("chapters", nargs="*", metavar="CHAPTER")
    fixed.set_defaults(run=_fixed)


def _new(options) -> int:
    from grader.author.new import new
    for path in new(options.number, options.name):
        print(chapters.shown(path))
    print(f"\nNext: make pictures CHAPTER={options.number}; make notebooks CHAPTER={options.number}; "
          "python -m grader table.")
    return 0


def _table(options) -> int:
    readme = chapters.ROOT / "README.md"
    text, count = re.subn(r"(<!-- python -m grader table -->\n).*?(?=\n## )", lambda mark: mark[1] + lesson.table(),
                          readme.read_text("utf-8"), flags=re.S)
    if count != 1:
        raise ValueError("README.md has no line <!-- python -m grader table -->, after which the tables stand")
    readme.write_text(text, "utf-8")
    return 0


def _without(options) -> int:
    from grader.author.without import without
    print(without([chapters.find(name) for name in options.chapters]))
    return 0


def _fixed(options) -> int:
    from grader.author.fixed import fixed
    asked = [chapters.find(name) for name in options.chapters] or chapters.chapters()
    for chapter, (same, share) in fixed(asked).items():
        print(f"{share:4.0%}  {chapter.stem}")
        if options.chapters:
            print(*[f"      {check.points:4.2f}  {check.name}{' (hidden)' * check.hidden}" for check in same], sep="\n")
    return 0
