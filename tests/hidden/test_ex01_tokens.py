"""Lesson 01 on odd texts, overlapping special tokens, every cut of a stream, and bad input."""

import itertools

from grader import devices, points, raises

END = "<|end|>"


def shown(tokens) -> str:
    tokens = [token.decode("utf-8", "backslashreplace") for token in tokens]
    return "·".join(tokens) if any(tokens) else f"{len(tokens)} tokens of nothing"


def letters(draw, n: int, but: str = "") -> str:
    """n different letters, none of them one of `but`, in their order."""
    found = dict.fromkeys(chr(ord("a") + int(i)) for i in draw.ints(26, 500))
    return "".join(sorted("".join(letter for letter in found if letter not in but)[:n]))


def numbered(merges) -> dict:
    return {f"merge {i}": f"{shown([left])!r} + {shown([right])!r}"
            for i, (left, right) in enumerate(merges, 1)}


def vocabulary(merges, special_tokens=()) -> dict:
    tokens = [bytes([b]) for b in range(256)] + [left + right for left, right in merges]
    return dict(enumerate(tokens + [token.encode() for token in special_tokens]))


def pairs(*words: str) -> list:
    return [tuple(part.replace("_", " ").encode() for part in word.split(" ")) for word in words]


@devices("cpu")
def test_pretokenize_odd(impl, draw):
    """Empty texts, texts of spaces and texts of special tokens only are cut right."""
    spaces = "".join(" \t\n\r\u00a0\u2003\x1c\x1f\x85"[int(i)] for i in draw.ints(9, 12))
    return {"nothing": shown(impl.pretokenize("")),
            "spaces": shown(impl.pretokenize("   \t\n  ")),
            "odd spaces": shown(impl.pretokenize("a\u00a0b\u2003 c\x1c d\x85e")),
            "odd spaces, drawn": ascii(shown(impl.pretokenize(f"{spaces[:6]}a{spaces[6:]}!{spaces}"))),
            "special": shown(impl.pretokenize(END * 2, [END])),
            "no special": shown(impl.pretokenize(END))}


@devices("cpu")
def test_pretokenize_special_between(impl, draw):
    """The text before a special token is cut as if it ended there: two spaces stay together."""
    a, b = letters(draw, 2)
    texts = [f"{a}  {END}  {b}", f"{a}on{END}'t", f"{a}  <{b}{END}"]
    return {text: shown(impl.pretokenize(text, [END])) for text in texts}


@devices("cpu")
def test_pretokenize_special_overlap(impl, draw):
    """Special tokens that overlap are found from left to right; a shorter one may come first."""
    a, b, c, d, x = letters(draw, 5)
    tokens = [a + b, b + c + d, a, a + b + c + a]
    texts = [a + b + c + d, x + b + c + d + a + b, a + b + c + a + b + c + d, a + a + b + x]
    return {text: shown(impl.pretokenize(text, tokens)) for text in texts}


@points(2)
@devices("cpu")
def test_train_text(impl, draw):
    """Forty merges of a longer text, in many scripts, are the ones of the definition."""
    return numbered(impl.train_bpe(draw.text(1500), 256 + 40)[1])


@devices("cpu")
def test_train_ties_of_tokens(impl, draw):
    """A tie compares the pair's left tokens first, and not the two tokens joined."""
    a, b, c, z = letters(draw, 4)
    words = [a + b, a + b + c, a + b + z, a + z, f"é{z} é"]
    text = "".join(f"{word}\n\n" * 3 for word in words)
    return numbered(impl.train_bpe(text, 256 + 8)[1])


@devices("cpu")
def test_train_long_runs(impl, draw):
    """Runs of one letter, of odd and even length, are counted at every position, merged from the left."""
    a, b, c, x = letters(draw, 4)
    words = [a * 7] * 2 + [a * 4] * 3 + [f"{x}{a}{a}{a}{b}"] * 3 + [b + c] * 12
    return numbered(impl.train_bpe("\n\n".join(words), 256 + 7)[1])


@devices("cpu")
def test_train_special_apart(impl, draw):
    """No merge spans a special token, and several special tokens keep their order in vocab."""
    a, b, c, d = letters(draw, 4)
    text = f"{a}{b}<|b|>{a}{b}<|a|>{c}{d}<|b|>{c}{d}<|a|> {a}{b}<|b|>" * 3
    vocab, merges = impl.train_bpe(text, 256 + 2 + 3, ["<|b|>", "<|a|>"])
    return {**numbered(merges), "last": [vocab[max(vocab) - 1], vocab[max(vocab)]]}


