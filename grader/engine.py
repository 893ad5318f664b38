"""Submission + checks + key → verdicts. Every front end calls this, and decides nothing itself."""

import itertools
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from grader import chapters
from grader.chapters import SOLUTIONS, Chapter
from grader.checks import Check
from grader.frames import FrameError
from grader.process import CAN_FORK, Ended, Nursery, Worker
from grader.submission import CourseError, Place, Reply, Setting, Submission, edits, scan_request, test_files

TIMEOUT = 10.0              # seconds that one check, or loading a chapter, may take
MAX_WORKERS = 4             # at most, for the known mistakes of a chapter; fewer where there are fewer cores
FINE = {"passed", "todo", "waiting"}    # a run of these exits with 0


@dataclass
class Verdict:
    """What came of one check: passed, wrong, error, todo, waiting, timeout, crashed, forbidden."""

    check: Check
    word: str
    facts: list[str] = field(default_factory=list)      # what differs, or what happened
    frames: list[dict] = field(default_factory=list)    # the student's own lines of a traceback
    mistake: str = ""                                   # what the student most likely did
    output: str = ""                                    # what the submission printed
    seconds: float = 0.0

    @property
    def points(self) -> int:
        return self.check.points if self.word == "passed" else 0


@dataclass
class Suspect:
    """A known mistake as a submission, and the checks that the key knows its answers to."""

    submission: Submission
    words: str
    parts: frozenset[str]
    learnt: set[Check] = field(default_factory=set)


