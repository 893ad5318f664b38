# verdict: refused
# words: a name has 1 to 100
def build(top, name, right):
    (top / "eve\u3164").mkdir()
    (top / "eve\u3164" / right.name).write_bytes(right.read_bytes())
    return "eve\u3164"
