# verdict: refused
# words: a name has 1 to 100
def build(top, name, right):
    (top / "=HYPERLINK(1)").mkdir()
    return "=HYPERLINK(1)"
