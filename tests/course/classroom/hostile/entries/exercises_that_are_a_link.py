# verdict: missing
# words: a link is not read
def build(top, name, right):
    (top / name).mkdir()
    (top / name / "exercises").symlink_to(right.parent)