@devices("cpu")
def test_train_no_merges(impl, draw):
    """A vocabulary of the bytes and special tokens alone, and an empty text, give no merges."""
    special = [f"<|{i}|>" for i in range(1 + int(draw.ints(9, 1)))]
    return {"full": [len(part) for part in impl.train_bpe("abab", 256 + len(special), special)],
            "empty": [len(part) for part in impl.train_bpe("", 300, special)]}


@devices("cpu")
def test_pretokenize_empty_special(impl, draw):
    """An empty special token would be found everywhere: it is refused."""
    return raises(ValueError, lambda: next(impl.pretokenize("ab", [END, ""])),
                  names="special_tokens")


@devices("cpu")
def test_train_bad_input(impl, draw):
    """A vocab_size without room, and special tokens that are empty or given twice, are refused."""
    def refused(name, *arguments):
        return raises(ValueError, lambda: impl.train_bpe("ab", *arguments), names=name)
    size, word = int(draw.ints(256, 1)), letters(draw, 4)
    return {str(size): refused("vocab_size", size), "255": refused("vocab_size", 255),
            "no room": refused("vocab_size", 256, [END]), "empty": refused("special_tokens", 300, [""]),
            f"{word} twice": refused("special_tokens", 300, [word, END, word])}


@devices("cpu")
def test_tokenizer_bad_input(impl, draw):
    """A vocabulary that lacks a byte, a merged token or a special token is refused."""
    whole = vocabulary(pairs("a b"))

    def refused(name, *arguments):
        return raises(ValueError, lambda: impl.Tokenizer(*arguments), names=name)
    def without(b):
        return {i: token for i, token in whole.items() if token != bytes([b])}
    word = letters(draw, 4)
    return {**{f"byte {b}": refused("vocab", without(b), []) for b in (0, int(draw.ints(256, 1)), 255)},
            f"merge {word}": refused("merges", whole, pairs("a b", f"{word[:2]} {word[2:]}")),
            f"special {word}": refused("special_tokens", whole, [], [word])}


@points(2)
@devices("cpu")
def test_encode_text(impl, draw):
    """A longer text of many scripts gets the ids that its merges say."""
    merges = pairs("e e", "t ee", "t e", "_ t", "e r", "h e", "_ a", "_t he", "i n", "_ s", "_ e",
                   "t t", "o n", "_a n", "_s t", "a a", "e t", "_e t", "ee t", "o o", "in e", "_ _")
    tokenizer = impl.Tokenizer(vocabulary(merges), merges)
    return tokenizer.encode("tee, eet, the teen " + draw.text(300))


@devices("cpu")
def test_encode_other_ids(impl, draw):
    """Ids come from vocab: bytes need not be 0 to 255 (GPT-2's are not), nor merges in order."""
    a, b, c = letters(draw, 3, but="end")
    merges = pairs(f"{a} {b}", f"{a}{b} {c}", "| e", "< |")
    vocab = {1000 - i: token for i, token in vocabulary(merges, [END]).items()}
    tokenizer = impl.Tokenizer(vocab, merges, [END])
    ids = tokenizer.encode(f"{a}{b}{c}{a}{b}{END}é")
    return {"ids": ids, "text": tokenizer.decode(ids)}


@devices("cpu")
def test_encode_runs(impl, draw):
    """In a run the pair is merged from the left, and long runs in several rounds."""
    a = letters(draw, 1)
    merges = pairs(f"{a} {a}", f"{a * 2} {a * 2}", f"{a * 2} {a}")
    tokenizer = impl.Tokenizer(vocabulary(merges), merges)
    return {a * n: shown(tokenizer.vocab[i] for i in tokenizer.encode(a * n))
            for n in (*range(2, 8), 71, 72 + int(draw.ints(50, 1)))}


@devices("cpu")
def test_decode_any_iterable(impl, draw):
    """decode takes no ids, and ids from a generator."""
    tokenizer = impl.Tokenizer(vocabulary([]), [])
    text = draw.text(9) + "é"
    return [tokenizer.decode([]), tokenizer.decode(b for b in text.encode())]


@points(2)
@devices("cpu")
def test_stream_every_cut(impl, draw):
    """A text cut in two anywhere, and into single characters, gives the ids of the whole."""
    merges = pairs("l l", "' ll", "s e", "_ se", "_ _", "! \x1c", "e a", "_ e", "_ a", "' t", "_ t",
                   ", \x1d")
    tokenizer = impl.Tokenizer(vocabulary(merges), merges)
    text = "we'll  see,\x1d don't \n sea!\x1c e\u00a0 " + draw.text(20)
    found = {"characters": shown(tokenizer.vocab[i] for i in tokenizer.encode_iterable(text))}
    for i in range(len(text) + 1):
        ids = tokenizer.encode_iterable([text[:i], text[i:]])
        found[f"{text[:i]} / {text[i:]}"] = shown(tokenizer.vocab[i] for i in ids)
    return found


