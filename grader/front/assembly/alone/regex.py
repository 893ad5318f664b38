"""The package regex as far as Python's own re goes, and the two classes of characters that re lacks."""

import re
import sys
import unicodedata
from functools import cache


@cache
def _characters(category: str) -> str:
    """All characters of "L" (letters) or "N" (numbers), as ranges inside [...]."""
    codes = [code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code))[0] == category]
    starts = [code for before, code in zip([-2, *codes], codes) if code != before + 1]
    ends = [code for code, after in zip(codes, [*codes[1:], -2]) if after != code + 1]
    return "".join(f"\\U{start:08x}-\\U{end:08x}" for start, end in zip(starts, ends))


def _spelled_out(pattern: str) -> str:
    r"""The pattern with \p{L} and \p{N} as re has to be told them, inside [...] and outside."""
    inside, pieces = False, []
    for piece in re.findall(r"\\p\{[LN]\}|\\.|.", pattern, re.S):
        if piece.startswith(r"\p"):
            ranges = _characters(piece[3])
            piece = ranges if inside else f"[{ranges}]"
        inside = piece == "[" or inside and piece != "]"
        pieces.append(piece)
    return "".join(pieces)


class regex:
    r"""Python's re, which can be asked for \p{L} and \p{N}."""

    Pattern, Match, VERBOSE, IGNORECASE, DOTALL, MULTILINE = re.Pattern, re.Match, re.X, re.I, re.S, re.M
    escape = staticmethod(re.escape)

    @staticmethod
    def compile(pattern: str, flags: int = 0) -> re.Pattern:
        return re.compile(_spelled_out(pattern), flags)

    @staticmethod
    def finditer(pattern: str, text: str, flags: int = 0):
        return regex.compile(pattern, flags).finditer(text)

    @staticmethod
    def findall(pattern: str, text: str, flags: int = 0) -> list:
        return regex.compile(pattern, flags).findall(text)

    @staticmethod
    def split(pattern: str, text: str, maxsplit: int = 0, flags: int = 0) -> list:
        return regex.compile(pattern, flags).split(text, maxsplit)

    @staticmethod
    def search(pattern: str, text: str, flags: int = 0):
        return regex.compile(pattern, flags).search(text)

    @staticmethod
    def match(pattern: str, text: str, flags: int = 0):
        return regex.compile(pattern, flags).match(text)

    @staticmethod
    def fullmatch(pattern: str, text: str, flags: int = 0):
        return regex.compile(pattern, flags).fullmatch(text)

    @staticmethod
    def sub(pattern: str, new, text: str, count: int = 0, flags: int = 0) -> str:
        return regex.compile(pattern, flags).sub(new, text, count)
