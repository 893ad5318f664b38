"""What lesson 01 asks of pre-tokens, the training of a vocabulary, and encoding with it."""

import sys

from grader import devices, points, raises

FORBIDDEN = {}

END = "<|end|>"


def shown(tokens) -> str:
    """Tokens as one line that a reader can compare: the· cat."""
    tokens = [token.decode("utf-8", "backslashreplace") for token in tokens]
    return "·".join(tokens) if any(tokens) else f"{len(tokens)} tokens of nothing"


def numbered(merges) -> dict:
    return {f"merge {i}": f"{shown([left])!r} + {shown([right])!r}"
            for i, (left, right) in enumerate(merges, 1)}


def letters(draw, n: int, but: str = "") -> str:
    """n different letters, none of them one of `but`."""
    found = dict.fromkeys(chr(ord("a") + int(i)) for i in draw.ints(26, 500))
    return "".join(letter for letter in found if letter not in but)[:n]


def exchanged(draw, text: str, but: str = "") -> str:
    """The text with other letters in place of its own, but for those of `but`."""
    own = "".join(c for c in dict.fromkeys(text) if c.isascii() and c.islower() and c not in but)
    return text.translate(str.maketrans(own, letters(draw, len(own), but)))


def lines_run(impl, call) -> int:
    """How many lines of the chapter's file run while call does."""
    lines, before = 0, sys.gettrace()

    def line(frame, event, argument):
        nonlocal lines
        lines += event == "line"
        return line
    sys.settrace(lambda frame, *_: line if frame.f_code.co_filename == impl.__file__ else None)
    try:
        call()
    finally:
        sys.settrace(before)
    return lines


def vocabulary(merges, special_tokens=()) -> dict:
    tokens = [bytes([b]) for b in range(256)] + [left + right for left, right in merges]
    return dict(enumerate(tokens + [token.encode() for token in special_tokens]))


def some_merges(draw) -> list:
    """Twelve merges of two letters and of what earlier merges made."""
    tokens, merges = [b"a", b"b"], []
    while len(merges) < 12:
        pair = tuple(tokens[int(i)] for i in draw.ints(len(tokens), 2))
        if b"".join(pair) not in tokens:
            tokens.append(b"".join(pair))
            merges.append(pair)
    return merges


def pairs(*words: str) -> list:
    """Merges written as "t h", "th e"; a _ is a space."""
    return [tuple(part.replace("_", " ").encode() for part in word.split(" ")) for word in words]


@devices("cpu")
def test_pretokenize(impl, draw):
    """pretokenize cuts a text by SPLIT and yields each match as UTF-8 bytes, in order.

    SPLIT.finditer goes through the matches; str.encode turns one into bytes. A word takes the
    one space before it along; further spaces stay apart.
    """
    texts = ["don't stop, we'll see", "two  spaces,\n\nthree   spaces ", "naïve 東京 🙂 3.14",
             draw.text(30), ""]
    return {repr(text): shown(impl.pretokenize(text)) for text in texts}


@devices("cpu")
def test_pretokenize_special(impl, draw):
    """A special token is a pre-token of its own, even where a space or a sign stands before it.

    SPLIT takes a space and any signs after it in one match, " <|" for one. So find the special
    tokens first, and cut only the text between them.
    """
    a, b, c = (letters(draw, n) for n in (3, 1, 4))
    cases = {f"{a}{END}{b}": [END], f"{b}, {END}{a}": [END], f"{c}!{END}{END}  {a}": [END],
             f"{a} {END}{b}<{c}>{END}": [f"<{c}>", END], f"{a}{b} {a}{b}{b}!{b}": [b],
             f"{a}!\n \n\n{c}": ["\n"], f"{c}{'=' * 70}{a}": ["=" * 70]}
    return {text: shown(impl.pretokenize(text, special)) for text, special in cases.items()}


@devices("cpu")
def test_pretokenize_special_as_written(impl, draw):
    """A special token is found as it is written; | and . in it have no meaning of their own.

    regex.escape takes the meaning from the signs that have one in a pattern.
    """
    word, letter = letters(draw, 3), letters(draw, 1).upper()
    return {END: shown(impl.pretokenize(f"{word} end {END} a>b", [END])),
            f"[{letter}.]": shown(impl.pretokenize(f"{letter} {letter}d [{letter}.] x", [f"[{letter}.]"]))}


