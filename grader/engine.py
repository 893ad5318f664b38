"""Submission + checks + key → verdicts. Every front end calls this, and decides nothing itself."""

import signal
import tempfile
import time
import tomllib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from grader import chapters
from grader.chapters import SOLUTIONS, Chapter
from grader.checks import Check
from grader.frames import FrameError
from grader.process import CAN_FORK, Ended, Nursery, TimedOut, Worker

TIMEOUT = 10.0              # seconds that one check, or loading a chapter, may take
FINE = {"passed", "todo", "waiting"}    # these let a run exit with 0


class CourseError(Exception):
    """The course itself is broken: a reference fails, or a mistake cannot be applied."""


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


class Grader:
    """Asks checks of submissions. One key and one zygote serve it until `close`."""

    def __init__(self, device: str = "cpu", seed: int = 0, timeout: float = TIMEOUT,
                 fork: bool = CAN_FORK):
        if device not in ("cpu", "cuda"):
            raise ValueError(f"device must be 'cpu' or 'cuda', got {device!r}")
        if timeout <= 0:
            raise ValueError(f"timeout must be above 0 seconds, got {timeout}")
        self.device, self.seed, self.timeout = device, seed, timeout
        self._nursery = Nursery(fork)
        self._checks: dict[tuple, list[Check]] = {}
        self._mistakes: dict[Chapter, list["Suspect"]] = {}
        self._opened: set[Chapter] = set()
        self._scratch = tempfile.TemporaryDirectory(prefix="grader-")

    @cached_property
    def _key(self) -> Worker:
        return self._nursery.start("key")

    def close(self) -> None:
        """End every process."""
        for suspects in self._mistakes.values():
            for suspect in suspects:
                suspect.close()
        if "_key" in self.__dict__:
            self._key.end()
        self._nursery.close()
        self._scratch.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # -- what there is to ask ----------------------------------------------------------------

    def checks(self, chapter: Chapter, hidden: bool = False) -> list[Check]:
        """The chapter's checks for this device, in order: visible, then hidden if asked for."""
        if (chapter, hidden) not in self._checks:
            reply = self._tell("collect", chapter=chapter.stem, tests=_tests(chapter, hidden))
            found = [Check(**{**c, "devices": tuple(c["devices"])}) for c in reply["checks"]]
            self._checks[chapter, hidden] = [c for c in found if self.device in c.devices]
        return self._checks[chapter, hidden]

    def _tell(self, do: str, body: bytes = b"", **arguments) -> dict:
        try:
            return self._key.ask(do, body=body, **arguments)[0]
        except (Ended, FrameError) as error:
            said = self._key.output().strip()
            raise CourseError(f"the trusted side ended while it should {do} for "
                              f"{arguments.get('chapter', '')}: {said[-2000:] or error}") from error

    def _open(self, chapter: Chapter) -> None:
        """Have the key load the chapter's reference."""
        if chapter in self._opened:
            return
        if not chapter.solution.exists():
            raise CourseError(f"{chapter.stem} has no reference to compare with")
        folders = {c.stem: str(SOLUTIONS) for c in chapters.chapters()}
        broken = self._tell("open", **self._scan(chapter, folders, SOLUTIONS))["broken"]
        if broken:
            raise CourseError(f"the reference of {chapter.stem} cannot be loaded: {broken}")
        self._opened.add(chapter)

    def _scan(self, chapter: Chapter, folders: dict, fallback: Path) -> dict:
        return {"chapter": chapter.stem, "folders": folders, "fallback": str(fallback),
                "tests": _tests(chapter, True), "device": self.device}

    def question(self, check: Check) -> dict:
        """What a worker needs to ask one check."""
        return {"function": check.function, "hidden": check.hidden, "dtype": check.dtype,
                "seed": self.seed}

    # -- asking ------------------------------------------------------------------------------

    def grade(self, chapter: Chapter, submission: Path | None = None, hidden: bool = False,
              only=None, name_mistakes: bool = True):
        """Yield a Verdict per check of a chapter.

        submission: a folder with the student's file, all other chapters being the reference's;
        None: the exercises folder, with the student's own earlier chapters where begun.
        only: which checks to ask, as a function of a Check.
        """
        asked = [check for check in self.checks(chapter, hidden) if not only or only(check)]
        candidate = Submission(self, chapter, submission)
        if not candidate.file.exists():
            where = candidate.file.parent
            for check in asked:
                yield Verdict(check, "todo", [f"{chapter.stem}.py is not in {where}"])
            return
        self._open(chapter)
        try:
            replies: list[tuple[Check, dict, bytes]] = []
            for check in asked:
                verdict, reply, body = self._ask(candidate, chapter, check)
                if verdict.word in ("wrong", "error") and reply:
                    replies.append((check, reply, body))
                    if name_mistakes:
                        verdict.mistake = self._name(chapter, candidate, asked, check, reply, body)
                yield verdict
        finally:
            candidate.close()

    def _ask(self, candidate: "Submission", chapter: Chapter, check: Check):
        start = time.monotonic()
        question = self.question(check)
        waiting = self._key.send("prepare", chapter=chapter.stem, question=question)
        word, facts, reply, body = candidate.ask(question)
        try:
            broken = self._key.receive(waiting)[0]["broken"]
        except (Ended, FrameError) as error:
            raise CourseError(f"{chapter.stem}, {check.name}: the reference ended: {error}\n"
                              f"{self._key.output()[-2000:]}") from error
        if broken:
            raise CourseError(f"the reference cannot answer {chapter.stem}, {check.name}: {broken}")
        frames = reply.get("frames", [])
        if word == "answer":
            said = self._tell("judge", body, chapter=chapter.stem, question=question, reply=reply,
                              rtol=check.rtol)
            if "refused" in said:
                word, facts, reply = "crashed", [f"it sent no answer: {said['refused']}"], {}
            else:
                word, facts = "wrong" if said["facts"] else "passed", said["facts"]
        return Verdict(check, word, facts, frames, output=candidate.output(),
                       seconds=time.monotonic() - start), reply, body

    # -- naming mistakes -----------------------------------------------------------------------

    def suspects(self, chapter: Chapter) -> list["Suspect"]:
        """The chapter's known mistakes, each as a submission of its own."""
        if chapter not in self._mistakes:
            self._mistakes[chapter] = [
                Suspect(self, chapter, number, mistake) for number, mistake
                in enumerate(edits(chapter, "mistake"))]
        return self._mistakes[chapter]

    def _likeness(self, chapter: Chapter, check: Check, numbers, reply, body) -> dict:
        """Ask these mistakes the check, and the key which of them the reply is like."""
        for number in numbers:
            self.suspects(chapter)[number].answer(check)
        return self._tell("liken", body, chapter=chapter.stem, question=self.question(check),
                          reply=reply, rtol=check.rtol)

    def _name(self, chapter, candidate, asked, check, reply, body) -> str:
        """The sentence of the one mistake that gives this answer, or ""."""
        suspects = self.suspects(chapter)
        likeness = self._likeness(chapter, check, range(len(suspects)), reply, body)
        fits = likeness["whole"] or likeness["part"]
        if len(fits) > 1:
            fits = self._tell_apart(chapter, candidate, asked, check, fits)
        return suspects[fits[0]].says if len(fits) == 1 else ""

    def _tell_apart(self, chapter, candidate, asked, check, fits: list[int]) -> list[int]:
        """Mistakes that answer one check alike differ in another: ask the other checks."""
        score = dict.fromkeys(fits, 0)
        for other in asked:
            if other == check:
                continue
            word, _, reply, body = candidate.ask(self.question(other))
            if word not in ("answer", "error") or not reply:
                continue
            self._tell("prepare", chapter=chapter.stem, question=self.question(other))
            likeness = self._likeness(chapter, other, fits, reply, body)
            for number in fits:
                score[number] += ((number in likeness["whole"] + likeness["part"])
                                  - 100 * (number in likeness["against"]))
        best = max(score.values())
        return [number for number in fits if score[number] == best]


