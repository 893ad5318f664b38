# verdict: passed
# words: one word has cyrillic and latin letters
def build(top, name, right):
    (top / "h\u043enest00").mkdir()
    (top / "h\u043enest00" / right.name).write_bytes(right.read_bytes())
    return "h\u043enest00"
