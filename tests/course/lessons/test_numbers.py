"""A number in a lesson's text, with a decimal point or from 10 on, is one that the code beside it prints or uses.

Smaller ones, and words such as "twice", are not held to it: so many numbers stand beside each that a wrong one would
be found among them.
"""

import re
from collections.abc import Iterator

import pytest

from grader.course import chapters
from grader.course.lesson import cells

LESSON = pytest.mark.parametrize("chapter", chapters.chapters(), ids=lambda chapter: chapter.stem)
# Folds, code, equations, pictures, headings, quotations and how long it takes are not read: they report no result.
UNREAD = re.compile(r"(?sm)<details.*?</details>|```.*?```|`[^`]*`|\$\$.*?\$\$|\$[^$]*\$|!\[[^\]]*\]\([^)]*\)"
                    r"|^(?:#+|>) [^\n]*|\*\*Time.*?(?=\n\n|\Z)")
ROW = re.compile(r"(?m)^\s*\|.*$")
SENTENCE = re.compile(r"\n\s*\n|\n *(?:[-*]|\d+\.) |(?<=[.?!:])\s+(?=[A-Z*\[\"(])")
NEIGHBOUR = re.compile(r"\[(?:[Ll]essons? )?\d\d\b[^\]]*\]\(\d\d_\w+\.ipynb[^)\s]*\)")      # [14, training](14_….ipynb)
LINK = re.compile(r"\[([^\]]*)\]\([^)\s]+\)")
# Llama 3.1, Python 3.11, but not a sentence's first word; lesson 05, lessons 03 to 06; the year 2017.
NAME = re.compile(r"(?<=[\w,;:(] )[A-Z]\w+ \d+\.\d+|\b(?:19|20)\d\d\b"
                  r"|\b[Ll]essons?\s\d\d(?:(?:, | and | or | to |–)\d\d)*")
SECTION = re.compile(r"\b[Ss]ections?\s([\d., and]+)")
HEADING = re.compile(r"## (\d*)")
DIGITS = r"(?:\d{1,3}(?:[,_]\d{3})+(?!\d)|\d+)"
WHOLE = r"(?:\d{1,3}(?:,\d{3})+|\d\d+)"
POWER = r"(?: · 10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))?"
SAID = re.compile(rf"(?<![\w.,-])(−?)({DIGITS}\.\d+|{WHOLE})(?![\d_°⁰¹²³⁴-⁹⁻]|[.,]\d){POWER}\s?(\w+|%)?")
SHOWN = re.compile(rf"([-−]?)({DIGITS}(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+){POWER}")
# A comment, and how a number is printed: {loss:7.2f} shows no 7.2.
UNPRINTED = re.compile(r"(?m)(?:^|\s)# .*$|(?<=[\w)\]\"']):[<>^+ ]?\d*,?(?:\.\d+)?[a-z%]?(?=\})")
POWERS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
BEFORE, AFTER = 2, 1        # cells of code whose numbers a text may say, of its own section
UNITS = {"%": 1e-2, "thousand": 1e3, "million": 1e6, "billion": 1e9, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}


def _ten_to(power: str | None) -> float:
    return 10.0 ** int((power or "⁰").translate(POWERS))


def _shown(cell: dict) -> list[float]:
    """What a code cell says and prints (a figure prints nothing), and what a text's tables say, which name sources."""
    source = cell["source"]
    texts = [UNPRINTED.sub("", source)] if cell["cell_type"] == "code" else ROW.findall(source)
    for output in cell.get("outputs", ()):
        texts += [output.get("text", ""), output.get("data", {}).get("text/plain", "")]
    return [float(sign.replace("−", "-") + digits.replace(",", "")) * _ten_to(power)
            for text in texts if not text.startswith("<Figure") for sign, digits, power in SHOWN.findall(text)]


def _is_shown(said: tuple[str, ...], shown: list[float]) -> bool:
    """Whether a number of the text (SAID's groups) is one of those shown, rounded to its last digit."""
    sign, digits, power, unit = said
    value, half = float(digits.replace(",", "")), 0.50001 * 10.0 ** -len(digits.partition(".")[2])
    scales = {_ten_to(power)} if power else {1.0, UNITS.get(unit, 1.0)}
    # A whole number rounds what is none: 31 is no 30.8 where 31 itself could be counted.
    return any(abs(abs(number) / scale - value) <= (half if number % scale else 1e-9 * value)
               for number in shown if number < 0 or not sign for scale in scales)


