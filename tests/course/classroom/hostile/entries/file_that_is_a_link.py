# verdict: missing
# words: a link is not read
def build(top, name, right):
    (top / name).mkdir()
    (top / name / right.name).symlink_to(right)
