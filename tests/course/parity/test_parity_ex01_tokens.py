"""Chapter 01 against tiktoken, tokenizers, and a trainer written straight from the definition."""

import json
import random
import unicodedata
from collections import Counter
from pydoc_data.topics import topics
from time import process_time

import pytest
import regex
import tiktoken
from tokenizers import AddedToken, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as RustTokenizer

from grader.course import chapters
from grader.judge.engine import Grader
from solutions import ex01_tokens

# As OpenAI wrote it for GPT-2 (encoder.py, 2019).
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SPECIAL = ["<|end|>", "<|end|><|x|>", "<| a b |>"]
DOCS = "\n".join(topics[name] for name in sorted(topics))

TEXTS = {
    "documentation": DOCS[100_000:130_000],
    "emoji": "🙂🙃 👩‍🚀👨‍👩‍👧‍👦 🇯🇵🇩🇪 ok🙂 🙂ok  ❤️‍🔥 1️⃣",
    "chinese": "你好，世界。我們在東京的一家小店裡吃了三碗拉麵，花了3,000日圓。",
    "japanese and korean": "カタカナとひらがな、漢字。 한국어를 배우고 있어요 2026년",
    "other scripts": "Ελληνικά жизнь שלום हिन्दी ไทย العربية e\u0301te\u0301 Ⅻ ½ ² ٣",
    "contractions": "I'll we've don't 'tis it's' 'S DON'T l'll 're're '' 'd'm",
    "spaces": "a  b   c\n\n\nd \t e\r\n\r\n f\u00a0\u00a0g\u2003h\u3000 \x85 !\x1c ",
    "code": "def f(x):\n    return {**x, 'y': x[\"z\"] + 1_000.5e-3}  # no\t\n",
    "runs": "a" * 1000 + " " + "ab" * 333 + " " * 77 + "=" * 99 + "\n" * 50 + "the" * 100,
    "nothing": "",
}


def random_text(seed: int, n: int) -> str:
    """Characters of many scripts, signs, spaces and emoji, most of them once in a text.

    Only characters that Unicode has had since version 3.2, and the first emoji: which of the
    newer ones are letters, each library knows from a Unicode version of its own.
    """
    rng = random.Random(seed)
    blocks = [(0, 0x80), (0, 0x250), (0x300, 0x1400), (0x2000, 0x3100), (0x4E00, 0x9FA6),
              (0xAC00, 0xD7A4), (0xE000, 0xFFFE), (0x1D400, 0x1D6A4), (0x1F300, 0x1F321)]
    text = ""
    while len(text) < n:
        c = " " if rng.random() < 0.2 else chr(rng.randrange(*rng.choice(blocks)))
        if unicodedata.ucd_3_2_0.category(c) != "Cn" or c >= "\U0001F300":
            text += c
    return text


@pytest.fixture(scope="module")
def trained():
    text = DOCS[:100_000] + TEXTS["chinese"] * 9
    return ex01_tokens.train_bpe(text, 1500 + len(SPECIAL), SPECIAL)


@pytest.fixture(scope="module")
def ours(trained):
    return ex01_tokens.Tokenizer(*trained, SPECIAL)


@pytest.fixture(scope="module")
def tiktokens(trained):
    """What tiktoken makes of a text: a list of tokens, as bytes."""
    vocab, merges = trained
    size = 256 + len(merges)
    encoding = tiktoken.Encoding(
        "ours", pat_str=GPT2,
        mergeable_ranks={token: id for id, token in vocab.items() if id < size},
        special_tokens={token: size + i for i, token in enumerate(SPECIAL)})
    return lambda text: encoding.decode_tokens_bytes(encoding.encode(text, allowed_special="all"))


