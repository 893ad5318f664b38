"""What is right, and what each known mistake answers: a client of the `referee`, a process of its own."""

import contextlib

from grader.course import chapters
from grader.course.chapters import SOLUTIONS, Chapter, CourseError
from grader.course.checks import Check
from grader.judge.record import Record
from grader.sandbox.frames import FrameError
from grader.sandbox.launcher import Launcher
from grader.sandbox.process import Child, Ended, TimedOut
from grader.sandbox.reply import Reply
from grader.sandbox.setting import Setting, scan_request, test_files

REFEREE = "grader.judge.referee"
JUDGING = 20.0              # seconds that comparing one answer may take


class Refused(Exception):
    """An answer that was too much for the referee; the words say why."""


class AnswerKey:
    """Answers by chapter and check. Where an answer ends its process another takes its place, and learns anew."""

    def __init__(self, launcher: Launcher, setting: Setting):
        self._launcher, self._setting = launcher, setting
        self._referee: Child | None = None
        self._checks: dict[tuple[Chapter, bool], list[Check]] = {}
        self._records: dict[Chapter, Record] = {}
        self._prepared: set[Check] = set()                  # what the reference has been asked
        self._learnt: dict[tuple[Check, int], bool] = {}    # of a check and a mistake: is the mistake wrong there?

    def close(self) -> None:
        """End the process; nothing that it knew is kept."""
        if self._referee:
            self._referee.end()
        self._referee = None
        self._prepared.clear()
        self._learnt.clear()

    def checks(self, chapter: Chapter, hidden: bool = False) -> list[Check]:
        """The chapter's checks for this device, in order: visible, then hidden if asked for."""
        if (chapter, hidden) not in self._checks:
            said = self._hear(self._send("collect", chapter=chapter.stem,
                                         tests=test_files(chapter, self._setting, hidden)))
            found = [Check(**{**c, "devices": tuple(c["devices"]), "names": frozenset(c["names"])})
                     for c in said["checks"]]
            self._checks[chapter, hidden] = [c for c in found if self._setting.device in c.devices]
        return self._checks[chapter, hidden]

    # -- the reference -----------------------------------------------------------------------

    @contextlib.contextmanager
    def preparing(self, checks: list[Check]):
        """Have the reference answer meanwhile what can be asked here; CourseError where it cannot."""
        new = [check for check in checks if not self.is_prepared([check])]
        sent = self._prepare(new) if new else None
        try:
            yield
        finally:
            if sent and (broken := self._hear(sent)["broken"]):
                raise CourseError(f"the reference cannot answer: {broken}")

    def is_prepared(self, checks: list[Check]) -> bool:
        """Whether the reference has been asked all of these that can be asked here."""
        return all(check in self._prepared or check.lacking for check in checks)

    def prepare(self, checks: list[Check]) -> None:
        """Have the reference answer these checks, and wait."""
        with self.preparing(checks):
            pass

    def _prepare(self, new: list[Check]) -> int:
        chapter = Chapter(new[0].chapter)
        record = str(chapter.record) if self.record(chapter) else ""
        folders = {other.stem: str(SOLUTIONS) for other in chapters.chapters()}
        self._prepared.update(new)
        return self._send("prepare", questions=[self._setting.question(check) for check in new], record=record,
                          scan=scan_request(chapter, folders, SOLUTIONS, self._setting))

    def judge(self, check: Check, header: dict, body: bytes) -> list[str]:
        """Where an answer differs from the reference's, in words; Refused where it is no answer."""
        return self._tell("judge", check, header, body)["facts"]

    def right_answer(self, check: Check) -> tuple[dict, bytes]:
        """What the reference answered, as it was sent."""
        self.prepare([check])
        return self._referee.receive(self._send("show", **self._of(check)))

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
        record, setting = self._records[chapter], self._setting
        if (record.seed, record.device) != (setting.seed, setting.device):
            raise CourseError(f"this edition knows the answers of {chapter.stem} for --seed {record.seed} --device "
                              f"{record.device} alone; asked were --seed {setting.seed} --device {setting.device}")
        return record

    # -- mistakes ----------------------------------------------------------------------------

    def knows(self, check: Check, mistake: int) -> bool:
        """Whether it has learnt what a mistake answers to a check."""
        return (check, mistake) in self._learnt

    def learn(self, check: Check, mistake: int, reply: Reply, by_size: bool) -> None:
        """Keep what a mistake answers, where that is wrong. by_size: what tells it is the size of its error."""
        said = {}
        if reply.word in ("answer", "error"):
            with contextlib.suppress(Refused):
                said = self._tell("learn", check, reply.header, reply.body, mistake=mistake, by_size=by_size)
        self._learnt[check, mistake] = said.get("wrong", False)

    def is_wrong(self, check: Check, mistake: int) -> bool:
        """Whether a mistake that it has learnt is wrong in a check."""
        return self._learnt.get((check, mistake), False)

    def liken(self, check: Check, reply: Reply, among: list[int] | None = None) -> dict[str, list[int]]:
        """Which of the mistakes that it has learnt, of all or among these, answer like this; see Referee.liken."""
        try:
            return self._tell("liken", check, reply.header, reply.body, among=among)
        except Refused:
            return dict.fromkeys(("whole", "part", "size", "against", "both", "pairs"), [])

    def alike(self, check: Check, one: Reply, other: Reply) -> bool:
        """Whether two replies are the same wrong answer."""
        if one.word != "answer" or other.word != "answer":
            return False
        try:
            return self._tell("alike", check, one.header, one.body + other.body, other=other.header,
                              split=len(one.body))["alike"]
        except Refused:
            return False

    # -- its process -------------------------------------------------------------------------

    def _of(self, check: Check) -> dict:
        return {"chapter": check.chapter, "question": self._setting.question(check)}

    def _tell(self, do: str, check: Check, header: dict, body: bytes, **arguments) -> dict:
        """Send an answer, which may be anything, and hear what is said of it."""
        self.prepare([check])
        sent = self._send(do, body, reply=header, rtol=check.rtol, **self._of(check), **arguments)
        try:
            said = self._referee.receive(sent, JUDGING)[0]
        except (Ended, FrameError, TimedOut) as error:
            self.close()
            raise Refused(f"comparing it ended the trusted side ({type(error).__name__})") from None
        if "refused" in said:
            raise Refused(said["refused"])
        return said

    def _send(self, do: str, body: bytes = b"", **arguments) -> int:
        if self._referee is None:
            self._referee = self._launcher.start(REFEREE)
        return self._referee.send(do, body, **arguments)

    def _hear(self, number: int) -> dict:
        """The reply to a request that holds no answer; its failing is the course's failing."""
        try:
            return self._referee.receive(number)[0]
        except (Ended, FrameError) as error:
            raise CourseError(f"the trusted side failed: {error}\n{self._referee.output()[-2000:]}") from error
