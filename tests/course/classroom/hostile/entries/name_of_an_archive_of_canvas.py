# verdict: missing
# words: cannot be read
def build(top, name, right):
    (top / "eve_12_34_a\x1b[2J\u202e.zip").write_bytes(b"no archive")
    return "eve"
