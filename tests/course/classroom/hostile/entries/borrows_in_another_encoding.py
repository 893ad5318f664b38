# verdict: forbidden
# words: torch.nn.functional.linear
def build(top, name, right):
    (top / name).mkdir()
    borrowed = right.read_text("utf-8") + "\nUNUSED = lambda: torch.nn.functional.linear\n"
    (top / name / right.name).write_bytes(b"# coding: latin-1\n# \xe9\n" + borrowed.encode())
