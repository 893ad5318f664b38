"""What students get wrong: which known mistakes answer like a submission."""

import itertools
import os
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from grader.course import chapters
from grader.course.chapters import Chapter, CourseError
from grader.course.checks import Check
from grader.judge.answer_key import AnswerKey
from grader.judge.edits import Edit, edits
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
        self._scratch = tempfile.TemporaryDirectory(prefix="grader-")

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
        self._each(self.suspects(chapter), lambda suspect: suspect.submission.load())

    def suspects(self, chapter: Chapter) -> list[Suspect]:
        """The chapter's known mistakes, dealt out to a worker per core; on a GPU to a single one."""
        if chapter not in self._suspects and (record := self._key.record(chapter)):
            self._suspects[chapter] = [
                Suspect(Recorded(record, number), Edit("", said["words"], frozenset(said["parts"]), said["by_size"]))
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
        """The words of the one mistake that gives this answer, or "".

        `others` are checks that may be asked too, to tell apart mistakes that this one cannot.
        """
        if not _tried(candidate, check):
            return ""
        suspects = self.suspects(candidate.chapter)
        likeness = self._liken(check, reply, self._near(check))
        fits = likeness["whole"] or likeness["part"] or likeness["size"]
        if len(fits) > 1:
            more = [other for other in others
                    if other != check and other.hidden <= candidate.hidden and not other.lacking]
            fits = self._tell_apart(candidate, more, fits)
        return suspects[fits[0]].edit.words if len(fits) == 1 else ""

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
            likeness = self._liken(check, reply, fits)
            for number in fits:
                score[number] += (number in likeness["whole"] + likeness["part"] + likeness["size"])
                score[number] -= 100 * (number in likeness["against"])
        best = max(score.values())
        return [number for number in fits if score[number] == best]

    def _liken(self, check: Check, reply: Reply, numbers) -> dict[str, list[int]]:
        """Which of these mistakes, among others, answer like this reply; see Referee.liken."""
        self._learn(check, numbers)
        return self._key.liken(check, reply)

    def _learn(self, check: Check, numbers) -> None:
        """Have the key know what these mistakes answer."""
        suspects = self.suspects(Chapter(check.chapter))
        new = [number for number in numbers if not self._key.knows(check, number)]
        replies = self._each([suspects[number] for number in new], lambda suspect: suspect.submission.ask(check))
        for number, reply in zip(new, replies):
            self._key.learn(check, number, reply, suspects[number].edit.by_size)

    def _each(self, suspects: list[Suspect], do) -> list:
        """What `do` gives for each suspect: those of one worker are asked in turn, the workers at once."""
        groups: dict[Slot | None, list[int]] = {}
        for number, suspect in enumerate(suspects):
            groups.setdefault(suspect.submission.slot, []).append(number)
        given = [None] * len(suspects)

        def work(numbers: list[int]) -> None:
            for number in numbers:
                given[number] = do(suspects[number])
        with ThreadPoolExecutor(MAX_WORKERS) as pool:
            list(pool.map(work, groups.values()))
        return given


def _tried(candidate: Submission, check: Check) -> bool:
    """Whether a file speaks of what the check asks for; no known mistake is to leave it out."""
    parts = {name.partition(".")[0] for name in chapters.signatures(candidate.chapter)} & check.names
    return not parts or any(name.encode() in candidate.source for name in parts)
