# verdict: missing
# words: larger than 1 MB
def build(top, name, right):
    (top / name).mkdir()
    (top / name / right.name).write_bytes(right.read_bytes() + b"#" * (2 << 20))
