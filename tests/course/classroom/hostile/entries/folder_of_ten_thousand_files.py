# verdict: missing
# words: more than 10,000 files and folders
def build(top, name, right):
    (top / name).mkdir()
    for number in range(10_500):
        (top / name / f"{number}.txt").touch()
    (top / name / right.name).write_bytes(right.read_bytes())
