# verdict: missing
# words: cannot be read
import gzip


def build(top, name, right):
    (top / f"{name}.tar.gz").write_bytes(gzip.compress(b"") * 100_000)
