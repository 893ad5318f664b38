"""What students get wrong: which known mistakes answer like a submission."""

import contextlib
import itertools
import os
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from grader.course import chapters
from grader.course.chapters import Chapter, CourseError
from grader.course.checks import Check
from grader.judge.answer_key import AnswerKey, Refused
from grader.judge.edits import Edit, edits
from grader.judge.pairs import Pairs
from grader.judge.record import Record
from grader.sandbox.launcher import Launcher, Slot
from grader.sandbox.reply import Reply
from grader.sandbox.setting import Setting
from grader.sandbox.submission import Submission

MAX_WORKERS = 4             # at most, for the known mistakes of a chapter; fewer where there are fewer cores


class Recorded:
    """What a mistake answered once, where there is no reference to make it in."""

    slot = None         # it runs nowhere

    def __init__(self, record: Record, number: int):
        self._record, self._number = record, number

    def ask(self, check: Check) -> Reply:
        """Its wrong answer; "passed" where it gave a right one, which is not kept."""
        header, body = self._record.said(self._number, check.file, check.function, check.dtype) or ({}, b"")
        word = "answer" if "answer" in header else "error" if header else "passed"
        return Reply(word, [], header, body)

    def load(self) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass
class Suspect:
    """A known mistake as a submission."""

    submission: Submission | Recorded
    edit: Edit