class Submission:
    """One chapter's file in a worker, which is started anew whenever it has ended."""

    def __init__(self, grader: Grader, chapter: Chapter, folder: Path | None):
        self.grader, self.chapter = grader, chapter
        self.folder = Path(folder or chapters.EXERCISES).resolve()
        self.file = self.folder / f"{chapter.stem}.py"
        self.folders = {c.stem: str(self._source(c, own=folder is None))
                        for c in chapters.chapters()}
        self._worker: Worker | None = None
        self._broken: tuple | None = None

    def _source(self, other: Chapter, own: bool) -> Path:
        """This chapter and later ones come from the submission, never from the reference."""
        if other >= self.chapter:
            return self.folder
        if own:
            return chapters.source_folder(other, self.folder)
        return SOLUTIONS if other.solution.exists() else self.folder

    def ask(self, question: dict) -> tuple[str, list[str], dict, bytes]:
        """(word, facts, reply, body) for one check; the word is "answer" where there is one."""
        try:
            if self._worker is None and self._broken is None:
                self._load()
            if self._broken:
                return self._broken
            return self._read(*self._worker.ask("ask", self.grader.timeout, **question))
        except (TimedOut, Ended, FrameError) as error:
            return self._lost(error)

    def _load(self) -> None:
        self._worker = self.grader._nursery.start("worker")
        grader, scan = self.grader, self.grader._scan(self.chapter, self.folders, self.folder)
        try:
            for reply, _ in (self._worker.ask("scan", grader.timeout, **scan),
                             self._worker.ask("load", grader.timeout)):
                if reply.keys() - {"id"}:
                    self._broken = self._read(reply, b"")
                    return
        except (TimedOut, Ended, FrameError) as error:
            word, facts, reply, body = self._lost(error)
            self._broken = word, [f"while {self.file.name} was imported: {facts[0]}"], reply, body

    def _read(self, reply: dict, body: bytes):
        match reply:
            case {"forbidden": uses}:
                return "forbidden", [f"line {line} uses {name}, which this chapter asks you to write"
                                     if not name.startswith(("torch.ops", "torch._"))
                                     else f"line {line} uses {name}, which the course leaves out"
                                     for line, name in uses], {}, b""
            case {"todo": stem} if stem == self.chapter.stem:
                return "todo", ["this part is not written yet"], {}, b""
            case {"todo": stem}:
                return "waiting", [f"this needs {stem or 'a part'}.py, where a part is not written yet"], {}, b""
            case {"raised": kind, "message": message}:
                return "error", [f"{kind}: {message}"], reply, b""
            case {"answer": _, "changed": _}:
                return "answer", [], reply, body
        return "crashed", ["the process sent something that is no answer"], {}, b""

    def _lost(self, error: Exception):
        """The worker is gone: what that means, in words."""
        self._final_output = self._worker.output()
        self._worker = None
        if isinstance(error, TimedOut):
            return "timeout", [f"no answer within {self.grader.timeout:g} seconds"], {}, b""
        if isinstance(error, FrameError):
            return "crashed", [f"the process sent something that is no answer ({error})"], {}, b""
        status = error.status
        if status < 0:
            name = signal.Signals(-status).name if -status in set(signal.Signals) else str(-status)
            said = {"SIGSEGV": " (memory that is not the process's own)",
                    "SIGKILL": " (killed, most likely for its memory)"}.get(name, "")
            return "crashed", [f"the process was ended by {name}{said}"], {}, b""
        return "crashed", [f"the process ended itself with exit code {status} and gave no answer"], {}, b""

    def output(self) -> str:
        """What it printed since last asked."""
        return self._worker.output() if self._worker else self.__dict__.pop("_final_output", "")

    def close(self) -> None:
        if self._worker:
            self._worker.end()
            self._worker = None