@pytest.fixture(scope="module")
def rust_tokens(trained):
    """What tokenizers makes of a text: a list of tokens, as bytes."""
    vocab, merges = trained
    letter = byte_letters()

    def spell(token):
        return "".join(letter[b] for b in token)
    tokenizer = RustTokenizer(models.BPE(
        vocab={spell(token): id for id, token in vocab.items() if id < 256 + len(merges)},
        merges=[(spell(left), spell(right)) for left, right in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL])
    return lambda text: [vocab[id] for id in tokenizer.encode(text).ids]


def byte_letters() -> dict[int, str]:
    """The printable character that tokenizers writes for each byte (GPT-2's bytes_to_unicode)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}


def check(text, ours, *others):
    mine = [ours.vocab[id] for id in ours.encode(text)]
    assert b"".join(mine) == text.encode()
    for tokens in others:
        assert tokens(text) == mine


@pytest.mark.parametrize("name", TEXTS)
def test_texts(name, ours, tiktokens, rust_tokens):
    check(TEXTS[name], ours, tiktokens, rust_tokens)


@pytest.mark.parametrize("seed", range(40))
def test_random_unicode(seed, ours, tiktokens, rust_tokens):
    check(random_text(seed, 500), ours, tiktokens, rust_tokens)


@pytest.mark.parametrize("seed", range(20))
def test_special_tokens(seed, ours, tiktokens, rust_tokens):
    rng = random.Random(seed)
    pieces = [*SPECIAL, "<|", "end", "|>", "<|x|>", " ", "  ", "a", "<| a", " b |>", "\n", "don't"]
    check("".join(rng.choice(pieces) for _ in range(200)), ours, tiktokens, rust_tokens)


def test_pattern_is_gpt2s():
    for text in [*TEXTS.values(), *(random_text(seed, 2000) for seed in range(10))]:
        assert ex01_tokens.SPLIT.findall(text) == regex.findall(GPT2, text)
        assert "".join(ex01_tokens.SPLIT.findall(text)) == text


def naive_train(text, size):
    """The merges by the definition: count everything, join the best pair everywhere, repeat."""
    words = Counter(tuple(bytes([b]) for b in word.encode()) for word in regex.findall(GPT2, text))
    merges = []
    while len(merges) < size:
        counts = Counter()
        for word, n in words.items():
            for pair in zip(word, word[1:]):
                counts[pair] += n
        if not counts:
            break
        merges.append(max(counts, key=lambda pair: (counts[pair], pair)))
        joined = Counter()
        for word, n in words.items():
            joined[join(word, merges[-1])] += n
        words = joined
    return merges


def join(word, pair):
    out = []
    for token in word:
        if out and (out[-1], token) == pair:
            out[-1] += token
        else:
            out.append(token)
    return tuple(out)


@pytest.mark.parametrize("seed", range(25))
def test_merges_by_the_definition(seed):
    rng = random.Random(seed)
    letters = "ab" if seed % 3 else "abcdefgh"
    text = " ".join("".join(rng.choices(letters, k=rng.randint(1, 12))) for _ in range(60))
    text += random_text(seed, 100)
    assert ex01_tokens.train_bpe(text, 256 + 60)[1] == naive_train(text, 60)


def test_merges_of_documentation():
    text = DOCS[:60_000]
    vocab, merges = ex01_tokens.train_bpe(text, 256 + 150, ["<|end|>"])
    assert merges == naive_train(text, 149)
    assert len(set(vocab.values())) == len(vocab) == 406


def rust_merges(text, vocab_size):
    """The merges that tokenizers' own trainer learns from a text, as pairs of bytes."""
    tokenizer = RustTokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=vocab_size, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    byte = {letter: b for b, letter in byte_letters().items()}
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return [tuple(bytes(byte[letter] for letter in token) for token in pair) for pair in merges]


def step_by_step(text, merges):
    """Before each of the merges: how often each pair stands in the text, by count_pairs."""
    words = [([bytes([b]) for b in word], n) for word, n in Counter(ex01_tokens.pretokenize(text)).items()]
    for pair in [*merges, None]:
        counts = Counter()
        for tokens, n in words:
            for found, times in ex01_tokens.count_pairs(tokens).items():
                counts[found] += n * times
        yield counts
        if pair:
            words = [(ex01_tokens.merge_pair(tokens, pair), n) for tokens, n in words]


def runs(seed):
    """Words with many runs of a letter, where overlapping pairs decide what comes first."""
    rng = random.Random(seed)
    words = ["".join(rng.choice("abc") * rng.randint(1, 7) for _ in range(rng.randint(1, 4))) for _ in range(30)]
    return " ".join(word for word in words for _ in range(rng.randint(1, 40)))


TRAINED_ON = {"documentation": DOCS[:40_000], **TEXTS, **{f"runs {seed}": runs(seed) for seed in range(12)}}


@pytest.mark.parametrize("name", TRAINED_ON)
def test_training_is_tokenizers_up_to_ties(name):
    """Each merge that either of the two trainers chooses is a most frequent pair, by our counts.

    They differ only in which of several equally frequent pairs comes first; so up to the first
    tie, the merges are the same.
    """
    text = TRAINED_ON[name]
    theirs = rust_merges(text, 256 + 120)
    ours = ex01_tokens.train_bpe(text, 256 + 120)[1]
    for merges in (theirs, ours):
        steps = list(step_by_step(text, merges))
        for pair, counts in zip(merges, steps):
            assert counts[pair] == max(counts.values()), (pair, counts.most_common(3))
        assert len(merges) == 120 or not steps[-1], "it ends while pairs are left"
    for mine, other, counts in zip(ours, theirs, steps):
        if [*counts.values()].count(max(counts.values())) > 1:
            break
        assert mine == other


def test_training_is_tokenizers_where_nothing_ties():
    """Texts in which no two pairs are equally frequent give the same merges, all of them."""
    same = 0
    for seed in range(300):
        text = runs(seed)
        ours = ex01_tokens.train_bpe(text, 256 + 20)[1]
        steps = [[*counts.values()] for counts in step_by_step(text, ours)][:len(ours)]
        if not any(counts.count(max(counts)) > 1 for counts in steps):
            assert ours == rust_merges(text, 256 + 20)
            same += 1
    assert same > 20


def test_a_fault_at_the_end_breaks_the_check_of_the_end(tmp_path):
    """Going on when no pair is left fails no check that asks for something else."""
    chapter = chapters.find("tokens")
    source = chapter.solution.read_text("utf-8")
    dropped = "                if not counts[pair]:\n                    del counts[pair]\n"
    assert dropped in source
    (tmp_path / chapter.solution.name).write_text(source.replace(dropped, ""), "utf-8")
    with Grader() as grader:
        failed = {verdict.check.name for verdict in grader.grade(chapter, tmp_path, hidden=True)
                  if verdict.word != "passed"}
    assert failed == {"test_train_runs_out"}


COUNTED_ANEW = """
    words = [[bytes([b]) for b in word] for word in pretokenize(text, special_tokens) if word not in special]
    merges = []
    while len(merges) < room:
        counts = Counter(pair for tokens in words for pair in pairwise(tokens))
        if not counts:
            break
        merges.append(max(counts, key=lambda pair: (counts[pair], pair)))
        words = [merge_pair(tokens, merges[-1]) for tokens in words]
"""
COUNTED_APART = """
    words = [[bytes([b]) for b in word] for word in pretokenize(text, special_tokens) if word not in special]
    counts, where, merges = Counter(), defaultdict(set), []
    for i in range(len(words)):
        for pair in pairwise(words[i]):
            counts[pair] += 1
            where[pair].add(i)
    while len(merges) < room:
        best = max(counts, key=lambda pair: (counts[pair], pair), default=None)
        if not counts[best]:
            break
        merges.append(best)
        for i in where.pop(best):
            counts.subtract(pairwise(words[i]))
            words[i] = merge_pair(words[i], best)
            for pair in pairwise(words[i]):
                counts[pair] += 1
                where[pair].add(i)
"""


@pytest.mark.parametrize("loop, failed", [
    (COUNTED_ANEW, {"test_train_counts_kept": "wrong"}),
    (COUNTED_APART, {}),
], ids=["every word again", "a word for each time it stands in the text"])
def test_kept_counts_are_seen_however_they_are_written(tmp_path, loop, failed):
    """Neither trainer calls count_pairs. The first counts anew for each merge; the second is right."""
    chapter = chapters.find("tokens")
    source = chapter.solution.read_text("utf-8")
    head, rest = source.split("    frequency = Counter(pretokenize(text, special_tokens))\n")
    tail = rest[rest.index("\n    tokens = [bytes([b]) for b in range(256)]"):]
    (tmp_path / chapter.solution.name).write_text(head + loop + tail, "utf-8")
    with Grader() as grader:
        assert {verdict.check.name: verdict.word for verdict in grader.grade(chapter, tmp_path, hidden=True)
                if verdict.word != "passed"} == failed


def streams(text, rng):
    """A text as one, as characters, cut in two at every place, and cut at random."""
    yield [text]
    yield list(text)
    for i in range(len(text) + 1):
        yield [text[:i], text[i:]]
    for _ in range(20):
        cuts = sorted(rng.choices(range(len(text) + 1), k=rng.randint(2, 9)))
        yield [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)])]


