# verdict: error
# words:
def build(top, name, right):
    (top / name).mkdir()
    (top / name / "helper.py").write_bytes(b"# coding: zlib_codec\n")
    lines = "\nfrom pathlib import Path\n\nexec(compile('1 / 0', Path(__file__).with_name('helper.py'), 'exec'))\n"
    (top / name / right.name).write_text(right.read_text("utf-8") + lines, "utf-8")
