"""Two known mistakes of one function made together, as people make them: which two answer like a submission.

They are asked only where no single one fits, few of them and for a short time: each pair is a module to be loaded.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

from grader.course.chapters import Chapter
from grader.course.checks import Check
from grader.judge.answer_key import AnswerKey
from grader.judge.edits import Edit, joined
from grader.sandbox.launcher import Slot
from grader.sandbox.reply import Reply
from grader.sandbox.setting import Setting
from grader.sandbox.submission import Submission

MOST = 24                   # pairs that are asked for one answer
SECONDS = 1.0               # in which their workers could run, for one answer,
BUDGET = 3.0                # and for all answers of one submission


class Pairs:
    """Pairs of a chapter's mistakes, made when they are asked."""

    def __init__(self, key: AnswerKey, setting: Setting, scratch: Path):
        self._key, self._setting, self._scratch = key, setting, scratch
        self._spent: tuple[object, float] = None, 0.0       # the submission at hand, and the seconds that it has had

    def alike(self, candidate: Submission, check: Check, reply: Reply, pairs: Iterable[tuple[Edit, Edit]],
              slots: list[Slot], each: Callable) -> list[tuple[Edit, Edit]]:
        """The pairs that give this answer. slots: workers that have loaded the chapter; each: asks several at once."""
        chapter, found = candidate.chapter, []

        def clock() -> float:
            return sum(slot.spent for slot in slots) / len(slots)
        spent = self._spent[1] if self._spent[0] is candidate else 0.0
        left = min(SECONDS, BUDGET - spent)
        made = islice(((pair, source) for pair in pairs if (source := joined(chapter, *pair))), MOST)
        while left > 0 and (batch := list(islice(made, len(slots)))):
            start = clock()
            asked = [self._submission(chapter, source, slot, number)
                     for number, ((_, source), slot) in enumerate(zip(batch, slots))]
            answers = each(asked, lambda pair: pair.ask(check))
            found += [pair for (pair, _), answer in zip(batch, answers) if self._key.alike(check, reply, answer)]
            left, spent = left - (clock() - start), spent + clock() - start
        self._spent = candidate, spent
        return found

    def _submission(self, chapter: Chapter, source: str, slot: Slot, number: int) -> Submission:
        """Always in the same few folders: a worker that loads one forgets what it had from there."""
        folder = Edit(source, "", frozenset()).write(chapter, self._scratch / f"{chapter.stem}-pair-{number}")
        return Submission(slot, self._setting, chapter, folder, hidden=True)
