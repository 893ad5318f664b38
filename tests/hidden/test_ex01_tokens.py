"""Chapter 01 on odd texts, overlapping special tokens, every cut of a stream, and bad input."""

from grader import devices, points, raises

END = "<|end|>"


def shown(tokens) -> str:
    return "·".join(token.decode("utf-8", "backslashreplace") for token in tokens)


def numbered(merges) -> dict:
    return {f"merge {i}": f"{shown([left])!r} + {shown([right])!r}"
            for i, (left, right) in enumerate(merges, 1)}


def vocabulary(merges, special_tokens=()) -> dict:
    tokens = [bytes([b]) for b in range(256)] + [left + right for left, right in merges]
    return dict(enumerate(tokens + [token.encode() for token in special_tokens]))


def pairs(*words: str) -> list:
    return [tuple(part.encode() for part in word.split()) for word in words]


@devices("cpu")
def test_pretokenize_odd(impl, draw):
    """Empty texts, texts of spaces and texts of special tokens only are cut right."""
    return {"nothing": shown(impl.pretokenize("")), "spaces": shown(impl.pretokenize("   \t\n  ")),
            "odd spaces": shown(impl.pretokenize("a\u00a0b\u2003 c\x1c d\x85e")),
            "special": shown(impl.pretokenize(END * 2, [END])), "no special": shown(impl.pretokenize(END))}


@devices("cpu")
def test_special_between(impl, draw):
    """The text before a special token is cut as if it ended there: both its spaces are one piece."""
    return {text: shown(impl.pretokenize(text, [END])) for text in (f"a  {END}  b", f"don{END}'t", f"a  <b{END}")}


@devices("cpu")
def test_special_overlap(impl, draw):
    """Special tokens that overlap are found from left to right; a shorter one may come first."""
    tokens = ["ab", "bcd", "a", "abca"]
    return {text: shown(impl.pretokenize(text, tokens)) for text in ("abcd", "xbcdab", "abcabcd", "aabx")}


@points(2)
@devices("cpu")
def test_train_text(impl, draw):
    """Forty merges of a longer text, in many scripts, are the ones of the definition."""
    return numbered(impl.train_bpe(draw.text(1500), 256 + 40)[1])


@devices("cpu")
def test_train_ties_of_tokens(impl, draw):
    """A tie compares the pair's left tokens first, and not the two tokens joined."""
    return numbered(impl.train_bpe("ab\n\n" * 9 + "zy\n\n" * 8 + "zyzyx\n\n" * 3 + "zyy\n\n" * 3 + "éz é\n\n" * 3, 270)[1])


@devices("cpu")
def test_train_long_runs(impl, draw):
    """Runs of one letter, of odd and even length, are counted and merged without overlap."""
    return numbered(impl.train_bpe("\n\n".join(["a" * 7] * 2 + ["a" * 4] * 3 + ["xaaab"] * 3 + ["bc"] * 12), 256 + 8)[1])


@devices("cpu")
def test_train_special_apart(impl, draw):
    """The words on both sides of a special token stay apart, and special tokens may be prefixes."""
    vocab, merges = impl.train_bpe("ab<|a|>cd<|a|b|>ab<|a|> cd" * 3, 256 + 2 + 30, ["<|a|>", "<|a|b|>"])
    return {**numbered(merges), "last": shown([vocab[max(vocab) - 1], vocab[max(vocab)]])}


@devices("cpu")
def test_train_no_merges(impl, draw):
    """A vocabulary of the bytes and special tokens alone, and an empty text, give no merges."""
    return {"full": [len(part) for part in impl.train_bpe("abab", 257, [END])],
            "empty": [len(part) for part in impl.train_bpe("", 300)]}


@devices("cpu")
def test_train_bad_input(impl, draw):
    """A vocab_size without room, and special tokens that are empty or given twice, are refused."""
    return {"255": raises(ValueError, lambda: impl.train_bpe("ab", 255), names="vocab_size"),
            "no room": raises(ValueError, lambda: impl.train_bpe("ab", 256, [END]), names="vocab_size"),
            "empty": raises(ValueError, lambda: impl.train_bpe("ab", 300, [""]), names="special_tokens"),
            "twice": raises(ValueError, lambda: impl.train_bpe("ab", 300, [END, END]), names="special_tokens")}


