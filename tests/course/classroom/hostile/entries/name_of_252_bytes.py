# verdict: passed
# words:
def build(top, name, right):
    name = "学" * 84
    (top / name).mkdir()
    (top / name / right.name).write_bytes(right.read_bytes())
    return name