@devices("cpu")
def test_pretokenize_special_longest(impl, draw):
    """Where several special tokens fit at one place, the longest is found.

    A pattern of alternatives takes the first one that fits, so sort them before joining.
    """
    a, b, x = letters(draw, 3)
    tokens = [f"<|{a}|>", f"<|{a}|><|{b}|>", f"<|{b}|>"]
    return shown(impl.pretokenize(f"{x}<|{a}|><|{b}|>y<|{b}|><|{a}|>z", tokens))


@devices("cpu")
def test_pairs_counted(impl, draw):
    """count_pairs counts the neighbours of one pre-token, at every position.

    a, a, a holds the pair (a, a) twice: the first a with the second, and the second with the third.
    """
    found = {}
    for word in exchanged(draw, "banana x aaa aaaaa abaaab").split():
        counts = impl.count_pairs([bytes([b]) for b in word.encode()])
        found[word] = ", ".join(f"{shown(pair)} {n}" for pair, n in sorted(counts.items()))
    return found


@devices("cpu")
def test_pairs_merged(impl, draw):
    """merge_pair joins every occurrence of the pair, from left to right, and nothing else.

    After a merge go on behind it: a, a, a becomes aa, a. Compare both tokens of the pair: a, bc
    and ab, c are different pairs.
    """
    found = {}
    cases = exchanged(draw, "a a a a a/a a, x a b a b/a b, a bc ab c/a bc, a b/b a, a b a/b a")
    for word, pair in (case.split("/") for case in cases.split(", ")):
        tokens = [token.encode() for token in word.split()]
        found[f"{pair} in {word}"] = shown(impl.merge_pair(tokens, *pairs(pair)))
    return found


@devices("cpu")
def test_pairs_merged_in_a_new_list(impl, draw):
    """merge_pair returns a new list and leaves its argument as it was, though it may hold no such pair.

    The caller may still need the old tokens, to take their pairs out of the counts.
    """
    a, b, c = (letter.encode() for letter in letters(draw, 3))
    tokens = [a, b, c]
    return {"merged": shown(impl.merge_pair(tokens, (a, b))), "argument": shown(tokens),
            "a new list for another pair": impl.merge_pair(tokens, (b, a)) is not tokens}


@points(2)
@devices("cpu")
def test_train_most_frequent(impl, draw):
    """train_bpe merges the most frequent pair of the whole text first, then counts again.

    A word that stands five times in the text counts five times. A merge makes new pairs, and
    takes from the counts of the pairs that its two tokens were in.
    """
    a, b, c, d, e, f = letters(draw, 6)
    words = ([a + b + c] * 10 + [b + c] * 4 + [d + b + c + f] * 6 + [b + c + f] * 2 + [e + f] * 12
             + [d + e + f] * 5)
    return numbered(impl.train_bpe("\n\n".join(words), 256 + 6)[1])


@points(2)
@devices("cpu")
def test_train_ties(impl, draw):
    """Of pairs with the same count, train_bpe merges the lexicographically greater one.

    Tuples of bytes compare as they should: by the left token, then by the right one. max does
    the rest, over the pairs that share the highest count.
    """
    a, b, c, d = sorted(letters(draw, 4))
    words = [a + d, b + c, b + d, a + c]
    longer = [a + b + c, a + d, d + c] * 3 + [a + b] * 2
    return {"of bytes": numbered(impl.train_bpe("\n\n".join(words), 256 + 4)[1]),
            "of tokens": numbered(impl.train_bpe("\n\n".join(longer), 256 + 4)[1])}


@devices("cpu")
def test_train_counts_kept(impl, draw):
    """train_bpe visits, for each merge, the words that hold its pair, and no others.

    Keep, for each pair, the words it is in. A merge then takes the pairs of these words out of the
    counts, and puts the pairs of the new ones in. The answer says whether 10 merges run many more
    lines of your file in a text that has 400 further words, which none of the merges is in.
    """
    own = letters(draw, 21)
    touched = [own[:8], own[8:16]] * 150                # 150 of every pair
    others = ["".join(own[16 + int(i)] for i in row) for row in draw.ints(5, 400, 6)]   # about 80 of each

    def lines_of_merges(words):
        few, many = (lines_run(impl, lambda: impl.train_bpe("\n\n".join(words), 256 + n)) for n in (1, 11))
        return many - few
    return {"merges": numbered(impl.train_bpe("\n\n".join(touched + others), 256 + 11)[1]),
            "leaves other words alone": lines_of_merges(touched + others) - lines_of_merges(touched) < 2000}


