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
    # BEGIN SOLUTION
    if "" in special_tokens:
        raise ValueError(f"special_tokens must not be empty strings, got {special_tokens!r}")
    longest_first = sorted(special_tokens, key=len, reverse=True)
    return regex.compile("|".join(map(regex.escape, longest_first)) or "(?!)")
    # END SOLUTION


def pretokenize(text: str, special_tokens: Strings = ()) -> Iterator[bytes]:
    """Cut text into pre-tokens, as UTF-8 bytes; joined, they are the text again.

    Special tokens come first: they are found from left to right and yielded whole. The text
    between two of them is cut by SPLIT, as if it stood alone.

    Raises ValueError, naming special_tokens, where one is empty.
    """
    # BEGIN SOLUTION
    start = 0
    for special in special_pattern(special_tokens).finditer(text):
        yield from (match[0].encode() for match in SPLIT.finditer(text[start:special.start()]))
        yield special[0].encode()
        start = special.end()
    yield from (match[0].encode() for match in SPLIT.finditer(text[start:]))
    # END SOLUTION


def count_pairs(tokens: list[bytes]) -> Counter[Pair]:
    """How often each pair of neighbours stands in one pre-token, counted at every position.

    a, a, a holds the pair (a, a) twice, though merge_pair can join only one of the two. So count
    the trainers of Sennrich et al., of GPT-2 and of Hugging Face.
    """
    # BEGIN SOLUTION
    return Counter(pairwise(tokens))
    # END SOLUTION


def merge_pair(tokens: list[bytes], pair: Pair) -> list[bytes]:
    """The tokens with every occurrence of the pair joined, from left to right, in a new list.

    a, a, a with the pair (a, a) becomes aa, a.
    """
    # BEGIN SOLUTION
    merged, i = [], 0
    while i < len(tokens):
        if tokens[i] == pair[0] and i + 1 < len(tokens) and tokens[i + 1] == pair[1]:
            merged.append(pair[0] + pair[1])
            i += 2
        else:
            merged.append(tokens[i])
            i += 1
    return merged
    # END SOLUTION


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
    # BEGIN SOLUTION
    room = vocab_size - 256 - len(special_tokens)
    if room < 0:
        raise ValueError(f"vocab_size must be at least {vocab_size - room}, got {vocab_size}")
    if len(set(special_tokens)) < len(special_tokens):
        raise ValueError(f"special_tokens must differ, got {special_tokens!r}")
    special = [token.encode() for token in special_tokens]
    frequency = Counter(pretokenize(text, special_tokens))
    words = {word: [bytes([b]) for b in word] for word in frequency if word not in special}

    counts, where = Counter(), defaultdict(set)  # of each pair: how many, and in which words
    for word, tokens in words.items():
        for pair, n in count_pairs(tokens).items():
            counts[pair] += n * frequency[word]
            where[pair].add(word)

    merges = []
    while counts and len(merges) < room:
        most = max(counts.values())
        best = max(pair for pair, count in counts.items() if count == most)
        merges.append(best)
        for word in list(where[best]):  # only these words change: count them out, and in again
            for pair, n in count_pairs(words[word]).items():
                counts[pair] -= n * frequency[word]
                where[pair].discard(word)
                if not counts[pair]:
                    del counts[pair]
            words[word] = merge_pair(words[word], best)
            for pair, n in count_pairs(words[word]).items():
                counts[pair] += n * frequency[word]
                where[pair].add(word)

    tokens = [bytes([b]) for b in range(256)] + [left + right for left, right in merges] + special
    return dict(enumerate(tokens)), merges
    # END SOLUTION