@pytest.mark.parametrize("name", [name for name in TEXTS if len(TEXTS[name]) < 1000])
def test_stream_texts(name, ours):
    for texts in streams(TEXTS[name], random.Random(0)):
        assert list(ours.encode_iterable(texts)) == ours.encode(TEXTS[name])


@pytest.mark.parametrize("seed", range(20))
def test_stream_random_unicode(seed, ours):
    text = random_text(seed, 60)
    for texts in streams(text, random.Random(seed)):
        assert list(ours.encode_iterable(texts)) == ours.encode(text)


@pytest.mark.parametrize("seed", range(60))
def test_stream_special_tokens(seed, trained):
    """Special tokens that hold spaces, overlap, start one another, or are ordinary letters."""
    rng = random.Random(seed)
    pieces = ["a", "b", " ", "  ", "\n", "'", "s", "ll", "<|", "|>", "!", "\x1c", "\u00a0", "é"]
    special = list({"".join(rng.choices(pieces, k=rng.randint(1, 5))) for _ in range(4)})
    vocab, merges = trained
    vocab = {i: vocab[i] for i in range(256 + len(merges))}
    vocab |= {len(vocab) + i: token.encode() for i, token in enumerate(special)}
    tokenizer = ex01_tokens.Tokenizer(vocab, merges, special)
    text = "".join(rng.choices(pieces + 3 * special, k=15))
    for texts in streams(text, rng):
        assert list(tokenizer.encode_iterable(texts)) == tokenizer.encode(text)