class Mistakes:
    """The known mistakes of chapters, and which of them a submission looks like.

    They run in the same kind of process as submissions do.
    """

    def __init__(self, key: AnswerKey, launcher: Launcher, setting: Setting):
        self._key, self._launcher, self._setting = key, launcher, setting
        self._suspects: dict[Chapter, list[Suspect]] = {}
        self._judged: tuple[Submission | None, dict[Check, bool]] = None, {}    # the last submission's right answers
        self._scratch = tempfile.TemporaryDirectory(prefix="grader-")
        self._pairs = Pairs(key, setting, Path(self._scratch.name))

    def close(self) -> None:
        for chapter in list(self._suspects):
            self.forget(chapter)
        self._scratch.cleanup()

    def forget(self, chapter: Chapter) -> None:
        """End the workers of a chapter's mistakes."""
        for suspect in self._suspects.pop(chapter, []):
            suspect.submission.close()

    def load(self, chapter: Chapter) -> None:
        """Have all of a chapter's mistakes imported."""
        self._each([suspect.submission for suspect in self.suspects(chapter)], lambda submission: submission.load())

    def suspects(self, chapter: Chapter) -> list[Suspect]:
        """The chapter's known mistakes, dealt out to a worker per core; on a GPU to a single one."""
        if chapter not in self._suspects and (record := self._key.record(chapter)):
            self._suspects[chapter] = [
                Suspect(Recorded(record, number), Edit("", said["words"], by_size=said["by_size"], **{
                    kind: frozenset(said.get(kind, ())) for kind in ("parts", "own", "leans")}))
                for number, said in enumerate(record.mistakes)]
        if chapter not in self._suspects:
            setting = self._setting
            count = min(os.cpu_count() or 1, MAX_WORKERS) if setting.on_cpu else 1
            slots = [Slot(self._launcher, setting.device) for _ in range(count)]
            scratch = Path(self._scratch.name)
            folders = [(edit, edit.write(chapter, scratch / f"{chapter.stem}-{number}"))
                       for number, edit in enumerate(edits(chapter, "mistake"))]
            self._suspects[chapter] = [
                Suspect(Submission(slot, setting, chapter, folder, hidden=True), edit)
                for slot, (edit, folder) in zip(itertools.cycle(slots), folders)]
        return self._suspects[chapter]

    def name(self, candidate: Submission, check: Check, reply: Reply, others: Iterable[Check] = ()) -> str:
        """The words of the one mistake that gives this answer, or of two that give it between them, or "".

        `others` are checks that may be asked too: they tell apart mistakes that this one cannot, and clear one that
        only looks like it here.
        """
        if not _tried(candidate, check):
            return ""
        suspects = self.suspects(candidate.chapter)
        self._learn(check, self._near(check))
        likeness = self._key.liken(check, reply)
        more = [other for other in others
                if other != check and other.hidden <= candidate.hidden and not other.lacking]

        def stands(number: int) -> bool:
            return not self._cleared(candidate, more, number)
        fits = [number for number in likeness["whole"] or likeness["size"] if stands(number)]
        if len(fits) > 1:
            fits = self._tell_apart(candidate, more, fits)
        if not fits:
            found = [self._edits(candidate.chapter, pair) for pair in likeness["both"] if all(map(stands, pair))] \
                or self._made_together(candidate, check, reply, likeness["pairs"], stands)
            return "\n".join(edit.words for edit in found[0]) if len(found) == 1 else ""
        return suspects[fits[0]].edit.words if len(fits) == 1 else ""

    def _edits(self, chapter: Chapter, numbers: Iterable[int]) -> tuple[Edit, ...]:
        return tuple(self.suspects(chapter)[number].edit for number in numbers)

    def _made_together(self, candidate: Submission, check: Check, reply: Reply, pairs: list, stands) -> list[tuple]:
        """Of these pairs of mistakes those that give this answer; none where there is no reference to make them in."""
        suspects = self.suspects(candidate.chapter)
        slots = list(dict.fromkeys(suspect.submission.slot for suspect in suspects))
        if reply.word != "answer" or None in slots:
            return []
        known = cache(stands)
        likely = (self._edits(candidate.chapter, (one, other)) for one, other in pairs
                  if suspects[one].edit.own & suspects[other].edit.own and known(one) and known(other))
        return self._pairs.alike(candidate, check, reply, likely, slots, self._each)

    def dtypes(self, candidate: Submission, check: Check, others: Iterable[Check]) -> str:
        """In which dtypes a wrong check is right, if in any."""
        same = [other for other in others if (other.file, other.function) == (check.file, check.function)]
        right, wrong = ([other.dtype for other in same if self._is_right(candidate, other) is answer]
                        for answer in (True, False))
        return f"right in {' and '.join(right)}, wrong in {' and '.join(wrong)}" if right and wrong else ""

    def wrong(self, check: Check) -> list[int]:
        """The numbers of the mistakes that answer this check wrongly; CourseError where one gives no answer in time."""
        near, suspects = self._near(check), self.suspects(Chapter(check.chapter))
        self._learn(check, near)
        if late := [number for number in near if suspects[number].submission.ask(check).word == "timeout"]:
            raise CourseError(f"{check.chapter}, {check.name}: no answer within {self._setting.timeout:g} s "
                              f"from the known mistake {suspects[late[0]].edit.words!r}")
        return [number for number in near if self._key.is_wrong(check, number)]

    def _near(self, check: Check) -> list[int]:
        """The mistakes that can show in this check."""
        suspects = self.suspects(Chapter(check.chapter))
        return [number for number, suspect in enumerate(suspects) if suspect.edit.parts & check.names]

    def _cleared(self, candidate: Submission, others: list[Check], number: int) -> bool:
        """Whether a submission cannot have made this mistake, whatever one of its answers looks like.

        It cannot where its answer is right and the mistake's is wrong, if the check asks the part that the mistake lies
        in. And nobody can tell where a part that this one builds on fails a check of its own.
        """
        edit = self.suspects(candidate.chapter)[number].edit
        if edit.by_size:        # how large an error of rounding is depends on how it was written
            return False
        own = edit.own if any(edit.own & check.names for check in others) else edit.parts
        for check in others:
            if own & check.names:
                self._learn(check, [number])
                if self._key.is_wrong(check, number) and self._is_right(candidate, check):
                    return True
            elif edit.leans & check.names and not edit.parts & check.names \
                    and self._is_right(candidate, check) is False:
                return True
        return False

    def _is_right(self, candidate: Submission, check: Check) -> bool | None:
        """Whether a submission's answer to a check is right; None where it gives none."""
        if self._judged[0] is not candidate:
            self._judged = candidate, {}
        known, reply = self._judged[1], candidate.ask(check)
        if check not in known and reply.word == "answer":
            with contextlib.suppress(Refused):
                known[check] = not self._key.judge(check, reply.header, reply.body)
        return False if reply.word == "error" else known.get(check)

    def _tell_apart(self, candidate: Submission, others: list[Check], fits: list[int]) -> list[int]:
        """Of mistakes that answer one check alike, those that fit the other checks best."""
        score = dict.fromkeys(fits, 0)
        for check in others:
            self._learn(check, fits)
            if not any(self._key.is_wrong(check, number) for number in fits):
                continue        # they all answer rightly here
            reply = candidate.ask(check)
            if reply.word not in ("answer", "error"):
                continue
            likeness = self._key.liken(check, reply, fits)
            for number in fits:
                score[number] += (number in likeness["whole"] + likeness["part"] + likeness["size"])
                score[number] -= 100 * (number in likeness["against"])
        best = max(score.values())
        return [number for number in fits if score[number] == best]

    def _learn(self, check: Check, numbers) -> None:
        """Have the key know what these mistakes answer."""
        suspects = self.suspects(Chapter(check.chapter))
        new = [number for number in numbers if not self._key.knows(check, number)]
        if not new:
            return
        replies = self._each([suspects[number].submission for number in new], lambda submission: submission.ask(check))
        for number, reply in zip(new, replies):
            self._key.learn(check, number, reply, suspects[number].edit.by_size)

    def _each(self, submissions: list[Submission | Recorded], do) -> list:
        """What `do` gives for each submission: those of one worker are asked in turn, the workers at once."""
        groups: dict[Slot | None, list[int]] = {}
        for number, submission in enumerate(submissions):
            groups.setdefault(submission.slot, []).append(number)
        given = [None] * len(submissions)

        def work(numbers: list[int]) -> None:
            for number in numbers:
                given[number] = do(submissions[number])
        with ThreadPoolExecutor(MAX_WORKERS) as pool:
            list(pool.map(work, groups.values()))
        return given


def _tried(candidate: Submission, check: Check) -> bool:
    """Whether a file speaks of what the check asks for; no known mistake is to leave it out."""
    parts = {name.partition(".")[0] for name in chapters.signatures(candidate.chapter)} & check.names
    return not parts or any(name.encode() in candidate.source for name in parts)
