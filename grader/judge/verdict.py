"""What came of one check."""

from dataclasses import dataclass, field
from enum import StrEnum

from grader.course.checks import Check
from grader.sandbox.reply import CodeLine


class Word(StrEnum):
    """A verdict in one word, in the order in which they are counted."""

    PASSED = "passed"
    WRONG = "wrong"             # an answer that differs
    ERROR = "error"             # an exception
    FORBIDDEN = "forbidden"     # borrowed what is to be written
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    MISSING = "missing"         # no file was handed in
    WAITING = "waiting"         # for an earlier chapter's stub, or for a package
    TODO = "todo"               # a stub still

    @property
    def fine(self) -> bool:
        """Whether it is no failure: a run of these exits with 0."""
        return self in (Word.PASSED, Word.WAITING, Word.TODO)

    @property
    def label(self) -> str:
        return "to do" if self is Word.TODO else self.value

    @property
    def letter(self) -> str:
        """One character, for a table of many."""
        return "·" if self is Word.PASSED else "–" if self.fine else self[0]


@dataclass
class Verdict:
    """What came of one check."""

    check: Check
    word: Word
    facts: list[str] = field(default_factory=list)      # what differs, or what happened
    lines: tuple[CodeLine, ...] = ()                    # the student's own lines of a traceback
    whole: bool = False                                 # it speaks of the file as a whole
    mistake: str = ""                                   # what the student most likely did; of two, a line each
    output: str = ""                                    # what the submission printed
    seconds: float = 0.0

    def __post_init__(self):
        self.word = Word(self.word)

    @property
    def points(self) -> float:
        return self.check.points if self.word == Word.PASSED else 0
