"""What students get wrong: edits of the reference, and which of them answers like a submission."""

import ast
import bisect
import itertools
import os
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from grader import chapters
from grader.chapters import Chapter
from grader.checks import Check, lacking
from grader.nursery import Place
from grader.record import Record
from grader.submission import CourseError, Reply, Submission

MAX_WORKERS = 4             # at most, for the known mistakes of a chapter; fewer where there are fewer cores


@dataclass(frozen=True)
class Edit:
    """An edited reference, the sentence that says what the edit means, and where it can show."""

    source: str                 # "" where only what it answers is known
    words: str
    parts: frozenset[str]       # the chapter's functions and classes that it may change
    by_size: bool = False       # a mistake of precision: known by the size of its error, not by its digits

    def write(self, chapter: Chapter, folder: Path) -> Path:
        """Put it into a folder as a submission."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{chapter.stem}.py").write_text(self.source, "utf-8")
        return folder


def edits(chapter: Chapter, kind: str) -> list[Edit]:
    """The chapter's "mistake" or "alternative" edits, from its TOML file.

    An entry replaces the text `find` of the solution by `replace`, or several texts by `edits`, [[find, replace], …].
    """
    if not chapter.mistakes.exists() or not chapter.solution.exists():
        return []
    source, found = chapter.solution.read_text("utf-8"), []
    parts = _Parts(source)
    for number, entry in enumerate(tomllib.loads(chapter.mistakes.read_text("utf-8")).get(kind, [])):
        if lacking(entry.get("needs")):     # the checks that see it are not asked here
            continue
        edited, changed = source, frozenset()
        for find, replace in entry.get("edits") or [(entry["find"], entry["replace"])]:
            if source.count(find) != 1 or edited.count(find) != 1:
                raise CourseError(f"{chapter.mistakes.name}, {kind} {number + 1}: `find` occurs "
                                  f"{source.count(find)} times in the solution, not once: {find!r}")
            edited = edited.replace(find, replace)
            changed |= parts.changed_by(source.index(find), len(find))
        found.append(Edit(edited, entry["says" if kind == "mistake" else "why"], changed,
                          entry.get("by_size", False)))
    return found


class _Parts:
    """What a chapter defines (functions, classes, constants), and which of these use which."""

    def __init__(self, source: str):
        self.starts = [0, *itertools.accumulate(map(len, source.splitlines(keepends=True)))]
        self.lines: dict[str, tuple[int, int]] = {}
        self.uses: dict[str, set[str]] = {}
        for node in ast.parse(source).body:
            names = [name for name in ast.walk(node) if isinstance(name, ast.Name)]
            defined = [node.name] if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else \
                [name.id for name in names if isinstance(name.ctx, ast.Store)]
            for name in defined:
                self.lines[name] = node.lineno, node.end_lineno
                self.uses[name] = {name.id for name in names}

    def changed_by(self, at: int, length: int) -> frozenset[str]:
        """The parts that an edit of the text there may change: its own, and all that use it."""
        first = bisect.bisect_right(self.starts, at)
        last = bisect.bisect_right(self.starts, at + length - 1)
        changed = {name for name, (start, end) in self.lines.items() if start <= last and first <= end}
        if not changed:         # an import, say: it may change anything
            return frozenset(self.lines)
        while more := {name for name, uses in self.uses.items() if uses & changed} - changed:
            changed |= more
        return frozenset(changed)


class Recorded:
    """What a mistake answered once, where there is no reference to make it in."""

    place = None        # it runs nowhere

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
    """A known mistake as a submission, and the checks that the key knows its answers to."""

    submission: Submission | Recorded
    edit: Edit
    learnt: dict[Check, bool] = field(default_factory=dict)     # and whether it is wrong there


class Mistakes:
    """The known mistakes of a grader's chapters, and which of them a submission looks like.

    They run in the same kind of process as submissions do.
    """

    def __init__(self, grader):
        self._grader = grader
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

    def unlearn(self) -> None:
        """A new key knows nothing of what they answered."""
        for suspect in itertools.chain(*self._suspects.values()):
            suspect.learnt.clear()

    def load(self, chapter: Chapter) -> None:
        """Have all of a chapter's mistakes imported."""
        self._each(self.suspects(chapter), lambda suspect: suspect.submission.load())

    def suspects(self, chapter: Chapter) -> list[Suspect]:
        """The chapter's known mistakes, dealt out to a worker per core; on a GPU to a single one."""
        if chapter not in self._suspects and (record := self._grader.record(chapter)):
            self._suspects[chapter] = [
                Suspect(Recorded(record, number), Edit("", said["words"], frozenset(said["parts"]), said["by_size"]))
                for number, said in enumerate(record.mistakes)]
        if chapter not in self._suspects:
            setting = self._grader.setting
            count = min(os.cpu_count() or 1, MAX_WORKERS) if setting.on_cpu else 1
            places = [self._grader.place() for _ in range(count)]
            scratch = Path(self._scratch.name)
            folders = [(edit, edit.write(chapter, scratch / f"{chapter.stem}-{number}"))
                       for number, edit in enumerate(edits(chapter, "mistake"))]
            self._suspects[chapter] = [
                Suspect(Submission(place, setting, chapter, folder, hidden=True), edit)
                for place, (edit, folder) in zip(itertools.cycle(places), folders)]
        return self._suspects[chapter]

    def name(self, candidate: Submission, check: Check, reply: Reply, others: list[Check] = ()) -> str:
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
            raise CourseError(f"{check.chapter}, {check.name}: no answer within {self._grader.setting.timeout:g} s "
                              f"from the known mistake {suspects[late[0]].edit.words!r}")
        return [number for number in near if suspects[number].learnt[check]]

    def _near(self, check: Check) -> list[int]:
        """The mistakes that can show in this check."""
        suspects = self.suspects(Chapter(check.chapter))
        return [number for number, suspect in enumerate(suspects) if suspect.edit.parts & check.names]

    def _tell_apart(self, candidate: Submission, others: list[Check], fits: list[int]) -> list[int]:
        """Of mistakes that answer one check alike, those that fit the other checks best."""
        score = dict.fromkeys(fits, 0)
        for check in others:
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
        """Which of these mistakes answer like this reply; see Key.liken."""
        self._learn(check, numbers)
        found = self._grader.tell("liken", reply, **self._grader.of(check), rtol=check.rtol)
        return found if "refused" not in found else dict.fromkeys(("whole", "part", "size", "against"), [])

    def _learn(self, check: Check, numbers) -> None:
        """Have the key know what these mistakes answer."""
        grader, suspects = self._grader, self.suspects(Chapter(check.chapter))
        grader.prepared(grader.prepare([check]))
        new = [number for number in numbers if check not in suspects[number].learnt]
        self._each([suspects[number] for number in new], lambda suspect: suspect.submission.ask(check))
        for number in new:
            suspect, said = suspects[number], {}
            theirs = suspect.submission.ask(check)      # it remembers what it said
            if theirs.word in ("answer", "error"):
                said = grader.tell("learn", theirs, **grader.of(check), rtol=check.rtol, mistake=number,
                                   by_size=suspect.edit.by_size)
            suspect.learnt[check] = said.get("wrong", False)

    def _each(self, suspects: list[Suspect], do) -> None:
        """Call `do` with each suspect: those of one worker in turn, the workers at once."""
        groups: dict[Place, list[Suspect]] = {}
        for suspect in suspects:
            groups.setdefault(suspect.submission.place, []).append(suspect)
        with ThreadPoolExecutor(MAX_WORKERS) as pool:
            list(pool.map(lambda group: [do(suspect) for suspect in group], groups.values()))


def _tried(candidate: Submission, check: Check) -> bool:
    """Whether a file speaks of what the check asks for; no known mistake is to leave it out."""
    parts = {name.partition(".")[0] for name in chapters.signatures(candidate.chapter)} & check.names
    return not parts or any(name.encode() in candidate.source for name in parts)
