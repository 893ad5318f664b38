"""A number with a decimal point in a lesson's text is one that the code of the same section prints or uses."""

import re

import pytest

from grader.course import chapters
from grader.course.lesson import cells

LESSON = pytest.mark.parametrize("chapter", chapters.chapters(), ids=lambda chapter: chapter.stem)
# Folds, code, equations and pictures are not read: they report no result.
UNREAD = re.compile(r"(?s)<details.*?</details>|```.*?```|`[^`]*`|\$\$.*?\$\$|\$[^$]*\$|!\[[^\]]*\]\([^)]*\)")
ROW = re.compile(r"(?m)^\s*\|.*$")
SENTENCE = re.compile(r"\n\s*\n|\n *(?:[-*]|\d+\.) |(?<=[.?!:])\s+(?=[A-Z*\[\"(])")
LINK = re.compile(r"\[([^\]]*)\]\([^)\s]+\)")
NAME = re.compile(r"(?<=[\w,;:(] )[A-Z]\w+ \d+\.\d+")      # Llama 3.1, Python 3.11; not a sentence's first word
SECTION = re.compile(r"\b[Ss]ections? ([\d., and]+)")
HEADING = re.compile(r"## (\d*)")
DIGITS = r"(?:\d{1,3}(?:[,_]\d{3})+(?!\d)|\d+)"
POWER = r"(?: · 10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))?"
SAID = re.compile(rf"(?<![\w.,])(−?)({DIGITS}\.\d+)(?!\d|\.\d){POWER}\s?(\w+|%)?")
SHOWN = re.compile(rf"([-−]?)({DIGITS}(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+){POWER}")
COMMENT = re.compile(r"(?m)(?:^|\s)# .*$")
POWERS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
UNITS = {"%": 1e-2, "thousand": 1e3, "million": 1e6, "billion": 1e9, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}


def _ten_to(power: str | None) -> float:
    return 10.0 ** int((power or "⁰").translate(POWERS))


def _shown(cell: dict) -> list[float]:
    """What a code cell says and prints (a figure prints nothing), and what a text's tables say, which name sources."""
    source = cell["source"]
    texts = [COMMENT.sub("", source)] if cell["cell_type"] == "code" else ROW.findall(source)
    for output in cell.get("outputs", ()):
        texts += [output.get("text", ""), output.get("data", {}).get("text/plain", "")]
    return [float(sign.replace("−", "-") + digits.replace(",", "")) * _ten_to(power)
            for text in texts if not text.startswith("<Figure") for sign, digits, power in SHOWN.findall(text)]


def _is_shown(said: re.Match, shown: list[float]) -> bool:
    """Whether a number of the text is one of those shown, rounded to its last digit."""
    sign, digits, power, unit = said.groups()
    value, half = float(digits.replace(",", "")), 0.50001 * 10.0 ** -len(digits.partition(".")[2])
    scales = {_ten_to(power)} if power else {1.0, UNITS.get(unit, 1.0)}
    return any(abs(abs(number) / scale - value) <= half
               for number in shown if number < 0 or not sign for scale in scales)


def unshown(cells: list[dict]) -> list[str]:
    """The numbers of a lesson's text that its section (from ## to ##) does not show, each with its sentence.

    A sentence may also name another section, and then it may say that one's numbers. What stands before the first
    section speaks of the whole lesson. A sentence with a link out of the course has its numbers from there.
    """
    sections, found = {"": []}, []
    for cell in cells:
        if cell["cell_type"] == "markdown" and (heading := HEADING.match(cell["source"])):
            sections[heading[1]] = []
        sections[next(reversed(sections))].append(cell)
    shown = {name: [number for cell in section for number in _shown(cell)] for name, section in sections.items()}
    shown[""] = sum(shown.values(), [])
    for name, section in sections.items():
        for text in (cell["source"] for cell in section if cell["cell_type"] == "markdown"):
            for sentence in SENTENCE.split(ROW.sub("", UNREAD.sub("", text))):
                if "](http" in sentence:
                    continue
                bare = LINK.sub(r"\1", sentence)
                named = [number for other in re.findall(r"\d+", " ".join(SECTION.findall(bare)))
                         for number in shown.get(other, ())]
                found += [f"{said[0].strip()!r} in: {' '.join(sentence.split())}"
                          for said in SAID.finditer(NAME.sub("", SECTION.sub("", bare)))
                          if not _is_shown(said, shown[name] + named)]
    return found


@LESSON
def test_numbers_in_the_text_are_shown(chapter):
    assert not unshown(cells(chapter))


@pytest.mark.parametrize("text, count", [
    ("It falls to 0.15.", 0), ("It falls to 0.16.", 1), ("It falls to −0.15.", 1), ("It is 0.1, rounded.", 0),
    ("That is 15.0 %.", 0), ("That is 15.0.", 1), ("Of 1.2 million numbers.", 0), ("Of 1,234.5 thousand.", 0),
    ("The rate 2.2 · 10⁻⁴ is low.", 0), ("The rate 2.2 · 10⁻³ is low.", 1),
    ("Python 3.11 has it.", 1), ("In Python 3.11 it is.", 0), ("Section 2 says 7.25.", 0), ("It says 7.25.", 1),
    ("They found 9.75 ([paper](https://arxiv.org/abs/1)). We find 9.75.", 1), ("`9.75` and\n$$\n9.75\n$$", 0),
])
def test_what_counts_as_shown(text, count):
    def code(source, printed):
        return {"cell_type": "code", "source": source, "outputs": [{"output_type": "stream", "text": printed}]}

    cells = [{"cell_type": "markdown", "source": f"## 1. One\n\n{text}"},
             code("rate = 2.2e-4  # not 9.75", "loss 0.1496 of 1,234,500\n"),
             {"cell_type": "markdown", "source": "## 2. Two"}, code("", "7.25")]
    assert len(unshown(cells)) == count