@devices("cpu")
def test_train_runs(impl, draw):
    """In a run such as aaa, train_bpe counts the pair (a, a) at every position, so twice.

    Only one of the two can be merged, but both are counted: this is how BPE was published, and how
    other trainers count.
    """
    a, b, c = sorted(letters(draw, 3))
    return numbered(impl.train_bpe("\n\n".join([a * 3] * 4 + [b + c] * 6), 257)[1])


@devices("cpu")
def test_train_within_words(impl, draw):
    """No merge joins the end of one pre-token with the start of the next.

    Count pairs in each pre-token of pretokenize(text), not in the text as a whole.
    """
    a, b, c = letters(draw, 3)
    return numbered(impl.train_bpe(f"{a} {b} " * 5 + f"\n\n{c}{a}" * 3, 256 + 4)[1])


@devices("cpu")
def test_train_special_left_out(impl, draw):
    """Special tokens in the text are not counted: no merge is learned from them.

    pretokenize yields them whole, so that they are easy to leave out.
    """
    a, b, c, d = letters(draw, 4)
    text = f"{a}{b}{END}" * 3 + f"{c}{b}{END}" * 2 + f"{d}{a}{END}"
    return numbered(impl.train_bpe(text, 256 + 1 + 3, [END])[1])


@points(2)
@devices("cpu")
def test_train_vocab(impl, draw):
    """vocab has the 256 bytes first, then the merges in order, then the special tokens.

    vocab_size counts them all. Ids start at 0 and leave no gap.
    """
    text = exchanged(draw, "the theme then the hem")
    special = ["<|b|>", "<|a|>"]
    vocab, merges = impl.train_bpe(text, 256 + 3 + 2, special)
    return {"special_tokens afterwards": special, "size": len(vocab), "merges": len(merges),
            "bytes first": [vocab.get(i) for i in (0, 97, 255)],
            "from 256 on": shown(vocab.get(i, b"(nothing)") for i in range(256, 261))}


@devices("cpu")
def test_train_runs_out(impl, draw):
    """When no pair is left, train_bpe stops with a smaller vocabulary, and leaves no gap in it.

    Once every word is one token there is nothing more to count. A pair whose count has fallen to 0
    is left no more, and a pair that stands once still is. The special tokens come right after the
    last merge.
    """
    vocab, merges = impl.train_bpe(exchanged(draw, "to\n\nbe\n\nto"), 300, [END])
    return {**numbered(merges[:5]), "merges": len(merges), "size": len(vocab), "last id": max(vocab),
            "last tokens": [vocab[max(vocab) - 1], vocab[max(vocab)]]}


@points(2)
@devices("cpu")
def test_encode_rank(impl, draw):
    """encode merges the pair that was learned first, wherever it stands in the word.

    Look at all neighbours, take the pair that comes first in merges, join it, look again.
    Neither the leftmost pair nor the longest token has the right of way, nor the smallest id: ids need not
    stand in the order of merges.
    """
    text = exchanged(draw, "b c,bc d,a bcd,a b,x y,xy z,y z/abc,abcd,ababc,xyzyz,xyxyz")
    merges, words = (part.split(",") for part in text.split("/"))
    tokenizer = impl.Tokenizer(vocabulary(pairs(*merges)), pairs(*merges))
    found = {word: shown(tokenizer.vocab[i] for i in tokenizer.encode(word)) for word in words}
    for n in (12, 30, 60, 70, 200):     # two letters alone, so that many pairs wait at once
        merges, word = some_merges(draw), "".join("ab"[int(i)] for i in draw.ints(2, n))
        vocab = {1000 - i: token for i, token in vocabulary(merges).items()}
        tokenizer = impl.Tokenizer(vocab, merges)
        found[word] = shown(vocab[i] for i in tokenizer.encode(word))
    return found


