# verdict: passed
# words:
def build(top, name, right):
    for module in ("grader", "torch", "solutions", "exercises"):
        (top / name / module).mkdir(parents=True)
        (top / name / module / "__init__.py").write_text("raise SystemExit('taken for the real one')\n")
    (top / name / right.name).write_bytes(right.read_bytes())