class Suspect:
    """A known mistake: the reference with one edit, asked in a worker like any submission."""

    def __init__(self, grader: Grader, chapter: Chapter, number: int, edit: "Edit"):
        folder = Path(grader._scratch.name) / f"{chapter.stem}-{number}"
        folder.mkdir()
        (folder / f"{chapter.stem}.py").write_text(edit.source, "utf-8")
        self.says, self.number, self.grader = edit.words, number, grader
        self.submission = Submission(grader, chapter, folder)
        self._asked: set[Check] = set()

    def answer(self, check: Check) -> None:
        """Have the key learn what this mistake answers."""
        if check in self._asked:
            return
        question = self.grader.question(check)
        word, _, reply, body = self.submission.ask(question)
        if word in ("answer", "error"):
            self.grader._tell("learn", body, chapter=check.chapter, question=question,
                              mistake=self.number, reply=reply)
        self._asked.add(check)

    def close(self) -> None:
        self.submission.close()


@dataclass(frozen=True)
class Edit:
    """A mistake or an alternative: an edited reference, and what to say about it."""

    source: str
    words: str


def edits(chapter: Chapter, kind: str) -> list[Edit]:
    """The chapter's edits of one kind, "mistake" or "alternative"."""
    if not chapter.mistakes.exists():
        return []
    source, found = chapter.solution.read_text("utf-8"), []
    for number, entry in enumerate(tomllib.loads(chapter.mistakes.read_text("utf-8")).get(kind, [])):
        if source.count(entry["find"]) != 1:
            raise CourseError(f"{chapter.mistakes.name}, {kind} {number + 1}: its `find` occurs "
                              f"{source.count(entry['find'])} times in the solution, not once")
        found.append(Edit(source.replace(entry["find"], entry["replace"]),
                          entry["says" if kind == "mistake" else "why"]))
    return found


def _tests(chapter: Chapter, hidden: bool) -> dict[str, str]:
    tests = {"visible": str(chapter.tests())}
    if hidden and chapter.tests(hidden=True).exists():
        tests["hidden"] = str(chapter.tests(hidden=True))
    return tests
