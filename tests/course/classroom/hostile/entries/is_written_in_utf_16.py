# verdict: error
# words: save it as that
def build(top, name, right):
    (top / name).mkdir()
    (top / name / right.name).write_text(right.read_text("utf-8"), "utf-16")
