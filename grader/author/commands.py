"""An author's commands: new, without."""

from grader.course import chapters


def add(commands) -> None:
    """Add them to the command line."""
    new = commands.add_parser("new", help="write every file of a new chapter")
    new.add_argument("number", metavar="NUMBER", help="two digits, such as 28")
    new.add_argument("name", metavar="NAME", help="small letters and digits, with _ between words")
    new.set_defaults(run=_new)

    without = commands.add_parser("without", help="list what needs a chapter, to leave it out")
    without.add_argument("chapters", nargs="+", metavar="CHAPTER")
    without.set_defaults(run=_without)


def _new(options) -> int:
    from grader.author.new import new
    for path in new(options.number, options.name):
        print(chapters.shown(path))
    print(f"\nNext: make pictures CHAPTER={options.number}; make notebooks CHAPTER={options.number}; "
          "its row into the README's table.")
    return 0


def _without(options) -> int:
    from grader.author.without import without
    print(without([chapters.find(name) for name in options.chapters]))
    return 0
