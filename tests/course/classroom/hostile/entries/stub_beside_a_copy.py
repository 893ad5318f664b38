# verdict: todo
# words: which is the stub as it was handed out
from grader.course import chapters


def build(top, name, right):
    (top / name).mkdir()
    (top / name / right.name).write_text(chapters.stub(chapters.find("linear")), "utf-8")
    (top / name / f"{right.stem} (1).py").write_bytes(right.read_bytes())
