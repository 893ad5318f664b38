# verdict: passed
# words:
def build(top, name, right):
    (top / "-2+3").mkdir()
    (top / "-2+3" / right.name).write_bytes(right.read_bytes())
    return "-2+3"
