# verdict: passed
# words:
def build(top, name, right):
    (top / "a_honest01").mkdir()
    (top / "a_honest01" / right.name).write_bytes(right.read_bytes())
    return "a_honest01"
