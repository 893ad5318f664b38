"""What the parts of chapter 01 may be given."""

from hypothesis import strategies as st

LETTERS = st.sampled_from("ab  c\n'é1!😀")
TEXTS = st.text(LETTERS, max_size=40)
SPECIALS = st.lists(st.sampled_from(["<e>", "a", "ab", "<e><e>", " ", "\n", "é", "a b", "<"]), max_size=3, unique=True)


def trained(impl, draw):
    text, specials = draw("text", TEXTS), draw("special tokens", SPECIALS)
    return text, specials, impl.train_bpe(text, 256 + len(specials) + draw("merges", st.integers(0, 12)), specials)


def special_pattern(impl, draw):
    pattern = impl.special_pattern(draw("special tokens", SPECIALS))
    draw.see("found", pattern.findall(draw("text", TEXTS)))


def pretokenize(impl, draw):
    draw.asked(impl.pretokenize, draw("text", TEXTS), draw("special tokens", SPECIALS))


def pairs(impl, draw):
    tokens = draw("tokens", st.lists(st.sampled_from([b"a", b"b", b"ab", b""]), max_size=9))
    pair = draw("pair", st.tuples(*[st.sampled_from([b"a", b"b", b"ab"])] * 2))
    draw.asked(impl.count_pairs, tokens)
    draw.asked(impl.merge_pair, tokens, pair)


def train_bpe(impl, draw):
    text, specials = draw("text", TEXTS), draw("special tokens", SPECIALS)
    draw.asked(impl.train_bpe, text, 256 + draw("room", st.integers(0, 20)), specials)


def tokenizer(impl, draw):
    text, specials, (vocab, merges) = trained(impl, draw)
    if draw("shuffled ids", (False, True)):
        vocab = {(7 * id) % 1009: token for id, token in vocab.items()}
    tokenizer = impl.Tokenizer(vocab, merges, specials)
    draw.see("attributes", [tokenizer.vocab, tokenizer.merges, tokenizer.special_tokens])
    another = draw("another text", st.one_of(TEXTS, st.builds(lambda t, n: t * n, TEXTS, st.integers(1, 40))))
    draw.asked(tokenizer.encode, another)
    draw.asked(tokenizer.decode, tokenizer.encode(another))
    draw.asked(tokenizer.decode, draw("ids", st.lists(st.sampled_from(sorted(vocab)), max_size=8)))
    draw.asked(impl.train_bpe, text, len(vocab), specials)


def stream(impl, draw):
    text, specials, (vocab, merges) = trained(impl, draw)
    pieces = draw(
        "pieces", st.lists(st.text(LETTERS, max_size=8) | st.sampled_from(["<e", ">", "<e>", "a"]), max_size=8)
    )
    tokenizer = impl.Tokenizer(vocab, merges, specials)
    draw.see("ids", list(tokenizer.encode_iterable(iter(pieces))))
