# verdict: refused
# words: neither a folder nor an archive
import os


def build(top, name, right):
    os.mkfifo(top / f"{name}.zip")