def _beside(cells: list[dict], sections: list[str], at: int) -> list[float]:
    """What is shown by the cells around a text, within its section; around the first, by the whole lesson."""
    if not sections[at]:
        return sum(map(_shown, cells), [])
    found = []
    for way, most in ((range(at, -1, -1), BEFORE), (range(at + 1, len(cells)), AFTER)):
        for other in way:
            most -= cells[other]["cell_type"] == "code"
            if most < 0 or sections[other] != sections[at]:
                break
            found += _shown(cells[other])
    return found


def said_and_shown(cells: list[dict]) -> Iterator[tuple[str, tuple[str, ...], list[float]]]:
    """Each number of a lesson's text: (its sentence, SAID's groups, the numbers that it may be).

    A sentence may also name another section, and then it may say that one's numbers. What stands before the first
    section speaks of the whole lesson. A sentence with a link out of the course has its numbers from there.
    """
    sections, now = [], ""
    for cell in cells:
        if cell["cell_type"] == "markdown" and (heading := HEADING.match(cell["source"])):
            now = heading[1]
        sections.append(now)
    whole = {name: [number for cell, section in zip(cells, sections) if section == name for number in _shown(cell)]
             for name in set(sections)}
    for at, cell in enumerate(cells):
        if cell["cell_type"] != "markdown":
            continue
        beside = _beside(cells, sections, at)
        for sentence in SENTENCE.split(ROW.sub("", UNREAD.sub("", cell["source"]))):
            if "](http" in sentence:
                continue
            bare = LINK.sub(r"\1", NEIGHBOUR.sub("", sentence))
            named = [number for other in re.findall(r"\d+", " ".join(SECTION.findall(bare)))
                     for number in whole.get(other, ())]
            for said in SAID.finditer(NAME.sub("", SECTION.sub("", bare))):
                yield " ".join(sentence.split()), said.groups(), beside + named


def unshown(cells: list[dict]) -> list[str]:
    """The numbers of a lesson's text that nothing beside it shows, each with its sentence."""
    return [f"{said[0]}{said[1]!r} in: {sentence}" for sentence, said, shown in said_and_shown(cells)
            if not _is_shown(said, shown)]


@LESSON
def test_numbers_in_the_text_are_shown(chapter):
    assert not unshown(cells(chapter))


def test_a_changed_digit_is_found():
    """One digit changed to another: of all such changes, numbers counted alike, nine in ten are shown nowhere."""
    found = []
    for chapter in chapters.chapters():
        for _, (sign, digits, *rest), shown in said_and_shown(cells(chapter)):
            changed = [digits[:place] + other + digits[place + 1:] for place, digit in enumerate(digits)
                       if digit.isdigit() for other in "123456789" if other != digit]
            found.append(sum(not _is_shown((sign, other, *rest), shown) for other in changed) / len(changed))
    print(f"{sum(found):.0f} of {len(found)} found")
    assert sum(found) >= 0.9 * len(found), (sum(found), len(found))


@pytest.mark.parametrize("text, count", [
    ("It falls to 0.15.", 0), ("It falls to 0.16.", 1), ("It falls to −0.15.", 1), ("It is 0.1, rounded.", 0),
    ("That is 15.0 %.", 0), ("That is 15.0.", 1), ("Of 1.2 million numbers.", 0), ("Of 1,234.5 thousand.", 0),
    ("The rate 2.2 · 10⁻⁴ is low.", 0), ("The rate 2.2 · 10⁻³ is low.", 1),
    ("Python 3.11 has it.", 1), ("In Python 3.11 it is.", 0), ("Section 2 says 7.25.", 0), ("It says 7.25.", 1),
    ("They found 9.75 ([paper](https://arxiv.org/abs/1)). We find 9.75.", 1), ("`9.75` and\n$$\n9.75\n$$", 0),
    ("> Write 9.75\n> or 180.", 0), ("It was 2 · 10⁻⁹.", 0), ("It was 10.", 1), ("It is 8.4 wide.", 1),
    ("See [14, training](14_training.ipynb).", 0), ("See [14](14.md).", 1),
])
def test_what_counts_as_shown(text, count):
    def code(source, printed):
        return {"cell_type": "code", "source": source, "outputs": [{"output_type": "stream", "text": printed}]}

    cells = [{"cell_type": "markdown", "source": f"## 1. One\n\n{text}"},
             code("rate = 2.2e-4  # not 9.75\nf'{rate:8.4f}'", "loss 0.1496 of 1,234,500\n"),
             {"cell_type": "markdown", "source": "## 2. Two"}, code("", "7.25")]
    assert len(unshown(cells)) == count
