"""One chapter's file, a student's or a known mistake's, in a worker that may die at any time."""

import contextlib
import re
import time
from dataclasses import replace
from pathlib import Path

from grader.course import chapters, stubs
from grader.course.chapters import SOLUTIONS, Chapter
from grader.course.checks import Check
from grader.sandbox.frames import FrameError
from grader.sandbox.jail import MAX_FILE, Stage
from grader.sandbox.launcher import Preload, Slot
from grader.sandbox.process import CAN_TELL, Child, Ended, TimedOut
from grader.sandbox.reply import CodeLine, Reply, ended, stack_of
from grader.sandbox.setting import EARLY, Setting, scan_request

MAX_USES = 20               # lines that a reply may name
AFTER_TIMEOUT = 1.0         # seconds for each check once one took too long in a student's own folder,
BUDGET = 6                  # or all together more than so many times what one may take
SHARED = 1.1                # times what it could run, an answer took on the wall: then the machine was shared


class Submission:
    """A chapter's file in a folder.

    folder None: the exercises, with the student's own earlier chapters where begun. Any other
    folder: earlier chapters are the reference's, so that a slip is not paid for twice.
    hidden: hidden checks may be asked of it. Their file is loaded where they are, so a student's
    file that is asked visible checks, and may print what it finds, does not get to see them.
    """

    def __init__(self, slot: Slot, setting: Setting, chapter: Chapter, folder: Path | None,
                 hidden: bool = False):
        self.slot, self._setting, self.chapter, self.hidden = slot, setting, chapter, hidden
        self._own, self._patience = folder is None, setting.timeout
        self._spent = 0.0
        self.stop = None        # looked at while waiting for an answer: is it still wanted?
        self.folder = Path(folder or chapters.EXERCISES).resolve()
        self.file = self.folder / f"{chapter.stem}.py"
        self.folders = {other.stem: str(self._source(other, own=folder is None))
                        for other in chapters.chapters()}
        self.lent = self._lend() if self._own and not slot.stages else {}
        self._todo = stubs.leaning_on(chapter, frozenset(self.lent.get(chapter.stem, ["", []])[1]))
        self.source = b""
        self._scan: dict | None = None
        self._stages: list[Stage] = []          # all that a worker may read behind walls
        self._preload: Preload | None = None
        self._loaded_in: Child | None = None
        self._broken: Reply | None = None
        self._borrowed: dict[str, list] = {}    # (line, name) of what is forbidden, by part; "": to the whole file
        self._last_words = ""
        self._replies: dict[Check, Reply] = {}

    def _source(self, other: Chapter, own: bool) -> Path:
        """This chapter and later ones come from the submission, never from the reference."""
        if other >= self.chapter or not other.solution.exists():
            return self.folder
        return stubs.source_folder(other, self.folder) if own else SOLUTIONS

    def _lend(self) -> dict[str, list]:
        """Of each chapter that is begun, the reference's file and the parts that it stands in for."""
        own = [other for other in [*chapters.needs(self.chapter), self.chapter]
               if other.solution.exists() and stubs.started(other)]
        return {other.stem: [str(other.solution), sorted(names)] for other in own if (names := stubs.unwritten(other))}

    def is_to_do(self, check: Check) -> bool:
        """Whether a check asks about what is lent, which earns nothing."""
        return bool(self._todo & check.names)

    def ask(self, check: Check) -> Reply:
        """Ask one check, once, in a worker that has loaded the file; what it finds never raises."""
        if check not in self._replies:
            start, spent = time.monotonic(), self.slot.spent
            reply = self._ask(check)
            output, self._last_words = self._last_words, ""
            if self.slot.worker:
                output += self.slot.worker.output()
            seconds = time.monotonic() - start
            if reply.word != "timeout" and seconds > EARLY * self._patience:    # it was late, and came after all
                output = stack_of(output)[0]
            self._replies[check] = replace(reply, output=output, seconds=seconds)
            self._spent += self.slot.spent - spent
            if self._spent > BUDGET * self._setting.timeout:
                self._patience = min(self._patience, AFTER_TIMEOUT)
        return self._replies[check]

    def second(self, slot: Slot) -> "Submission":
        """The same file for another worker, to answer some of the checks meanwhile."""
        return Submission(slot, self._setting, self.chapter, None if self._own else self.folder, self.hidden)

    def load_silently(self) -> None:
        """Load; what the file prints as it is imported is another worker's to tell."""
        self.load()
        self._last_words = ""
        if self.slot.worker:
            self.slot.worker.output()

    def take_over(self, second: "Submission") -> None:
        """Remember what a second worker has answered."""
        self._replies.update(second._replies)

    def ask_late_ones_again(self) -> None:
        """Where the machine was shared: ask what took too long once more, until one takes too long again."""
        late = {check: reply for check, reply in self._replies.items() if reply.word == "timeout"}
        if CAN_TELL and not any(reply.seconds > SHARED * self._setting.timeout for reply in late.values()):
            return
        for check in late:
            self.slot.close()
            self._broken, self._patience = None, self._setting.timeout
            del self._replies[check]
            if self.ask(check).word == "timeout":
                break

    def _ask(self, check: Check) -> Reply:
        try:
            self.load()
            if self._broken:
                return self._broken
            if uses := [use for part, found in self._borrowed.items() if part in check.names for use in found]:
                return self._borrowing(uses)
            if self.is_to_do(check):
                return Reply("todo", ["this part is not written yet"], {})
            return self._read(
                *self._tell("ask", self._patience, **self._setting.question(check), patience=self._patience))
        except (TimedOut, Ended, FrameError) as error:
            return self._lost(error, self._patience)

    def _tell(self, do: str, seconds: float, **arguments) -> tuple[dict, bytes]:
        return self._worker().ask(do, seconds, self.stop, name=str(self.folder), **arguments)

    def load(self) -> None:
        """Have the worker import the file, if it has not; remember why, where that fails."""
        if refused := self._refused():
            self._broken = Reply("error", [refused], {}, whole=True)
        if self._broken:
            return
        if not self.source:     # before any of it runs: it may put something else in its place
            self.source = self.file.read_bytes()
            try:
                stubs.text_of(self.source)
            except ValueError as error:
                self._broken = Reply("error", [f"{self.file.name}: {error}"], {}, whole=True)
                return
        scan, seconds = self._prepare(), self._patience
        try:
            if self._loaded_in is self._worker():
                return
            for do, arguments in (("scan", scan), ("load", {"patience": seconds})):
                header, body = self._tell(do, seconds, **arguments)
                self._note(header.pop("forbidden", []))
                if header.keys() - {"id"}:
                    broken = self._read(header, body)
                    self._broken = replace(broken, whole=broken.word not in ("todo", "waiting"))
                if self._broken:
                    break
            self._loaded_in = self.slot.worker
        except (TimedOut, Ended, FrameError) as error:
            self._broken = replace(self._lost(error, seconds), whole=True)
            self._broken.facts[0] += f", while {self.file.name} was imported"

    def _note(self, uses) -> None:
        """Keep what a file was seen to borrow, before any check is asked."""
        if not (type(uses) is list and all(map(_is_use, uses))):
            self._broken = replace(self._lost(FrameError("it has none of the known forms")), whole=True)
            return
        for line, name, part in uses:
            found = self._borrowed.setdefault(part if part in stubs.parts(self.chapter) else "", [])
            if [line, name] not in found and len(found) < MAX_USES:
                found.append([line, name])
        if "" in self._borrowed:
            self._broken = replace(self._borrowing(self._borrowed[""]), whole=True)

    def _borrowing(self, uses: list) -> Reply:
        """What it means to have used [line, name], …"""
        found = dict.fromkeys((line, name[:99]) for line, name, *_ in uses[:MAX_USES])
        return Reply("forbidden", [f"line {line} uses {name}, which is yours to write here"
                                   if line > 0 else f"{name} is used, which is yours to write here"
                                   for line, name in found], {},
                     lines=(CodeLine(self.file, max(line for line, _ in found)),))

    def _prepare(self) -> dict:
        """What the worker is told of the files; behind walls they are copies on its stages."""
        if self._scan is None:
            scan = scan_request(self.chapter, self.folders, self.folder, self._setting, self.hidden, self.lent)
            if self.slot.stages:
                *self._stages, scan = self.slot.stages.stage(scan)
            if self.slot.many:
                self._preload = Preload(
                    tuple(test["path"] for test in scan["tests"]),
                    tuple((other.stem, scan["folders"][other.stem]) for other in self._references()))
            self._scan = scan
        return self._scan

    def _references(self) -> list[Chapter]:
        """The chapters that this one builds on, where they and all below them are the reference's."""
        own = {other for other in chapters.needs(self.chapter) if self.folders[other.stem] != str(SOLUTIONS)}
        return [other for other in chapters.needs(self.chapter) if not own & {other, *chapters.needs(other)}]

    def _worker(self) -> Child:
        return self.slot.open(self._stages, self._preload)

    def _refused(self) -> str:
        """Why a file is not even opened, or ""."""
        if not self._own and self.file.is_symlink():
            return f"{self.file.name} is a link, not a file"
        if not self.file.is_file():
            return f"{self.file.name} is no file"
        if self.file.stat().st_size > MAX_FILE:
            return f"{self.file.name} is larger than {MAX_FILE >> 20} MB"
        return ""

    def _read(self, header: dict, body: bytes) -> Reply:
        """What a reply says. It comes from a student's process: nothing of it is passed on unseen."""
        if header.get("spent") is True:     # the process can do no more
            self._last_words = self.slot.close()
        match header:
            case {"answer": dict(answer), "changed": list(changed)} if _all(changed, int):
                return Reply("answer", [], {"answer": answer, "changed": changed}, body)
            case {"raised": str(kind), "message": str(message), "frames": list(frames),
                  "called": str(called), "named": list(named)} if _all(named, str):
                kind, message = kind[:99], message[:2000]
                if takes := ", ".join(chapters.signatures(self.chapter).get(called, ())):
                    same = f"; yours takes {takes}"     # then the error lies elsewhere
                    message = (message.removesuffix(same) if message.endswith(same)
                               else f"{message}; the course calls it with {takes}")
                lines, operation = self._lines(frames), header.get("operation")
                place = [self._part(lines), operation[:100] if type(operation) is str else ""]
                said = {"raised": kind, "message": message, "named": named, "place": place}
                return Reply("error", [f"{kind}: {message}" if message else kind], said, lines=lines)
            case {"todo": str(stem)} if stem == self.chapter.stem:
                return Reply("todo", ["this part is not written yet"], {})
            case {"todo": str(stem)} if stem in self.folders:
                return Reply("waiting", [f"this needs a part of {stem}.py that is not written yet"], {})
            case {"forbidden": list(uses)} if uses and all(map(_is_use, uses)):
                return self._borrowing(uses)
        return self._lost(FrameError("it has none of the known forms"))

    def _lines(self, frames: list) -> tuple[CodeLine, ...]:
        """The frames whose files are this submission's or an earlier chapter's; others are left out."""
        known = {Path(folder) / f"{stem}.py" for stem, folder in self.folders.items()}
        found = []
        for frame in frames[:MAX_USES]:
            match frame:
                case {"file": str(file), "line": int(line), "function": str(function)} if 0 < line < 10**6:
                    path = Path(file[:4096].replace("\0", ""))
                    for stage in self._stages:
                        path = stage.copies.get(path, path)
                    if (path in known or (path.parent == self.folder and path.suffix == ".py")) \
                            and self._plain(path):
                        found.append(CodeLine(path, line, function[:200]))
        return tuple(found)

    def _part(self, lines: tuple[CodeLine, ...]) -> str:
        """The last of these lines' functions that the course knows by name, as everybody's file has it."""
        known = chapters.signatures(self.chapter)
        names = [line.function.partition(".<locals>")[0] for line in lines if line.file == self.file]
        return next((name for name in reversed(names) if name in known and not re.search(r"(^|\.)_(?!_)", name)), "")

    def _plain(self, path: Path) -> bool:
        """Whether a path is a file of a submission's size, and no link."""
        with contextlib.suppress(OSError):      # a name may be too long for any file
            return (self._own or not path.is_symlink()) and path.is_file() and path.stat().st_size <= MAX_FILE
        return False

    def _lost(self, error: Exception, waited: float = 0) -> Reply:
        """The worker is gone, or no longer to be believed: what that means, in words."""
        self._last_words = self.slot.close()
        if isinstance(error, TimedOut):
            self._last_words, stack = stack_of(self._last_words)
            if self._own:       # the others are likely to take as long
                self._patience = min(self._patience, AFTER_TIMEOUT)
            said = f"no answer within {waited:g} second{'s' * (waited != 1)}"
            return Reply("timeout", [said], {}, lines=self._lines(stack))
        if isinstance(error, FrameError):
            return Reply("crashed", [f"the process sent something that is no answer: {error}"], {})
        return ended(error.status)

    @property
    def pid(self) -> int | None:
        """The worker's process, while there is one."""
        return self.slot.worker and self.slot.worker.pid

    def close(self) -> None:
        self.slot.close()
        if self._stages:
            self._stages[0].clear()


def _all(values: list, kind: type) -> bool:
    return len(values) < 10_000 and all(type(value) is kind for value in values)


def _is_use(use) -> bool:
    return type(use) is list and [type(part) for part in use] == [int, str, str] and abs(use[0]) < 10**6
