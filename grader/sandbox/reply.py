"""What comes back from a worker for one check, once it has been read without believing it."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class CodeLine:
    """A line of a file that was found to be the submission's or an earlier chapter's."""

    file: Path
    line: int
    function: str = ""


@dataclass
class Reply:
    """What came back for one check. `word` is "answer", or a verdict where there is none."""

    word: str
    facts: list[str]
    header: dict
    body: bytes = b""
    lines: tuple[CodeLine, ...] = ()    # of a traceback, the submission's own, the last call last
    whole: bool = False         # it speaks of the file as a whole, which no check could be asked of
    output: str = ""            # what the submission printed meanwhile
    seconds: float = 0.0
