"""A submission's replies → verdicts: the answer key judges them, known mistakes name them, front ends show them."""

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

from grader.course import chapters, stubs
from grader.course.chapters import Chapter, CourseError
from grader.course.checks import Check
from grader.judge import definitions
from grader.judge.answer_key import REFEREE, AnswerKey, Refused
from grader.judge.mistakes import Mistakes
from grader.judge.verdict import Verdict, Word
from grader.sandbox import jail
from grader.sandbox.launcher import CAN_FORK, WORKER, Launcher, Slot
from grader.sandbox.setting import Setting
from grader.sandbox.submission import Submission

FEW = 3                     # facts come before what other checks have shown


class Grader:
    """Asks checks of submissions. One zygote and one answer key serve it until `close`."""

    def __init__(self, setting: Setting = Setting(), fork: bool = CAN_FORK, many: bool = False):     # noqa: B008
        """many: a chapter will be asked for many times, by a class's submissions or at every save."""
        if setting.walls and (why := jail.missing() if setting.on_cpu else "walls are for device='cpu'"):
            raise CourseError(why)
        self.setting = setting
        self._own = Launcher(WORKER, REFEREE, fork=fork, limit=setting.on_cpu, many=many)  # CUDA maps more than it uses
        self._others = Launcher(WORKER, fork=True, many=many, walls=True) if setting.walls else self._own
        self.key = AnswerKey(self._own, setting)
        self.mistakes = Mistakes(self.key, self._own, setting)

    def close(self) -> None:
        """End every process."""
        self.mistakes.close()
        self.key.close()
        for launcher in {self._own, self._others}:
            launcher.close()

    def forget(self, chapter: Chapter) -> None:
        """End what was kept for a chapter's submissions. No other chapter's may be under way."""
        self.mistakes.forget(chapter)
        for launcher in {self._own, self._others}:
            launcher.forget()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def checks(self, chapter: Chapter, hidden: bool = False) -> list[Check]:
        """The chapter's checks for this device, in order: visible, then hidden if asked for."""
        return self.key.checks(chapter, hidden)

    def all_checks(self, chapter: Chapter, hidden: bool = False) -> list[Check]:
        """The chapter's checks where every one must be asked; CourseError where a package for one is not installed."""
        for check in (checks := self.checks(chapter, hidden)):
            if check.lacking:
                raise CourseError(f"{chapter.stem}: {check.lacking} (or leave the chapter out, with --chapters)")
        return checks

    @cached_property
    def layers(self) -> dict[str, bool]:
        """What is forbidden to a submission here, and whether a worker that tried it was refused."""
        return jail.probe(self._others) if self._others.stages else {}

    def submission(self, chapter: Chapter, folder: Path | None = None, hidden: bool = False) -> Submission:
        """A chapter's file, to be asked visible checks, or hidden ones; close it when done."""
        self.key.record(chapter)    # what cannot be compared is not asked
        return Submission(self._slot(), self.setting, chapter, folder, hidden)

    def _slot(self) -> Slot:
        return Slot(self._others, self.setting.device)

    def grade(self, chapter: Chapter, folder: Path | None = None, hidden: bool = False,
              only=lambda check: True, waited_for: bool = False, progress=None, stop=None) -> Iterator[Verdict]:
        """A verdict per check. The folder is as for Submission; `only` picks checks.

        waited_for: a reader waits. The mistake of the first failure alone is named, the one that is shown, and two
        workers share the checks once the reference has answered them.
        progress(n, count): told before the n-th check of count is asked.
        stop(): looked at while waiting; once it is true, Stopped is raised.
        """
        others, name = self.checks(chapter, hidden), True
        for kind in (False, True)[:1 + hidden]:
            asked = [check for check in others if check.hidden == kind and only(check)]
            with contextlib.closing(self.submission(chapter, folder, kind)) as candidate:
                if folder is None and candidate.file.exists() and not stubs.started(chapter):
                    # The stub as it was handed out: what running it gives is known.
                    yield from (Verdict(check, Word.TODO, ["this part is not written yet"]) for check in asked)
                    continue
                candidate.stop = stop
                if candidate.file.exists():
                    if waited_for and len(asked) > 1 and self.key.is_prepared(asked) and self._has_room_for_two():
                        self._ask_by_two(candidate, asked, progress)
                    else:
                        with self.key.preparing(asked):     # both sides at once, each on a core of its own
                            self._ask(candidate, asked, progress)
                    candidate.ask_late_ones_again()
                for check in asked:
                    verdict = self.verdict(candidate, check, others, name)
                    name = not waited_for or (name and verdict.word.fine)
                    yield verdict

    @staticmethod
    def _ask(candidate: Submission, asked: list[Check], progress) -> None:
        """Have a submission answer these checks, which it remembers."""
        ready = [check for check in asked if not check.lacking]
        for number, check in enumerate(ready, 1):
            if progress:
                progress(number, len(ready))
            candidate.ask(check)

    def _has_room_for_two(self) -> bool:
        return self.setting.on_cpu and self._others.fork and (os.cpu_count() or 1) > 1

    def _ask_by_two(self, candidate: Submission, asked: list[Check], progress) -> None:
        """Two workers begin at both ends of the checks, and meet; the submission remembers all answers."""
        ready = deque(check for check in asked if not check.lacking)
        count, left, stop = len(ready), threading.Event(), candidate.stop
        second = candidate.second(self._slot())
        candidate.slot.half, second.slot.half = 0, 1
        second.stop = lambda: left.is_set() or (stop is not None and stop())

        def answer() -> None:
            second.load_silently()
            for check in _until_empty(ready.pop):
                second.ask(check)
        with contextlib.closing(second), ThreadPoolExecutor(1) as pool:
            others = pool.submit(answer)
            try:
                for check in _until_empty(ready.popleft):
                    if progress:
                        progress(count - len(ready), count)
                    candidate.ask(check)
                others.result()
            finally:
                left.set()
        candidate.take_over(second)

    def warm(self, chapter: Chapter) -> None:
        """Load the chapter's reference and its mistakes, so that the next verdict is quick."""
        with self.key.preparing(self.checks(chapter)):
            self.mistakes.load(chapter)

    def verdict(self, candidate: Submission, check: Check, others: Iterable[Check] = (), name: bool = True) -> Verdict:
        """Ask one check of a submission and of the reference, and compare.

        `others` are checks that may be asked too, to tell apart mistakes that this one cannot;
        name=False looks for no mistake.
        """
        if not candidate.file.exists():
            return _absent(candidate, check)
        if check.lacking:
            return Verdict(check, Word.WAITING, [check.lacking])
        reply = candidate.ask(check)
        word, facts = reply.word, reply.facts
        if word == "answer":
            try:
                facts = self.key.judge(check, reply.header, reply.body)
                word = Word.WRONG if facts else Word.PASSED
            except Refused as error:
                word, facts = Word.CRASHED, [f"the answer cannot be read: {error}"]
        verdict = Verdict(check, word, [*facts], reply.lines, reply.whole, output=reply.output, seconds=reply.seconds)
        if word in (Word.WRONG, Word.ERROR, Word.TODO):
            verdict.facts[1:1] = definitions.said(candidate.source, check.names, facts)
        if name and word in (Word.WRONG, Word.ERROR) and not reply.whole:
            verdict.mistake = self.mistakes.name(candidate, check, reply, others)
            verdict.facts[FEW:FEW] = filter(None, [self.mistakes.dtypes(candidate, check, others)])
        return verdict


def _until_empty(take: Callable[[], Check]) -> Iterator[Check]:
    """What a deque gives, which another thread empties too."""
    while True:
        try:
            check = take()
        except IndexError:
            return
        yield check


def _absent(candidate: Submission, check: Check) -> Verdict:
    """Nothing was handed in under the file's name, which is no success; in a student's own folder it is to do."""
    said = f"there is no {candidate.file.name} in its folder"
    if candidate.folder == chapters.EXERCISES:
        return Verdict(check, Word.TODO, [said])
    names = sorted(path.name for path in candidate.folder.iterdir()) if candidate.folder.is_dir() else []
    near = chapters.near_miss(candidate.chapter, names)
    return Verdict(check, Word.MISSING, [f"{said}; there is {near}" if near else said], whole=True)
