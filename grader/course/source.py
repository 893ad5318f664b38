"""A student's file as text: as Python reads it, in encodings in which what is seen is what is run."""

import codecs
import io
import re
import tokenize
from pathlib import Path

# All of them read ASCII as ASCII, and take no longer for a byte than for another. In others, UTF-7 for one, a line of
# code can hide in a comment.
PLAIN = {codecs.lookup(name).name for name in ("utf-8", "utf-8-sig", "ascii", "latin-1", "iso8859-15", "cp1252")}


def text(data: bytes) -> str:
    """What a file says, with "\\n" between its lines; ValueError where it cannot be read."""
    data = re.sub(rb"\r\n?", b"\n", data)       # as Python does before it looks for the encoding
    try:
        name = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
        if codecs.lookup(name).name not in PLAIN:
            raise ValueError(f"it says that its encoding is {name[:20]}: save it as UTF-8")
        said = data.decode(name)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise ValueError(f"it is no text in UTF-8, the encoding of Python's files: save it as that ({_why(error)})"
                         ) from None
    if "\0" in said:
        raise ValueError("it holds a null byte: save it as text in UTF-8")
    return said


def _why(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        line = error.object[:error.start].count(b"\n") + 1
        return f"byte 0x{error.object[error.start]:02x} in line {line}"
    return str(error)[:100]


def line(file: Path, number: int) -> str:
    """A line of a file as it stands there now, without the space around it; "" where there is none."""
    try:
        return text(file.read_bytes()).split("\n")[number - 1].strip() if number > 0 else ""
    except (OSError, ValueError, IndexError):
        return ""
