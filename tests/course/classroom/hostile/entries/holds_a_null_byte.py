# verdict: error
# words: a null byte
def build(top, name, right):
    (top / name).mkdir()
    (top / name / right.name).write_bytes(right.read_bytes() + b"\0")
