# verdict: refused
# words: handed in twice
def build(top, name, right):
    for twin in ("Mallory", "mallory"):
        (top / twin).mkdir()
        (top / twin / right.name).write_bytes(right.read_bytes())
    return "mallory"
