# verdict: missing
# words: larger than 1 MB
def build(top, name, right):
    (top / name).mkdir()
    with (top / name / right.name).open("wb") as file:
        file.truncate(1 << 40)      # of which no byte lies on a disk