@points(2)
@devices("cpu")
def test_stream_every_cut_special(impl, draw):
    """So does a text with special tokens that hold spaces, overlap, and start one another."""
    a, b, c, x = letters(draw, 4)
    special = ["<|", f"<| {a} |>", f"<| {a} |> {b}", f"|> {c}", f" <|{x}"]
    merges = pairs(f"{a} {b}")
    tokenizer = impl.Tokenizer(vocabulary(merges, special), merges, special)
    found, ab = {}, a + b
    for text in (f"{ab} <| {a} |> {b} |> {c}", f"{x} <|{x} {ab}<| {a} |> {c} <| {a}",
                 f"{ab} {ab} <| {a} |> {ab} {ab}"):
        for i in range(len(text) + 1):
            ids = tokenizer.encode_iterable([text[:i], text[i:]])
            found[f"{text[:i]} / {text[i:]}"] = list(ids)
    return found


@devices("cpu")
def test_stream_every_cut_alone(impl, draw):
    """So does a text that starts or ends with its only special token, cut before the last sign too."""
    found = {}
    a, b = letters(draw, 2)
    whole, short, ab = f"<| {a} {b} |>", f"= {b}", a + b
    for special, texts in [(whole, [f"{whole} {ab}", f"{ab} {whole}", f"<| {a} {b} {whole}"]),
                           (short, [f"{short} {ab}", f"{ab} {short}", f"{ab}{short}", f"= {short}"]),
                           ("\n", [f"{a}\n {b} \n\n", f"\n{ab} \n{ab}"])]:
        tokenizer = impl.Tokenizer(vocabulary(pairs(f"{a} {b}"), [special]), pairs(f"{a} {b}"), [special])
        for text in texts:
            for i in range(len(text) + 1):
                ids = tokenizer.encode_iterable([text[:i], text[i:]])
                found[f"{text[:i]} / {text[i:]}"] = list(ids)
    return found


@devices("cpu")
def test_stream_empty(impl, draw):
    """No texts, and empty texts between others, change nothing."""
    a, b = letters(draw, 2)
    tokenizer = impl.Tokenizer(vocabulary(pairs(f"{a} {b}")), pairs(f"{a} {b}"))
    texts = ["", a, "", f"{b} ", ""]
    return [list(tokenizer.encode_iterable([])), list(tokenizer.encode_iterable(texts))]


@devices("cpu")
def test_stream_endless(impl, draw):
    """An endless stream can be encoded, and little of it is read ahead, all the way along."""
    tokenizer = impl.Tokenizer(vocabulary([], [END]), [], [END])
    read = 0

    def endless():
        nonlocal read
        while read < 5000:
            read += 1
            yield f"and so{END}\n"
    ids, ahead = tokenizer.encode_iterable(endless()), 0
    for given in range(4000):
        next(ids)
        ahead = max(ahead, read * 8 - given)  # a text is eight ids
    return {"read at most 10 texts ahead": ahead < 100, "not all": read < 5000}


def test_special_case(impl, draw):
    """A special token is found in its own letters alone: a capital makes it another text."""
    name = letters(draw, 4)
    return impl.pretokenize(f"a<{name.upper()}>b<{name}>", [f"<{name}>"])


def test_streams_in_turn(impl, draw):
    """Two streams that are read in turn do not mix: what one holds back is its own."""
    texts = [draw.text(40), draw.text(40)]
    tokenizer = impl.Tokenizer({i: bytes([i]) for i in range(256)}, [])
    streams = [tokenizer.encode_iterable([text[i:i + 3] for i in range(0, len(text), 3)]) for text in texts]
    found = [[], []]
    for pair in itertools.zip_longest(*streams):
        for ids, one in zip(found, pair):
            ids += [] if one is None else [one]
    return found


def test_merges_of_unknown_tokens(impl, draw):
    """A merge whose two parts are known makes a token that has to be known as well."""
    a, b = letters(draw, 2)
    vocab = {i: bytes([i]) for i in range(256)}
    whole = {**vocab, 256: f"{a}{b}".encode()}
    merge = (a.encode(), b.encode())
    return [raises(ValueError, lambda: impl.Tokenizer(vocab, [merge]), "merges"),
            impl.Tokenizer(whole, [merge]).encode(f"{a}{b}{b}")]
