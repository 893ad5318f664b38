"""Which checks have the same answer on every seed: a file that knows it by heart earns their points."""

from grader.course.chapters import Chapter
from grader.course.checks import Check
from grader.judge.answer_key import REFEREE, AnswerKey
from grader.sandbox.launcher import Launcher
from grader.sandbox.setting import Setting

SEEDS = (0, 1, 2)


def fixed(chapters: list[Chapter]) -> dict[Chapter, tuple[list[Check], float]]:
    """Of each chapter, the checks whose answer none of SEEDS changes, and their share of all points."""
    answers: dict[Check, list] = {}
    launcher = Launcher(REFEREE)
    try:
        for seed in SEEDS:
            key = AnswerKey(launcher, Setting(seed=seed))
            for chapter in chapters:
                asked = [check for check in key.checks(chapter, hidden=True) if not check.lacking]
                key.prepare(asked)
                for check in asked:
                    header, body = key.right_answer(check)
                    answers.setdefault(check, []).append((header["answer"], body))
            key.close()
    finally:
        launcher.close()
    found = {}
    for chapter in chapters:
        mine = {check: said for check, said in answers.items() if check.chapter == chapter.stem}
        same = [check for check, said in mine.items() if all(one == said[0] for one in said)]
        found[chapter] = same, sum(check.points for check in same) / sum(check.points for check in mine)
    return found
