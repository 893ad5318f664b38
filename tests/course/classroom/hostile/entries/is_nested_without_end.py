# verdict: error
# words:
def build(top, name, right):
    (top / name).mkdir()
    deep = b"\ndef f():\n    a" + b".b" * 40_000 + b"\nx = " + b"-" * 90_000 + b"1\n"
    (top / name / right.name).write_bytes(right.read_bytes() + deep)
