"""An author's commands: new, table, without."""

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
