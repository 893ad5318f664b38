# verdict: missing
# words: not looked into
def build(top, name, right):
    (top / name / "/".join(["d"] * 200)).mkdir(parents=True)
