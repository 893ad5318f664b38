"""What passes between the grader's processes: two lengths, a JSON header and a body of bytes."""

import json
import os
import struct

MAX_HEADER = 16 << 20       # bytes of JSON
MAX_BODY = 256 << 20        # bytes of tensors
MAX_DEPTH = 100             # objects and lists within each other; JSON deeper than that cannot be passed on

_LENGTHS = struct.Struct(">II")


class FrameError(ValueError):
    """The bytes are no frame, or hold no answer."""


def channel() -> tuple:
    """(requests, replies) of a process that serves: its standard streams. What it prints is then no reply."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    return requests, replies


def write_frame(stream, header: dict, body: bytes = b"") -> None:
    """Write one frame to a binary stream."""
    text = json.dumps(header, allow_nan=False).encode()
    stream.write(_LENGTHS.pack(len(text), len(body)) + text + body)
    stream.flush()


def read_frame(stream) -> tuple[dict, bytes]:
    """Read one frame; EOFError at the stream's end, FrameError where it is no frame."""
    head, body = _LENGTHS.unpack(_exactly(stream, _LENGTHS.size))
    if head > MAX_HEADER or body > MAX_BODY:
        raise FrameError(f"a frame of {head + body:,} bytes is too large")
    text, content = _exactly(stream, head), _exactly(stream, body)
    try:
        header = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise FrameError("a frame's header is no JSON") from error
    if type(header) is not dict:
        raise FrameError("a frame's header is no object")
    level, depth = [header], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise FrameError(f"a frame's header is nested more than {MAX_DEPTH} deep")
        level = [part for node in level for part in (node.values() if type(node) is dict else node)
                 if type(part) in (dict, list)]
    return header, content


def _refuse(constant: str):
    raise ValueError(f"{constant} is not allowed")


def _exactly(stream, n: int) -> bytes:
    """n bytes of a stream, which need not be a buffered one."""
    parts, left = [], n
    while left:
        part = stream.read(left)
        if not part:
            raise EOFError("the other side has ended")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _finite(text: str) -> float:
    """A number; 1e999 would be infinite, which JSON cannot say when it is passed on."""
    number = float(text)
    return number if abs(number) != float("inf") else _refuse(text)