@devices("cpu")
def test_encode_again(impl, draw):
    """encode gives the same ids again, whatever became of the list that it gave before.

    A list that is kept for the next time is not to be given away: the caller may change it. And the
    Tokenizer keeps its arguments as they are, under their names.
    """
    merges = some_merges(draw)
    vocab, special = vocabulary(merges, [END, "<|x|>"]), [END, "<|x|>"]
    tokenizer = impl.Tokenizer(vocab, merges, special)
    found, word = {}, "".join("ab"[int(i)] for i in draw.ints(2, 9))
    for time in ("first", "second"):
        for text in (word, END, f"{word} {word}{END}"):
            ids = tokenizer.encode(text)
            found[f"{text}, the {time} time"] = shown(vocab[i] for i in ids)
            ids.clear()
    return {**found, **numbered(tokenizer.merges), "special_tokens": list(tokenizer.special_tokens),
            "size of vocab": len(tokenizer.vocab)}


@devices("cpu")
def test_encode_special(impl, draw):
    """encode gives a special token its one id, and never merges it with what is around it.

    The id is the one that vocab has for the token's bytes.
    """
    a, b = letters(draw, 2, but="end")
    merges = pairs(f"{a} {b}", f"> {a}", "| e", "< |", "= =")
    special = [END, "=" * 70, f"{b}{b}"]
    tokenizer = impl.Tokenizer(vocabulary(merges, special), merges, special)
    return {text: shown(tokenizer.vocab[i] for i in tokenizer.encode(text))
            for text in (f"{a}{b}{END}{a}{b}", f"<|en {END}", f"{'=' * 71}", f"{a}{b}{b} {b}{b}")}


@devices("cpu")
def test_decode_round_trip(impl, draw):
    """Any text comes back from decode(encode(text)), scripts and emoji never seen before too.

    Every byte is in the vocabulary, so nothing is unknown. And no character is written otherwise:
    an é may be one character or two, and comes back as it was.
    """
    merges = pairs("o r", "w or", "o m", "_ wor", "s om")
    tokenizer = impl.Tokenizer(vocabulary(merges), merges)
    text = draw.text(60)
    ids = tokenizer.encode(text)
    return {"text": tokenizer.decode(ids), "ids afterwards": len(ids),
            "a byte order mark, line ends": ascii(tokenizer.decode(tokenizer.encode(f"\ufeff{text}\r\n\r\ufeff"))),
            "e\u0301 \u00e9 \u212b": ascii(tokenizer.decode(tokenizer.encode("e\u0301 \u00e9 \u212b"))),
            "fewer ids than bytes": len(tokenizer.encode("some words")) < len("some words")}


@devices("cpu")
def test_decode_characters(impl, draw):
    """decode joins the bytes of all ids before it reads them as UTF-8.

    é, 東 and 🙂 have two to four bytes. Where each byte is a token, no token alone is text.
    """
    tokenizer = impl.Tokenizer(vocabulary([]), [])
    texts = [f"{letters(draw, 3)}{'éüñß'[int(draw.ints(4, 1))]}", "東京都"[int(draw.ints(2, 1)):], "🙂"]
    return {text: tokenizer.decode(list(text.encode())) for text in texts}


@devices("cpu")
def test_decode_invalid(impl, draw):
    """Bytes that are no UTF-8 decode to the replacement character U+FFFD.

    A model may stop in the middle of a character. bytes.decode has an argument for it.
    """
    tokenizer = impl.Tokenizer(vocabulary([]), [])
    return {"cut off": tokenizer.decode([*letters(draw, 2).encode(), *"🙂".encode()[:1 + int(draw.ints(3, 1))]]),
            "stray": tokenizer.decode([0x80 + int(draw.ints(64, 1)), 33])}


@devices("cpu")
def test_decode_unknown(impl, draw):
    """An id that is not in the vocabulary raises a ValueError that names ids.

    Look for unknown ids before joining anything.
    """
    tokenizer = impl.Tokenizer(vocabulary([]), [])
    known, far = (int(i) for i in draw.ints(128, 2))
    found = {}
    for ids in ([known, 256 + far], [-1 - far], [256, known]):
        given = []
        found[str(ids)] = raises(ValueError, lambda: given.append(tokenizer.decode(ids)), names="ids")
        found[f"{ids}, given"] = given
    return found


