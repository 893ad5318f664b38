# verdict: refused
# words: a name has 1 to 100
def build(top, name, right):
    (top / "eve\x1b[2J\n\u202ebob").mkdir()
    return "eve?[2J??bob"
