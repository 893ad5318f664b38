# verdict: refused
# words: a link is not followed
def build(top, name, right):
    (top / name).symlink_to(right.parent)