class Tokenizer:
    """Text to ids and back, with the vocabulary and the merges that train_bpe returns.

    Keeps its arguments as the attributes vocab, merges and special_tokens.

    Raises ValueError where vocab lacks one of the 256 bytes (naming vocab), the token that one of
    the merges makes (naming merges), or one of special_tokens (naming special_tokens).
    """

    def __init__(self, vocab: dict[int, bytes], merges: list[Pair], special_tokens: Strings = ()):
        # BEGIN SOLUTION
        known = set(vocab.values())
        if missing := [b for b in range(256) if bytes([b]) not in known]:
            raise ValueError(f"vocab must hold all 256 bytes, but lacks {missing}")
        if missing := [pair for pair in merges if pair[0] + pair[1] not in known]:
            raise ValueError(f"merges must make tokens of the vocabulary, got {missing}")
        if missing := [token for token in special_tokens if token.encode() not in known]:
            raise ValueError(f"special_tokens must be in the vocabulary, got {missing}")
        self.vocab, self.merges, self.special_tokens = vocab, merges, special_tokens
        self._ids = {token: id for id, token in vocab.items()}
        self._rank = {pair: rank for rank, pair in enumerate(merges)}
        self._special = {token.encode() for token in special_tokens}
        self._seen: dict[bytes, list[int]] = {}  # most words come again
        # END SOLUTION

    def encode(self, text: str) -> list[int]:
        """The ids of a text. In each pre-token the pair that was learned first is merged first.

        That is: of all neighbours that are in merges, the pair of the lowest rank is merged
        wherever it stands, until no two neighbours are in merges. A special token is one id. The
        text is taken as it is, not normalized, so that decode gives it back.
        """
        # BEGIN SOLUTION
        ids = []
        for word in pretokenize(text, self.special_tokens):
            found = self._seen.get(word)
            if found is None:
                found = self._encode_word(word)
                if len(word) <= LONG and len(self._seen) < 65_536:
                    self._seen[word] = found
            ids += found
        return ids
        # END SOLUTION

    def _encode_word(self, word: bytes) -> list[int]:
        """The ids of one pre-token."""
        # BEGIN SOLUTION
        if word in self._special:
            return [self._ids[word]]
        tokens = [bytes([b]) for b in word]
        if len(tokens) > LONG:  # the loop below takes n² steps
            tokens = merge_long(tokens, self._rank)
        while known := [pair for pair in pairwise(tokens) if pair in self._rank]:
            tokens = merge_pair(tokens, min(known, key=self._rank.get))
        return [self._ids[token] for token in tokens]
        # END SOLUTION

    def encode_iterable(self, texts: Iterable[str]) -> Iterator[int]:
        """The ids of the joined texts, one at a time, for a stream too long to hold.

        Gives the ids that encode("".join(texts)) would, wherever the stream is cut into texts, but
        reads on only when it needs to, and holds no more than what it cannot decide yet: what
        lies behind the last safe cut. A cut is safe between a character that is no space and a
        space (no pre-token spans that), unless it lies inside a special token or inside what
        may become one with the next text.
        """
        # BEGIN SOLUTION
        held, enough = "", 0
        for text in texts:
            held += text
            if len(held) >= enough:
                cut = self._safe_cut(held)
                yield from self.encode(held[:cut])
                held = held[cut:]
                enough = 2 * len(held)  # else a long word is searched again for each of its parts
        yield from self.encode(held)
        # END SOLUTION

    def _safe_cut(self, text: str) -> int:
        """The last place where text may be cut, whatever comes after it; 0 where there is none."""
        # BEGIN SOLUTION
        longest = max(map(len, self.special_tokens), default=0)
        undecided = next(
            (i for i in range(max(0, len(text) - longest + 1), len(text))
             if any(token.startswith(text[i:]) for token in self.special_tokens)),
            len(text),
        )
        special = special_pattern(self.special_tokens).pattern
        found = regex.finditer(special + r"|(?<=\S)(?=\s)", text)  # a cut is a match of no length
        cuts = (match.start() for match in found if not match[0])
        return max((cut for cut in cuts if cut <= undecided), default=0)
        # END SOLUTION

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids: their bytes, joined, read as UTF-8; what is no UTF-8 becomes U+FFFD.

        Raises ValueError, naming ids, where one of them is not in the vocabulary.
        """
        # BEGIN SOLUTION
        ids = list(ids)
        if unknown := [id for id in ids if id not in self.vocab]:
            raise ValueError(f"ids must be in the vocabulary, got {unknown}")
        return b"".join(self.vocab[id] for id in ids).decode("utf-8", errors="replace")
        # END SOLUTION
