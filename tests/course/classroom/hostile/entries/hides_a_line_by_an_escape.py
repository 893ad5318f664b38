# verdict: error
# words: save it as UTF-8
def build(top, name, right):
    (top / name).mkdir()
    text = right.read_text("utf-8").encode("ascii", "backslashreplace")
    (top / name / right.name).write_bytes(b"# coding: raw_unicode_escape\n# \\u000aprint('hidden')\n" + text)
