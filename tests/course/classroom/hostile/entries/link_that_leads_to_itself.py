# verdict: passed
# words: a link is not read
def build(top, name, right):
    (top / name).mkdir()
    (top / name / right.name).write_bytes(right.read_bytes())
    (top / name / "loop").symlink_to("..")
    (top / name / "itself").symlink_to("itself")
