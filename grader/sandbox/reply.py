"""What comes back from a worker for one check, once it has been read without believing it."""

import re
import signal
from dataclasses import dataclass
from pathlib import Path

ACCESS_VIOLATION = 0xC0000005       # what Windows says for SIGSEGV


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


def ended(status: int) -> Reply:
    """What it means that a process ended with this exit status before it gave an answer."""
    status = -signal.SIGSEGV if status == ACCESS_VIOLATION else status
    if status >= 0:
        return Reply("crashed", [f"the process ended itself (exit code {status}) and gave no answer"], {})
    names = {s.value: s.name for s in signal.Signals}
    said = {"SIGSEGV": ": it touched memory that is not its own",
            "SIGKILL": ", most likely for the memory it took"}
    name = names.get(-status, str(-status))
    return Reply("crashed", [f"the process was ended by {name}{said.get(name, '')}"], {})


def stack_of(output: str) -> tuple[str, list[dict]]:
    """(what was printed, the stack that faulthandler has printed below it; the last call last)."""
    printed, marker, stack = output.rpartition("Timeout (")
    if not marker:
        return output, []
    found = re.findall(r'^\s*File "([^"\n]{1,4096})", line (\d{1,6}) in (.*)', stack, re.M)
    return printed, [{"file": file, "line": int(line), "function": name} for file, line, name in found[::-1]]
