# verdict: refused
# words: a name has 1 to 100
import os


def build(top, name, right):
    os.mkdir(os.fsencode(top) + b"/eve\xff")
    return "eve?"
