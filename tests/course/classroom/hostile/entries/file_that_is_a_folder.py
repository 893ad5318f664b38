# verdict: missing
# words:
def build(top, name, right):
    (top / name / right.name / right.name).mkdir(parents=True)