@points(2)
@devices("cpu")
def test_stream_words(impl, draw):
    """encode_iterable gives the ids of the joined texts, though a word is cut in two.

    The end of one text may be the start of a word that goes on in the next. Keep it until
    you know: a cut is safe only between a character that is no space and a space. Behind the end of a line
    it is not: SPLIT takes spaces and line ends that follow one another in one match.
    """
    merges = pairs("h e", "t he", "_ the", "' t", "_ _", "_ s", "e m", "em e", "s e", "_ o",
                   "_ _s", "_o f") + [(b"\n", b"\n"), (b"\n", b" "), (b" ", b"\n"), (b"\r", b"\n")]
    tokenizer = impl.Tokenizer(vocabulary(merges), merges)
    streams = [["th", "e th", "eme", " o", "f  ", " the day, do", "n", "'", "t  ", "see", "\n", "\n you",
                "\n\nsee \n", "the"]]
    pieces = ["the", " the", "  ", " ", "\n", "\r\n", "\n\n", "don't", "see", "!"]
    for _ in range(3):      # cut anywhere: between two spaces, behind the end of a line
        text = "".join(pieces[int(i)] for i in draw.ints(10, 20))
        cuts = sorted({0, len(text), *map(int, draw.ints(len(text), 12))})
        streams.append([text[start:end] for start, end in zip(cuts, cuts[1:])])
    return {" / ".join(texts): shown(tokenizer.vocab[i] for i in tokenizer.encode_iterable(texts))
            for texts in streams}


@devices("cpu")
def test_stream_odd_spaces(impl, draw):
    """What a space is, SPLIT says: encode_iterable cuts only where its \\s matches.

    str.isspace takes four control characters, U+001C to U+001F, for spaces. To SPLIT they are
    signs, and a sign before them belongs to the same pre-token.
    """
    a, odd = letters(draw, 1), chr(0x1C + int(draw.ints(4, 1)))
    merges = [(b"!", odd.encode()), (b" ", a.encode())]
    tokenizer = impl.Tokenizer(vocabulary(merges), merges)
    streams = [[f"ab!{odd}", f" {a}"], [f"ab!{odd}\u00a0", f" {a}\u2003", f" {a}"]]
    return [shown(tokenizer.vocab[i] for i in tokenizer.encode_iterable(texts)) for texts in streams]


@points(2)
@devices("cpu")
def test_stream_special(impl, draw):
    """encode_iterable finds a special token that is cut in two, and one with spaces in it.

    What ends a text may be the start of a special token, or of a longer one that starts with
    another. Do not cut inside one, nor inside what may become one.
    """
    special = [END, "<| new line |>", "<|end|> <|x|>"]
    merges = pairs("a b", "| e", "< |", "| _")
    tokenizer = impl.Tokenizer(vocabulary(merges, special), merges, special)
    word = letters(draw, 3)
    streams = [["ab <|", "end", f"|> {word}"], ["ab <| new", f" line |>{word}"], [f"{word}<|end|>", " <|x|>b"],
               ["ab <", f" {word}"], ["ab <| new line |>", f" {word}"]]
    return {" / ".join(texts): shown(tokenizer.vocab[i] for i in tokenizer.encode_iterable(texts))
            for texts in streams}


@devices("cpu")
def test_stream_lazy(impl, draw):
    """encode_iterable gives ids while it reads: the first ones after a few texts, not after all.

    Make it a generator: for each text, yield what can be decided, and keep the rest, in a variable of its
    own: a stream that nobody reads to its end leaves nothing behind for the next.
    """
    tokenizer = impl.Tokenizer(vocabulary([], [END]), [], [END])
    word, found = letters(draw, 4), {}
    for text in (f"{word} after ", f"{word}\n", f"so{END} {word}"):
        read = 0

        def stream():
            nonlocal read
            for _ in range(1000):
                read += 1
                yield text
        ids = tokenizer.encode_iterable(stream())
        first = [next(ids) for _ in range(50)]
        found[repr(text)] = {"first": shown(tokenizer.vocab[i] for i in first),
                             "read fewer than 100 texts": read < 100}
    return found
