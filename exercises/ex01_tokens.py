"""Tokens: from text to numbers, by byte-pair encoding.

Text is cut into pre-tokens, each pre-token into its UTF-8 bytes, and the bytes are merged,
pair by pair, in the order in which the pairs were learned from the training text.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise

import regex

from given.long_words import LONG, merge_long

Pair = tuple[bytes, bytes]
Strings = list[str] | tuple[str, ...]

# GPT-2's pattern (Radford et al., 2019). Given: every character of a text is in exactly one match.
SPLIT = regex.compile(r"""
      '(?:s|t|re|ve|m|ll|d)    # the end of a contraction: don't, we'll
    | [ ]?\p{L}+               # letters, with the one space before them
    | [ ]?\p{N}+               # digits, likewise
    | [ ]?[^\s\p{L}\p{N}]+     # anything else that is no space, likewise
    | \s+(?!\S)                # spaces, but leave one to the word that follows
    | \s+
    """, regex.VERBOSE)


def special_pattern(special_tokens: Strings) -> regex.Pattern:
    """A pattern that finds special tokens in a text, the longest where several fit.

    With no special tokens it finds nothing. Raises ValueError, naming special_tokens, where one
    is empty.
    """
    raise NotImplementedError


def pretokenize(text: str, special_tokens: Strings = ()) -> Iterator[bytes]:
    """Cut text into pre-tokens, as UTF-8 bytes; joined, they are the text again.

    Special tokens come first: they are found from left to right and yielded whole. The text
    between two of them is cut by SPLIT, as if it stood alone.

    Raises ValueError, naming special_tokens, where one is empty.
    """
    raise NotImplementedError


def count_pairs(tokens: list[bytes]) -> Counter[Pair]:
    """How often each pair of neighbours stands in one pre-token, counted at every position.

    a, a, a holds the pair (a, a) twice, though merge_pair can join only one of the two. So count
    the trainers of Sennrich et al., of GPT-2 and of Hugging Face.
    """
    raise NotImplementedError


def merge_pair(tokens: list[bytes], pair: Pair) -> list[bytes]:
    """The tokens with every occurrence of the pair joined, from left to right, in a new list.

    a, a, a with the pair (a, a) becomes aa, a.
    """
    raise NotImplementedError


def train_bpe(
    text: str, vocab_size: int, special_tokens: Strings = ()
) -> tuple[dict[int, bytes], list[Pair]]:
    """Learn a vocabulary of at most vocab_size tokens by byte-pair encoding.

    Again and again the most frequent pair of neighbours, counted by count_pairs over all
    pre-tokens of the text, becomes a new token; of pairs with the same count, the greatest as a
    tuple of bytes. No pair spans two pre-tokens, and special tokens are not counted. It ends when
    the vocabulary is full or no pair is left, not even one that stands once.

    The counts are kept: a merge visits the words that hold its pair, and no others.

    Returns (vocab, merges): ids 0–255 are the bytes, then come the merges in order, then the
    special tokens in the order given (Sennrich et al., 2016, arXiv 1508.07909; on bytes: GPT-2).
    Raises ValueError, naming vocab_size, where it has no room for the bytes and special tokens;
    and, naming special_tokens, where one of them is empty or given twice.
    """
    raise NotImplementedError


class Tokenizer:
    """Text to ids and back, with the vocabulary and the merges that train_bpe returns.

    Keeps its arguments as the attributes vocab, merges and special_tokens.

    Raises ValueError where vocab lacks one of the 256 bytes (naming vocab), the token that one of
    the merges makes (naming merges), or one of special_tokens (naming special_tokens).
    """

    def __init__(self, vocab: dict[int, bytes], merges: list[Pair], special_tokens: Strings = ()):
        raise NotImplementedError

    def encode(self, text: str) -> list[int]:
        """The ids of a text. In each pre-token the pair that was learned first is merged first.

        That is: of all neighbours that are in merges, the pair of the lowest rank is merged
        wherever it stands, until no two neighbours are in merges. A special token is one id. The
        text is taken as it is, not normalized, so that decode gives it back.
        """
        raise NotImplementedError

    def _encode_word(self, word: bytes) -> list[int]:
        """The ids of one pre-token."""
        raise NotImplementedError

    def encode_iterable(self, texts: Iterable[str]) -> Iterator[int]:
        """The ids of the joined texts, one at a time, for a stream too long to hold.

        Gives the ids that encode("".join(texts)) would, wherever the stream is cut into texts, but
        reads on only when it needs to, and holds no more than what it cannot decide yet: what
        lies behind the last safe cut. A cut is safe between a character that is no space and a
        space (no pre-token spans that), unless it lies inside a special token or inside what
        may become one with the next text.
        """
        raise NotImplementedError

    def _safe_cut(self, text: str) -> int:
        """The last place where text may be cut, whatever comes after it; 0 where there is none."""
        raise NotImplementedError

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids: their bytes, joined, read as UTF-8; what is no UTF-8 becomes U+FFFD.

        Raises ValueError, naming ids, where one of them is not in the vocabulary.
        """
        raise NotImplementedError
