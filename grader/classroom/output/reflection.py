"""Lines that reach a name by another way than by writing it: a person should look at them.

What a chapter forbids is found by its name and by who calls it. Whoever hides a use has to write one of these.
"""

import re
from pathlib import Path

from grader.course.chapters import Chapter, stub
from grader.sandbox.jail import MAX_FILE

MOST = 5                    # lines of one file that are shown

_WAYS = re.compile(r"""
    (?<![\w.]) (?: eval | exec | vars | globals | locals | __import__ ) \s* \(
    | (?<![\w.]) [gs]etattr \s* \( (?! [^,()]+ , \s* (["']) \w* \1 \s* [,)] )   # whose name is not written out
    | __ (?: dict | globals | builtins | subclasses | code | closure | getattribute ) __
    | sys \s* \. \s* (?: modules | _getframe | settrace | setprofile )
    | \b (?: import | from ) \s+ (?: ctypes | gc | inspect | importlib | marshal | pickle | builtins | code | types ) \b
    """, re.X)


def lines(file: Path, chapter: Chapter) -> list[tuple[int, str]]:
    """The (number, text) of such lines in a file that was handed in; those of the stub, and comments, are not meant."""
    with file.open("rb") as opened:
        text = opened.read(MAX_FILE).decode("utf-8", "replace")
    given = {line.strip() for line in stub(chapter).splitlines()}
    found = [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1)
             if not line.lstrip().startswith("#") and line.strip() not in given and _WAYS.search(line[:1000])]
    return found[:MOST]
