# verdict: refused
# words: a name has 1 to 100
def build(top, name, right):
    (top / "<img src=x onerror=alert(1)>").mkdir()
    return "<img src=x onerror=alert(1)>"