@devices("cpu")
def test_tokenizer_bad_input(impl, draw):
    """A vocabulary that lacks a byte, a merged token or a special token is refused."""
    whole = vocabulary(pairs("a b"))
    byteless = {i: token for i, token in whole.items() if token != b"z"}
    return {"byte": raises(ValueError, lambda: impl.Tokenizer(byteless, []), names="vocab"),
            "merge": raises(ValueError, lambda: impl.Tokenizer(whole, pairs("a c")), names="merges"),
            "special": raises(ValueError, lambda: impl.Tokenizer(whole, [], [END]), names="special_tokens")}


@points(2)
@devices("cpu")
def test_encode_text(impl, draw):
    """A trained tokenizer encodes a text it was not trained on, ids and all."""
    tokenizer = impl.Tokenizer(*impl.train_bpe(draw.text(800), 320))
    return tokenizer.encode(draw.text(200))


@devices("cpu")
def test_encode_other_ids(impl, draw):
    """Ids come from vocab: bytes need not be 0 to 255, nor merges follow in order (GPT-2's do not)."""
    vocab = {1000 - i: token for i, token in vocabulary(pairs("a b", "ab c"), [END]).items()}
    tokenizer = impl.Tokenizer(vocab, pairs("a b", "ab c"), [END])
    ids = tokenizer.encode(f"abcab{END}é")
    return {"ids": ids, "text": tokenizer.decode(ids)}


@devices("cpu")
def test_encode_runs(impl, draw):
    """In a run the pair is merged from the left, and long runs in several rounds."""
    merges = pairs("a a", "aa aa", "aa a")
    tokenizer = impl.Tokenizer(vocabulary(merges), merges)
    return {"a" * n: shown(tokenizer.vocab[i] for i in tokenizer.encode("a" * n)) for n in range(2, 8)}


@devices("cpu")
def test_decode_any_iterable(impl, draw):
    """decode takes no ids, and ids from a generator."""
    tokenizer = impl.Tokenizer(vocabulary([]), [])
    return [tokenizer.decode([]), tokenizer.decode(b for b in "né".encode())]


@points(2)
@devices("cpu")
def test_stream_every_cut(impl, draw):
    """A text cut in two anywhere, and into single characters, gives the ids of the whole."""
    tokenizer = impl.Tokenizer(*impl.train_bpe("we'll see  the sea, don't we?\n\n the  sea", 290))
    text = "we'll  see,\n\n don't \x1c sea!\x1c e\u00a0 " + draw.text(20)
    ids = tokenizer.encode(text)
    wrong = [i for i in range(len(text) + 1)
             if list(tokenizer.encode_iterable([text[:i], text[i:]])) != ids]
    return {"two texts": wrong, "characters": list(tokenizer.encode_iterable(text)) == ids}


@points(2)
@devices("cpu")
def test_stream_every_cut_special(impl, draw):
    """So does a text with special tokens that hold spaces, overlap, and start one another."""
    special = ["<|", "<| a |>", "<| a |> b", "|> c", " <|x"]
    tokenizer = impl.Tokenizer(vocabulary(pairs("a b"), special), pairs("a b"), special)
    found = {}
    for text in ("ab <| a |> b |> c", "x <|x ab<| a |> c <| a", "ab ab <| a |> ab ab"):
        ids = tokenizer.encode(text)
        found[text] = {"ids": ids, "wrong when cut at": [
            i for i in range(len(text) + 1) if list(tokenizer.encode_iterable([text[:i], text[i:]])) != ids]}
    return found


@devices("cpu")
def test_stream_empty(impl, draw):
    """No texts, and empty texts between others, change nothing."""
    tokenizer = impl.Tokenizer(vocabulary(pairs("a b")), pairs("a b"))
    return [list(tokenizer.encode_iterable([])), list(tokenizer.encode_iterable(["", "a", "", "b ", ""]))]


@devices("cpu")
def test_stream_endless(impl, draw):
    """An endless stream can be encoded, and little of it is read ahead, all the way along."""
    tokenizer = impl.Tokenizer(vocabulary([], [END]), [], [END])
    read = 0

    def endless():
        nonlocal read
        while read < 5000:
            read += 1
            yield f"and so{END} on"
    ids, ahead = tokenizer.encode_iterable(endless()), 0
    for given in range(20_000):
        next(ids)
        ahead = max(ahead, read * 10 - given)  # a text is ten ids
    return {"read at most 10 texts ahead": ahead < 100, "not all": read < 5000}
