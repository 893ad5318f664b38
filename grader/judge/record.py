"""What a chapter's reference and its known mistakes answered, kept for an edition that holds neither.

A record, `key/ex03_linear.key`, is a compressed row of frames, as they pass between the grader's
processes. The first says which inputs were asked, and each mistake's words. Every other is one
answer to one check: the reference's, or that of a mistake, kept only where it is wrong. They are
numbers and texts that code gave, and no code.
"""

import io
import zlib
from pathlib import Path

from grader.sandbox.frames import FrameError, read_frame, write_frame

MAX_SIZE = 256 << 20        # bytes of a record once unpacked


def write(path: Path, head: dict, answers: list[tuple[dict, dict, bytes]]) -> None:
    """Keep the answers of a chapter.

    head: {"seed", "device", "mistakes": [{"words", "parts", "by_size", "own", "leans"}]}. answers: (what was
    asked, the reply, its bytes), where what was asked is {"file", "function", "dtype", "mistake"}
    with the mistake's number, or None for the reference.
    """
    stream = io.BytesIO()
    write_frame(stream, head)
    for asked, reply, body in answers:
        write_frame(stream, {"asked": asked, "reply": reply}, body)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(zlib.compress(stream.getvalue(), 9))


def frames(path: Path) -> list[tuple[dict, bytes]]:
    """A record's frames; FrameError where the file is none, OSError where it cannot be read."""
    work = zlib.decompressobj()
    try:
        content = work.decompress(path.read_bytes(), MAX_SIZE)
    except zlib.error as error:
        raise FrameError(f"{path.name} is no record: {error}") from error
    if not work.eof:
        raise FrameError(f"{path.name} is cut short or too large")
    stream, found = io.BytesIO(content), []
    while stream.tell() < len(content):
        try:
            found.append(read_frame(stream))
        except EOFError:
            raise FrameError(f"{path.name} ends within a frame") from None
    return found


class Record:
    """A chapter's record. For the referee it stands where the loaded reference would stand.

    Raises FrameError where the file is damaged, OSError where it cannot be read.
    """

    def __init__(self, path: Path):
        try:
            (head, _), *answers = frames(path)
            self.seed, self.device, self.mistakes = head["seed"], head["device"], head["mistakes"]
            self._replies = {
                tuple(said["asked"][name] for name in ("mistake", "file", "function", "dtype")): (said["reply"], body)
                for said, body in answers}
        except (KeyError, TypeError, ValueError) as error:
            raise error if isinstance(error, FrameError) else FrameError(f"{path.name} is no record") from error

    def ask(self, file: str, function: str, dtype: str | None, seed: int) -> tuple[dict, bytes]:
        """What the reference answered; {"missing": …} where it was not asked this."""
        said = self.said(None, file, function, dtype) if seed == self.seed else None
        return said or ({"missing": f"its record has no answer for seed {seed}"}, b"")

    def said(self, mistake: int | None, file: str, function: str, dtype: str | None) -> tuple[dict, bytes] | None:
        """What a mistake (None: the reference) answered, or None where that was right or not asked."""
        return self._replies.get((mistake, file, function, dtype))
