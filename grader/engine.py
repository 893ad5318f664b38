"""Submission + checks + key → verdicts. Every front end calls this, and decides nothing itself."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from grader import chapters, jail
from grader.chapters import SOLUTIONS, Chapter
from grader.checks import Check
from grader.frames import FrameError
from grader.mistakes import Mistakes
from grader.nursery import CAN_FORK, Nursery, Place
from grader.process import Ended, TimedOut, Worker
from grader.record import Record
from grader.submission import (
    TIMEOUT,
    CourseError,
    Frame,
    Reply,
    Setting,
    Submission,
    scan_request,
    test_files,
)

JUDGING = 60.0              # seconds that comparing one answer may take
FINE = {"passed", "todo", "waiting"}    # a run of these exits with 0


@dataclass
class Verdict:
    """What came of one check: passed, wrong, error, todo, waiting, timeout, crashed, forbidden, missing."""

    check: Check
    word: str
    facts: list[str] = field(default_factory=list)      # what differs, or what happened
    frames: tuple[Frame, ...] = ()                      # the student's own lines of a traceback
    whole: bool = False                                 # it speaks of the file as a whole
    mistake: str = ""                                   # what the student most likely did
    output: str = ""                                    # what the submission printed
    seconds: float = 0.0

    @property
    def points(self) -> float:
        return self.check.points if self.word == "passed" else 0


class Grader:
    """Asks checks of submissions. One zygote and one key serve it until `close`."""

    def __init__(self, device: str = "cpu", seed: int = 0, timeout: float = TIMEOUT,
                 fork: bool = CAN_FORK, hidden_from: tuple[Path, ...] = (), many: bool = False,
                 walls: bool = False):
        """hidden_from: folders with an instructor's own hidden checks. many: it is kept for a class's submissions.

        walls: they run in the jail.
        """
        if device not in ("cpu", "cuda"):
            raise ValueError(f"device must be 'cpu' or 'cuda', got {device!r}")
        if not timeout > 0:
            raise ValueError(f"timeout must be above 0 seconds, got {timeout}")
        self.setting = Setting(device, seed, timeout, hidden_from)
        if walls and (why := jail.missing() if self.setting.on_cpu else "walls are for device='cpu'"):
            raise CourseError(why)
        self._nursery = Nursery(fork, limit=self.setting.on_cpu, many=many)     # CUDA maps more than it uses
        self._cells = Nursery(many=many, walls=True) if walls else self._nursery
        self._checks: dict[tuple[Chapter, bool], list[Check]] = {}
        self._known: set[Check] = set()     # what the reference has been asked
        self._records: dict[Chapter, Record] = {}
        self.mistakes = Mistakes(self)

    @cached_property
    def _key(self) -> Worker:
        return self._nursery.start("key")

    def close(self) -> None:
        """End every process."""
        self.mistakes.close()
        if "_key" in self.__dict__:
            self._key.end()
        self._cells.close()
        self._nursery.close()

    def forget(self, chapter: Chapter) -> None:
        """End what was kept for a chapter's submissions. No other chapter's may be under way."""
        self.mistakes.forget(chapter)
        self._nursery.forget()
        self._cells.forget()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # -- asking ------------------------------------------------------------------------------

    def checks(self, chapter: Chapter, hidden: bool = False) -> list[Check]:
        """The chapter's checks for this device, in order: visible, then hidden if asked for."""
        if (chapter, hidden) not in self._checks:
            said = self.tell("collect", chapter=chapter.stem, tests=test_files(chapter, self.setting, hidden))
            found = [Check(**{**c, "devices": tuple(c["devices"]), "names": frozenset(c["names"])})
                     for c in said["checks"]]
            self._checks[chapter, hidden] = [c for c in found if self.setting.device in c.devices]
        return self._checks[chapter, hidden]

    @cached_property
    def layers(self) -> dict[str, bool]:
        """What is forbidden to a submission here, and whether a worker that tried it was refused."""
        return jail.probe(self._cells) if self._cells.desks else {}

    def place(self) -> Place:
        """A new place for the course's own files to run in."""
        return Place(self._nursery, self.setting.device)

    def submission(self, chapter: Chapter, folder: Path | None = None, hidden: bool = False) -> Submission:
        """A chapter's file, to be asked visible checks, or hidden ones; close it when done."""
        self.record(chapter)    # what cannot be compared is not asked
        return Submission(Place(self._cells, self.setting.device), self.setting, chapter, folder, hidden)

    def grade(self, chapter: Chapter, folder: Path | None = None, hidden: bool = False,
              only=lambda check: True, name_all: bool = True, progress=None, stop=None) -> Iterator[Verdict]:
        """A verdict per check. The folder is as for Submission; `only` picks checks.

        name_all=False names the mistake of the first failure alone, the one that is shown.
        progress(n, count): told before the n-th check of count is asked.
        stop(): looked at while waiting; once it is true, Stopped is raised.
        """
        others, name = self.checks(chapter, hidden), True
        for kind in (False, True)[:1 + hidden]:
            asked = [check for check in others if check.hidden == kind and only(check)]
            candidate = self.submission(chapter, folder, kind)
            candidate.stop = stop
            if folder is None and candidate.file.exists() and not chapters.started(chapter):
                # The stub as it was handed out: what running it gives is known.
                yield from (Verdict(check, "todo", ["this part is not written yet"]) for check in asked)
                continue
            try:
                if candidate.file.exists():     # both sides at once, each on a core of its own
                    waiting, ready = self.prepare(asked), [check for check in asked if not check.lacking]
                    try:
                        for number, check in enumerate(ready, 1):
                            if progress:
                                progress(number, len(ready))
                            candidate.ask(check)
                    finally:
                        self.prepared(waiting)
                for check in asked:
                    verdict = self.verdict(candidate, check, others, name)
                    name = name_all or (name and verdict.word in FINE)
                    yield verdict
            finally:
                candidate.close()

    def all_checks(self, chapter: Chapter, hidden: bool = False) -> list[Check]:
        """The chapter's checks where every one must be asked; CourseError where a package for one is not installed."""
        for check in (checks := self.checks(chapter, hidden)):
            if check.lacking:
                raise CourseError(f"{chapter.stem}: {check.lacking} (or leave the chapter out, with --chapters)")
        return checks

    def warm(self, chapter: Chapter) -> None:
        """Load the chapter's reference and its mistakes, so that the next verdict is quick."""
        self.prepared(self.prepare(self.checks(chapter)))
        self.mistakes.load(chapter)

    def verdict(self, candidate: Submission, check: Check, others: list[Check] = (),
                name: bool = True) -> Verdict:
        """Ask one check of a submission and of the reference, and compare.

        `others` are checks that may be asked too, to tell apart mistakes that this one cannot;
        name=False looks for no mistake.
        """
        if not candidate.file.exists():
            return _absent(candidate, check)
        if check.lacking:
            return Verdict(check, "waiting", [check.lacking])
        reply = candidate.ask(check)
        word, facts = reply.word, reply.facts
        if word == "answer":
            self.prepared(self.prepare([check]))
            said = self.tell("judge", reply, **self.of(check), rtol=check.rtol)
            if "refused" in said:
                word, facts = "crashed", [f"the answer cannot be read: {said['refused']}"]
            else:
                word, facts = "wrong" if said["facts"] else "passed", said["facts"]
        verdict = Verdict(check, word, facts, reply.frames, reply.whole,
                          output=reply.output, seconds=reply.seconds)
        if name and word in ("wrong", "error") and not reply.whole:
            verdict.mistake = self.mistakes.name(candidate, check, reply, others)
        return verdict

    def judge_here(self, check: Check, answer: dict, body: bytes) -> list[str]:
        """The facts about an answer that was given in the front end's own process."""
        self.prepared(self.prepare([check]))
        return self.tell("judge", Reply("answer", [], answer, body), **self.of(check), rtol=check.rtol)["facts"]

    def right_answer(self, check: Check) -> tuple[dict, bytes]:
        """What the reference answered, as it was sent."""
        self.prepared(self.prepare([check]))
        return self._key.receive(self._key.send("show", **self.of(check)))

    # -- the trusted side ----------------------------------------------------------------------

    def of(self, check: Check) -> dict:
        """How the key knows a check."""
        return {"chapter": check.chapter, "question": self.setting.question(check)}

    def tell(self, do: str, reply: Reply | None = None, **arguments) -> dict:
        """Ask the key, and wait. With a reply it says "refused" where the answer was too much for it."""
        if not reply:
            return self._hear(self._key.send(do, **arguments))
        try:
            return self._key.receive(
                self._key.send(do, reply.body, reply=reply.header, **arguments), JUDGING)[0]
        except (Ended, FrameError, TimedOut) as error:      # another key takes its place
            self._key.end()
            del self.__dict__["_key"]
            self._known.clear()
            self.mistakes.unlearn()
            return {"refused": f"comparing it ended the trusted side ({type(error).__name__})"}

    def _hear(self, number: int) -> dict:
        """The key's reply to a request; its failing is the course's failing."""
        try:
            return self._key.receive(number)[0]
        except (Ended, FrameError) as error:
            raise CourseError(f"the trusted side failed: {error}\n{self._key.output()[-2000:]}") from error

    def prepare(self, asked: list[Check]) -> int | None:
        """Have the key ask the reference what it has not been asked, and can be here; `prepared` waits for it."""
        new = [check for check in asked if check not in self._known and not check.lacking]
        if not new:
            return None
        chapter = Chapter(new[0].chapter)
        record = str(chapter.record) if self.record(chapter) else ""
        self._known.update(new)
        folders = {other.stem: str(SOLUTIONS) for other in chapters.chapters()}
        return self._key.send(
            "prepare", questions=[self.setting.question(check) for check in new], record=record,
            scan=scan_request(chapter, folders, SOLUTIONS, self.setting))

    def record(self, chapter: Chapter) -> Record | None:
        """What stands for the chapter's reference in an edition without it; None where there is the reference.

        Raises CourseError where there is neither, or what is asked now is not what was recorded.
        """
        if chapter.solution.exists():
            return None
        if chapter not in self._records:
            try:
                self._records[chapter] = Record(chapter.record)
            except (OSError, FrameError) as error:
                raise CourseError(f"{chapter.stem} has no reference to compare with, and no record: {error}") from error
        record, setting = self._records[chapter], self.setting
        if (record.seed, record.device) != (setting.seed, setting.device):
            raise CourseError(f"this edition knows the answers of {chapter.stem} for --seed {record.seed} --device "
                              f"{record.device} alone; asked were --seed {setting.seed} --device {setting.device}")
        return record

    def prepared(self, waiting: int | None) -> None:
        if waiting and (broken := self._hear(waiting)["broken"]):
            raise CourseError(f"the reference cannot answer: {broken}")


def _absent(candidate: Submission, check: Check) -> Verdict:
    """Nothing was handed in under the file's name, which is no success; in a student's own folder it is to do."""
    said = f"there is no {candidate.file.name} in its folder"
    if candidate.folder == chapters.EXERCISES:
        return Verdict(check, "todo", [said])
    names = sorted(path.name for path in candidate.folder.iterdir()) if candidate.folder.is_dir() else []
    near = chapters.near_miss(candidate.chapter, names)
    return Verdict(check, "missing", [f"{said}; there is {near}" if near else said], whole=True)
