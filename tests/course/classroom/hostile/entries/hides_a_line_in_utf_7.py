# verdict: error
# words: save it as UTF-8
def build(top, name, right):
    (top / name).mkdir()
    text = right.read_text("utf-8").encode("utf-7")
    (top / name / right.name).write_bytes(b"# coding: utf-7\n" + text + b"\n# +AAo-print('hidden')\n")
