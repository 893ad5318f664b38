# verdict: passed
# words:
def build(top, name, right):
    (top / name).mkdir()
    (top / name / right.name).write_bytes(right.read_bytes())
    for module in ("torch", "numpy", "json", "grader", "exercises", "given", "conftest", "sitecustomize", "einops"):
        (top / name / f"{module}.py").write_text("raise SystemExit('taken for the real one')\n")
