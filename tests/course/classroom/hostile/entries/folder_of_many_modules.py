# verdict: missing
# words: more than 500 .py files
def build(top, name, right):
    (top / name).mkdir()
    for number in range(600):
        (top / name / f"a{number}.py").write_text("x = 1")
    (top / name / right.name).write_bytes(right.read_bytes())
