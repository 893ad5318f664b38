"""What the text of a submission defines, without parsing it: it may be any text."""

import re
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache

DEFINED = re.compile(r"(?P<indent>[ \t]*)(?:class|(?:async[ \t]+)?def)[ \t]+(?P<name>\w+)")
ON_PURPOSE = re.compile(r"\s*@(.*\.)?(overload|setter|getter|deleter|register)\b")      # of a name that is there
MOST_LINES = 100_000


@lru_cache(4)
def several_times(source: bytes) -> dict[str, list[int]]:
    """The functions, classes and methods that are defined more than once, and in which lines."""
    found, around, depth, before = defaultdict(list), "", "", ""
    for number, line in enumerate(source.decode("utf-8", "replace").splitlines()[:MOST_LINES], 1):
        match = DEFINED.match(line)
        if match and not ON_PURPOSE.match(before):
            indent, name = match["indent"], match["name"]
            if not indent:
                found[name].append(number)
                around, depth, last = name if line.startswith("class") else "", "", number
            elif around and (not depth or indent == depth):     # a method of this class, not of the one before
                depth = indent
                found[f"{around}.{name}", last].append(number)
        elif line[:1].strip() and line[0] not in "#@)]}\"'":
            around = ""
        if line.strip():
            before = line
    return {name if isinstance(name, str) else name[0]: lines for name, lines in found.items() if len(lines) > 1}


def said(source: bytes, names: Iterable[str], facts: list[str]) -> list[str]:
    """A line for each that is defined more than once and has to do with these names, or is spoken of."""
    spoken = {*names, *re.findall(r"\w+", " ".join(facts)[:10_000])}
    lines = []
    for name, where in several_times(source).items():
        if name.partition(".")[0] in spoken:
            times, last = ("twice", "second") if len(where) == 2 else (f"{len(where)} times", "last")
            lines.append(f"{name} is defined {times}, lines {', '.join(map(str, where[:-1]))} and {where[-1]}: "
                         f"the {last} one counts")
    return lines[:2]
