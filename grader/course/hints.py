"""The hints of a lesson, read out of its folds: there is no second copy."""

import json
import re

from grader.course.chapters import Chapter, close, signatures

FOLD = re.compile(r"<details><summary>Hint (\d)[^<]*</summary>\s*(.*?)\s*</details>", re.S)
LINK = re.compile(r"\[([^\]]*)\]\([^)\s]+\)")
HEADING = re.compile(r"^### Exercise (\d+): (.*)$", re.M)


def hint(chapter: Chapter, part: str, number: int = 1) -> str:
    """A lesson's hint about a part: a function, a class, a method, a check, or an exercise's number.

    Raises ValueError, naming what there is, for a part or a number that the lesson does not have.
    """
    found = [(score, exercise) for exercise in _exercises(chapter) if (score := _fits(exercise, part))]
    if not found:
        names = {name: name for exercise in _exercises(chapter) for name in exercise["names"]}
        near = close(part, names)
        raise ValueError(f"lesson {chapter.number} has no exercise about {part!r}; " + (
            f"did you mean {near}?" if near else f"there are {', '.join(names)}"))
    exercise = max(found, key=lambda pair: pair[0])[1]
    hints = exercise["hints"]
    if number not in hints:
        raise ValueError(f"this exercise has the hints {', '.join(map(str, hints))}, got {number}")
    words = LINK.sub(r"\1", hints[number])       # a terminal has no use for where a link leads
    said = f"{exercise['title']}, hint {number} of {len(hints)}\n\n{words}"
    if number + 1 in hints:
        said += f"\n\nThe next one: python -m grader hint {chapter.number} {part} {number + 1}"
    return said


def _exercises(chapter: Chapter) -> list[dict]:
    """Each exercise of a lesson: its title, its hints by number, its checks, the parts it speaks of."""
    found, text, title = [], "", chapter.title
    for cell in json.loads(chapter.notebook.read_text("utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            text += f"\n`{source}`"
            if found and (parts := re.findall(rf'check\("{chapter.stem}", "(\w+)"\)', source)):
                found[-1]["checks"] += parts
                text = ""
            continue
        if heading := HEADING.search(source):
            title, text, source = f"Exercise {heading[1]}: {heading[2]}", "", source[heading.start():]
        text += "\n" + source
        if hints := {int(number): words for number, words in FOLD.findall(source)}:
            told = FOLD.sub("", text)
            code = " ".join(re.findall(r"`[^`]+`", told)) + title
            found.append({"title": title, "hints": hints, "checks": [], "names": [
                name for name in _parts(chapter) if re.search(rf"\b{re.escape(name)}\b", code)]})
            text = ""
    return found


def _parts(chapter: Chapter) -> list[str]:
    """Every class, method and function of the chapter: "Linear", "Linear.forward", "linear_flops"."""
    names = list(signatures(chapter))
    return list(dict.fromkeys([*(name.partition(".")[0] for name in names), *names]))


def _fits(exercise: dict, part: str) -> int:
    """How surely an exercise is about a part; 0 where it is not."""
    if re.match(rf"Exercise {re.escape(part)}:", exercise["title"]):
        return 4
    if re.search(rf"(?i)\b{re.escape(part)}\b", exercise["title"]):
        return 3
    if any(part.lower() in (check, check.removeprefix("test_")) for check in exercise["checks"]):
        return 2
    return part in exercise["names"] or any(part.lower() in check for check in exercise["checks"])
