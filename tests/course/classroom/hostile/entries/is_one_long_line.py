# verdict: passed
# words:
def build(top, name, right):
    (top / name).mkdir()
    (top / name / right.name).write_bytes(right.read_bytes() + b"\nx = [" + b"0," * 50_000 + b"]\n")
