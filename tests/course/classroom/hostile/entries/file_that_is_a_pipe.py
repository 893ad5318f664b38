# verdict: missing
# words: a device is not read
import os


def build(top, name, right):
    (top / name).mkdir()
    os.mkfifo(top / name / right.name)