def test_stream_without_a_safe_cut(ours):
    """A megabyte without a space, in pieces of ten characters, takes no quadratic time."""
    text = "12345,6789" * 100_000
    pieces = (text[i:i + 10] for i in range(0, len(text), 10))
    assert list(ours.encode_iterable(pieces)) == ours.encode(text)


@pytest.mark.parametrize("text", ["".join(DOCS.split()), "a" * len(DOCS), "東京" * len(DOCS)],
                         ids=["documentation", "one letter", "two characters"])
def test_encode_without_a_space(text, trained, tiktokens):
    """Four times the letters take about four times as long, and none of it is remembered."""
    ours = ex01_tokens.Tokenizer(*trained, SPECIAL)
    seconds = []
    for n in (25_000, 100_000):
        start = process_time()
        ids = ours.encode(text[:n])
        seconds.append(process_time() - start)
    assert [ours.vocab[id] for id in ids] == tiktokens(text[:100_000])
    assert seconds[1] < 10 * seconds[0], "quadratic time would be 16 times as long"
    kept = len(ours._seen)
    ours.encode("x" * 10_000)
    assert len(ours._seen) == kept


def test_stream_holds_little(ours):
    """Two megabytes in lines: no more than a few lines are held at a time."""
    longest = 0
    encode = ours.encode

    def spy(text):
        nonlocal longest
        longest = max(longest, len(text))
        return encode(text)
    ours.encode = spy
    try:
        lines = ("the same line again\n" for _ in range(100_000))
        count = sum(1 for _ in ours.encode_iterable(lines))
    finally:
        del ours.encode
    assert count > 100_000 and longest < 1000