class Grader:
    """Asks checks of submissions. One zygote and one key serve it until `close`."""

    def __init__(self, device: str = "cpu", seed: int = 0, timeout: float = TIMEOUT,
                 fork: bool = CAN_FORK):
        if device not in ("cpu", "cuda"):
            raise ValueError(f"device must be 'cpu' or 'cuda', got {device!r}")
        if not timeout > 0:
            raise ValueError(f"timeout must be above 0 seconds, got {timeout}")
        self.setting = Setting(device, seed, timeout)
        self._nursery = Nursery(fork)
        self._checks: dict[tuple[Chapter, bool], list[Check]] = {}
        self._suspects: dict[Chapter, list[Suspect]] = {}
        self._known: set[Check] = set()     # what the reference has been asked
        self._scratch = tempfile.TemporaryDirectory(prefix="grader-")

    @cached_property
    def _key(self) -> Worker:
        return self._nursery.start("key")

    def close(self) -> None:
        """End every process."""
        for chapter in list(self._suspects):
            self.forget_suspects(chapter)
        if "_key" in self.__dict__:
            self._key.end()
        self._nursery.close()
        self._scratch.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # -- asking ------------------------------------------------------------------------------

    def checks(self, chapter: Chapter, hidden: bool = False) -> list[Check]:
        """The chapter's checks for this device, in order: visible, then hidden if asked for."""
        if (chapter, hidden) not in self._checks:
            said = self._tell("collect", chapter=chapter.stem, tests=test_files(chapter, hidden))
            found = [Check(**{**c, "devices": tuple(c["devices"]), "names": frozenset(c["names"])})
                     for c in said["checks"]]
            self._checks[chapter, hidden] = [c for c in found if self.setting.device in c.devices]
        return self._checks[chapter, hidden]

    def submission(self, chapter: Chapter, folder: Path | None = None) -> Submission:
        """A chapter's file, to be asked checks; close it when done."""
        return Submission(Place(self._nursery), self.setting, chapter, folder)

    def grade(self, chapter: Chapter, folder: Path | None = None, hidden: bool = False,
              only=lambda check: True, name_all: bool = True) -> Iterator[Verdict]:
        """A verdict per check. The folder is as for Submission; `only` picks checks.

        name_all=False names the mistake of the first failure alone, the one that is shown.
        """
        asked = [check for check in self.checks(chapter, hidden) if only(check)]
        candidate, name = self.submission(chapter, folder), True
        if folder is None and candidate.file.exists() and not chapters.started(chapter):
            # The stub as it was handed out: what running it gives is known.
            yield from (Verdict(check, "todo", ["this part is not written yet"]) for check in asked)
            return
        try:
            if candidate.file.exists():     # both sides at once, each on a core of its own
                waiting = self._prepare(asked)
                for check in asked:
                    candidate.ask(check)
                self._prepared(waiting)
            for check in asked:
                verdict = self.verdict(candidate, check, asked, name)
                name = name_all or (name and verdict.word in FINE)
                yield verdict
        finally:
            candidate.close()

    def warm(self, chapter: Chapter) -> None:
        """Load the chapter's reference and its mistakes, so that the next verdict is quick."""
        self._prepared(self._prepare(self.checks(chapter)))
        self._each(self.suspects(chapter), lambda suspect: suspect.submission.load())

    def verdict(self, candidate: Submission, check: Check, others: list[Check] = (),
                name: bool = True) -> Verdict:
        """Ask one check of a submission and of the reference, and compare.

        `others` are checks that may be asked too, to tell apart mistakes that this one cannot;
        name=False looks for no mistake.
        """
        if not candidate.file.exists():
            return Verdict(check, "todo", [f"there is no {candidate.file.name} in its folder"])
        self._prepared(self._prepare([check]))
        reply = candidate.ask(check)
        word, facts = reply.word, reply.facts
        if word == "answer":
            said = self._tell("judge", reply, **self._of(check), rtol=check.rtol)
            if "refused" in said:
                word, facts = "crashed", [f"the answer cannot be read: {said['refused']}"]
            else:
                word, facts = "wrong" if said["facts"] else "passed", said["facts"]
        verdict = Verdict(check, word, facts, reply.header.get("frames", []),
                          output=reply.output, seconds=reply.seconds)
        if name and verdict.word in ("wrong", "error"):
            verdict.mistake = self._name(candidate, check, reply, others)
        return verdict

    def judge_here(self, check: Check, answer: dict, body: bytes) -> list[str]:
        """The facts about an answer that was given in the front end's own process."""
        self._prepared(self._prepare([check]))
        return self._tell("judge", Reply("answer", [], answer, body),
                          **self._of(check), rtol=check.rtol)["facts"]

    # -- the trusted side ----------------------------------------------------------------------

    def _of(self, check: Check) -> dict:
        return {"chapter": check.chapter, "question": self.setting.question(check)}

    def _tell(self, do: str, reply: Reply | None = None, **arguments) -> dict:
        """Ask the key, and wait."""
        if reply:
            arguments["reply"] = reply.header
        return self._hear(self._key.send(do, body=reply.body if reply else b"", **arguments))

    def _hear(self, number: int) -> dict:
        """The key's reply to a request; its failing is the course's failing."""
        try:
            return self._key.receive(number)[0]
        except (Ended, FrameError) as error:
            raise CourseError(f"the trusted side failed: {error}\n{self._key.output()[-2000:]}") from error

    def _prepare(self, asked: list[Check]) -> int | None:
        """Have the key ask the reference what it has not been asked; `_prepared` waits for it."""
        new = [check for check in asked if check not in self._known]
        if not new:
            return None
        chapter = Chapter(new[0].chapter)
        if not chapter.solution.exists():
            raise CourseError(f"{chapter.stem} has no reference to compare with")
        self._known.update(new)
        folders = {other.stem: str(SOLUTIONS) for other in chapters.chapters()}
        return self._key.send(
            "prepare", questions=[self.setting.question(check) for check in new],
            scan=scan_request(chapter, folders, SOLUTIONS, self.setting.device))

    def _prepared(self, waiting: int | None) -> None:
        if waiting and (broken := self._hear(waiting)["broken"]):
            raise CourseError(f"the reference cannot answer: {broken}")

    # -- naming mistakes -----------------------------------------------------------------------

    def suspects(self, chapter: Chapter) -> list[Suspect]:
        """The chapter's known mistakes, dealt out to a worker per core."""
        if chapter not in self._suspects:
            places = [Place(self._nursery) for _ in range(min(os.cpu_count() or 1, MAX_WORKERS))]
            scratch = Path(self._scratch.name)
            folders = [(edit, edit.write(chapter, scratch / f"{chapter.stem}-{number}"))
                       for number, edit in enumerate(edits(chapter, "mistake"))]
            self._suspects[chapter] = [
                Suspect(Submission(place, self.setting, chapter, folder), edit.words, edit.parts)
                for place, (edit, folder) in zip(itertools.cycle(places), folders)]
        return self._suspects[chapter]

    def _each(self, suspects: list[Suspect], do) -> None:
        """Call `do` with each suspect: those of one worker in turn, the workers at once."""
        groups: dict[Place, list[Suspect]] = {}
        for suspect in suspects:
            groups.setdefault(suspect.submission.place, []).append(suspect)
        with ThreadPoolExecutor(MAX_WORKERS) as pool:
            list(pool.map(lambda group: [do(suspect) for suspect in group], groups.values()))

    def forget_suspects(self, chapter: Chapter) -> None:
        """End the workers of a chapter's mistakes."""
        for suspect in self._suspects.pop(chapter, []):
            suspect.submission.close()

    def _liken(self, check: Check, reply: Reply, numbers) -> dict[str, list[int]]:
        """Which of these mistakes answer like this reply; see Key.liken."""
        suspects = self.suspects(Chapter(check.chapter))
        new = [number for number in numbers if check not in suspects[number].learnt]
        self._each([suspects[number] for number in new], lambda suspect: suspect.submission.ask(check))
        for number in new:
            suspects[number].learnt.add(check)
            theirs = suspects[number].submission.ask(check)     # it remembers what it said
            if theirs.word in ("answer", "error"):
                self._tell("learn", theirs, **self._of(check), rtol=check.rtol, mistake=number)
        return self._tell("liken", reply, **self._of(check), rtol=check.rtol)

    def _name(self, candidate: Submission, check: Check, reply: Reply, others) -> str:
        """The words of the one mistake that gives this answer, or ""."""
        suspects = self.suspects(candidate.chapter)
        near = [i for i, suspect in enumerate(suspects) if suspect.parts & check.names]
        likeness = self._liken(check, reply, near)
        fits = likeness["whole"] or likeness["part"]
        if len(fits) > 1:
            fits = self._tell_apart(candidate, [c for c in others if c != check], fits)
        return suspects[fits[0]].words if len(fits) == 1 else ""

    def _tell_apart(self, candidate: Submission, others: list[Check], fits: list[int]) -> list[int]:
        """Of mistakes that answer one check alike, those that fit the other checks best."""
        self._prepared(self._prepare(others))
        score = dict.fromkeys(fits, 0)
        for check in others:
            reply = candidate.ask(check)
            if reply.word not in ("answer", "error"):
                continue
            likeness = self._liken(check, reply, fits)
            for number in fits:
                score[number] += (number in likeness["whole"] + likeness["part"])
                score[number] -= 100 * (number in likeness["against"])
        best = max(score.values())
        return [number for number in fits if score[number] == best]
